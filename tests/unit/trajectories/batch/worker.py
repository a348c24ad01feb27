"""A process that works on a run and may be killed at any moment: `python worker.py FOLDER`. It notes every sample it is asked for."""

import asyncio
import os
import sys
from pathlib import Path

from hermes.trajectories.sampling_model import SampledMessage, SampleRequest
from tests.unit.trajectories.batch.stage import Stage, StageModel, call, said, turn_of


class Noting(StageModel):
    """Notes the name of a sample before it is given: as a server that counts its requests would."""

    def __init__(self, log: int) -> None:
        super().__init__(lambda request: said("done" * 50) if turn_of(request) else said(None, call("nothing")))
        self._log = log

    async def sample(self, request: SampleRequest) -> SampledMessage:
        os.write(self._log, f"{request.sample_id}\n".encode())
        await asyncio.sleep(0.001)
        return await super().sample(request)


def main() -> None:
    folder = Path(sys.argv[1])
    stage = Stage(folder)
    stage.rows(*({"prompt": f"p{number}", "id": f"i{number}"} for number in range(60)))
    stage.model = Noting(os.open(folder / "asked.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT))
    asyncio.run(stage.run(rollouts=5, concurrency=4))


if __name__ == "__main__":
    main()
