-- Message graphs. A session's rows are read and written together, under the lock of its row in `sessions`.
-- Every body is sealed. What can be read is which rows there are, how long they are and how they are joined.

-- Each message once. The address is a keyed digest of the stored bytes: equal messages are seen to be equal, guesses cannot be tested.
create table graph_messages (
    session_id uuid not null references sessions on delete cascade,
    address    bytea not null check (length(address) = 16),
    body       bytea not null,
    primary key (session_id, address)
);

-- How the current list came about. A row brings new nodes (each named by its message's address; nodes are numbered from 0 in the order
-- of these rows) and says where they stand: [[start, stop, [node, …]], …] on the list before, or null: at its end.
create table graph_log (
    id         bigint generated always as identity,
    session_id uuid not null references sessions on delete cascade,
    nodes      bytea not null check (length(nodes) % 16 = 0),
    splices    jsonb,
    primary key (session_id, id)
);

-- Kept versions, oldest first, each as the splice that restores it from the next one: {"tail", "end": [node, …], "hunks": [[start, stop, [node, …]], …]}.
-- `number` names the version for good, `successor` is the number of the version that went on from it.
create table graph_versions (
    session_id uuid not null references sessions on delete cascade,
    place      integer not null,
    number     integer not null,
    successor  integer not null,
    kind       text not null,
    splice     jsonb not null,
    primary key (session_id, place)
);

-- What calls sent beyond the list, each once.
create table graph_overlays (
    session_id uuid not null references sessions on delete cascade,
    address    bytea not null check (length(address) = 16),
    body       bytea not null,
    primary key (session_id, address)
);

-- Responses, in the order of sampling. The message stands at `index` of the version with the number `head`.
create table graph_samples (
    id         bigint generated always as identity,
    session_id uuid not null references sessions on delete cascade,
    name       bytea not null check (length(name) = 16),   -- keyed digest of the sample id
    head       integer not null,
    index      integer not null,
    response   bytea not null check (length(response) = 32),
    overlay    bytea,
    body       bytea not null,                              -- the sample id and the call
    primary key (session_id, id),
    unique (session_id, name)
);

-- What was learned later about responses, in the order in which it came.
create table graph_annotations (
    id         bigint generated always as identity,
    session_id uuid not null references sessions on delete cascade,
    body       bytea not null,
    primary key (session_id, id)
);

-- Chats attached to messages, each once and after those attached inside it.
create table graph_chats (
    session_id uuid not null references sessions on delete cascade,
    number     integer not null,
    body       bytea not null,
    primary key (session_id, number)
);
