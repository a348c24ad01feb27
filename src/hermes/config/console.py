"""The settings of the console, which operators use in a browser and programs under `/v1/ops`."""

from __future__ import annotations

from dataclasses import dataclass

from hermes.config.values import Choice, Flag, Network, Usd


class SsoRole(Choice):
    """The role of an operator whom a proxy names and Hermes does not know yet."""

    NONE = "none"
    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The console at `/console`, and the API of operators under `/v1/ops`. `hermes console` makes operators, links and tokens."""

    enabled: Flag = True
    """Whether there is a console. `false`: its pages answer 404, also to operators. The commands still work."""

    sso_header: str | None = None
    """A header in which a proxy names the operator that it has signed in, such as `X-Forwarded-User`. The proxy must remove the header
    from what clients send. Left out: only links sign in."""

    sso_addresses: tuple[Network, ...] = ()
    """The addresses or networks of that proxy, such as `10.0.0.7` or `10.0.0.0/24`. From other addresses the header counts nothing. Name no
    network from which users come."""

    sso_role: SsoRole = SsoRole.VIEWER
    """The role of an operator whom the proxy names for the first time: `viewer` or `operator`. `none` refuses them until an owner has added
    them. An owner may change the role later; no proxy makes an owner."""

    replay_daily_usd: Usd = 5.0
    """US dollars that replays may cost in a day (UTC), all operators together. They are not charged to users."""
