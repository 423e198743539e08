#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the output layer of a PyTorch model, and contexts that the model produces, to a head file.

Of a language model of Hugging Face's Transformers:

    dump_contexts.py MODEL TEXT_FILE my-head.safetensors
    topksoftmax measure --head my-head.safetensors

Of any module that has an output layer, a torch.nn.Linear [V, d]:

    from dump_contexts import collect_contexts, write_head

    with torch.no_grad(), collect_contexts(model.output) as contexts:
        for batch in batches:
            model(batch)
    write_head("my-head.safetensors", model.output, contexts)

Every row that the layer is given is a context: leave padding out, or give batches of one length.
"""

import argparse
import json
import math
import os
import struct
import sys

try:
    import torch
except ImportError:  # --help needs none
    torch = None

STORED_TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"} if torch else {}
ALIGNMENT = 64  # of each tensor in the file: what lies so is used where it lies

# What configurations call the numbers that all logits are multiplied by, those that they are divided by, and a
# soft cap. The library knows the same ones.
SCALES = ("logit_scale", "lm_head_multiplier", "output_multiplier_scale",         # Cohere, Falcon-H1, Grok
          "output_multiplier")                                                    # Muse Glimmer
DIVISORS = ("logits_scaling",)                                                    # Granite
DIVISORS_OF = {"phi3small": ("mup_width_multiplier",)}                            # of models of this type alone
SOFT_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")  # Gemma 2, RecurrentGemma, xLSTM


class collect_contexts:
    """Collects what an output layer is given while the `with` block runs, at most `limit` contexts."""

    def __init__(self, layer, limit=50_000):
        self.limit = limit
        self.count = 0
        self._layer = layer
        self._parts = []

    def __enter__(self):
        self._hook = self._layer.register_forward_pre_hook(self._take)
        return self

    def __exit__(self, *_):
        self._hook.remove()

    def _take(self, _layer, inputs):
        rows = inputs[0].detach().reshape(-1, inputs[0].shape[-1])[: self.limit - self.count]
        self._parts.append(rows.to("cpu", copy=True))
        self.count += len(rows)

    @property
    def full(self):
        return self.count >= self.limit

    def rows(self):
        """The contexts [count, d], as the model stores them."""
        if self.count == 0:
            raise ValueError("the output layer was given no context: was the model called?")
        return torch.cat(self._parts)


def write_head(path, layer, contexts, test_share=0.1, name=None, soft_cap=None, logit_scale=None):
    """Writes a head file: the layer's weight and bias in the types that they have, and the contexts, of which the
    last `test_share` are what backends are judged on. A model that caps or scales its logits says so."""
    rows = contexts.rows() if isinstance(contexts, collect_contexts) else contexts
    test = max(1, round(test_share * len(rows)))
    if len(rows) <= test:
        raise ValueError(f"{len(rows)} contexts are too few to learn from some and to test with {test}")
    tensors = {"weight": layer.weight}
    if layer.bias is not None:
        tensors["bias"] = layer.bias
    tensors["contexts.train"] = rows[:-test]
    tensors["contexts.test"] = rows[-test:]
    metadata = {"name": name, "soft_cap": soft_cap, "logit_scale": logit_scale}
    write_safetensors(path, tensors, {key: str(value) for key, value in metadata.items() if value is not None})


def write_safetensors(path, tensors, metadata):
    """Writes tensors one after the other, and bytes between them where the next would not be aligned."""
    header = {"__metadata__": metadata} if metadata else {}
    parts = []
    end = 0

    def add(name, stored_type, shape, data):
        nonlocal end
        header[name] = {"dtype": stored_type, "shape": shape, "data_offsets": [end, end + len(data)]}
        parts.append(data)
        end += len(data)

    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu()
        if tensor.dtype not in STORED_TYPES:
            tensor = tensor.float()
        if end % ALIGNMENT:
            gap = ALIGNMENT - end % ALIGNMENT
            add(f"__padding__{len(parts)}", "U8", [gap], bytes(gap))
        values = tensor.contiguous().flatten().view(torch.uint8).numpy()
        add(name, STORED_TYPES[tensor.dtype], list(tensor.shape), memoryview(values))

    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    unfinished = f"{path}.part"
    with open(unfinished, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for part in parts:
            file.write(part)
    os.replace(unfinished, path)


def transform_of(config):
    """What a Transformers model does to its logits, by its configuration: as `--head FOLDER` reads it."""
    parts = [config, getattr(config, "text_config", None), getattr(config, "decoder", None)]

    def given(keys):
        # Not getattr(): MiniCPM3's logits_scaling is a property, of what its contexts are divided by.
        found = [[value for part in parts if (value := getattr(part, "__dict__", {}).get(key)) is not None]
                 for key in keys]
        return [values[0] for values in found if values]

    model_type = getattr(config, "model_type", "")
    multiplies = model_type.startswith("hyperclovax")  # by what Granite divides by
    scale = math.prod(given(SCALES + DIVISORS if multiplies else SCALES))
    scale /= math.prod(given(() if multiplies else DIVISORS) + given(DIVISORS_OF.get(model_type, ())))
    caps = given(SOFT_CAPS)
    return {"soft_cap": caps[0] if caps else None, "logit_scale": scale if scale != 1 else None}


def read_text(path):
    """The text to be read; what is wrong with it is said before a model is loaded."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"dump_contexts: {path}: {error}")
    if not text.strip():
        sys.exit(f"dump_contexts: {path}: holds no text")
    return text


def check_target(path):
    """Ends the program where the head file could not be written after all the work."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.access(folder, os.W_OK):
        sys.exit(f"dump_contexts: {path}: cannot be written")


def positive(text):
    """A whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def main():
    parser = argparse.ArgumentParser(description="Writes a head file of a language model of Hugging Face's "
                                                 "Transformers, with contexts of a text.")
    parser.add_argument("model", help="name or folder of the model")
    parser.add_argument("text", help="a text file, such as the model will meet")
    parser.add_argument("head", help="the head file to write (safetensors)")
    parser.add_argument("--contexts", type=positive, default=50_000, help="contexts to collect at most (default %(default)s)")
    parser.add_argument("--window", type=positive, default=512, help="tokens that are read at a time (default %(default)s)")
    arguments = parser.parse_args()
    if torch is None:
        sys.exit("dump_contexts: PyTorch is not installed: pip install torch")
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError:
        sys.exit("dump_contexts: Transformers is not installed: pip install transformers")

    check_target(arguments.head)
    text = read_text(arguments.text)
    tokens = torch.tensor(AutoTokenizer.from_pretrained(arguments.model)(text)["input_ids"], dtype=torch.long)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, torch_dtype="auto").eval()
    layer = model.get_output_embeddings()
    with torch.no_grad(), collect_contexts(layer, arguments.contexts) as contexts:
        for window in tokens.split(arguments.window):
            if contexts.full:
                break
            model(window[None])
            if sys.stderr.isatty():
                print(f"\r  {contexts.count} contexts", end="", file=sys.stderr)
    write_head(arguments.head, layer, contexts, name=os.path.basename(arguments.model.rstrip("/")),
               **transform_of(model.config))
    vocab, dim = layer.weight.shape
    print(f"{arguments.head}: V = {vocab}, d = {dim}, {contexts.count} contexts")


if __name__ == "__main__":
    main()
