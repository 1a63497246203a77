"""LoRA adapters of the tests' model: their files as ConfigMaps, and what each answers by `peft`."""

import base64
from dataclasses import dataclass
from pathlib import Path

from transformers import AutoTokenizer

from tests.cluster.kube import Object
from tests.worker.server.process.tiny_adapters import TinyAdapter
from tests.worker.server.process.worker_process import MODEL

RANK = 4  # its files fit into a ConfigMap
TOKENS = 32
CLEAR = 2e-3
"""Log-probability by which each token leads the next best, so that any order of sums finds it."""

FILES = ("adapter_config.json", "adapter_model.safetensors")


@dataclass(slots=True)
class Reference:
    """Adapters by name, computed by `peft` alone."""

    adapters: dict[str, TinyAdapter]

    @classmethod
    def make(cls, folder: Path, *names: str) -> "Reference":
        """Adapters with random weights, each with others."""
        made = (TinyAdapter(folder / name, seed, RANK) for seed, name in enumerate(names))
        return cls(dict(zip(names, made, strict=True)))

    def config_map(self, name: str) -> Object:
        """The files of one adapter."""
        files = {file: (self.adapters[name].path / file).read_bytes() for file in FILES}
        data = {file: base64.b64encode(content).decode() for file, content in files.items()}
        return {"metadata": {"name": f"adapter-{name}"}, "binaryData": data}

    def answers(self, count: int) -> dict[str, dict[str, str]]:
        """`count` prompts, and the text that each adapter answers, by its name: different ones for
        each, and beyond doubt."""
        found: dict[str, dict[str, str]] = {}
        for number in range(100):
            prompt = f"Tell me fact number {number} about the sea."
            texts = {name: self._answer(name, prompt) for name in self.adapters}
            known = {name: text for name, text in texts.items() if text is not None}
            if len(set(known.values())) == len(self.adapters):
                found[prompt] = known
            if len(found) == count:
                return found
        raise AssertionError(f"only {len(found)} of 100 prompts have clear answers")

    def _answer(self, name: str, prompt: str) -> str | None:
        """The greedy answer of TOKENS tokens; None if a token hardly leads."""
        tokenizer = AutoTokenizer.from_pretrained(MODEL)
        chat = [{"role": "user", "content": prompt}]
        asked = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)
        ids = list(asked["input_ids"])
        adapter = self.adapters[name]
        tokens = adapter.greedy(ids, TOKENS)
        best = adapter.logprobs(ids + tokens)[len(ids) - 1 : -1].topk(2).values
        if float((best[:, 0] - best[:, 1]).min()) < CLEAR:
            return None
        text = str(tokenizer.decode(tokens, skip_special_tokens=True))
        return None if "\ufffd" in text else text
