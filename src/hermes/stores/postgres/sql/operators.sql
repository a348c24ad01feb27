-- Operators, their entries, and the audit log.

-- name: add
insert into operators (name, role, accounts, created_by) values (%(name)s, %(role)s, %(accounts)s, %(by)s)
on conflict (name) do nothing
returning id, name, role, accounts, created_at, created_by, disabled_at

-- name: find
select id, name, role, accounts, created_at, created_by, disabled_at from operators where name = %(name)s

-- name: list
select id, name, role, accounts, created_at, created_by, disabled_at from operators order by name

-- name: add_entry
with old as (
    delete from operator_entries where expires_at < now() - interval '30 days'
)
insert into operator_entries (digest, operator_id, kind, name, expires_at, address, browser)
values (%(digest)s, %(operator_id)s, %(kind)s, %(name)s, now() + %(ttl_s)s * interval '1 second', %(address)s, %(browser)s)

-- name: use_link
with used as (
    update operator_entries set used_at = now()
    where digest = %(digest)s and kind = 'link' and used_at is null and revoked_at is null and expires_at > now()
    returning operator_id
)
select id, name, role, accounts, created_at, created_by, disabled_at from operators join used on used.operator_id = operators.id
where disabled_at is null

-- name: find_entry
select e.digest, e.kind, e.name as entry_name, e.created_at as entry_created_at, e.seen_at, e.expires_at, e.used_at, e.revoked_at, e.address, e.browser,
    o.id, o.name, o.role, o.accounts, o.created_at, o.created_by, o.disabled_at
from operator_entries as e join operators as o on o.id = e.operator_id
where e.digest = %(digest)s and e.kind <> 'link' and e.revoked_at is null and (e.expires_at is null or e.expires_at > now())
    and (e.kind <> 'session' or coalesce(e.seen_at, e.created_at) > now() - %(idle_s)s * interval '1 second')
    and o.disabled_at is null

-- name: note_seen
update operator_entries set seen_at = now()
where digest = %(digest)s and (seen_at is null or seen_at < now() - %(every_s)s * interval '1 second')

-- name: set_role
update operators set role = %(role)s where name = %(name)s
returning id, name, role, accounts, created_at, created_by, disabled_at

-- name: set_accounts
update operators set accounts = %(accounts)s where name = %(name)s
returning id, name, role, accounts, created_at, created_by, disabled_at

-- name: disable
with gone as (
    update operators set disabled_at = coalesce(disabled_at, now()) where name = %(name)s
    returning id, name, role, accounts, created_at, created_by, disabled_at
), ended as (
    update operator_entries as e set revoked_at = now() from gone where e.operator_id = gone.id and e.revoked_at is null
)
select id, name, role, accounts, created_at, created_by, disabled_at from gone

-- name: enable
update operators set disabled_at = null where name = %(name)s
returning id, name, role, accounts, created_at, created_by, disabled_at

-- name: entries
select e.digest, e.kind, e.name as entry_name, e.created_at as entry_created_at, e.seen_at, e.expires_at, e.used_at, e.revoked_at, e.address, e.browser,
    o.id, o.name, o.role, o.accounts, o.created_at, o.created_by, o.disabled_at
from operator_entries as e join operators as o on o.id = e.operator_id
where e.revoked_at is null and e.used_at is null and (e.expires_at is null or e.expires_at > now())
    and (e.kind <> 'session' or coalesce(e.seen_at, e.created_at) > now() - %(idle_s)s * interval '1 second')
    and (%(operator_id)s::uuid is null or e.operator_id = %(operator_id)s)
order by coalesce(e.seen_at, e.created_at) desc, e.digest

-- name: revoke
with ended as (
    update operator_entries set revoked_at = coalesce(revoked_at, now()) where left(encode(digest, 'hex'), %(chars)s) = %(entry_id)s
    returning *
)
select e.digest, e.kind, e.name as entry_name, e.created_at as entry_created_at, e.seen_at, e.expires_at, e.used_at, e.revoked_at, e.address, e.browser,
    o.id, o.name, o.role, o.accounts, o.created_at, o.created_by, o.disabled_at
from ended as e join operators as o on o.id = e.operator_id

-- name: owner_of_conversation
select user_id, account_id as account from conversations where id = %(id)s

-- name: owner_of_user
select u.id as user_id, (
    select case when count(distinct c.account_id) = 1 then min(c.account_id) end from user_channels as c where c.user_id = u.id
) as account
from users as u where u.id = %(id)s

-- name: audit
insert into audit (operator, role, face, action, subject_kind, subject, user_id, account_id, reason, allowed, address, facts)
values (%(operator)s, %(role)s, %(face)s, %(action)s, %(subject_kind)s, %(subject)s, %(user_id)s, %(account_id)s, %(reason)s, %(allowed)s,
    %(address)s, %(facts)s)
returning id

-- name: audit_list
select id, at, operator, role, face, action, subject_kind, subject, user_id, account_id, reason, allowed, address, facts
from audit
where (%(before)s::bigint is null or id < %(before)s)
    and (%(operator)s::text is null or operator = %(operator)s)
    and (%(action)s::text is null or action = %(action)s)
    and (%(subject_kind)s::text is null or subject_kind = %(subject_kind)s)
    and (%(subject)s::text is null or subject = %(subject)s)
    and (%(since)s::timestamptz is null or at >= %(since)s)
    and (%(user_id)s::uuid is null or user_id = %(user_id)s)
    and (not %(only_refused)s or not allowed)
    and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
order by id desc limit %(limit)s

-- name: find_opening
select at, reason from audit
where subject_kind = %(subject_kind)s and subject = %(subject)s and operator = %(operator)s and action = 'content.open' and allowed
    and at > clock_timestamp() - %(within_s)s * interval '1 second'
order by id desc limit 1

-- name: count_opened
-- What belongs to several accounts has none: it counts for each.
select count(*) from audit
where user_id = %(user_id)s and action = 'content.open' and allowed and (%(account)s::text is null or coalesce(account_id, %(account)s) = %(account)s)
