-- Venues, products and foods: the same for all users.

-- name: put_venue
insert into venues (id, name, category, area, city, latitude, longitude, timezone, hours, price_level, tags, about, address, phone, url,
    area_key, city_key, name_key, search)
values (%(id)s, %(name)s, %(category)s, %(area)s, %(city)s, %(latitude)s, %(longitude)s, %(timezone)s, %(hours)s, %(price_level)s, %(tags)s,
    %(about)s, %(address)s, %(phone)s, %(url)s, %(area_key)s, %(city_key)s, %(name_key)s, to_tsvector('simple', %(words)s))
on conflict (id) do update set
    name = excluded.name, category = excluded.category, area = excluded.area, city = excluded.city, latitude = excluded.latitude,
    longitude = excluded.longitude, timezone = excluded.timezone, hours = excluded.hours, price_level = excluded.price_level,
    tags = excluded.tags, about = excluded.about, address = excluded.address, phone = excluded.phone, url = excluded.url,
    area_key = excluded.area_key, city_key = excluded.city_key, name_key = excluded.name_key, search = excluded.search, updated_at = now()
returning xmax = 0

-- name: search_venues
-- A tag counts twice as much as a word. Among venues with equal scores the nearest comes first; without a point, the cheapest.
with candidates as (
    select *,
        case when %(latitude)s::float8 is null then null else 2 * 6371 * asin(sqrt(least(1,
            power(sin(radians(latitude - %(latitude)s::float8) / 2), 2)
            + cos(radians(latitude)) * cos(radians(%(latitude)s::float8)) * power(sin(radians(longitude - %(longitude)s::float8) / 2), 2)
        ))) end as km,
        2 * cardinality(array(select unnest(tags) intersect select unnest(%(tags)s::text[])))
        + (select count(*) from unnest(%(words)s::text[]) word where search @@ plainto_tsquery('simple', word)) as score
    from venues
    where (cardinality(%(categories)s::text[]) = 0 or category = any(%(categories)s::text[]) or tags && %(categories)s::text[])
        and (%(area)s::text is null or area_key = %(area)s or city_key = %(area)s or search @@ phraseto_tsquery('simple', %(area)s))
        and (%(max_price_level)s::int is null or price_level <= %(max_price_level)s)
        and (%(within_deg)s::float8 is null or latitude between %(latitude)s::float8 - %(within_deg)s and %(latitude)s::float8 + %(within_deg)s)
)
select id, name, category, area, city, latitude, longitude, timezone, hours, price_level, tags, about, address, phone, url, score, km
from candidates
where (score > 0 or cardinality(%(categories)s::text[]) > 0 or (cardinality(%(words)s::text[]) = 0 and cardinality(%(tags)s::text[]) = 0))
    and (%(within_km)s::float8 is null or km <= %(within_km)s)
order by score desc, km nulls last, price_level nulls last, name
limit %(limit)s

-- name: venues_named
select id, name, category, area, city, latitude, longitude, timezone, hours, price_level, tags, about, address, phone, url
from venues
where id = %(id)s or name_key = %(name)s or to_tsvector('simple', name_key) @@ plainto_tsquery('simple', %(name)s)
    or (length(name_key) > 3 and position(name_key in %(name)s) > 0)
order by id = %(id)s desc, name_key = %(name)s desc, length(name_key) - length(%(name)s), id
limit %(limit)s

-- name: areas
select key, avg(latitude), avg(longitude) from (
    select area_key as key, latitude, longitude from venues union all select city_key, latitude, longitude from venues
) places where key <> '' group by key order by key

-- name: list_venues
select id, name, category, area, city, latitude, longitude, timezone, hours, price_level, tags, about, address, phone, url
from venues where %(area)s::text is null or area_key = %(area)s or city_key = %(area)s
order by city, area, name limit %(limit)s

-- name: count_venues
select count(*) from venues

-- name: put_product
insert into products (id, name, brand, category, price, currency, shop, tags, url, search)
values (%(id)s, %(name)s, %(brand)s, %(category)s, %(price)s, %(currency)s, %(shop)s, %(tags)s, %(url)s, to_tsvector('simple', %(words)s))
on conflict (id) do update set
    name = excluded.name, brand = excluded.brand, category = excluded.category, price = excluded.price, currency = excluded.currency,
    shop = excluded.shop, tags = excluded.tags, url = excluded.url, search = excluded.search, updated_at = now()
returning xmax = 0

-- name: search_products
with candidates as (
    select *, (select count(*) from unnest(%(words)s::text[]) word where search @@ plainto_tsquery('simple', word)) as score
    from products
    where (%(max_price)s::numeric is null or price <= %(max_price)s) and (%(currency)s::text is null or currency = %(currency)s)
)
select id, name, brand, category, price, currency, shop, tags, url, score from candidates
where score > 0
order by score desc, price, id
limit %(limit)s

-- name: count_products
select count(*) from products

-- name: put_food
insert into foods (id, name, names, also, kcal, protein_g, fat_g, carbs_g, fibre_g, serving_g, search)
values (%(id)s, %(name)s, %(names)s, %(also)s, %(kcal)s, %(protein_g)s, %(fat_g)s, %(carbs_g)s, %(fibre_g)s, %(serving_g)s,
    to_tsvector('simple', %(words)s))
on conflict (id) do update set
    name = excluded.name, names = excluded.names, also = excluded.also, kcal = excluded.kcal, protein_g = excluded.protein_g,
    fat_g = excluded.fat_g, carbs_g = excluded.carbs_g, fibre_g = excluded.fibre_g, serving_g = excluded.serving_g, search = excluded.search
returning xmax = 0

-- name: food_named
select id, name, also, kcal, protein_g, fat_g, carbs_g, fibre_g, serving_g from foods
where names && %(names)s::text[] order by names[1] = any(%(names)s::text[]) desc, id limit 1

-- name: food_like
-- The food with the longest name that is part of the given one; else the food that shares the most words, the shortest name first.
select id, name, also, kcal, protein_g, fat_g, carbs_g, fibre_g, serving_g from (
    select *,
        (select max(length(each)) from unnest(names) each
            where %(padded)s like '%% ' || each || ' %%' or (each ~ '[^\x01-\x7f]' and length(each) > 1 and position(each in %(padded)s) > 0)) as inside,
        (select count(*) from unnest(%(words)s::text[]) word where search @@ plainto_tsquery('simple', word)) as shared
    from foods
) candidates
where inside is not null or shared >= greatest(1, ceil(0.6 * %(count)s))
order by inside desc nulls last, shared desc, length(name), id
limit 1

-- name: count_foods
select count(*) from foods
