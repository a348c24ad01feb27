-- Replays and their batches. Content is sealed with the key of the turn's user.

-- name: sources
-- Turns, and calls of the completions API; the tokens are those of the calls that answered.
select i.turn_id, null::uuid as call_id, x.session_id, i.conversation_id, i.user_id, i.account_id as account, i.received_at as at,
    coalesce(x.meta -> 'context_ids' ->> 0, '') as context_id, coalesce(x.meta ->> 'outcome', i.state) as outcome,
    coalesce(x.meta ->> 'llm_model', c.model, '') as model, coalesce(x.meta ->> 'language', '') as language,
    case when u.state = 'deleted' then 'erased'
        when e.turn_id is null then 'never asked a model'
        when e.request is null then 'expired'
        else '' end as why_not,
    coalesce(c.tokens_in, 0) as tokens_in, coalesce(c.tokens_out, 0) as tokens_out, coalesce(c.micro_usd, 0) as micro_usd,
    coalesce(c.latency_ms, 0) as latency_ms, coalesce(octet_length(e.request), 0) as request_bytes
from inbox as i join users as u on u.id = i.user_id
left join interactions as x on x.turn_id = i.turn_id
left join run_events as e on e.turn_id = i.turn_id and e.step = 'call_model' and e.index = 0
left join lateral (
    select sum(tokens_in)::bigint as tokens_in, sum(tokens_out)::bigint as tokens_out, sum(calls.micro_usd)::bigint as micro_usd,
        sum(calls.latency_ms)::bigint as latency_ms, max(calls.model) as model
    from calls where calls.turn_id = i.turn_id and outcome = 'answered' and coalesce(purpose, 'answer') in ('answer', 'conclude')
) as c on true
where i.turn_id = any(%(ids)s)
union all
select null, c.id, c.session_id, s.conversation_id, s.user_id, c.account_id, c.created_at, '', c.outcome, coalesce(c.answered_by, c.model), '',
    case when u.state = 'deleted' then 'erased' when c.outcome <> 'answered' then 'no answer was recorded' else '' end,
    c.tokens_in, c.tokens_out, c.micro_usd, c.latency_ms, 0
from calls as c join sessions as s on s.id = c.session_id join users as u on u.id = s.user_id
where c.id = any(%(ids)s) and c.source = 'completions'

-- name: newest_turns
select x.turn_id from interactions as x
where x.created_at >= coalesce(%(since)s, '-infinity'::timestamptz) and x.created_at < coalesce(%(until)s, 'infinity'::timestamptz)
    and (%(agent)s::text is null or x.meta ->> 'agent' = %(agent)s)
    and (%(model)s::text is null or x.meta ->> 'llm_model' = %(model)s)
    and (%(tier)s::text is null or x.meta ->> 'tier' = %(tier)s)
    and (%(platform)s::text is null or x.platform = %(platform)s)
    and (%(user)s::uuid is null or x.user_id = %(user)s)
    and (%(tool)s::text is null or x.meta -> 'tools' @> jsonb_build_array(jsonb_build_object('name', %(tool)s::text)))
    and (%(is_answered)s::boolean is null or (x.meta ->> 'outcome' = 'answered') = %(is_answered)s)
    and (%(accounts)s::text[] is null or x.account_id = any(%(accounts)s))
order by x.created_at desc, x.turn_id desc limit %(limit)s

-- name: newest_failed
-- As `newest_turns`, by the index of turns without an answer.
select x.turn_id from interactions as x
where x.meta ->> 'outcome' <> 'answered'
    and x.created_at >= coalesce(%(since)s, '-infinity'::timestamptz) and x.created_at < coalesce(%(until)s, 'infinity'::timestamptz)
    and (%(agent)s::text is null or x.meta ->> 'agent' = %(agent)s)
    and (%(model)s::text is null or x.meta ->> 'llm_model' = %(model)s)
    and (%(tier)s::text is null or x.meta ->> 'tier' = %(tier)s)
    and (%(platform)s::text is null or x.platform = %(platform)s)
    and (%(user)s::uuid is null or x.user_id = %(user)s)
    and (%(tool)s::text is null or x.meta -> 'tools' @> jsonb_build_array(jsonb_build_object('name', %(tool)s::text)))
    and (%(accounts)s::text[] is null or x.account_id = any(%(accounts)s))
order by x.created_at desc, x.turn_id desc limit %(limit)s

-- name: add_batch
insert into replay_batches (id, by, models, title) values (%(id)s, %(by)s, %(models)s, %(title)s)

-- name: add
insert into replays (id, batch_id, turn_id, call_id, session_id, user_id, account_id, context_id, by, model, change, state, error, ended_at, created_at)
values (%(id)s, %(batch_id)s, %(turn_id)s, %(call_id)s, %(session_id)s, %(user_id)s, %(account)s, %(context_id)s, %(by)s, %(model)s, %(change)s,
    %(state)s, %(error)s, case when %(state)s = 'refused' then clock_timestamp() end, clock_timestamp())

-- name: lock_claims
-- One claim at a time, so that the count of running replays in a batch holds.
select pg_advisory_xact_lock(hashtextextended('replays', 0))

-- name: give_up
-- Replays that were cut off too often, or whose batch was stopped meanwhile.
update replays set ended_at = clock_timestamp(),
    state = case when attempt >= %(max_attempts)s then 'failed' else 'refused' end,
    error = case when attempt >= %(max_attempts)s then 'cut off' else 'stopped' end
where state = 'running' and claimed_at < clock_timestamp() - %(stale_s)s * interval '1 second'
    and (attempt >= %(max_attempts)s or batch_id in (select id from replay_batches where state <> 'running'))

-- name: claim
update replays set state = 'running', attempt = attempt + 1, claimed_at = clock_timestamp()
where id = (
    select r.id from replays as r left join replay_batches as b on b.id = r.batch_id
    where r.state in ('waiting', 'running') and (%(ids)s::uuid[] is null or r.id = any(%(ids)s))
        and (r.state = 'waiting' or (r.attempt < %(max_attempts)s and r.claimed_at < clock_timestamp() - %(stale_s)s * interval '1 second'))
        and (b.id is null or (b.state = 'running' and (
            select count(*) from replays as other
            where other.batch_id = b.id and other.state = 'running' and other.claimed_at >= clock_timestamp() - %(stale_s)s * interval '1 second'
        ) < %(at_once)s))
    order by r.created_at, r.id limit 1
)
returning id

-- name: has_waiting
select exists (
    select from replays where state in ('waiting', 'running')
        and (state = 'waiting' or claimed_at < clock_timestamp() - %(stale_s)s * interval '1 second')
) or exists (
    select from replay_batches as b
    where state = 'running' and not exists (select from replays where batch_id = b.id and state in ('waiting', 'running'))
)

-- name: renew
update replays set claimed_at = clock_timestamp() where id = %(id)s and attempt = %(attempt)s and state = 'running'

-- name: give_back
-- In a batch that was stopped meanwhile, no process would take it.
update replays as r set attempt = attempt - 1, claimed_at = null,
    state = case when b.is_stopped then 'refused' else 'waiting' end, error = case when b.is_stopped then 'stopped' end,
    ended_at = case when b.is_stopped then clock_timestamp() end
from (
    select exists (select from replays join replay_batches on replay_batches.id = batch_id
        where replays.id = %(id)s and replay_batches.state <> 'running') as is_stopped
) as b
where r.id = %(id)s and attempt = %(attempt)s and r.state = 'running'

-- name: note
update replays set result = %(result)s where id = %(id)s and attempt = %(attempt)s and state = 'running'

-- name: finish
update replays set state = %(state)s, error = %(error)s, is_diverged = %(is_diverged)s, same_tools = %(same_tools)s,
    same_text = %(same_text)s, likeness = %(likeness)s, tokens_in = %(tokens_in)s, tokens_out = %(tokens_out)s,
    micro_usd = %(micro_usd)s, latency_ms = %(latency_ms)s, ended_at = clock_timestamp()
where id = %(id)s and attempt = %(attempt)s and state = 'running'

-- name: end_batch
-- One batch, or all of which nothing is left: the last replay of a batch may also end by being given up, or erased with its user.
update replay_batches as b set state = 'done', ended_at = clock_timestamp()
where (%(batch_id)s::uuid is null or id = %(batch_id)s) and state = 'running'
    and not exists (select from replays where batch_id = b.id and state in ('waiting', 'running'))

-- name: get
select r.id, r.batch_id, r.turn_id, r.call_id, r.session_id, s.conversation_id, r.user_id, r.account_id, r.context_id, r.by, r.model, r.state, r.attempt,
    r.is_diverged, r.same_tools, r.same_text, r.likeness, r.error, r.tokens_in, r.tokens_out, r.micro_usd, r.latency_ms, r.kept_as, r.created_at, r.ended_at
from replays as r left join sessions as s on s.id = r.session_id where r.id = %(id)s

-- name: open
select change, result from replays where id = %(id)s

-- name: list
select r.id, r.batch_id, r.turn_id, r.call_id, r.session_id, s.conversation_id, r.user_id, r.account_id, r.context_id, r.by, r.model, r.state, r.attempt,
    r.is_diverged, r.same_tools, r.same_text, r.likeness, r.error, r.tokens_in, r.tokens_out, r.micro_usd, r.latency_ms, r.kept_as, r.created_at, r.ended_at
from replays as r left join sessions as s on s.id = r.session_id
where r.batch_id is null and (%(accounts)s::text[] is null or r.account_id = any(%(accounts)s))
    and (%(at)s::timestamptz is null or (r.created_at, r.id) < (%(at)s, %(before_id)s))
order by r.created_at desc, r.id desc limit %(limit)s

-- name: of_source
select r.id, r.batch_id, r.turn_id, r.call_id, r.session_id, s.conversation_id, r.user_id, r.account_id, r.context_id, r.by, r.model, r.state, r.attempt,
    r.is_diverged, r.same_tools, r.same_text, r.likeness, r.error, r.tokens_in, r.tokens_out, r.micro_usd, r.latency_ms, r.kept_as, r.created_at, r.ended_at
from replays as r left join sessions as s on s.id = r.session_id
where r.turn_id = %(turn_id)s or (r.session_id = %(session_id)s and r.call_id = %(call_id)s)
order by r.created_at desc, r.id desc limit %(limit)s

-- name: of_batch
select r.id, r.batch_id, r.turn_id, r.call_id, r.session_id, s.conversation_id, r.user_id, r.account_id, r.context_id, r.by, r.model, r.state, r.attempt,
    r.is_diverged, r.same_tools, r.same_text, r.likeness, r.error, r.tokens_in, r.tokens_out, r.micro_usd, r.latency_ms, r.kept_as, r.created_at, r.ended_at
from replays as r left join sessions as s on s.id = r.session_id
where r.batch_id = %(batch_id)s and (%(accounts)s::text[] is null or r.account_id = any(%(accounts)s))
order by r.created_at, r.id

-- name: batches
select b.id, b.by, b.models, b.title, b.state, b.created_at, b.ended_at, c.total, c.ended, c.micro_usd
from replay_batches as b cross join lateral (
    select count(*) as total, count(*) filter (where state not in ('waiting', 'running')) as ended, coalesce(sum(micro_usd), 0)::bigint as micro_usd
    from replays where batch_id = b.id and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
) as c
where (%(id)s::uuid is null or b.id = %(id)s) and (%(accounts)s::text[] is null or c.total > 0)
order by b.created_at desc, b.id desc limit %(limit)s

-- name: stop
with stopped as (
    update replay_batches set state = 'stopped', ended_at = clock_timestamp() where id = %(batch_id)s and state = 'running' returning id
)
update replays set state = 'refused', error = 'stopped', ended_at = clock_timestamp() where batch_id in (select id from stopped) and state = 'waiting'

-- name: resume
with again as (
    update replays set state = 'waiting', error = null, ended_at = null, attempt = 0
    where batch_id = %(batch_id)s and (state = 'failed' or (state = 'refused' and error <> all(%(final)s)))
    returning id
), batch as (
    update replay_batches set state = 'running', ended_at = null where id = %(batch_id)s and exists (select from again)
)
select id from again

-- name: note_kept
update replays set kept_as = %(response_id)s where id = %(id)s
