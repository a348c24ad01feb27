-- Users, their channels, their data keys.

-- name: find_by_channel
with seen as (
    update user_channels set last_inbound_at = now()
    where account_id = %(account)s and platform = %(platform)s and sender_id = %(sender_id)s
    returning user_id
)
select id, state, tier, language, referral_code, trains, referred_by, created_at from users join seen on users.id = seen.user_id

-- name: lock_new_channel
select pg_advisory_xact_lock(hashtextextended(%(lock_name)s, 0))

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

-- name: also_known_as
insert into user_channels (account_id, platform, sender_id, user_id)
values (%(account)s, %(platform)s, %(sender_id)s, %(user_id)s)
on conflict do nothing

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

-- name: is_person
select exists (
    select from user_channels as named join user_channels as other on other.user_id = named.user_id
    where named.account_id = %(account)s and named.platform = %(platform)s and named.sender_id = %(sender_id)s
        and not other.platform = any(%(programs)s)
)

-- name: end_users
select id, state, tier, language, referral_code, trains, referred_by, users.created_at
from users join user_channels on user_channels.user_id = users.id
where account_id = %(account)s and (
    (platform = 'rest' and sender_id = %(name)s)
    or (platform = 'completions' and sender_id in (
        -- Behind a key a request that named no user once had an empty name; a process of that version may still run.
        select api_keys.id || '/' || given.name
        from api_keys, unnest(array[%(name)s, case when %(name)s = 'default' then '' end]) as given (name)
        where api_keys.account_id = %(account)s and given.name is not null
    ))
)
order by platform = 'rest' desc, users.created_at, id

-- name: channels
select user_id, account_id as account, platform, sender_id from user_channels where user_id = any(%(user_ids)s)
order by created_at, account_id, platform, sender_id

-- name: link_channel
insert into user_channels (account_id, platform, sender_id, user_id, last_inbound_at)
values (%(account)s, %(platform)s, %(sender_id)s, %(user_id)s, null)

-- name: lock_channel
-- The intake of a message updates this row first, so it waits here.
select user_id from user_channels
where account_id = %(account)s and platform = %(platform)s and sender_id = %(sender_id)s for update

-- name: holder
select state,
    exists (select from credit_entries where user_id = users.id) as is_paid,
    exists (select from inbox where user_id = users.id and state = 'waiting') as is_waiting,
    (select count(*) from user_channels where user_id = users.id) as channels
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

-- name: count_data
-- A request of a program that sends whole chats counts as one message.
select
    (select count(*) from user_memory where user_id = %(user_id)s) as facts,
    (select count(*) from conversations where user_id = %(user_id)s) as conversations,
    (select count(*) from inbox where user_id = %(user_id)s)
        + (select count(*) from calls where user_id = %(user_id)s and source = 'completions' and session_id is not null) as messages

-- name: count_data_in_account
select
    (select count(*) from user_memory join inbox on turn_id = source_turn where user_memory.user_id = %(user_id)s and account_id = %(account)s) as facts,
    (select count(*) from conversations where user_id = %(user_id)s and account_id = %(account)s) as conversations,
    (select count(*) from inbox where user_id = %(user_id)s and account_id = %(account)s)
        + (select count(*) from calls
            where user_id = %(user_id)s and account_id = %(account)s and source = 'completions' and session_id is not null) as messages

-- name: hold_channels
-- The intake of a message updates one of these rows first, so it waits here.
select from user_channels where user_id = %(user_id)s and (%(account)s::text is null or account_id = %(account)s)
order by account_id, platform, sender_id for update

-- name: fence
-- A worker that runs a turn of this user, or waits to, loses its claim and cannot end the turn.
update conversations set epoch = epoch + 1
where id in (
    select conversation_id from inbox
    where user_id = %(user_id)s and state = 'waiting' and (%(account)s::text is null or account_id = %(account)s)
)

-- name: note_erasure
-- In the transaction that erases. A user who was erased before is not noted again.
insert into erasures (user_id, account_id) select id, %(account)s from users where id = %(user_id)s and state <> 'deleted'

-- name: forget
update users
set state = 'deleted', deleted_at = now(), trains = false, language = null, referral_code = 'deleted/' || id, referred_by = null
where id = %(user_id)s and state <> 'deleted'

-- name: forget_referrals
-- Other users do not keep the id of the erased user who referred them.
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

-- name: forget_turns
-- Rows of turns stay, with their numbers; what they hold is deleted: the messages, the answers, what models and tools were asked.
with asked as (
    update run_events set request = null, result = null,
        type = case step when 'call_model' then 'llm_called' when 'run_tools' then 'tool_invoked' else type end
    from inbox
    where inbox.user_id = %(user_id)s and run_events.turn_id = inbox.turn_id and (request is not null or result is not null)
), answers as (
    update outbox set body = '' where user_id = %(user_id)s and length(body) > 0
)
update inbox set event_key = turn_id, envelope = '' where user_id = %(user_id)s

-- name: forget_graphs
-- The sessions that the user opened stay as empty frames. What others said in them was sealed with the same key.
with theirs as (update sessions set seed = '' where user_id = %(user_id)s returning id)
select drop_graphs(array(select id from theirs))

-- name: forget_memory
with nights as (delete from dream_nights where user_id = %(user_id)s),
    marks as (delete from forgettings where user_id = %(user_id)s)
delete from user_memory where user_id = %(user_id)s

-- name: forget_errands
-- The effects of tools for this user.
with effects as (delete from tool_effects where user_id = %(user_id)s),
    old_offers as (delete from tool_offers where user_id = %(user_id)s)
delete from offers where user_id = %(user_id)s

-- name: forget_chats
-- The rows by which the OpenAI endpoint would recognise the user's chats.
delete from door_samples where user_id = %(user_id)s

-- name: forget_asked
-- The requests to models in turns of other users of the same conversations: the history in them has this user's words, and so have the
-- summaries of it. The journal keeps its entries without them.
update run_events set type = case step when 'call_model' then 'llm_called' else type end, request = null,
    result = case step when 'compact' then null else result end
from interactions
where run_events.turn_id = interactions.turn_id and step in ('call_model', 'compact') and request is not null
    and interactions.user_id <> %(user_id)s
    and interactions.turn_id in (
        select other.turn_id
        from interactions as theirs join sessions on sessions.id = theirs.session_id
            join inbox as other on other.conversation_id = sessions.conversation_id
        where theirs.user_id = %(user_id)s and (%(account)s::text is null or theirs.account_id = %(account)s)
    )

-- name: forget_replays
-- Those of the user's turns and chats; and of the turns of other users in the same conversations: what a model answered there may have this
-- user's words.
delete from replays
where (user_id = %(user_id)s and (%(account)s::text is null or account_id = %(account)s))
    or session_id in (
        select other.id
        from interactions as theirs join sessions on sessions.id = theirs.session_id
            join sessions as other on other.conversation_id = sessions.conversation_id
        where theirs.user_id = %(user_id)s and (%(account)s::text is null or theirs.account_id = %(account)s)
    )

-- name: leave_channels
delete from user_channels where user_id = %(user_id)s and account_id = %(account)s

-- name: leave_facts
with shares as (
    delete from shared_facts using conversations
    where shared_facts.user_id = %(user_id)s and conversations.id = conversation_id and account_id = %(account)s
), gone as (
    delete from user_memory using inbox
    where user_memory.user_id = %(user_id)s and inbox.turn_id = source_turn and inbox.account_id = %(account)s
    returning user_memory.id
), marks as (
    delete from forgettings using inbox
    where forgettings.user_id = %(user_id)s and inbox.turn_id = forgettings.turn_id and inbox.account_id = %(account)s
)
delete from dreams where user_id = %(user_id)s and evidence && array(select id from gone)

-- name: leave_errands
with turns as (select turn_id from inbox where user_id = %(user_id)s and account_id = %(account)s),
    effects as (delete from tool_effects where user_id = %(user_id)s and turn_id in (select turn_id from turns)),
    old_offers as (delete from tool_offers where user_id = %(user_id)s and turn_id in (select turn_id from turns))
delete from offers where user_id = %(user_id)s and turn_id in (select turn_id from turns)

-- name: leave_turns
-- With their journal, their interactions and their answers. What they cost stays in the ledger and in `calls`.
delete from inbox where user_id = %(user_id)s and account_id = %(account)s

-- name: leave_graphs
-- Where no other user spoke, the whole graph is deleted and the session stays empty. Where others spoke, the graph stays for them, without
-- this user's words.
with theirs as (
    select id from sessions
    where user_id = %(user_id)s and account_id = %(account)s
        and not exists (select from inbox where inbox.conversation_id = sessions.conversation_id)
    for update
)
select drop_graphs(array(select id from theirs))

-- name: leave_conversations
update conversations set channel_id = 'forgotten/' || id
where user_id = %(user_id)s and account_id = %(account)s and channel_id <> 'forgotten/' || id
    and not exists (select from inbox where inbox.conversation_id = conversations.id)

-- name: add_key
insert into data_keys (user_id, generation, master, wrapped, vault_number)
select %(user_id)s, 1 + coalesce(max(generation), 0), %(master)s, %(wrapped)s, %(vault_number)s::int from data_keys where user_id = %(user_id)s

-- name: keys_of
select user_id, generation, master, wrapped, vault, vault_number
from data_keys left join vault_buckets on bucket = get_byte(uuid_send(user_id), 15)
where user_id = %(user_id)s

-- name: discard_keys
delete from data_keys where user_id = %(user_id)s

-- name: wrapped_otherwise
select user_id, generation, master, wrapped, vault_number from data_keys where master <> %(master)s limit %(limit)s for update skip locked

-- name: rewrap
update data_keys set master = %(master)s, wrapped = %(wrapped)s where user_id = %(user_id)s and generation = %(generation)s

-- name: masters
-- Each name once: it jumps through the index and does not read every user.
with recursive masters as (
    (select master from data_keys order by master limit 1)
    union all
    select (select master from data_keys where master > masters.master order by master limit 1) from masters where master is not null
)
select master from masters where master is not null
