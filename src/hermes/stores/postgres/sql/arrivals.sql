-- What platforms tell of our messages after they were sent. A rank only ever grows. A message's id is the platform's: unique within an
-- account wherever there are receipts.

-- name: receive
with known as (
    select id from outbox
    where account_id = %(account)s and platform = %(platform)s and message_id = %(message_id)s
), ranked as (
    update outbox set rank = %(rank)s, ranked_at = now() from known where outbox.id = known.id and outbox.rank < %(rank)s
)
insert into early_receipts (account_id, platform, message_id, channel_id, rank, outcome, reason)
select %(account)s, %(platform)s, %(message_id)s, %(channel_id)s, %(rank)s, %(outcome)s, %(reason)s where not exists (select from known)
on conflict (account_id, platform, message_id) do update
set rank = excluded.rank, outcome = excluded.outcome, reason = excluded.reason where early_receipts.rank < excluded.rank

-- name: on_their_way
select user_id, turn_id, part, news, body, is_message from outbox
where conversation_id = (
    select id from conversations where account_id = %(account)s and platform = %(platform)s and channel_id = %(channel_id)s
) and state in ('pending', 'attempting')

-- name: hold_conversations
select from conversations
where id in (
    select conversation_id from outbox
    where account_id = %(account)s and platform = %(platform)s and message_id = %(message_id)s
) order by id for update

-- name: fail
-- One that was delivered before stays what it is: the platform contradicts itself, and it was there.
update outbox set state = 'dead', died_at = now(), touched_at = now(), outcome = %(outcome)s, reason = %(reason)s
where account_id = %(account)s and platform = %(platform)s and message_id = %(message_id)s
    and state in ('sent', 'ambiguous') and rank < %(delivered)s
returning id, turn_id, conversation_id, account_id, platform, channel_id, part, news, outcome, reason, tries, doubts, is_late, put_at, died_at

-- name: take_found
delete from early_receipts as early
where (account_id, platform, message_id) in (
    select account_id, platform, message_id from early_receipts
    where exists (
        select from outbox
        where outbox.account_id = early_receipts.account_id and outbox.platform = early_receipts.platform
            and outbox.message_id = early_receipts.message_id
    )
    order by received_at limit 1 for update skip locked
)
returning account_id, platform, message_id, channel_id, rank, outcome, reason

-- name: forget_old
delete from early_receipts where received_at < now() - make_interval(secs => %(keep_s)s)

-- name: left
update conversations set unreachable_since = coalesce(%(since)s, now())
where account_id = %(account)s and platform = %(platform)s and channel_id = %(channel_id)s

-- name: came_back
update conversations set unreachable_since = null
where account_id = %(account)s and platform = %(platform)s and channel_id = %(channel_id)s

-- name: move_sender
update user_channels set sender_id = %(new)s
where account_id = %(account)s and platform = %(platform)s and sender_id = %(old)s and not exists (
    select from user_channels as known
    where known.account_id = %(account)s and known.platform = %(platform)s and known.sender_id = %(new)s
)

-- name: hold_both
select id from conversations
where account_id = %(account)s and platform = %(platform)s and channel_id in (%(old)s, %(new)s) order by id for update

-- name: move_channel
update conversations set channel_id = %(new)s
where account_id = %(account)s and platform = %(platform)s and channel_id = %(old)s and not exists (
    select from conversations as known
    where known.account_id = %(account)s and known.platform = %(platform)s and known.channel_id = %(new)s
)

-- name: move_parcels
update outbox set channel_id = %(new)s
where conversation_id = any(%(conversations)s) and channel_id = %(old)s and state in ('pending', 'attempting')

-- name: answered
-- The newest, should a platform ever give an id twice.
select outbox.turn_id, session_id, coalesce(meta -> 'calls', '[]')
from outbox join interactions using (turn_id)
where outbox.account_id = %(account)s and outbox.platform = %(platform)s and message_id = %(message_id)s and news = ''
    and (%(channel_id)s::text is null or channel_id = %(channel_id)s)
order by outbox.id desc limit 1

-- name: newest
select turn_id, account_id, platform, channel_id, part, news, state, rank, ranked_at, outcome, reason, tries, doubts, is_late, put_at
from outbox
where platform in ('telegram', 'whatsapp', 'instagram') and (%(account)s::text is null or account_id = %(account)s)
order by id desc limit %(limit)s

-- name: standings
select part, news, state, rank, ranked_at, outcome, reason, tries, doubts, is_late, put_at
from outbox where turn_id = %(turn_id)s order by news <> '', id
