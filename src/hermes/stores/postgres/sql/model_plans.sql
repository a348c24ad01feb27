-- Model plans: what stands in place of the chains of the settings.

-- name: newest
select plan.version, plan.chains, plan.percent, plan.base, plan.by, plan.reason, plan.at,
    coalesce(base.chains, '{}'::jsonb) as base_chains
from model_plans as plan left join model_plans as base on base.version = plan.base
order by plan.version desc limit %(limit)s

-- name: add
insert into model_plans (version, chains, percent, base, by, reason)
values (%(version)s, %(chains)s, %(percent)s, %(base)s, %(by)s, %(reason)s)
on conflict (version) do nothing
returning version
