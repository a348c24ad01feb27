"""Tools that find cheaper products that are much alike, and watch prices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Annotated

from hermes.packs.concierge.ports import FoundProduct, Product
from hermes.packs.concierge.services import Concierge
from hermes.packs.concierge.words import FILLER_WORDS
from hermes.tools.parameters import AtMost, Between
from hermes.tools.registry import ToolContext, ToolEffect, ToolProblem, ToolReach, tool
from hermes.tools.vocabulary import fold

WORD = re.compile(r"\w{2,}")
NOISE_WORDS = {
    "dupe",
    "dupes",
    "cheaper",
    "cheap",
    "alternative",
    "alternatives",
    "similar",
    "like",
    "than",
    "buy",
    "under",
    "price",
    "version",
}
MAX_PRICE = 1e12
NOTHING_CHEAPER = "Nothing that is much like it costs less."


@tool(ToolEffect.READS, ToolReach.ROOM)
async def dupe_search(
    concierge: Concierge,
    context: ToolContext,
    *,
    product: Annotated[str, "Brand and name as far as they are known, colour, material, shape."],
    kind: Annotated[str | None, "What such a thing is called, in English: lipstick, tote bag.", AtMost(60)] = None,
    price: Annotated[float | None, "What it costs itself, if known.", Between(0, MAX_PRICE)] = None,
    max_price: Annotated[float | None, "At most this much.", Between(0, MAX_PRICE)] = None,
    currency: Annotated[str | None, "Of both, such as USD.", AtMost(3)] = None,
    limit: Annotated[int, "How many.", Between(1, 10)] = 5,
) -> str:
    """Find cheaper products that are much like one that the user named or sent a picture of."""
    words = list(dict.fromkeys([*keywords(product), *word_forms(kind or "")]))
    search = partial(concierge.products.search, context.tx, words, currency=currency.upper() if currency else None, limit=40)
    found = await search()
    if not found:
        return "Nothing in the catalogue is like it. Ask for the kind of product, its material or its colour."
    of_kind = [each for each in found if is_of_kind(each.product, kind)]
    original = find_original(of_kind or found, words)
    if original is not None:
        rivals = await concierge.products.search(context.tx, [original.category, *original.tags], limit=40)
        dupes = [each for each in rank_dupes(rivals, original) if max_price is None or each.price <= max_price][:limit]
        heading = f"The original: {product_line(original)}\nDupes, the most alike first:"
        return list_products(heading, dupes, original.price) if dupes else f"{product_line(original)}\n{NOTHING_CHEAPER}"
    if not of_kind:
        return list_products(f"The catalogue has no {kind}. By its other words these are the nearest:", cheapest_first(found)[:3])
    if max_price is not None:
        of_kind = [each for each in await search(max_price=max_price) if is_of_kind(each.product, kind)]
    own_price = price if currency else None  # without a currency, a price cannot be compared
    alike = [each for each in cheapest_first(of_kind) if own_price is None or each.price < own_price][:limit]
    return list_products("Alike, the cheapest first:", alike, own_price) if alike else NOTHING_CHEAPER


@tool(ToolEffect.WRITES, ToolReach.PERSON)
async def set_price_watcher(
    concierge: Concierge,
    context: ToolContext,
    *,
    product: Annotated[str, "Name or [id] from dupe_search."],
    target_price: Annotated[float, "Tell the user when it costs this or less.", Between(0, MAX_PRICE)],
) -> str:
    """Tell the user when a product's price comes down."""
    name = product.strip(" []")
    words = keywords(name)
    found = await concierge.products.search(context.tx, words, limit=40)
    exact = [each.product for each in found if name.casefold() in {each.product.id.casefold(), each.product.name.casefold()}]
    meant = exact[0] if exact else find_original(found, words)
    if meant is None:
        some = ", ".join(f"{each.product.name} [{each.product.id}]" for each in found[:3])
        raise ToolProblem(f"it is not clear which product is meant; {f'use an [id] of: {some}' if some else 'dupe_search finds products'}")
    if meant.price <= target_price:
        return f"No watcher is needed: {product_line(meant)} costs no more than that already."
    watcher = await concierge.watchers.add(context.tx, context.user.user_id, context.user.turn_id, meant.id, target_price)
    return f"Watcher {watcher.code}: {meant.brand} {meant.name}, now {money(meant.price, meant.currency)}, waits for {target_price:,.10g}."


def keywords(text: str) -> list[str]:
    return [word for word in dict.fromkeys(WORD.findall(FILLER_WORDS.without(fold(text)))) if word not in NOISE_WORDS][:12]


def word_forms(kind: str) -> list[str]:
    """Return the words of a kind, singular and plural: the catalogue may use either."""
    return [form for word in keywords(kind) for form in (singular(word), f"{singular(word)}s")]


def singular(word: str) -> str:
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word


def is_of_kind(product: Product, kind: str | None) -> bool:
    """Whether a product is of this kind; True if no kind is given."""
    own = {singular(word) for word in WORD.findall(fold(" ".join((product.name, product.category, *product.tags))))}
    return not kind or not own.isdisjoint(singular(word) for word in keywords(kind))


def find_original(found: Sequence[FoundProduct], words: Sequence[str]) -> Product | None:
    """Return the product whose brand the words name, or whose name they give beyond the mere kind; None if they name only a kind."""
    given = set(words)
    for each in found:
        product = each.product
        brand, name = (set(WORD.findall(fold(text))) for text in (product.brand, product.name))
        kind = {singular(word) for word in WORD.findall(fold(" ".join((product.category, *product.tags))))}
        is_named = any(singular(word) not in kind for word in name & given)
        if brand <= given or (is_named and len((brand | name) & given) >= max(2, len(brand | name) - 1)):
            return product
    return None


def rank_dupes(rivals: Sequence[FoundProduct], original: Product) -> list[Product]:
    """Return cheaper products of the same category and currency: by shared tags, then by price."""
    alike = [
        each.product
        for each in rivals
        if each.product.id != original.id
        and each.product.category == original.category
        and each.product.currency == original.currency
        and each.product.price < original.price
    ]
    return sorted(alike, key=lambda product: (-len(set(product.tags) & set(original.tags)), product.price))


def cheapest_first(found: Sequence[FoundProduct]) -> list[Product]:
    """Return the products with the best score, the cheapest first."""
    top = max((each.score for each in found), default=0.0)
    return sorted((each.product for each in found if each.score >= top), key=lambda product: product.price)


def list_products(heading: str, products: Sequence[Product], dearer: float | None = None) -> str:
    return "\n".join([heading, *(product_line(each, dearer) for each in products)])


def product_line(product: Product, dearer: float | None = None) -> str:
    """Return a product on one line; `dearer` is the higher price to compare it with."""
    less = f", {100 - round(100 * product.price / dearer)}% less" if dearer else ""
    alike = f"; {', '.join(product.tags)}" if product.tags else ""
    return f"- {product.brand} {product.name} [{product.id}]: {money(product.price, product.currency)}{less} at {product.shop}{alike}"


def money(price: float, currency: str) -> str:
    return f"{currency} {price:,.0f}" if price >= 1_000 or price == int(price) else f"{currency} {price:,.2f}"
