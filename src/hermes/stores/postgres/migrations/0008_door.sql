-- The OpenAI door: what a key's callers get, and how a chat is known again when it comes back.

alter table api_keys
    add column tier   text,                                  -- null: the tier of the settings
    add column trains boolean not null default false;        -- whether its callers' words may be trained on

-- A row for each response that was sampled through the door. A client names no chat; it shows one again, with our responses in it.
-- All digests are keyed with the user's own key: equal contents are seen to be equal, guesses cannot be tested.
create table door_samples (
    id         bigint generated always as identity primary key,   -- the order of sampling
    user_id    uuid not null references users,
    session_id uuid not null references sessions on delete cascade,
    head       text,                                         -- of the list that ends with it; null where the list never did
    length     integer not null,
    shown      bytea not null check (length(shown) = 16),    -- that list without reasoning
    whole      bytea not null check (length(whole) = 16),    -- and with it
    echo       bytea not null check (length(echo) = 16)      -- the response alone
);
create index door_samples_by_list on door_samples (user_id, shown, id);
create index door_samples_by_echo on door_samples (user_id, echo, id);
create index door_samples_by_session on door_samples (session_id, id);
