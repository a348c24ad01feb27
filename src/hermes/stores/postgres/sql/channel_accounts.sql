-- Channel accounts.

-- name: add_account
insert into accounts (id) values (%(account)s) on conflict do nothing

-- name: known
select id from channel_accounts where platform = %(platform)s and account_id = %(account)s for update

-- name: put
insert into channel_accounts (id, platform, account_id, is_polled, about)
values (%(id)s, %(platform)s, %(account)s, %(is_polled)s, %(about)s)
on conflict (platform, account_id) do update
set is_polled = excluded.is_polled, about = excluded.about, changed_at = clock_timestamp()

-- name: get
select id, platform, account_id as account, is_polled, about from channel_accounts where platform = %(platform)s and account_id = %(account)s

-- name: list
select id, platform, account_id as account, is_polled, about from channel_accounts order by platform, account_id

-- name: mark
select count(*)::text || '/' || coalesce(max(changed_at)::text, '') from channel_accounts

-- name: remove
delete from channel_accounts where platform = %(platform)s and account_id = %(account)s returning id
