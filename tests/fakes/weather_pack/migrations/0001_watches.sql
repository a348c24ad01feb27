create table weather_watches (
    id      bigint generated always as identity primary key,
    user_id uuid not null references users,
    turn_id uuid not null,
    town    text not null,
    rains   boolean not null default false
);
