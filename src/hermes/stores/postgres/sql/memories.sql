-- Facts of users, and their dreams. Every query is limited to one user's rows, except those of jobs that go through all users.

-- name: has_free
select exists (select from user_memory where user_id = %(user_id)s and key is null)

-- name: lock
select pg_advisory_xact_lock(hashtextextended('memory/' || %(user_id)s, 0))

-- name: structural
select id, key, value, origin, source_turn, confidence, created_at as valid_from, expires_at, superseded_at, superseded_by from user_memory
where user_id = %(user_id)s and key is not null and superseded_at is null and (expires_at is null or expires_at > %(now)s)
order by key

-- name: live
select id, key, value, origin, source_turn, confidence, created_at as valid_from, expires_at, superseded_at, superseded_by from user_memory
where user_id = %(user_id)s and superseded_at is null and (expires_at is null or expires_at > %(now)s)
order by number

-- name: all
select id, key, value, origin, source_turn, confidence, created_at as valid_from, expires_at, superseded_at, superseded_by from user_memory
where user_id = %(user_id)s
order by number

-- name: read
select id, key, value, origin, source_turn, confidence, created_at as valid_from, expires_at, superseded_at, superseded_by from user_memory
where user_id = %(user_id)s and id = any(%(ids)s)

-- name: share
insert into shared_facts (conversation_id, user_id, fact_id)
select conversation_id, %(user_id)s, unnest(%(ids)s::uuid[]) from inbox where turn_id = %(turn_id)s and user_id = %(user_id)s
on conflict do nothing

-- name: unshare
delete from shared_facts where user_id = %(user_id)s and fact_id = any(%(ids)s)
and conversation_id = (select conversation_id from inbox where turn_id = %(turn_id)s)

-- name: shared
select id, key, value, origin, source_turn, confidence, created_at as valid_from, expires_at, superseded_at, superseded_by from user_memory
where user_id = %(user_id)s and superseded_at is null and (expires_at is null or expires_at > %(now)s)
and id in (select fact_id from shared_facts where conversation_id = %(conversation_id)s and user_id = %(user_id)s)
order by number

-- name: index
-- What recall compares, newest first, unless what the caller holds is still the newest: then one row without a fact.
select memory_versions.version, id, expires_at,
    case when model = %(model)s then vector_send(embedding) end as vector,
    case when sealed_model = %(model)s then sealed_vector end as sealed_vector, terms
from memory_versions left join user_memory on user_memory.user_id = memory_versions.user_id and key is null and superseded_at is null
    and memory_versions.version is distinct from %(held)s::uuid
where memory_versions.user_id = %(user_id)s
order by number desc

-- name: supersede
update user_memory set superseded_at = %(now)s where user_id = %(user_id)s and id = any(%(ids)s) and superseded_at is null

-- name: expire
-- An expired fact counts as superseded, so that a new fact can take its place.
update user_memory set superseded_at = expires_at where user_id = %(user_id)s and superseded_at is null and expires_at <= %(now)s

-- name: add
insert into user_memory (
    id, user_id, key, value, embedding, model, dimension, sealed_vector, sealed_model, source_turn, origin, confidence, created_at,
    expires_at, digest, terms
)
values (
    %(id)s, %(user_id)s, %(key)s, %(value)s, %(vector)s::vector, %(model)s, %(dimension)s, %(sealed_vector)s::bytea, %(sealed_model)s,
    %(source_turn)s, %(origin)s, %(confidence)s, %(now)s, %(expires_at)s, %(digest)s, %(terms)s
)
on conflict (user_id, digest) where key is null and superseded_at is null do nothing
returning id

-- name: succeed
update user_memory set superseded_by = %(id)s where user_id = %(user_id)s and id = any(%(ids)s) and superseded_by is null

-- name: delete
with dependent as (delete from dreams where user_id = %(user_id)s and evidence @> array[%(id)s::uuid]),
    gone as (delete from user_memory where user_id = %(user_id)s and id = %(id)s returning id),
    noted as (insert into erasures (user_id, fact_id) select %(user_id)s, id from gone)
select id from gone

-- name: learnt_in
select user_memory.id from user_memory join inbox on inbox.turn_id = source_turn
where user_memory.user_id = %(user_id)s and inbox.account_id = %(account)s

-- name: erase
with nights as (delete from dream_nights where user_id = %(user_id)s),
    facts as (delete from user_memory where user_id = %(user_id)s returning id),
    noted as (insert into erasures (user_id, fact_id) select %(user_id)s, id from facts)
select count(*) from facts

-- name: delete_old_marks
delete from forgettings where user_id = %(user_id)s and at < clock_timestamp() - interval '30 days'

-- name: mark
insert into forgettings (user_id, turn_id, at, key, terms)
values (
    %(user_id)s, %(turn_id)s, coalesce((select received_at from inbox where turn_id = %(turn_id)s), clock_timestamp()), %(key)s, %(terms)s
)

-- name: marks
-- Compares the times when messages came in: a message that the user wrote after asking to forget something teaches it anew, however soon.
select key, terms, turn_id is not distinct from %(turn_id)s as is_same_turn
from forgettings
where user_id = %(user_id)s and at >= (select received_at from inbox where turn_id = %(turn_id)s)

-- name: unembedded
select id, user_id, value from user_memory
where key is null and superseded_at is null and length(value) > 0 and coalesce(sealed_model, model) is distinct from %(model)s
    and id > %(after)s
order by id limit %(limit)s

-- name: embed
update user_memory set embedding = %(vector)s::vector, model = %(model)s, dimension = %(dimension)s,
    sealed_vector = %(sealed_vector)s::bytea, sealed_model = %(sealed_model)s
where user_id = %(user_id)s and id = %(id)s and key is null and length(value) > 0

-- name: plain_vectors
select id, user_id, embedding::text as vector, model, null::bytea as sealed_vector, null as sealed_model from user_memory
where embedding is not null and id > %(after)s order by id limit %(limit)s

-- name: sealed_vectors
select id, user_id, null as vector, null as model, sealed_vector, sealed_model from user_memory
where sealed_vector is not null and id > %(after)s order by id limit %(limit)s

-- name: due
-- Users with a fact that is newer than their last dream of this depth; a deep dream needs no new fact.
select user_id from user_memory
where superseded_at is null and length(value) > 0
    and (%(after)s::uuid is null or user_id > %(after)s)
    and not exists (
        select from dream_nights as night
        where night.user_id = user_memory.user_id and night.depth = %(depth)s and night.period >= %(period)s
    )
    and (%(depth)s = 'deep' or created_at > coalesce(
        (select max(dreamt_at) from dream_nights as night where night.user_id = user_memory.user_id and night.depth = %(depth)s),
        '-infinity'
    ))
group by user_id order by user_id limit %(limit)s

-- name: begin_night
insert into dream_nights (user_id, depth, period, dreamt_at) values (%(user_id)s, %(depth)s, %(period)s, %(now)s)
on conflict do nothing returning user_id

-- name: add_dream
insert into dreams (id, user_id, depth, period, kind, key, value, evidence, review, reason)
values (
    %(id)s, %(user_id)s, %(depth)s, %(period)s, %(kind)s, %(key)s, %(value)s, %(evidence)s, %(review)s, %(reason)s
)

-- name: newest_dream
select id, kind, key, value, evidence, review, reason, depth, period from dreams
where user_id = %(user_id)s and depth = %(depth)s and review = 'accepted'
    and period = (select max(period) from dream_nights where user_id = %(user_id)s and depth = %(depth)s)
order by number

-- name: all_dreams
select id, kind, key, value, evidence, review, reason, depth, period from dreams where user_id = %(user_id)s order by number

-- name: delete_dreams
delete from dreams where user_id = %(user_id)s and id = any(%(ids)s)

-- name: review_dream
update dreams set review = %(review)s, reason = %(reason)s, reviewed_at = now() where user_id = %(user_id)s and id = %(id)s returning id

-- name: past_messages
-- A session is over when it has been silent for too long, when it was ended, or when the conversation went on in another session. Messages
-- from before the user's last `Sessions.end` are left out.
select inbox.turn_id, inbox.envelope, inbox.received_at
from interactions join inbox on inbox.turn_id = interactions.turn_id join sessions on sessions.id = interactions.session_id
    join users on users.id = inbox.user_id
where interactions.user_id = %(user_id)s and inbox.user_id = %(user_id)s and length(envelope) > 0 and (shown_from is null or inbox.received_at > shown_from) and (
    sessions.ended_at is not null
    or sessions.last_at <= clock_timestamp() - %(idle_s)s * interval '1 second'
    or exists (select from sessions as later where later.previous = sessions.id)
)
order by interactions.created_at desc limit %(limit)s

-- name: recent_messages
select turn_id, envelope, received_at
from inbox join users on users.id = inbox.user_id
where inbox.user_id = %(user_id)s and length(envelope) > 0 and turn_id is distinct from %(besides)s and joined_to is distinct from %(besides)s
    and (shown_from is null or received_at > shown_from)
order by received_at desc limit %(limit)s
