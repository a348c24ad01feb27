-- Sessions of conversations. Times are the database's, so that workers on several hosts agree on what idle means.

-- name: go_on
update sessions set last_at = clock_timestamp()
where id = (select id from sessions where conversation_id = %(conversation_id)s order by number desc limit 1)
    and last_at > clock_timestamp() - %(idle_s)s * interval '1 second'
returning id, conversation_id, user_id, previous, head, length

-- name: lock_conversation
select user_id, account_id from conversations where id = %(conversation_id)s for no key update

-- name: take_over
update conversations set user_id = %(user_id)s where id = %(conversation_id)s

-- name: newest
select id from sessions where conversation_id = %(conversation_id)s order by number desc limit 1

-- name: add
insert into sessions (id, account_id, conversation_id, user_id, previous, seed, head, started_at, last_at)
values (
    %(session_id)s, %(account_id)s, %(conversation_id)s, %(user_id)s, %(previous)s, %(seed)s, %(head)s,
    clock_timestamp(), clock_timestamp()
)

-- name: get
select id, conversation_id, user_id, previous, head, length from sessions where id = %(session_id)s
