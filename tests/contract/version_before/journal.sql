-- As the version before migration 0028 had it: commit bcf2c27.
-- The journal of turns. The worker notes an effect before it starts and again when it has ended.

-- name: begin
with claimed as (
    select from conversations where id = %(conversation_id)s and epoch = %(epoch)s for update
)
insert into run_events (turn_id, step, index, type, attempt, request)
select %(turn_id)s, %(step)s, %(index)s, 'effect', %(attempt)s, %(request)s from claimed
on conflict (turn_id, step, index) do nothing
returning id

-- name: known
select request, result from run_events where turn_id = %(turn_id)s and step = %(step)s and index = %(index)s

-- name: finish
update run_events set result = %(result)s, facts = %(facts)s, done_at = clock_timestamp()
where turn_id = %(turn_id)s and step = %(step)s and index = %(index)s and result is null
returning id

-- name: note
insert into run_events (turn_id, step, index, type, attempt, facts, done_at)
select %(turn_id)s, type, coalesce(last, -1) + row_number() over (partition by type order by place), type, %(attempt)s, facts, clock_timestamp()
from unnest(%(types)s::text[], %(facts)s::jsonb[]) with ordinality as noted (type, facts, place)
left join (select step, max(index) as last from run_events where turn_id = %(turn_id)s group by step) as known on known.step = type
order by place

-- name: add
insert into run_events (turn_id, step, index, type, attempt, facts, done_at)
select turn_id, %(type)s, (
    select 1 + coalesce(max(index), -1) from run_events where turn_id = %(turn_id)s and step = %(type)s
), %(type)s, attempts, %(facts)s, clock_timestamp()
from inbox where turn_id = %(turn_id)s

-- name: effect
select inbox.user_id, request, result from run_events join inbox on inbox.turn_id = run_events.turn_id
where run_events.turn_id = %(turn_id)s and step = %(step)s and index = %(index)s and type = 'effect'

-- name: read
select step, index, type, attempt, started_at, done_at, facts from run_events where turn_id = %(turn_id)s order by id

-- name: hold
select from conversations where id = %(conversation_id)s and epoch = %(epoch)s for update

-- name: log
insert into interactions (turn_id, account_id, user_id, session_id, platform, meta)
values (%(turn_id)s, %(account)s, %(user_id)s, %(session_id)s, %(platform)s, %(meta)s)
on conflict (turn_id) do nothing
