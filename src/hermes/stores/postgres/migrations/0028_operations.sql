-- What operators see: how each turn went, what each call was for, which process did it, what needs a person, and sums by the hour.
-- New columns are nullable, so no table is rewritten, and a process of the version before goes on working beside this one.
-- No index and no predicate on a column that a turn updates (inbox.attempts, runs.state, sessions.last_at): those updates stay HOT.

-- --- turns: who drives one, who asked for it, and the trace that it belongs to

alter table runs add column worker uuid;             -- the process of the newest attempt (processes.id)
alter table inbox
    add column api_key_id  uuid,                     -- the key that sent it; idempotency keys forget after a day
    add column traceparent text;                     -- W3C trace context of the accept, for the spans of the worker

create index interactions_unanswered on interactions (created_at desc, turn_id desc) where meta ->> 'outcome' <> 'answered';
create index interactions_by_session on interactions (session_id, created_at);
create index inbox_dead on inbox (ended_at desc, turn_id) where state = 'dead';

-- --- calls: what each was for, and of a call without an answer the reason. `source` stays: older processes write it alone.

alter table calls
    add column purpose    text,                      -- answer, conclude, compact, remember, dream, completions, batch, canary
    add column agent      text,
    add column platform   text,
    add column api_key_id uuid,
    add column error      text,                      -- NoCapacity, ChainFailed, BudgetSpent, CallsPaused, TimeoutError, …
    add column waited_ms  integer check (waited_ms >= 0);  -- for a slot

-- --- sums by the hour. A chore makes the last hours again; money here equals the sum over `calls` to the micro-dollar.

create table spend_hours (
    hour       timestamptz not null,
    account_id text not null,
    agent      text not null default '',
    platform   text not null default '',
    tier       text not null,
    purpose    text not null,
    model      text not null,
    api_key_id uuid,
    calls      bigint not null,
    failed     bigint not null,
    cache_hits bigint not null,
    fell_over  bigint not null,                      -- answered, but not by the first attempt
    tokens_in  bigint not null,
    tokens_out bigint not null,
    cache_read bigint not null,
    micro_usd  bigint not null,
    latency_ms bigint not null,
    unique nulls not distinct (hour, account_id, agent, platform, tier, purpose, model, api_key_id)
);
create table tool_hours (
    hour       timestamptz not null,
    account_id text not null,
    tool       text not null,
    runs       bigint not null,
    errors     bigint not null,
    ms         bigint not null,
    worst_ms   integer not null,
    primary key (hour, account_id, tool)
);

-- --- processes: one row each, written by a coroutine on the process's own event loop

create table processes (
    id            uuid primary key,
    role          text not null check (role in ('serve', 'worker', 'command')),
    host          text not null,
    pid           integer not null,
    version       text not null,
    started_at    timestamptz not null default now(),
    beat_at       timestamptz not null default now(),
    progress_at   timestamptz,                       -- a job of its own ended; old while jobs wait: silent
    running       integer not null default 0,
    slots_used    integer not null default 0,
    slots_waiting integer not null default 0,
    loop_lag_ms   integer not null default 0,
    stalled_at    timestamptz,                       -- another process saw that it gave no beat; null again at its next beat
    silent_at     timestamptz,                       -- it saw of itself that no turn ends while turns wait; null again when one ends
    stopped_at    timestamptz
);
alter table chores
    add column holder   uuid,                        -- processes.id
    add column taken_at timestamptz,
    add column ended_at timestamptz,                 -- of the last try: done, or given back; null while its holder does it
    add column done_at  timestamptz,
    add column failed   text;                        -- what went wrong last; null after a success

-- --- the stream of events. Everything that a supervisor is told has a number of one sequence. A reader goes on after (xid, number), and
-- reads only what is older than every open transaction, so that it misses nothing that commits late.

create sequence event_numbers;
create table process_events (
    number  bigint primary key default nextval('event_numbers'),
    xid     xid8 not null default pg_current_xact_id(),
    type    text not null,                           -- process_started, process_stopped, process_stalled, process_silent, process_restarted, …
    process uuid,
    facts   jsonb not null default '{}',
    at      timestamptz not null default clock_timestamp()
);
create index process_events_by_xid on process_events (xid, number);
alter table run_events   add column event_number bigint, add column xid xid8;   -- null: not told (an effect that has not ended)
alter table fleet_events add column event_number bigint, add column xid xid8;
alter table fleet_events alter column event_number set default nextval('event_numbers'), alter column xid set default pg_current_xact_id();
create index run_events_by_xid on run_events (xid, event_number) where event_number is not null;
create index fleet_events_by_xid on fleet_events (xid, event_number) where event_number is not null;

-- --- alerts: one open row for each event and subject, however many processes raise it

create table alerts (
    id       bigint generated always as identity primary key,
    event    text not null,
    subject  text not null default '',
    level    text not null default 'warning' check (level in ('warning', 'critical')),
    facts    jsonb not null default '{}',
    times    bigint not null default 1,
    first_at timestamptz not null default now(),
    last_at  timestamptz not null default now(),
    ended_at timestamptz,
    ended_by text
);
create unique index alerts_open on alerts (event, subject) where ended_at is null;
create index alerts_by_time on alerts (last_at desc, id desc);
-- One row for each alert and destination; the process that claims it sends it.
create table alert_sends (
    alert_id    bigint not null references alerts on delete cascade,
    destination text not null,
    tries       integer not null default 0,
    not_before  timestamptz not null default now(),
    sent_at     timestamptz,
    failed      text,                                -- why the last try failed
    primary key (alert_id, destination)
);
create index alert_sends_due on alert_sends (not_before) where sent_at is null;
create table alert_mutes (
    event   text not null,
    subject text not null default '',                -- '': every subject of the event
    until   timestamptz not null,
    by      text not null,
    primary key (event, subject)
);
