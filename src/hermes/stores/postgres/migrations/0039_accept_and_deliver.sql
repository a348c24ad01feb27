-- Accepting a message, and settling one that was sent, in one trip each: what the statement before would have had to return to the next one
-- stays in the database. Within a function each statement has a snapshot of its own, and sees what a holder of a lock before it committed.

-- Grows with every message, whichever version of Hermes stores it: how many have come since some moment.
create sequence inbox_numbers;
alter table inbox add column number bigint;
alter table inbox alter column number set default nextval('inbox_numbers');
alter sequence inbox_numbers owned by inbox.number;

-- The job queue's own diary of its jobs: two rows for each job, which go when the job ends. Nothing reads it; Hermes needs to know only when
-- a job was deferred.
alter table procrastinate_jobs add column deferred_at timestamptz not null default now();
drop trigger if exists procrastinate_trigger_status_events_insert_v1 on procrastinate_jobs;
drop trigger if exists procrastinate_trigger_status_events_update_v1 on procrastinate_jobs;
drop trigger if exists procrastinate_trigger_scheduled_events_v1 on procrastinate_jobs;
drop trigger if exists procrastinate_trigger_abort_requested_events_v1 on procrastinate_jobs;

-- Stores a message and, with `defer_in_s`, defers its turn. The caller has sealed the envelope for `of_user` under the name `of_channel`, and
-- hears by the outcome if either was wrong; then nothing was written:
--     new        stored
--     known      its event came before; the values are those of the first message
--     full       the account has `most_waiting` messages that wait
--     person     the sender also writes where people write, and the caller may not speak for them
--     unknown    the sender is not a user, or another one than `of_user`
--     elsewhere  the conversation of this name is not for this message
--
-- `known_waiting` and `known_at` are what an earlier call returned for the account: so many messages waited when the last number was that.
-- No more wait now than those and all that came since, so they are counted again only if that might be too many. The margin is for messages
-- that had a number then, and were not committed yet.
--
-- A platform says which of its chats are groups. The API has only names of channels: there a second user makes a conversation shared, unless
-- it is the private one of its user.
create function accept_message(
    of_account text, of_event_key text, of_platform text, of_sender text, of_alias text, of_user uuid, programs text[], most_waiting integer,
    of_channel text, makes_shared boolean, makes_private boolean, means_own boolean,
    known_waiting integer, known_at bigint,
    of_turn uuid, sealed bytea, of_api_key uuid, trace text, defer_in_s double precision,
    out outcome text, out turn_id uuid, out conversation_id uuid, out user_id uuid, out seq bigint, out waiting integer, out waiting_at bigint
) language plpgsql as $$
#variable_conflict use_column
declare
    margin constant integer := 1000;
    holder uuid;
    last_number bigint := coalesce(pg_sequence_last_value('inbox_numbers'), 0);
begin
    -- Before the sender's row is locked: messages of one user wait for each other there.
    if programs is not null and exists (
        select from user_channels as named join user_channels as other on other.user_id = named.user_id
        where named.account_id = of_account and named.platform = of_platform and named.sender_id = of_sender
            and not other.platform = any(programs)
    ) then
        outcome := 'person';
        return;
    end if;
    select user_channels.user_id into holder from user_channels
    where account_id = of_account and platform = of_platform and sender_id = of_sender for no key update;
    if holder is distinct from of_user then
        outcome := 'unknown';
        return;
    end if;
    -- After it: of two copies of one event the second waits for the first, and finds it here.
    select 'known', first.turn_id, first.conversation_id, first.user_id, first.seq into outcome, turn_id, conversation_id, user_id, seq
    from inbox as first where account_id = of_account and event_key = of_event_key;
    if found then
        return;
    end if;
    if coalesce(known_waiting + last_number - known_at + margin >= most_waiting, true) then
        select count(*) into waiting
        from (select from inbox where account_id = of_account and state = 'waiting' limit most_waiting) as found;
        waiting_at := last_number;
        if waiting >= most_waiting then
            outcome := 'full';
            return;
        end if;
    end if;
    insert into conversations (account_id, platform, channel_id, user_id, last_seq, is_shared, is_private)
    values (of_account, of_platform, of_channel, of_user, 1, makes_shared, makes_private and not makes_shared)
    on conflict (account_id, platform, channel_id) do update set last_seq = conversations.last_seq + 1,
        is_shared = conversations.is_shared or excluded.is_shared
            or (excluded.platform = 'rest' and conversations.user_id <> excluded.user_id),
        is_private = (conversations.is_private or means_own) and not (conversations.is_shared or excluded.is_shared)
    where excluded.platform <> 'rest'
        or (conversations.user_id = excluded.user_id and (conversations.is_private or not means_own or not exists (
            select from inbox where inbox.conversation_id = conversations.id and inbox.user_id <> excluded.user_id
        )))
        or (conversations.user_id <> excluded.user_id and not conversations.is_private and not means_own)
    returning id, last_seq into conversation_id, seq;
    if not found then
        outcome := 'elsewhere';
        return;
    end if;
    insert into inbox (turn_id, account_id, event_key, conversation_id, user_id, seq, envelope, api_key_id, traceparent)
    values (of_turn, of_account, of_event_key, conversation_id, of_user, seq, sealed, of_api_key, trace)
    on conflict (account_id, event_key) do nothing;
    if not found then
        -- Another sender's copy of the event was committed while this one waited for the conversation.
        select 'known', first.turn_id, first.conversation_id, first.user_id, first.seq into outcome, turn_id, conversation_id, user_id, seq
        from inbox as first where account_id = of_account and event_key = of_event_key;
        return;
    end if;
    update user_channels set last_inbound_at = now() where account_id = of_account and platform = of_platform and sender_id = of_sender;
    if of_alias is not null then
        insert into user_channels (account_id, platform, sender_id, user_id) values (of_account, of_platform, of_alias, of_user)
        on conflict do nothing;
    end if;
    if defer_in_s is not null then
        perform procrastinate_defer_jobs_v1(array[row(
            'turns', 'turn', 0, 'in:' || conversation_id, null, jsonb_build_object('id', of_turn),
            case when defer_in_s > 0 then now() + make_interval(secs => defer_in_s) end
        )::procrastinate_job_to_defer_v1]);
    end if;
    outcome := 'new';
    turn_id := of_turn;
    user_id := of_user;
end $$;

-- Takes the oldest message of a conversation that is not settled, if it is due and no other worker is sending it.
create function take_outbox_message(of_conversation uuid, cut_off_s double precision)
returns table (message outbox, last_inbound_at timestamptz, unreachable_since timestamptz, traceparent text) language plpgsql as $$
#variable_conflict use_column
begin
    return query
    with head as (
        select id, state, not_before, touched_at from outbox
        where conversation_id = of_conversation and state in ('pending', 'attempting')
        order by seq, (news <> '' or is_late), coalesce(place, id) limit 1
        for update
    )
    update outbox set state = 'attempting', tries = tries + 1, touched_at = now(),
        doubts = doubts + (head.state = 'attempting')::int,
        doubted_at = case when head.state = 'attempting' then coalesce(doubted_at, head.touched_at) else doubted_at end
    from head
    where outbox.id = head.id and head.not_before <= now()
        and (head.state = 'pending' or head.touched_at < now() - make_interval(secs => cut_off_s))
    returning outbox,
        (select received_at from inbox where inbox.conversation_id = outbox.conversation_id order by inbox.seq desc limit 1),
        (select conversations.unreachable_since from conversations where conversations.id = outbox.conversation_id),
        (select inbox.traceparent from inbox where inbox.turn_id = outbox.turn_id);
end $$;

-- Notes that a message was sent, with an event in the journal of its turn, and takes the next one. A late call, after another worker took the
-- message, notes nothing.
create function settle_sent_message(
    of_message bigint, of_try integer, of_account text, of_platform text, its_id text, how text, why text, failed_rank smallint, event_facts jsonb,
    of_conversation uuid, cut_off_s double precision
) returns table (message outbox, last_inbound_at timestamptz, unreachable_since timestamptz, traceparent text) language plpgsql as $$
#variable_conflict use_column
declare
    of_turn uuid;
begin
    with early as (  -- a receipt of a failure stays for `take_early_receipt`: this does not hold the conversation
        delete from early_receipts
        where account_id = of_account and platform = of_platform and message_id = its_id and rank < failed_rank
        returning rank, received_at
    )
    update outbox set state = 'sent', touched_at = now(), not_before = now(), outcome = how, reason = why, message_id = its_id,
        rank = greatest(1, coalesce((select rank from early), 0)), ranked_at = coalesce((select received_at from early), now())
    where id = of_message and state = 'attempting' and tries = of_try
    returning turn_id into of_turn;
    if found then
        insert into run_events (turn_id, step, index, type, attempt, facts, started_at, done_at, event_number, xid)
        select turn_id, 'response_delivered', (
            select 1 + coalesce(max(index), -1) from run_events where turn_id = of_turn and step = 'response_delivered'
        ), 'response_delivered', attempts, event_facts, statement_timestamp(), statement_timestamp(), nextval('event_numbers'),
            pg_current_xact_id()
        from inbox where turn_id = of_turn;
    end if;
    return query select * from take_outbox_message(of_conversation, cut_off_s);
end $$;
