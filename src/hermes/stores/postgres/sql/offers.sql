-- Offers: what a tool would do for a user, until the user approves or refuses it.

-- name: put
insert into offers (user_id, code, turn_id, call_index, tool, sealed, digest, expires_at)
values (%(user_id)s, %(code)s, %(turn_id)s, %(index)s, %(tool)s, %(sealed)s, %(digest)s, %(expires_at)s)
on conflict do nothing
returning code

-- name: look
select tool, sealed, digest, turn_id, call_index, state, settled_by, result, expires_at <= %(now)s as is_old
from offers where user_id = %(user_id)s and code = %(code)s

-- name: hold
select tool, sealed, digest, turn_id, call_index, state, settled_by, result, expires_at <= %(now)s as is_old
from offers where user_id = %(user_id)s and code = %(code)s for update

-- name: settle
update offers set state = %(state)s, settled_by = %(turn_id)s, settled_at = clock_timestamp()
where user_id = %(user_id)s and code = %(code)s and state = 'offered'
returning code

-- name: finish
update offers set result = %(result)s
where user_id = %(user_id)s and code = %(code)s and state = 'approved' and result is null

-- name: expire
with old as (
    select user_id, code from offers where state = 'offered' and expires_at <= %(now)s
    order by expires_at limit %(limit)s for update skip locked
)
update offers set state = 'expired', settled_at = clock_timestamp()
from old where offers.user_id = old.user_id and offers.code = old.code
returning offers.turn_id, tool, digest
