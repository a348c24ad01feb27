-- Conversations, as operators see them. Lists are keyset pages; no statement counts a table.

-- name: list
with page as (
    select sessions.* from sessions join conversations on conversations.id = conversation_id
    where (%(before)s::bigint is null or number < %(before)s)
        and (%(accounts)s::text[] is null or sessions.account_id = any(%(accounts)s))
        and (%(platform)s::text is null or platform = %(platform)s)
    order by number desc limit %(limit)s
)

-- name: list_of
-- The sessions of one user's conversations, or of one conversation.
with page as (
    select sessions.* from conversations join sessions on sessions.conversation_id = conversations.id
    where (%(before)s::bigint is null or number < %(before)s)
        and (%(accounts)s::text[] is null or sessions.account_id = any(%(accounts)s))
        and (%(platform)s::text is null or platform = %(platform)s)
        and conversations.id = any(array(
            select id from conversations where user_id = %(user_id)s union all select %(conversation_id)s::uuid
        ))
        and (%(user_id)s::uuid is null or %(conversation_id)s::uuid is null or conversations.id = %(conversation_id)s)
    order by number desc limit %(limit)s
)

-- name: list_rest
select
    page.id as session_id, page.conversation_id, page.number, page.account_id as account, conversations.platform, conversations.channel_id,
    page.user_id, page.length as messages, page.started_at, page.last_at, users.state = 'deleted' as is_erased,
    (select meta ->> 'agent' from interactions where session_id = page.id order by created_at desc limit 1) as agent,
    (select count(*) from (select from interactions where session_id = page.id limit %(most)s) as counted) as turns,
    (select count(*) from (select from graph_versions where session_id = page.id limit %(most)s) as counted) as versions
from page join conversations on conversations.id = page.conversation_id join users on users.id = page.user_id
order by page.number desc

-- name: find
-- By an id of the session, of a turn or a call in it, or of its conversation; or by the sender.
select sessions.id
from (
    select id, 0 as rank from sessions where id = %(id)s
    union all select session_id, 1 from interactions where turn_id = %(id)s
    union all select session_id, 2 from calls where id = %(id)s
    union all select id, 3 from sessions where conversation_id = %(id)s
    union all select sessions.id, 4 from inbox join sessions on sessions.conversation_id = inbox.conversation_id where turn_id = %(id)s
    union all
    select sessions.id, 5
    from user_channels join conversations using (account_id, platform, user_id) join sessions on sessions.conversation_id = conversations.id
    where sender_id = %(name)s
) as found join sessions on sessions.id = found.id
where %(accounts)s::text[] is null or sessions.account_id = any(%(accounts)s)
order by rank, number desc limit 1

-- name: facts
select
    s.id as session_id, s.conversation_id, s.mark, s.account_id as account, platform, channel_id, s.user_id, s.length as messages,
    s.erased is not null as has_erased, users.state = 'deleted' as is_erased, s.started_at, s.last_at, s.ended_at,
    (select count(*) from graph_chats where session_id = s.id) as chats,
    (select id from sessions where conversation_id = s.conversation_id and number < s.number order by number desc limit 1) as previous_id,
    (select id from sessions where conversation_id = s.conversation_id and number > s.number order by number limit 1) as next_id,
    spent.calls, spent.tokens, spent.micro_usd
from sessions as s join conversations on conversations.id = s.conversation_id join users on users.id = s.user_id,
    lateral (
        select count(*) as calls, coalesce(sum(tokens), 0)::bigint as tokens, coalesce(sum(micro_usd), 0)::bigint as micro_usd
        from calls where session_id = s.id
    ) as spent
where s.id = %(session_id)s and (%(accounts)s::text[] is null or s.account_id = any(%(accounts)s))

-- name: shape
-- One statement reads one snapshot, whatever other transactions write meanwhile.
select
    live, log.nodes as log_nodes, log.splices as log_splices, versions.entries as versions, samples.heads, samples.indices, samples.responses
from sessions,
    lateral (
        select array_agg(nodes) as nodes, array_agg(splices) as splices
        from (select nodes, splices from graph_log where session_id = %(session_id)s order by id) as ordered
    ) as log,
    lateral (
        select jsonb_agg(jsonb_build_array(number, successor, kind, splice) order by place) as entries
        from graph_versions where session_id = %(session_id)s
    ) as versions,
    lateral (
        select array_agg(head) as heads, array_agg(index) as indices, array_agg(response) as responses
        from (select head, index, response from graph_samples where session_id = %(session_id)s order by id) as ordered
    ) as samples
where sessions.id = %(session_id)s

-- name: sizes
select address, octet_length(body) as size from graph_messages where session_id = %(session_id)s and address = any(%(addresses)b::bytea[])

-- name: turns
select turn_id, jsonb_array_length(meta -> 'nodes') as added, meta ->> 'outcome' as outcome, created_at as at
from interactions where session_id = %(session_id)s and meta ? 'nodes' order by created_at, turn_id

-- name: turn_costs
select
    turn_id, (array_agg(coalesce(answered_by, model) order by created_at desc))[1] as model, sum(tokens_in)::bigint as tokens_in,
    sum(tokens_out)::bigint as tokens_out, sum(micro_usd)::bigint as micro_usd
from calls where turn_id = any(%(turn_ids)s::uuid[]) group by turn_id

-- name: replays
select id as replay_id, turn_id, call_id, model, state, likeness, micro_usd, latency_ms
from replays where session_id = %(session_id)s order by created_at, id

-- name: owner
select user_id from sessions where id = %(session_id)s

-- name: messages
select address, body from graph_messages where session_id = %(session_id)s and address = any(%(addresses)b::bytea[])

-- name: calls
select response, body from graph_samples where session_id = %(session_id)s and response = any(%(responses)b::bytea[])

-- name: costs
select id as call_id, turn_id, coalesce(answered_by, model) as model, tokens_in, tokens_out, micro_usd, latency_ms, created_at as at
from calls where id = any(%(calls)s::uuid[]) and session_id = %(session_id)s

-- name: notes
select body from graph_annotations where session_id = %(session_id)s order by id

-- name: chats
select body from graph_chats where session_id = %(session_id)s and number <= %(number)s order by number
