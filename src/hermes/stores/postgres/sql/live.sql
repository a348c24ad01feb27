-- How Hermes is now. Every part has an index and a bound; none counts a whole table.

-- name: figures
with ended as (
    select turn_id from interactions
    where created_at > now() - make_interval(secs => %(within_s)s) and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
    order by created_at desc limit %(max_turns)s
), newest as (
    select extract(epoch from i.ended_at - coalesce(i.revived_at, i.received_at)) * 1000 as ms from (select turn_id from ended limit %(max_timed)s) as n join inbox as i using (turn_id)
), open_messages as (
    -- As the list of open turns has it: an attempt that failed, or whose process has gone, does not run.
    select count(*) filter (where not is_running) as waiting, count(*) filter (where is_running) as running,
        coalesce(extract(epoch from clock_timestamp() - min(since) filter (where not is_running)), 0)::float8 as oldest_s
    from (
        select coalesce(i.revived_at, i.received_at) as since, coalesce(run.is_running, false) as is_running
        from inbox as i left join lateral (
            -- The limit makes every plan look up the few runs that were begun, and never read them all.
            select r.state = 'running' and p.stopped_at is null and p.stalled_at is null and not exists (
                select from run_events as n where n.turn_id = r.turn_id and n.type = 'attempt_failed' and n.epoch = r.epoch
            ) as is_running
            from runs as r left join processes as p on p.id = r.worker where i.attempts > 0 and r.turn_id = i.turn_id limit 1
        ) as run on true
        where i.state = 'waiting' and (%(accounts)s::text[] is null or i.account_id = any(%(accounts)s))
    ) as open
)
select (select count(*) from ended) as turns,
    (
        select count(*) from interactions
        where meta ->> 'outcome' <> 'answered' and meta ->> 'outcome' = any(%(failed)s) and created_at > now() - make_interval(secs => %(within_s)s)
            and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
    ) + (
        -- Messages that could not be opened have no record of a turn.
        select count(*) from inbox as i
        where i.state = 'dead' and i.ended_at > now() - make_interval(secs => %(within_s)s)
            and (%(accounts)s::text[] is null or i.account_id = any(%(accounts)s))
            and not exists (select from interactions as x where x.turn_id = i.turn_id)
    ) as failed,
    (select percentile_cont(0.5) within group (order by ms)::bigint from newest) as p50_ms,
    (select percentile_cont(0.95) within group (order by ms)::bigint from newest) as p95_ms,
    waiting, running, oldest_s,
    (
        select count(*) from (
            select 1 from outbox where state = 'dead' and (%(accounts)s::text[] is null or account_id = any(%(accounts)s)) limit 1000
        ) as dead
    ) as dead_letters,
    case when %(accounts)s::text[] is null then (select count(*) from alerts where ended_at is null) else 0 end as open_alerts
from open_messages

-- name: backends
select coalesce(try ->> 'backend', '') as backend, count(*) as attempts,
    count(*) filter (where try ->> 'outcome' <> 'answered') as failed,
    (avg((try ->> 'ms')::float8) filter (where try ->> 'outcome' = 'answered'))::int as mean_ms,
    (array_agg(try ->> 'outcome' order by created_at desc) filter (where try ->> 'outcome' <> 'answered'))[1] as last_error
from (
    select attempts, created_at from calls
    where created_at > now() - make_interval(secs => %(within_s)s) and not cache_hit and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
    order by created_at desc limit %(max_calls)s
) as recent, jsonb_array_elements(recent.attempts) as try
group by 1 order by 1
