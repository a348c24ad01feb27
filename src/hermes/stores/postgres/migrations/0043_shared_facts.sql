-- Single facts that a user shares with a group. A fact that is forgotten or replaced is shared no more.
create table shared_facts (
    conversation_id uuid not null references conversations on delete cascade,
    user_id         uuid not null references users,
    fact_id         uuid not null references user_memory on delete cascade,
    shared_at       timestamptz not null default now(),
    primary key (conversation_id, user_id, fact_id)
);
create index shared_facts_by_fact on shared_facts (fact_id);
