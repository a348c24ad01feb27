-- What Hermes says by itself, and what it does by the clock.

alter table outbox
    add column news        text not null default '',           -- '' for a turn's answer; else what it is of: reminder/7KQ2
    add column put_at      timestamptz not null default now(),
    add column recorded_at timestamptz,                        -- of news: since when the conversation's history has it
    drop constraint outbox_turn_id_part_key,
    add unique (turn_id, news, part);

-- Within a turn's number its answer comes first, then the news in the order in which they were put.
drop index outbox_unsettled;
create index outbox_unsettled on outbox (conversation_id, seq, (news <> ''), id) where state in ('pending', 'attempting');
create index outbox_news on outbox (conversation_id, id) where news <> '';

-- One row per chore. Whoever has the newest epoch may do it, until `held_until`.
create table chores (
    name       text primary key,
    epoch      bigint not null default 1,
    done_slot  bigint not null default -1,                     -- the newest slot in which it was done
    held_until timestamptz not null
);
