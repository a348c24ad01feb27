-- Message graphs of sessions.

-- name: lock
select user_id, head, length, live, mark from sessions where id = %(session_id)s for no key update

-- name: append
-- Writes everything; or nothing, if the head has changed or a sample is known. One round trip, because every answer needs it.
with moved as (
    update sessions set head = %(new_head)s, length = length + %(count)s, mark = %(mark)s, last_at = clock_timestamp()
    where id = %(session_id)s and head = %(head)s
        and not exists (select from graph_samples where session_id = %(session_id)s and name = any(%(names)b::bytea[]))
    returning live, length - %(count)s as before
)

-- name: append_rest
-- The rows of the appended messages: the end of every statement that appends to a list.
, messages as (
    insert into graph_messages (session_id, address, body)
    select %(session_id)s, address, body from moved, unnest(%(addresses)b::bytea[], %(bodies)b::bytea[]) as new (address, body)
    on conflict do nothing
), overlays as (
    insert into graph_overlays (session_id, address, body)
    select %(session_id)s, address, body from moved, unnest(%(overlays)b::bytea[], %(overlay_bodies)b::bytea[]) as new (address, body)
    on conflict do nothing
), log as (
    insert into graph_log (session_id, nodes) select %(session_id)s, %(nodes)b from moved
), samples as (
    insert into graph_samples (session_id, name, head, index, response, overlay, body)
    select %(session_id)s, name, live, before + index, response, overlay, body
    from moved, unnest(
        %(names)b::bytea[], %(indices)b::integer[], %(responses)b::bytea[], %(sample_overlays)b::bytea[], %(sample_bodies)b::bytea[]
    ) with ordinality as new (name, index, response, overlay, body, place)
    order by place
)
select live from moved

-- name: load
-- One statement reads one snapshot, whatever other transactions write meanwhile.
select
    user_id, seed, live, mark, erased,
    log.nodes as log_nodes, log.splices as log_splices, messages.addresses, messages.bodies as messages, versions.entries as versions,
    overlays.addresses as overlay_addresses, overlays.bodies as overlays, samples.heads, samples.indices, samples.responses,
    samples.overlays as sample_overlays, samples.bodies as samples, notes.bodies as notes, chats.bodies as chats
from sessions,
    lateral (
        select array_agg(nodes) as nodes, array_agg(splices) as splices
        from (select nodes, splices from graph_log where session_id = %(session_id)s order by id) as ordered
    ) as log,
    lateral (
        select array_agg(address) as addresses, array_agg(body) as bodies from graph_messages where session_id = %(session_id)s
    ) as messages,
    lateral (
        select jsonb_agg(jsonb_build_array(number, successor, kind, splice) order by place) as entries
        from graph_versions where session_id = %(session_id)s
    ) as versions,
    lateral (
        select array_agg(address) as addresses, array_agg(body) as bodies from graph_overlays where session_id = %(session_id)s
    ) as overlays,
    lateral (
        select
            array_agg(head) as heads, array_agg(index) as indices, array_agg(response) as responses,
            array_agg(overlay) as overlays, array_agg(body) as bodies
        from (select head, index, response, overlay, body from graph_samples where session_id = %(session_id)s order by id) as ordered
    ) as samples,
    lateral (
        select array_agg(body) as bodies
        from (select body from graph_annotations where session_id = %(session_id)s order by id) as ordered
    ) as notes,
    lateral (
        select array_agg(body) as bodies
        from (select body from graph_chats where session_id = %(session_id)s order by number) as ordered
    ) as chats
where sessions.id = %(session_id)s

-- name: known_samples
select count(*) from graph_samples where session_id = %(session_id)s and name = any(%(names)s::bytea[])

-- name: count_chats
select count(*) from graph_chats where session_id = %(session_id)s

-- name: add_chats
insert into graph_chats (session_id, number, body)
select %(session_id)s, %(first)s + place - 1, body from unnest(%(bodies)s::bytea[]) with ordinality as new (body, place)

-- name: add_messages
insert into graph_messages (session_id, address, body)
select %(session_id)s, address, body from unnest(%(addresses)s::bytea[], %(bodies)s::bytea[]) as new (address, body)
on conflict do nothing

-- name: drop_messages
delete from graph_messages where session_id = %(session_id)s and address = any(%(addresses)s::bytea[])

-- name: add_log
insert into graph_log (session_id, nodes, splices) values (%(session_id)s, %(nodes)s, %(splices)s::jsonb)

-- name: put_versions
insert into graph_versions (session_id, place, number, successor, kind, splice)
select %(session_id)s, %(first)s + place - 1, number, successor, kind, splice::jsonb
from unnest(%(numbers)s::integer[], %(successors)s::integer[], %(kinds)s::text[], %(splices)s::text[])
    with ordinality as new (number, successor, kind, splice, place)
on conflict (session_id, place) do update set splice = excluded.splice

-- name: add_overlays
insert into graph_overlays (session_id, address, body)
select %(session_id)s, address, body from unnest(%(addresses)s::bytea[], %(bodies)s::bytea[]) as new (address, body)
on conflict do nothing

-- name: add_samples
insert into graph_samples (session_id, name, head, index, response, overlay, body)
select %(session_id)s, name, head, index, response, overlay, body
from unnest(
    %(names)s::bytea[], %(heads)s::integer[], %(indices)s::integer[], %(responses)s::bytea[], %(overlays)s::bytea[], %(bodies)s::bytea[]
) with ordinality as new (name, head, index, response, overlay, body, place)
order by place

-- name: move_samples
update graph_samples set head = moved.head
from unnest(%(names)s::bytea[], %(heads)s::integer[]) as moved (name, head)
where graph_samples.session_id = %(session_id)s and graph_samples.name = moved.name

-- name: add_notes
insert into graph_annotations (session_id, body)
select %(session_id)s, body from unnest(%(bodies)s::bytea[]) with ordinality as new (body, place)
order by place

-- name: drop_all
select drop_graph_rows(array[%(session_id)s::uuid])

-- name: move_session
update sessions set head = %(head)s, length = %(length)s, live = %(live)s, mark = %(mark)s
where id = %(session_id)s

-- name: erase
update sessions set erased = %(erased)s where id = %(session_id)s
