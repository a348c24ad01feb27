-- Sessions of conversations. Times come from the database's clock, so that workers on several hosts agree on when a session is idle.

-- name: find_current
update sessions set last_at = clock_timestamp()
where id = (select id from sessions where conversation_id = %(conversation_id)s order by number desc limit 1)
    and last_at > clock_timestamp() - %(idle_s)s * interval '1 second' and ended_at is null and is_shared = %(is_shared)s
returning id, conversation_id, user_id, previous, head, length, is_shared

-- name: lock_conversation
select user_id, account_id from conversations where id = %(conversation_id)s for no key update

-- name: take_over
update conversations set user_id = %(user_id)s where id = %(conversation_id)s

-- name: newest
select id from sessions where conversation_id = %(conversation_id)s order by number desc limit 1

-- name: add
insert into sessions (id, account_id, conversation_id, user_id, previous, seed, head, is_shared, started_at, last_at)
values (
    %(session_id)s, %(account_id)s, %(conversation_id)s, %(user_id)s, %(previous)s, %(seed)s, %(head)s, %(is_shared)s,
    clock_timestamp(), clock_timestamp()
)

-- name: get
select id, conversation_id, user_id, previous, head, length, is_shared from sessions where id = %(session_id)s

-- name: has_account
select from accounts where id = %(account)s

-- name: find_by_name
select id from sessions where id = %(id)s or conversation_id = %(id)s
union
select sessions.id from conversations join sessions on sessions.conversation_id = conversations.id
where channel_id = %(name)s or (platform = 'completions' and channel_id = conversations.user_id || '/named/' || %(name)s)

-- name: find
-- A model call counts as activity too, whether or not it updated the session.
select id from sessions
where (%(among)s::uuid[] is null or id = any(%(among)s::uuid[]))
    and (%(since)s::timestamptz is null or last_at >= %(since)s or id in (select session_id from calls where created_at >= %(since)s))
    and (%(account)s::text is null or account_id = %(account)s)
order by number

-- name: end_one
update sessions set ended_at = clock_timestamp() where id = %(session_id)s and ended_at is null

-- name: end
update sessions set ended_at = clock_timestamp()
where id in (
    select id from sessions
    where ended_at is null
        and (user_id = %(user_id)s or conversation_id in (select conversation_id from inbox where inbox.user_id = %(user_id)s))
    order by id for no key update  -- in one order, so that two transactions that end the same sessions do not wait for each other
)
returning id

-- name: show_from_now
update users set shown_from = clock_timestamp() where id = %(user_id)s

-- name: user_nodes
-- The row of a turn in interactions has the nodes that it added to the graph. The sessions of an owner who was deleted are left out: no key
-- opens them.
with theirs as (
    select session_id, array_agg(node) as nodes
    from interactions join sessions on sessions.id = session_id join users as owner on owner.id = sessions.user_id,
        jsonb_array_elements_text(meta -> 'nodes') as node
    where interactions.user_id = %(user_id)s and owner.state <> 'deleted'
        and case when %(account)s::text is null then sessions.user_id <> %(user_id)s else interactions.account_id = %(account)s and exists (
            select from inbox where inbox.conversation_id = sessions.conversation_id and inbox.user_id <> %(user_id)s
        ) end
    group by session_id
)
select session_id, nodes, array(
    select node
    from sessions join inbox on inbox.conversation_id = sessions.conversation_id join interactions as other on other.turn_id = inbox.turn_id,
        jsonb_array_elements_text(other.meta -> 'nodes') as node
    where sessions.id = theirs.session_id and other.session_id = sessions.id and other.user_id <> %(user_id)s
) as others, array(
    select distinct news from outbox join sessions on sessions.conversation_id = outbox.conversation_id
    where sessions.id = theirs.session_id and outbox.user_id = %(user_id)s and news <> ''
) as news
from theirs order by session_id

-- name: note_erased
update interactions set meta = meta - 'nodes' where user_id = %(user_id)s and session_id = %(session_id)s and meta ? 'nodes'

-- name: may_train
-- The owner of a session need not be the only user in it: interactions has the user and the session of every turn.
select owner.state = 'deleted' as is_deleted, owner.trains and not exists (
    select from inbox join interactions on interactions.turn_id = inbox.turn_id join users on users.id = inbox.user_id
    where inbox.conversation_id = sessions.conversation_id and interactions.session_id = sessions.id and not users.trains
) as may_train
from sessions join users as owner on owner.id = sessions.user_id
where sessions.id = %(session_id)s
