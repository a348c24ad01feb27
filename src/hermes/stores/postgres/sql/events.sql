-- The stream of events: turns, adapters and processes, in the order of (xid, number).

-- name: horizon
-- Every transaction before `settled` has ended, so a later statement sees all that they wrote. `next` is given to no transaction yet.
-- Transactions before `copied` are of the database that this one was copied from.
select pg_snapshot_xmin(pg_current_snapshot())::text::bigint as settled, pg_snapshot_xmax(pg_current_snapshot())::text::bigint as next,
    coalesce((select max(xid) from database_copies)::text::bigint, 0) as copied

-- name: read
with turned as (
    select xid, event_number as number, 'turn' as source,
        case when type = 'effect' then coalesce(%(effects)s::jsonb ->> step, type) else type end as type,
        coalesce(done_at, started_at) as at, facts, turn_id, null::uuid as agent_id, null::uuid as process
    from run_events
    where event_number is not null and (xid, event_number) > (%(xid)s::text::xid8, %(number)s::bigint) and xid < %(settled)s::text::xid8
    order by xid, event_number limit %(limit)s
), swapped as (
    select xid, event_number, 'fleet', kind, at, jsonb_build_object('from', old_adapter, 'to', new_adapter, 'by', by, 'reason', reason, 'epoch', epoch),
        null::uuid, agent_id, null::uuid
    from fleet_events
    where event_number is not null and (xid, event_number) > (%(xid)s::text::xid8, %(number)s::bigint) and xid < %(settled)s::text::xid8
    order by xid, event_number limit %(limit)s
), processed as (
    select xid, number, 'process', type, at, facts, null::uuid, null::uuid, process
    from process_events
    where (xid, number) > (%(xid)s::text::xid8, %(number)s::bigint) and xid < %(settled)s::text::xid8
    order by xid, number limit %(limit)s
), page as (
    select * from turned union all select * from swapped union all select * from processed order by xid, number limit %(limit)s
)
select page.xid::text::bigint as xid, page.number, page.source, page.type, page.at, page.facts, page.turn_id, inbox.account_id as account, process,
    coalesce(changed.name, answering.name, case when inbox.turn_id is not null then %(default_agent)s end) as agent
from page
left join inbox on inbox.turn_id = page.turn_id
left join accounts on accounts.id = inbox.account_id
left join agents as answering on answering.id = accounts.agent_id
left join agents as changed on changed.id = page.agent_id
order by page.xid, page.number

-- name: read_turn
select xid::text::bigint as xid, event_number as number, 'turn' as source,
    case when type = 'effect' then coalesce(%(effects)s::jsonb ->> step, type) else type end as type,
    coalesce(done_at, started_at) as at, facts, run_events.turn_id, inbox.account_id as account, null::uuid as process,
    coalesce(agents.name, %(default_agent)s) as agent
from run_events
join inbox on inbox.turn_id = run_events.turn_id
left join accounts on accounts.id = inbox.account_id
left join agents on agents.id = accounts.agent_id
where run_events.turn_id = %(turn_id)s and event_number is not null and (xid, event_number) > (%(xid)s::text::xid8, %(number)s::bigint)
order by run_events.xid, event_number
