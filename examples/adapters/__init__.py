"""Two small LoRA adapters of SmolLM2-135M-Instruct, and how they are made.

facts.py   questions with plain answers
styles.py  the same answers as a pirate gives them, and as JSON
train.py   trains an adapter of each style with `peft`
ask.py     asks the base and both adapters one question at once
"""
