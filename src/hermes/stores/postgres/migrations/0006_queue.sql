-- The job queue asks for every candidate whether an earlier job has the same lock; with many waiting behind delayed heads that must be one look-up.

create index hermes_jobs_by_lock on procrastinate_jobs (lock, priority desc, id) where status in ('todo', 'doing');
