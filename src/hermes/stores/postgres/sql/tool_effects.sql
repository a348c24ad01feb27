-- The effects of tools.

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
