-- Which adapter an agent speaks through, and every change of it.

alter table agents add column epoch bigint not null default 0 check (epoch >= 0);  -- raised by every change of adapter or cwd
create index accounts_by_agent on accounts (agent_id) where agent_id is not null;

-- Written in the transaction that moves the pointer, or that says why it did not move; never changed.
create table fleet_events (
    id          uuid primary key,
    number      bigint generated always as identity,
    agent_id    uuid not null references agents,
    kind        text not null check (kind in ('adapter_swapped', 'adapter_rolled_back', 'adapter_refused')),
    old_adapter text,
    new_adapter text,
    reason      text not null,
    by          text not null,
    checks      jsonb not null default '[]',   -- [{"code", "level", "message", "hint"}, …]
    epoch       bigint not null,               -- the agent's, afterwards
    at          timestamptz not null default clock_timestamp()
);
create index fleet_events_by_agent on fleet_events (agent_id, number);
create unique index fleet_events_by_number on fleet_events (number);

-- Who answers where nobody else was chosen.
insert into agents (name) values ('hermes') on conflict do nothing;
