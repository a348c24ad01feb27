-- What tools do: effects that happen once, and offers that wait for a word.

-- One row per turn and index of a call that changes something. `result` is sealed; without it, the call began and may have happened.
create table tool_effects (
    turn_id    uuid not null,
    call_index integer not null check (call_index >= 0),
    user_id    uuid not null references users,
    tool       text not null,
    result     bytea,
    began_at   timestamptz not null default clock_timestamp(),
    ended_at   timestamptz,
    primary key (turn_id, call_index)
);
create index tool_effects_by_user on tool_effects (user_id);

create table tool_offers (
    user_id    uuid not null references users,
    code       text not null,
    turn_id    uuid not null,
    tool       text not null,
    terms      bytea not null,                    -- sealed
    valid_until timestamptz not null,
    taken_at   timestamptz,
    primary key (user_id, code)
);
