-- How many tries of letters that were requeued or dropped may have arrived: a receipt that comes late may be about one of them.

alter table conversations add column past_doubts integer not null default 0;
alter table conversations add column past_doubts_at timestamptz; -- of the newest of them; after a week no receipt comes any more
