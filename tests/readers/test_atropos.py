"""Atropos' own server takes the groups and hands them out again."""

from pathlib import Path

import pytest

from hermes.trajectories.formats.atropos import AtroposWriter
from tests.readers.pages import CountingModel, run_page
from tests.unit.trajectories.samples import TRAINED_TOKENS, written

pytestmark = [pytest.mark.readers, pytest.mark.filterwarnings("default")]  # their warnings are theirs
REASON = "needs Atropos: pip install atroposlib"


def test_its_model_takes_every_group(tmp_path: Path) -> None:
    server = pytest.importorskip("atroposlib.api.server", reason=REASON)
    lines = (written(tmp_path / "out", "atropos", AtroposWriter) / "groups.jsonl").read_text().splitlines()
    groups = [server.ScoredData.model_validate_json(line) for line in lines]
    assert sum(token != -100 for group in groups for mask in group.masks for token in mask) == TRAINED_TOKENS
    for group in groups:
        for tokens, masks, logprobs, advantages in zip(group.tokens, group.masks, group.inference_logprobs, group.advantages, strict=True):
            assert len(tokens) == len(masks) == len(logprobs) == len(advantages)
            assert all(mask in (-100, token) for token, mask in zip(tokens, masks, strict=True))


def test_the_how_to_trains_every_token_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = pytest.importorskip("atroposlib.api.server", reason=REASON)
    testclient = pytest.importorskip("fastapi.testclient")
    written(tmp_path / "out", "atropos", AtroposWriter)
    monkeypatch.chdir(tmp_path)
    model = CountingModel()
    with testclient.TestClient(server.app) as api:
        names = run_page("atropos", model=model, api=api)
    assert names["row"]["overrides"][0]["hermes"]["samples"][0]["sample"] == "plain"
    assert (model.labels, model.has_gradient) == (TRAINED_TOKENS, True)
