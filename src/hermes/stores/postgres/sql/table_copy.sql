-- The shape of a database, for copies of it. Only the schema that Hermes works in, and nothing that belongs to an extension.

-- name: columns
-- Partitions are read and written through their table: the target has its own. Triggers of the target write memory_versions.
select class.relname, attribute.attname, format_type(attribute.atttypid, attribute.atttypmod)
from pg_class as class join pg_attribute as attribute on attribute.attrelid = class.oid
where class.relnamespace = current_schema()::regnamespace and class.relkind in ('r', 'p') and not class.relispartition
    and class.relname not in ('schema_migrations', 'memory_versions')
    and attribute.attnum > 0 and not attribute.attisdropped and attribute.attgenerated = ''
    and not exists (select from pg_depend where classid = 'pg_class'::regclass and objid = class.oid and deptype = 'e')
order by class.relname, attribute.attnum

-- name: references
select source.relname, target.relname
from pg_constraint join pg_class as source on source.oid = conrelid join pg_class as target on target.oid = confrelid
where contype = 'f' and conrelid <> confrelid and source.relnamespace = current_schema()::regnamespace
order by 1, 2

-- name: sequences
select relname from pg_class as class
where relnamespace = current_schema()::regnamespace and relkind = 'S'
    and not exists (select from pg_depend where classid = 'pg_class'::regclass and objid = class.oid and deptype = 'e')
order by 1

-- name: identity
-- Names a database among all databases: the moment of its first migration, to the microsecond. A copy has a moment of its own.
select coalesce(to_char(min(applied_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), '') from schema_migrations

-- name: has_months
select to_regproc('make_months') is not null

-- name: make_months
-- As many as the source can have.
select make_months((%(source)s || 'Z')::timestamptz, %(taken_at)s)

-- name: is_empty
select not exists (
    select from pg_class as class
    where relnamespace = current_schema()::regnamespace and relkind in ('r', 'p', 'v', 'm')
        and not exists (select from pg_depend where classid = 'pg_class'::regclass and objid = class.oid and deptype = 'e')
)
