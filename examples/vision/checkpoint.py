"""The untrained model: LLaVA 1.5's architecture, with 36 tokens an image and under a million
parameters."""

import json
from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    CLIPVisionConfig,
    GenerationConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

IMAGE_SIDE, PATCH = 48, 8  # pixels
IMAGE_TOKENS = (IMAGE_SIDE // PATCH) ** 2
PAD, BOS, END, USER, ASSISTANT, IMAGE = (
    "<pad>",
    "<s>",
    "</s>",
    "<|user|>",
    "<|assistant|>",
    "<image>",
)
# Special tokens stand between texts, so an answer has the same tokens when the next prompt has it.
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|assistant|>' if message['role'] == 'assistant' else '<|user|>' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{{ '<image>' if part['type'] == 'image' else part['text'] }}"
    "{% endfor %}{% endif %}"
    "{{ eos_token }}{% endfor %}"
    "{{ '<|assistant|>' if add_generation_prompt }}"
)


def make_processor(texts: Iterable[str]) -> LlavaProcessor:
    """A processor whose tokenizer (byte-level BPE) was made for these texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=384,
            special_tokens=[PAD, BOS, END, USER, ASSISTANT, IMAGE],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=END,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
        chat_template=CHAT_TEMPLATE,
    )
    return LlavaProcessor(
        CLIPImageProcessorPil(size={"shortest_edge": IMAGE_SIDE}, crop_size=IMAGE_SIDE),
        fast,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    )


def make_model(processor: LlavaProcessor) -> LlavaForConditionalGeneration:
    tokenizer = processor.tokenizer
    return LlavaForConditionalGeneration(
        LlavaConfig(
            vision_config=CLIPVisionConfig(
                hidden_size=96,
                intermediate_size=256,
                num_hidden_layers=3,
                num_attention_heads=4,
                image_size=IMAGE_SIDE,
                patch_size=PATCH,
                projection_dim=96,
            ),
            text_config=LlamaConfig(
                vocab_size=len(tokenizer),
                hidden_size=96,
                intermediate_size=256,
                num_hidden_layers=3,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=1024,
                tie_word_embeddings=True,
                bos_token_id=tokenizer.bos_token_id,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            ),
            image_token_index=processor.image_token_id,
            vision_feature_layer=-1,
            tie_word_embeddings=True,
        )
    )


def save(model: LlavaForConditionalGeneration, processor: LlavaProcessor, folder: Path) -> None:
    """Write a model directory, in bfloat16."""
    tokenizer = processor.tokenizer
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        do_sample=False,
    )
    model.to(torch.bfloat16).save_pretrained(folder)
    processor.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    path.write_text(json.dumps(config, indent=2) + "\n")
