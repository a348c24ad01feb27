-- Queries of the job queue that also check which worker a job belongs to; Procrastinate's own do not. A worker that was paused and wakes up
-- must not end a job that another worker got meanwhile.

-- name: fetch
-- As Procrastinate's procrastinate_fetch_job_v2, but several jobs at once: the first one of each lock that no running job holds.
with candidate as (
    select id from procrastinate_jobs as job
    where status = 'todo' and queue_name = %(queue)s and (scheduled_at is null or scheduled_at <= now()) and not exists (
        select from procrastinate_jobs as other
        where job.lock is not null and other.lock = job.lock and (
            other.status = 'doing'
            or (other.status = 'todo' and (other.priority > job.priority or (other.priority = job.priority and other.id < job.id)))
        )
    )
    order by priority desc, id limit %(limit)s
    for update of job skip locked
)
update procrastinate_jobs as job set status = 'doing', worker_id = %(worker_id)s
from candidate where job.id = candidate.id
returning job.id, task_name, (args ->> 'id')::uuid as subject_id, attempts, worker_id

-- name: finish
with mine as (
    delete from procrastinate_jobs where id = %(id)s and worker_id = %(worker_id)s and status = 'doing' returning lock, queue_name, id
)
select case when exists (select from procrastinate_jobs as next where next.lock = mine.lock and next.status = 'todo')
    then pg_notify('procrastinate_queue_v1#' || queue_name, json_build_object('type', 'job_inserted', 'job_id', id)::text) end
from mine

-- name: retry
with mine as (
    select id, queueing_lock from procrastinate_jobs
    where id = %(id)s and worker_id = %(worker_id)s and status = 'doing'
    for update
), spare as (  -- another job waits already that will do the same, and only one of them may wait
    delete from procrastinate_jobs as job using mine
    where job.id = mine.id
        and exists (select from procrastinate_jobs as twin where twin.queueing_lock = mine.queueing_lock and twin.status = 'todo')
    returning job.id
), again as (
    update procrastinate_jobs as job
    set status = 'todo', attempts = attempts + 1, abort_requested = false, scheduled_at = now() + make_interval(secs => %(wait_s)s)
    from mine where job.id = mine.id and not exists (select from spare)
    returning job.id
)
select id from spare union all select id from again

-- name: sweep
with stalled as (
    select job.id, job.queueing_lock
    from procrastinate_jobs as job left join procrastinate_workers as worker on worker.id = job.worker_id
    where job.status = 'doing' and (
        worker.id is null
        or worker.last_heartbeat < now() - make_interval(secs => %(stalled_after_s)s)
        or job.id = any(%(orphans)s)
    )
    for update of job skip locked
), spare as (
    delete from procrastinate_jobs as job using stalled
    where job.id = stalled.id
        and exists (select from procrastinate_jobs as twin where twin.queueing_lock = stalled.queueing_lock and twin.status = 'todo')
    returning job.id
), freed as (
    update procrastinate_jobs as job
    set status = 'todo', attempts = attempts + 1, abort_requested = false, scheduled_at = now(), worker_id = null
    from stalled where job.id = stalled.id and not exists (select from spare where spare.id = stalled.id)
    returning job.id, queue_name
)
select id, pg_notify('procrastinate_queue_v1#' || queue_name, json_build_object('type', 'job_inserted', 'job_id', id)::text) from freed

-- name: beat
update procrastinate_workers set last_heartbeat = now() where id = any(%(workers)s)

-- name: doing
select id from procrastinate_jobs where status = 'doing' and worker_id = any(%(workers)s)

-- name: is_waiting
select from procrastinate_jobs where queueing_lock = %(queueing_lock)s and status = 'todo'

-- name: lost_turns
select inbox.turn_id, inbox.conversation_id
from inbox left join procrastinate_jobs as job
    on job.queue_name = 'turns' and job.status in ('todo', 'doing') and (job.args ->> 'id')::uuid = inbox.turn_id
where inbox.state = 'waiting' and inbox.received_at < now() - make_interval(secs => %(older_than_s)s) and job.id is null
order by inbox.conversation_id, inbox.seq
limit 100

-- name: waiting
select queue_name, count(*) as jobs from procrastinate_jobs where status = 'todo' group by queue_name

-- name: oldest_turn
-- How long the first turn has waited that a worker could begin now. While a turn of its conversation runs, a turn cannot begin.
select extract(epoch from clock_timestamp() - greatest(inbox.received_at, inbox.revived_at, job.scheduled_at))::float8
from procrastinate_jobs as job join inbox on inbox.turn_id = (job.args ->> 'id')::uuid
where job.queue_name = 'turns' and job.task_name = 'turn' and job.status = 'todo' and (job.scheduled_at is null or job.scheduled_at <= now())
    and not exists (select from procrastinate_jobs as running where running.lock = job.lock and running.status = 'doing')
order by job.priority desc, job.id
limit 1
