"""Tables for the tools of a model, and a web of one picture."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from hermes.packs.concierge import Concierge
from hermes.packs.concierge.data_files import sample_foods, sample_products
from hermes.packs.concierge.ports import Food, FoundProduct, MealItem
from hermes.ports.runtime import Transaction
from hermes.ports.tools import FetchedMedia
from hermes.tools.executor import Toolbox
from hermes.tools.vocabulary import fold
from tests.fakes.concierge import all_tools, concierge_gate
from tests.unit.tools.images.samples import PNG
from tests.unit.tools.people import MemoryOffers, MemoryOutcomes, MemoryTransactions


@dataclass
class OneAddress:
    """The port MediaFetcher: every address holds the same."""

    body: bytes = PNG
    media_type: str = "image/png"
    asked: list[str] = field(default_factory=list)

    async def fetch(self, url: str) -> FetchedMedia:
        self.asked.append(url)
        return FetchedMedia(self.body, self.media_type)


@dataclass
class Foods:
    """Of the port Nutrition what a scan needs."""

    diary: list[tuple[UUID, str, float]] = field(default_factory=list)

    async def find(self, _: Transaction, name: str) -> Food | None:
        return next((food for food in sample_foods() if fold(name) in {fold(known) for known in (food.name, *food.also)}), None)

    async def log(self, _: Transaction, user_id: UUID, portions: Sequence[MealItem]) -> None:
        self.diary += [(user_id, portion.food, portion.grams) for portion in portions]


class Goods:
    """Of the port Products what a search needs."""

    async def search(
        self, _: Transaction, words: Sequence[str], *, max_price: float | None = None, currency: str | None = None, limit: int = 20
    ) -> list[FoundProduct]:
        texts = [(each, fold(" ".join((each.name, each.brand, each.category, *each.tags))).split()) for each in sample_products()]
        found = [FoundProduct(each, float(sum(word in text for word in words))) for each, text in texts]
        return sorted((each for each in found if each.score), key=lambda each: (-each.score, each.product.price))[:limit]


@dataclass
class Desk:
    """The concierge's own tools and gate on the sample tables, without a database."""

    foods: Foods = field(default_factory=Foods)

    @property
    def tools(self) -> Toolbox:
        nobody = cast("Any", None)
        others = dict.fromkeys(("venues", "bookings", "reminders", "watchers", "orders", "notebook"), nobody)
        concierge = Concierge(products=cast("Any", Goods()), nutrition=cast("Any", self.foods), **others)
        effects = MemoryTransactions()
        return Toolbox(
            own=all_tools(concierge),
            gate_=concierge_gate(),
            transactions=effects,
            outcomes=MemoryOutcomes(effects),
            offers=MemoryOffers(effects),
            scan=lambda _: None,
        )
