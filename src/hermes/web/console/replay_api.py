"""`/v1/ops/replays` and `/v1/ops/replay-batches`: what another model would have said, for operators' programs.

Numbers need the role viewer, asking the role operator, keeping the role owner. What was said is content: `?content=true`, in production
with the header `X-Hermes-Reason`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict, Field

from hermes.console.replay_diff import DiffPiece
from hermes.console.replay_forms import read_cursor, read_filter, read_sampling, write_cursor
from hermes.console.replay_keep import NotKept
from hermes.console.replay_record import NotReplayable
from hermes.console.replay_table import ModelSums, build_table
from hermes.console.replays import BatchPlan, ReplayInvalid, ReplayView, conversation_subject
from hermes.ports.errors import NotFound, StaleHead, UserErased
from hermes.ports.operators import Actor
from hermes.ports.replays import MAX_ANSWERS, MAX_BATCH_MODELS, MAX_BATCH_TURNS, Replay, ReplayBatch, ReplayChange, ReplaySource
from hermes.web.console.console_json import ConsoleJson
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.visits import ReasonHeader
from hermes.web.errors import ApiError

PAGE_ROWS = 50
STRICT = ConfigDict(extra="forbid")


class ReplaySampling(BaseModel):
    """What is sampled otherwise. A name that Hermes does not know is an error, and no replay that changes nothing."""

    model_config = STRICT
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None


class ReplayRequest(BaseModel):
    """A turn, or a call of the completions API, and what to change."""

    model_config = STRICT
    turn_id: UUID
    model: str = Field(max_length=200)
    answers: int = Field(1, ge=1, le=MAX_ANSWERS)
    system: str | None = Field(None, max_length=1_000_000, description="Another system text.")
    tools: list[str] | None = Field(None, description="The names of the recorded tools to send; left out: all of them.")
    sampling: ReplaySampling = ReplaySampling()
    run_tools: list[str] = Field(default_factory=list, description="Tools that only read and may run if the arguments are new.")


class ReplayBatchRequest(BaseModel):
    """Which turns, which models. Without `confirm` the answer is the estimate, and nothing is asked."""

    model_config = STRICT
    models: list[str] = Field(min_length=1, max_length=MAX_BATCH_MODELS)
    last: int = Field(20, ge=1, le=MAX_BATCH_TURNS)
    confirm: bool = False
    status: str = ""
    agent: str = ""
    model: str = ""
    platform: str = ""
    tier: str = ""
    tool: str = ""
    user: str = ""
    since: str = ""
    until: str = ""


class KeepRequest(BaseModel):
    """Why an answer becomes training data."""

    model_config = STRICT
    reason: str = Field("", max_length=500)


def replay_api_routes(web: ConsoleWeb) -> APIRouter:
    """The routes of programs."""
    routes = APIRouter(tags=["operations"], default_response_class=ConsoleJson)
    replay = web.console.replay

    @routes.get("/v1/ops/replays", summary="Replays, the newest first")
    async def list_replays(
        actor: Annotated[Actor, Depends(web.visits.find_program)],
        before: Annotated[str, Query(max_length=100, description="`next` of the page before.")] = "",
    ) -> dict[str, Any]:
        with api_errors():
            found = await replay.list(actor, read_cursor(before), limit=PAGE_ROWS + 1)
        has_more = len(found) > PAGE_ROWS
        return {"data": [replay_json(each) for each in found[:PAGE_ROWS]], "next": write_cursor(found[PAGE_ROWS - 1]) if has_more else None}

    @routes.post("/v1/ops/replays", status_code=202, summary="Ask a model again what a turn asked: a dry run")
    async def add_replays(
        actor: Annotated[Actor, Depends(web.visits.find_program)], body: ReplayRequest, reason: ReasonHeader = ""
    ) -> dict[str, Any]:
        with api_errors():
            source = await replay.find_source(actor, body.turn_id)
            change = ReplayChange(
                system=body.system,
                tools=None if body.tools is None else tuple(body.tools),
                sampling=read_sampling(body.sampling.model_dump()),
                run_tools=tuple(body.run_tools),
            )
            ids = await replay.run(actor, source, body.model, change, count=body.answers, reason=reason)
            replay.worker.start(ids)
            found = [(await replay.get(actor, each))[0] for each in ids]
        return {"data": [replay_json(each) for each in found], "estimate_micro_usd": replay.estimate(source, body.model, body.answers)}

    @routes.get("/v1/ops/replays/{replay_id}", summary="One replay; `content=true` opens it")
    async def get_replay(
        actor: Annotated[Actor, Depends(web.visits.find_program)], replay_id: UUID, reason: ReasonHeader = "", *, content: bool = False
    ) -> dict[str, Any]:
        with api_errors():
            found, source = await replay.get(actor, replay_id)
            shown = {**replay_json(found), "recorded": source_json(source)}
            if not content:
                return {"data": shown}
            opened = await web.console.access.open(actor, conversation_subject(source), reason)
            return {"data": {**shown, "content": content_json(await replay.view(opened, found, source))}}

    @routes.post("/v1/ops/replays/{replay_id}/keep", summary="Keep a replay in the message graph, as a sample")
    async def keep_replay(actor: Annotated[Actor, Depends(web.visits.find_program)], replay_id: UUID, body: KeepRequest) -> dict[str, Any]:
        with api_errors():
            return {"kept_as": await replay.keep(actor, replay_id, reason=body.reason)}

    @routes.get("/v1/ops/replay-batches", summary="The newest batches of replays")
    async def list_batches(actor: Annotated[Actor, Depends(web.visits.find_program)]) -> dict[str, Any]:
        return {"data": [batch_json(each) for each in await replay.batches(actor)], "next": None}

    @routes.post("/v1/ops/replay-batches", summary="Replay the last turns of a filter with up to four models")
    async def add_batch(actor: Annotated[Actor, Depends(web.visits.find_program)], body: ReplayBatchRequest) -> dict[str, Any]:
        with api_errors():
            wanted = read_filter(body.model_dump(exclude={"models", "last", "confirm"}), actor.operator.accounts)
            plan = await replay.plan(actor, wanted, body.models, body.last)
            if not body.confirm:
                return {"batch_id": None, **plan_json(plan)}
            return {"batch_id": str(await replay.run_batch(actor, plan)), **plan_json(plan)}

    @routes.get("/v1/ops/replay-batches/{batch_id}", summary="One batch, with a row for each turn")
    async def get_batch(actor: Annotated[Actor, Depends(web.visits.find_program)], batch_id: UUID) -> dict[str, Any]:
        with api_errors():
            batch, replays, sources = await replay.get_batch(actor, batch_id)
        table = build_table(batch, replays, sources)
        rows = [
            {"recorded": source_json(row.source), "replays": [None if cell is None else replay_json(cell) for cell in row.cells]}
            for row in table.rows
        ]
        return {**batch_json(batch), "sums": [sums_json(each) for each in table.sums], "data": rows, "next": None}

    @routes.post("/v1/ops/replay-batches/{batch_id}/stop", summary="Leave out what still waits in a batch")
    async def stop_batch(actor: Annotated[Actor, Depends(web.visits.find_program)], batch_id: UUID) -> dict[str, Any]:
        with api_errors():
            return {"stopped": await replay.stop(actor, batch_id)}

    @routes.post("/v1/ops/replay-batches/{batch_id}/resume", summary="Ask again for what failed or was stopped in a batch")
    async def resume_batch(actor: Annotated[Actor, Depends(web.visits.find_program)], batch_id: UUID) -> dict[str, Any]:
        with api_errors():
            return {"resumed": await replay.resume(actor, batch_id)}

    return routes


@contextmanager
def api_errors() -> Iterator[None]:
    """Turn the console's errors into responses, with their own one-line messages."""
    try:
        yield
    except (NotReplayable, NotKept) as error:
        raise ApiError(409, "not_replayable" if isinstance(error, NotReplayable) else "not_kept", str(error)) from error
    except StaleHead as error:
        raise ApiError(409, "conversation_went_on", "The conversation went on at this moment; try again.") from error
    except NotFound as error:
        raise ApiError(404, "not_found", str(error)) from error
    except UserErased as error:
        raise ApiError(410, "user_erased", "The person was forgotten, and this was erased with them.") from error
    except ReplayInvalid as error:
        raise ApiError(422, "invalid_replay", str(error)) from error


# --- how they are written


REPLAY_FIELDS = (
    *("id", "batch_id", "turn_id", "call_id", "session_id", "model", "by", "state", "is_diverged", "same_tools", "same_text", "likeness"),
    *("error", "tokens_in", "tokens_out", "micro_usd", "latency_ms", "kept_as", "created_at", "ended_at"),
)


def replay_json(replay: Replay) -> dict[str, Any]:
    """A replay without its content. The person is not named here."""
    return {name: getattr(replay, name) for name in REPLAY_FIELDS}


def source_json(source: ReplaySource) -> dict[str, Any]:
    names = ("turn_id", "call_id", "at", "outcome", "model", "why_not", "tokens_in", "tokens_out", "micro_usd", "latency_ms")
    return {name: getattr(source, name) for name in names}


def content_json(view: ReplayView) -> dict[str, Any]:
    """What was said, in the recorded turn and in the replay, and how it differs."""
    return {
        "change": asdict(view.change),
        "recorded_text": None if view.recorded is None else view.recorded.text,
        "text": view.progress.text,
        "tools": [
            {"call": asdict(tool.call), "result": tool.result and asdict(tool.result), "is_recorded": tool.is_recorded}
            for tool in view.progress.tools
        ],
        "not_run": [asdict(call) for call in view.progress.not_run],
        "words": pieces_json(view.words),
        "tool_calls": [{"name": tool.name, "is_same": tool.is_same, "arguments": pieces_json(tool.pieces)} for tool in view.tools],
    }


def pieces_json(pieces: Sequence[DiffPiece]) -> list[Mapping[str, str]]:
    return [{"kind": piece.kind, "text": piece.text} for piece in pieces]


def batch_json(batch: ReplayBatch) -> dict[str, Any]:
    return asdict(batch)


def sums_json(sums: ModelSums) -> dict[str, Any]:
    return asdict(sums)


def plan_json(plan: BatchPlan) -> dict[str, Any]:
    return {
        "title": plan.title,
        "turns": len(plan.sources),
        "replayable": plan.replayable,
        "why_not": {str(source.id): source.why_not for source in plan.sources if source.why_not},
        "estimate_micro_usd": plan.micro_usd,
        "estimates": dict(plan.estimates),
        "left_today_micro_usd": plan.left_today,
    }
