-- Outbound messages, in order: within a conversation by the turn's number, within a turn by part; proactive and late messages after the
-- answer of the turn that was the newest when they were put.
--
-- Lock order everywhere: the conversation's row first, then the outbox. A transaction that gives a message up also gives a credit back, and
-- a turn that ends holds that balance while it waits for the outbox; so giving up begins with the conversation, which the turn locks first.

-- name: put
insert into outbox (account_id, platform, channel_id, conversation_id, user_id, turn_id, seq, part, body, is_message, thread, reply_to, state)
select account_id, platform, channel_id, id, %(user_id)s, %(turn_id)s, %(seq)s, %(part)s, %(body)s, %(is_message)s, %(thread)s,
    case %(part)s when 0 then %(reply_to)s::text end, %(state)s
from conversations where id = %(conversation_id)s
on conflict (turn_id, news, part) do nothing
returning id

-- name: keep_doubts
-- Before an answer is withdrawn, because that removes the doubts of its parts. Parts that the platform has are kept, with their doubts.
with doubtful as (
    select conversation_id, sum(doubts) as doubts from outbox
    where turn_id = %(turn_id)s and news = '' and doubts > 0 and not (message_id is not null and state = 'sent')
    group by conversation_id
)
update conversations set past_doubts_at = now(),
    past_doubts = doubtful.doubts + case when past_doubts_at > now() - interval '7 days' then past_doubts else 0 end
from doubtful where conversations.id = doubtful.conversation_id

-- name: parts_with_receipts
select id, user_id, turn_id, part, news, body, is_message, (
    select count(distinct news) from outbox as earlier where earlier.turn_id = outbox.turn_id and earlier.news like 'withdrawn/%%'
) as earlier
from outbox where turn_id = %(turn_id)s and news = '' and message_id is not null and state = 'sent'

-- name: keep_part
update outbox set news = %(news)s, body = %(body)s, recorded_at = now() where id = %(id)s

-- name: withdraw
delete from outbox where turn_id = %(turn_id)s and news = '' returning (state = 'sent')::int

-- name: hold_conversation
-- So that within a conversation the ids of proactive messages grow in the order of their commits.
select from conversations where id = %(conversation_id)s for update

-- name: put_proactive
insert into outbox (account_id, platform, channel_id, conversation_id, user_id, turn_id, seq, part, news, body, is_message, thread, state)
select account_id, platform, channel_id, id, %(user_id)s, %(turn_id)s, last_seq, %(part)s, %(news)s, %(body)s, %(is_message)s, %(thread)s,
    %(state)s
from conversations where id = %(conversation_id)s
on conflict (turn_id, news, part) do nothing
returning id

-- name: take_proactive
update outbox set recorded_at = now()
where conversation_id = %(conversation_id)s and news <> '' and recorded_at is null
returning id, turn_id, user_id, news, part, body, is_message, put_at

-- name: proactive_messages
with first as (
    select outbox.id, turn_id, news
    from conversations join outbox on outbox.conversation_id = conversations.id
    where conversations.account_id = %(account)s and conversations.platform = %(platform)s and conversations.channel_id = %(channel_id)s
        and news <> '' and part = 0 and outbox.id > %(after)s
    order by outbox.id limit %(limit)s
)
select outbox.id, turn_id, user_id, news, part, body, is_message, put_at from first join outbox using (turn_id, news) order by outbox.id

-- name: take
select (message).id, (message).user_id, (message).turn_id, (message).conversation_id, (message).seq, (message).part,
    (message).account_id as account, (message).platform, (message).channel_id, (message).body, (message).is_message, (message).tries,
    (message).doubts, (message).news, (message).failures, (message).thread, (message).reply_to, (message).is_late,
    (message).touched_at as taken_at, (message).doubted_at, last_inbound_at, unreachable_since, traceparent
from take_outbox_message(%(conversation_id)s, %(cut_off_s)s)

-- name: settle_sent
select (message).id, (message).user_id, (message).turn_id, (message).conversation_id, (message).seq, (message).part,
    (message).account_id as account, (message).platform, (message).channel_id, (message).body, (message).is_message, (message).tries,
    (message).doubts, (message).news, (message).failures, (message).thread, (message).reply_to, (message).is_late,
    (message).touched_at as taken_at, (message).doubted_at, last_inbound_at, unreachable_since, traceparent
from settle_sent_message(
    %(id)s, %(tries)s, %(account)s, %(platform)s, %(message_id)s, %(outcome)s, %(reason)s, %(failed)s, %(facts)s, %(conversation_id)s, %(cut_off_s)s
)

-- name: give_up
update outbox set state = 'dead', died_at = now(), touched_at = now(), outcome = 'invalid_recipient', reason = %(reason)s where id = %(id)s

-- name: lock_account
-- So that of two messages that are put back at once, the second one counts the first.
select pg_advisory_xact_lock(hashtextextended('failed_sends/' || %(platform)s || '/' || %(account)s, 0))

-- name: is_full
select count(*) >= %(cap)s from (
    select from outbox where account_id = %(account)s and platform = %(platform)s and state = 'pending' and outcome is not null
    limit %(cap)s
) as waiting

-- name: settle
with early as (  -- a receipt of a failure stays for `take_early_receipt`: this query does not hold the conversation
    delete from early_receipts
    where account_id = %(account)s and platform = %(platform)s and message_id = %(message_id)s and rank < %(failed)s
    returning rank, received_at
)
update outbox set state = %(state)s, touched_at = now(), not_before = now() + make_interval(secs => %(retry_in_s)s),
    failures = failures + %(failures)s, doubts = doubts + %(doubts)s,
    doubted_at = case when %(doubts)s > 0 then coalesce(doubted_at, touched_at) else doubted_at end,
    outcome = %(outcome)s, reason = %(reason)s, message_id = %(message_id)s,
    rank = case when %(state)s = 'sent' then greatest(1, coalesce((select rank from early), 0)) else rank end,
    ranked_at = case when %(state)s = 'sent' then coalesce((select received_at from early), now()) else ranked_at end,
    died_at = case when %(state)s = 'dead' then now() end
where id = %(id)s and state = 'attempting' and tries = %(tries)s
returning state

-- name: mark_unreachable
-- As of the time when the message was taken: a user who has written since then is reachable.
update conversations set unreachable_since = %(taken_at)s where id = %(conversation_id)s

-- name: stranded_conversations
select conversation_id from outbox as due
where not_before <= now() and (
    state = 'pending' and touched_at < now() - make_interval(secs => %(older_than_s)s)
    or state = 'attempting' and touched_at < now() - make_interval(secs => %(cut_off_s)s)
) and not exists (
    select from outbox as earlier
    where earlier.conversation_id = due.conversation_id and earlier.state in ('pending', 'attempting')
        and (earlier.seq, (earlier.news <> '' or earlier.is_late), coalesce(earlier.place, earlier.id))
          < (due.seq, (due.news <> '' or due.is_late), coalesce(due.place, due.id))
)
order by not_before limit %(limit)s

-- name: answer
select outbox.id, outbox.user_id, turn_id, part, news, body, is_message, meta from outbox left join interactions using (turn_id)
where turn_id = %(turn_id)s and news = '' order by part

-- name: waiting
select count(*) from outbox where state in ('pending', 'attempting')

-- name: lengths
select (select count(*) from outbox where state = 'pending' and outcome is not null) as failed_sends,
    (select count(*) from outbox where state = 'dead') as dead_letters
