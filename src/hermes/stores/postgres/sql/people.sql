-- Users, their channels, their data keys.

-- name: find_by_channel
with seen as (
    update user_channels set last_inbound_at = now()
    where account_id = %(account)s and platform = %(platform)s and sender_id = %(sender_id)s
    returning user_id
)
select id, state, tier, language, referral_code, trains, referred_by, created_at from users join seen on users.id = seen.user_id

-- name: lock_newcomer
select pg_advisory_xact_lock(hashtextextended(%(newcomer)s, 0))

-- name: add_account
insert into accounts (id) values (%(account)s) on conflict do nothing

-- name: add_user
insert into users (id, state, tier, language, referral_code)
values (%(id)s, %(state)s, %(tier)s, %(language)s, %(referral_code)s)
on conflict (id) do nothing
returning id, state, tier, language, referral_code, trains, referred_by, created_at

-- name: add_channel
insert into user_channels (account_id, platform, sender_id, user_id)
values (%(account)s, %(platform)s, %(sender_id)s, %(user_id)s)

-- name: get
select id, state, tier, language, referral_code, trains, referred_by, created_at from users where id = %(user_id)s

-- name: find
select id, state, tier, language, referral_code, trains, referred_by, users.created_at
from users join user_channels on user_channels.user_id = users.id
where account_id = %(account)s and platform = %(platform)s and sender_id = %(sender_id)s

-- name: by_code
select id, state, tier, language, referral_code, trains, referred_by, created_at from users where referral_code = %(referral_code)s

-- name: between
select id, state, tier, language, referral_code, trains, referred_by, created_at from users
where id between %(first)s and %(last)s order by id limit %(limit)s

-- name: list
select id, state, tier, language, referral_code, trains, referred_by, created_at from users
where state <> 'deleted' order by created_at desc, id desc limit %(limit)s

-- name: list_in_state
select id, state, tier, language, referral_code, trains, referred_by, created_at from users
where state = %(state)s order by created_at desc, id desc limit %(limit)s

-- name: channels
select user_id, account_id, platform, sender_id from user_channels where user_id = any(%(user_ids)s)
order by created_at, account_id, platform, sender_id

-- name: link_channel
insert into user_channels (account_id, platform, sender_id, user_id, last_inbound_at)
values (%(account)s, %(platform)s, %(sender_id)s, %(user_id)s, null)

-- name: lock_channel
-- Whoever takes a message in notes it in this row first, and waits here.
select user_id from user_channels
where account_id = %(account)s and platform = %(platform)s and sender_id = %(sender_id)s for update

-- name: holder
select state,
    exists (select from credit_entries where user_id = users.id),
    exists (select from inbox where user_id = users.id and state = 'waiting'),
    (select count(*) from user_channels where user_id = users.id)
from users where id = %(holder)s

-- name: move_channel
update user_channels set user_id = %(user_id)s
where account_id = %(account)s and platform = %(platform)s and sender_id = %(sender_id)s

-- name: activate
update users set state = 'active' where id = %(user_id)s and state in ('stranger', 'invited') returning id

-- name: refer
update users set referred_by = %(referrer_id)s
where id = %(user_id)s and state in ('stranger', 'invited') and coalesce(referred_by, %(referrer_id)s) = %(referrer_id)s
    and exists (select from users as referrer where referrer.id = %(referrer_id)s and referrer.state = 'active')
returning id

-- name: set_tier
update users set tier = %(tier)s where id = %(user_id)s and state <> 'deleted' returning id

-- name: set_language
update users set language = %(language)s where id = %(user_id)s and state <> 'deleted' returning id

-- name: allow_training
update users set trains = %(trains)s where id = %(user_id)s and state <> 'deleted' returning id

-- name: kept
select
    (select count(*) from user_memory where user_id = %(user_id)s),
    (select count(*) from conversations where user_id = %(user_id)s),
    (select count(*) from inbox where user_id = %(user_id)s),
    (select count(*) from bookings where user_id = %(user_id)s),
    (select count(*) from reminders where user_id = %(user_id)s),
    (select count(*) from price_watchers where user_id = %(user_id)s),
    (select count(*) from meals where user_id = %(user_id)s),
    (select count(*) from orders where user_id = %(user_id)s)

-- name: forget
update users
set state = 'deleted', deleted_at = now(), trains = false, language = null, referral_code = 'deleted/' || id, referred_by = null
where id = %(user_id)s and state <> 'deleted'

-- name: forget_referrals
-- Whom they brought is theirs to be forgotten too.
update users set referred_by = null where referred_by = %(user_id)s

-- name: forget_channels
delete from user_channels where user_id = %(user_id)s

-- name: forget_conversations
update conversations set channel_id = 'forgotten/' || id
where user_id = %(user_id)s
    and not exists (select from inbox where inbox.conversation_id = conversations.id and inbox.user_id <> %(user_id)s)

-- name: forget_addresses
update outbox set channel_id = '' from conversations
where outbox.conversation_id = conversations.id and conversations.user_id = %(user_id)s
    and conversations.channel_id = 'forgotten/' || conversations.id

-- name: forget_event_keys
update inbox set event_key = turn_id where user_id = %(user_id)s

-- name: forget_memory
with nights as (delete from dream_nights where user_id = %(user_id)s)
delete from user_memory where user_id = %(user_id)s

-- name: forget_errands
-- What tools did for them. Also what is not sealed says too much: when somebody eats out, how they pay, what a courier calls their order.
with effects as (delete from tool_effects where user_id = %(user_id)s),
    offers as (delete from tool_offers where user_id = %(user_id)s),
    tables as (delete from bookings where user_id = %(user_id)s),
    alarms as (delete from reminders where user_id = %(user_id)s),
    prices as (delete from price_watchers where user_id = %(user_id)s),
    eaten as (delete from meals where user_id = %(user_id)s)
delete from orders where user_id = %(user_id)s

-- name: forget_chats
-- How the OpenAI door would know their chats again. The chats themselves are sealed, and stay as what nobody can read.
delete from door_samples where user_id = %(user_id)s

-- name: add_key
insert into data_keys (user_id, generation, master, wrapped)
select %(user_id)s, 1 + coalesce(max(generation), 0), %(master)s, %(wrapped)s from data_keys where user_id = %(user_id)s

-- name: keys_of
select generation, master, wrapped from data_keys where user_id = %(user_id)s

-- name: discard_keys
delete from data_keys where user_id = %(user_id)s

-- name: wrapped_otherwise
select user_id, generation, master, wrapped from data_keys where master <> %(master)s limit %(limit)s for update skip locked

-- name: rewrap
update data_keys set master = %(master)s, wrapped = %(wrapped)s where user_id = %(user_id)s and generation = %(generation)s

-- name: masters
-- each name once, by jumping through the index instead of reading every user
with recursive masters as (
    (select master from data_keys order by master limit 1)
    union all
    select (select master from data_keys where master > masters.master order by master limit 1) from masters where master is not null
)
select master from masters where master is not null
