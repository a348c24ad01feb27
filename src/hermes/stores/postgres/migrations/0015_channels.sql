-- Accounts at platforms. What opens them is sealed under a data key of the account's own.

create table channel_accounts (
    id         uuid primary key,
    platform   text not null,
    account_id text not null references accounts,
    is_polled  boolean not null,
    about      bytea not null,
    changed_at timestamptz not null default clock_timestamp(),
    unique (platform, account_id)
);

-- A data key belongs to a user, or to an account at a platform.
alter table data_keys drop constraint data_keys_user_id_fkey;
