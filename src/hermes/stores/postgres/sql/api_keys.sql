-- API keys, and idempotency keys in the table promises.

-- name: add_account
insert into accounts (id) values (%(account)s) on conflict do nothing

-- name: create
insert into api_keys (
    account_id, name, prefix, digest, tier, trains, scopes, channels,
    day_micro_usd, month_micro_usd, day_tokens, month_tokens, minute_requests, minute_tokens, calls_at_once, models, users, networks, expires_at
)
values (
    %(account)s, %(name)s, %(prefix)s, %(digest)s, %(tier)s, %(trains)s, %(scopes)s, %(channels)s,
    %(day_micro_usd)s, %(month_micro_usd)s, %(day_tokens)s, %(month_tokens)s, %(minute_requests)s, %(minute_tokens)s, %(calls_at_once)s,
    %(models)s, %(users)s, %(networks)s, %(expires_at)s
)
returning id, name, account_id as account, prefix, tier, trains, scopes, channels, created_at, last_used_at, revoked_at,
    day_micro_usd, month_micro_usd, day_tokens, month_tokens, minute_requests, minute_tokens, calls_at_once, models, users, networks, expires_at

-- name: find
select digest, id, name, account_id as account, prefix, tier, trains, scopes, channels, created_at, last_used_at, revoked_at,
    day_micro_usd, month_micro_usd, day_tokens, month_tokens, minute_requests, minute_tokens, calls_at_once, models, users, networks, expires_at
from api_keys
where digest = any(%(digests)s) and revoked_at is null

-- name: touch
-- Skips rows that another transaction has locked: it may run this same update, and two of them must not wait for each other.
update api_keys set last_used_at = now()
where id in (
    select id from api_keys where id = any(%(ids)s) and coalesce(last_used_at, '-infinity') < now() - interval '1 minute'
    for update skip locked
)

-- name: list
select id, name, account_id as account, prefix, tier, trains, scopes, channels, created_at, last_used_at, revoked_at,
    day_micro_usd, month_micro_usd, day_tokens, month_tokens, minute_requests, minute_tokens, calls_at_once, models, users, networks, expires_at
from api_keys order by created_at desc, id

-- name: matching
-- Of several keys with one name, only those that are not revoked match, if there are any.
with called as (
    select * from api_keys where id::text = %(name_or_id)s or name = %(name_or_id)s or prefix = %(name_or_id)s
)
select id, name, account_id as account, prefix, tier, trains, scopes, channels, created_at, last_used_at, revoked_at,
    day_micro_usd, month_micro_usd, day_tokens, month_tokens, minute_requests, minute_tokens, calls_at_once, models, users, networks, expires_at
from called
where revoked_at is null or not exists (select from called where revoked_at is null)

-- name: revoke
update api_keys set revoked_at = coalesce(revoked_at, now()) where id = %(id)s
returning id, name, account_id as account, prefix, tier, trains, scopes, channels, created_at, last_used_at, revoked_at,
    day_micro_usd, month_micro_usd, day_tokens, month_tokens, minute_requests, minute_tokens, calls_at_once, models, users, networks, expires_at

-- name: limits_of
select day_micro_usd, month_micro_usd, day_tokens, month_tokens, minute_requests, minute_tokens, calls_at_once, models, users, networks, expires_at
from api_keys where id = %(id)s

-- name: change
update api_keys set channels = %(channels)s,
    day_micro_usd = %(day_micro_usd)s, month_micro_usd = %(month_micro_usd)s, day_tokens = %(day_tokens)s, month_tokens = %(month_tokens)s,
    minute_requests = %(minute_requests)s, minute_tokens = %(minute_tokens)s, calls_at_once = %(calls_at_once)s,
    models = %(models)s, users = %(users)s, networks = %(networks)s, expires_at = %(expires_at)s
where id = %(id)s and revoked_at is null
returning id, name, account_id as account, prefix, tier, trains, scopes, channels, created_at, last_used_at, revoked_at,
    day_micro_usd, month_micro_usd, day_tokens, month_tokens, minute_requests, minute_tokens, calls_at_once, models, users, networks, expires_at

-- name: keep
insert into promises (api_key_id, key, digest, turn_id) values (%(api_key_id)s, %(key)s, %(digest)s, %(turn_id)s)
on conflict (api_key_id, key) do update
set digest = excluded.digest, turn_id = excluded.turn_id, created_at = now()
where promises.created_at < now() - make_interval(secs => %(ttl_s)s)
returning turn_id

-- name: first_use
select digest, turn_id from promises where api_key_id = %(api_key_id)s and key = %(key)s

-- name: clean
delete from promises where created_at < now() - make_interval(secs => %(ttl_s)s)
