-- What is known about a user, and what was dreamt of it. A fact is superseded and never overwritten.

alter table user_memory
    add column number        bigint generated always as identity,  -- the order of adding, whatever the clock does
    add column origin        text not null default 'said' check (origin in ('said', 'rule', 'tool', 'system')),
    add column confidence    real not null default 1 check (confidence between 0 and 1),
    add column expires_at    timestamptz,
    add column superseded_at timestamptz,
    add column digest        bytea,  -- of the canonical text, keyed with the user's key: equal facts are seen to be equal
    add column terms         bytea;  -- the words it is found by, 8 bytes each, keyed alike

update user_memory set superseded_at = now() where superseded_by is not null;
alter table user_memory
    add check (superseded_by is null or superseded_at is not null),
    add check (length(terms) % 8 = 0),
    drop constraint user_memory_superseded_by_fkey,
    add constraint user_memory_superseded_by_fkey foreign key (superseded_by) references user_memory on delete set null;

drop index user_memory_by_user;
create index user_memory_by_user on user_memory (user_id, number);
create index user_memory_live on user_memory (user_id) where superseded_at is null;
create unique index user_memory_one_value on user_memory (user_id, key) where key is not null and superseded_at is null;
create unique index user_memory_one_fact on user_memory (user_id, digest) where key is null and superseded_at is null;
create index user_memory_superseded on user_memory (superseded_by) where superseded_by is not null;
-- For the job that embeds anew, by id.
create index user_memory_free on user_memory (id) where key is null and superseded_at is null;

-- A dream that was dreamt, with or without lines.
create table dream_nights (
    user_id   uuid not null references users,
    depth     text not null check (depth in ('light', 'deep')),
    period    date not null,
    dreamt_at timestamptz not null,
    primary key (user_id, depth, period)
);

create table dreams (
    id          uuid primary key,
    number      bigint generated always as identity,
    user_id     uuid not null,
    depth       text not null,
    period      date not null,
    kind        text not null check (kind in ('insight', 'gap')),
    key         text,
    value       bytea not null,               -- sealed
    evidence    uuid[] not null default '{}',
    review      text not null check (review in ('accepted', 'rejected')),
    reason      text not null default '',
    reviewed_at timestamptz not null default now(),
    foreign key (user_id, depth, period) references dream_nights on delete cascade
);
create index dreams_by_night on dreams (user_id, depth, period, number);
