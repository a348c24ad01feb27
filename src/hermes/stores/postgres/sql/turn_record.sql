-- Everything of one turn, for operators. Each statement reads by a primary key or an index of the turn.

-- name: turn
select i.turn_id, i.account_id, c.platform, c.channel_id, i.conversation_id, i.user_id, c.is_shared, u.state = 'deleted' as is_erased,
    i.seq, i.state, i.attempts, i.reason, i.received_at, i.ended_at, i.stopped_at, i.revived_at, clock_timestamp() as now, i.api_key_id,
    k.name as api_key_name, split_part(i.traceparent, '-', 2) as trace_id, i.joined_to, coalesce(x.meta, '{}') as meta,
    (
        select sender_id from user_channels as s
        where s.user_id = i.user_id and s.account_id = i.account_id and s.platform = c.platform
        order by last_inbound_at desc nulls last limit 1
    ) as sender_id,
    coalesce(x.session_id, (
        select id from sessions where sessions.conversation_id = i.conversation_id order by number desc limit 1
    )) as session_id,
    coalesce((select array_agg(turn_id order by seq) from inbox as more where more.joined_to = i.turn_id), '{}') as joined,
    (select count(*) from replays where replays.turn_id = i.turn_id) as replays,
    (
        select turn_id from inbox as near
        where near.conversation_id = i.conversation_id and near.seq < i.seq and near.joined_to is null order by near.seq desc limit 1
    ) as previous_id,
    (
        select turn_id from inbox as near
        where near.conversation_id = i.conversation_id and near.seq > i.seq and near.joined_to is null order by near.seq limit 1
    ) as next_id,
    case when i.state = 'waiting' then (
        select turn_id from inbox as earlier
        where earlier.account_id = i.account_id and earlier.state = 'waiting' and earlier.conversation_id = i.conversation_id
            -- The order of the jobs: a message that was revived runs behind those that came since.
            and (coalesce(earlier.revived_at, earlier.received_at), earlier.seq) < (coalesce(i.revived_at, i.received_at), i.seq)
        order by coalesce(earlier.revived_at, earlier.received_at), earlier.seq limit 1
    ) end as behind,
    case when i.state = 'waiting' then (
        select count(*) from processes
        where role = 'worker' and stopped_at is null and beat_at > clock_timestamp() - make_interval(secs => %(live_s)s::float8)
    ) else 0 end as live_workers
from inbox as i
join conversations as c on c.id = i.conversation_id
join users as u on u.id = i.user_id
left join interactions as x on x.turn_id = i.turn_id
left join api_keys as k on k.id = i.api_key_id
where i.turn_id = %(turn_id)s and (%(accounts)s::text[] is null or i.account_id = any(%(accounts)s))

-- name: calls
select id, created_at as at, day, account_id, source, tier, model, outcome, latency_ms, purpose, agent, platform, api_key_id, error, waited_ms,
    coalesce(times, 1) as times, user_id, turn_id, session_id, response_id, backend, answered_by, attempts, tokens_in, tokens_out, cache_read,
    cache_write, cache_write_1h, is_estimated, micro_usd, rate, cache_hit, first_token_ms, plan
from calls where turn_id = %(turn_id)s order by created_at, id

-- name: call
select calls.id, created_at as at, day, calls.account_id, source, tier, model, outcome, latency_ms, purpose, agent, platform, calls.api_key_id,
    error, waited_ms, coalesce(times, 1) as times, calls.user_id, turn_id, session_id, response_id, backend, answered_by, attempts, tokens_in,
    tokens_out, cache_read, cache_write, cache_write_1h, is_estimated, micro_usd, rate, cache_hit, first_token_ms, plan,
    (select conversation_id from sessions where sessions.id = calls.session_id) as conversation_id,
    coalesce((select state = 'deleted' from users where users.id = calls.user_id), false) as is_erased,
    (select name from api_keys where api_keys.id = calls.api_key_id) as api_key_name
from calls
where calls.id = %(call_id)s and (%(accounts)s::text[] is null or calls.account_id = any(%(accounts)s))

-- name: deliveries
select id, part, news, state, tries, failures, doubts, outcome, reason, message_id, rank, ranked_at, put_at, touched_at, not_before, died_at,
    is_late
from outbox where turn_id = %(turn_id)s order by news <> '', id

-- name: credits
select kind, amount, attempt, created_at from credit_entries where turn_id = %(turn_id)s order by id

-- name: workers
select id, host, pid, stopped_at is null and beat_at > clock_timestamp() - make_interval(secs => %(live_s)s::float8) as is_live
from processes
where id in (
    select (facts ->> 'worker')::uuid from run_events where turn_id = %(turn_id)s and facts ? 'worker'
    union select worker from runs where turn_id = %(turn_id)s
)

-- name: messages
select turn_id, user_id, envelope from inbox where turn_id = %(turn_id)s or joined_to = %(turn_id)s order by seq

-- name: effects
-- An effect that has ended and has no result was emptied by the journal's retention. One that has not ended runs, or was cut off.
select inbox.user_id, step, index, request, result, done_at is not null as has_ended
from run_events join inbox on inbox.turn_id = run_events.turn_id
where run_events.turn_id = %(turn_id)s and step in ('call_model', 'run_tools', 'compact') order by run_events.id

-- name: prompt
select inbox.user_id, step, index, request, result, done_at is not null as has_ended
from run_events join inbox on inbox.turn_id = run_events.turn_id
where run_events.turn_id = %(turn_id)s and step = 'call_model' and index = 0

-- name: parts
select id, user_id, part, news, is_message, body from outbox where turn_id = %(turn_id)s order by news <> '', id

-- name: erased
select id from users where id = any(%(users)s::uuid[]) and state = 'deleted'
