-- A version for each user's facts, which every change of them replaces. A worker holds the opened vectors of a user for some minutes, and asks
-- with every use whether they are still the newest. A version is random, so that none comes twice. The trigger also notices the changes of
-- older workers, and of copies of a database, which therefore leave this table out.
create table memory_versions (
    user_id uuid primary key,
    version uuid not null
);

create function renew_memory_versions() returns trigger language plpgsql as $$
begin
    insert into memory_versions (user_id, version)
    select user_id, gen_random_uuid() from (select distinct user_id from changed order by user_id) as users
    on conflict (user_id) do update set version = excluded.version;
    return null;
end
$$;
create trigger added_facts_renew_the_version after insert on user_memory
    referencing new table as changed for each statement execute function renew_memory_versions();
create trigger changed_facts_renew_the_version after update on user_memory
    referencing new table as changed for each statement execute function renew_memory_versions();
create trigger deleted_facts_renew_the_version after delete on user_memory
    referencing old table as changed for each statement execute function renew_memory_versions();

insert into memory_versions (user_id, version) select user_id, gen_random_uuid() from user_memory group by user_id;

-- Recall compares words in the worker too. The function stays for older workers.
drop index user_memory_by_terms;
