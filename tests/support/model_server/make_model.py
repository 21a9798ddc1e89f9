"""Writes a tiny vision-language model of random weights for llama.cpp: text and picture part.

Its words are noise and its protocol is real. The same seed gives the same bytes. The first
dimension of the hidden state is the same for every token, so the output matrix can prefer some
tokens: words over letters, an end after a while, fractions where a number is asked for.
"""

import array
import math
import pathlib
import random
import struct
import sys

SEED = 7
EMBD, HEADS, LAYERS, FF, CONTEXT = 64, 4, 2, 128, 16384
# 4 x 4 patches, pooled to 4 tokens a picture.
IMAGE, PATCH, MERGE, VISION_EMBD, VISION_FF = 56, 14, 2, 32, 64
# What every token has in the first dimension, and what the final norm makes of it.
LEVEL = 8.0
# What `serve.py` takes from a token that was said; the ends of texts get it back.
PENALTY = 4.0
NORMED = LEVEL / math.sqrt((LEVEL**2 + (EMBD - 1) * 0.25) / EMBD)

UNKNOWN, CONTROL, NORMAL, BYTE = 2, 3, 1, 6
WORDS = """
a across after again against and another arrives at bag before behind bench bicycle bird black
blue boat box bright bus by camera car cat chair child close corner crossing cup dark dog door
down empty falls far floor for from gate glass grass green hand holds in inside lamp large
leaves left light line long looks man moves near night no nothing of on onto opens out outside
over passes path person picks plant platform quickly red rests right road room runs shadow sign
sits sky slowly small stands stops street table takes the then through to towards train tree
truck turns two under wall waits walks water white window with woman yellow
""".split()
# They take more than one byte of UTF-8.
LETTERS = "éü日本"

TEMPLATE = """
{%- for message in messages -%}
<|{{ message.role }}|>
{%- if message.reasoning_content -%}<think>{{ message.reasoning_content }}</think>{%- endif -%}
{%- if message.content is string -%}{{ message.content }}
{%- else -%}{%- for part in message.content -%}{{ part.text }}{%- endfor -%}
{%- endif -%}</s>
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|><think>
{%- if not enable_thinking -%}</think>{%- endif -%}
{%- endif -%}
"""


def vocabulary():
    """Every token with its kind and how much the model likes it."""
    tokens = [("<unk>", UNKNOWN, -60.0), ("<s>", CONTROL, -60.0), ("</s>", CONTROL, 3.0 + PENALTY)]
    tokens += [("<think>", CONTROL, -60.0), ("</think>", CONTROL, -60.0)]
    tokens += [(f"<0x{byte:02X}>", BYTE, -60.0) for byte in range(256)]
    likes = {'"': 4.5 + PENALTY, "0": -4.0, ",": 1.0, "}": 1.0, "]": 1.0, ".": -1.0, "\\": -60.0}
    for code in range(0x21, 0x7F):
        letter = chr(code)
        tokens.append((letter, NORMAL, likes.get(letter, -8.0)))
    tokens.append(("▁", NORMAL, -6.0))
    tokens += [(letter, NORMAL, -1.0) for letter in LETTERS]
    tokens += [("▁" + word, NORMAL, 2.0) for word in WORDS]
    tokens += [(word, NORMAL, -1.0) for word in WORDS if len(word) > 1]
    tokens += [(f"0.{percent:02}", NORMAL, percent / 50 - 3.0) for percent in range(5, 100, 5)]
    return tokens


class Gguf:
    """A file of the GGUF format, version 3."""

    KINDS = {bool: (7, "<?"), int: (4, "<I"), float: (6, "<f")}

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.fields, self.tensors = [], []

    @staticmethod
    def text(value):
        coded = value.encode()
        return struct.pack("<Q", len(coded)) + coded

    def value(self, value):
        if isinstance(value, str):
            return 8, self.text(value)
        if isinstance(value, list):
            kind = self.value(value[0])[0]
            head = struct.pack("<IQ", kind, len(value))
            return 9, head + b"".join(self.value(item)[1] for item in value)
        kind, form = self.KINDS[type(value)]
        return kind, struct.pack(form, value)

    def field(self, name, value):
        kind, coded = self.value(value)
        self.fields.append(self.text(name) + struct.pack("<I", kind) + coded)

    def signed(self, name, values):
        """A list of signed integers."""
        head = struct.pack("<IIQ", 9, 5, len(values))
        self.fields.append(self.text(name) + head + struct.pack(f"<{len(values)}i", *values))

    def tensor(self, name, shape, values):
        """`shape` as the format has it: the dimension that varies fastest first."""
        assert len(values) == math.prod(shape), name
        self.tensors.append((name, shape, array.array("f", values)))

    def noise(self, name, shape, deviation):
        gauss = self.random.gauss
        self.tensor(name, shape, [gauss(0.0, deviation) for _ in range(math.prod(shape))])

    def words(self, tokens):
        """What tokens are read as, and what their scores are read with.

        The first column of the scores is how much a token is liked; of the others a token's own
        reading is taken away, so that it seldom follows itself: no string is empty.
        """
        gauss, read, scored = self.random.gauss, [], []
        for _, _, liked in tokens:
            own = [gauss(0.0, 0.5) for _ in range(EMBD - 1)]
            read += [LEVEL] + own
            scored += [liked / NORMED] + [gauss(0.0, 0.25) - 0.4 * value for value in own]
        self.tensor("token_embd.weight", [EMBD, len(tokens)], read)
        self.tensor("output.weight", [EMBD, len(tokens)], scored)

    def still(self, name, shape, deviation):
        """Noise that leaves the first dimension of what it is added to as it is."""
        columns, count = shape
        values = [0.0] * columns
        values += [self.random.gauss(0.0, deviation) for _ in range(columns * (count - 1))]
        self.tensor(name, shape, values)

    def write(self, path):
        infos, offset = [], 0
        for name, shape, values in self.tensors:
            dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
            infos.append(self.text(name) + dimensions + struct.pack("<IQ", 0, offset))
            offset += -(-len(values) * 4 // 32) * 32
        counts = struct.pack("<4sIQQ", b"GGUF", 3, len(self.tensors), len(self.fields))
        head = counts + b"".join(self.fields) + b"".join(infos)
        with open(path, "wb") as file:
            file.write(head + bytes(-len(head) % 32))
            for _, _, values in self.tensors:
                if sys.byteorder == "big":
                    values.byteswap()
                file.write(values.tobytes() + bytes(-len(values) * 4 % 32))


def language(seed):
    """A llama of two layers."""
    tokens = vocabulary()
    file = Gguf(seed)
    file.field("general.architecture", "llama")
    file.field("general.name", "noise")
    file.field("llama.context_length", CONTEXT)
    file.field("llama.embedding_length", EMBD)
    file.field("llama.block_count", LAYERS)
    file.field("llama.feed_forward_length", FF)
    file.field("llama.attention.head_count", HEADS)
    file.field("llama.attention.layer_norm_rms_epsilon", 1e-5)
    file.field("llama.rope.dimension_count", EMBD // HEADS)
    file.field("llama.vocab_size", len(tokens))
    file.field("tokenizer.ggml.model", "llama")
    file.field("tokenizer.ggml.tokens", [text for text, _, _ in tokens])
    # A longer token is a better one to make of what stands side by side.
    file.field("tokenizer.ggml.scores", [float(len(text)) for text, _, _ in tokens])
    file.signed("tokenizer.ggml.token_type", [kind for _, kind, _ in tokens])
    file.field("tokenizer.ggml.unknown_token_id", 0)
    file.field("tokenizer.ggml.bos_token_id", 1)
    file.field("tokenizer.ggml.eos_token_id", 2)
    file.field("tokenizer.ggml.add_space_prefix", False)
    file.field("tokenizer.chat_template", TEMPLATE)
    file.words(tokens)
    file.tensor("output_norm.weight", [EMBD], [1.0] * EMBD)
    for layer in range(LAYERS):
        name = f"blk.{layer}."
        for norm in ("attn_norm", "ffn_norm"):
            file.tensor(f"{name}{norm}.weight", [EMBD], [1.0] * EMBD)
        for part in ("q", "k", "v"):
            file.noise(f"{name}attn_{part}.weight", [EMBD, EMBD], 0.1)
        file.still(f"{name}attn_output.weight", [EMBD, EMBD], 0.05)
        for part in ("gate", "up"):
            file.noise(f"{name}ffn_{part}.weight", [EMBD, FF], 0.1)
        file.still(f"{name}ffn_down.weight", [FF, EMBD], 0.05)
    return file


def vision(seed):
    """A SigLIP of one layer whose patches are pooled and projected, as in Gemma 3."""
    file = Gguf(seed)
    file.field("general.architecture", "clip")
    file.field("general.name", "noise")
    file.field("clip.has_vision_encoder", True)
    file.field("clip.projector_type", "gemma3")
    file.field("clip.use_gelu", True)
    file.field("clip.vision.image_size", IMAGE)
    file.field("clip.vision.patch_size", PATCH)
    file.field("clip.vision.embedding_length", VISION_EMBD)
    file.field("clip.vision.feed_forward_length", VISION_FF)
    file.field("clip.vision.block_count", 1)
    file.field("clip.vision.projection_dim", EMBD)
    file.field("clip.vision.attention.head_count", 2)
    file.field("clip.vision.attention.layer_norm_epsilon", 1e-6)
    file.field("clip.vision.projector.scale_factor", MERGE)
    file.field("clip.vision.image_mean", [0.5, 0.5, 0.5])
    file.field("clip.vision.image_std", [0.5, 0.5, 0.5])

    def layer(name, columns, count):
        file.noise(f"{name}.weight", [columns, count], 0.2)
        file.tensor(f"{name}.bias", [count], [0.0] * count)

    def norm(name):
        file.tensor(f"{name}.weight", [VISION_EMBD], [1.0] * VISION_EMBD)
        file.tensor(f"{name}.bias", [VISION_EMBD], [0.0] * VISION_EMBD)

    file.noise("v.patch_embd.weight", [PATCH, PATCH, 3, VISION_EMBD], 0.05)
    file.tensor("v.patch_embd.bias", [VISION_EMBD], [0.0] * VISION_EMBD)
    file.noise("v.position_embd.weight", [VISION_EMBD, (IMAGE // PATCH) ** 2], 0.1)
    norm("v.blk.0.ln1")
    for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
        layer(f"v.blk.0.{part}", VISION_EMBD, VISION_EMBD)
    norm("v.blk.0.ln2")
    layer("v.blk.0.ffn_up", VISION_EMBD, VISION_FF)
    layer("v.blk.0.ffn_down", VISION_FF, VISION_EMBD)
    norm("v.post_ln")
    file.tensor("mm.soft_emb_norm.weight", [VISION_EMBD], [1.0] * VISION_EMBD)
    file.noise("mm.input_projection.weight", [EMBD, VISION_EMBD], 0.2)
    return file


def write(folder):
    """Both files, in `folder`."""
    model, projector = folder / "noise.gguf", folder / "noise-mmproj.gguf"
    language(SEED).write(model)
    vision(SEED + 1).write(projector)
    return model, projector


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))
