-- What a proof of an erasure needs to know.

-- name: sealed_rows
-- The newest sealed bytes of a user in each table; large enough to be found by their first bytes.
(select envelope as sealed from inbox where user_id = %(user_id)s and length(envelope) > 40 order by received_at desc limit %(limit)s)
union all
(select body from outbox where user_id = %(user_id)s and length(body) > 40 order by id desc limit %(limit)s)
union all
(select request from run_events join inbox on inbox.turn_id = run_events.turn_id
    where inbox.user_id = %(user_id)s and length(request) > 40 order by run_events.id desc limit %(limit)s)
union all
(select body from graph_messages where session_id in (select id from sessions where user_id = %(user_id)s) limit %(limit)s)
union all
(select value from user_memory where user_id = %(user_id)s order by number desc limit %(limit)s)

-- name: sessions
select id from sessions where user_id = %(user_id)s order by last_at desc limit %(limit)s

-- name: server
select name || ' = ' || setting from pg_settings
where name in ('archive_mode', 'wal_level', 'wal_keep_size', 'checkpoint_timeout', 'wal_recycle') order by name

-- name: replicas
select (select count(*) from pg_replication_slots) + (select count(*) from pg_stat_replication)
