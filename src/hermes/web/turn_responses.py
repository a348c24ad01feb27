"""What the API and the chat page share: they accept JSON only, respond with a turn's state, and resume its events."""

from __future__ import annotations

from uuid import UUID

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from hermes.turn import AgentResponse
from hermes.web.answers import TurnAnswers, response_json
from hermes.web.errors import ApiError


async def json_only(request: Request) -> None:
    """Refuse a body that is not JSON. A form of another site cannot send JSON, so a foreign page cannot write as a visitor."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "not_json", "Send the message as `Content-Type: application/json`.")


def turn_response(turn_id: UUID, response: AgentResponse | None, headers: dict[str, str], prefix: str) -> JSONResponse:
    """Respond with the answer, or with its future address below `prefix`: `/v1` or `/web`."""
    headers = {**headers, "Cache-Control": "no-store"}
    if response is not None:
        return JSONResponse(response_json(response), headers=headers)
    return JSONResponse({"turn_id": str(turn_id), "status": "running"}, 202, {**headers, "Location": f"{prefix}/messages/{turn_id}"})


def resume_events(answers: TurnAnswers, turn_id: UUID, request: Request) -> Response:
    """Respond with the events of a turn. A client that has seen the last one gets 204, which tells a browser to stop asking."""
    if request.headers.get("last-event-id") == str(turn_id):
        return Response(status_code=204)
    return answers.stream(turn_id, {})
