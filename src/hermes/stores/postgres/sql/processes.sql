-- The rows of processes, and their events. Ages by the database's clock, so that all hosts agree on which process is late.

-- name: beat
-- Rows that another beat is marking are passed over, so that two processes that wake together never wait for each other.
with before as (
    select stalled_at, silent_at, beat_at > clock_timestamp() - make_interval(secs => %(stalled_after_s)s::float8 / 2) as judges
    from processes where id = %(id)s
), written as (
    insert into processes (id, role, host, pid, version, progress_at, running, slots_used, slots_waiting, loop_lag_ms, silent_at, vault_folder)
    values (
        %(id)s, %(role)s, %(host)s, %(pid)s, %(version)s, clock_timestamp() - make_interval(secs => %(turn_ended_s)s),
        %(running)s, %(slots_used)s, %(slots_waiting)s, %(loop_lag_ms)s, case when %(is_silent)s then clock_timestamp() end,
        %(vault_folder)s::uuid
    )
    on conflict (id) do update set
        beat_at = clock_timestamp(), progress_at = excluded.progress_at, running = excluded.running, slots_used = excluded.slots_used,
        slots_waiting = excluded.slots_waiting, loop_lag_ms = excluded.loop_lag_ms, stalled_at = null, stopped_at = null,
        silent_at = case when %(is_silent)s then coalesce(processes.silent_at, clock_timestamp()) end
), late as (
    select id from processes
    where id <> %(id)s and role <> 'command' and stopped_at is null and stalled_at is null and (select judges from before)
        and beat_at < clock_timestamp() - make_interval(secs => %(stalled_after_s)s::float8)  -- null finds none
    for no key update skip locked
), stalled as (
    update processes set stalled_at = clock_timestamp() from late where processes.id = late.id
    returning processes.id, role, host, pid, version, started_at, beat_at, extract(epoch from clock_timestamp() - beat_at)::float8 as beat_age_s,
        progress_at, running, slots_used, slots_waiting, loop_lag_ms, silent_at, stopped_at
), events as (
    insert into process_events (type, process, facts)
    select type, %(id)s, jsonb_build_object('role', %(role)s::text, 'host', %(host)s::text, 'pid', %(pid)s::int, 'version', %(version)s::text)
    from (
        select 'process_started' as type where not exists (select from before)
        union all select 'process_recovered' from before where stalled_at is not null
        union all select 'process_silent' where %(is_silent)s and not exists (select from before where silent_at is not null)
    ) as own
    union all
    select 'process_stalled', id, jsonb_build_object('role', role, 'host', host, 'pid', pid, 'beat_age_s', round(beat_age_s::numeric, 1))
    from stalled
)
select * from stalled

-- name: stop
with gone as (
    update processes set stopped_at = clock_timestamp() where id = %(id)s and stopped_at is null returning id, role, host, pid
)
insert into process_events (type, process, facts)
select 'process_stopped', id, jsonb_build_object('role', role, 'host', host, 'pid', pid) from gone

-- name: record_restart
with before as (
    select id, stalled_at from processes where id = %(id)s for update
), gone as (
    update processes set stopped_at = coalesce(processes.stopped_at, clock_timestamp()) from before where processes.id = before.id
)
insert into process_events (type, process, facts)
select type, %(id)s, jsonb_strip_nulls(jsonb_build_object(
    'role', %(role)s::text, 'host', %(host)s::text, 'pid', %(pid)s::int, 'reason', %(reason)s::text, 'code', %(code)s::int,
    'restarts', %(restarts)s::int
))
from (
    select 1 as place, 'process_stalled' as type
    where %(reason)s = 'stalled' and not exists (select from before where stalled_at is not null)
    union all select 2, 'process_restarted'
    union all select 3, 'process_crash_loop' where %(is_crash_loop)s
) as own order by place

-- name: all
select id, role, host, pid, version, started_at, beat_at, extract(epoch from clock_timestamp() - beat_at)::float8 as beat_age_s, progress_at,
    running, slots_used, slots_waiting, loop_lag_ms, silent_at, stopped_at
from processes order by stopped_at is not null, role, started_at, id

-- name: events
select number, type, process, facts, at from process_events order by number desc limit %(limit)s

-- name: prune_events
delete from process_events where at < clock_timestamp() - make_interval(secs => %(events_older_than_s)s)

-- name: prune
delete from processes where beat_at < clock_timestamp() - make_interval(secs => %(rows_older_than_s)s)
