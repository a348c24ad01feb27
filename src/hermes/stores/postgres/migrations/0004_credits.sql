-- Credits: what was given and spent, line by line, and the balance that these lines add up to.

-- The projection. Whoever changes a user's credits locks this row first. It changes twice in every turn; with room on its page,
-- and no index that reads the two numbers, such a change touches no index at all.
create table credit_balances (
    user_id   uuid primary key references users,
    available bigint not null default 0 check (available >= 0),
    reserved  bigint not null default 0 check (reserved >= 0)
) with (fillfactor = 50);

-- The truth. A reserve, and the post or void that ends it, share one event: `{turn_id}/{attempt}`.
create table credit_entries (
    id         bigint generated always as identity primary key,
    user_id    uuid not null references users,
    event      text not null,
    kind       text not null check (kind in ('grant', 'reserve', 'post', 'void', 'refund')),
    amount     bigint not null check (amount > 0),
    turn_id    uuid,
    attempt    integer check (attempt > 0),
    created_at timestamptz not null default now(),
    unique (event, kind),
    check ((kind = 'grant') = (turn_id is null) and (kind = 'grant') = (attempt is null)),
    check (kind = 'grant' or event = turn_id || '/' || attempt)
);
create index credit_entries_by_user on credit_entries (user_id, id);
create index credit_entries_by_turn on credit_entries (turn_id) where turn_id is not null;
create unique index credit_reserve_ends_once on credit_entries (event) where kind in ('post', 'void');
create unique index credit_turn_is_paid_once on credit_entries (turn_id, kind) where kind in ('post', 'refund');

create view open_reserves as
select id, user_id, event, amount, turn_id, attempt, created_at
from credit_entries as reserve
where kind = 'reserve'
  and not exists (select from credit_entries as ending where ending.event = reserve.event and ending.kind in ('post', 'void'));

create function refuse_to_rewrite_credits() returns trigger language plpgsql as $$
begin
    raise exception 'the ledger of credits is append-only' using errcode = 'restrict_violation', hint = 'Write a new entry instead.';
end
$$;
create trigger credit_entries_are_append_only before update or delete or truncate on credit_entries
for each statement execute function refuse_to_rewrite_credits();
