-- What an operator has a piece of. Every part is a range of a primary key, or a prefix that an index serves.

-- name: by_id
(
    select 'turn' as kind, coalesce(joined_to, turn_id) as id, account_id as account, received_at as at
    from inbox where turn_id between %(low)s and %(high)s and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
    order by inbox.turn_id limit %(limit)s
)
union all
(
    select 'conversation', id, account_id, last_at
    from sessions where id between %(low)s and %(high)s and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
    order by sessions.id limit %(limit)s
)
union all
(
    select 'conversation', s.id, k.account_id, s.last_at
    from conversations as k join lateral (
        select id, last_at from sessions where conversation_id = k.id order by number desc limit 1
    ) as s on true
    where k.id between %(low)s and %(high)s and (%(accounts)s::text[] is null or k.account_id = any(%(accounts)s))
    order by k.id limit %(limit)s
)
union all
(
    select 'call', id, account_id, created_at
    from calls where id between %(low)s and %(high)s and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
    order by calls.id limit %(limit)s
)
union all
(
    select 'user', id, null, created_at
    from users where id between %(low)s and %(high)s and (%(accounts)s::text[] is null or exists (
        select from user_channels as c where c.user_id = users.id and c.account_id = any(%(accounts)s)
    ))
    order by users.id limit %(limit)s
)
union all
(
    select 'key', id, account_id, created_at
    from api_keys where id between %(low)s and %(high)s and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
    order by api_keys.id limit %(limit)s
)
union all
(
    select 'process', id, null, started_at
    from processes where id between %(low)s and %(high)s order by processes.id limit %(limit)s
)

-- name: by_code
select 'user' as kind, id, null as account, created_at as at from users
where referral_code = %(code)s and (%(accounts)s::text[] is null or exists (
    select from user_channels as c where c.user_id = users.id and c.account_id = any(%(accounts)s)
))

-- name: by_sender
select 'user' as kind, user_id as id, account_id as account, last_inbound_at as at, sender_id as sender from user_channels
where sender_id like %(pattern)s and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
order by sender_id using ~<~ limit %(limit)s
