-- Inbound messages. Lock order everywhere: the conversation's row first, then the turn's.

-- name: first_delivery
select first.turn_id, first.conversation_id, first.seq, (
    select count(*) >= %(cap)s from (select from inbox where account_id = %(account)s and state = 'waiting' limit %(cap)s) as waiting
) as is_full
from (values (1)) as always
left join inbox as first on first.account_id = %(account)s and first.event_key = %(event_key)s

-- name: next_number
-- A platform says which of its chats are groups. The API has only names of channels: there a second user makes a conversation shared.
insert into conversations (account_id, platform, channel_id, user_id, last_seq, is_shared)
values (%(account)s, %(platform)s, %(channel_id)s, %(user_id)s, 1, %(is_shared)s)
on conflict (account_id, platform, channel_id) do update set last_seq = conversations.last_seq + 1,
    is_shared = conversations.is_shared or excluded.is_shared
        or (excluded.platform = 'rest' and conversations.user_id <> excluded.user_id)
returning id as conversation_id, last_seq as seq

-- name: add
insert into inbox (turn_id, account_id, event_key, conversation_id, user_id, seq, envelope, traceparent)
values (%(turn_id)s, %(account)s, %(event_key)s, %(conversation_id)s, %(user_id)s, %(seq)s, %(envelope)s, %(traceparent)s)
on conflict (account_id, event_key) do nothing
returning turn_id

-- name: claim
with conversation as (
    update conversations set epoch = epoch + 1
    where id = (select conversation_id from inbox where turn_id = %(turn_id)s and state = 'waiting')
    returning id, epoch, is_shared
), message as (
    update inbox set attempts = attempts + 1
    from conversation where turn_id = %(turn_id)s and inbox.conversation_id = conversation.id and state = 'waiting'
    returning turn_id, account_id, inbox.conversation_id, user_id, seq, epoch, attempts, envelope, received_at, is_shared, traceparent
), run as (
    insert into runs (turn_id, account_id, conversation_id, user_id, epoch, attempt)
    select turn_id, account_id, conversation_id, user_id, epoch, attempts from message
    on conflict (turn_id) do update set epoch = excluded.epoch, attempt = excluded.attempt
)
select turn_id, conversation_id, user_id, seq, epoch, attempts as attempt, extract(epoch from now() - received_at)::float8 as age_s,
    (
        select count(*) from inbox as recent
        where recent.conversation_id = message.conversation_id and recent.seq between message.seq - 99 and message.seq
            and recent.user_id = message.user_id and recent.received_at > message.received_at - interval '1 minute'
            and recent.joined_to is null
    ) as recent,
    is_shared, envelope, traceparent,
    (select array_agg(more.turn_id order by more.seq) from inbox as more where more.joined_to = message.turn_id) as joined_turns,
    (select array_agg(more.envelope order by more.seq) from inbox as more where more.joined_to = message.turn_id) as joined_envelopes
from message

-- name: waiting_behind
select turn_id, conversation_id, inbox.user_id, received_at, is_shared, envelope, traceparent
from inbox join conversations on conversations.id = conversation_id
where conversation_id = %(conversation_id)s and seq > %(seq)s and state = 'waiting' and attempts = 0
order by seq limit %(limit)s

-- name: join
update inbox set state = 'done', ended_at = now(), joined_to = %(turn_id)s where turn_id = any(%(turns)s) and state = 'waiting'

-- name: uncount_attempt
update inbox set attempts = attempts - 1
from conversations
where turn_id = %(turn_id)s and state = 'waiting' and attempts > 0
    and conversations.id = %(conversation_id)s and conversations.epoch = %(epoch)s

-- name: hold
select from conversations where id = %(conversation_id)s and epoch = %(epoch)s for update

-- name: finish
with message as (
    update inbox set state = 'done', ended_at = now() where turn_id = %(turn_id)s and state = 'waiting' returning turn_id
)
update runs set state = 'done', ended_at = now() from message where runs.turn_id = message.turn_id

-- name: bury
with message as (
    update inbox set state = 'dead', reason = %(reason)s, ended_at = now() where turn_id = %(turn_id)s and state = 'waiting' returning turn_id
)
update runs set state = 'dead', ended_at = now() from message where runs.turn_id = message.turn_id

-- name: origin
select conversations.account_id as account, platform, channel_id, inbox.state <> 'waiting' as has_ended,
       users.state = 'deleted' as is_sender_erased
from inbox join conversations on conversations.id = conversation_id join users on users.id = inbox.user_id
where turn_id = %(turn_id)s

-- name: message_of
select turn_id, conversation_id, inbox.user_id, received_at, is_shared, envelope, traceparent,
    (select array_agg(more.turn_id order by more.seq) from inbox as more where more.joined_to = inbox.turn_id) as joined_turns,
    (select array_agg(more.envelope order by more.seq) from inbox as more where more.joined_to = inbox.turn_id) as joined_envelopes
from inbox join conversations on conversations.id = conversation_id where turn_id = %(turn_id)s

-- name: last_private
select turn_id, conversation_id, inbox.user_id, received_at, is_shared, envelope
from inbox join conversations on conversations.id = conversation_id
where inbox.user_id = %(user_id)s and inbox.account_id = %(account)s and not is_shared
order by received_at desc limit 1

-- name: newest
select turn_id, conversation_id, inbox.user_id, received_at, is_shared, envelope
from inbox join conversations on conversations.id = conversation_id
where inbox.account_id = %(account)s and platform = %(platform)s
order by received_at desc limit 1

-- name: waiting
select count(*) from inbox where state = 'waiting'
