"""Turns a Whisper model of CTranslate2 (`model.bin`, `config.json`, `tokenizer.json`) into the files of transformers.

    python tests/models/whisper.py FROM... TO

FROM is a folder with `model.bin`, or several with its parts in order. Needs numpy and safetensors from PyPI.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
NORMS = {"gamma": "weight", "beta": "bias"}


def read(data):
    """All variables by name."""
    place = 0

    def number(form):
        nonlocal place
        value, = struct.unpack_from("<" + form, data, place)
        place += struct.calcsize(form)
        return value

    def string():
        nonlocal place
        length = number("H")
        value = data[place:place + length - 1].decode()
        place += length
        return value

    version = number("I")
    if version != 6:
        raise SystemExit(f"version {version} of model.bin is not known; 6 is")
    name, _revision = string(), number("I")
    if name != "WhisperSpec":
        raise SystemExit(f"model.bin holds {name}, not WhisperSpec")
    variables = {}
    for _ in range(number("I")):
        name = string()
        shape = [number("I") for _ in range(number("B"))]
        kind, size = number("B"), number("I")
        values = np.frombuffer(data, TYPES[kind], size // np.dtype(TYPES[kind]).itemsize, place)
        variables[name] = values.reshape(shape)
        place += size
    return variables


def dequantized(variables):
    """Weights of eight bits with the scale of each row become numbers."""
    for name, values in variables.items():
        scale = variables.get(name + "_scale")
        if scale is not None and values.dtype == np.int8:
            values = values / scale.astype(np.float32).reshape([-1] + [1] * (values.ndim - 1))
        if not name.endswith("_scale"):
            yield name, values


def renamed(variables):
    """The names of transformers, fused projections taken apart."""
    for name, values in dequantized(variables):
        part, _, rest = name.partition("/")
        if part not in ("encoder", "decoder") or values.ndim == 0:
            continue
        words = [f"layers.{word[6:]}" if word.startswith("layer_") and word[6:].isdigit() else word for word in rest.split("/")]
        stem, leaf = f"model.{part}." + ".".join(words[:-1]), NORMS.get(words[-1], words[-1])
        values = values.astype(np.float16)
        if leaf == "encodings":
            yield f"model.{part}.embed_positions.weight", values
        elif stem.endswith("embeddings"):
            yield "model.decoder.embed_tokens.weight", values
        elif stem.endswith("projection"):
            continue
        elif "conv" in stem or stem.endswith(f"{part}.layer_norm"):
            yield f"{stem}.{leaf}", values
        elif ".ffn." in stem:
            base, last = stem.split(".ffn.")
            own = {"layer_norm": "final_layer_norm", "linear_0": "fc1", "linear_1": "fc2"}[last]
            yield f"{base}.{own}.{leaf}", values
        else:
            base, which, last = stem.rsplit(".", 2)
            own = {"self_attention": "self_attn", "attention": "encoder_attn"}[which]
            if last == "layer_norm":
                yield f"{base}.{own}_layer_norm.{leaf}", values
                continue
            fused = {("self_attn", "linear_0"): "qkv", ("self_attn", "linear_1"): ["out"], ("encoder_attn", "linear_0"): "q",
                     ("encoder_attn", "linear_1"): "kv", ("encoder_attn", "linear_2"): ["out"]}[own, last]
            for piece, value in zip(fused, np.split(values, len(fused))):
                # Keys have no bias: fused ones are zeros.
                if not (piece == "k" and leaf == "bias"):
                    yield f"{base}.{own}.{piece}_proj.{leaf}", np.ascontiguousarray(value)


def configuration(tensors):
    def layers(part):
        return 1 + max(int(name.split(".")[3]) for name in tensors if name.startswith(f"model.{part}.layers."))

    vocabulary, width = tensors["model.decoder.embed_tokens.weight"].shape
    feed = tensors["model.encoder.layers.0.fc1.weight"].shape[0]
    return {
        "architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper", "activation_function": "gelu",
        "vocab_size": vocabulary, "d_model": width, "num_mel_bins": tensors["model.encoder.conv1.weight"].shape[1],
        "encoder_layers": layers("encoder"), "decoder_layers": layers("decoder"),
        "encoder_attention_heads": width // 64, "decoder_attention_heads": width // 64,
        "encoder_ffn_dim": feed, "decoder_ffn_dim": feed, "scale_embedding": False,
        "max_source_positions": tensors["model.encoder.embed_positions.weight"].shape[0],
        "max_target_positions": tensors["model.decoder.embed_positions.weight"].shape[0],
    }


def main(*folders):
    *sources, target = map(Path, folders)
    files = [path for source in sources for path in sorted(source.glob("model.bin*"))]
    tensors = dict(renamed(read(b"".join(path.read_bytes() for path in files))))
    target.mkdir(parents=True, exist_ok=True)
    save_file(tensors, target / "model.safetensors", {"format": "pt"})
    (target / "config.json").write_text(json.dumps(configuration(tensors), indent=1))
    own = json.loads((sources[0] / "config.json").read_text())
    generation = {"suppress_tokens": own["suppress_ids"], "alignment_heads": own["alignment_heads"]}
    (target / "generation_config.json").write_text(json.dumps(generation, indent=1))
    (target / "tokenizer.json").write_bytes((sources[0] / "tokenizer.json").read_bytes())
    print(target, len(tensors), "tensors")


if __name__ == "__main__":
    main(*sys.argv[1:])
