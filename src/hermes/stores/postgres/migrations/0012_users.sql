-- Users who sign up: who brought whom, and how they are found and listed.

alter table users
    add column referred_by uuid references users,
    add check (referred_by <> id),
    add check (language in ('en', 'id', 'es', 'fr', 'de', 'it', 'pt', 'nl', 'ru', 'zh', 'ja', 'ko', 'ar', 'hi', 'th', 'tr'));

create index users_by_time on users (created_at, id);
create index users_by_state on users (state, created_at, id);
create index users_by_referrer on users (referred_by) where referred_by is not null;

-- Null: the channel was linked, and nobody has written from it yet.
alter table user_channels alter column last_inbound_at drop not null;
