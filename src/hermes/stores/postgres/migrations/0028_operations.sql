-- What operators see: how each turn went, what each call was for, which process did it, what needs a person, and sums by the hour.
-- New columns are nullable, so no table is rewritten, and a process of the version before goes on working beside this one.
-- No index and no predicate on a column that a turn updates (inbox.attempts, runs.state, sessions.last_at): those updates stay HOT.

-- --- turns: who drives one, who asked for it, and the trace that it belongs to

alter table runs
    add column worker       uuid,                    -- the process of the newest attempt (processes.id)
    add column worker_epoch bigint,                  -- the claim it belongs to; other than `epoch` if an older process claimed the turn since
    add column claimed_at   timestamptz;             -- when the newest attempt began
alter table inbox
    add column api_key_id  uuid,                     -- the key that sent it; idempotency keys forget after a day
    add column traceparent text,                     -- W3C trace context of the accept, for the spans of the worker
    add column stopped_at  timestamptz;              -- its client withdrew it; it has ended without an answer

create index interactions_unanswered on interactions (created_at desc, turn_id desc) where meta ->> 'outcome' <> 'answered';
create index interactions_by_session on interactions (session_id, created_at);
create index inbox_dead on inbox (ended_at desc, turn_id) where state = 'dead';

-- --- calls: what each was for, and of a call without an answer the reason. `source` stays: older processes write it alone.

alter table calls
    add column purpose    text,                      -- answer, conclude, compact, remember, dream, completions, batch, canary
    add column agent      text,
    add column platform   text,
    add column api_key_id uuid,
    add column error      text,                      -- NoCapacity, ChainFailed: Overloaded, BudgetSpent: day, CallsPaused: cap, …
    add column waited_ms  integer check (waited_ms >= 0),  -- for slots
    add column times      integer check (times >= 1);      -- of a refused call: how many calls the row stands for; null: one
alter table agents add column daily_micro_usd bigint check (daily_micro_usd >= 0);  -- its cap for one UTC day; null: none

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
    calls      bigint not null,                      -- that reached a backend or the cache
    failed     bigint not null,
    refused    bigint not null,                      -- that no backend was asked for; not among the calls
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
-- How far the sums are final: every transaction that began before `summed_to` had ended when the hours before it were summed.
create table sum_marks (
    name      text primary key,                      -- calls, tools
    summed_to timestamptz not null
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
alter table run_events   add column epoch bigint;    -- of the claim; attempts that were not counted share a number, never an epoch
-- What the journal's retention has yet to empty. An effect enters it with its first row, and leaves it once.
create index run_events_with_content on run_events (id) where request is not null or result is not null;
alter table fleet_events add column event_number bigint, add column xid xid8;
alter table fleet_events alter column event_number set default nextval('event_numbers'), alter column xid set default pg_current_xact_id();
create index run_events_by_xid on run_events (xid, event_number) where event_number is not null;
create index fleet_events_by_xid on fleet_events (xid, event_number) where event_number is not null;
-- A trigger, so that no statement that takes a chore can forget it, and none writes an event while the holder stays the same.
create function tell_chore_holder() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' or new.holder is distinct from old.holder then
        insert into process_events (type, process, facts)
        values ('chore_taken', new.holder, jsonb_build_object('chore', new.name, 'epoch', new.epoch));
    end if;
    return null;
end
$$;
create trigger chore_holders_are_told after insert or update of holder on chores
    for each row when (new.holder is not null) execute function tell_chore_holder();

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
-- What goes to each destination: that it was raised, and where the operator wants it, that it ended. The process that claims a row sends it;
-- `tries` grows with every claim, and an older claim settles nothing.
create table alert_sends (
    alert_id    bigint not null references alerts on delete cascade,
    destination text not null,
    stage       text not null default 'raised' check (stage in ('raised', 'ended')),
    tries       bigint not null default 0,
    not_before  timestamptz not null default now(),
    sent_at     timestamptz,
    messages    integer not null default 0,          -- that have arrived; an alert that goes on is sent again after a window
    failed      text,                                -- why the last try failed
    primary key (alert_id, destination, stage)
);
create index alert_sends_due on alert_sends (destination, not_before) where sent_at is null;
-- The pace of each destination: how many messages were begun in this minute, and after a failure when the next one may be tried.
create table alert_destinations (
    destination text primary key,
    minute_at   timestamptz not null default now(),
    messages    integer not null default 0,
    failures    integer not null default 0,
    not_before  timestamptz not null default now()
);
create table alert_mutes (
    event   text not null,
    subject text not null default '',                -- '': every subject of the event
    until   timestamptz not null,
    by      text not null,
    primary key (event, subject)
);

-- --- erasures, so that a restored backup can be brought to the same state. Ids and times only. Hermes also copies them to a file beside the
-- master key: a backup cannot know what was erased after it.

create table erasures (
    number     bigint generated always as identity primary key,
    user_id    uuid not null,
    account_id text,                                 -- null: in all accounts
    fact_id    uuid,                                 -- null: everything, not one fact
    at         timestamptz not null default clock_timestamp()
);
create index erasures_by_time on erasures (at);
insert into erasures (user_id, at) select id, deleted_at from users where deleted_at is not null;

-- Where the content of this database came from: a backup, or another server.
create table database_copies (
    id        bigint generated always as identity primary key,
    kind      text not null check (kind in ('restored', 'moved', 'upgraded')),
    source    text not null,                         -- the database that was copied, named by the moment of its first migration
    digest    text not null,                         -- over the content of all tables
    taken_at  timestamptz not null,                  -- the moment that the copy shows
    copied_at timestamptz not null default clock_timestamp(),
    xid       xid8 not null default pg_current_xact_id(),  -- events of earlier transactions came with the copy; a reader's older cursor too
    facts     jsonb not null default '{}'
);
