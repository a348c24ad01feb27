-- Messages that come at the same time are accepted together: one trip and one commit for all of them.
--
-- Each is accepted by `accept_message`, in the order given. The values of one message are an object with that function's arguments; `sealed`
-- has their envelopes. The outcomes are its outcomes, and one more:
--     busy       another transaction has locked the sender, the user or the conversation: nothing was written
--
-- So no message waits here for the lock of another one's conversation, and two calls that lock the same rows in another order do not meet in
-- a deadlock. What is left to wait for is an insert of the same row, which another call is about to commit.
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
        if is_locked_for_accept(message.account, message.platform, message.sender, message.of_user, message.channel_id) then
            return query select 'busy', null::uuid, null::uuid, null::uuid, null::bigint, null::integer, null::bigint;
        else
            return query select accepted.outcome, accepted.turn_id, accepted.conversation_id, accepted.user_id, accepted.seq,
                accepted.waiting, accepted.waiting_at
            from accept_message(
                message.account, message.event_key, message.platform, message.sender, message.alias, message.of_user, message.programs,
                message.cap, message.channel_id, message.is_shared, message.is_private, message.is_own, message.known_waiting,
                message.known_at, message.of_turn, message.envelope, message.api_key_id, message.traceparent, message.defer_in_s
            ) as accepted;
        end if;
    end loop;
end $$;

-- Whether another transaction has locked what `accept_message` will lock; if not, it is locked here.
create function is_locked_for_accept(of_account text, of_platform text, of_sender text, of_user uuid, of_channel text)
returns boolean language plpgsql set plan_cache_mode = force_generic_plan as $$
begin
    perform from user_channels
    where account_id = of_account and platform = of_platform and sender_id = of_sender for no key update skip locked;
    if not found then
        -- A row that is not there is no lock: `accept_message` says that the sender is unknown.
        return exists (select from user_channels where account_id = of_account and platform = of_platform and sender_id = of_sender);
    end if;
    perform from users where id = of_user for key share skip locked;
    if not found then
        return true;
    end if;
    perform from conversations
    where account_id = of_account and platform = of_platform and channel_id = of_channel for no key update skip locked;
    return not found and exists (
        select from conversations where account_id = of_account and platform = of_platform and channel_id = of_channel
    );
end $$;
