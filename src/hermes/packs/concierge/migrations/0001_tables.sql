-- The tables of the concierge.

create table venues (
    id          text primary key,
    name        text not null,
    category    text not null,
    area        text not null,
    city        text not null,
    latitude    double precision not null check (latitude between -90 and 90),
    longitude   double precision not null check (longitude between -180 and 180),
    timezone    text not null,
    hours       text not null default '',
    price_level smallint check (price_level between 1 and 4),
    tags        text[] not null default '{}',
    about       text not null default '',
    address     text not null default '',
    phone       text not null default '',
    url         text not null default '',
    area_key    text not null,                    -- folded, for finding
    city_key    text not null,
    name_key    text not null,
    search      tsvector not null,                -- over folded name, category, area, tags, about, address
    updated_at  timestamptz not null default now()
);
create index venues_by_search on venues using gin (search);
create index venues_by_area on venues (area_key);
create index venues_by_city on venues (city_key);
create index venues_by_name on venues (name_key);
create index venues_by_place on venues (latitude, longitude);

create table bookings (
    user_id    uuid not null references users,
    code       text not null,
    venue_id   text not null references venues,
    at         timestamptz not null,
    party_size integer not null check (party_size between 1 and 50),
    state      text not null default 'requested' check (state in ('requested', 'confirmed', 'cancelled')),
    rating     smallint check (rating between 1 and 5),
    words      bytea not null,                    -- sealed: name, note, comment
    created_at timestamptz not null default now(),
    primary key (user_id, code)
);
create index bookings_by_time on bookings (user_id, at);
create index bookings_by_venue on bookings (venue_id, at);

create table reminders (
    user_id    uuid not null references users,
    code       text not null,
    turn_id    uuid not null,
    at         timestamptz not null,
    words      bytea not null,                    -- sealed
    created_at timestamptz not null default now(),
    said_at    timestamptz,
    primary key (user_id, code)
);
create index reminders_due on reminders (at) where said_at is null;

create table products (
    id         text primary key,
    name       text not null,
    brand      text not null,
    category   text not null,
    price      numeric(18, 2) not null check (price >= 0),
    currency   text not null,
    shop       text not null,
    tags       text[] not null default '{}',
    url        text not null default '',
    search     tsvector not null,
    updated_at timestamptz not null default now()
);
create index products_by_search on products using gin (search);

create table price_watchers (
    user_id    uuid not null references users,
    code       text not null,
    turn_id    uuid not null,
    product_id text not null references products,
    target     numeric(18, 2) not null check (target >= 0),
    created_at timestamptz not null default now(),
    met_at     timestamptz,
    primary key (user_id, code)
);
create unique index price_watchers_waiting on price_watchers (user_id, product_id) where met_at is null;
create index price_watchers_by_product on price_watchers (product_id) where met_at is null;

create table foods (
    id        text primary key,
    name      text not null,
    names     text[] not null,                    -- folded, the name itself first
    also      text[] not null default '{}',
    kcal      real not null,
    protein_g real not null,
    fat_g     real not null,
    carbs_g   real not null,
    fibre_g   real not null,
    serving_g real not null check (serving_g > 0),
    search    tsvector not null
);
create index foods_by_names on foods using gin (names);
create index foods_by_search on foods using gin (search);

create table meals (
    id      bigint generated always as identity primary key,
    user_id uuid not null references users,
    at      timestamptz not null,
    eaten   bytea not null                        -- sealed: what, how much, and what it held
);
create index meals_by_time on meals (user_id, at);

create table orders (
    user_id    uuid not null references users,
    code       text not null,
    kind       text not null check (kind in ('ride', 'delivery', 'card')),
    provider   text not null,
    reference  text not null,
    price      numeric(18, 2) not null check (price >= 0),
    currency   text not null,
    details    bytea not null,                    -- sealed
    created_at timestamptz not null default now(),
    primary key (user_id, code)
);
