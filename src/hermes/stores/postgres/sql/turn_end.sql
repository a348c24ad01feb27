-- The end of an ordinary turn.

-- name: end
select end_turn(
    %(turn_id)s, %(conversation_id)s, %(epoch)s, %(attempt)s, %(user_id)s,
    %(session_id)s, %(head)s, %(new_head)s, %(count)s, %(mark)s, %(nodes)b,
    %(addresses)b, %(bodies)b, %(overlays)b, %(overlay_bodies)b,
    %(names)b, %(indices)b, %(responses)b, %(sample_overlays)b, %(sample_bodies)b,
    %(platform)s, %(meta)s, %(seq)s, %(thread)s, %(reply_to)s, %(state)s, %(parts)b, %(are_messages)s,
    %(notes)s, %(is_learned)s
)

-- name: end_call
select end_call(
    %(turn_id)s, %(step)s, %(index)s, %(attempt)s, %(epoch)s, %(result)s, %(facts)s, %(us)s, %(call)s
)
