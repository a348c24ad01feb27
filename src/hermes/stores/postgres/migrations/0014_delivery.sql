-- Delivery: how each parcel went, what is tried again, what was given up, and what was heard of the rest.

alter table outbox
    add column is_message boolean not null default false,      -- the body is a platform's own message, as JSON; else a text
    add column thread     text,
    add column failures   integer not null default 0,          -- how often it was put back because sending failed
    add column doubts     integer not null default 0,          -- tries that may have arrived,
    add column doubted_at timestamptz,                         -- the first of them
    add column outcome    text,                                -- how the last try ended; null: there was none
    add column reason     text not null default '',
    add column message_id text,                                -- what the platform calls it
    add column rank       smallint not null default 0,         -- how far it came, as receipts tell; only ever grows
    add column ranked_at  timestamptz,
    add column died_at    timestamptz,
    add column is_late    boolean not null default false,      -- it was among the dead letters, and goes behind all others
    add column place      bigint;                              -- its place among those; null: its id

update outbox set died_at = touched_at where state = 'dead';
alter table outbox add check ((state = 'dead') = (died_at is not null));

-- Within a turn's number its answer comes first, then the news in the order in which they were put, then what comes late.
drop index outbox_unsettled;
create index outbox_unsettled on outbox (conversation_id, seq, (news <> '' or is_late), coalesce(place, id))
    where state in ('pending', 'attempting');
create index outbox_failed on outbox (account_id, platform) where state = 'pending' and outcome is not null;
create index outbox_dead on outbox (died_at, id) where state = 'dead';
create index outbox_by_message on outbox (account_id, platform, message_id) where message_id is not null;

-- Since when nobody can be reached there. Not true any more once somebody has written since.
alter table conversations add column unreachable_since timestamptz;

-- Receipts for messages that nobody knows: they came before the platform's answer was noted, or that answer was lost.
create table early_receipts (
    account_id  text not null,
    platform    text not null,
    message_id  text not null,
    channel_id  text,
    rank        smallint not null,
    outcome     text,
    reason      text not null default '',
    received_at timestamptz not null default now(),
    primary key (account_id, platform, message_id)
);
create index early_receipts_by_channel on early_receipts (account_id, platform, channel_id, received_at) where channel_id is not null;
create index early_receipts_by_time on early_receipts (received_at);
