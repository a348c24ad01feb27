-- What waits, for the operator. Every query reads a partial index or ends at a limit.

-- name: counts
-- An account's waiting messages have a cap (`inbox.max_waiting`), so the oldest of them is found exactly.
select 'waiting' as queue, least(count(*), %(limit)s) as entries, min(coalesce(revived_at, received_at)) as at
from inbox where state = 'waiting' and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
union all
select 'buried', count(*), max(ended_at) from (
    select ended_at from inbox
    where state = 'dead' and (%(accounts)s::text[] is null or account_id = any(%(accounts)s)) order by ended_at desc limit %(limit)s
) as buried
union all
select 'outbox', count(*), min(put_at) from (
    select put_at from outbox
    where state in ('pending', 'attempting') and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
    order by not_before limit %(limit)s
) as unsent
union all
select 'retrying', count(*), min(put_at) from (
    select put_at from outbox
    where state = 'pending' and outcome is not null and (%(accounts)s::text[] is null or account_id = any(%(accounts)s)) limit %(limit)s
) as retrying
union all
select 'proactive', count(*), min(put_at) from (
    select put_at from outbox
    where state in ('pending', 'attempting') and news <> '' and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
    limit %(limit)s
) as proactive
union all
select 'dead', count(*), max(died_at) from (
    select died_at from outbox
    where state = 'dead' and (%(accounts)s::text[] is null or account_id = any(%(accounts)s)) order by died_at desc limit %(limit)s
) as dead

-- name: waiting
-- The turn before it in the order of the jobs: a message that was revived runs behind those that came since.
with waiting as materialized (
    select turn_id, account_id, conversation_id, user_id, coalesce(revived_at, received_at) as since, revived_at is not null as is_revived,
        attempts, lag(turn_id) over (partition by conversation_id order by coalesce(revived_at, received_at), seq) as behind
    from inbox where state = 'waiting' and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
), page as (
    select * from waiting
    where %(after_at)s::timestamptz is null or (since, turn_id) > (%(after_at)s, %(after_id)s::uuid)
    order by since, turn_id limit %(limit)s
), job as (
    select distinct on (id) id, status, scheduled_at from (
        select (args ->> 'id')::uuid as id, status, scheduled_at from procrastinate_jobs
        where queue_name = 'turns' and task_name = 'turn' and status in ('todo', 'doing')
            and (args ->> 'id')::uuid = any(array(select turn_id from page))
    ) as known order by id, status
)
select page.turn_id, page.account_id as account, platform, channel_id, page.conversation_id, page.user_id, since, is_revived, page.attempts,
    case
        when job.status = 'doing' then 'running'
        when behind is not null then 'behind'
        when job.id is null then 'lost'
        when job.scheduled_at > clock_timestamp() and page.attempts > 0 then 'retry'
        else 'worker'
    end as reason,
    case when job.status = 'doing' and worker_epoch = runs.epoch then worker end as worker,
    case when job.status = 'doing' then coalesce(claimed_at, started_at) end as claimed_at,
    case when job.status is distinct from 'doing' then behind end as behind,
    case when job.status = 'todo' and job.scheduled_at > clock_timestamp() then job.scheduled_at end as retry_at
from page join conversations on conversations.id = page.conversation_id
left join runs on runs.turn_id = page.turn_id and runs.state = 'running'
left join job on job.id = page.turn_id
order by since, page.turn_id

-- name: buried
select turn_id, inbox.account_id as account, platform, channel_id, conversation_id, inbox.user_id, received_at, ended_at, attempts,
    coalesce(reason, '') as reason, users.state = 'deleted' as is_erased
from inbox join conversations on conversations.id = conversation_id join users on users.id = inbox.user_id
where inbox.state = 'dead' and (%(accounts)s::text[] is null or inbox.account_id = any(%(accounts)s))
    and (%(since)s::timestamptz is null or ended_at >= %(since)s)
    and ended_at <= coalesce(%(before_at)s::timestamptz, 'infinity')
    and (%(before_at)s::timestamptz is null or ended_at < %(before_at)s or turn_id > %(before_id)s::uuid)
order by ended_at desc, turn_id limit %(limit)s

-- name: outbox
select id, turn_id, account_id as account, platform, channel_id, conversation_id, user_id, state, part, news, tries, outcome, put_at,
    not_before as next_at
from outbox
where state in ('pending', 'attempting') and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
    and (%(after)s::bigint is null or id > %(after)s)
order by id limit %(limit)s

-- name: dead
select id, turn_id, account_id as account, platform, channel_id, conversation_id, user_id, part, news, tries, doubts, outcome, reason,
    put_at, died_at
from outbox
where state = 'dead' and (%(accounts)s::text[] is null or account_id = any(%(accounts)s))
    and (%(before_at)s::timestamptz is null or (died_at, id) < (%(before_at)s, %(before_id)s::bigint))
order by died_at desc, id desc limit %(limit)s

-- name: jobs
select queue_name as queue, status::text as status, count(*) as jobs
from (
    select queue_name, status from procrastinate_jobs where status in ('todo', 'doing', 'failed') order by id limit %(limit)s
) as job
group by queue_name, status order by queue_name, status

-- name: running
select runs.turn_id, worker, runs.account_id as account, runs.attempt, claimed_at
from inbox join runs on runs.turn_id = inbox.turn_id
where inbox.state = 'waiting' and runs.state = 'running' and worker is not null and worker_epoch = runs.epoch and claimed_at is not null
    and not exists (select from run_events where run_events.turn_id = runs.turn_id and step = 'attempt_failed' and run_events.epoch = runs.epoch)
order by claimed_at limit %(limit)s

-- name: owner
select account_id as account, user_id, state from inbox where turn_id = %(turn_id)s

-- name: give_away
-- As the sweep of stalled jobs, for the turns of one process. What it is at is in `runs`: Procrastinate does not know our processes.
with given as (
    select job.id
    from inbox join runs on runs.turn_id = inbox.turn_id
    join procrastinate_jobs as job on job.queue_name = 'turns' and job.task_name = 'turn' and job.status = 'doing'
        and (job.args ->> 'id')::uuid = inbox.turn_id
    where inbox.state = 'waiting' and runs.state = 'running' and runs.worker = %(process_id)s and runs.worker_epoch = runs.epoch
    for update of job skip locked
), freed as (
    update procrastinate_jobs as job
    set status = 'todo', attempts = attempts + 1, abort_requested = false, scheduled_at = now(), worker_id = null
    from given where job.id = given.id
    returning job.id, queue_name
)
select id, pg_notify('procrastinate_queue_v1#' || queue_name, json_build_object('type', 'job_inserted', 'job_id', id)::text) from freed
