-- Agents, their current adapters, and the fleet's history.

-- name: add
insert into agents (name, tone, role, tier, adapter, cwd, daily_micro_usd)
values (%(name)s, %(tone)s, %(role)s, %(tier)s, %(adapter)s, %(cwd)s, %(daily_micro_usd)s)
on conflict (name) do nothing
returning id

-- name: answer_on
insert into accounts (id, agent_id) values (%(account)s, %(agent_id)s)
on conflict (id) do update set agent_id = excluded.agent_id

-- name: get
select name, tone, role, tier, adapter, cwd, epoch, daily_micro_usd,
    array(select accounts.id from accounts where accounts.agent_id = agents.id order by accounts.id) as accounts
from agents where name = %(name)s

-- name: list
select name, tone, role, tier, adapter, cwd, epoch, daily_micro_usd,
    array(select accounts.id from accounts where accounts.agent_id = agents.id order by accounts.id) as accounts
from agents order by name

-- name: spend
select agent, sum(micro_usd)::bigint as micro_usd from calls where day = %(day)s and agent is not null group by agent

-- name: lock
select id, adapter, epoch from agents where name = %(name)s for update

-- name: point
update agents set adapter = %(adapter)s, cwd = %(cwd)s, epoch = epoch + 1 where id = %(agent_id)s

-- name: set_cap
update agents set daily_micro_usd = %(daily_micro_usd)s where name = %(name)s

-- name: note
insert into fleet_events (id, agent_id, kind, old_adapter, new_adapter, reason, by, checks, epoch)
values (%(id)s, %(agent_id)s, %(kind)s, %(old)s, %(new)s, %(reason)s, %(by)s, %(checks)s, %(epoch)s)
on conflict (id) do nothing

-- name: is_noted
select from fleet_events where id = %(id)s

-- name: events
select fleet_events.id, agents.name as agent, kind, old_adapter as old, new_adapter as new, reason, by, checks, fleet_events.epoch, at
from fleet_events join agents on agents.id = agent_id
order by number desc limit %(limit)s

-- name: events_of
select fleet_events.id, agents.name as agent, kind, old_adapter as old, new_adapter as new, reason, by, checks, fleet_events.epoch, at
from fleet_events join agents on agents.id = agent_id
where agents.name = %(name)s
order by number desc limit %(limit)s
