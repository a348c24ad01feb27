-- What stands in a copy as if it were still running, although its processes are elsewhere or gone.

-- name: release_jobs
with held as (
    select id, queueing_lock from procrastinate_jobs where status = 'doing'
), spare as (
    delete from procrastinate_jobs as job using held
    where job.id = held.id
        and exists (select from procrastinate_jobs as twin where twin.queueing_lock = held.queueing_lock and twin.status = 'todo')
    returning job.id
)
update procrastinate_jobs as job set status = 'todo', abort_requested = false, scheduled_at = now(), worker_id = null
from held where job.id = held.id and not exists (select from spare where spare.id = held.id)

-- name: forget_workers
with jobs as (update procrastinate_jobs set worker_id = null where worker_id is not null) delete from procrastinate_workers

-- name: release_chores
update chores set held_until = least(held_until, now())

-- name: stop_processes
update processes set stopped_at = now() where stopped_at is null

-- name: hold_messages
-- As dead, without an apology: they were probably answered after the backup was made.
with messages as (
    update inbox set state = 'dead', ended_at = now(), reason = %(reason)s where state = 'waiting' returning turn_id
), ended as (
    update runs set state = 'dead', ended_at = now() from messages where runs.turn_id = messages.turn_id and runs.state = 'running'
)
select count(*) from messages

-- name: hold_answers
-- As dead letters that may have arrived: the operator decides, and a late receipt settles one by itself.
with answers as (
    update outbox set state = 'dead', died_at = now(), touched_at = now(), outcome = 'ambiguous', reason = %(reason)s,
        doubts = doubts + 1, doubted_at = coalesce(doubted_at, %(taken_at)s)
    where state in ('pending', 'attempting') returning id
)
select count(*) from answers

-- name: note_copy
insert into database_copies (kind, source, digest, taken_at, facts)
values (%(kind)s, %(source)s, %(digest)s, %(taken_at)s, %(facts)s)

-- name: find_copy
select exists (select from database_copies where kind = 'moved' and source = %(source)s and digest = %(digest)s)
