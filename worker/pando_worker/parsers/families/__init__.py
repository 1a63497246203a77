"""How the models of each family write tool calls: one `ToolFormat` a file.

    hermes.py       a JSON object between tags
    llama3.py       JSON objects, also of Llama 4
    mistral.py      a JSON array, or names with JSON
    pythonic.py     calls as in Python
    granite.py      arrays of calls: this and the next two
    phi4.py
    command.py
    deepseek.py     a head with the name, then JSON: this and the next two
    kimi.py
    gpt_oss.py
    qwen3_coder.py  parameters in tags: this and the next two
    glm45.py
    minimax.py
    pando.py        for models that show none: tools in the system message, calls by a grammar

To add one, copy the nearest and list it in `parsers/registry.py`. Imports the readers beside this
room.
"""
