"""The scores of lm-eval's `hf` backend on both tasks, as JSON; it runs in lm-eval's environment."""

import json
import sys

import lm_eval
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager


def main() -> None:
    model = HFLM(pretrained=sys.argv[1], dtype="float32", device="cpu", batch_size=4)
    tasks = TaskManager(include_path="tests/e2e/clients/tasks")
    found = {}
    for task, chat in (("pando_choices", False), ("pando_words", True)):
        done = lm_eval.simple_evaluate(
            model, tasks=[task], task_manager=tasks, apply_chat_template=chat, log_samples=True
        )
        samples = sorted(done["samples"][task], key=lambda sample: sample["doc_id"])
        found[task] = {
            "scores": done["results"][task],
            "answers": [sample["resps"] for sample in samples],
        }
    print(json.dumps(found))


main()
