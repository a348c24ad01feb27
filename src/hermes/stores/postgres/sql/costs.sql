-- Costs in a window. `place` orders the values by their money; those after the limit are one row, without a value.
-- Days and hours are those of UTC, where none is longer than another: `date_bin` takes half the time of `date_trunc` with a zone.

-- name: by_value
with sums as (
    select case %(dimension)s
            when 'account' then account_id when 'agent' then agent when 'channel' then platform when 'tier' then tier
            when 'purpose' then purpose when 'model' then model when 'key' then coalesce(api_key_id::text, '')
            when 'day' then to_char(hour at time zone 'UTC', 'YYYY-MM-DD')
            when 'hour' then to_char(hour at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI"Z"')
        end as value,
        coalesce(sum(micro_usd) filter (where hour >= %(since)s), 0) as micro_usd,
        coalesce(sum(micro_usd) filter (where hour < %(since)s), 0) as micro_usd_before,
        coalesce(sum(calls) filter (where hour >= %(since)s), 0) as calls, coalesce(sum(failed) filter (where hour >= %(since)s), 0) as failed,
        coalesce(sum(refused) filter (where hour >= %(since)s), 0) as refused,
        coalesce(sum(cache_hits) filter (where hour >= %(since)s), 0) as cache_hits,
        coalesce(sum(fell_over) filter (where hour >= %(since)s), 0) as fell_over,
        coalesce(sum(tokens_in) filter (where hour >= %(since)s), 0) as tokens_in,
        coalesce(sum(tokens_out) filter (where hour >= %(since)s), 0) as tokens_out,
        coalesce(sum(cache_read) filter (where hour >= %(since)s), 0) as cache_read,
        coalesce(sum(latency_ms) filter (where hour >= %(since)s), 0) as latency_ms
    from spend_hours
    where hour >= case when %(dimension)s in ('day', 'hour') then %(since)s else %(before)s end and hour < %(until)s
        and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
    group by 1
), placed as (
    select *, row_number() over (order by case when %(dimension)s in ('day', 'hour') then 0 else micro_usd end desc, micro_usd_before desc, value) as place
    from sums
)
select case when place <= %(limit)s then value end as value, count(*) as values, sum(micro_usd)::bigint as micro_usd,
    sum(micro_usd_before)::bigint as micro_usd_before, sum(calls)::bigint as calls, sum(failed)::bigint as failed,
    sum(refused)::bigint as refused, sum(cache_hits)::bigint as cache_hits, sum(fell_over)::bigint as fell_over,
    sum(tokens_in)::bigint as tokens_in, sum(tokens_out)::bigint as tokens_out, sum(cache_read)::bigint as cache_read,
    sum(latency_ms)::bigint as latency_ms
from placed group by least(place, %(limit)s + 1), 1 order by least(place, %(limit)s + 1)

-- name: over_time
select date_bin(%(step)s, hour, timestamptz '2000-01-01 00:00Z') as at, case when value = any(%(values)s) then value end as value,
    sum(micro_usd)::bigint as micro_usd, sum(calls)::bigint as calls
from (
    select hour, micro_usd, calls, case %(dimension)s
        when 'account' then account_id when 'agent' then agent when 'channel' then platform when 'tier' then tier
        when 'purpose' then purpose when 'model' then model when 'key' then coalesce(api_key_id::text, '')
    end as value
    from spend_hours
    where hour >= %(since)s and hour < %(until)s and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
) as rows
group by 1, 2 order by 1, 2

-- name: tools_by_value
-- What no tool was paid for is the rest of all calls.
with rows as (
    select hour, tool as value, runs, errors, ms, worst_ms, micro_usd from tool_hours
    where hour >= %(before)s and hour < %(until)s and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
    union all
    select hour, '', 0, 0, 0, 0, -micro_usd from tool_hours
    where hour >= %(before)s and hour < %(until)s and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
    union all
    select hour, '', 0, 0, 0, 0, micro_usd from spend_hours
    where hour >= %(before)s and hour < %(until)s and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
), sums as (
    select value, coalesce(sum(micro_usd) filter (where hour >= %(since)s), 0) as micro_usd,
        coalesce(sum(micro_usd) filter (where hour < %(since)s), 0) as micro_usd_before,
        coalesce(sum(runs) filter (where hour >= %(since)s), 0) as runs, coalesce(sum(errors) filter (where hour >= %(since)s), 0) as errors,
        coalesce(sum(ms) filter (where hour >= %(since)s), 0) as ms, coalesce(max(worst_ms) filter (where hour >= %(since)s), 0) as worst_ms
    from rows group by 1
), placed as (
    select *, row_number() over (order by micro_usd desc, runs desc, value) as place from sums
)
select case when place <= %(limit)s then value end as value, count(*) as values, sum(micro_usd)::bigint as micro_usd,
    sum(micro_usd_before)::bigint as micro_usd_before, sum(runs)::bigint as runs, sum(errors)::bigint as errors, sum(ms)::bigint as ms,
    max(worst_ms)::bigint as worst_ms
from placed group by least(place, %(limit)s + 1), 1 order by least(place, %(limit)s + 1)

-- name: tools_over_time
select date_bin(%(step)s, hour, timestamptz '2000-01-01 00:00Z') as at, case when value = any(%(values)s) then value end as value,
    sum(micro_usd)::bigint as micro_usd, sum(runs)::bigint as calls
from (
    select hour, tool as value, runs, micro_usd from tool_hours
    where hour >= %(since)s and hour < %(until)s and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
    union all
    select hour, '', 0, -micro_usd from tool_hours
    where hour >= %(since)s and hour < %(until)s and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
    union all
    select hour, '', 0, micro_usd from spend_hours
    where hour >= %(since)s and hour < %(until)s and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
) as rows
group by 1, 2 order by 1, 2

-- name: users_by_value
-- From the index alone: it has every column that is named here.
with sums as (
    select user_id, coalesce(sum(micro_usd) filter (where created_at >= %(since)s), 0) as micro_usd,
        coalesce(sum(micro_usd) filter (where created_at < %(since)s), 0) as micro_usd_before,
        count(*) filter (where created_at >= %(since)s and outcome <> 'refused') as calls,
        count(*) filter (where created_at >= %(since)s and outcome not in ('answered', 'refused')) as failed,
        coalesce(sum(tokens) filter (where created_at >= %(since)s), 0) as tokens
    from calls
    where created_at >= %(before)s and created_at < %(until)s and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
    group by 1
), placed as (
    select *, row_number() over (order by micro_usd desc, micro_usd_before desc, user_id) as place from sums
)
select case when place <= %(limit)s then coalesce(user_id::text, '') end as value, count(*) as values, sum(micro_usd)::bigint as micro_usd,
    sum(micro_usd_before)::bigint as micro_usd_before, sum(calls)::bigint as calls, sum(failed)::bigint as failed,
    sum(tokens)::bigint as tokens
from placed group by least(place, %(limit)s + 1), 1 order by least(place, %(limit)s + 1)

-- name: users_over_time
-- One bucket after the other: all at once PostgreSQL expects very many groups, and sorts the calls on disk.
select buckets.at, parts.value, parts.micro_usd, parts.calls
from generate_series(
    date_bin(%(step)s, %(since)s, timestamptz '2000-01-01 00:00Z'), %(until)s - interval '1 microsecond', %(step)s
) as buckets (at), lateral (
    select case when user_id = any(%(users)s) then user_id::text when user_id is null and %(with_no_user)s then '' end as value,
        sum(micro_usd)::bigint as micro_usd, count(*) filter (where outcome <> 'refused') as calls
    from calls
    where created_at >= greatest(buckets.at, %(since)s) and created_at < least(buckets.at + %(step)s, %(until)s)
        and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
    group by 1
) as parts
order by 1, 2

-- name: key_names
select id, name from api_keys where id = any(%(ids)s)

-- name: of_keys
select api_key_id, coalesce(sum(micro_usd) filter (where hour >= %(today)s), 0)::bigint as today, sum(micro_usd)::bigint as month
from spend_hours where hour >= %(month)s and api_key_id = any(%(ids)s)
group by 1
