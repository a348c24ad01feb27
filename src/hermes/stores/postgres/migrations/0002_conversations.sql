-- A conversation is (account, platform, channel). A session is one message graph of it.

create table conversations (
    id         uuid primary key default gen_random_uuid(),
    account_id text not null references accounts,
    platform   text not null,
    channel_id text not null,
    user_id    uuid not null references users,    -- who opened it; their key seals what is said in it
    last_seq   bigint not null default 0,         -- the number given to its newest message
    epoch      bigint not null default 0,         -- raised by every claim of one of its turns
    created_at timestamptz not null default now(),
    unique (account_id, platform, channel_id)
);
create index conversations_by_user on conversations (user_id);

create table sessions (
    id              uuid primary key default gen_random_uuid(),
    number          bigint generated always as identity,  -- the order of starting, whatever the clock does
    account_id      text not null,
    conversation_id uuid not null references conversations,
    user_id         uuid not null references users,
    previous        uuid references sessions,
    seed            bytea not null,               -- sealed: without it nobody can test guesses against the ids
    head            text not null,                -- the context id of the current list
    length          integer not null default 0,
    live            integer not null default 0,   -- the current list's number among the versions of its graph
    mark            uuid not null default gen_random_uuid(),  -- another one with every change of the graph, also where the head stays
    erased          bytea,                        -- sealed: the digests of erased messages
    started_at      timestamptz not null default now(),
    last_at         timestamptz not null default now()
);
create unique index sessions_by_conversation on sessions (conversation_id, number);
create unique index sessions_continue_once on sessions (previous);
