-- Sums of calls and tools by the hour (UTC).

-- name: call_window
-- `open` is read before the rows are: a transaction that begins later has a later start, and its rows are of a later hour or of this one.
with open as (
    select least(min(xact_start), clock_timestamp()) as since from pg_stat_activity
    where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
), first as (
    select coalesce((select summed_to from sum_marks where name = 'calls'), (select min(created_at) from calls)) as at
)
select date_trunc('hour', least(first.at, clock_timestamp() - interval '2 hours'), 'UTC') as since,
    date_trunc('hour', open.since, 'UTC') as open_since
from open, first where first.at is not null

-- name: tool_window
-- What a tool costs is in the hour of a call, what it did in the hour of its turn. So the hours of both are summed.
with open as (
    select least(min(xact_start), clock_timestamp()) as since from pg_stat_activity
    where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
), first as (
    select coalesce(
        (select summed_to from sum_marks where name = 'tool_costs'),
        least((select min(created_at) from interactions), (select min(created_at) from calls))
    ) as at
)
select date_trunc('hour', least(first.at, clock_timestamp() - interval '2 hours'), 'UTC') as since,
    date_trunc('hour', open.since, 'UTC') as open_since
from open, first where first.at is not null

-- name: next_call_hour
select date_trunc('hour', created_at, 'UTC') from calls where created_at >= %(since)s order by created_at limit 1

-- name: next_tool_hour
select date_trunc('hour', least(
    (select created_at from interactions where created_at >= %(since)s order by created_at limit 1),
    (select created_at from calls where created_at >= %(since)s order by created_at limit 1)
), 'UTC')

-- name: take_turn
-- Held until the transaction ends. The sums are read after it, so the process that writes last has read last.
select pg_advisory_xact_lock(hashtextextended('hermes spend_sums ' || %(name)s, 0))

-- name: mark
insert into sum_marks (name, summed_to) values (%(name)s, %(summed_to)s)
on conflict (name) do update set summed_to = excluded.summed_to where sum_marks.summed_to <> excluded.summed_to

-- name: sum_calls
-- Rows that stay as they are are not written again. Older processes write no purpose; their source says about the same.
with sums as (
    select account_id, coalesce(agent, '') as agent, coalesce(platform, '') as platform, tier, coalesce(purpose, source) as purpose,
        coalesce(answered_by, model) as model, api_key_id,
        count(*) filter (where outcome <> 'refused') as calls,
        count(*) filter (where outcome not in ('answered', 'refused')) as failed,
        coalesce(sum(coalesce(times, 1)) filter (where outcome = 'refused'), 0)::bigint as refused,
        count(*) filter (where cache_hit) as cache_hits,
        count(*) filter (where outcome = 'answered' and jsonb_array_length(attempts) > 1) as fell_over,
        coalesce(sum(tokens_in) filter (where not cache_hit), 0)::bigint as tokens_in,
        coalesce(sum(tokens_out) filter (where not cache_hit), 0)::bigint as tokens_out,
        coalesce(sum(cache_read) filter (where not cache_hit), 0)::bigint as cache_read,
        sum(micro_usd)::bigint as micro_usd, sum(latency_ms)::bigint as latency_ms
    from calls where created_at >= %(hour)s and created_at < %(hour)s + interval '1 hour'
    group by 1, 2, 3, 4, 5, 6, 7
), gone as (
    delete from spend_hours as old where hour = %(hour)s and not exists (
        select from sums
        where (sums.account_id, sums.agent, sums.platform, sums.tier, sums.purpose, sums.model)
            = (old.account_id, old.agent, old.platform, old.tier, old.purpose, old.model) and sums.api_key_id is not distinct from old.api_key_id
    )
)
insert into spend_hours as old (
    hour, account_id, agent, platform, tier, purpose, model, api_key_id,
    calls, failed, refused, cache_hits, fell_over, tokens_in, tokens_out, cache_read, micro_usd, latency_ms
)
select %(hour)s, sums.* from sums
on conflict (hour, account_id, agent, platform, tier, purpose, model, api_key_id) do update set
    calls = excluded.calls, failed = excluded.failed, refused = excluded.refused, cache_hits = excluded.cache_hits,
    fell_over = excluded.fell_over, tokens_in = excluded.tokens_in, tokens_out = excluded.tokens_out, cache_read = excluded.cache_read,
    micro_usd = excluded.micro_usd, latency_ms = excluded.latency_ms
where (old.calls, old.failed, old.refused, old.cache_hits, old.fell_over, old.tokens_in, old.tokens_out, old.cache_read, old.micro_usd,
    old.latency_ms) is distinct from (excluded.calls, excluded.failed, excluded.refused, excluded.cache_hits, excluded.fell_over,
    excluded.tokens_in, excluded.tokens_out, excluded.cache_read, excluded.micro_usd, excluded.latency_ms)

-- name: sum_tools
-- A tool's run belongs to the hour in which its turn was recorded. The journal keeps name, error and time, also after its content is gone.
-- A concluding call is paid by the tools of its turn in equal shares; what does not divide goes to the last ones. It is found in the hour of
-- the call, so that all tools together never cost more than the calls of the hour. Its tools had ended when it was made.
with runs as (
    select interactions.account_id, facts ->> 'name' as tool, count(*) as runs,
        count(*) filter (where (facts ->> 'is_error')::boolean) as errors,
        coalesce(sum((facts ->> 'ms')::bigint), 0)::bigint as ms, coalesce(max((facts ->> 'ms')::integer), 0) as worst_ms
    from interactions join run_events on run_events.turn_id = interactions.turn_id and step = 'run_tools'
    where interactions.created_at >= %(hour)s and interactions.created_at < %(hour)s + interval '1 hour' and facts ->> 'name' is not null
    group by 1, 2
), shares as (
    select calls.account_id, facts ->> 'name' as tool,
        calls.micro_usd * row_number() over in_call / count(*) over (partition by calls.id)
            - calls.micro_usd * (row_number() over in_call - 1) / count(*) over (partition by calls.id) as micro_usd
    from calls join run_events on run_events.turn_id = calls.turn_id and step = 'run_tools'
    where calls.created_at >= %(hour)s and calls.created_at < %(hour)s + interval '1 hour' and calls.purpose = 'conclude'
        and calls.micro_usd > 0 and facts ->> 'name' is not null
    window in_call as (partition by calls.id order by run_events.index)
), costs as (
    select account_id, tool, sum(micro_usd)::bigint as micro_usd from shares group by 1, 2
), sums as (
    select account_id, tool, coalesce(runs, 0) as runs, coalesce(errors, 0) as errors, coalesce(ms, 0) as ms, coalesce(worst_ms, 0) as worst_ms,
        coalesce(micro_usd, 0) as micro_usd
    from runs full join costs using (account_id, tool)
), gone as (
    delete from tool_hours as old where hour = %(hour)s
        and not exists (select from sums where (sums.account_id, sums.tool) = (old.account_id, old.tool))
)
insert into tool_hours as old (hour, account_id, tool, runs, errors, ms, worst_ms, micro_usd)
select %(hour)s, sums.* from sums
on conflict (hour, account_id, tool) do update set runs = excluded.runs, errors = excluded.errors, ms = excluded.ms,
    worst_ms = excluded.worst_ms, micro_usd = excluded.micro_usd
where (old.runs, old.errors, old.ms, old.worst_ms, old.micro_usd)
    is distinct from (excluded.runs, excluded.errors, excluded.ms, excluded.worst_ms, excluded.micro_usd)

-- name: spend_by
select case %(dimension)s
        when 'account' then account_id when 'agent' then agent when 'platform' then platform when 'tier' then tier
        when 'purpose' then purpose when 'model' then model when 'key' then coalesce(api_key_id::text, '')
        when 'day' then to_char(hour at time zone 'UTC', 'YYYY-MM-DD')
        when 'hour' then to_char(hour at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI"Z"')
    end as value,
    sum(calls)::bigint as calls, sum(failed)::bigint as failed, sum(refused)::bigint as refused, sum(cache_hits)::bigint as cache_hits,
    sum(fell_over)::bigint as fell_over, sum(tokens_in)::bigint as tokens_in, sum(tokens_out)::bigint as tokens_out,
    sum(cache_read)::bigint as cache_read, sum(micro_usd)::bigint as micro_usd, sum(latency_ms)::bigint as latency_ms
from spend_hours where hour >= %(since)s and hour < %(until)s
group by 1
order by case when %(dimension)s in ('day', 'hour') then 0 else sum(micro_usd) end desc, 1

-- name: tools_by
select tool, sum(runs)::bigint as runs, sum(errors)::bigint as errors, sum(ms)::bigint as ms, max(worst_ms) as worst_ms
from tool_hours where hour >= %(since)s and hour < %(until)s
group by 1 order by 2 desc, 1
