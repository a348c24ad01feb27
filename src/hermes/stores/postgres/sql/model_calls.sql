-- Model calls, the budget alerts on their totals, and the kill switch.

-- name: add
-- One JSON value for the whole row: a call has two dozen fields, and one field sent as its own parameter costs as much as all in one value.
insert into calls (
    id, turn_id, user_id, account_id, session_id, response_id, source, tier, backend, model, answered_by, attempts,
    tokens_in, tokens_out, cache_read, cache_write, cache_write_1h, micro_usd, rate, is_estimated, cache_hit, outcome,
    latency_ms, first_token_ms, day, purpose, agent, platform, api_key_id, error, waited_ms, times, plan
)
select
    id, turn_id, user_id, account_id, session_id, response_id, source, tier, backend, model, answered_by, attempts,
    tokens_in, tokens_out, cache_read, cache_write, cache_write_1h, micro_usd, rate, is_estimated, cache_hit, outcome,
    latency_ms, first_token_ms, day, purpose, agent, platform, api_key_id, error, waited_ms, times, plan
from jsonb_to_record(%(call)s) as call (
    id uuid, turn_id uuid, user_id uuid, account_id text, session_id uuid, response_id text, source text, tier text, backend text,
    model text, answered_by text, attempts jsonb, tokens_in bigint, tokens_out bigint, cache_read bigint, cache_write bigint,
    cache_write_1h bigint, micro_usd bigint, rate jsonb, is_estimated boolean, cache_hit boolean, outcome text, latency_ms integer,
    first_token_ms integer, day date, purpose text, agent text, platform text, api_key_id uuid, error text, waited_ms integer, times integer,
    plan bigint
)
on conflict (id) do nothing
returning id

-- name: totals
select count(*) as calls, coalesce(sum(tokens), 0)::bigint as tokens, coalesce(sum(micro_usd), 0)::bigint as micro_usd
from calls where day >= %(since)s and day < %(until)s

-- name: totals_of_user
select count(*) as calls, coalesce(sum(tokens), 0)::bigint as tokens, coalesce(sum(micro_usd), 0)::bigint as micro_usd
from calls where user_id = %(user_id)s and day >= %(since)s and day < %(until)s

-- name: by_day
-- One statement reads one snapshot: the ids are exactly those that the sums have counted.
select day, count(*) as calls, sum(tokens)::bigint as tokens, sum(micro_usd)::bigint as micro_usd,
    coalesce(array_agg(id) filter (where day >= %(ids_since)s), '{}') as ids
from calls where user_id = %(user_id)s and day >= %(since)s and day < %(until)s
group by day order by day

-- name: of_key
-- One statement reads one snapshot, as in by_day.
select day, count(*) as calls, sum(tokens)::bigint as tokens, sum(micro_usd)::bigint as micro_usd,
    coalesce(array_agg(id) filter (where created_at > clock_timestamp() - make_interval(secs => %(recent_s)s)), '{}') as ids
from calls where api_key_id = %(key_id)s and day >= %(since)s and day < %(until)s
group by day order by day

-- name: on_day
-- One statement reads one snapshot: every call among the ids is in the sums.
with recent as (
    select coalesce(array_agg(id), '{}') as ids from calls
    where day = %(day)s and created_at > clock_timestamp() - make_interval(secs => %(recent_s)s)
)
select %(day)s::date as day, count(*) as calls, coalesce(sum(tokens), 0)::bigint as tokens,
    coalesce(sum(micro_usd), 0)::bigint as micro_usd, (select ids from recent)
from calls where day = %(day)s

-- name: of_agents
-- One statement reads one snapshot, as in on_day. Agents without money on that day are left out.
select coalesce(jsonb_object_agg(agent, micro_usd), '{}') as micro_usd, (
    select coalesce(array_agg(id), '{}') from calls
    where day = %(day)s and agent is not null and created_at > clock_timestamp() - make_interval(secs => %(recent_s)s)
) as ids
from (select agent, sum(micro_usd)::bigint as micro_usd from calls where day = %(day)s and agent is not null group by agent) as spent

-- name: cost_of_turn
select count(*) filter (where outcome <> 'refused') as calls, coalesce(sum(tokens), 0)::bigint as tokens,
    coalesce(sum(micro_usd), 0)::bigint as micro_usd
from calls where turn_id = %(turn_id)s

-- name: model_loads
-- What models did: answers of the day, and how fast they were lately. The backend is known of calls that reached one.
select backend, model, count(*) as answers,
    count(*) filter (where created_at > now() - interval '15 minutes') as recent_answers,
    (percentile_cont(0.5) within group (order by latency_ms) filter (where created_at > now() - interval '15 minutes'))::float8 as p50_ms,
    (sum(tokens_out) filter (where created_at > now() - interval '15 minutes') * 1000.0
        / nullif(sum(latency_ms) filter (where created_at > now() - interval '15 minutes'), 0))::float8 as tokens_per_s
from calls where day = %(day)s and outcome = 'answered' and not cache_hit and backend is not null
group by backend, model

-- name: model_failures
-- Failed attempts of the day, by the model's name in its chain.
select attempt->>'name' as name, count(*) as failures
from calls cross join lateral jsonb_array_elements(attempts) as attempt
where created_at >= %(day)s::date at time zone 'utc' and (jsonb_array_length(attempts) > 1 or outcome = 'failed')
    and attempt->>'outcome' <> 'answered' and attempt->>'outcome' not like 'skipped%%'
group by 1

-- name: usage_of_turn
select coalesce(sum(tokens_in), 0)::bigint as tokens_in, coalesce(sum(tokens_out), 0)::bigint as tokens_out,
    coalesce(sum(micro_usd), 0)::bigint as micro_usd
from calls where turn_id = %(turn_id)s and outcome <> 'refused'
having count(*) > 0

-- name: place
-- Another process may have erased the user a moment ago, whose key this one still holds.
select session_id, user_id from calls join users on users.id = user_id
where calls.id = %(call_id)s and api_key_id = %(api_key_id)s and session_id is not null and state <> 'deleted'

-- name: note_alert
insert into budget_alerts (subject, period, percent) values (%(subject)s, %(period)s, %(percent)s)
on conflict do nothing
returning percent

-- name: engaged
select engaged_at, by, reason from kill_latch where released_at is null

-- name: engage
insert into kill_latch (by, reason) values (%(by)s, %(reason)s) on conflict do nothing

-- name: release
update kill_latch set released_at = now(), released_by = %(by)s where released_at is null returning id

-- name: kill_switch_uses
select engaged_at, by, reason, released_at, released_by from kill_latch order by id desc limit %(limit)s
