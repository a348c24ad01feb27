-- Alerts: one open row for each event and subject, what each destination was told, and what is muted.
--
-- Lock order everywhere: alerts first, then the destination's row, then its sends. A claim holds the destination's row, so two processes
-- never count one minute twice.

-- name: record
with reports as (
    select * from jsonb_to_recordset(%(reports)s) as report (event text, subject text, level text, facts jsonb, times bigint)
)
insert into alerts (event, subject, level, facts, times)
select event, subject, level, facts, times from reports order by event, subject
on conflict (event, subject) where ended_at is null do update
    set times = alerts.times + excluded.times, last_at = now(), facts = excluded.facts, level = excluded.level

-- name: note_sent
insert into alert_sends (alert_id, destination, sent_at, messages)
select alerts.id, destination, now(), 1
from jsonb_to_recordset(%(reports)s) as report (event text, subject text, sent_to text[])
join alerts on alerts.event = report.event and alerts.subject = report.subject and ended_at is null, unnest(sent_to) as destination
on conflict (alert_id, destination, stage) do nothing

-- name: end_subjects
update alerts set ended_at = now(), ended_by = 'hermes'
from jsonb_to_recordset(%(reports)s) as report (event text, subject text)
where alerts.event = report.event and alerts.subject = report.subject and ended_at is null

-- name: plan_new
-- An alert that ended by itself and comes again within the window is no news, unless the destination is told of ends.
with told as materialized (
    select event, subject, max(sent_at) as sent_at
    from alerts join alert_sends on alert_id = id and destination = %(destination)s and stage = 'raised'
    where ended_by in ('hermes', 'quiet') and last_at > now() - make_interval(secs => 2 * %(window_s)s)
        and sent_at is not null and not %(tells_end)s
    group by event, subject
)
insert into alert_sends (alert_id, destination)
select id, %(destination)s from alerts left join told using (event, subject)
where last_at > now() - make_interval(secs => %(window_s)s)
    and level = any(%(levels)s) and (%(events)s::text[] is null or event = any(%(events)s))
    and (told.sent_at is null or told.sent_at < last_at - make_interval(secs => %(window_s)s))
    and not exists (select from alert_sends where alert_id = alerts.id and destination = %(destination)s and stage = 'raised')
    and not exists (
        select from alert_mutes
        where alert_mutes.event = alerts.event and alert_mutes.subject in ('', alerts.subject) and until > now()
    )
order by last_at desc limit 5000
on conflict (alert_id, destination, stage) do nothing

-- name: plan_again
update alert_sends set sent_at = null, not_before = now()
from alerts
where alerts.id = alert_id and ended_at is null and destination = %(destination)s and stage = 'raised'
    and last_at > sent_at + make_interval(secs => %(window_s)s)
    and not exists (
        select from alert_mutes
        where alert_mutes.event = alerts.event and alert_mutes.subject in ('', alerts.subject) and until > now()
    )

-- name: plan_ends
insert into alert_sends (alert_id, destination, stage)
select id, %(destination)s, 'ended'
from alerts join alert_sends on alert_id = id and destination = %(destination)s and stage = 'raised' and sent_at is not null
where last_at > now() - make_interval(secs => 2 * %(window_s)s) and ended_at > now() - make_interval(secs => %(window_s)s)
    and not exists (select from alert_sends where alert_id = alerts.id and destination = %(destination)s and stage = 'ended')
on conflict (alert_id, destination, stage) do nothing

-- name: add_destination
insert into alert_destinations (destination) values (%(destination)s) on conflict do nothing

-- name: hold_destination
select case when minute_at > clock_timestamp() - interval '1 minute' then messages else 0 end as used, failures
from alert_destinations where destination = %(destination)s and not_before <= clock_timestamp()
for update skip locked

-- name: due
select alerts.id, event, subject, level, facts, times, first_at, last_at, ended_at, ended_by, stage, tries, messages
from alert_sends join alerts on alerts.id = alert_id
where destination = %(destination)s and sent_at is null and not_before <= clock_timestamp() and last_at > now() - interval '1 day'
order by (level = 'critical') desc, first_at, alerts.id, stage desc
limit %(limit)s

-- name: claim
update alert_sends set tries = tries + 1, not_before = clock_timestamp() + make_interval(secs => %(lease_s)s)
from unnest(%(ids)s::bigint[], %(stages)s::text[]) as due (id, stage)
where alert_id = due.id and alert_sends.stage = due.stage and destination = %(destination)s

-- name: count_messages
update alert_destinations set messages = %(used)s + %(begun)s,
    minute_at = case when %(used)s = 0 then clock_timestamp() else minute_at end
where destination = %(destination)s

-- name: settle
with done as (
    update alert_sends set
        sent_at = case when %(failed)s::text is null then clock_timestamp() end,
        messages = messages + (%(failed)s::text is null)::int,
        failed = %(failed)s,
        not_before = clock_timestamp() + make_interval(secs => %(retry_in_s)s)
    from unnest(%(ids)s::bigint[], %(stages)s::text[], %(tries)s::bigint[]) as claimed (id, stage, tries)
    where alert_id = claimed.id and alert_sends.stage = claimed.stage and alert_sends.tries = claimed.tries
        and destination = %(destination)s and sent_at is null
    returning alert_id
)
select count(*) from done

-- name: settle_destination
update alert_destinations set
    failures = case when %(failed)s::text is null then 0 else failures + 1 end,
    not_before = greatest(not_before, clock_timestamp() + make_interval(secs => %(retry_in_s)s))
where destination = %(destination)s

-- name: end_quiet
update alerts set ended_at = now(), ended_by = 'quiet'
where ended_at is null and last_at < now() - make_interval(secs => %(window_s)s)

-- name: clean
delete from alerts where last_at < now() - make_interval(secs => %(keep_s)s) and ended_at < now() - make_interval(secs => %(keep_s)s)

-- name: clean_mutes
delete from alert_mutes where until < now()

-- name: end
update alerts set ended_at = coalesce(ended_at, now()), ended_by = case when ended_at is null then %(by)s else ended_by end
where id = %(id)s
returning id, event, subject, level, facts, times, first_at, last_at, ended_at, ended_by

-- name: list
select id, event, subject, level, facts, times, first_at, last_at, ended_at, ended_by from alerts
where (not %(is_open)s or ended_at is null) and (%(since)s::timestamptz is null or last_at >= %(since)s)
    and (%(before_at)s::timestamptz is null or (last_at, id) < (%(before_at)s, %(before_id)s::bigint))
order by last_at desc, id desc limit %(limit)s

-- name: told
select alert_id, destination, stage, tries, messages, sent_at, failed from alert_sends
where alert_id = any(%(ids)s::bigint[]) order by alert_id, destination, stage desc

-- name: mute
insert into alert_mutes (event, subject, until, by) values (%(event)s, %(subject)s, now() + make_interval(secs => %(for_s)s), %(by)s)
on conflict (event, subject) do update set until = excluded.until, by = excluded.by
returning event, subject, until, by

-- name: unmute
delete from alert_mutes where event = %(event)s and subject = %(subject)s and until > now()

-- name: mutes
select event, subject, until, by from alert_mutes where until > now() order by event, subject
