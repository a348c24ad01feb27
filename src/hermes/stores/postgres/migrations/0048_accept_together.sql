-- Messages that come at the same time are accepted together: one trip and one commit for all of them.

-- As `accept_message` of migration 0039, which says what the outcomes are. With `waits` false it waits for no lock, and there is one more:
--     busy       another transaction has locked the sender, the user or the conversation: nothing was written
--
-- So no message waits in a batch for the lock of another one's conversation, and two batches that lock the same rows in another order do not
-- meet in a deadlock. What is left to wait for is an insert of the same row, which another call is about to commit.
create function accept_message(
    of_account text, of_event_key text, of_platform text, of_sender text, of_alias text, of_user uuid, programs text[], most_waiting integer,
    of_channel text, makes_shared boolean, makes_private boolean, means_own boolean,
    known_waiting integer, known_at bigint,
    of_turn uuid, sealed bytea, of_api_key uuid, trace text, defer_in_s double precision, waits boolean,
    out outcome text, out turn_id uuid, out conversation_id uuid, out user_id uuid, out seq bigint, out waiting integer, out waiting_at bigint
) language plpgsql set plan_cache_mode = force_generic_plan as $$
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
    if waits then
        select user_channels.user_id into holder from user_channels
        where account_id = of_account and platform = of_platform and sender_id = of_sender for no key update;
    else
        select user_channels.user_id into holder from user_channels join users on users.id = user_channels.user_id
        where account_id = of_account and platform = of_platform and sender_id = of_sender
        for no key update of user_channels for key share of users skip locked;
        if not found and exists (
            select from user_channels where account_id = of_account and platform = of_platform and sender_id = of_sender
        ) then
            outcome := 'busy';
            return;
        end if;
    end if;
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
    if not waits then
        perform from conversations
        where account_id = of_account and platform = of_platform and channel_id = of_channel for no key update skip locked;
        if not found and exists (
            select from conversations where account_id = of_account and platform = of_platform and channel_id = of_channel
        ) then
            outcome := 'busy';
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
        insert into procrastinate_jobs (queue_name, task_name, priority, lock, args, scheduled_at)
        values ('turns', 'turn', 0, 'in:' || conversation_id, jsonb_build_object('id', of_turn),
            case when defer_in_s > 0 then now() + make_interval(secs => defer_in_s) end);
    end if;
    outcome := 'new';
    turn_id := of_turn;
    user_id := of_user;
end $$;

-- Processes of the version before call it like this.
create or replace function accept_message(

    of_account text, of_event_key text, of_platform text, of_sender text, of_alias text, of_user uuid, programs text[], most_waiting integer,
    of_channel text, makes_shared boolean, makes_private boolean, means_own boolean,
    known_waiting integer, known_at bigint,
    of_turn uuid, sealed bytea, of_api_key uuid, trace text, defer_in_s double precision,
    out outcome text, out turn_id uuid, out conversation_id uuid, out user_id uuid, out seq bigint, out waiting integer, out waiting_at bigint
) language sql as $$
    select * from accept_message(
        of_account, of_event_key, of_platform, of_sender, of_alias, of_user, programs, most_waiting, of_channel, makes_shared,
        makes_private, means_own, known_waiting, known_at, of_turn, sealed, of_api_key, trace, defer_in_s, true
    )
$$;

-- Accepts several messages, in the order given, and waits for no lock. The values of one message are an object with the names of the statement
-- `accept` in inbox.sql; `envelopes` has their sealed envelopes.
create function accept_messages(messages jsonb, envelopes bytea[])
returns table (outcome text, turn_id uuid, conversation_id uuid, user_id uuid, seq bigint, waiting integer, waiting_at bigint)
language plpgsql set plan_cache_mode = force_generic_plan set lock_timeout = '500ms' as $$
#variable_conflict use_column
declare
    message record;
begin
    for message in
        select * from rows from (
            jsonb_to_recordset(messages) as (
                account text, event_key text, platform text, sender text, alias text, user_id uuid, programs text[], cap integer,
                channel_id text, is_shared boolean, is_private boolean, is_own boolean, known_waiting integer, known_at bigint,
                turn_id uuid, api_key_id uuid, traceparent text, defer_in_s double precision
            ),
            unnest(envelopes)
        ) as given (
            account, event_key, platform, sender, alias, of_user, programs, cap, channel_id, is_shared, is_private, is_own,
            known_waiting, known_at, of_turn, api_key_id, traceparent, defer_in_s, envelope
        )
    loop
        return query select accepted.outcome, accepted.turn_id, accepted.conversation_id, accepted.user_id, accepted.seq,
            accepted.waiting, accepted.waiting_at
        from accept_message(
            message.account, message.event_key, message.platform, message.sender, message.alias, message.of_user, message.programs,
            message.cap, message.channel_id, message.is_shared, message.is_private, message.is_own, message.known_waiting,
            message.known_at, message.of_turn, message.envelope, message.api_key_id, message.traceparent, message.defer_in_s, false
        ) as accepted;
    end loop;
end $$;
