-- A worker that was paused before it reserved, and wakes up after another one has ended the turn, reserves nothing: nobody would ever give
-- it back, but for the sweep after a quarter of an hour. Whoever ends a turn holds the balance while they do, so what is seen here is true.

create or replace function reserve_credit(of_user uuid, of_turn uuid, wanted integer) returns text language plpgsql as $$
declare
    outcome text;
begin
    perform from credit_balances where user_id = of_user for update;
    with turn as (
        select count(*) filter (where kind = 'reserve') as reserves,
               count(*) filter (where kind = 'void') as voids,
               count(*) filter (where kind = 'post') as posts,
               count(*) filter (where user_id <> of_user) as of_others,
               exists (select from inbox where turn_id = of_turn and state <> 'waiting') as has_ended
        from credit_entries where turn_id = of_turn
    ), entry as (
        insert into credit_entries (user_id, event, kind, amount, turn_id, attempt)
        select user_id, of_turn || '/' || (reserves + 1), 'reserve', wanted, of_turn, reserves + 1
        from turn, credit_balances
        where user_id = of_user and available >= wanted and of_others = 0 and reserves = voids and not has_ended
        on conflict (event, kind) do nothing  -- somebody else reserves the same turn right now
        returning user_id, amount
    ), balance as (
        update credit_balances set available = available - entry.amount, reserved = reserved + entry.amount
        from entry where credit_balances.user_id = entry.user_id
    )
    select case
        when exists (select from entry) then 'reserved'
        when of_others > 0 then 'of another user'
        when posts > 0 then 'paid'
        when reserves > voids then 'reserved'
        when has_ended then 'ended'
        when coalesce(available, 0) < wanted then 'out of credit'
        else 'of another user'
    end into outcome from turn left join credit_balances on user_id = of_user;
    return outcome;
end $$;
