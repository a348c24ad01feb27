-- Messages that were given up. The operator reads them, requeues them or drops them; the worker deletes the rest after a time.

-- name: list
select id, turn_id, conversation_id, account_id as account, platform, channel_id, part, news, outcome, reason, tries, doubts, is_late,
    put_at as promised_at, died_at
from outbox
where state = 'dead'
    and (%(ids)s::bigint[] is null or id = any(%(ids)s)) and (%(platform)s::text is null or platform = %(platform)s)
    and (%(account)s::text is null or account_id = %(account)s) and (%(outcome)s::text is null or outcome = %(outcome)s)
order by died_at desc, id desc limit %(limit)s

-- name: text
select id, user_id, turn_id, part, news, body, is_message from outbox where id = %(id)s and state = 'dead'

-- name: hold_conversations
-- In one order everywhere, so that two transactions that hold several never wait for each other.
select id from conversations
where id in (
    select conversation_id from outbox
    where state = 'dead'
        and (%(ids)s::bigint[] is null or id = any(%(ids)s)) and (%(platform)s::text is null or platform = %(platform)s)
        and (%(account)s::text is null or account_id = %(account)s) and (%(outcome)s::text is null or outcome = %(outcome)s)
) order by id for update

-- name: requeue
with chosen as (
    select id, nextval(pg_get_serial_sequence('outbox', 'id')) as place from (
        select id from outbox
        where state = 'dead' and conversation_id = any(%(held)s)
            and (%(ids)s::bigint[] is null or id = any(%(ids)s)) and (%(platform)s::text is null or platform = %(platform)s)
            and (%(account)s::text is null or account_id = %(account)s) and (%(outcome)s::text is null or outcome = %(outcome)s)
        order by seq, (news <> '' or is_late), coalesce(place, id)
    ) as letters
), before as (
    select outbox.* from outbox join chosen using (id)
), again as (
    update outbox set state = 'pending', died_at = null, is_late = true, place = chosen.place, seq = conversations.last_seq,
        channel_id = conversations.channel_id,
        failures = 0, doubts = 0, doubted_at = null, outcome = null, reason = '', message_id = null, rank = 0, ranked_at = null,
        not_before = now(), touched_at = now()
    from chosen, conversations
    where outbox.id = chosen.id and conversations.id = outbox.conversation_id
)
select id, turn_id, conversation_id, account_id as account, platform, channel_id, part, news, outcome, reason, tries, doubts, is_late,
    put_at as promised_at, died_at
from before order by seq, (news <> '' or is_late), coalesce(place, id)

-- name: note_doubts
-- Before letters are requeued or dropped, because that removes their doubts.
with doubtful as (
    select conversation_id, sum(doubts) as doubts from outbox
    where state = 'dead' and doubts > 0 and conversation_id = any(%(held)s)
        and (%(ids)s::bigint[] is null or id = any(%(ids)s)) and (%(platform)s::text is null or platform = %(platform)s)
        and (%(account)s::text is null or account_id = %(account)s) and (%(outcome)s::text is null or outcome = %(outcome)s)
    group by conversation_id
)
update conversations set past_doubts_at = now(),
    past_doubts = doubtful.doubts + case when past_doubts_at > now() - interval '7 days' then past_doubts else 0 end
from doubtful where conversations.id = doubtful.conversation_id

-- name: drop
delete from outbox
where state = 'dead' and conversation_id = any(%(held)s)
    and (%(ids)s::bigint[] is null or id = any(%(ids)s)) and (%(platform)s::text is null or platform = %(platform)s)
    and (%(account)s::text is null or account_id = %(account)s) and (%(outcome)s::text is null or outcome = %(outcome)s)
returning id, turn_id, conversation_id, account_id as account, platform, channel_id, part, news, outcome, reason, tries, doubts, is_late,
    put_at as promised_at, died_at

-- name: purge
delete from outbox where state = 'dead' and died_at < now() - make_interval(secs => %(keep_s)s)
