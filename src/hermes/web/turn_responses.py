"""What the API and the chat page do alike: take JSON only, answer with what there is, go on with a stream."""

from __future__ import annotations

from uuid import UUID

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from hermes.turn import AgentResponse
from hermes.web.answers import TurnAnswers, response_json
from hermes.web.errors import ApiError


async def json_only(request: Request) -> None:
    """Refuse whatever is not JSON. No form of another site can send that, so a foreign page cannot speak for a visitor."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "not_json", "Send the message as `Content-Type: application/json`.")


def turn_response(turn_id: UUID, response: AgentResponse | None, headers: dict[str, str], prefix: str) -> JSONResponse:
    """The answer, or where it will be: below `/v1` or `/web`."""
    headers = {**headers, "Cache-Control": "no-store"}
    if response is not None:
        return JSONResponse(response_json(response), headers=headers)
    return JSONResponse({"turn_id": str(turn_id), "status": "running"}, 202, {**headers, "Location": f"{prefix}/messages/{turn_id}"})


def resume_events(answers: TurnAnswers, turn_id: UUID, request: Request) -> Response:
    """The events of a turn. Who has seen its last one gets 204, which tells a browser to stop asking."""
    if request.headers.get("last-event-id") == str(turn_id):
        return Response(status_code=204)
    return answers.stream(turn_id, {})
