"""The families with code of their own; `registry.py` lists them.

Read in this order:
    decoder.py       the decoder that most families share; differences are arguments
    llama.py         Llama 2 and 3.x
    mistral.py       Mistral
    mixtral.py       Mixtral: experts
    qwen2.py         Qwen2 and 2.5
    qwen3.py         Qwen3
    qwen3_moe.py     Qwen3-MoE
    qwen3_vl_moe.py  the text model of Qwen3-VL with experts
    phi3.py          Phi-3, 3.5 and 4
    olmo2.py         OLMo 2
    gemma2.py        Gemma 2
    gemma3.py        Gemma 3
    gpt_oss.py       GPT-OSS
    deepseek_v2.py   DeepSeek-V2: latent attention, experts chosen by groups
    deepseek_v3.py   DeepSeek-V3 and R1, Kimi K2
    whisper.py       Whisper: an encoder-decoder
    bart.py          BART and mBART: encoder-decoders
    bert.py          BERT: a text encoder
    roberta.py       RoBERTa, XLM-RoBERTa and CamemBERT: text encoders
    mpnet.py         MPNet: a text encoder
    modernbert.py    ModernBERT: a text encoder
    t5.py            T5 and Flan-T5: encoder-decoders without positions

A family is a module with `Config` and `build`: see `registry.Family`. Imports layers.
"""
