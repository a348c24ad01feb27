"""What an API key may spend and do.

A key is a principal: its limits hold in all processes together, whatever user a client names. Days and months are those of UTC, a minute is
any 60 seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from uuid import UUID

MAX_AMOUNT = 10**15
"""The largest limit: whole numbers up to 2^53 are exact in the store's scripts, and sums of two limits must be."""
MAX_NAMES = 100
"""The most models, channels, users or networks of a key."""
MAX_PATTERN_CHARS = 256
MAPPED_BITS = 96
"""The first bits of an IPv6 address that stands for an IPv4 one, `::ffff:10.0.0.1`."""


class InvalidLimit(ValueError):
    """A limit that no key can have; the message says what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """The limits of a key; None: no limit. Two lists are narrow even so: see `users`. Raises InvalidLimit."""

    day_micro_usd: int | None = None
    month_micro_usd: int | None = None
    day_tokens: int | None = None
    month_tokens: int | None = None
    minute_requests: int | None = None
    minute_tokens: int | None = None
    calls_at_once: int | None = None
    models: Sequence[str] | None = None
    """The models that may answer, by the names of the settings."""
    users: Sequence[str] | None = None
    """Patterns for the names of its users, where `*` stands for any text. None: any name, but never a person of a messaging channel."""
    networks: Sequence[str] | None = None
    """The networks that its requests may come from."""
    expires_at: datetime | None = None

    def __post_init__(self) -> None:
        for name in AMOUNTS:
            check_limit(name, getattr(self, name))
        for name in ("models", "users"):
            check_names(name, getattr(self, name))
        if self.networks is not None:
            check_names("networks", self.networks)
            for network in self.networks:
                parse_network(network)
        if self.expires_at is not None and self.expires_at.tzinfo is None:
            raise InvalidLimit("the time at which a key expires names its time zone")

    def allows_model(self, *names: str) -> bool:
        """Whether a model that has these names may answer."""
        return self.models is None or not {*names}.isdisjoint(self.models)

    def allows_user(self, name: str) -> bool:
        """Whether the key may name this user, as far as the name decides it."""
        return self.users is None or any(matches(pattern, name) for pattern in self.users)

    def allows_address(self, address: str) -> bool:
        """Whether a request may come from this address. An address that cannot be read is in no network."""
        if self.networks is None:
            return True
        try:
            found = ip_address(address)
        except ValueError:
            return False
        found = getattr(found, "ipv4_mapped", None) or found
        return any(found in parse_network(network) for network in self.networks)

    @property
    def has_quota(self) -> bool:
        """Whether anything limits what the key uses in a day or a month."""
        return any(limit is not None for limit in (self.day_micro_usd, self.month_micro_usd, self.day_tokens, self.month_tokens))


AMOUNTS: Mapping[str, int] = {
    "day_micro_usd": 0,
    "month_micro_usd": 0,
    "day_tokens": 1,
    "month_tokens": 1,
    "minute_requests": 1,
    "minute_tokens": 1,
    "calls_at_once": 1,
}
"""The limits that are amounts, with the least that each may be. A key without any dollar may use models that cost nothing."""


def check_limit(name: str, amount: object) -> None:
    if amount is not None and (type(amount) is not int or not AMOUNTS[name] <= amount <= MAX_AMOUNT):
        raise InvalidLimit(f"{name} is a whole number from {AMOUNTS[name]} to {MAX_AMOUNT}, got {amount!r}")


def check_names(what: str, names: Sequence[str] | None) -> None:
    if names is None:
        return
    if not 0 < len(names) <= MAX_NAMES or not all(0 < len(name) <= MAX_PATTERN_CHARS and name.isprintable() for name in names):
        raise InvalidLimit(f"the {what} of a key are 1 to {MAX_NAMES} names, each one line of 1 to {MAX_PATTERN_CHARS} characters")


def matches(pattern: str, name: str) -> bool:
    """Whether a name fits a pattern. Only `*` is special: `acme-*` fits `acme-ada`. Upper and lower case differ, and so do two ways to
    write the same accent: names are compared as clients send them."""
    first, *more = pattern.split("*")
    if not more:
        return pattern == name
    *middle, last = more
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return False
    at, end = len(first), len(name) - len(last)
    for piece in middle:  # the leftmost place for each piece: one pass, however many stars there are
        found = name.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def parse_network(text: str) -> IPv4Network | IPv6Network:
    """Read `10.0.0.0/8`, `10.0.0.7` or `2001:db8::/32`. A network of mapped addresses is the IPv4 network. Raises InvalidLimit."""
    try:
        network = ip_network(text.strip(), strict=False)
    except ValueError:
        raise InvalidLimit(f"{text[:60]!r} is no network; expected one such as 10.0.0.0/8 or 2001:db8::/32") from None
    if isinstance(network, IPv6Network) and network.prefixlen >= MAPPED_BITS:
        mapped = IPv6Address(network.network_address).ipv4_mapped
        if mapped is not None:
            return IPv4Network((int(mapped), network.prefixlen - MAPPED_BITS))
    return network


NO_LIMITS = KeyLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyClaim:
    """What one call may need at most of a key's money, with the limits of the key. Its tokens are those of the user's reservation."""

    key_id: UUID
    limits: KeyLimits
    micro_usd: int
