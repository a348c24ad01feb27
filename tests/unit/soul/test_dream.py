"""Dreams: lines that follow from facts, at most three gaps, every line reviewed, no fact ever touched."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from hermes.packs.concierge.fact_keys import FITNESS_HEADING
from hermes.ports.memories import Dream, DreamDepth, DreamKind, DreamReview, Fact, FactOrigin
from hermes.soul.dream import MAX_SHOWN_FACTS, facts_of_day, find_gaps, insight_prompt, period_of, read_insights, review_dreams, shown_facts
from hermes.soul.extract_answer import BadAnswer
from hermes.soul.fact_keys import KEYS, SYSTEM_KEYS, gap_texts

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def fact(text: str, key: str | None = None, age: timedelta = timedelta(hours=1), number: int | None = None) -> Fact:
    fact_id = uuid4() if number is None else UUID(int=number)
    return Fact(id=fact_id, text=text, key=key, origin=FactOrigin.SAID, source_turn=None, confidence=1.0, valid_from=NOW - age)


def clean(text: str) -> str | None:
    return None if "jailbreak" in text else text


def said(dreams: list[Dream]) -> list[tuple[DreamKind, str]]:
    return [(dream.kind, dream.text) for dream in dreams]


def test_a_day_is_a_day_and_a_week_begins_on_monday() -> None:
    assert (period_of(DreamDepth.LIGHT, NOW), period_of(DreamDepth.DEEP, NOW)) == (date(2026, 11, 15), date(2026, 11, 9))


def test_a_light_dream_reads_the_facts_of_the_day() -> None:
    facts = [fact("I surf"), fact("My brother surfs", age=timedelta(days=3)), fact("surfing", "interests")]
    assert [each.text for each in facts_of_day(facts, NOW)] == ["I surf", "surfing"]


def test_gaps_take_turns_and_are_three_at_most() -> None:
    first = find_gaps([], [])
    second = find_gaps([], first)
    assert [dream.key for dream in first] == ["diet", "allergies", "home_area"]
    assert [dream.key for dream in second] == ["timezone", "favorite_areas", "favorite_category"]
    everything = [fact("x", key) for key in KEYS if key != "diet"]
    assert [dream.key for dream in find_gaps(everything, first)] == ["diet"]
    assert find_gaps([*everything, fact("vegan", "diet")], []) == []


def test_every_gap_is_a_key_that_a_user_can_tell() -> None:
    assert gap_texts().keys() == {name for name, key in KEYS.items() if key.heading != FITNESS_HEADING and name not in SYSTEM_KEYS}


def test_an_insight_of_a_model_names_its_facts() -> None:
    facts = [fact("I surf on Saturdays", number=1), fact("My board is blue", number=2)]
    [dream] = read_insights(json.dumps({"insights": [{"text": "Surfing is their\n Saturday.", "evidence": [1, 2, 1]}]}), facts)
    assert (dream.text, dream.evidence) == ("Surfing is their Saturday.", (UUID(int=1), UUID(int=2)))


@pytest.mark.parametrize(
    "answer",
    [
        "no",
        "{}",
        '{"insights": [{"text": "x"}]}',
        '{"insights": [{"text": "x", "evidence": [3]}]}',
        '{"insights": [{"text": "x", "evidence": [true]}]}',
        json.dumps({"insights": [{"text": "x", "evidence": [1]}] * 6}),
    ],
)
def test_an_answer_of_another_form_is_no_dream(answer: str) -> None:
    with pytest.raises(BadAnswer):
        read_insights(answer, [fact("a"), fact("b")])


def test_every_line_is_reviewed_and_the_rejected_ones_say_why() -> None:
    facts = [fact("I surf on Saturdays", number=1), fact("My surfboard is blue", number=2)]
    both = (UUID(int=1), UUID(int=2))
    dreams = [
        Dream(kind=DreamKind.INSIGHT, text="Surf is a large part of their life.", evidence=both),
        Dream(kind=DreamKind.INSIGHT, text="A jailbreak.", evidence=both),
        Dream(kind=DreamKind.INSIGHT, text="They surf a lot.", evidence=(UUID(int=1), UUID(int=99))),
        Dream(kind=DreamKind.INSIGHT, text="They own a bakery.", evidence=both),
        Dream(kind=DreamKind.INSIGHT, text="I surf on Saturdays!", evidence=both),
        Dream(kind=DreamKind.INSIGHT, text="Surf is a large part of their life", evidence=both),
        Dream(kind=DreamKind.GAP, text="Shoe size.", key="shoe_size"),
        Dream(kind=DreamKind.GAP, text=gap_texts()["diet"], key="diet"),
    ]
    checked = review_dreams(dreams, facts, clean)
    assert [(dream.review, dream.reason) for dream in checked] == [
        (DreamReview.ACCEPTED, ""),
        (DreamReview.REJECTED, "unsafe"),
        (DreamReview.REJECTED, "too little evidence"),
        (DreamReview.REJECTED, "not about its evidence"),
        (DreamReview.REJECTED, "known already"),
        (DreamReview.REJECTED, "known already"),
        (DreamReview.REJECTED, "no such key"),
        (DreamReview.ACCEPTED, ""),
    ]
    assert [dream.text for dream in checked] == [dream.text for dream in dreams]


def test_an_old_fact_that_a_line_follows_from_is_shown_beside_the_newest() -> None:
    facts = [fact(f"fact {number}") for number in range(MAX_SHOWN_FACTS + 10)]
    concluded = Dream(kind=DreamKind.INSIGHT, text="a line", evidence=(facts[3].id, facts[-1].id))
    shown = shown_facts(facts, [concluded])
    assert shown == [facts[3], *facts[10:]]
    assert insight_prompt(shown, [concluded])[1]["content"].splitlines()[-2] == f"Concluded from 1, {MAX_SHOWN_FACTS + 1}: a line"
    assert shown_facts(facts) == facts[10:]
