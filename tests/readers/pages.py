"""The how-to pages, run: what the test of a reader needs to prove that page and reader agree."""

import re
from pathlib import Path
from typing import Any

import pytest

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def run_page(name: str, **given: Any) -> dict[str, Any]:
    """Run the `py` blocks of a how-to, with what the page says that you bring; return all names that it made."""
    text = (HOW_TO / f"{name}.md").read_text()
    code = "\n".join(re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert code, f"no py block in {name}.md"
    names = dict(given)
    exec(compile(code, f"{name}.md", "exec"), names)  # noqa: S102  # the page is ours
    return names


class CountingModel:
    """A tiny Llama that counts the tokens which it is given a label for; the first of a row never has a loss."""

    def __init__(self) -> None:
        torch = pytest.importorskip("torch")
        transformers = pytest.importorskip("transformers")
        torch.set_num_threads(1)
        torch.manual_seed(0)
        size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
        self.llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=128, max_position_embeddings=4096, **size))
        self.labels = 0

    def __call__(self, **inputs: Any) -> Any:
        if "labels" in inputs:
            self.labels += int((inputs["labels"][:, 1:] != -100).sum())
        return self.llama(**inputs)

    @property
    def has_gradient(self) -> bool:
        """Whether a step has something to go by."""
        return all(parameter.grad is not None and bool(parameter.grad.isfinite().all()) for parameter in self.llama.parameters())
