-- What a chat is recognised by if its client has rewritten or summarised it.

-- Spans of the response's own words, and the list that it was sampled in: eight bytes each of a digest under the user's key, with the system
-- prompt in it. Null for responses from before.
alter table door_samples add column quotes bigint[];
-- Without a pending list: a new chat reads the index at once, and a pending list would be read from its beginning each time.
create index door_samples_by_quotes on door_samples using gin (quotes) with (fastupdate = off);
