-- Calls of models, the alerts on what they add up to, and the kill switch.

-- name: add
insert into calls (
    id, turn_id, user_id, account_id, session_id, response_id, source, tier, backend, model, answered_by, attempts,
    tokens_in, tokens_out, cache_read, cache_write, cache_write_1h, micro_usd, rate, is_estimated, cache_hit, outcome,
    latency_ms, first_token_ms, day
) values (
    %(id)s, %(turn_id)s, %(user_id)s, %(account_id)s, %(session_id)s, %(response_id)s, %(source)s, %(tier)s, %(backend)s, %(model)s,
    %(answered_by)s, %(attempts)s, %(tokens_in)s, %(tokens_out)s, %(cache_read)s, %(cache_write)s, %(cache_write_1h)s, %(micro_usd)s,
    %(rate)s, %(is_estimated)s, %(cache_hit)s, %(outcome)s, %(latency_ms)s, %(first_token_ms)s, %(day)s
)
on conflict (id) do nothing
returning id

-- name: spent
select count(*), coalesce(sum(tokens), 0)::bigint, coalesce(sum(micro_usd), 0)::bigint
from calls where day >= %(since)s and day < %(until)s

-- name: spent_by_user
select count(*), coalesce(sum(tokens), 0)::bigint, coalesce(sum(micro_usd), 0)::bigint
from calls where user_id = %(user_id)s and day >= %(since)s and day < %(until)s

-- name: by_day
-- One statement, one moment: the ids are exactly those that the sums have counted.
select day, count(*), sum(tokens)::bigint, sum(micro_usd)::bigint, coalesce(array_agg(id) filter (where day >= %(ids_since)s), '{}')
from calls where user_id = %(user_id)s and day >= %(since)s and day < %(until)s
group by day order by day

-- name: on_day
-- One statement, one moment: whatever is among the ids is in the sums.
with recent as (
    select coalesce(array_agg(id), '{}') as ids from calls
    where day = %(day)s and created_at > clock_timestamp() - make_interval(secs => %(recent_s)s)
)
select count(*), coalesce(sum(tokens), 0)::bigint, coalesce(sum(micro_usd), 0)::bigint, (select ids from recent)
from calls where day = %(day)s

-- name: alerted
insert into budget_alerts (subject, period, percent) values (%(subject)s, %(period)s, %(percent)s)
on conflict do nothing
returning percent

-- name: engaged
select engaged_at, by, reason from kill_latch where released_at is null

-- name: engage
insert into kill_latch (by, reason) values (%(by)s, %(reason)s) on conflict do nothing

-- name: release
update kill_latch set released_at = now(), released_by = %(by)s where released_at is null returning id
