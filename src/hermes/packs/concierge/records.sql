-- Records of users: bookings, reminders, price watchers, meals, orders. Their texts are sealed.

-- name: add_booking
insert into bookings (user_id, code, venue_id, at, party_size, words)
values (%(user_id)s, %(code)s, %(venue_id)s, %(at)s, %(party_size)s, %(words)s)
on conflict do nothing returning code

-- name: get_booking
select bookings.code, bookings.at, bookings.party_size, bookings.state, bookings.rating, bookings.words,
    venues.id, venues.name, category, area, city, latitude, longitude, timezone, hours, price_level, tags, about, address, phone, url
from bookings join venues on venues.id = bookings.venue_id
where user_id = %(user_id)s and code = %(code)s
for update of bookings

-- name: next_bookings
select bookings.code, bookings.at, bookings.party_size, bookings.state, bookings.rating, bookings.words,
    venues.id, venues.name, category, area, city, latitude, longitude, timezone, hours, price_level, tags, about, address, phone, url
from bookings join venues on venues.id = bookings.venue_id
where user_id = %(user_id)s and at >= %(since)s order by at, code limit %(limit)s

-- name: last_bookings
select bookings.code, bookings.at, bookings.party_size, bookings.state, bookings.rating, bookings.words,
    venues.id, venues.name, category, area, city, latitude, longitude, timezone, hours, price_level, tags, about, address, phone, url
from bookings join venues on venues.id = bookings.venue_id
where user_id = %(user_id)s order by at desc, code limit %(limit)s

-- name: settle_booking
update bookings set state = %(state)s where user_id = %(user_id)s and code = %(code)s

-- name: rate_booking
update bookings set rating = %(rating)s, words = %(words)s where user_id = %(user_id)s and code = %(code)s

-- name: add_reminder
insert into reminders (user_id, code, turn_id, at, words) values (%(user_id)s, %(code)s, %(turn_id)s, %(at)s, %(words)s)
on conflict do nothing returning code

-- name: due_reminders
update reminders set said_at = %(now)s
where (user_id, code) in (
    select user_id, code from reminders where said_at is null and at <= %(now)s order by at limit %(limit)s for update skip locked
)
returning user_id, code, turn_id, at, words

-- name: end_watcher
delete from price_watchers where user_id = %(user_id)s and product_id = %(product_id)s and met_at is null

-- name: add_watcher
insert into price_watchers (user_id, code, turn_id, product_id, target)
values (%(user_id)s, %(code)s, %(turn_id)s, %(product_id)s, %(target)s)
on conflict (user_id, code) do nothing returning code

-- name: product
select id, name, brand, category, price, currency, shop, tags, url from products where id = %(product_id)s

-- name: due_watchers
with due as (
    select price_watchers.user_id, price_watchers.code from price_watchers join products on products.id = product_id
    where met_at is null and products.price <= target
    order by price_watchers.created_at limit %(limit)s for update of price_watchers skip locked
)
update price_watchers set met_at = now() from due, products
where price_watchers.user_id = due.user_id and price_watchers.code = due.code and products.id = price_watchers.product_id
returning price_watchers.user_id, price_watchers.code, turn_id, target,
    products.id, name, brand, category, price, currency, shop, tags, url

-- name: log_meal
insert into meals (user_id, at, eaten) values (%(user_id)s, %(at)s, %(eaten)s)

-- name: meals
select eaten from meals where user_id = %(user_id)s and at >= %(since)s and at < %(until)s order by at, id

-- name: add_order
insert into orders (user_id, code, kind, provider, reference, price, currency, details)
values (%(user_id)s, %(code)s, %(kind)s, %(provider)s, %(reference)s, %(price)s, %(currency)s, %(details)s)
on conflict do nothing returning code

-- name: get_order
select code, kind, provider, reference, price, currency, details from orders where user_id = %(user_id)s and code = %(code)s
