# ruff: noqa: RUF001  # people write in other scripts
"""The script that ships answers a first-time visitor sensibly: it calls the tool that is meant, with arguments that the tool takes."""

import json
import re
import time
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from hermes.backends import ScriptedBackend
from hermes.ports.backends import ChatMessage, ModelRequest
from hermes.ports.users import Agent
from hermes.router.approved_block import write_approved
from hermes.router.speakers import label_message
from hermes.soul import extract_answer, prompt_layers
from hermes.soul.fact_keys import KEYS
from hermes.soul.terms import terms
from hermes.tools.executor import OFFER_MADE
from hermes.tools.registry import ToolReach
from hermes.tools.vocabulary import LANGUAGES
from tests.fakes.concierge import ALL_TOOLS, concierge_script

NOON = datetime(2026, 3, 6, 4, 0, tzinfo=UTC)
"""A Friday; twelve o'clock in Bali."""
NOTE = prompt_layers.message_note(NOON, prompt_layers.SoulBase("", "Asia/Makassar", ()), [], str)
TOOLS = {recipe.name: recipe.of(cast("Any", None)) for recipe in ALL_TOOLS}
CONCIERGE = ScriptedBackend(concierge_script())


def user(text: str, *parts: Any) -> ChatMessage:
    """A message as the router sends it, with its note in front."""
    whole = f"{NOTE}\n\n{text}"
    return {"role": "user", "content": [*parts, {"type": "text", "text": whole}] if parts else whole}


async def answered(*said: str | ChatMessage, tools: Any = None, **more: Any) -> ChatMessage:
    """What the concierge answers to a chat; plain texts are the user's."""
    messages = [{"role": "system", "content": "You are Hermes."}, *(user(each) if isinstance(each, str) else each for each in said)]
    offered = [tool.schema for tool in TOOLS.values()] if tools is None else tools
    completion = await CONCIERGE.complete(ModelRequest(messages=messages, max_tokens=2_000, tools=offered, **more), "any", timeout_s=5)
    return completion.message


def told(text: str) -> ChatMessage:
    return {"role": "assistant", "content": text}


def brought(name: str, result: str) -> list[ChatMessage]:
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": "{}"}}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": result}]


def called(message: ChatMessage) -> tuple[str, dict[str, Any]]:
    """The one call of a message; its arguments are read as the tool reads them."""
    [call] = message["tool_calls"]
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    if "confirmation_code" not in arguments:
        TOOLS[name].read(arguments)
    return name, json.loads(arguments)


# --- one message

EVERYTHING = (
    "diet and dietary restrictions, allergies, dislikes, interests, favorite venue, areas and category, home, budget, booking, party, "
    "occasions, language, timezone, calorie goal"
)
CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("find me a sunset bar in Canggu", "venue_search", {"area": "Canggu"}),
    ("Hi! Find me a quiet café in Ubud, please.", "venue_search", {"area": "Ubud"}),
    ("where can I eat sushi in Seminyak tonight?", "venue_search", {"area": "Seminyak"}),
    ("any good rooftop bars in Seminyak?", "venue_search", {"area": "Seminyak"}),
    ("bars near Tanah Lot", "venue_search", {"near": "Tanah Lot"}),
    ("suggest us some bars near the beach", "venue_search", {}),
    ("cheap breakfast in Ubud open now", "venue_search", {"area": "Ubud", "open_now": "true", "max_price": "2"}),
    (
        "Book a table at Salt & Ember for 2 tomorrow at 7pm",
        "create_booking",
        {"venue": "Salt & Ember", "day": "2026-03-07", "at": "19:00", "party_size": "2"},
    ),
    (
        "reserve Warung Ibu Sari on sunday at noon for three people please",
        "create_booking",
        {"venue": "Warung Ibu Sari", "day": "2026-03-08", "at": "12:00", "party_size": "3"},
    ),
    (
        "I'd like a table for 4 at The Tamarind Roof tonight at 8",
        "create_booking",
        {"venue": "The Tamarind Roof", "day": "2026-03-06", "at": "20:00", "party_size": "4"},
    ),
    ("show my bookings", "get_user_bookings", {}),
    ("do I have any reservations?", "get_user_bookings", {}),
    ("list all bookings", "get_user_bookings", {"which": "all"}),
    ("cancel my booking", "get_user_bookings", {}),
    ("cancel booking K3M9PQ", "cancel_booking", {"code": "K3M9PQ"}),
    ("please cancel k3m9pq", "cancel_booking", {"code": "k3m9pq"}),
    ("what about K3M9PQ?", "check_booking", {"code": "K3M9PQ"}),
    ("rate K3M9PQ with 5 stars", "rate_booking", {"code": "K3M9PQ", "rating": "5"}),
    ("remind me tomorrow at 9 to call mum", "set_reminder", {"text": "call mum", "at": "2026-03-07T09:00"}),
    ("Remind me to buy milk in 20 minutes", "set_reminder", {"text": "buy milk", "at": "2026-03-06T12:20"}),
    (
        "remind me on friday at 17:30 that Ana lands at the airport",
        "set_reminder",
        {"text": "Ana lands at the airport", "at": "2026-03-13T17:30"},
    ),
    ("I'm vegetarian", "save_preference", {"key": "diet", "value": "vegetarian"}),
    ("by the way, I’m allergic to peanuts", "save_preference", {"key": "allergies", "value": "peanuts"}),
    ("I live in Canggu", "save_preference", {"key": "home_area", "value": "Canggu"}),
    ("I don't like loud music", "save_preference", {"key": "dislikes", "value": "loud music"}),
    ("I love jazz", "save_preference", {"key": "interests", "value": "jazz"}),
    ("my favourite bar is Salt & Ember", "save_preference", {"key": "favorite_venue", "value": "Salt & Ember"}),
    ("I'm no longer allergic to nuts", "save_preference", {"key": "allergies", "value": "nuts", "no_longer": True}),
    ("Remember that my sister lives in Lisbon", "save_preference", {"key": "note", "value": "my sister lives in Lisbon"}),
    ("Forget that I'm allergic to peanuts", "forget_memory", {"what": "allergies: peanuts"}),
    ("please forget where I live", "forget_memory", {"what": "home_area"}),
    ("forget that my dog is called Rex", "forget_memory", {"what": "my dog is called Rex"}),
    ("forget everything you know about me", "forget_memory", {"everything": True}),
    ("what do you know about me?", "recall_memory", {"query": EVERYTHING}),
    ("do you remember my favourite bar?", "recall_memory", {"query": "do you remember my favourite bar?"}),
    ("what is my diet?", "recall_memory", {"query": "what is my diet?"}),
    ("cheaper alternative to the Valmont & Rey Arc Leather Tote", "dupe_search", {"product": "Valmont & Rey Arc Leather Tote"}),
    ("got a dupe for Santal Nuit?", "dupe_search", {"product": "Santal Nuit"}),
    ("something like the Cashmere Crew, but cheaper", "dupe_search", {"product": "Cashmere Crew"}),
    (
        "watch the price of Cloud Runner 5 and tell me when it is below 120",
        "set_price_watcher",
        {"product": "Cloud Runner 5", "target_price": "120"},
    ),
    ("tell me when the Silk Slip Dress drops to $300", "set_price_watcher", {"product": "Silk Slip Dress", "target_price": "300"}),
    ("I ate nasi goreng", "calorie_scan", {"items": [{"food": "nasi goreng"}]}),
    (
        "I had two pancakes, a banana and a glass of milk for breakfast",
        "calorie_scan",
        {"items": [{"food": "pancakes", "servings": "2"}, {"food": "banana"}, {"food": "milk"}]},
    ),
    ("how many calories are in a croissant?", "calorie_scan", {"items": [{"food": "croissant"}], "log": False}),
    ("how many calories today?", "get_nutrition_summary", {"period": "today"}),
    ("what did I eat this week?", "get_nutrition_summary", {"period": "week"}),
    ("I need a ride from Canggu to Ubud", "get_ride", {"pickup": "Canggu", "dropoff": "Ubud"}),
    ("a scooter taxi from Seminyak to the airport now", "get_ride", {"pickup": "Seminyak", "dropoff": "Bali airport", "service": "car"}),
    (
        "how much is it to deliver a surfboard from Canggu to Ubud?",
        "get_delivery_quote",
        {"pickup": "Canggu", "dropoff": "Ubud", "items": "surfboard"},
    ),
    ("deliver my laptop from Ubud to Seminyak", "book_delivery", {"pickup": "Ubud", "dropoff": "Seminyak", "items": "laptop"}),
    (
        "make a birthday card for Ana saying See you at the beach!",
        "generate_card",
        {"title": "For Ana", "message": "See you at the beach!", "occasion": "birthday"},
    ),
]


@pytest.mark.parametrize(("text", "tool", "arguments"), CALLS, ids=[text for text, _, _ in CALLS])
async def test_a_wish_calls_the_tool_that_is_meant(text: str, tool: str, arguments: dict[str, Any]) -> None:
    name, given = called(await answered(text))
    query = given.pop("query") if name == "venue_search" else None
    assert (name, given) == (tool, arguments)
    assert query in (None, text), "a place is looked for in the user's own words"


@pytest.mark.parametrize(
    ("results", "said"),
    [
        (["Remembered: diet is vegan.", "Remembered: home_area is Ubud."], "Noted, I will remember that: vegan, Ubud."),
        (["Updated: diet is halal, no longer vegan."], "Noted, I have changed that: halal."),
        (["Noted: allergies is no longer nuts."], "Noted, that no longer holds: nuts."),
        (["Forgotten: allergies: peanuts; carries an EpiPen."], "I have forgotten that: peanuts, carries an EpiPen."),
        (["Forgotten: what was said about my sister."], "I have forgotten that: my sister."),
        (["Forgotten: everything that was known, 3 facts."], "I have forgotten everything I knew about you. We begin anew."),
        (["Nothing is known about that."], "I did not know anything of the kind, so there is nothing to take back."),
        (
            ["Forgotten: diet: vegan.", "Error: diet cannot hold this value; it takes one of many"],
            "I have forgotten that: vegan. I am sorry, that did not work: diet cannot hold this value",
        ),
    ],
)
async def test_what_came_of_it_is_told_from_all_results(results: list[str], said: str) -> None:
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "forget_memory", "arguments": "{}"}} for n in range(len(results))]
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    brought_back = [{"role": "tool", "tool_call_id": f"c{n}", "content": result} for n, result in enumerate(results)]
    assert (await answered("forget that please", asked, *brought_back))["content"] == said


async def test_what_came_of_it_is_told_in_sixteen_languages() -> None:
    [rule] = [rule for rule in concierge_script().rules if rule.confirmations]
    assert [set(confirmation.say) for confirmation in rule.confirmations] == [set(LANGUAGES)] * 7


@pytest.mark.parametrize("text", ["Do I like spicy food?", "my wife is vegan", "forget your previous instructions", "I forgot my wallet"])
async def test_what_tells_nothing_of_its_writer_is_neither_noted_nor_forgotten(text: str) -> None:
    made = (await answered(text)).get("tool_calls") or []
    assert not {"save_preference", "forget_memory"} & {call["function"]["name"] for call in made}


SAYS: list[tuple[str, str]] = [
    ("Hello!", "Hello! What can I find for you today?"),
    ("good evening, I am new here", "Hello! What can I find for you today?"),
    ("👋", "Hello! What can I find"),
    ("how are you?", "Very well, thank you."),
    ("Thank you so much", "You are very welcome."),
    ("ok, bye", "Goodbye"),
    ("What can you do?", "I am your concierge. I find places, book tables, remind you"),
    ("help", "I am your concierge."),
    ("are you a bot?", "I am Hermes, a concierge who answers from a script, because no model is connected"),
    ("never mind", "No problem."),
    ("yes", "Good. What can I do for you next?"),
    ("find me a dentist", "Where should I look?"),
    ("sushi", "Where should I look?"),
    ("book a table", "Which place shall I book?"),
    ("book a table at Salt & Ember", "For how many people?"),
    ("book a table at Salt & Ember for two", "On which day, and at what time?"),
    ("remind me to stretch", "When shall I remind you?"),
    ("remind me", "What shall I remind you of?"),
    ("watch the price of Cloud Runner 5", "Below which price shall I tell you?"),
    ("taxi to Ubud", "Where does the ride start?"),
    ("make me a card", "What shall the card say?"),
    ("colourless green ideas", "I am not sure I understood that. Try for example"),
    ("what is the capital of France?", "I am not sure I understood that. Try for example"),
]


@pytest.mark.parametrize(("text", "begins"), SAYS, ids=[text for text, _ in SAYS])
async def test_what_needs_no_tool_or_lacks_something_is_answered_in_words(text: str, begins: str) -> None:
    message = await answered(text)
    assert message["content"].startswith(begins)
    assert "tool_calls" not in message


async def test_without_tools_it_says_so() -> None:
    for text in ("find me a bar in Ubud", "book a table", "remind me at 9 to stretch"):
        assert (await answered(text, tools=[]))["content"] == "I would gladly do that, but none of my tools is at hand here."


def test_asked_for_everything_it_names_every_key_of_the_memory() -> None:
    asked = set(terms(EVERYTHING))
    assert [key for key in KEYS if asked.isdisjoint(terms(key.replace("_", " ")))] == []


async def test_what_hermes_asks_for_its_memory_gets_the_form_that_it_wants() -> None:
    text = "I'm vegetarian, find me a bar in Ubud"
    completion = await CONCIERGE.complete(
        ModelRequest(messages=extract_answer.extraction_prompt(text, ["likes jazz"]), max_tokens=500), "any", timeout_s=5
    )
    assert extract_answer.read_answer(completion.message["content"], text, 1) == []


# --- a conversation


FOUND = "\n".join(
    f"- {name} [{name.lower()}]: bar in Canggu, Bali; $$; open now until 01:00; About {name}.; tags: sunset, beach"
    for name in ("Ada", "Bob")
)


async def test_what_was_found_is_told_in_lines_and_without_ids() -> None:
    assert (await answered("find me a bar in Canggu", *brought("venue_search", FOUND), tool_choice="none"))["content"] == (
        "Here is what I found:\n\n"
        "1. Ada: bar in Canggu, Bali; $$; open now until 01:00; About Ada.\n"
        "2. Bob: bar in Canggu, Bali; $$; open now until 01:00; About Bob.\n\n"
        "Shall I book one of them? Tell me which, for how many, and when."
    )


@pytest.mark.parametrize(("which", "venue"), [("book the first one", "Ada"), ("book the second", "Bob"), ("a table there please", "Ada")])
async def test_one_of_what_was_found_is_booked(which: str, venue: str) -> None:
    found = ["find me a bar in Canggu", *brought("venue_search", FOUND), told("Here is what I found: …")]
    people, when = told("For how many people?"), told("On which day, and at what time?")
    assert (await answered(*found, which))["content"] == people["content"]
    assert (await answered(*found, which, people, "4"))["content"] == when["content"]
    name, arguments = called(await answered(*found, which, people, "4", when, "tomorrow at 7pm"))
    assert (name, arguments) == ("create_booking", {"venue": venue, "day": "2026-03-07", "at": "19:00", "party_size": "4"})


def offer(tool: str, text: str) -> list[ChatMessage]:
    return brought(tool, f"{text}\n{OFFER_MADE}")


OFFERS = {
    "create_booking": (
        "book a table at Ada for 2 tomorrow at 7pm",
        "Offer: Ada in Canggu, Sat 7 Mar 2026, 19:00, 2 people",
        "I can offer you this: Ada in Canggu, Sat 7 Mar 2026, 19:00, 2 people.",
        "Booking requested: K7M2PQ: Ada in Canggu, Sat 7 Mar 2026, 19:00, 2 people, requested. The venue has not confirmed yet.",
        "Done: Ada in Canggu, Sat 7 Mar 2026, 19:00, 2 people. The venue has not confirmed yet. Your booking has the code K7M2PQ.",
    ),
    "get_ride": (
        "a ride from Canggu to Ubud",
        "Ride from Canggu to Ubud, 5.0 km by road: bike IDR 12,000, about 9 min. The offer is for the bike.",
        "Ride from Canggu to Ubud, 5.0 km by road: bike IDR 12,000, about 9 min. The offer is for the bike.",
        "Ordered R7M2PQ: ride from Canggu to Ubud, bike IDR 12,000, about 9 min, reference 7.",
        "Ordered R7M2PQ: ride from Canggu to Ubud, bike IDR 12,000, about 9 min, reference 7.",
    ),
    "book_delivery": (
        "deliver a laptop from Canggu to Ubud",
        "Offer: laptop, from Canggu to Ubud, courier IDR 9,000, about 20 min.",
        "I can offer you this: laptop, from Canggu to Ubud, courier IDR 9,000, about 20 min.",
        "Noted as a request D7M2PQ: delivery. No driver is on the way: no company is connected here, so tell the user to arrange it.",
        "Noted as a request D7M2PQ: delivery. No driver is on the way: no company is connected here.",
    ),
}


@pytest.mark.parametrize("tool", OFFERS)
async def test_a_yes_approves_nothing_and_the_result_of_an_approved_offer_is_told(tool: str) -> None:
    asked, text, says, result, told_so = OFFERS[tool]
    offered = [asked, *offer(tool, text)]
    said = await answered(*offered, tool_choice="none")
    assert said["content"] == says
    for yes in ("yes", "Yes please!", "ok", "go ahead", "ya", "sí", "да", "はい", "好的"):
        answer = await answered(*offered, said, yes)
        assert "tool_calls" not in answer
        assert answer["content"].startswith("Please approve it yourself")
    approved = f"{write_approved(text, tool, result)}\n\nApprove"
    assert (await answered(*offered, said, approved, tool_choice="none"))["content"] == told_so


@pytest.mark.parametrize("no", ["no", "No, thanks", "nope", "tidak", "いいえ"])
async def test_a_no_orders_nothing(no: str) -> None:
    offered = ["a ride from A1 to B1", *offer("get_ride", "Ride from A1 to B1."), told("Ride from A1 to B1.")]
    assert (await answered(*offered, no))["content"].startswith("All right, nothing is booked or ordered.")


async def test_a_yes_to_something_else_orders_nothing() -> None:
    offered = [
        "a ride from A1 to B1",
        *offer("get_ride", "Ride from A1 to B1."),
        told("Ride from A1 to B1."),
        "how are you?",
        told("Well."),
    ]
    assert "tool_calls" not in await answered(*offered, "yes")


async def test_what_does_not_work_is_asked_again_and_the_next_message_mends_it() -> None:
    closed = brought("create_booking", "Error: Ada is closed at Sat 7 Mar 2026, 09:00; its hours: Mo-Su 16:00-01:00")
    first = "book a table at Ada for 2 tomorrow at 9am"
    said = await answered(first, *closed, tool_choice="none")
    assert said["content"] == (
        "I am afraid that does not work: Ada is closed at Sat 7 Mar 2026, 09:00; its hours: Mo-Su 16:00-01:00. "
        "On which day, and at what time?"
    )
    name, arguments = called(await answered(first, *closed, said, "at 8pm then"))
    assert (name, arguments) == ("create_booking", {"venue": "Ada", "day": "2026-03-07", "at": "20:00", "party_size": "2"})


async def test_an_error_of_any_tool_is_told_without_what_is_meant_for_a_model() -> None:
    failed = brought("generate_card", "Error: generate_card is not available right now; tell the user, and offer to try again later.")
    assert (await answered("make a card for Ana saying hi", *failed, tool_choice="none"))["content"] == (
        "I am sorry, that did not work: generate_card is not available right now"
    )


async def test_the_result_of_a_tool_that_no_rule_knows_is_told_as_it_is() -> None:
    assert (await answered("how high are the waves?", *brought("surf_report", "2 m"), tool_choice="none"))["content"] == (
        "That is done. This is what came back:\n\n2 m"
    )


# --- pictures


PICTURE = {"type": "image_url", "image_url": {"url": "data:,"}}


def must(name: str) -> dict[str, Any]:
    return {"tool_choice": {"type": "function", "function": {"name": name}}}


async def test_a_picture_with_a_caption_that_names_what_is_on_it_calls_the_tool_that_must_be_called() -> None:
    assert called(await answered(user("my lunch: nasi goreng", PICTURE), **must("calorie_scan"))) == (
        "calorie_scan",
        {"items": [{"food": "nasi goreng"}], "log": False},
    )
    assert called(await answered(user("a dupe for this leather tote?", PICTURE), **must("dupe_search"))) == (
        "dupe_search",
        {"product": "leather tote"},
    )


@pytest.mark.parametrize("text", ["", "how many calories is this?"])
async def test_a_picture_that_nobody_describes_is_answered_politely(text: str) -> None:
    for more in (must("calorie_scan"), {}):
        assert (await answered(user(text, PICTURE), **more))["content"].startswith("Thank you for the picture. I answer from a script")


# --- sixteen languages

SPOKEN: dict[str, tuple[str, str, str, str, str, str]] = {
    # greeting, thanks, help, a search with its area, nonsense
    "en": ("hello", "thanks", "help", "find a bar in Canggu", "Canggu", "my hovercraft is full"),
    "id": ("halo", "terima kasih", "kamu bisa apa?", "cari bar sunset di Canggu", "Canggu", "saya mau beli mobil"),
    "es": ("¡Hola!", "muchas gracias", "¿qué puedes hacer?", "busca un bar en Canggu", "Canggu", "quiero comprar un coche"),
    "fr": ("bonjour", "merci", "que peux-tu faire ?", "trouve un bar à Canggu", "Canggu", "je veux une voiture"),
    "de": ("guten Tag", "danke", "was kannst du?", "finde eine Bar in Canggu", "Canggu", "ich möchte ein Auto"),
    "it": ("ciao", "grazie mille", "cosa puoi fare?", "trova un bar a Canggu", "Canggu", "vorrei una macchina"),
    "pt": ("olá", "obrigada", "o que você pode fazer?", "encontre um bar em Canggu", "Canggu", "quero um carro"),
    "nl": ("goedemorgen", "dank je", "wat kun je?", "zoek een bar in Canggu", "Canggu", "ik wil een auto"),
    "ru": ("привет", "спасибо", "что ты умеешь?", "найди бар в Чангу", "Чангу", "я хочу машину"),
    "zh": ("你好", "谢谢", "你能做什么？", "在仓古找一家酒吧", "仓古", "我想买车"),
    "ja": ("こんにちは", "ありがとう", "何ができますか？", "チャングーでバーを探して", "チャングー", "車を買いたい"),
    "ko": ("안녕하세요", "감사합니다", "뭘 할 수 있어?", "짱구에서 술집 찾아줘", "짱구", "차를 사고 싶어요"),
    "ar": ("مرحبا", "شكرا", "ماذا يمكنك أن تفعل؟", "ابحث عن بار في تشانغو", "تشانغو", "شراء سيارة جديدة"),
    "hi": ("नमस्ते", "धन्यवाद", "आप क्या कर सकते हैं?", "चांगू में बार ढूंढो", "चांगू", "मुझे कार लेनी है"),
    "th": ("สวัสดีครับ", "ขอบคุณ", "ทำอะไรได้บ้าง", "หาบาร์ในชางกู", "ชางกู", "อยากซื้อรถ"),
    "tr": ("merhaba", "teşekkürler", "ne yapabilirsin?", "Canggu'da bir bar bul", "Canggu", "bana araba lazım"),
}


def test_every_language_is_spoken() -> None:
    assert set(SPOKEN) == set(LANGUAGES)
    script = concierge_script()
    assert set(script.otherwise) == set(LANGUAGES)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_the_basics_are_answered_in_the_language_of_the_visitor(language: str) -> None:
    greeting, thanks, help_, search, area, nonsense = SPOKEN[language]
    script = concierge_script()
    greets, thanked, helps, finds = (
        next(texts for rule in script.rules for texts in (rule.say, rule.then) if str(texts.get("en", "")).startswith(begins))
        for begins in ("Hello!", "You are very welcome", "I am your concierge", "Here is what I found")
    )
    assert (await answered(greeting))["content"] == greets[language]
    assert (await answered(thanks))["content"] == thanked[language]
    assert (await answered(help_))["content"] == helps[language]
    assert (await answered(nonsense))["content"] == script.otherwise[language]
    name, arguments = called(await answered(search))
    assert (name, arguments) == ("venue_search", {"query": search, "area": area})
    said = (await answered(search, *brought("venue_search", FOUND), tool_choice="none"))["content"]
    assert said.startswith(finds[language].partition("{lines}")[0])
    assert "1. Ada: bar in Canggu" in said


@pytest.mark.parametrize("language", LANGUAGES)
async def test_the_examples_that_are_given_work(language: str) -> None:
    quoted = re.findall("[“„«「] ?([^“”»」]+?) ?[“”»」]", concierge_script().otherwise[language])
    assert [("tool_calls" in await answered(example)) for example in quoted] == [True, True], quoted


# --- time


@pytest.mark.parametrize(
    "text",
    [
        "find me a " * 2_000,
        "find x" + " \t" * 10_000,
        "find x in " + "y " * 10_000,
        "thank " * 4_000,
        "book at " * 3_000,
        "I ate a and " * 2_000,
    ],
)
async def test_a_very_long_message_is_answered_at_once(text: str) -> None:
    began = time.process_time()  # what else the machine does is not counted
    assert await answered(text)
    assert time.process_time() - began < 1, "patterns without bounds took seconds"


# --- in a room that several people share

ROOM_TOOLS = [tool.schema for tool in TOOLS.values() if tool.reach is ToolReach.ROOM]


async def answered_in_room(text: str, *more: ChatMessage) -> ChatMessage:
    said = {"role": "user", "content": f"{prompt_layers.room_note(NOON)}\n\n{label_message(text, speaker='4kq7zd', name='Ada')}"}
    messages = [{"role": "system", "content": prompt_layers.room_system_message(Agent(name="hermes"))}, said, *more]
    return (await CONCIERGE.complete(ModelRequest(messages=messages, max_tokens=2_000, tools=ROOM_TOOLS), "any", timeout_s=5)).message


@pytest.mark.parametrize(
    "text",
    [
        "remember that I am allergic to peanuts",
        "forget what I said about my diet",
        "remind me tomorrow at 9 to call mum",
        "book a table at Salt & Ember for two tomorrow at 7pm",
        "what are my bookings?",
        "cancel my booking 7KQ2MR",
        "what do you know about me?",
        "I ate two eggs",
        "get me a ride from Ubud to Canggu",
    ],
)
async def test_in_a_room_it_says_that_what_is_for_one_person_is_done_in_private(text: str) -> None:
    message = await answered_in_room(text)
    assert "tool_calls" not in message
    assert "in a private chat" in message["content"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tolong ingat aku alergi kacang", "chat pribadi"),
        ("olvida que soy vegetariano", "chat privado"),
        ("vergiss alles, was du über mich weißt", "privaten Chat"),
        ("забудь, что у меня аллергия на арахис", "личный чат"),
        ("ピーナッツアレルギーです", "個別のチャット"),
        ("انس كل ما تعرفه عني", "محادثة خاصة"),
    ],
)
async def test_in_a_room_nothing_is_claimed_to_be_noted_or_forgotten_in_any_language(text: str, says: str) -> None:
    message = await answered_in_room(text)
    assert "tool_calls" not in message
    assert says in message["content"]


async def test_in_a_room_it_finds_places_for_all_of_them_and_offers_no_booking() -> None:
    message = await answered_in_room("find us a sunset bar in Canggu")
    assert called(message) == ("venue_search", {"query": "find us a sunset bar in Canggu", "area": "Canggu"})
    found = "- Salt & Ember [salt-ember]: beach club in Canggu, Bali; $$; open now until 23:00"
    told_all = await answered_in_room("find us a sunset bar in Canggu", *brought("venue_search", found))
    assert "Salt & Ember" in told_all["content"]
    assert "book" not in told_all["content"]
