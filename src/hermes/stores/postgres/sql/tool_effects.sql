-- The effects of tools, and the offers that wait for a user's confirmation.

-- name: begin
insert into tool_effects (turn_id, call_index, user_id, tool)
values (%(turn_id)s, %(index)s, %(user_id)s, %(tool)s)
on conflict do nothing
returning turn_id

-- name: known
select result from tool_effects where turn_id = %(turn_id)s and call_index = %(index)s and user_id = %(user_id)s

-- name: finish
update tool_effects set result = %(result)s, ended_at = clock_timestamp()
where turn_id = %(turn_id)s and call_index = %(index)s and user_id = %(user_id)s and result is null

-- name: put
insert into tool_offers (user_id, code, turn_id, tool, terms, valid_until)
values (%(user_id)s, %(code)s, %(turn_id)s, %(tool)s, %(terms)s, %(now)s + make_interval(secs => %(valid_s)s))
on conflict do nothing
returning code

-- name: find
select tool, terms, turn_id = %(turn_id)s as is_same_turn, taken_at is not null as is_taken, valid_until < %(now)s as is_old from tool_offers
where user_id = %(user_id)s and code = %(code)s for update

-- name: take
update tool_offers set taken_at = %(now)s where user_id = %(user_id)s and code = %(code)s
