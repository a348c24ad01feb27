"""How amounts are written, the same on every face: dollars to the micro-dollar, durations, ages, counts, cells of a spreadsheet."""

from __future__ import annotations

NOTHING = "–"  # noqa: RUF001  # what stands where there is no value

MIN_MS = 0.1
MICRO_USD = 1_000_000


def show_usd(micro_usd: int | None) -> str:
    """Dollars of micro-dollars, to the last digit that counts: `$0.002134`, `$12.40`."""
    if micro_usd is None:
        return NOTHING
    dollars = f"{micro_usd / 1_000_000:,.6f}".rstrip("0")
    whole, _, cents = dollars.partition(".")
    return f"${whole}.{cents:0<2}"


def show_round_usd(micro_usd: int) -> str:
    """Dollars as a person says them: `$1,284.19`; below a dollar four digits, `$0.1285`; below a cent two that count, `$0.000036`."""
    if micro_usd == 0 or micro_usd >= MICRO_USD:
        return f"${micro_usd / MICRO_USD:,.2f}"
    if micro_usd >= MICRO_USD // 100:
        return f"${micro_usd / MICRO_USD:.4f}"
    unit = 10 ** max(len(str(micro_usd)) - 2, 0)
    return show_usd(round(micro_usd / unit) * unit)


def show_ms(ms: float | None) -> str:
    if ms is None:
        return NOTHING
    if 0 < ms < MIN_MS:
        return f"< {MIN_MS} ms"
    if ms < 1_000:
        return f"{ms:.0f} ms" if ms >= 10 or ms == int(ms) else f"{ms:.1f} ms"
    return f"{ms / 1_000:.1f} s" if ms < 60_000 else f"{ms / 60_000:.1f} min"


def show_age(seconds: float | None) -> str:
    """How long: `4 s`, `12 min`, `3 h`, `5 d`."""
    if seconds is None:
        return NOTHING
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def count_phrase(number: int, name: str) -> str:
    """`1 message`, `2,000 messages`."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def quote_formula(text: str) -> str:
    """The text, so that a spreadsheet does not run it: names may begin like a formula."""
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text
