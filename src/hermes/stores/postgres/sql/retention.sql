-- Content that was kept long enough, a batch at a time. Each statement returns what it emptied or deleted.

-- name: empty_messages
with old as (
    select turn_id from inbox where length(envelope) > 0 and ended_at < %(before)s order by ended_at limit %(limit)s for update skip locked
)
update inbox set envelope = '' from old where inbox.turn_id = old.turn_id

-- name: empty_answers
-- Dead letters have their own time (`delivery.dead_letter_ttl_s`), and what is not settled is still to be sent.
with old as (
    select id from outbox where length(body) > 0 and touched_at < %(before)s and state = 'sent'
    order by touched_at limit %(limit)s for update skip locked
)
update outbox set body = '' from old where outbox.id = old.id

-- name: delete_graphs
-- In the order in which the sessions began.
with next as (
    select id, number, length > 0 and last_at < %(before)s as is_old from sessions where number > %(after)s order by number limit %(limit)s
), old as (
    select id from sessions where id in (select id from next where is_old) for update skip locked
)
select coalesce(max(number), %(after)s) as last, (select drop_graphs(array(select id from old))) as deleted, count(*) = %(limit)s as has_more from next
