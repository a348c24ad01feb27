-- A message takes fewer trips to the database, and each costs less.
--
-- PostgreSQL plans a statement anew at each call if the plan for these values looks cheaper than the one for any; with tables in months it
-- always does, and the planning costs more than the statement. In these functions every statement finds its rows by a key, so the plan for
-- any values is as good.
alter function end_turn set plan_cache_mode = force_generic_plan;
alter function accept_message set plan_cache_mode = force_generic_plan;

-- The end of a model call of a turn: its row, and its result in the journal. The effect belongs to the attempt that finished it; if another
-- one began it, its beginning is reckoned from how long it took. Returns null, or the result of another attempt, which stands.
create function end_call(
    of_turn uuid, of_step text, of_index integer, of_attempt integer, of_epoch bigint, its_result bytea, its_facts jsonb, took_us bigint,
    its_call jsonb
) returns bytea language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
    known bytea;
begin
    insert into calls (
        id, turn_id, user_id, account_id, session_id, response_id, source, tier, backend, model, answered_by, attempts,
        tokens_in, tokens_out, cache_read, cache_write, cache_write_1h, micro_usd, rate, is_estimated, cache_hit, outcome,
        latency_ms, first_token_ms, day, purpose, agent, platform, api_key_id, error, waited_ms, times, plan
    )
    select
        id, turn_id, user_id, account_id, session_id, response_id, source, tier, backend, model, answered_by, attempts,
        tokens_in, tokens_out, cache_read, cache_write, cache_write_1h, micro_usd, rate, is_estimated, cache_hit, outcome,
        latency_ms, first_token_ms, day, purpose, agent, platform, api_key_id, error, waited_ms, times, plan
    from jsonb_to_record(its_call) as call (
        id uuid, turn_id uuid, user_id uuid, account_id text, session_id uuid, response_id text, source text, tier text, backend text,
        model text, answered_by text, attempts jsonb, tokens_in bigint, tokens_out bigint, cache_read bigint, cache_write bigint,
        cache_write_1h bigint, micro_usd bigint, rate jsonb, is_estimated boolean, cache_hit boolean, outcome text, latency_ms integer,
        first_token_ms integer, day date, purpose text, agent text, platform text, api_key_id uuid, error text, waited_ms integer,
        times integer, plan bigint
    )
    on conflict (id) do nothing;
    update run_events set result = its_result, facts = its_facts, done_at = clock_timestamp(), attempt = of_attempt, epoch = of_epoch,
        started_at = case when epoch = of_epoch then started_at else clock_timestamp() - took_us * interval '1 microsecond' end,
        event_number = nextval('event_numbers'), xid = pg_current_xact_id()
    where turn_id = of_turn and step = of_step and index = of_index and result is null;
    if found then
        return null;
    end if;
    select result into known from run_events where turn_id = of_turn and step = of_step and index = of_index;
    if known is null then
        raise exception 'the effect %[%] was never begun', of_step, of_index using errcode = 'no_data_found';
    end if;
    return known;
end $$;

-- The claim of a turn, with what its first steps need, so that none of them asks for itself: the statement that `claim` and `start` were in
-- inbox.sql, with the keys of the user. The session is the one that `find_current` finds. A credit is reserved for a user whom step
-- resolve_user will let pass. No row: the turn has ended.
create type started_turn as (
    turn_id uuid, conversation_id uuid, user_id uuid, seq bigint, epoch bigint, attempt integer, revived_after integer,
    age_s double precision, recent bigint, is_shared boolean, envelope bytea, traceparent text, joined_turns uuid[], joined_envelopes bytea[],
    state text, tier text, language text, referral_code text, trains boolean, referred_by uuid, created_at timestamptz,
    session_id uuid, session_user_id uuid, previous uuid, head text, length integer, credit text,
    generations integer[], masters text[], wraps bytea[], vault_numbers integer[], vault uuid
);
create function start_turn(of_turn uuid, of_process uuid, per_minute integer, idle_s double precision)
returns setof started_turn language plpgsql set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
    return query
    -- `before` is the attempt before this one. If it noted no failure, its worker was killed or has lost the claim: that is noted here.
    with before as (
        select turn_id, epoch, attempt, coalesce(claimed_at, started_at) as claimed_at, case when worker_epoch = epoch then worker end as worker
        from runs where turn_id = of_turn and state = 'running'
    ), conversation as (
        update conversations set epoch = epoch + 1
        where id = (select conversation_id from inbox where turn_id = of_turn and state = 'waiting')
        returning id, epoch, is_shared
    ), message as (
        update inbox set attempts = attempts + 1
        from conversation where turn_id = of_turn and inbox.conversation_id = conversation.id and state = 'waiting'
        returning turn_id, account_id, inbox.conversation_id, user_id, seq, epoch, attempts, envelope, received_at, is_shared, traceparent,
            revived_at, revived_after
    ), run as (
        insert into runs (turn_id, account_id, conversation_id, user_id, epoch, attempt, worker, worker_epoch, claimed_at)
        select turn_id, account_id, conversation_id, user_id, epoch, attempts, of_process, epoch, clock_timestamp() from message
        on conflict (turn_id) do update set epoch = excluded.epoch, attempt = excluded.attempt, worker = excluded.worker,
            worker_epoch = excluded.worker_epoch, claimed_at = excluded.claimed_at, state = 'running', ended_at = null
    ), cut_off as (
        insert into run_events (turn_id, step, index, type, attempt, epoch, facts, started_at, done_at, event_number, xid)
        select before.turn_id, 'attempt_cut_off', (
            select 1 + coalesce(max(index), -1) from run_events where turn_id = of_turn and step = 'attempt_cut_off'
        ), 'attempt_cut_off', before.attempt, before.epoch, jsonb_strip_nulls(jsonb_build_object('worker', before.worker, 'step', (
            select case when step = 'compact' then 'load_history' when step = 'call_model' and index > 0 then 'run_tools' else step end
            from run_events
            where turn_id = of_turn and type = 'effect' and result is null and run_events.epoch = before.epoch order by id desc limit 1
        ))), before.claimed_at, clock_timestamp(), nextval('event_numbers'), pg_current_xact_id()
        from before join message on message.turn_id = before.turn_id
        where not exists (
            select from run_events where turn_id = of_turn and step = 'attempt_failed' and run_events.epoch = before.epoch
        )
        on conflict (turn_id, step, index) do nothing
    ), claimed as (
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
    ), newest as (
        select sessions.id, message.is_shared
        from message cross join lateral (
            select id from sessions where conversation_id = message.conversation_id order by number desc limit 1
        ) as sessions
    ), session as (
        update sessions set last_at = clock_timestamp() from newest
        where sessions.id = newest.id and last_at > clock_timestamp() - idle_s * interval '1 second' and ended_at is null
            and sessions.is_shared = newest.is_shared
        returning sessions.id, sessions.user_id, previous, head, length
    )
    select claimed.*, state, tier, language, referral_code, trains, referred_by, users.created_at,
        session.id, session.user_id, previous, head, length,
        case when state = 'active' and (platform = 'rest' or recent <= per_minute)
            then reserve_credit(claimed.user_id, claimed.turn_id, 1) end,
        generations, masters, wraps, vault_numbers, vault
    from claimed join users on users.id = claimed.user_id join conversations on conversations.id = claimed.conversation_id
    left join session on true
    left join (
        select array_agg(generation) as generations, array_agg(master) as masters, array_agg(wrapped) as wraps,
            array_agg(vault_number) as vault_numbers
        from data_keys where data_keys.user_id = (select user_id from claimed)
    ) as keys on true
    left join vault_buckets on bucket = get_byte(uuid_send(claimed.user_id), 15);
end $$;

-- Fetches jobs of the queue of turns, as `fetch` in job_queue.sql does, and claims their turns with it: one trip and one commit for both. A
-- turn whose conversation is locked is not waited for; it comes without its claim, as every other job does.
create function start_turns(
    of_queue text, of_worker bigint, most integer, of_process uuid, per_minute integer, idle_s double precision
) returns table (job_id bigint, job_task text, subject uuid, tries integer, started started_turn)
language plpgsql set plan_cache_mode = force_generic_plan set lock_timeout = '200ms' as $$
#variable_conflict use_column
declare
    taken record;
begin
    for taken in
        with candidate as (
            select id from procrastinate_jobs as job
            where status = 'todo' and queue_name = of_queue and (scheduled_at is null or scheduled_at <= now()) and not exists (
                select from procrastinate_jobs as other
                where job.lock is not null and other.lock = job.lock and (
                    other.status = 'doing'
                    or (other.status = 'todo' and (other.priority > job.priority or (other.priority = job.priority and other.id < job.id)))
                )
            )
            order by priority desc, id limit most
            for update of job skip locked
        )
        update procrastinate_jobs as job set status = 'doing', worker_id = of_worker
        from candidate where job.id = candidate.id
        returning job.id, task_name, (args ->> 'id')::uuid as subject_id, attempts
    loop
        job_id := taken.id;
        job_task := taken.task_name;
        subject := taken.subject_id;
        tries := taken.attempts;
        started := null;
        if job_task = 'turn' then
            perform from conversations
            where id = (select conversation_id from inbox where turn_id = taken.subject_id) for update skip locked;
            if found then
                select * into started from start_turn(taken.subject_id, of_process, per_minute, idle_s);
            end if;
        end if;
        return next;
    end loop;
end $$;
