-- What goes out, in order: within a conversation by the turn's number, within a turn by part; news behind the answer of the turn that was
-- the newest when they were put.

-- name: put
insert into outbox (account_id, platform, channel_id, conversation_id, user_id, turn_id, seq, part, body, state)
select account_id, platform, channel_id, id, %(user_id)s, %(turn_id)s, %(seq)s, %(part)s, %(body)s, %(state)s
from conversations where id = %(conversation_id)s
on conflict (turn_id, news, part) do nothing

-- name: hold_conversation
-- So that the ids of news grow in the order of their commits, within a conversation.
select from conversations where id = %(conversation_id)s for update

-- name: put_news
insert into outbox (account_id, platform, channel_id, conversation_id, user_id, turn_id, seq, part, news, body, state)
select account_id, platform, channel_id, id, %(user_id)s, %(turn_id)s, last_seq, 0, %(news)s, %(body)s, %(state)s
from conversations where id = %(conversation_id)s
on conflict (turn_id, news, part) do nothing

-- name: take_news
update outbox set recorded_at = now()
where conversation_id = %(conversation_id)s and news <> '' and recorded_at is null
returning id, turn_id, user_id, news, body, put_at

-- name: news
select outbox.id, turn_id, outbox.user_id, news, body, put_at
from conversations join outbox on outbox.conversation_id = conversations.id
where conversations.account_id = %(account)s and conversations.platform = %(platform)s and conversations.channel_id = %(channel_id)s
    and news <> '' and outbox.id > %(after)s
order by outbox.id limit %(limit)s

-- name: take
with head as (
    select id, state, not_before, touched_at from outbox
    where conversation_id = %(conversation_id)s and state in ('pending', 'attempting')
    order by seq, news <> '', id limit 1
    for update
)
update outbox set state = 'attempting', tries = tries + 1, touched_at = now()
from head
where outbox.id = head.id and head.not_before <= now()
    and (head.state = 'pending' or head.touched_at < now() - make_interval(secs => %(cut_off_s)s))
returning outbox.id, outbox.user_id, turn_id, conversation_id, seq, part, account_id, platform, channel_id, body, tries, head.state = 'attempting', news

-- name: settle
update outbox set state = %(state)s, touched_at = now(), not_before = now() + make_interval(secs => %(retry_in_s)s)
where id = %(id)s and state = 'attempting' and tries = %(tries)s

-- name: stranded
select distinct conversation_id from outbox
where not_before <= now() and (
    state = 'pending' and touched_at < now() - make_interval(secs => %(older_than_s)s)
    or state = 'attempting' and touched_at < now() - make_interval(secs => %(cut_off_s)s)
)

-- name: answer
select outbox.user_id, part, body, meta from outbox left join interactions using (turn_id)
where turn_id = %(turn_id)s and news = '' order by part

-- name: waiting
select count(*) from outbox where state in ('pending', 'attempting')

-- name: log
insert into interactions (turn_id, account_id, user_id, session_id, platform, meta)
values (%(turn_id)s, %(account)s, %(user_id)s, %(session_id)s, %(platform)s, %(meta)s)
on conflict (turn_id) do nothing
