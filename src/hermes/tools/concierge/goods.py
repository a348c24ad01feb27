"""Things to buy: cheaper ones that are much alike, and prices to wait for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from hermes.ports.concierge import FoundProduct, Product
from hermes.tools.concierge.desk import Concierge
from hermes.tools.concierge.places import EMPTY
from hermes.tools.parameters import AtMost, Between
from hermes.tools.registry import Effect, Errand, ToolProblem, tool
from hermes.tools.vocabulary import fold

WORD = re.compile(r"\w{2,}")
NOISE = {"dupe", "dupes", "cheaper", "cheap", "alternative", "alternatives", "similar", "like", "than", "buy", "under", "price", "version"}
HIGHEST = 1e12


@tool(Effect.READS)
async def dupe_search(
    concierge: Concierge,
    errand: Errand,
    *,
    product: Annotated[str, "The product: brand, name, kind, colour, material."],
    max_price: Annotated[float | None, "At most this much.", Between(0, HIGHEST)] = None,
    currency: Annotated[str | None, "Of max_price, such as USD.", AtMost(3)] = None,
    limit: Annotated[int, "How many.", Between(1, 10)] = 5,
) -> str:
    """Find cheaper products that are much like one that the user named or sent a picture of."""
    words = keywords(product)
    found = await concierge.products.search(
        errand.tx, words, max_price=max_price, currency=currency.upper() if currency else None, limit=40
    )
    if not found:
        return "Nothing in the catalogue is like it. Ask for the kind of product, its material or its colour."
    original = the_one_meant(found, words)
    if original is None:
        return "Alike, the cheapest first:\n" + "\n".join(line(each) for each in cheapest(found)[:limit])
    rivals = await concierge.products.search(errand.tx, [original.category, *original.tags], limit=40)
    dupes = [each for each in ranked(rivals, original) if max_price is None or each.price <= max_price][:limit]
    if not dupes:
        return f"{line(original)}\nNothing that is much like it costs less."
    return f"The original: {line(original)}\nDupes, the most alike first:\n" + "\n".join(line(each, original) for each in dupes)


@tool(Effect.WRITES)
async def set_price_watcher(
    concierge: Concierge,
    errand: Errand,
    *,
    product: Annotated[str, "Name or [id] from dupe_search."],
    target_price: Annotated[float, "Tell the user when it costs this or less.", Between(0, HIGHEST)],
) -> str:
    """Tell the user when a product's price comes down."""
    wanted = product.strip(" []")
    words = keywords(wanted)
    found = await concierge.products.search(errand.tx, words, limit=40)
    exact = [each.product for each in found if wanted.casefold() in {each.product.id.casefold(), each.product.name.casefold()}]
    meant = exact[0] if exact else the_one_meant(found, words)
    if meant is None:
        some = ", ".join(f"{each.product.name} [{each.product.id}]" for each in found[:3])
        raise ToolProblem(f"it is not clear which product is meant; {f'use an [id] of: {some}' if some else 'dupe_search finds products'}")
    if meant.price <= target_price:
        return f"No watcher is needed: {line(meant)} costs no more than that already."
    watcher = await concierge.watchers.add(errand.tx, errand.user.user_id, errand.user.turn_id, meant.id, target_price)
    return f"Watcher {watcher.code}: {meant.brand} {meant.name}, now {money(meant.price, meant.currency)}, waits for {target_price:,.10g}."


def keywords(text: str) -> list[str]:
    return [word for word in dict.fromkeys(WORD.findall(EMPTY.without(fold(text)))) if word not in NOISE][:12]


def the_one_meant(found: Sequence[FoundProduct], words: Sequence[str]) -> Product | None:
    """The product whose brand or name was said; None where only a kind of thing was."""
    for each in found:
        own = set(WORD.findall(fold(f"{each.product.brand} {each.product.name}")))
        brand = set(WORD.findall(fold(each.product.brand)))
        if brand <= set(words) or len(own & set(words)) >= max(2, len(own) - 1):
            return each.product
    return None


def ranked(rivals: Sequence[FoundProduct], original: Product) -> list[Product]:
    """What costs less and shares a category: by shared tags, then by price."""
    alike = [
        each.product
        for each in rivals
        if each.product.id != original.id
        and each.product.category == original.category
        and each.product.currency == original.currency
        and each.product.price < original.price
    ]
    return sorted(alike, key=lambda product: (-len(set(product.tags) & set(original.tags)), product.price))


def cheapest(found: Sequence[FoundProduct]) -> list[Product]:
    """Of what fits best, the cheapest first."""
    top = max(each.score for each in found)
    return sorted((each.product for each in found if each.score >= top), key=lambda product: product.price)


def line(product: Product, original: Product | None = None) -> str:
    less = f", {100 - round(100 * product.price / original.price)}% less" if original else ""
    alike = f"; {', '.join(product.tags)}" if product.tags else ""
    return f"- {product.brand} {product.name} [{product.id}]: {money(product.price, product.currency)}{less} at {product.shop}{alike}"


def money(price: float, currency: str) -> str:
    return f"{currency} {price:,.0f}" if price >= 1_000 or price == int(price) else f"{currency} {price:,.2f}"
