-- Model calls and the journal by months. A month of calls is dropped whole, and a month of the journal is rewritten once its content was
-- emptied, so that neither leaves holes in a table that grows.
--
-- The key is the id, which begins with the moment when it was made (UUIDv7): a turn's journal lies in one partition, and the statements of the
-- version before go on working. Ids from before are random (UUIDv4). The table from before becomes the partition of all ids from 2039 on, where
-- 99 of 100 random ids lie; the rest is moved. The tables are locked while they are read once: turns wait, messages are still accepted.

lock table inbox in share row exclusive mode;
lock table run_events, calls in access exclusive mode;

create function id_of_time(at timestamptz) returns uuid language sql immutable parallel safe as $$
    select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;

create function time_of_id(id uuid) returns timestamptz language sql immutable parallel safe as $$
    select to_timestamp(('x' || translate(left(id::text, 13), '-', ''))::bit(48)::bigint / 1000.0)
$$;

do $$
declare
    each record;
begin
    for each in select tablename, indexname from pg_indexes where schemaname = current_schema() and tablename in ('calls', 'run_events')
    loop
        execute format('alter index %I rename to %I', each.indexname, each.tablename || '_before' || substr(each.indexname, 1 + length(each.tablename)));
    end loop;
end
$$;

-- --- model calls. Without foreign keys: to drop a month would lock the users and the accounts. Neither are ever deleted.

alter table calls rename to calls_before;
alter table calls_before drop constraint calls_user_id_fkey, drop constraint calls_account_id_fkey;
create table calls (like calls_before including defaults including generated including constraints, primary key (id)) partition by range (id);
create index calls_by_day on calls (day) include (tokens, micro_usd);
create index calls_by_turn on calls (turn_id) where turn_id is not null;
create index calls_by_session on calls (session_id) where session_id is not null;
create index calls_without_turn on calls (created_at desc, id desc) where turn_id is null;
create index calls_fell_over on calls (created_at desc) where jsonb_array_length(attempts) > 1;
create index calls_by_time on calls (created_at) include (user_id, account_id, outcome, tokens, micro_usd);
create index calls_by_user on calls (user_id, day) include (account_id, tokens, micro_usd, id);
create index calls_by_key on calls (api_key_id, day) include (tokens, micro_usd, id, created_at) where api_key_id is not null;
create table calls_rest partition of calls default;

-- --- the journal

alter table run_events rename to run_events_before;
alter table run_events_before alter column id drop identity;
create sequence run_events_id_seq;
select setval('run_events_id_seq', 1 + coalesce((select max(id) from run_events_before), 0), false);
alter table run_events_before alter column id set default nextval('run_events_id_seq');
create table run_events (
    like run_events_before including defaults including constraints,
    unique (turn_id, step, index),
    foreign key (turn_id) references inbox on delete cascade
) partition by range (turn_id);
alter sequence run_events_id_seq owned by run_events.id;
create index run_events_with_content on run_events (id) where request is not null or result is not null;
create index run_events_by_xid on run_events (xid, event_number) where event_number is not null;
create table run_events_rest partition of run_events default;

-- --- months. Rows of the month that came before its partition move into it.

create function make_month(parent text, key text, first_day date) returns boolean language plpgsql as $$
declare
    partition text := parent || to_char(first_day, '"_"YYYY"_"MM');
    low uuid := id_of_time(first_day::timestamp at time zone 'UTC');
    high uuid := id_of_time((first_day + interval '1 month') at time zone 'UTC');
    columns text;
begin
    if to_regclass(quote_ident(partition)) is not null then
        return false;
    end if;
    execute format('create table %I (like %I including defaults including generated including constraints)', partition, parent);
    select string_agg(quote_ident(attname), ', ') into columns from pg_attribute
    where attrelid = parent::regclass and attnum > 0 and not attisdropped and attgenerated = '';
    execute format(
        'with moved as (delete from %I where %I >= %L and %2$I < %4$L returning %5$s) insert into %6$I (%5$s) select * from moved',
        parent || '_rest', key, low, high, columns, partition
    );
    execute format('alter table %I attach partition %I for values from (%L) to (%L)', parent, partition, low, high);
    return true;
end
$$;

create function make_months(since timestamptz, until timestamptz) returns setof text language plpgsql as $$
declare
    first_day date;
begin
    for first_day in select generate_series(date_trunc('month', since at time zone 'UTC'), until at time zone 'UTC', '1 month')
    loop
        if make_month('calls', 'id', first_day) then
            return next to_char(first_day, '"calls_"YYYY"_"MM');
        end if;
        if make_month('run_events', 'turn_id', first_day) then
            return next to_char(first_day, '"run_events_"YYYY"_"MM');
        end if;
    end loop;
end
$$;

-- --- the tables from before

do $$
declare
    first_random constant uuid := '02000000-0000-0000-0000-000000000000';
    each record;
    columns text;
begin
    for each in select * from (values ('calls', 'id'), ('run_events', 'turn_id')) as named (parent, key)
    loop
        select string_agg(quote_ident(attname), ', ') into columns from pg_attribute
        where attrelid = each.parent::regclass and attnum > 0 and not attisdropped and attgenerated = '';
        execute format(
            'with moved as (delete from %I where %I < %L returning %s) insert into %I (%4$s) select * from moved',
            each.parent || '_before', each.key, first_random, columns, each.parent
        );
        execute format(
            'alter table %I attach partition %I for values from (%L) to (maxvalue)', each.parent, each.parent || '_before', first_random
        );
    end loop;
end
$$;

select make_months(now(), now() + interval '2 months');
analyze calls, run_events;
