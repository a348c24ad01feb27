-- What models were asked and what it cost; the kill switch.

-- Every call with all of its attempts. No message text. A row is written once and never changed, whatever becomes of its turn or session.
create table calls (
    id             uuid primary key,
    turn_id        uuid,
    user_id        uuid references users,
    account_id     text not null references accounts,
    session_id     uuid,
    response_id    text,
    source         text not null,                 -- router, door, batch, memory, …
    tier           text not null,
    backend        text,
    model          text not null,                 -- asked for
    answered_by    text,                          -- the model that answered
    attempts       jsonb not null default '[]',   -- [{"name", "backend", "model", "outcome", "ms", "status"}, …]
    tokens_in      bigint not null check (tokens_in >= 0),
    tokens_out     bigint not null check (tokens_out >= 0),
    cache_read     bigint not null check (cache_read >= 0),
    cache_write    bigint not null check (cache_write >= 0),
    cache_write_1h bigint not null check (cache_write_1h >= 0),
    tokens         bigint not null generated always as (case when cache_hit then 0 else tokens_in + tokens_out end) stored,
    micro_usd      bigint not null check (micro_usd >= 0),
    rate           jsonb not null default '{}',
    is_estimated   boolean not null,
    cache_hit      boolean not null,
    outcome        text not null,
    latency_ms     integer not null check (latency_ms >= 0),
    first_token_ms integer check (first_token_ms >= 0),
    day            date not null,                 -- the UTC day that pays
    created_at     timestamptz not null default now(),
    check (micro_usd = 0 or not cache_hit)
);
-- Counters are rebuilt from these two without reading the table.
create index calls_by_user on calls (user_id, day) include (tokens, micro_usd, id);
create index calls_by_day on calls (day) include (tokens, micro_usd);
create index calls_by_time on calls (created_at);
create index calls_by_turn on calls (turn_id) where turn_id is not null;
create index calls_by_session on calls (session_id) where session_id is not null;

-- Thresholds that a person was told of, so that it happens once although Redis was lost.
create table budget_alerts (
    subject  text not null,                       -- a user's id, or 'platform'
    period   text not null,                       -- 2026-11-15 or 2026-11
    percent  integer not null,
    noted_at timestamptz not null default now(),
    primary key (subject, period, percent)
);

-- The kill switch: engaged by anybody, released by a person, never by time.
create table kill_latch (
    id          bigint generated always as identity primary key,
    engaged_at  timestamptz not null default now(),
    by          text not null,
    reason      text not null,
    released_at timestamptz,
    released_by text,
    check ((released_at is null) = (released_by is null))
);
create unique index kill_latch_is_one on kill_latch ((true)) where released_at is null;
