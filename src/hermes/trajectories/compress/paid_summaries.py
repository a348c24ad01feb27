"""The till: every answer of a model is written down before it is used, is never asked for twice, and a budget is kept.

A run that was killed finds its answers here again, in the order in which they were given. Knows nothing about what is asked."""

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
    """There is no money for any further answer. Not a failure of a trajectory: the run stops, and goes on when there is some."""


class PaidSummaries:
    """Stands before a model for all rows of a run."""

    def __init__(
        self, model: SamplingModel, checkpoint_file: CheckpointFile, found: CheckpointContents, budget_micro_usd: int | None = None
    ) -> None:
        self._model, self._checkpoint_file, self._paid, self._budget = model, checkpoint_file, found.paid, budget_micro_usd
        self.micro_usd = found.micro_usd
        """All that was paid, by this run and before it was interrupted."""
        self.spent = ""
        """Why no more is asked; empty as long as there is money."""
        self._under_way, self._highest_micro_usd = 0, found.highest_micro_usd
        self._has_answered = found.highest_micro_usd > 0
        self._answered = asyncio.Condition()

    def model_for(self, file: int, row: int) -> SamplingModel:
        """Return the model, for the summaries of one row."""
        return _RowModel(self, file, row, self._model.name)

    async def sample(self, request: SampleRequest, file: int, row: int) -> SampledMessage:
        """Return an answer, paid now or before. Raises ModelFailed, and Spent when there is no money for any further one.

        Until the answers under way are paid nobody may know whether there is: that wait is on nobody's clock."""
        key = _request_key(request, file, row)
        if self._paid.get(key):
            return self._paid[key].pop(0)
        async with pause_timeouts(), self._answered:
            await self._answered.wait_for(lambda: self.spent or self._can_pay() or not self._under_way)
            if not self.spent and not self._can_pay():
                self.spent = f"the budget of {(self._budget or 0) / 1_000_000:g} USD is used up"
            if self.spent:
                raise SummaryBudgetSpent(self.spent)
            self._under_way += 1
        try:
            return await self._ask(request, key, file, row)
        finally:
            async with self._answered:
                self._under_way -= 1
                self._answered.notify_all()

    def _can_pay(self) -> bool:
        """Whether one more answer fits the budget, with those that are under way. Each may cost as much as the dearest so far; what the
        first one costs nobody knows, so it is asked for alone."""
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
                self.spent = str(error)
                raise SummaryBudgetSpent(self.spent) from None
            raise
        self.micro_usd += sampled.micro_usd
        self._highest_micro_usd, self._has_answered = max(self._highest_micro_usd, sampled.micro_usd), True
        message = {name: thaw(value) for name, value in sampled.message.items()}
        entry = {"key": key, "file": file, "row": row, "micro_usd": sampled.micro_usd, "message": message, "call": sampled.call.to_dict()}
        self._checkpoint_file.append("paid", entry)
        return sampled


class _RowModel:
    """The model, as one row's summariser sees it."""

    def __init__(self, paid_summaries: PaidSummaries, file: int, row: int, name: str) -> None:
        self._paid_summaries, self._file, self._row = paid_summaries, file, row
        self.name = name

    async def sample(self, request: SampleRequest) -> SampledMessage:
        return await self._paid_summaries.sample(request, self._file, self._row)


def _request_key(request: SampleRequest, file: int, row: int) -> str:
    """Name what is asked: the row, the sample, and every word that goes out."""
    asked: Mapping[str, Any] = {
        "sample_id": request.sample_id,
        "messages": [dict(message) for message in request.messages],
        "tools": list(request.tools),
        "sampling": dict(request.sampling),
        "max_tokens": request.max_tokens,
    }
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"), default=repr)
    return f"{file}:{row}:{hashlib.sha256(text.encode()).hexdigest()[:32]}"
