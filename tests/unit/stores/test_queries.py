"""A long query is sent with numbers in the place of its names, each name once."""

from hermes.stores.postgres.queries import PositionalQuery


def test_each_name_gets_one_number_in_the_order_of_the_first_places() -> None:
    query = PositionalQuery.of(b"select %(b)s::int, %(a)b::bytea[], %(b)s where 7 %% 2 = 1")
    assert query == PositionalQuery(b"select $1::int, $2::bytea[], $1 where 7 % 2 = 1", ("b", "a"))
    assert query.values({"a": 1, "b": 2, "c": 3}) == [2, 1]
