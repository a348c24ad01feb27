-- Erasure that the files of the database cannot undo: data keys are wrapped by keys of a vault, a small file outside the database, and by a
-- master key. And limits to how long content is kept.

-- The number of the vault's key in the user's bucket; null: wrapped by a master key alone.
alter table data_keys add column vault_number integer check (vault_number > 0);
create index data_keys_by_bucket on data_keys (get_byte(uuid_send(user_id), 15));
create index data_keys_outside on data_keys (get_byte(uuid_send(user_id), 15)) where vault_number is null;

-- Users are divided into 256 buckets by the last byte of their id. Without rows, this database has no vault.
create table vault_buckets (
    bucket      integer primary key check (bucket between 0 and 255),
    vault       uuid not null,                 -- the file
    number      integer not null check (number > 0),
    dirty_since timestamptz,                   -- a data key of the bucket was deleted; the key of the vault that wrapped it is still there
    renewed_at  timestamptz not null default clock_timestamp()
);

-- Keys of the vault that wrap no data key any more, until they are destroyed.
create table vault_retired (
    bucket     integer not null,
    number     integer not null,
    retired_at timestamptz not null default clock_timestamp(),
    primary key (bucket, number)
);

-- The mark of the folder in which this process finds vaults; null: it knows of none, as every process of the version before.
alter table processes add column vault_folder uuid;

-- What is kept for a limited time is found by its age. (Not sessions: each turn writes the time of its session, and would write the index.)
create index inbox_kept on inbox (ended_at) where ended_at is not null and length(envelope) > 0;
create index outbox_kept on outbox (touched_at) where state = 'sent' and length(body) > 0;

-- A vector as sealed bytes; `embedding` and `model` are null then.
alter table user_memory
    add column sealed_vector bytea,
    add column sealed_model  text,
    add check ((sealed_vector is null) = (sealed_model is null));
create index user_memory_plain on user_memory (id) where embedding is not null;
create index user_memory_sealed on user_memory (id) where sealed_vector is not null;
