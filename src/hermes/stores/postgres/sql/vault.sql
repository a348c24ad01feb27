-- Which keys of the vault wrap which data keys. A bucket's lock is taken before its rows: by a new data key shared, by new wrapping alone.

-- name: share_bucket
select pg_advisory_xact_lock_shared(22637, %(bucket)s::int)

-- name: lock_bucket
select pg_advisory_xact_lock(22637, %(bucket)s::int)

-- name: lock_owner
-- Taken by what deletes a user's data keys, and by what adds a generation: a deletion would not see one that was added meanwhile.
select pg_advisory_xact_lock(hashtextextended('data_keys/' || %(user_id)s, 0))

-- name: has_key
select exists (select from data_keys where user_id = %(user_id)s)

-- name: place
select vault, bucket, number from vault_buckets where bucket = %(bucket)s

-- name: places
select vault, bucket, number from vault_buckets order by bucket

-- name: vault
select vault from vault_buckets order by bucket limit 1

-- name: begin
-- Only if no process works that could not read the vault.
insert into vault_buckets (bucket, vault, number)
select bucket, %(vault)s, 1 from generate_series(0, 255) as bucket
where not exists (select from vault_buckets) and not exists (
    select from processes
    where stopped_at is null and beat_at > clock_timestamp() - make_interval(secs => %(late_s)s::float8)
        and vault_folder is distinct from %(folder)s
)
on conflict do nothing

-- name: mark_dirty
update vault_buckets set dirty_since = coalesce(dirty_since, clock_timestamp()) where bucket = %(bucket)s

-- name: dirty
select bucket from vault_buckets where dirty_since is not null order by dirty_since

-- name: outside
-- Buckets with data keys that only a master key wraps. It jumps through the index.
with recursive found as (
    (select get_byte(uuid_send(user_id), 15) as bucket from data_keys where vault_number is null order by 1 limit 1)
    union all
    select (
        select get_byte(uuid_send(user_id), 15) from data_keys
        where vault_number is null and get_byte(uuid_send(user_id), 15) > found.bucket order by 1 limit 1
    )
    from found where bucket is not null
)
select bucket from found where bucket is not null

-- name: count_outside
select count(*) from data_keys where vault_number is null

-- name: keys_in_bucket
-- A data key that a transaction is deleting now is waited for, and left out if it was deleted.
select user_id, generation, master, wrapped, vault_number from data_keys
where get_byte(uuid_send(user_id), 15) = %(bucket)s and vault_number is distinct from %(number)s
order by user_id, generation for update

-- name: wrap_again
update data_keys set master = %(master)s, wrapped = fresh.wrapped, vault_number = %(number)s::int
from unnest(%(user_ids)s::uuid[], %(generations)s::int[], %(blobs)s::bytea[]) as fresh (user_id, generation, wrapped)
where data_keys.user_id = fresh.user_id and data_keys.generation = fresh.generation

-- name: renew
with retired as (
    insert into vault_retired (bucket, number) select bucket, number from vault_buckets where bucket = %(bucket)s
    on conflict do nothing
)
update vault_buckets set number = %(number)s, dirty_since = null, renewed_at = clock_timestamp() where bucket = %(bucket)s

-- name: unused
-- Of these keys, those that may be destroyed: retired long enough ago, and no data key is wrapped by them.
select bucket, number from unnest(%(buckets)s::int[], %(numbers)s::int[]) as old (bucket, number)
where not exists (
        select from vault_retired
        where vault_retired.bucket = old.bucket and vault_retired.number = old.number
            and retired_at > clock_timestamp() - make_interval(secs => %(grace_s)s::float8)
    )
    and not exists (select from data_keys where get_byte(uuid_send(user_id), 15) = old.bucket and vault_number = old.number)

-- name: destroyed
delete from vault_retired using unnest(%(buckets)s::int[], %(numbers)s::int[]) as gone (bucket, number)
where vault_retired.bucket = gone.bucket and vault_retired.number = gone.number

-- name: needed
select bucket, number from vault_buckets
union
select get_byte(uuid_send(user_id), 15), vault_number from data_keys where vault_number is not null

-- name: has_vaults
select to_regclass('vault_buckets') is not null

-- name: forget_vault
with retired as (delete from vault_retired)
delete from vault_buckets

-- name: set_vault
insert into vault_buckets (bucket, vault, number) select bucket, %(vault)s, 1 from generate_series(0, 255) as bucket

-- name: unrotated
-- Owners whose newest data key was made before.
select user_id from data_keys as newest
where created_at < %(since)s
    and not exists (select from data_keys as newer where newer.user_id = newest.user_id and newer.generation > newest.generation)
limit %(limit)s

-- name: count_unrotated
select count(*) from (select from data_keys group by user_id having max(created_at) < %(since)s) as waiting
