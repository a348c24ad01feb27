-- Facts by the words they are found by, so that recall reads the facts that share a word with the question, and not the words of all facts.
-- Words are digests under the key of their user: equal numbers are of one user. Facts cannot be written while the index is built.

create function term_numbers(terms bytea) returns bigint[] language sql immutable strict parallel safe as $$
    select coalesce(array_agg(('x' || encode(substr(terms, place, 8), 'hex'))::bit(64)::bigint), '{}')
    from generate_series(1, length(terms), 8) as place
$$;
-- Without a pending list: the next message reads the index at once.
create index user_memory_by_terms on user_memory using gin (term_numbers(terms)) with (fastupdate = off)
    where key is null and superseded_at is null;
