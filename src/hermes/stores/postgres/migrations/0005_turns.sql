-- A turn: a message that came in, what was done about it, what goes out.

create table inbox (
    turn_id         uuid primary key,
    account_id      text not null references accounts,
    event_key       text not null,
    conversation_id uuid not null references conversations,
    user_id         uuid not null references users,
    seq             bigint not null,
    state           text not null default 'waiting' check (state in ('waiting', 'done', 'dead')),
    attempts        integer not null default 0,
    envelope        bytea not null,               -- sealed
    reason          text,
    received_at     timestamptz not null default now(),
    ended_at        timestamptz,
    unique (account_id, event_key),
    unique (conversation_id, seq)
);
create index inbox_waiting on inbox (account_id) where state = 'waiting';
create index inbox_by_user on inbox (user_id);

-- One run per turn that was begun.
create table runs (
    turn_id         uuid primary key references inbox on delete cascade,
    account_id      text not null,
    conversation_id uuid not null,
    user_id         uuid not null,
    epoch           bigint not null,
    attempt         integer not null,
    state           text not null default 'running' check (state in ('running', 'done', 'dead')),
    started_at      timestamptz not null default now(),
    ended_at        timestamptz
);

-- The journal. Effects are unique by (turn, step, index); events that are no effects take the next free index of their type.
create table run_events (
    id         bigint generated always as identity primary key,
    turn_id    uuid not null references inbox on delete cascade,
    step       text not null,
    index      integer not null,
    type       text not null,
    attempt    integer not null,
    request    bytea,                             -- sealed
    result     bytea,                             -- sealed
    facts      jsonb not null default '{}',
    started_at timestamptz not null default clock_timestamp(),
    done_at    timestamptz,
    unique (turn_id, step, index)
);

create table outbox (
    id              bigint generated always as identity primary key,
    account_id      text not null,
    platform        text not null,
    channel_id      text not null,
    conversation_id uuid not null references conversations,
    user_id         uuid not null references users,
    turn_id         uuid not null references inbox on delete cascade,
    seq             bigint not null,
    part            integer not null,
    state           text not null default 'pending' check (state in ('pending', 'attempting', 'sent', 'ambiguous', 'dead')),
    tries           integer not null default 0,
    body            bytea not null,               -- sealed
    not_before      timestamptz not null default now(),
    touched_at      timestamptz not null default now(),
    unique (turn_id, part)
);
create index outbox_unsettled on outbox (conversation_id, seq, part) where state in ('pending', 'attempting');
create index outbox_due on outbox (not_before) where state in ('pending', 'attempting');

create table interactions (
    turn_id    uuid primary key references inbox on delete cascade,
    account_id text not null,
    user_id    uuid not null references users,
    session_id uuid not null references sessions,
    platform   text not null,
    meta       jsonb not null,
    created_at timestamptz not null default now()
);
create index interactions_by_user on interactions (user_id, created_at);
create index interactions_by_time on interactions (created_at);

create table api_keys (
    id           uuid primary key default gen_random_uuid(),
    account_id   text not null references accounts,
    name         text not null,
    prefix       text not null,
    digest       bytea not null unique,
    created_at   timestamptz not null default now(),
    last_used_at timestamptz,
    revoked_at   timestamptz
);

create table promises (
    api_key_id uuid not null references api_keys on delete cascade,
    key        text not null,
    digest     bytea not null,
    turn_id    uuid not null,
    created_at timestamptz not null default now(),
    primary key (api_key_id, key)
);
create index promises_by_time on promises (created_at);
