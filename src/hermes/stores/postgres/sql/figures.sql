-- What operators see of all processes together, in one statement. Every row is a figure: its name, what it is about, its value.

-- name: read
with waiting_messages as (
    select count(*) as entries, min(coalesce(revived_at, received_at)) as since from inbox where state = 'waiting'
), unsent as (
    select count(*) as entries, min(put_at) as since, count(*) filter (where state = 'pending' and outcome is not null) as failed,
        min(put_at) filter (where state = 'pending' and outcome is not null) as failed_since
    from outbox where state in ('pending', 'attempting')
), jobs as (
    select queue_name as queue, count(*) as entries, min(scheduled_at) filter (where scheduled_at <= now()) as due_since,
        min(deferred_at) filter (where scheduled_at is null) as waiting_since
    from procrastinate_jobs where status = 'todo' group by queue_name
), queues (queue, entries, since) as (
    select 'inbox', entries, since from waiting_messages
    union all select 'outbox', entries, since from unsent
    union all select 'failed_sends', failed, failed_since from unsent
    union all select 'dead_letters', count(*), min(died_at) from outbox where state = 'dead'
    union all select queue, coalesce(entries, 0), least(due_since, waiting_since)
    from unnest(%(job_queues)s::text[]) as known (queue) left join jobs using (queue)
), live as (
    -- A process that was killed without a trace leaves its row. After five minutes without a beat it counts as gone.
    select role, extract(epoch from now() - beat_at) as beat_age_s,
        case when stalled_at is not null or beat_at < now() - make_interval(secs => %(stalled_after_s)s) then 'stalled'
            when silent_at is not null then 'silent' else 'alive' end as state
    from processes where stopped_at is null and beat_at > now() - interval '5 minutes' and (
        beat_at > now() - make_interval(secs => %(stalled_after_s)s) or not exists (
            -- The system has given its number to another process, so it has ended: a container that was started again.
            select from processes as later
            where later.host = processes.host and later.pid = processes.pid and later.started_at > processes.started_at
        )
    )
)
select 'queue_length' as name, array[queue] as labels, entries::float8 as value from queues
union all
select 'queue_oldest', array[queue], coalesce(extract(epoch from now() - since), 0)::float8 from queues
union all
select 'chore_held', array[name, coalesce(processes.role || '@' || processes.host, '')], (ended_at is null and held_until > now())::int::float8
from chores left join processes on processes.id = chores.holder
union all
select 'chore_epoch', array[name], epoch::float8 from chores
union all
select 'chore_failed', array[name], (failed is not null)::int::float8 from chores
union all
select 'chore_done_age', array[name], extract(epoch from now() - done_at)::float8 from chores where done_at is not null
union all
select 'processes', array[roles.role, states.state], count(live.role)::float8
from (values ('serve'), ('worker')) as roles (role)
cross join (values ('alive'), ('silent'), ('stalled')) as states (state)
left join live on live.role = roles.role and live.state = states.state
group by roles.role, states.state
union all
select 'beat_age', array[role], max(beat_age_s)::float8 from live group by role
union all
select 'alerts_open', array[event, level], count(*)::float8 from alerts where ended_at is null group by event, level
union all
select 'kill_switch', array[]::text[], exists(select from kill_latch where released_at is null)::int::float8
union all
select 'newest_event', array[]::text[], coalesce(pg_sequence_last_value('event_numbers'), 0)::float8
