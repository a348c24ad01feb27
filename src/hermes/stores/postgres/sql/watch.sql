-- The figures that are watched each minute. Every query has an index; each counts a bounded time, never a whole table.

-- name: waiting
select count(*) as waiting, coalesce(extract(epoch from clock_timestamp() - min(received_at)), 0)::float8 as oldest_s
from inbox where state = 'waiting' and attempts = 0

-- name: dead_letters
select count(*) filter (where died_at > now() - interval '1 hour') as new_dead_letters, count(*) as dead_letters
from outbox where state = 'dead'

-- name: turns
select count(*) as turns, count(*) filter (where meta ->> 'outcome' in ('retry_later', 'busy', 'apologised')) as failed
from interactions where created_at > now() - make_interval(secs => %(failed_within_s)s)

-- name: kill_switch
select by, reason from kill_latch where released_at is null

-- name: well_places
-- Where every process gives beats. A row without one for five minutes is of a process that was killed without a trace, and counts as gone.
select role, host, max(started_at) as newest_start_at from processes
where stopped_at is null and role <> 'command' and beat_at > now() - interval '5 minutes'
group by role, host having bool_and(stalled_at is null)

-- name: failing_chores
-- Not the chore that reads this: it does not fail now.
select name, failed from chores where failed is not null and name <> 'watch' order by name

-- name: spends
with hours as (
    select agent, hour, sum(micro_usd)::bigint as micro_usd from spend_hours
    where hour >= date_trunc('hour', now()) - interval '169 hours' and hour < date_trunc('hour', now()) and agent <> ''
    group by agent, hour
), last_hour as (
    select * from hours where hour = date_trunc('hour', now()) - interval '1 hour'
)
select agent, last_hour.hour, last_hour.micro_usd, median::bigint as median_micro_usd
from last_hour join (
    select agent, percentile_cont(0.5) within group (order by micro_usd) as median
    from hours where hour < date_trunc('hour', now()) - interval '1 hour' and micro_usd > 0
    group by agent having count(*) >= 12
) as before using (agent)
order by agent
