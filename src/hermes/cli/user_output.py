"""What `hermes users` prints about users; what Hermes knows about one is in user_data_output.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from hermes.cli.output import print_table
from hermes.ports.credits import Balance
from hermes.ports.users import User, UserChannel
from hermes.soul.json_values import to_json_value
from hermes.terminal import one_line


def print_users(found: Sequence[User], channels: Mapping[UUID, Sequence[UserChannel]]) -> None:
    """Print a line for each user, with the channels that they write from."""
    rows = []
    for user in found:
        since = f"{user.created_at:%Y-%m-%d %H:%M}" if user.created_at else ""
        where = "\n".join(one_line(str(each)) for each in channels.get(user.id, ()))
        rows.append((str(user.id), user.state, user.tier, user.language or "", user.referral_code, since, where))
    print_table(("id", "state", "tier", "language", "code", "since", "writes from"), rows)


def about_user(user: User, balance: Balance | None = None) -> dict[str, Any]:
    """Return a user as JSON values, with the credits if a balance is given."""
    about = {"id": user.id, "state": user.state, "tier": user.tier, "language": user.language, "referral_code": user.referral_code}
    known = {**about, "referred_by": user.referred_by, "created_at": user.created_at}
    if balance is not None:
        known["credits"] = {"available": balance.available, "reserved": balance.reserved}
    shown: dict[str, Any] = to_json_value(known)
    return shown
