"""A LLaVA with random weights, and a Llama that has the same weights in its text part."""

from pathlib import Path

import torch
from transformers import (
    AutoTokenizer,
    CLIPVisionConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

SHIPPED = Path(__file__).parents[2] / "examples/models/pando-tiny"
IMAGE = "<image>"
IMAGE_TOKENS = 576
SIDE, PATCH = 336, 14
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'].upper() + ': ' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>\n{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{{ ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)


def write_models(folder: Path) -> tuple[Path, Path]:
    """The directories of the text model and of the one that sees.

    The text part is the reference model of `bench.engine.cpu_engine`, with the vocabulary of the
    model that ships; the tower has the input of LLaVA 1.5 and is small.
    """
    text_path, seeing_path = folder / "text", folder / "sees"
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED)
    tokenizer.add_special_tokens({"additional_special_tokens": [IMAGE]})
    tokenizer.chat_template = CHAT_TEMPLATE
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        intermediate_size=688,
        max_position_embeddings=4096,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    tower = CLIPVisionConfig(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        image_size=SIDE,
        patch_size=PATCH,
    )
    processor = LlavaProcessor(
        CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=SIDE),
        tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    )
    torch.manual_seed(0)
    seeing = LlavaForConditionalGeneration(
        LlavaConfig(
            vision_config=tower, text_config=text, image_token_index=processor.image_token_id
        )
    )
    alone = LlamaForCausalLM(text)
    alone.model.load_state_dict(seeing.model.language_model.state_dict())
    alone.lm_head.load_state_dict(seeing.lm_head.state_dict())
    alone.save_pretrained(text_path)
    seeing.save_pretrained(seeing_path)
    tokenizer.save_pretrained(text_path)
    tokenizer.save_pretrained(seeing_path)
    processor.save_pretrained(seeing_path)
    return text_path, seeing_path
