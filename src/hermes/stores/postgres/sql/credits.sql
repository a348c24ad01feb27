-- The ledger of credits, and the balances that it adds up to.
--
-- Every change is two statements. The first locks the user's balance row. The second reads the ledger and writes: it sees what the
-- previous holder of the lock committed. A single statement would not see it, because its snapshot is older than its wait. Reserve and
-- post, which every message needs, are functions of two statements each (migration 0016), so that they take one round trip.

-- name: lock_receiver
insert into credit_balances (user_id) select id from users where id = %(user_id)s
on conflict (user_id) do update set available = credit_balances.available
returning user_id

-- name: lock_turn
select user_id from credit_balances
where user_id = (select user_id from credit_entries where turn_id = %(turn_id)s limit 1) for update

-- name: grant
with entry as (
    insert into credit_entries (user_id, event, kind, amount) values (%(user_id)s, %(event)s, 'grant', %(amount)s)
    on conflict (event, kind) do nothing
    returning user_id, amount
)
update credit_balances set available = available + entry.amount from entry where credit_balances.user_id = entry.user_id
returning available

-- name: granted_to
select user_id from credit_entries where event = %(event)s and kind = 'grant'

-- name: reserve
select reserve_credit(%(user_id)s, %(turn_id)s, %(amount)s)

-- name: post
select post_credit(%(turn_id)s)

-- name: void
with entry as (
    insert into credit_entries (user_id, event, kind, amount, turn_id, attempt)
    select user_id, event, 'void', amount, turn_id, attempt from open_reserves where turn_id = %(turn_id)s
    returning user_id, amount
)
update credit_balances set available = available + entry.amount, reserved = reserved - entry.amount
from entry where credit_balances.user_id = entry.user_id
returning available

-- name: refund
with entry as (
    insert into credit_entries (user_id, event, kind, amount, turn_id, attempt)
    select user_id, event, 'refund', amount, turn_id, attempt from credit_entries where turn_id = %(turn_id)s and kind = 'post'
    on conflict do nothing
    returning user_id, amount
)
update credit_balances set available = available + entry.amount
from entry where credit_balances.user_id = entry.user_id
returning available

-- name: lock_stale_balances
select user_id from credit_balances
where reserved > 0
  and exists (
      select from open_reserves
      where open_reserves.user_id = credit_balances.user_id and created_at <= now() - make_interval(secs => %(older_than_s)s)
  )
order by user_id for update skip locked

-- name: expire
with entry as (
    insert into credit_entries (user_id, event, kind, amount, turn_id, attempt)
    select user_id, event, 'void', amount, turn_id, attempt from open_reserves
    where user_id = any(%(users)s) and created_at <= now() - make_interval(secs => %(older_than_s)s)
    order by id
    returning user_id, amount
), given_back as (
    select user_id, sum(amount) as amount from entry group by user_id
), balance as (
    update credit_balances set available = available + given_back.amount, reserved = reserved - given_back.amount
    from given_back where credit_balances.user_id = given_back.user_id
)
select count(*) from entry

-- name: balance
select available, reserved from credit_balances where user_id = %(user_id)s

-- name: audit
with ledger as (
    select user_id,
           sum(case kind when 'reserve' then -amount when 'post' then 0 else amount end) as available,
           sum(case kind when 'reserve' then amount when 'post' then -amount when 'void' then -amount else 0 end) as reserved
    from credit_entries group by user_id
), turns as (
    select turn_id,
           count(distinct user_id) as users,
           count(*) filter (where kind = 'reserve') as reserves,
           count(*) filter (where kind in ('post', 'void')) as endings,
           max(attempt) filter (where kind = 'reserve') as last,
           max(attempt) filter (where kind = 'post') as posted
    from credit_entries where turn_id is not null group by turn_id
)
select format('user %%s: the balance says %%s available and %%s reserved, the ledger says %%s and %%s', user_id,
              coalesce(balance.available, 0), coalesce(balance.reserved, 0), coalesce(ledger.available, 0), coalesce(ledger.reserved, 0))
from credit_balances as balance full join ledger using (user_id)
where (coalesce(balance.available, 0), coalesce(balance.reserved, 0)) <> (coalesce(ledger.available, 0), coalesce(ledger.reserved, 0))
union all
select format('turn %%s: %%s of %%s without the entry that must come before it', turn_id, kind, amount)
from credit_entries as entry
where kind in ('post', 'void', 'refund')
  and not exists (
      select from credit_entries as before
      where before.event = entry.event and before.kind = case entry.kind when 'refund' then 'post' else 'reserve' end
        and (before.user_id, before.amount) = (entry.user_id, entry.amount) and before.id < entry.id
  )
union all
select format('turn %%s: it belongs to %%s users', turn_id, users) from turns where users > 1
union all
select format('turn %%s: %%s reserves are open', turn_id, reserves - endings) from turns where reserves - endings > 1
union all
select format('turn %%s: it was reserved again after it was posted', turn_id) from turns where last > posted
order by 1
