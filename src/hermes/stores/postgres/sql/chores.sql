-- The leases of chores. They use the database's clock, so that all hosts agree on which lease has ended.

-- name: take
insert into chores (name, held_until) values (%(name)s, clock_timestamp() + make_interval(secs => %(lease_s)s))
on conflict (name) do update set epoch = chores.epoch + 1, held_until = excluded.held_until
where chores.done_slot < %(slot)s and chores.held_until <= clock_timestamp()
returning epoch

-- name: keep
update chores set held_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
where name = %(name)s and epoch = %(epoch)s and done_slot < %(slot)s
returning name

-- name: end
update chores set done_slot = %(slot)s, held_until = clock_timestamp()
where name = %(name)s and epoch = %(epoch)s and done_slot < %(slot)s

-- name: give_back
update chores set held_until = clock_timestamp() + make_interval(secs => %(pause_s)s)
where name = %(name)s and epoch = %(epoch)s and done_slot < %(slot)s
