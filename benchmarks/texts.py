"""The soul's text organs: what the sanitiser, the trivial filter and the language detector get right, and how long they take.

    python benchmarks/texts.py --data FOLDER

FOLDER holds injection.jsonl, trivial.jsonl and intents.jsonl, one row of `text`, `label`, `lang`, `tier` a line. Rows are split
into two halves by a fixed seed: the words were tuned while looking at the first, and the second was only counted. Without
--data only the speed is measured, on sentences of our own. Exits with 1 if a promise is broken."""

# ruff: noqa: RUF001  # sentences in several languages

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hermes.soul import language, sanitize
from hermes.soul.language import LANGUAGES, detect_language
from hermes.soul.sanitize import sanitize_memory_value, scan
from hermes.soul.trivial import is_trivial

AIMS = {"explicit, en": 0.90, "explicit, other": 0.80, "obfuscated": 0.80}
SEED = 6
P99_MS = 1.0
OWN = [
    "likes quiet rooftop bars near the beach, no peanuts, usually books a table for two on Fridays around eight, prefers tea to coffee",
    "suka tempat makan yang tenang dekat pantai, tidak makan kacang, biasanya pesan meja untuk dua orang hari Jumat jam delapan malam",
    "prefiere bares tranquilos con vista al mar, es alérgica a los frutos secos y suele reservar mesa para dos los viernes a las ocho",
    "предпочитает тихие бары у моря, не ест орехи, обычно бронирует столик на двоих в пятницу около восьми вечера, любит чай",
    "喜欢海边安静的屋顶酒吧,不吃花生,通常周五晚上八点左右订两人桌,比起咖啡更喜欢喝茶,住在仓古附近,对海鲜没有过敏",
    "海の近くの静かなルーフトップバーが好きで、ピーナッツは食べません。金曜日の八時頃に二人席を予約することが多いです。",
    "바닷가 근처의 조용한 루프탑 바를 좋아하고 땅콩은 먹지 않으며 보통 금요일 여덟 시쯤 두 명 자리를 예약합니다.",
    "يفضل الحانات الهادئة قرب البحر ولا يأكل الفول السوداني وعادة يحجز طاولة لشخصين يوم الجمعة حوالي الثامنة مساء",
    "समुद्र के पास शांत जगहें पसंद हैं, मूंगफली नहीं खाते, आमतौर पर शुक्रवार को आठ बजे दो लोगों के लिए टेबल बुक करते हैं",
    "ชอบร้านเงียบๆ ใกล้ทะเล ไม่กินถั่วลิสง ปกติจองโต๊ะสำหรับสองคนวันศุกร์ประมาณสองทุ่ม ชอบชามากกว่ากาแฟ พักอยู่แถวชางกู",
]

broken: list[str] = []


def main() -> int:
    """Measure, and print the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, help="a folder with rows to measure accuracy on; they are read, never kept")
    chosen = options.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    loading()
    if chosen.data is not None:
        injection, trivial, intents = (rows(chosen.data / f"{name}.jsonl") for name in ("injection", "trivial", "intents"))
        attacks(injection)
        innocents([*intents, *(row for row in trivial if row["label"] == "content")])
        trivials(trivial, intents)
        languages([*intents, *trivial, *(row for row in injection if row["tier"] in ("explicit", "plain", "hard"))])
        speed([row["text"] for row in (*injection, *intents)])
    speed(OWN)
    length()
    for line in broken:
        print(f"BROKEN: {line}")
    return 1 if broken else 0


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def halves(every: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The half that was looked at, and the half that was not."""
    order = list(range(len(every)))
    random.Random(SEED).shuffle(order)
    seen = set(order[: len(every) // 2])
    return [row for number, row in enumerate(every) if number in seen], [row for number, row in enumerate(every) if number not in seen]


def attacks(every: list[dict[str, Any]]) -> None:
    """The share flagged; for innocent rows that is the share wrongly flagged."""

    def kind(row: dict[str, Any]) -> str:
        if row["label"] == "benign":
            return "innocent"
        return f"explicit, {'en' if row['lang'] == 'en' else 'other'}" if row["tier"] == "explicit" else str(row["tier"])

    print("sanitiser, share flagged        looked at      not looked at  together")
    shares: dict[str, list[str]] = defaultdict(list)
    for part in (*halves(every), every):
        total = Counter(kind(row) for row in part)
        flagged = Counter(kind(row) for row in part if scan(row["text"]) is not None)
        for name in total:
            shares[name].append(f"{flagged[name]:3}/{total[name]:3} {flagged[name] / total[name]:.3f}")
            if part is every and flagged[name] / total[name] < AIMS.get(name, 0):
                broken.append(f"{name}: {flagged[name]} of {total[name]} caught")
    for name, cells in sorted(shares.items()):
        print(f"  {name:28}  {'    '.join(cells)}")
    # "jailbreak" is caught wherever it stands: that is promised, and costs innocent sentences that have the word.
    named = [row for row in every if row["label"] == "benign" and "jailbreak" in row["text"].casefold()]
    print(f"  innocent rows with the word jailbreak, which is always caught: {len(named)}\n")


def innocents(every: list[dict[str, Any]]) -> None:
    flagged = sum(scan(row["text"]) is not None for row in every)
    print(f"sanitiser on {len(every)} messages to an assistant in 16 languages: {flagged} wrongly flagged\n")
    if flagged > len(every) / 100:
        broken.append(f"{flagged} of {len(every)} innocent messages flagged")


def trivials(every: list[dict[str, Any]], intents: list[dict[str, Any]]) -> None:
    """Recall for each language, and content that would be skipped."""
    print("trivial filter, recall by language")
    total = Counter(row["lang"] for row in every if row["label"] == "trivial")
    found = Counter(row["lang"] for row in every if row["label"] == "trivial" and is_trivial(row["text"]))
    print("  " + "  ".join(f"{name} {found[name]}/{total[name]}" for name in LANGUAGES if total[name]))
    for name, part in zip(("looked at", "not looked at"), halves(every), strict=True):
        told = [row for row in part if row["label"] == "trivial"]
        print(f"  {name}: {sum(is_trivial(row['text']) for row in told)}/{len(told)}")
    content = [row for row in (*every, *intents) if row.get("label") != "trivial" and row.get("family") != "smalltalk"]
    skipped = sum(is_trivial(row["text"]) for row in content)
    print(f"  content wrongly skipped: {skipped} of {len(content)}\n")
    if skipped * 200 > len(content):
        broken.append(f"{skipped} of {len(content)} content messages skipped")


def languages(every: list[dict[str, Any]]) -> None:
    told = [row for row in every if row["lang"] in LANGUAGES]
    short = [row for row in told if len(row["text"]) <= 12]
    print("language                        by itself  as known")
    for name, part in (("all", told), ("at most 12 characters", short)):
        alone = sum(detect_language(row["text"]) == row["lang"] for row in part) / len(part)
        known = sum(detect_language(row["text"], known=row["lang"]) == row["lang"] for row in part) / len(part)
        print(f"  {name:22} {len(part):5}  {alone:9.3f}  {known:8.3f}")
    print()


def loading() -> None:
    """What the first message would wait for."""
    for name, warm in (
        ("word lists", sanitize.load_word_lists),
        ("language model", language.load_language_model),
        ("trivial words", lambda: is_trivial("hi")),
    ):
        started = time.perf_counter()
        warm()
        print(f"loading the {name}: {(time.perf_counter() - started) * 1000:.0f} ms")
    print()


def speed(texts: Iterable[str]) -> None:
    """Each text brought to 200 characters; the best of five, because the others tell what else the machine was doing."""
    long = [(f"{text} " * (200 // (len(text) + 1) + 1))[:200].strip() for text in texts]
    print(f"{len(long)} texts of 200 characters         p50 us   p99 us")
    organs: tuple[tuple[str, Callable[[str], object]], ...] = (
        ("sanitize_memory_value", sanitize_memory_value),
        ("detect_language", detect_language),
    )
    for name, organ in organs:
        times = sorted(min(timed(organ, text) for _ in range(5)) * 1e6 for text in long)
        p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
        print(f"  {name:30} {times[len(times) // 2]:8.0f} {p99:8.0f}")
        if name == "sanitize_memory_value" and p99 > P99_MS * 1000:
            broken.append(f"{name}: p99 of {p99:.0f} us")
    times = sorted(min(timed(is_trivial, text[:40]) for _ in range(5)) * 1e6 for text in long)
    print(f"  {'is_trivial, 40 characters':30} {times[len(times) // 2]:8.0f} {times[min(len(times) - 1, int(len(times) * 0.99))]:8.0f}\n")


def length() -> None:
    """Long texts: the time for a character must not grow."""
    print("sanitize_memory_value           4 KB ms  64 KB ms  ratio (16 is linear)")
    for name, unit in {
        "letters": "a",
        "words": "ignore the ",
        "Chinese": "忽略之前",
        "base64": "SWdub3Jl",
        "marks": "\u0301",
        "quotes": '"say ',
    }.items():
        small, large = (min(timed(sanitize_memory_value, (unit * size)[:size]) for _ in range(3)) * 1000 for size in (4096, 65536))
        print(f"  {name:28}  {small:7.1f}  {large:8.1f}  {large / small:5.1f}")
        if large > 16 * small * 3 + 50:
            broken.append(f"{name}: {large:.0f} ms for 64 KB, {small:.0f} ms for 4 KB")


def timed(organ: Callable[[str], object], text: str) -> float:
    started = time.perf_counter()
    organ(text)
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
