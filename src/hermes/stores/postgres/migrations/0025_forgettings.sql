-- What a user asked to forget, took back or said anew, so that it is not learnt again from what they had written before. No word of it:
-- keyed digests.

create table forgettings (
    number  bigint generated always as identity primary key,
    user_id uuid not null references users,
    turn_id uuid,                 -- the turn in which they did so; null: over the API
    at      timestamptz not null, -- what they wrote until then no longer teaches it
    key     text,                 -- the structural key; null: whatever has the words
    terms   bytea not null        -- the words, keyed; empty: all of the key, and without a key everything
);
create index forgettings_by_user on forgettings (user_id, at);
