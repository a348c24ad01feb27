-- The months of calls and of the journal: made ahead, dropped, rewritten. Each statement waits a moment for its locks, and is tried again an hour
-- later: while it waits, turns wait behind it.

-- name: patience
select set_config('lock_timeout', %(lock_ms)s::text, true), set_config('statement_timeout', '0', true)

-- name: make
select make_months(%(since)s, %(until)s)

-- name: stray
-- The oldest row that came before its month, as after a copy of a database whose months were other ones. Random ids have no month.
select min(made_at) from (
    (
        select time_of_id(id) as made_at from calls_rest where id >= id_of_time('2025-01-01') and substr(id::text, 15, 1) = '7' order by id limit 1
    )
    union all (
        select time_of_id(turn_id) from run_events_rest where turn_id >= id_of_time('2025-01-01') and substr(turn_id::text, 15, 1) = '7'
        order by turn_id limit 1
    )
) as first

-- name: dropped
select child.relname from pg_inherits join pg_class as child on child.oid = inhrelid
where inhparent = 'calls'::regclass and child.relname ~ '^calls_[0-9]{4}_[0-9]{2}$'
    and to_date(right(child.relname, 7), 'YYYY_MM') + interval '1 month' <= %(before)s
order by 1

-- name: old_calls
-- Calls from before there were months. Read first: a statement that deletes nothing would lock the table all the same.
select id from calls where day < %(before)s order by day limit %(limit)s

-- name: delete_calls
delete from calls where id = any(%(ids)s)

-- name: emptied
-- A month of the journal that has ended, of which nothing is left to empty, and which was not rewritten yet: PostgreSQL remembers by which index
-- it was.
select child.relname as table, index.relname as index_name
from pg_inherits join pg_class as child on child.oid = inhrelid
    join pg_index on indrelid = child.oid and indisunique and indnatts = 3 join pg_class as index on index.oid = indexrelid
where inhparent = 'run_events'::regclass and not indisclustered and pg_relation_size(child.oid) > 0 and (
    child.relname !~ '[0-9]{4}_[0-9]{2}$' or to_date(right(child.relname, 7), 'YYYY_MM') + interval '1 month' <= %(before)s
)
order by 1

-- name: is_unplanned
-- Autovacuum collects figures for each month alone.
select coalesce(bool_or(parent.last_analyze is null or parent.last_analyze < %(before)s), false) and (
    select coalesce(sum(n_live_tup), 0) >= %(rows)s from pg_inherits join pg_stat_user_tables on relid = inhrelid
    where inhparent in ('calls'::regclass, 'run_events'::regclass)
)
from pg_stat_user_tables as parent where relid in ('calls'::regclass, 'run_events'::regclass)
