-- What platforms report about messages after they were sent. A rank only ever grows. The platform gives a message its id: unique within an
-- account on every platform that sends receipts.

-- name: receive
with known as (
    select id from outbox
    where account_id = %(account)s and platform = %(platform)s and message_id = %(message_id)s
), ranked as (
    update outbox set rank = %(rank)s, ranked_at = now() from known where outbox.id = known.id and outbox.rank < %(rank)s
)
insert into early_receipts as early (account_id, platform, message_id, channel_id, parcel_id, rank, outcome, reason)
select %(account)s, %(platform)s, %(message_id)s, %(channel_id)s, %(parcel_id)s, %(rank)s, %(outcome)s, %(reason)s
where not exists (select from known)
on conflict (account_id, platform, message_id) do update
set rank = greatest(early.rank, excluded.rank), parcel_id = coalesce(early.parcel_id, excluded.parcel_id),
    outcome = case when excluded.rank > early.rank then excluded.outcome else early.outcome end,
    reason = case when excluded.rank > early.rank then excluded.reason else early.reason end

-- name: find_by_reference
select id from outbox
where turn_id = %(turn_id)s and part = %(part)s and news = %(news)s and account_id = %(account)s and platform = %(platform)s

-- name: find_confirmation
-- A receipt for a message id that is not in the outbox. It proves that this message arrived if it names it; or if it comes from the same
-- channel, after the first try in doubt. But every other message of the conversation that was in doubt may have arrived too, with a late
-- receipt; so the second kind proves it only if there are more unknown message ids than other doubts.
with unknown as (
    select message_id, parcel_id, received_at from early_receipts
    where account_id = %(account)s and platform = %(platform)s and rank < %(failed)s
        and (parcel_id = %(id)s or parcel_id is null and channel_id = %(channel_id)s)
        and not exists (
            select from outbox as known
            where known.account_id = early_receipts.account_id and known.platform = early_receipts.platform
                and known.message_id = early_receipts.message_id
        )
), others as (
    select (
        select coalesce(sum(outbox.doubts), 0)
        from inbox join outbox using (turn_id)
        where inbox.conversation_id = %(conversation_id)s and outbox.id <> %(id)s and outbox.doubts > 0
            and outbox.touched_at > now() - interval '7 days'
    ) + (
        select coalesce(sum(past_doubts), 0) from conversations
        where id = %(conversation_id)s and past_doubts_at > now() - interval '7 days'
    ) as doubts
)
select message_id from unknown, others
where parcel_id = %(id)s
    or received_at >= %(doubted_at)s and (select count(*) from unknown where parcel_id is null) > others.doubts
order by parcel_id is null, received_at desc limit 1

-- name: in_doubt
-- Dead letters that a receipt may be about.
select outbox.id, turn_id, conversation_id, outbox.account_id as account, outbox.platform, outbox.channel_id, part, news, outbox.outcome,
    outbox.reason, tries, doubts, is_late, put_at as promised_at, died_at, doubted_at
from early_receipts as early join outbox on outbox.account_id = early.account_id and outbox.platform = early.platform
    and (outbox.id = early.parcel_id or early.parcel_id is null and outbox.channel_id = early.channel_id)
where early.account_id = %(account)s and early.platform = %(platform)s and early.message_id = %(message_id)s and early.rank < %(failed)s
    and outbox.state = 'dead' and outbox.outcome = 'ambiguous' and outbox.doubts > 0
order by died_at, outbox.id

-- name: hold_conversation
select from conversations where id = %(conversation_id)s for update

-- name: mark_arrived
with early as (
    delete from early_receipts where account_id = %(account)s and platform = %(platform)s and message_id = %(message_id)s
    returning rank, received_at
)
update outbox set state = 'sent', died_at = null, touched_at = now(), outcome = 'sent', reason = %(reason)s, message_id = %(message_id)s,
    rank = early.rank, ranked_at = early.received_at
from early where id = %(id)s and state = 'dead'
returning id

-- name: left_in_doubt
select id, conversation_id from outbox where state = 'ambiguous' order by id limit 1

-- name: list_left_in_doubt
-- Its last try was not yet counted in `doubts`.
update outbox set state = 'dead', died_at = now(), outcome = 'ambiguous', doubts = doubts + 1,
    reason = case reason when '' then 'it may have arrived' else reason end
where id = %(id)s and state = 'ambiguous'
returning id, turn_id, conversation_id, account_id as account, platform, channel_id, part, news, outcome, reason, tries, doubts, is_late,
    put_at as promised_at, died_at

-- name: undelivered
-- Messages given up in doubt come last: a message that is being delivered now is the more likely match.
select id, user_id, turn_id, part, news, body, is_message from outbox
where conversation_id = (
    select id from conversations where account_id = %(account)s and platform = %(platform)s and channel_id = %(channel_id)s
) and (state in ('pending', 'attempting') or state = 'dead' and outcome = 'ambiguous')
order by state = 'dead', seq, (news <> '' or is_late), coalesce(place, id)

-- name: hold_conversations
select from conversations
where id in (
    select conversation_id from outbox
    where account_id = %(account)s and platform = %(platform)s and message_id = %(message_id)s
) order by id for update

-- name: fail
-- A message with a receipt of delivery stays delivered: the platform contradicts itself, and the message had arrived.
update outbox set state = 'dead', died_at = now(), touched_at = now(), outcome = %(outcome)s, reason = %(reason)s
where account_id = %(account)s and platform = %(platform)s and message_id = %(message_id)s
    and state = 'sent' and rank < %(delivered)s
returning id, turn_id, conversation_id, account_id as account, platform, channel_id, part, news, outcome, reason, tries, doubts, is_late,
    put_at as promised_at, died_at

-- name: take_early_receipt
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
returning account_id as account, platform, message_id, channel_id, rank, outcome as error, reason as detail

-- name: delete_old_receipts
delete from early_receipts where received_at < now() - make_interval(secs => %(keep_s)s)

-- name: set_unreachable
update conversations set unreachable_since = coalesce(%(since)s, now())
where account_id = %(account)s and platform = %(platform)s and channel_id = %(channel_id)s

-- name: set_reachable
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

-- name: move_messages
update outbox set channel_id = %(new)s
where conversation_id = any(%(conversations)s) and channel_id = %(old)s and state in ('pending', 'attempting')

-- name: answer_source
-- The newest, in case a platform gives one id twice.
select outbox.turn_id, session_id, coalesce(meta -> 'calls', '[]') as calls
from outbox join interactions using (turn_id)
where outbox.account_id = %(account)s and outbox.platform = %(platform)s and message_id = %(message_id)s and news = ''
    and (%(channel_id)s::text is null or channel_id = %(channel_id)s)
order by outbox.id desc limit 1

-- name: newest
select turn_id, account_id as account, platform, channel_id, part, news, state, rank, ranked_at, outcome, reason, tries, doubts, is_late,
    put_at as promised_at
from outbox
where platform in ('telegram', 'whatsapp', 'instagram') and (%(account)s::text is null or account_id = %(account)s)
order by id desc limit %(limit)s

-- name: statuses
select part, news, state, rank, ranked_at, outcome, reason, tries, doubts, is_late, put_at as promised_at
from outbox where turn_id = %(turn_id)s order by news <> '', id
