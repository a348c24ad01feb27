-- The journal of turns. The worker notes an effect before it starts and again when it has ended.

-- name: begin
with claimed as (
    select from conversations where id = %(conversation_id)s and epoch = %(epoch)s for update
)
insert into run_events (turn_id, step, index, type, attempt, epoch, request)
select %(turn_id)s, %(step)s, %(index)s, 'effect', %(attempt)s, %(epoch)s, %(request)s from claimed
on conflict (turn_id, step, index) do nothing
returning id

-- name: known
select request, result from run_events where turn_id = %(turn_id)s and step = %(step)s and index = %(index)s

-- name: finish
-- The effect belongs to the attempt that finished it. If another one began it, its beginning is reckoned from how long it took.
update run_events set result = %(result)s, facts = %(facts)s, done_at = clock_timestamp(), attempt = %(attempt)s, epoch = %(epoch)s,
    started_at = case when epoch = %(epoch)s then started_at else clock_timestamp() - %(us)s * interval '1 microsecond' end,
    event_number = nextval('event_numbers'), xid = pg_current_xact_id()
where turn_id = %(turn_id)s and step = %(step)s and index = %(index)s and result is null
returning id

-- name: note
insert into run_events (turn_id, step, index, type, attempt, epoch, facts, started_at, done_at, event_number, xid)
select %(turn_id)s, type, coalesce(last, -1) + row_number() over (partition by type order by place), type, %(attempt)s, %(epoch)s, facts,
    statement_timestamp() - began_ago * interval '1 microsecond', statement_timestamp() - ended_ago * interval '1 microsecond',
    nextval('event_numbers'), pg_current_xact_id()
from unnest(%(types)s::text[], %(facts)s::jsonb[], %(began_ago)s::bigint[], %(ended_ago)s::bigint[])
    with ordinality as noted (type, facts, began_ago, ended_ago, place)
left join (select step, max(index) as last from run_events where turn_id = %(turn_id)s group by step) as known on known.step = type
order by place

-- name: note_failed
-- As `note`, while the claim stands and the turn is open: a worker that lost its claim must not disturb the attempt of another.
with claimed as (
    select from conversations where id = %(conversation_id)s and epoch = %(epoch)s for update
)
insert into run_events (turn_id, step, index, type, attempt, epoch, facts, started_at, done_at, event_number, xid)
select %(turn_id)s, type, coalesce(last, -1) + row_number() over (partition by type order by place), type, %(attempt)s, %(epoch)s, facts,
    statement_timestamp() - began_ago * interval '1 microsecond', statement_timestamp() - ended_ago * interval '1 microsecond',
    nextval('event_numbers'), pg_current_xact_id()
from claimed cross join unnest(%(types)s::text[], %(facts)s::jsonb[], %(began_ago)s::bigint[], %(ended_ago)s::bigint[])
    with ordinality as noted (type, facts, began_ago, ended_ago, place)
left join (select step, max(index) as last from run_events where turn_id = %(turn_id)s group by step) as known on known.step = type
where exists (select from inbox where turn_id = %(turn_id)s and state = 'waiting')
order by place
on conflict (turn_id, step, index) do nothing

-- name: add
-- Begin and end are one moment: the column's default would be read after `done_at`, and the event would end before it began.
insert into run_events (turn_id, step, index, type, attempt, facts, started_at, done_at, event_number, xid)
select turn_id, %(type)s, (
    select 1 + coalesce(max(index), -1) from run_events where turn_id = %(turn_id)s and step = %(type)s
), %(type)s, attempts, %(facts)s, statement_timestamp(), statement_timestamp(), nextval('event_numbers'), pg_current_xact_id()
from inbox where turn_id = %(turn_id)s

-- name: effect
select inbox.user_id, request, result from run_events join inbox on inbox.turn_id = run_events.turn_id
where run_events.turn_id = %(turn_id)s and step = %(step)s and index = %(index)s and type = 'effect'

-- name: read
select step, index, type, attempt, started_at, done_at, facts, epoch, request is not null or result is not null as has_content
from run_events where turn_id = %(turn_id)s order by id

-- name: run
select state, epoch, attempt, case when worker_epoch = epoch then worker end as worker,
    case when worker_epoch = epoch then claimed_at end as claimed_at
from runs where turn_id = %(turn_id)s

-- name: empty
-- In the order of ids, which is about the order of time: a batch in which no entry is old ends the work.
with next as (
    select run_events.id, run_events.turn_id, started_at, state <> 'waiting' and ended_at < %(ended_before)s as is_old
    from run_events join inbox on inbox.turn_id = run_events.turn_id
    where (request is not null or result is not null) and run_events.id > %(after_id)s
    order by run_events.id limit %(limit)s
), emptied as (
    update run_events set request = null, result = null,
        type = case step when 'call_model' then 'llm_called' when 'run_tools' then 'tool_invoked' else type end
    from next where run_events.turn_id = next.turn_id and run_events.id = next.id and next.is_old
    returning run_events.turn_id
), replayed as (
    update replays set change = null, result = null
    where (change is not null or result is not null) and turn_id in (select turn_id from emptied)
), tools as (
    update tool_effects set result = null where result is not null and turn_id in (select turn_id from emptied)
), offers as (
    delete from offers where turn_id in (select turn_id from emptied)
), names as (
    -- An earlier version noted which facts it learned by their keys, which say something about the user.
    update run_events set facts = facts - 'keys'
    where step = 'memory_saved' and facts ? 'keys' and turn_id in (select turn_id from emptied)
)
select coalesce(max(id), %(after_id)s) as last_id, (select count(*) from emptied) as emptied,
    count(*) = %(limit)s and min(started_at) < %(ended_before)s as has_more
from next

-- name: retake
-- An effect that an earlier attempt left open belongs to the attempt that repeats it. Returns no row if the claim no longer stands.
with claimed as (
    select from conversations where id = %(conversation_id)s and epoch = %(epoch)s for update
), taken as (
    update run_events set attempt = %(attempt)s, epoch = %(epoch)s, started_at = clock_timestamp()
    from claimed where turn_id = %(turn_id)s and step = %(step)s and index = %(index)s and result is null
)
select from claimed

-- name: log
insert into interactions (turn_id, account_id, user_id, session_id, platform, meta)
values (%(turn_id)s, %(account)s, %(user_id)s, %(session_id)s, %(platform)s, %(meta)s)
on conflict (turn_id) do nothing

-- name: withdraw
delete from interactions where turn_id = %(turn_id)s
