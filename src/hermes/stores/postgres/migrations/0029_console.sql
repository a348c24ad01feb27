-- The console: who may look, what they did, and what another model would have said. No column of a turn changes.

-- --- indexes first: while they are built, processes of the version before still read and write every other table, and read these

create index user_channels_by_sender on user_channels (sender_id text_pattern_ops);
-- The list of conversations: sessions by the order of starting, which no turn changes.
create index sessions_by_number on sessions (number);
-- The list of turns also shows calls that belong to no turn, and turns for which a second model was asked. Rows of calls never change,
-- and the calls of a turn that went well are in neither index.
create index calls_without_turn on calls (created_at desc, id desc) where turn_id is null;
create index calls_fell_over on calls (created_at desc) where jsonb_array_length(attempts) > 1;
-- Costs by user, and of one user, are summed from calls: from these indexes alone, without reading the rows.
create index calls_by_time_with_costs on calls (created_at) include (user_id, account_id, outcome, tokens, micro_usd);
create index calls_by_user_with_costs on calls (user_id, day) include (account_id, tokens, micro_usd, id);

-- --- operators. No passwords: links that work once, sessions of browsers, tokens of programs. Only digests are stored.

create table operators (
    id          uuid primary key default gen_random_uuid(),
    name        text not null unique,
    role        text not null check (role in ('viewer', 'operator', 'owner')),
    accounts    text[],                              -- null: all
    created_at  timestamptz not null default now(),
    created_by  text not null,
    disabled_at timestamptz
);
create table operator_entries (
    digest      bytea primary key,
    operator_id uuid not null references operators on delete cascade,
    kind        text not null check (kind in ('link', 'session', 'token')),
    name        text not null default '',
    created_at  timestamptz not null default now(),
    seen_at     timestamptz,
    expires_at  timestamptz,                         -- null: never, for tokens
    used_at     timestamptz,                         -- of a link
    revoked_at  timestamptz,
    address     text not null default '',
    browser     text not null default '',
    check (kind = 'token' or expires_at is not null)
);
create index operator_entries_by_operator on operator_entries (operator_id);

-- --- the audit log: who did, opened or was refused what. Rows are added, and never changed or deleted.

create table audit (
    id           bigint generated always as identity primary key,
    at           timestamptz not null default clock_timestamp(),
    operator     text not null,
    role         text not null,
    face         text not null check (face in ('console', 'api', 'cli')),
    action       text not null,                      -- content.open, replay.run, dead_letter.requeue, message.revive, kill_switch.on, …
    subject_kind text not null,                      -- turn, conversation, user, agent, key, operator, …
    subject      text not null,
    user_id      uuid,
    account_id   text,
    reason       text not null default '',
    allowed      boolean not null default true,
    address      text not null default '',
    facts        jsonb not null default '{}'
);
create index audit_by_subject on audit (subject_kind, subject, id desc);
create index audit_by_user on audit (user_id, id desc) where user_id is not null;
create index audit_by_operator on audit (operator, id desc);
create function refuse_to_rewrite_audit() returns trigger language plpgsql as $$
begin
    raise exception 'the audit log is append-only' using errcode = 'restrict_violation';
end
$$;
create trigger audit_is_append_only before update or delete or truncate on audit
    for each statement execute function refuse_to_rewrite_audit();

-- --- replays: a recorded request, asked again with something changed. Sealed with the key of the turn's user, so that forgetting the user
-- forgets them. Never in a conversation's graph unless an owner keeps one as a sample.

create table replay_batches (
    id         uuid primary key,
    by         text not null,
    models     text[] not null,
    title      text not null default '',             -- the filter in words
    state      text not null default 'running' check (state in ('running', 'done', 'stopped')),
    created_at timestamptz not null default now(),
    ended_at   timestamptz
);
create table replays (
    id          uuid primary key,
    batch_id    uuid references replay_batches on delete cascade,
    turn_id     uuid references inbox on delete cascade,
    call_id     uuid,                                -- of a sample of the completions API, which has no turn
    session_id  uuid,
    user_id     uuid not null references users,      -- whose key seals it
    account_id  text not null,
    context_id  text not null default '',            -- of the context that it leaves
    by          text not null,
    model       text not null,
    change      bytea,                               -- sealed: other system text, tools, sampling
    state       text not null default 'waiting' check (state in ('waiting', 'running', 'done', 'failed', 'refused')),
    attempt     integer not null default 0,
    claimed_at  timestamptz,
    is_diverged boolean,
    same_tools  boolean,
    same_text   boolean,
    likeness    real,
    error       text,
    tokens_in   bigint,
    tokens_out  bigint,
    micro_usd   bigint,
    latency_ms  integer,
    result      bytea,                               -- sealed: messages and call records
    kept_as     text,                                -- the response's id, once an owner kept it as a sample
    created_at  timestamptz not null default now(),
    ended_at    timestamptz
);
create index replays_by_turn on replays (turn_id, created_at);
create index replays_by_session on replays (session_id);
create index replays_by_user on replays (user_id);
create index replays_by_batch on replays (batch_id, created_at) where batch_id is not null;
create index replays_alone on replays (created_at desc, id desc) where batch_id is null;
create index replays_waiting on replays (created_at) where state in ('waiting', 'running');

-- --- costs: what the tools cost. A concluding call, in equal shares over the tools of its turn; in the hour of the call. The first sums are
-- made anew, under a mark of their own (tool_costs)

alter table tool_hours add column micro_usd bigint not null default 0;

-- --- a message that was given up, and that an operator revived: its age and its tries count from then on

alter table inbox
    add column revived_at    timestamptz,
    add column revived_after integer;                 -- how many attempts there were before

-- --- the indexes of calls change places: last, because this locks the table against readers too

drop index calls_by_time, calls_by_user;
alter index calls_by_time_with_costs rename to calls_by_time;
alter index calls_by_user_with_costs rename to calls_by_user;
