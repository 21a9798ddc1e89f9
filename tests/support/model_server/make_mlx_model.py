"""Writes a tiny vision-language model of random weights for mlx-vlm, which wants its own format.

Argument: the folder. Needs `mlx-vlm` (with `mlx[cpu]` where there is no Metal). Its words are
noise, a letter is a token, and the same seed gives the same bytes. Then:

    python -m mlx_vlm.server --model FOLDER --api-key model-key
    python record.py http://127.0.0.1:8080 model-key PICTURE.jpg REPLIES
"""

import json
import pathlib
import string
import sys

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_vlm.models import qwen2_vl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

# Of the first ones, the first whose greedy answer to a short question ends by itself.
SEED = 12
SPECIAL = {
    "end_of_text": "<|endoftext|>",
    "start": "<|im_start|>",
    "end": "<|im_end|>",
    "vision_start": "<|vision_start|>",
    "vision_end": "<|vision_end|>",
    "vision": "<|vision_pad|>",
    "image": "<|image_pad|>",
    "video": "<|video_pad|>",
}
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}"
    "{% if 'text' in part %}{{ part.text }}"
    "{% else %}<|vision_start|><|image_pad|><|vision_end|>{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PICTURE = {"shortest_edge": 3136, "longest_edge": 12544}


def tokenizer():
    # A space and a line break as byte-level tokenizers write them.
    letters = [*string.ascii_letters, *string.digits, *string.punctuation, "Ġ", "Ċ"]
    found = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(letters)}, merges=[]))
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    found.add_special_tokens([*SPECIAL.values()])
    return found


def config(tokens):
    ids = {name: tokens.token_to_id(token) for name, token in SPECIAL.items()}
    return {
        "model_type": "qwen2_vl",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "vocab_size": tokens.get_vocab_size(),
        "max_position_embeddings": 16384,
        "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
        "eos_token_id": ids["end"],
        "image_token_id": ids["image"],
        "video_token_id": ids["video"],
        "vision_start_token_id": ids["vision_start"],
        "vision_config": {
            "model_type": "qwen2_vl",
            "depth": 2,
            "embed_dim": 64,
            "hidden_size": 64,
            "num_heads": 4,
            "image_size": 56,
            "mlp_ratio": 2,
        },
    }


def weights(config, seed):
    mx.random.seed(seed)
    found = qwen2_vl.ModelConfig.from_dict(dict(config))
    found.text_config = qwen2_vl.TextConfig.from_dict(found.text_config)
    found.vision_config = qwen2_vl.VisionConfig.from_dict(found.vision_config)
    return dict(tree_flatten(qwen2_vl.Model(found).parameters()))


def main(folder, seed=SEED):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokens = tokenizer()
    tokens.save(str(folder / "tokenizer.json"))
    parts = {
        "config": config(tokens),
        "tokenizer_config": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": SPECIAL["end"],
            "pad_token": SPECIAL["end_of_text"],
            "chat_template": TEMPLATE,
        },
        "preprocessor_config": {"patch_size": 14, "merge_size": 2, "size": PICTURE},
    }
    for name, part in parts.items():
        (folder / f"{name}.json").write_text(json.dumps(part))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    saved = weights(parts["config"], int(seed))
    mx.save_safetensors(str(folder / "model.safetensors"), saved, metadata={"format": "mlx"})


if __name__ == "__main__":
    main(*sys.argv[1:])
