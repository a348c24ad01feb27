-- The end of an ordinary turn in one statement: a turn that a model answered, that is charged, and that only appends to the list it was
-- shown. Any other end takes the statements of the single stores.
--
-- A function of several statements, because each of them sees what the holder of a lock before us committed; one statement would not. What
-- it writes is what the stores write: hold, append, post, log, put, finish and note; then the turn's job has ended too.

create function end_turn(
    of_turn uuid, of_conversation uuid, of_epoch bigint, of_attempt integer, of_user uuid,
    -- the graph: what `append` in graphs.sql takes
    of_session uuid, known_head text, new_head text, added integer, new_mark uuid, new_nodes bytea,
    addresses bytea[], bodies bytea[], overlays bytea[], overlay_bodies bytea[],
    names bytea[], indices integer[], responses bytea[], sample_overlays bytea[], sample_bodies bytea[],
    -- the interaction, and the answer's parts
    of_platform text, meta jsonb, of_seq bigint, of_thread text, replies_to text, first_state text, parts bytea[], are_messages boolean[],
    -- the journal: [[type, facts, began us ago, ended us ago], …]; the last note is that of the turn's end
    notes jsonb,
    is_learned boolean
) returns text language plpgsql as $$
declare
    version integer;
    before integer;
    chat record;
    job bigint;
    took bigint;
begin
    select account_id, platform, channel_id into chat from conversations where id = of_conversation and epoch = of_epoch for update;
    if not found then
        return 'claim lost';
    end if;
    select live, length into version, before from sessions
    where id = of_session and head = known_head
        and not exists (select from graph_samples where session_id = of_session and name = any(names))
    for no key update;
    if not found then
        return 'not ordinary';
    end if;
    if post_credit(of_turn) is null then
        return 'not ordinary';
    end if;
    -- Nothing was written before this line, unless the turn ends here.
    update sessions set head = new_head, length = before + added, mark = new_mark, last_at = clock_timestamp() where id = of_session;
    insert into graph_messages (session_id, address, body)
    select of_session, address, body from unnest(addresses, bodies) as new (address, body) on conflict do nothing;
    insert into graph_overlays (session_id, address, body)
    select of_session, address, body from unnest(overlays, overlay_bodies) as new (address, body) on conflict do nothing;
    insert into graph_log (session_id, nodes) values (of_session, new_nodes);
    insert into graph_samples (session_id, name, head, index, response, overlay, body)
    select of_session, name, version, before + index, response, overlay, body
    from unnest(names, indices, responses, sample_overlays, sample_bodies)
        with ordinality as new (name, index, response, overlay, body, place)
    order by place;
    update inbox set state = 'done', ended_at = now() where turn_id = of_turn and state = 'waiting';
    if found then
        update runs set state = 'done', ended_at = now() where turn_id = of_turn;
    end if;
    insert into interactions (turn_id, account_id, user_id, session_id, platform, meta)
    values (of_turn, chat.account_id, of_user, of_session, of_platform, meta)
    on conflict (turn_id) do nothing;
    insert into outbox
        (account_id, platform, channel_id, conversation_id, user_id, turn_id, seq, part, body, is_message, thread, reply_to, state)
    select chat.account_id, chat.platform, chat.channel_id, of_conversation, of_user, of_turn, of_seq, place - 1, body, is_message, of_thread,
        case place when 1 then replies_to end, first_state
    from unnest(parts, are_messages) with ordinality as part (body, is_message, place)
    order by place
    on conflict (turn_id, news, part) do nothing;
    if is_learned then
        perform procrastinate_defer_jobs_v1(array[row(
            'memory', 'memory', 0, 'memory:' || of_user, null, jsonb_build_object('id', of_turn), null
        )::procrastinate_job_to_defer_v1]);
    end if;
    delete from procrastinate_jobs
    where lock = 'in:' || of_conversation and status = 'doing' and task_name = 'turn' and args ->> 'id' = of_turn::text
    returning id into job;
    if job is not null and exists (select from procrastinate_jobs where lock = 'in:' || of_conversation and status = 'todo') then
        perform pg_notify('procrastinate_queue_v1#turns', json_build_object('type', 'job_inserted', 'job_id', job)::text);
    end if;
    -- The caller made its notes before this statement began; the last one also has the time that it took.
    took := extract(epoch from clock_timestamp() - statement_timestamp()) * 1000000;
    insert into run_events (turn_id, step, index, type, attempt, epoch, facts, started_at, done_at, event_number, xid)
    select of_turn, type, coalesce(last, -1) + row_number() over (partition by type order by place), type, of_attempt, of_epoch,
        case when is_end then fact || jsonb_build_object('us', lasted, 'ms', round(lasted / 1000.0)) else fact end,
        statement_timestamp() - began * interval '1 microsecond',
        statement_timestamp() - (ended - case when is_end then took else 0 end) * interval '1 microsecond',
        nextval('event_numbers'), pg_current_xact_id()
    from (
        select note ->> 0 as type, note -> 1 as fact, (note ->> 2)::bigint as began, (note ->> 3)::bigint as ended, place,
            place = jsonb_array_length(notes) as is_end, (note -> 1 ->> 'us')::bigint + took as lasted
        from jsonb_array_elements(notes) with ordinality as noted (note, place)
    ) as noted
    left join (select step, max(index) as last from run_events where turn_id = of_turn group by step) as known on known.step = type
    order by place;
    return 'ended';
end $$;
