-- People, for operators. Every page reads as many users as it shows, and looks up what belongs to each by an index.

-- name: list
select id from users where state <> 'deleted' and (created_at, id) < (%(at)s, %(id)s)
order by created_at desc, id desc limit %(limit)s

-- name: list_in_state
select id from users
where state = %(state)s and (created_at, id) < (%(at)s, %(id)s)
order by created_at desc, id desc limit %(limit)s

-- name: list_in_accounts
-- From the channels: an account with few people must not read all users.
select id from users
where id in (select user_id from user_channels where account_id = any(%(accounts)s))
    and (%(state)s::text is null or state = %(state)s) and (created_at, id) < (%(at)s, %(id)s)
order by created_at desc, id desc limit %(limit)s

-- name: list_by_sender
select user_id as id, min(sender_id) as sender from user_channels
where sender_id like %(pattern)s and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
group by 1 order by 2, 1 limit %(limit)s

-- name: summaries
select users.id, state, tier, language, referral_code, trains, referred_by, users.created_at, deleted_at as erased_at,
    coalesce((select available from credit_balances where user_id = users.id), 0) as credits,
    (
        select max(last_inbound_at) from user_channels
        where user_id = users.id and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
    ) as wrote_at,
    (
        select coalesce(jsonb_agg(jsonb_build_array(account_id, platform, sender_id)), '[]') from (
            select account_id, platform, sender_id from user_channels
            where user_id = users.id and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
            order by created_at, account_id, platform, sender_id limit %(channels)s
        ) as theirs
    ) as channels
from unnest(%(ids)s::uuid[]) with ordinality as wanted (id, place) join users on users.id = wanted.id
order by place

-- name: is_in_accounts
select exists (select from user_channels where user_id = %(user_id)s and account_id = any(%(accounts)s))

-- name: ledger
select id, kind, amount, event, turn_id, created_at as at from credit_entries as e
where user_id = %(user_id)s and (%(accounts)s::text[] is null or turn_id is null or exists (
    select from inbox as i where i.turn_id = e.turn_id and i.account_id = any(%(accounts)s)
))
order by id desc limit %(limit)s

-- name: spend_of
-- Each sum is written twice: without a condition on the account every plan reads the index of calls alone.
select user_id, sum(micro_usd)::bigint as micro_usd from calls where user_id = any(%(ids)s) and day >= %(since)s group by 1

-- name: spend_of_in_accounts
select user_id, sum(micro_usd)::bigint as micro_usd from calls
where user_id = any(%(ids)s) and day >= %(since)s and account_id = any(%(accounts)s) group by 1

-- name: spend_by_day
select day, sum(micro_usd)::bigint as micro_usd, count(*) as calls from calls where user_id = %(user_id)s and day >= %(since)s
group by 1 order by 1

-- name: spend_by_day_in_accounts
select day, sum(micro_usd)::bigint as micro_usd, count(*) as calls from calls
where user_id = %(user_id)s and day >= %(since)s and account_id = any(%(accounts)s)
group by 1 order by 1

-- name: count_memory
select count(*) filter (where superseded_at is null) as facts, count(*) filter (where superseded_at is not null) as superseded,
    (select count(*) from dreams where user_id = %(user_id)s and %(accounts)s::text[] is null) as dreams
from user_memory as m
where user_id = %(user_id)s and (%(accounts)s::text[] is null or exists (
    select from inbox as i where i.turn_id = m.source_turn and i.account_id = any(%(accounts)s)
))
