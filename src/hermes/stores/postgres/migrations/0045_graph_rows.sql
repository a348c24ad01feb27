-- The tables of a graph in one place: who forgets a user, leaves an account or keeps a retention deletes the same rows. Processes of the
-- version before name the tables themselves.

create function drop_graph_rows(of_sessions uuid[]) returns void language plpgsql as $$
begin
    delete from graph_messages where session_id = any(of_sessions);
    delete from graph_log where session_id = any(of_sessions);
    delete from graph_versions where session_id = any(of_sessions);
    delete from graph_overlays where session_id = any(of_sessions);
    delete from graph_samples where session_id = any(of_sessions);
    delete from graph_annotations where session_id = any(of_sessions);
    delete from graph_chats where session_id = any(of_sessions);
end
$$;

-- The session stays as an empty frame that goes on no more, and no client's chat is recognised by it. Returns how many sessions there were.
create function drop_graphs(of_sessions uuid[]) returns bigint language plpgsql as $$
begin
    update sessions set length = 0, live = 0, erased = null, mark = gen_random_uuid(), ended_at = coalesce(ended_at, clock_timestamp())
    where id = any(of_sessions);
    perform drop_graph_rows(of_sessions);
    delete from door_samples where session_id = any(of_sessions);
    return cardinality(of_sessions);
end
$$;
