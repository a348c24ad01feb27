# ruff: noqa: RUF001  # people write in other scripts
"""What users tell, correct and ask to forget, in sixteen languages, on real stores: read off the next prompt, and off the answer.

Once without a model, where the script's rules read it, and once with one that calls the tools."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from hermes.app import Hermes, open_hermes
from hermes.backends import Script, ScriptedBackend
from hermes.config import DatabaseSettings, MemorySettings, Secret, Settings
from hermes.ports.backends import Ask
from hermes.ports.memories import Depth, Dream, DreamKind, Fact, Origin
from hermes.ports.models import Answer, Caller
from hermes.ports.people import Channel, UserState
from hermes.soul.facts_plan import Learnt
from hermes.soul.forgetting import Wish
from hermes.stores.postgres.database import on
from hermes.turn import Envelope, MessageEvent, Platform
from tests.flows.echo import own_words, said


@dataclass(frozen=True)
class Talk:
    """What somebody says in their language: an allergy to `thing`, a diet, that they eat fish now, and what is to be forgotten."""

    allergy: str
    thing: str
    diet: str
    fish: str
    forget: str
    forget_all: str
    forgotten: str
    """How the answer begins that says so."""
    all_forgotten: str


TALKS = {
    "en": Talk(
        "I'm allergic to peanuts",
        "peanuts",
        "I'm vegetarian",
        "forget what I said about being vegetarian, I eat fish now",
        "Forget that I'm allergic to peanuts",
        "Forget everything you know about me",
        "I have forgotten that: peanuts",
        "I have forgotten everything",
    ),
    "id": Talk(
        "Saya alergi kacang",
        "kacang",
        "Saya vegetarian",
        "Saya bukan vegetarian lagi, sekarang saya makan ikan",
        "Lupakan bahwa saya alergi kacang",
        "Lupakan semua yang kamu tahu tentang saya",
        "Sudah aku lupakan: kacang",
        "Semua yang aku tahu tentang kamu sudah aku lupakan",
    ),
    "es": Talk(
        "Soy alérgico a los cacahuetes",
        "cacahuetes",
        "Soy vegetariana",
        "Ya no soy vegetariano, ahora como pescado",
        "Olvida que soy alérgico a los cacahuetes",
        "olvida todo lo que sabes de mí",
        "Lo he olvidado: cacahuetes",
        "He olvidado todo",
    ),
    "fr": Talk(
        "Je suis allergique aux cacahuètes",
        "cacahuètes",
        "Je suis végétarienne",
        "Je ne suis plus végétarien, je mange du poisson maintenant",
        "Oublie que je suis allergique aux cacahuètes",
        "oublie tout ce que tu sais sur moi",
        "Je l'ai oublié : cacahuètes",
        "J'ai oublié tout",
    ),
    "de": Talk(
        "Ich bin allergisch gegen Erdnüsse",
        "Erdnüsse",
        "Ich bin Vegetarierin",
        "Ich bin kein Vegetarier mehr, ich esse jetzt Fisch",
        "Vergiss, dass ich gegen Erdnüsse allergisch bin",
        "Vergiss alles, was du über mich weißt",
        "Das habe ich vergessen: Erdnüsse",
        "Ich habe alles vergessen",
    ),
    "it": Talk(
        "Sono allergico alle arachidi",
        "arachidi",
        "Sono vegetariana",
        "Non sono più vegetariano, ora mangio il pesce",
        "Dimentica che sono allergico alle arachidi",
        "Dimentica tutto quello che sai di me",
        "L'ho dimenticato: arachidi",
        "Ho dimenticato tutto",
    ),
    "pt": Talk(
        "Sou alérgico a amendoim",
        "amendoim",
        "Sou vegetariana",
        "Não sou mais vegetariano, agora como peixe",
        "Esqueça que sou alérgico a amendoim",
        "Esqueça tudo o que você sabe sobre mim",
        "Já esqueci: amendoim",
        "Esqueci tudo",
    ),
    "nl": Talk(
        "Ik ben allergisch voor pinda's",
        "pinda's",
        "Ik ben vegetariër",
        "Ik ben geen vegetariër meer, ik eet nu vis",
        "Vergeet dat ik allergisch ben voor pinda's",
        "Vergeet alles wat je over mij weet",
        "Dat ben ik vergeten: pinda's",
        "Ik ben alles vergeten",
    ),
    "ru": Talk(
        "У меня аллергия на арахис",
        "арахис",
        "Я вегетарианка",
        "Я больше не вегетарианец, теперь ем рыбу",
        "Забудь, что у меня аллергия на арахис",
        "Забудь всё, что ты обо мне знаешь",
        "Я это забыл: арахис",
        "Я забыл всё",
    ),
    "zh": Talk(
        "我对花生过敏",
        "花生",
        "我是素食者",
        "我不再吃素了，现在吃鱼",
        "忘记我对花生过敏",
        "忘记你知道的关于我的一切",
        "我已经忘记了：花生",
        "我已经忘记了关于你的一切",
    ),
    "ja": Talk(
        "私はピーナッツアレルギーです",
        "ピーナッツ",
        "私はベジタリアンです",
        "もうベジタリアンじゃないです、今は魚を食べます",
        "私がピーナッツアレルギーだということを忘れて",
        "私について知っていることを全部忘れて",
        "忘れました：ピーナッツ",
        "あなたについて知っていたことはすべて忘れました",
    ),
    "ko": Talk(
        "저는 땅콩 알레르기가 있어요",
        "땅콩",
        "저는 채식주의자예요",
        "이제 채식주의자 아니에요, 지금은 생선 먹어요",
        "내가 땅콩 알레르기 있다는 거 잊어줘",
        "나에 대해 아는 거 전부 잊어줘",
        "잊었어요: 땅콩",
        "당신에 대해 알고 있던 것을 모두 잊었어요",
    ),
    "ar": Talk(
        "عندي حساسية من الفول السوداني",
        "الفول السوداني",
        "أنا نباتي",
        "لم أعد نباتيا، آكل السمك الآن",
        "انسى أن عندي حساسية من الفول السوداني",
        "انس كل ما تعرفه عني",
        "لقد نسيت ذلك: الفول السوداني",
        "لقد نسيت كل",
    ),
    "hi": Talk(
        "मुझे मूंगफली से एलर्जी है",
        "मूंगफली",
        "मैं शाकाहारी हूँ",
        "मैं अब शाकाहारी नहीं हूँ, अब मछली खाता हूँ",
        "भूल जाओ कि मुझे मूंगफली से एलर्जी है",
        "मेरे बारे में सब कुछ भूल जाओ",
        "मैं यह भूल गया हूँ: मूंगफली",
        "मैं आपके बारे में जो कुछ जानता था, सब भूल गया हूँ",
    ),
    "th": Talk(
        "ฉันแพ้ถั่วลิสง",
        "ถั่วลิสง",
        "ฉันเป็นมังสวิรัติ",
        "ฉันไม่ได้เป็นมังสวิรัติแล้ว ตอนนี้กินปลา",
        "ลืมไปเลยว่าฉันแพ้ถั่วลิสง",
        "ลืมทุกอย่างที่คุณรู้เกี่ยวกับฉัน",
        "ผมลืมแล้ว: ถั่วลิสง",
        "ผมลืมทุกอย่าง",
    ),
    "tr": Talk(
        "Fıstığa alerjim var",
        "Fıstığa",
        "Vejetaryenim",
        "Artık vejetaryen değilim, şimdi balık yiyorum",
        "Fıstığa alerjim olduğunu unut",
        "Hakkımda bildiğin her şeyi unut",
        "Bunu unuttum: Fıstığa",
        "Hakkımda".replace("Hakkımda", "Hakkınızda bildiğim her şeyi unuttum"),
    ),
}
NEUTRAL = "what is the weather like?"


@dataclass
class Scripted:
    """The port Models, with the concierge that ships behind it; it keeps what it was asked first in each turn."""

    prompts: list[Sequence[Mapping[str, Any]]] = field(default_factory=list)
    backend: ScriptedBackend = field(default_factory=lambda: ScriptedBackend(Script.usual()))

    async def complete(self, ask: Ask, _: Caller) -> Answer:
        if ask.messages[-1]["role"] == "user":
            self.prompts.append([dict(message) for message in ask.messages])
        completion = await self.backend.complete(ask, "scripted", timeout_s=5)
        return Answer(uuid4(), completion, "scripted", "scripted", 0, {}, (), 1)


@dataclass
class Understanding:
    """A model that calls the tools that a test says for a text, and then says what they brought."""

    calls: dict[str, list[tuple[str, dict[str, Any]]]] = field(default_factory=dict)
    prompts: list[Sequence[Mapping[str, Any]]] = field(default_factory=list)

    async def complete(self, ask: Ask, _: Caller) -> Answer:
        if ask.messages[-1]["role"] == "tool":
            brought = [message["content"] for message in ask.messages[-12:] if message["role"] == "tool"]
            return said(brought[-1])
        self.prompts.append([dict(message) for message in ask.messages])
        offered = {tool["function"]["name"] for tool in ask.tools}
        calls = self.calls.get(own_words(ask), [])
        assert {name for name, _ in calls} <= offered, "the gate offers what is needed"
        made = [
            {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for number, (name, arguments) in enumerate(calls)
        ]
        return said(None if made else "All right.", tool_calls=made)


@dataclass(frozen=True)
class House:
    """Hermes without a worker: a test drives every turn, and every job, itself."""

    hermes: Hermes
    model: Any

    async def accept(self, text: str, user: str = "ada", channel: str | None = None) -> UUID:
        event = MessageEvent(platform=Platform.REST, sender_id=user, text=text)
        envelope = Envelope(event=event, account="shop", channel_id=channel or user, event_key=str(uuid4()))
        return (await self.hermes.intake.accept(envelope, newcomer=UserState.ACTIVE)).turn_id

    async def turn(self, text: str, user: str = "ada", channel: str | None = None) -> UUID:
        turn_id = await self.accept(text, user, channel)
        await self.hermes.turn(turn_id)
        return turn_id

    async def say(self, text: str, user: str = "ada", channel: str | None = None) -> str:
        """Have a message answered, and learnt from; return the answer."""
        turn_id = await self.turn(text, user, channel)
        await self.hermes.memory(turn_id)
        [[body]] = await self.rows("select body from outbox where turn_id = %s", turn_id)
        return str(body)

    @property
    def system(self) -> str:
        return str(self.model.prompts[-1][0]["content"])

    @property
    def prompt(self) -> str:
        return json.dumps(self.model.prompts[-1], ensure_ascii=False)

    async def user(self, name: str = "ada") -> UUID:
        async with self.hermes.database.begin() as tx:
            user = await self.hermes.parts.people.find(tx, Channel("shop", Platform.REST, name))
        assert user is not None
        return user.id

    async def facts(self, name: str = "ada") -> list[Fact]:
        async with self.hermes.database.begin() as tx:
            return list(await self.hermes.parts.memories.all(tx, await self.user(name)))

    async def rows(self, query: str, *values: object) -> list[Any]:
        async with self.hermes.database.begin() as tx:
            return await (await on(tx).execute(query.encode(), values)).fetchall()
