-- The list of turns, by keyset. Each list has a scan, which an index serves and a limit bounds, in the place of /* scan */.

-- name: scan_all
select * from interactions
where created_at <= %(at)s and (created_at, turn_id) < (%(at)s, %(id)s) and created_at > %(since)s
order by created_at desc, turn_id desc limit %(max_scanned)s

-- name: scan_user
select * from interactions
where user_id = %(user)s and created_at <= %(at)s and (created_at, turn_id) < (%(at)s, %(id)s) and created_at > %(since)s
order by created_at desc, turn_id desc limit %(max_scanned)s

-- name: scan_unanswered
select * from interactions
where meta ->> 'outcome' <> 'answered' and (created_at, turn_id) < (%(at)s, %(id)s) and created_at > %(since)s
order by created_at desc, turn_id desc limit %(max_scanned)s

-- name: scan_undelivered
select * from interactions
-- An array, so that every plan begins with the few turns: a plan for unknown values would begin with the time.
where turn_id = any(array(
        select turn_id from outbox where state in ('pending', 'attempting') and news = ''
        union
        select turn_id from outbox where state = 'dead' and died_at > %(since)s and news = ''
    ))
    and (created_at, turn_id) < (%(at)s, %(id)s) and created_at > %(since)s
order by created_at desc, turn_id desc limit %(max_scanned)s

-- name: has_many_fell_over
-- Whether there are more calls of `scan_fell_over` than one page looks through.
select count(*) = %(max_scanned)s from (
    select from calls
    where jsonb_array_length(attempts) > 1 and created_at <= %(at)s + interval '1 day' and created_at > %(since)s - interval '1 hour'
    limit %(max_scanned)s
) as found

-- name: scan_fell_over
-- For few such calls: it looks at all of them. A call is recorded before its turn ends, or soon after it: what the turn taught is learned by
-- a later job.
select * from interactions
where turn_id = any(array(
        select turn_id from calls
        where jsonb_array_length(attempts) > 1 and created_at <= %(at)s + interval '1 day' and created_at > %(since)s - interval '1 hour'
    ))
    and (created_at, turn_id) < (%(at)s, %(id)s) and created_at > %(since)s
order by created_at desc, turn_id desc limit %(max_scanned)s

-- name: scan_found
select * from interactions where turn_id = any(%(ids)s) order by created_at desc, turn_id desc limit %(max_scanned)s

-- name: scan_end
select x.created_at as at, x.turn_id as id from (/* scan */) as x offset %(max_scanned)s - 1 limit 1

-- name: turns
with matched as (
    select x.* from (/* scan */) as x
    where (%(accounts)s::text[] is null or x.account_id = any(%(accounts)s))
        and (%(account)s::text is null or x.account_id = %(account)s)
        and (%(user)s::uuid is null or x.user_id = %(user)s)
        and (%(platform)s::text is null or x.platform = %(platform)s)
        and (%(agent)s::text is null or coalesce(x.meta ->> 'agent', '') = %(agent)s)
        and (%(tier)s::text is null or x.meta ->> 'tier' = %(tier)s)
        and (%(outcomes)s::text[] is null or x.meta ->> 'outcome' = any(%(outcomes)s))
        and (%(tool)s::text is null or x.meta -> 'tools' @> jsonb_build_array(jsonb_build_object('name', %(tool)s::text)))
        and (not %(tool_error)s or x.meta -> 'tools' @> '[{"is_error": true}]')
        and (not %(retried)s or (x.meta ->> 'attempt')::int > 1)
        and (%(slow_s)s::float8 is null or exists (
            select from inbox as i where i.turn_id = x.turn_id
                and i.ended_at - coalesce(i.revived_at, i.received_at) > make_interval(secs => %(slow_s)s)
        ))
        and ((%(model)s::text is null and %(purpose)s::text is null and not %(fell_over)s) or exists (
            select from calls as c where c.turn_id = x.turn_id
                and (%(model)s::text is null or coalesce(c.answered_by, c.model) = %(model)s)
                and (%(purpose)s::text is null or coalesce(c.purpose, c.source) = %(purpose)s)
                and (not %(fell_over)s or jsonb_array_length(c.attempts) > 1)
        ))
        and (%(key)s::uuid is null or exists (select from inbox as i where i.turn_id = x.turn_id and i.api_key_id = %(key)s))
    order by x.created_at desc, x.turn_id desc limit %(limit)s
)
select 'turn' as kind, x.turn_id as id, x.created_at as at, x.account_id as account, x.user_id, u.sender_id as sender, x.platform,
    i.conversation_id, x.session_id, x.meta ->> 'agent' as agent, x.meta ->> 'tier' as tier,
    coalesce(c.model, x.meta ->> 'llm_model') as model, coalesce(x.meta ->> 'outcome', '') as outcome, x.meta ->> 'error' as error,
    x.meta ->> 'step' as step, i.attempts, coalesce(x.meta -> 'tools', '[]') as tools, null as purpose, i.api_key_id,
    (extract(epoch from i.ended_at - coalesce(i.revived_at, i.received_at)) * 1000)::bigint as ms, coalesce(c.micro_usd, 0) as micro_usd, coalesce(c.tokens, 0) as tokens,
    c.calls, coalesce(c.fell_over, false) as fell_over, o.delivery
from matched as x join inbox as i on i.turn_id = x.turn_id
left join lateral (
    select sum(micro_usd)::bigint as micro_usd, sum(tokens)::bigint as tokens, count(*) as calls, bool_or(jsonb_array_length(attempts) > 1) as fell_over,
        (array_agg(coalesce(answered_by, calls.model) order by created_at desc) filter (where coalesce(purpose, '') in ('answer', 'conclude', '')))[1] as model
    from calls where calls.turn_id = x.turn_id
) as c on true
left join lateral (
    select string_agg(distinct state, ', ') as delivery from outbox where outbox.turn_id = x.turn_id and news = ''
) as o on true
left join lateral (
    select sender_id from user_channels as s where s.user_id = x.user_id and s.account_id = x.account_id and s.platform = x.platform limit 1
) as u on true
order by x.created_at desc, x.turn_id desc

-- name: buried
select 'turn' as kind, i.turn_id as id, i.ended_at as at, i.account_id as account, i.user_id, null as sender, k.platform, i.conversation_id,
    null::uuid as session_id, null as agent, null as tier, null as model, 'buried' as outcome, i.reason as error, 'claim' as step, i.attempts,
    '[]'::jsonb as tools, null as purpose, i.api_key_id, (extract(epoch from i.ended_at - coalesce(i.revived_at, i.received_at)) * 1000)::bigint as ms,
    0::bigint as micro_usd, 0::bigint as tokens, 0::bigint as calls, false as fell_over, null as delivery
from inbox as i join conversations as k on k.id = i.conversation_id
where i.state = 'dead' and i.ended_at <= %(at)s and (i.ended_at, i.turn_id) < (%(at)s, %(id)s) and i.ended_at > %(since)s
    and not exists (select from interactions as x where x.turn_id = i.turn_id)
    and (%(accounts)s::text[] is null or i.account_id = any(%(accounts)s))
    and (%(account)s::text is null or i.account_id = %(account)s)
    and (%(user)s::uuid is null or i.user_id = %(user)s)
    and (%(platform)s::text is null or k.platform = %(platform)s)
    and (%(key)s::uuid is null or i.api_key_id = %(key)s)
order by i.ended_at desc, i.turn_id desc limit %(limit)s

-- name: scan_calls
select * from calls
where turn_id is null and (created_at, id) < (%(at)s, %(id)s) and created_at > %(since)s
order by created_at desc, id desc limit %(max_scanned)s

-- name: scan_calls_user
select * from calls
where user_id = %(user)s and day >= (%(since)s - interval '1 day')::date and turn_id is null
    and (created_at, id) < (%(at)s, %(id)s) and created_at > %(since)s
order by created_at desc, id desc limit %(max_scanned)s

-- name: scan_calls_end
select x.created_at as at, x.id from (/* scan */) as x offset %(max_scanned)s - 1 limit 1

-- name: calls
select 'call' as kind, c.id, c.created_at as at, c.account_id as account, c.user_id, null as sender, c.platform, null::uuid as conversation_id,
    c.session_id, nullif(c.agent, '') as agent, c.tier, coalesce(c.answered_by, c.model) as model, c.outcome, c.error, null as step, 1 as attempts,
    '[]'::jsonb as tools, coalesce(c.purpose, c.source) as purpose, c.api_key_id, c.latency_ms as ms, c.micro_usd, c.tokens, 1::bigint as calls,
    jsonb_array_length(c.attempts) > 1 as fell_over, null as delivery
from (/* scan */) as c
where (%(purpose)s::text is null or coalesce(c.purpose, c.source) = %(purpose)s)
    and (%(accounts)s::text[] is null or c.account_id = any(%(accounts)s))
    and (%(account)s::text is null or c.account_id = %(account)s)
    and (%(user)s::uuid is null or c.user_id = %(user)s)
    and (%(platform)s::text is null or c.platform = %(platform)s)
    and (%(agent)s::text is null or coalesce(c.agent, '') = %(agent)s)
    and (%(tier)s::text is null or c.tier = %(tier)s)
    and (%(model)s::text is null or coalesce(c.answered_by, c.model) = %(model)s)
    and (%(key)s::uuid is null or c.api_key_id = %(key)s)
    and (not %(failed)s or c.outcome <> 'answered')
    and (not %(fell_over)s or jsonb_array_length(c.attempts) > 1)
    and (%(slow_s)s::float8 is null or c.latency_ms > %(slow_s)s * 1000)
order by c.created_at desc, c.id desc limit %(limit)s

-- name: open
select i.turn_id, i.received_at, extract(epoch from clock_timestamp() - coalesce(i.revived_at, i.received_at))::float8 as age_s, i.account_id as account, i.user_id,
    u.sender_id as sender, k.platform, i.conversation_id, i.attempts, coalesce(
        r.state = 'running' and f.failed is null and p.stopped_at is null and p.stalled_at is null, false
    ) as is_running,
    r.worker, extract(epoch from clock_timestamp() - coalesce(r.claimed_at, r.started_at))::float8 as running_s, e.effect
from (
    select * from inbox where state = 'waiting'
        and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
        and (%(account)s::text is null or account_id = %(account)s)
        and (%(user)s::uuid is null or user_id = %(user)s)
    order by received_at, turn_id limit %(limit)s
) as i
join conversations as k on k.id = i.conversation_id and (%(platform)s::text is null or k.platform = %(platform)s)
left join runs as r on r.turn_id = i.turn_id
left join processes as p on p.id = r.worker
left join lateral (
    select true as failed from run_events as n where n.turn_id = i.turn_id and n.type = 'attempt_failed' and n.epoch = r.epoch limit 1
) as f on true
left join lateral (
    -- The newest effect of the attempt: its name, its number, and whether it has ended.
    select jsonb_build_array(n.step, n.index, n.done_at is not null) as effect from run_events as n
    where n.turn_id = i.turn_id and n.step in ('call_model', 'run_tools', 'compact') order by n.id desc limit 1
) as e on true
left join lateral (
    select sender_id from user_channels as s where s.user_id = i.user_id and s.account_id = i.account_id and s.platform = k.platform limit 1
) as u on true
order by i.received_at, i.turn_id

-- name: steps
-- A step that fell back has the name of the fallback's event; its fact `step` says which it was.
select turn_id, case when type in ('fallback_used', 'attempt_failed') then facts ->> 'step' else %(step_of)s::jsonb ->> type end as step,
    (facts ->> 'us')::bigint as us
from run_events
where turn_id = any(%(ids)s) and type = any(%(types)s) and facts ? 'us'
order by id
