-- Approval outside the model: an offer is approved or refused by its user, once. And what tools of other programs looked like when they were
-- first used.

-- In place of tool_offers, whose rows were approved by a model's word. A process of the version before may still write there; no process of
-- this version reads it.
create table offers (
    user_id    uuid not null references users,
    code       text not null,
    turn_id    uuid not null,                        -- that made it
    call_index integer not null check (call_index >= 0),
    tool       text not null,
    sealed     bytea not null,                       -- the words for the user, the terms, and the salt of the digest
    digest     bytea not null,                       -- of tool, words and terms; salted, so that nothing can be guessed from it
    state      text not null default 'offered' check (state in ('offered', 'approved', 'refused', 'expired')),
    made_at    timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    settled_at timestamptz,
    settled_by uuid,                                 -- the turn in which its user decided
    result     bytea,                                -- sealed: what it brought. Null and approved: it was begun, and may have happened
    primary key (user_id, code)
);
create index offers_open on offers (expires_at) where state = 'offered';
create index offers_by_turn on offers (turn_id);

-- A tool of an MCP server as it was when it was first used. A changed one waits for the operator.
create table tool_pins (
    server      text not null,
    tool        text not null,
    digest      text not null,
    waiting     text,                                  -- the digest of the change that waits; null: nothing waits
    definition  jsonb not null,
    waiting_definition jsonb,
    pinned_at   timestamptz not null default now(),
    pinned_by   text not null default '',              -- the operator who accepted a change; empty: first use
    changed_at  timestamptz,
    primary key (server, tool)
);
