"""Pay for each answer of a model once, within a budget: every answer is on disk before the run uses it.

A resumed run gets the answers that it paid for again, in the order in which the model gave them. Knows nothing about prompts."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from hermes.graph.message import thaw
from hermes.trajectories.compress.checkpoint import CheckpointContents, CheckpointFile
from hermes.trajectories.compress.timeout import pause_timeouts
from hermes.trajectories.sampling_model import ModelFailed, SampledMessage, SampleRequest, SamplingModel


class SummaryBudgetSpent(Exception):
    """The budget does not allow another answer. No trajectory failed: the run stops, and a later call with a larger budget resumes it."""


class PaidSummaries:
    """Asks a model for all rows of a run, and records what each answer cost."""

    def __init__(
        self, model: SamplingModel, checkpoint_file: CheckpointFile, found: CheckpointContents, budget_micro_usd: int | None = None
    ) -> None:
        self._model, self._checkpoint_file, self._paid, self._budget = model, checkpoint_file, found.paid, budget_micro_usd
        self.micro_usd = found.micro_usd
        """What all answers of the run cost, also those from before an interruption."""
        self.stop_reason = ""
        """Why no more requests are sent; empty as long as the budget allows them."""
        self._under_way, self._highest_micro_usd = 0, found.highest_micro_usd
        self._has_answered = found.highest_micro_usd > 0
        self._changed = asyncio.Condition()

    def model_for(self, file: int, row: int) -> SamplingModel:
        """Return the model as one row's summariser uses it."""
        return _RowModel(self, file, row, self._model.name)

    async def sample(self, request: SampleRequest, file: int, row: int) -> SampledMessage:
        """Return an answer that is paid now, or was paid before the run was interrupted.

        Raises ModelFailed, and SummaryBudgetSpent when the budget does not allow another answer. Whether it does may be known only when
        the answers under way have come: that wait counts against no time limit."""
        key = _request_key(request, file, row)
        if self._paid.get(key):
            return self._paid[key].pop(0)
        async with pause_timeouts(), self._changed:
            await self._changed.wait_for(lambda: self.stop_reason or self._can_pay() or not self._under_way)
            if not self.stop_reason and not self._can_pay():
                self.stop_reason = f"the budget of {(self._budget or 0) / 1_000_000:g} USD is used up"
            if self.stop_reason:
                raise SummaryBudgetSpent(self.stop_reason)
            self._under_way += 1
        try:
            return await self._ask(request, key, file, row)
        finally:
            async with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def _can_pay(self) -> bool:
        """Whether one more answer fits the budget, beside those under way. Each may cost as much as the most expensive one so far.

        The cost of the first answer is not known, so no other request is sent with it."""
        if self._budget is None:
            return True
        if not self._has_answered:
            return not self._under_way and self.micro_usd < self._budget
        return self.micro_usd + (self._under_way + 1) * self._highest_micro_usd <= self._budget

    async def _ask(self, request: SampleRequest, key: str, file: int, row: int) -> SampledMessage:
        try:
            sampled = await self._model.sample(request)
        except ModelFailed as error:
            if error.is_spent:
                self.stop_reason = str(error)
                raise SummaryBudgetSpent(self.stop_reason) from None
            raise
        self.micro_usd += sampled.micro_usd
        self._highest_micro_usd, self._has_answered = max(self._highest_micro_usd, sampled.micro_usd), True
        message = {name: thaw(value) for name, value in sampled.message.items()}
        entry = {"key": key, "file": file, "row": row, "micro_usd": sampled.micro_usd, "message": message, "call": sampled.call.to_dict()}
        self._checkpoint_file.append("paid", entry)
        return sampled


class _RowModel:
    """The model as one row's summariser uses it."""

    def __init__(self, paid_summaries: PaidSummaries, file: int, row: int, name: str) -> None:
        self._paid_summaries, self._file, self._row = paid_summaries, file, row
        self.name = name

    async def sample(self, request: SampleRequest) -> SampledMessage:
        return await self._paid_summaries.sample(request, self._file, self._row)


def _request_key(request: SampleRequest, file: int, row: int) -> str:
    """Return a key for a request: the row, and a digest of the sample id and of all that is sent."""
    fields: Mapping[str, Any] = {
        "sample_id": request.sample_id,
        "messages": [dict(message) for message in request.messages],
        "tools": list(request.tools),
        "sampling": dict(request.sampling),
        "max_tokens": request.max_tokens,
    }
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), default=repr)
    return f"{file}:{row}:{hashlib.sha256(text.encode()).hexdigest()[:32]}"
