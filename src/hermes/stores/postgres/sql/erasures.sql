-- What was erased: users, users in one account, single facts. Ids and times only.

-- name: list_since
-- Also users whom a process of an earlier version erased: it writes no row here.
select user_id, account_id as account, fact_id, at from erasures where %(since)s::timestamptz is null or at >= %(since)s
union
select id, null, null, deleted_at from users
where state = 'deleted' and (%(since)s::timestamptz is null or deleted_at >= %(since)s)
    and not exists (select from erasures where user_id = users.id and account_id is null and fact_id is null)
order by at

-- name: list_before
-- Of a database without the table of erasures.
select id as user_id, null as account, null as fact_id, deleted_at as at from users where state = 'deleted' order by deleted_at

-- name: has_table
select to_regclass('erasures') is not null

-- name: has_user
select exists (select from users where id = %(user_id)s and state <> 'deleted')

-- name: delete_fact
with dependent as (delete from dreams where user_id = %(user_id)s and evidence @> array[%(fact_id)s::uuid])
delete from user_memory where user_id = %(user_id)s and id = %(fact_id)s

-- name: note
insert into erasures (user_id, account_id, fact_id, at) values (%(user_id)s, %(account)s, %(fact_id)s, %(at)s)

-- name: forget_repeated
-- Repeating an erasure notes it as of now; the row with its own time is the one that stays.
delete from erasures where number > %(after)s

-- name: newest
select coalesce(max(number), 0) from erasures
