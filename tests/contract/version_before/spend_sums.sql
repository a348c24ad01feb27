-- As the version before migration 0029 had it: commit 2fa09e9.

-- name: mark
insert into sum_marks (name, summed_to) values (%(name)s, %(summed_to)s)
on conflict (name) do update set summed_to = excluded.summed_to where sum_marks.summed_to <> excluded.summed_to

-- name: sum_tools
-- A tool's run belongs to the hour in which its turn was recorded. The journal keeps name, error and time, also after its content is gone.
with sums as (
    select interactions.account_id, facts ->> 'name' as tool, count(*) as runs,
        count(*) filter (where (facts ->> 'is_error')::boolean) as errors,
        coalesce(sum((facts ->> 'ms')::bigint), 0)::bigint as ms, coalesce(max((facts ->> 'ms')::integer), 0) as worst_ms
    from interactions join run_events on run_events.turn_id = interactions.turn_id and step = 'run_tools'
    where interactions.created_at >= %(hour)s and interactions.created_at < %(hour)s + interval '1 hour' and facts ->> 'name' is not null
    group by 1, 2
), gone as (
    delete from tool_hours as old where hour = %(hour)s
        and not exists (select from sums where (sums.account_id, sums.tool) = (old.account_id, old.tool))
)
insert into tool_hours as old (hour, account_id, tool, runs, errors, ms, worst_ms)
select %(hour)s, sums.* from sums
on conflict (hour, account_id, tool) do update set runs = excluded.runs, errors = excluded.errors, ms = excluded.ms, worst_ms = excluded.worst_ms
where (old.runs, old.errors, old.ms, old.worst_ms) is distinct from (excluded.runs, excluded.errors, excluded.ms, excluded.worst_ms)
