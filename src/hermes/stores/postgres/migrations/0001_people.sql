-- Who writes to us, who answers, and the keys that seal what was said.

create extension if not exists vector;

create table agents (
    id         uuid primary key default gen_random_uuid(),
    name       text not null unique,
    tone       text not null default 'friendly' check (tone in ('chill', 'friendly', 'professional', 'hype')),
    role       text not null default '',
    tier       text,
    adapter    text,
    cwd        text,
    created_at timestamptz not null default now()
);

create table accounts (
    id         text primary key,
    agent_id   uuid references agents,
    created_at timestamptz not null default now()
);

create table users (
    id            uuid primary key default gen_random_uuid(),
    state         text not null check (state in ('stranger', 'invited', 'active', 'deleted')),
    tier          text not null default 'free',
    language      text,
    referral_code text not null unique,
    trains        boolean not null default false,
    created_at    timestamptz not null default now(),
    deleted_at    timestamptz,
    check ((state = 'deleted') = (deleted_at is not null))
);

-- One data key per user and generation, wrapped by a master key. Deleting the rows is what deletes the user's words.
create table data_keys (
    user_id    uuid not null references users,
    generation integer not null check (generation > 0),
    master     text not null,
    wrapped    bytea not null,
    created_at timestamptz not null default now(),
    primary key (user_id, generation)
);
create index data_keys_by_master on data_keys (master);

create table user_channels (
    account_id      text not null references accounts,
    platform        text not null,
    sender_id       text not null,
    user_id         uuid not null references users,
    created_at      timestamptz not null default now(),
    last_inbound_at timestamptz not null default now(),
    primary key (account_id, platform, sender_id)
);
create index user_channels_by_user on user_channels (user_id);

-- Facts are superseded, never overwritten. `value` is sealed; the vector is not, it is what the search runs on.
create table user_memory (
    id            uuid primary key default gen_random_uuid(),
    user_id       uuid not null references users,
    key           text,
    value         bytea not null,
    embedding     vector,
    model         text,
    dimension     integer,
    source_turn   uuid,
    superseded_by uuid references user_memory,
    created_at    timestamptz not null default now(),
    check ((embedding is null) = (model is null) and (embedding is null) = (dimension is null)),
    check (embedding is null or vector_dims(embedding) = dimension)
);
create index user_memory_by_user on user_memory (user_id) where superseded_by is null;
