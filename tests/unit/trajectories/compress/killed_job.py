"""A run in a process of its own, to be killed: `python killed_job.py URL SOURCE OUT AT_ONCE`. Its model is behind HTTP."""

import asyncio
import sys
from pathlib import Path

import aiohttp

from hermes import CallRecord
from hermes.trajectories.compress import read_settings
from hermes.trajectories.compress.chunks import find_inputs
from hermes.trajectories.compress.model_queue import compress_files_with_model
from hermes.trajectories.compress.output import OutputPaths
from hermes.trajectories.compress.run import CompressRun
from hermes.trajectories.compress.worker import CompressWork
from hermes.trajectories.engines.local import LocalEngine
from hermes.trajectories.sampling_model import SampledMessage, SampleRequest


class Remote:
    """A model that is asked over HTTP."""

    name = "remote"

    def __init__(self, client: aiohttp.ClientSession, url: str) -> None:
        self.client, self.url = client, url

    async def sample(self, request: SampleRequest) -> SampledMessage:
        body = {"sample_id": request.sample_id, "messages": [dict(message) for message in request.messages]}
        async with self.client.post(self.url, json=body) as got:
            said = await got.json()
        return SampledMessage(
            {"role": "assistant", "content": said["text"]}, CallRecord(sample_id=request.sample_id, model="remote"), 1_000
        )


async def main(url: str, source: Path, out: Path, at_once: int) -> None:
    target = {"compression.target_max_tokens": 500, "compression.summary_target_tokens": 100}
    work = CompressWork(read_settings(None, {**target, "processing.max_concurrent_requests": at_once}), "remote")
    places = OutputPaths(out, out.with_name(f"{out.stem}.metrics.json"), is_folder=False)
    wanted = CompressRun(find_inputs(source), work, places, chunk_bytes=4_000, checkpoint_every_s=0)
    async with aiohttp.ClientSession() as client:
        await compress_files_with_model(Remote(client, url), wanted, LocalEngine(1))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))
