-- Model plans: chains of models that stand in place of those of the settings, without a restart.
--
-- Rows are only added. The newest plan holds; `percent` of all chats use it, and the others use the plan `base`, or the chains of the
-- settings if there is none.

create table model_plans (
    version     bigint primary key,
    chains      jsonb not null,                      -- by tier, the names of its models in their order; a tier that is left out has the settings'
    percent     integer not null check (percent between 1 and 100),
    base        bigint references model_plans,
    by          text not null,
    reason      text not null,
    at          timestamptz not null default now()
);

-- The plan that chose the models of a call; null: the settings, or the caller.
alter table calls add column plan bigint;
