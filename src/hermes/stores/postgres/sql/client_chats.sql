-- Chats of the OpenAI endpoint.

-- name: look
-- Takes no lock: a caller that appends to the chat checks its head again.
with theirs as (
    select session_id, head, length, shown, whole, true as is_list from (
        -- Of chats that show the same list, one that still ends there is continued before one that has moved on.
        select near.* from unnest(%(shown)b::bytea[]) as given (shown),
            lateral (select * from door_samples where user_id = %(user_id)s and shown = given.shown order by id desc limit 16) as near
            join sessions on sessions.id = near.session_id
        order by near.length desc, near.head is not distinct from sessions.head desc, near.id desc limit 1
    ) as lists
    union all
    select session_id, head, length, shown, whole, false from (
        -- A response that several chats hold is no evidence for any of them; the eight newest rows show it.
        select session_id, head, length, shown, whole from (
            select near.*, min(session_id::text) over same_echo <> max(session_id::text) over same_echo as is_shared
            from unnest(%(echo)b::bytea[]) as given (echo),
                lateral (select * from door_samples where user_id = %(user_id)s and echo = given.echo order by id desc limit 8) as near
            window same_echo as (partition by given.echo)
        ) as found
        where not is_shared order by id desc limit 1
    ) as echoes
)
select sessions.id as session_id, sessions.head, theirs.head as known_head, theirs.length, theirs.shown, theirs.whole, is_list
from theirs join sessions on sessions.id = theirs.session_id
order by is_list desc limit 1

-- name: trace
-- One look into the index for each trace. Without statistics the planner takes `quotes && …` for common, and compares all rows of a user.
select session_id, array_agg(given.quote) as quotes
from unnest(%(quotes)s::bigint[]) as given (quote),
    lateral (select id, user_id, session_id from door_samples where quotes @> array[given.quote] offset 0) as near
where near.user_id = %(user_id)s
group by id, session_id order by id desc limit 256

-- name: heads
select id as session_id, head from sessions where id = any(%(ids)s::uuid[])

-- name: find_by_name
select sessions.id as session_id, sessions.head from conversations join sessions on sessions.conversation_id = conversations.id
where conversations.account_id = %(account)s and platform = 'completions' and channel_id = %(channel_id)s
order by sessions.number desc limit 1
for no key update of sessions

-- name: get
select id as session_id, head from sessions where id = %(session_id)s and user_id = %(user_id)s
    and exists (select from conversations where conversations.id = conversation_id and platform = 'completions')
for no key update

-- name: match_at_head
-- Whether the current list of the chat is a list that the request shows.
select shown, whole from door_samples where session_id = %(session_id)s and head = %(head)s and shown = any(%(shown)b::bytea[])
order by id desc limit 1

-- name: hold_user
select from user_channels where user_id = %(user_id)s and account_id = %(account)s limit 1 for key share

-- name: lock_name
select pg_advisory_xact_lock(hashtextextended(%(channel_id)s, 1))

-- name: begin
with conversation as (
    insert into conversations (account_id, platform, channel_id, user_id) values (%(account)s, 'completions', %(channel_id)s, %(user_id)s)
    returning id
)
insert into sessions (id, account_id, conversation_id, user_id, seed, head, started_at, last_at)
select %(session_id)s, %(account)s, id, %(user_id)s, %(seed)b, %(head)s, clock_timestamp(), clock_timestamp() from conversation

-- name: record
-- Writes the answers of many calls: of each its messages, the sample, its fingerprint and its call; or nothing of it, if the head of its chat
-- has changed, if its sample is known, or if a chat is to be begun although the request has a trace of one. A session comes once at most.
with given as (
    select * from rows from (
        jsonb_to_recordset(%(answers)s::jsonb) as (
            session_id uuid, user_id uuid, account_id text, channel_id text, head text, new_head text, count integer, mark uuid,
            length integer, quotes bigint[], traces bigint[], call jsonb
        ),
        unnest(%(seeds)s::bytea[], %(nodes)s::bytea[], %(shown)s::bytea[], %(whole)s::bytea[], %(echo)s::bytea[])
    ) with ordinality as new (
        session_id, user_id, account_id, channel_id, head, new_head, count, mark, length, quotes, traces, call,
        seed, nodes, shown, whole, echo, place
    )
), sampled as (
    select * from unnest(
        %(sample_places)s::integer[], %(names)s::bytea[], %(indices)s::integer[], %(responses)s::bytea[], %(sample_overlays)s::bytea[],
        %(sample_bodies)s::bytea[]
    ) with ordinality as new (place, name, index, response, overlay, body, number)
), known as (
    select user_id, account_id from user_channels where (user_id, account_id) in (select user_id, account_id from given)
    for key share skip locked
), conversation as (
    insert into conversations (account_id, platform, channel_id, user_id)
    select account_id, 'completions', channel_id, user_id from given
    where head is null and (user_id, account_id) in (select user_id, account_id from known) and not exists (
        select from unnest(traces) as trace (quote),
            lateral (select user_id from door_samples where quotes @> array[trace.quote] offset 0) as near
        where near.user_id = given.user_id
    )
    order by place
    returning id, channel_id
), begun as (
    insert into sessions (id, account_id, conversation_id, user_id, seed, head, length, mark, started_at, last_at)
    select session_id, account_id, conversation.id, user_id, seed, new_head, count, mark, clock_timestamp(), clock_timestamp()
    from conversation join given on given.channel_id = conversation.channel_id order by place
    returning id, live, 0 as before
), moved as (
    update sessions set head = new_head, length = sessions.length + given.count, mark = given.mark, last_at = clock_timestamp()
    from given
    where sessions.id = given.session_id and sessions.head = given.head and sessions.length > 0
        and (given.user_id, given.account_id) in (select user_id, account_id from known) and not exists (
        -- One look into the index for each sample, however many samples there are.
        select from sampled,
            lateral (select from graph_samples where session_id = given.session_id and name = sampled.name offset 0) as known
        where sampled.place = given.place
    )
    returning sessions.id, live, sessions.length - given.count as before
), placed as (
    select given.*, live, before from (select * from begun union all select * from moved) as written join given on session_id = id
), messages as (
    insert into graph_messages (session_id, address, body)
    select session_id, address, body
    from unnest(%(places)s::integer[], %(addresses)s::bytea[], %(bodies)s::bytea[]) as new (place, address, body) join placed using (place)
    on conflict do nothing
), overlays as (
    insert into graph_overlays (session_id, address, body)
    select session_id, address, body
    from unnest(%(overlay_places)s::integer[], %(overlays)s::bytea[], %(overlay_bodies)s::bytea[]) as new (place, address, body)
        join placed using (place)
    on conflict do nothing
), log as (
    insert into graph_log (session_id, nodes) select session_id, nodes from placed order by place
), samples as (
    insert into graph_samples (session_id, name, head, index, response, overlay, body)
    select session_id, name, live, before + index, response, overlay, body from sampled join placed using (place) order by number
), noted as (
    insert into door_samples (user_id, session_id, head, length, shown, whole, echo, quotes)
    select user_id, session_id, new_head, length, shown, whole, echo, quotes from placed where length is not null order by place
), called as (

-- name: record_end
)
select session_id from placed

-- name: is_traced
-- Which requests have a trace of a chat, as in `trace`: their numbers.
select distinct place
from unnest(%(places)s::integer[], %(users)s::uuid[], %(quotes)s::bigint[]) as given (place, user_id, quote),
    lateral (select user_id from door_samples where quotes @> array[given.quote] offset 0) as near
where near.user_id = given.user_id

-- name: recorded
-- Whether `record` wrote the call with its sample. Calls are looked for by their id alone: they lie in months.
select session_id from calls where id = %(call_id)s and session_id = %(session_id)s

-- name: note
with touched as (update sessions set last_at = clock_timestamp() where id = %(session_id)s)
insert into door_samples (user_id, session_id, head, length, shown, whole, echo, quotes)
values (%(user_id)s, %(session_id)s, %(head)s, %(length)s, %(shown)b, %(whole)b, %(echo)b, %(quotes)s::bigint[])

-- name: drop_empty
with gone as (
    delete from sessions where id = %(session_id)s and user_id = %(user_id)s and length = 0
        and not exists (select from graph_samples where session_id = %(session_id)s)
    returning conversation_id
)
delete from conversations using gone where conversations.id = gone.conversation_id
    and not exists (select from sessions where sessions.conversation_id = gone.conversation_id and sessions.id <> %(session_id)s)
