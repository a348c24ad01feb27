-- Users, their channels, their data keys.

-- name: find_by_channel
with seen as (
    update user_channels set last_inbound_at = now()
    where account_id = %(account)s and platform = %(platform)s and sender_id = %(sender_id)s
    returning user_id
)
select id, state, tier, language, referral_code, trains from users join seen on users.id = seen.user_id

-- name: lock_newcomer
select pg_advisory_xact_lock(hashtextextended(%(newcomer)s, 0))

-- name: add_account
insert into accounts (id) values (%(account)s) on conflict do nothing

-- name: add_user
insert into users (state, referral_code) values (%(state)s, %(referral_code)s)
returning id, state, tier, language, referral_code, trains

-- name: add_channel
insert into user_channels (account_id, platform, sender_id, user_id)
values (%(account)s, %(platform)s, %(sender_id)s, %(user_id)s)

-- name: get
select id, state, tier, language, referral_code, trains from users where id = %(user_id)s

-- name: activate
update users set state = 'active' where id = %(user_id)s and state <> 'deleted' returning id

-- name: allow_training
update users set trains = %(trains)s where id = %(user_id)s and state <> 'deleted' returning id

-- name: forget
update users set state = 'deleted', deleted_at = now(), trains = false, language = null, referral_code = 'deleted/' || id
where id = %(user_id)s and state <> 'deleted'

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
