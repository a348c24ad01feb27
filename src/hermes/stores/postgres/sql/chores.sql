-- The leases of chores. They use the database's clock, so that all hosts agree on which lease has ended.

-- name: take
-- A row that is locked is passed over: its holder is in the middle of a transaction (`fence`). A holder that froze there would otherwise keep
-- every other process waiting, and with it all other work that a sweep does.
with free as (
    select name from chores
    where name = %(name)s and (done_slot < %(slot)s or %(even_if_done)s)
        and (held_until <= clock_timestamp() or %(even_if_done)s and ended_at is not null)
    for no key update skip locked
), taken as (
    update chores set epoch = epoch + 1, held_until = clock_timestamp() + make_interval(secs => %(lease_s)s), holder = %(holder)s,
        taken_at = clock_timestamp(), ended_at = null, done_slot = least(done_slot, %(slot)s - 1)
    from free where chores.name = free.name
    returning epoch
), first as (
    insert into chores (name, held_until, holder, taken_at)
    select %(name)s, clock_timestamp() + make_interval(secs => %(lease_s)s), %(holder)s, clock_timestamp()
    where not exists (select from chores where name = %(name)s)
    on conflict (name) do nothing
    returning epoch
)
select epoch from taken union all select epoch from first

-- name: keep
update chores set held_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
where name = %(name)s and epoch = %(epoch)s and done_slot < %(slot)s
returning name

-- name: fence
select name from chores where name = %(name)s and epoch = %(epoch)s and done_slot < %(slot)s for share

-- name: end
update chores set done_slot = %(slot)s, held_until = clock_timestamp(), done_at = clock_timestamp(), ended_at = clock_timestamp(), failed = null
where name = %(name)s and epoch = %(epoch)s and done_slot < %(slot)s

-- name: give_back
update chores set held_until = clock_timestamp() + make_interval(secs => %(pause_s)s), ended_at = clock_timestamp(),
    failed = coalesce(%(failed)s, failed)
where name = %(name)s and epoch = %(epoch)s and done_slot < %(slot)s

-- name: ask
update chores set done_slot = done_slot - 1, held_until = clock_timestamp()
where name = %(name)s and (ended_at is not null or held_until <= clock_timestamp())

-- name: all
select name, epoch, holder, taken_at, held_until, ended_at is null and held_until > clock_timestamp() as is_running, done_at, failed
from chores order by name
