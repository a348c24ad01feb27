-- Inbound messages. Lock order everywhere: the conversation's row first, then the turn's.

-- name: accept
select outcome, turn_id, conversation_id, user_id, seq, waiting, waiting_at from accept_message(
    %(account)s, %(event_key)s, %(platform)s, %(sender)s, %(alias)s, %(user_id)s, %(programs)s, %(cap)s,
    %(channel_id)s, %(is_shared)s, %(is_private)s, %(is_own)s, %(known_waiting)s, %(known_at)s,
    %(turn_id)s, %(envelope)s, %(api_key_id)s, %(traceparent)s, %(defer_in_s)s
)

-- name: accept_together
select outcome, turn_id, conversation_id, user_id, seq, waiting, waiting_at from accept_messages(%(messages)s, %(envelopes)s)

-- name: sender_keys
select user_id, generation, master, wrapped, vault, vault_number
from user_channels join data_keys using (user_id) left join vault_buckets on bucket = get_byte(uuid_send(user_id), 15)
where account_id = %(account)s and platform = %(platform)s and sender_id = %(sender)s

-- name: keys_of_senders
select place, user_id, generation, master, wrapped, vault, vault_number
from unnest(%(accounts)s::text[], %(platforms)s::text[], %(senders)s::text[]) with ordinality as given (account_id, platform, sender_id, place)
join user_channels using (account_id, platform, sender_id)
join data_keys using (user_id) left join vault_buckets on bucket = get_byte(uuid_send(user_id), 15)

-- name: find_channel
-- The conversation that a client means by a name, or by none: as accept_message finds it, of those that there are.
select channel_id from conversations
left join user_channels as own
    on own.account_id = conversations.account_id and own.platform = conversations.platform and own.sender_id = %(user)s
where conversations.account_id = %(account)s and conversations.platform = %(platform)s and channel_id = any(%(names)s)
    and (conversations.user_id is not distinct from own.user_id or not (is_private or %(is_own)s))
order by %(is_own)s and is_private desc, array_position(%(names)s, channel_id) limit 1

-- name: add
insert into inbox (turn_id, account_id, event_key, conversation_id, user_id, seq, envelope, api_key_id, traceparent)
values (%(turn_id)s, %(account)s, %(event_key)s, %(conversation_id)s, %(user_id)s, %(seq)s, %(envelope)s, %(api_key_id)s, %(traceparent)s)
on conflict (account_id, event_key) do nothing
returning turn_id

-- name: claim
-- `before` is the attempt before this one. If it noted no failure, its worker was killed or has lost the claim: that is noted here.
with before as (
    select turn_id, epoch, attempt, coalesce(claimed_at, started_at) as claimed_at, case when worker_epoch = epoch then worker end as worker
    from runs where turn_id = %(turn_id)s and state = 'running'
), conversation as (
    update conversations set epoch = epoch + 1
    where id = (select conversation_id from inbox where turn_id = %(turn_id)s and state = 'waiting')
    returning id, epoch, is_shared
), message as (
    update inbox set attempts = attempts + 1
    from conversation where turn_id = %(turn_id)s and inbox.conversation_id = conversation.id and state = 'waiting'
    returning turn_id, account_id, inbox.conversation_id, user_id, seq, epoch, attempts, envelope, received_at, is_shared, traceparent,
        revived_at, revived_after
), run as (
    insert into runs (turn_id, account_id, conversation_id, user_id, epoch, attempt, worker, worker_epoch, claimed_at)
    select turn_id, account_id, conversation_id, user_id, epoch, attempts, %(worker)s, epoch, clock_timestamp() from message
    on conflict (turn_id) do update set epoch = excluded.epoch, attempt = excluded.attempt, worker = excluded.worker,
        worker_epoch = excluded.worker_epoch, claimed_at = excluded.claimed_at, state = 'running', ended_at = null
), cut_off as (
    insert into run_events (turn_id, step, index, type, attempt, epoch, facts, started_at, done_at, event_number, xid)
    select before.turn_id, 'attempt_cut_off', (
        select 1 + coalesce(max(index), -1) from run_events where turn_id = %(turn_id)s and step = 'attempt_cut_off'
    ), 'attempt_cut_off', before.attempt, before.epoch, jsonb_strip_nulls(jsonb_build_object('worker', before.worker, 'step', (
        select case when step = 'compact' then 'load_history' when step = 'call_model' and index > 0 then 'run_tools' else step end
        from run_events
        where turn_id = %(turn_id)s and type = 'effect' and result is null and run_events.epoch = before.epoch order by id desc limit 1
    ))), before.claimed_at, clock_timestamp(), nextval('event_numbers'), pg_current_xact_id()
    from before join message on message.turn_id = before.turn_id
    where not exists (
        select from run_events where turn_id = %(turn_id)s and step = 'attempt_failed' and run_events.epoch = before.epoch
    )
    on conflict (turn_id, step, index) do nothing
)

-- name: claim_rest
select turn_id, conversation_id, user_id, seq, epoch, attempts as attempt, coalesce(revived_after, 0) as revived_after,
    extract(epoch from now() - coalesce(revived_at, received_at))::float8 as age_s,
    (
        select count(*) from inbox as recent
        where recent.conversation_id = message.conversation_id and recent.seq between message.seq - 99 and message.seq
            and recent.user_id = message.user_id and recent.received_at > message.received_at - interval '1 minute'
            and recent.joined_to is null
    ) as recent,
    is_shared, envelope, traceparent,
    (select array_agg(more.turn_id order by more.seq) from inbox as more where more.joined_to = message.turn_id) as joined_turns,
    (select array_agg(more.envelope order by more.seq) from inbox as more where more.joined_to = message.turn_id) as joined_envelopes
from message

-- name: start
-- As `claim` and `claim_rest`, with what the first steps of the turn need. Migration 0046 explains it.
select * from start_turn(%(turn_id)s, %(worker)s, %(per_minute)s, %(idle_s)s)

-- name: start_turns
-- Fetch jobs of turns, and claim their turns.
select job_id, job_task, subject, tries, (started).*
from start_turns(%(queue)s, %(worker_id)s, %(limit)s, %(worker)s, %(per_minute)s, %(idle_s)s)

-- name: waiting_behind
select turn_id, conversation_id, inbox.user_id, received_at, is_shared, envelope, traceparent
from inbox join conversations on conversations.id = conversation_id
where conversation_id = %(conversation_id)s and seq > %(seq)s and state = 'waiting' and attempts = 0
order by seq limit %(limit)s

-- name: join
update inbox set state = 'done', ended_at = now(), joined_to = %(turn_id)s where turn_id = any(%(turns)s) and state = 'waiting'

-- name: uncount_attempt
update inbox set attempts = attempts - 1
from conversations
where turn_id = %(turn_id)s and state = 'waiting' and attempts > 0
    and conversations.id = %(conversation_id)s and conversations.epoch = %(epoch)s

-- name: hold
select from conversations where id = %(conversation_id)s and epoch = %(epoch)s for update

-- name: finish
with message as (
    update inbox set state = 'done', ended_at = now() where turn_id = %(turn_id)s and state = 'waiting' returning turn_id
)
update runs set state = 'done', ended_at = now() from message where runs.turn_id = message.turn_id

-- name: bury
with message as (
    update inbox set state = 'dead', reason = %(reason)s, ended_at = now() where turn_id = %(turn_id)s and state = 'waiting' returning turn_id
)
update runs set state = 'dead', ended_at = now() from message where runs.turn_id = message.turn_id

-- name: lock_conversation
select from conversations where id = (select conversation_id from inbox where turn_id = %(turn_id)s) for update

-- name: burial
-- Of a message that was given up: whether a model or a tool has a result for it that the journal's retention has emptied.
select exists (
    select from run_events
    where run_events.turn_id = inbox.turn_id and step in ('call_model', 'run_tools', 'compact') and done_at is not null and request is null
)
from inbox where turn_id = %(turn_id)s and state = 'dead'

-- name: drop_open_effects
-- What was begun and has no result: the conversation may have gone on since, so the request is made anew.
delete from run_events where turn_id = %(turn_id)s and step in ('call_model', 'compact') and done_at is null

-- name: revive
update inbox set state = 'waiting', reason = null, ended_at = null, revived_at = now(), revived_after = attempts
where turn_id = %(turn_id)s and state = 'dead'

-- name: stop
-- The epoch rises only if the newest claim is this turn's own: then its worker is fenced. Another turn of the conversation keeps its claim.
with message as (
    update inbox set state = 'done', reason = 'stopped by its client', ended_at = now(), stopped_at = now()
    where turn_id = %(turn_id)s and state = 'waiting'
    returning turn_id
), run as (
    update runs set state = 'done', ended_at = now() from message where runs.turn_id = message.turn_id returning runs.conversation_id, runs.epoch
), fenced as (
    update conversations set epoch = conversations.epoch + 1 from run
    where conversations.id = run.conversation_id and conversations.epoch = run.epoch
)
select turn_id from message

-- name: origin
select conversations.account_id as account, platform, channel_id, inbox.state <> 'waiting' as has_ended,
       users.state = 'deleted' as is_sender_erased, attempts > 0 as is_started, stopped_at is not null as is_stopped,
       array(
           select sender_id from user_channels
           where user_id = users.id and account_id = conversations.account_id and user_channels.platform = conversations.platform
       ) as user_names,
       exists (select from user_channels where user_id = users.id and user_channels.platform not in ('rest', 'completions')) as is_person
from inbox join conversations on conversations.id = conversation_id join users on users.id = inbox.user_id
where turn_id = %(turn_id)s

-- name: message_of
select turn_id, conversation_id, inbox.user_id, received_at, is_shared, envelope, traceparent,
    (select array_agg(more.turn_id order by more.seq) from inbox as more where more.joined_to = inbox.turn_id) as joined_turns,
    (select array_agg(more.envelope order by more.seq) from inbox as more where more.joined_to = inbox.turn_id) as joined_envelopes
from inbox join conversations on conversations.id = conversation_id where turn_id = %(turn_id)s

-- name: last_private
select turn_id, conversation_id, inbox.user_id, received_at, is_shared, envelope
from inbox join conversations on conversations.id = conversation_id
where inbox.user_id = %(user_id)s and inbox.account_id = %(account)s and not is_shared
order by received_at desc limit 1

-- name: newest
select turn_id, conversation_id, inbox.user_id, received_at, is_shared, envelope
from inbox join conversations on conversations.id = conversation_id
where inbox.account_id = %(account)s and platform = %(platform)s
order by received_at desc limit 1

-- name: waiting
select count(*) from inbox where state = 'waiting'
