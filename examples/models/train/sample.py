"""Prints what a trained model writes: the samples of its model card, greedy and sampled, seed 1.

`python -m examples.models.train.sample examples/models/pando-tiny`
"""

import sys

import torch
from transformers import AutoTokenizer, LlamaForCausalLM

COMPLETIONS = ["The function returns", "If the file does not exist,", "A class is"]
CHATS = [
    ["Hello!"],
    ["What does os.path.join do?"],
    ["What is the json module?"],
    ["How do I sort a list?"],
    ["What does list.append do?", "What does list.pop do?", "Tell me more."],
]


def main(folder: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def written_after(prompt: str, temperature: float) -> str:
        torch.manual_seed(1)
        ids = tokenizer(prompt, return_tensors="pt")
        how = {"temperature": temperature, "top_p": 0.9} if temperature else {}
        output = model.generate(**ids, max_new_tokens=80, do_sample=bool(temperature), **how)
        return str(tokenizer.decode(output[0, ids["input_ids"].shape[1] :]))

    for temperature in (0.0, 0.7):
        print(f"\n--- temperature {temperature}\n")
        for prompt in COMPLETIONS:
            print(f"{prompt} [...]{written_after(prompt, temperature)}\n")
        for questions in CHATS:
            messages: list[dict[str, str]] = []
            for question in questions:
                messages.append({"role": "user", "content": question})
                prompt = tokenizer.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=True
                )
                answer = written_after(prompt, temperature)
                print(f"user: {question}\nassistant: {answer}\n")
                messages.append({"role": "assistant", "content": answer.removesuffix("<|end|>")})


if __name__ == "__main__":
    main(sys.argv[1])
