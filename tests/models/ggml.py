"""Writes a Whisper's folder (`model.safetensors`, `config.json`, `tokenizer.json`) as a file of whisper.cpp, `f16` or `f32`.

    python tests/models/ggml.py FOLDER TO [f32]

`whisper-quantize` of whisper.cpp makes the others of it. Needs numpy and safetensors from PyPI.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

NAMES = {
    "self_attn_layer_norm": "attn_ln", "self_attn": "attn", "encoder_attn_layer_norm": "cross_attn_ln", "encoder_attn": "cross_attn",
    "final_layer_norm": "mlp_ln", "fc1": "mlp.0", "fc2": "mlp.2", "q_proj": "query", "k_proj": "key", "v_proj": "value",
    "out_proj": "out", "layers": "blocks",
}
WHOLE = {
    "encoder.embed_positions.weight": "encoder.positional_embedding", "decoder.embed_positions.weight": "decoder.positional_embedding",
    "decoder.embed_tokens.weight": "decoder.token_embedding.weight", "encoder.layer_norm.weight": "encoder.ln_post.weight",
    "encoder.layer_norm.bias": "encoder.ln_post.bias", "decoder.layer_norm.weight": "decoder.ln.weight",
    "decoder.layer_norm.bias": "decoder.ln.bias",
}


def letters():
    """GPT-2's letter of each byte."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + at): byte for at, byte in enumerate(others)}


def mel_filters(bands, bins=201, rate=16000):
    """Slaney's triangles, as librosa makes them."""
    def to_hertz(mel):
        return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * np.log(6.4) / 27))

    top = 15 + np.log(rate / 2 / 1000) * 27 / np.log(6.4)
    edges = to_hertz(np.linspace(0, top, bands + 2))
    places = np.linspace(0, rate / 2, bins)
    rising = (places - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - places) / (edges[2:] - edges[1:-1])[:, None]
    return (np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]).astype(np.float32)


def renamed(name):
    name = name.removeprefix("model.")
    return WHOLE.get(name) or ".".join(NAMES.get(word, word) for word in name.split("."))


def main(folder, target, form="f16"):
    folder = Path(folder)
    config = json.loads((folder / "config.json").read_text())
    tokens = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    to_byte, is_half = letters(), form == "f16"
    # The end of the text is no text; where it stands depends on the languages.
    texts = 50256 if config["vocab_size"] == 51864 else 50257
    in_order = sorted((number, token) for token, number in tokens.items() if number < texts)
    with open(target, "wb") as file:
        file.write(struct.pack("<12i", 0x67676D6C, config["vocab_size"], config["max_source_positions"], config["d_model"],
                               config["encoder_attention_heads"], config["encoder_layers"], config["max_target_positions"],
                               config["d_model"], config["decoder_attention_heads"], config["decoder_layers"],
                               config["num_mel_bins"], int(is_half)))
        filters = mel_filters(config["num_mel_bins"])
        file.write(struct.pack("<2i", *filters.shape) + filters.tobytes())
        file.write(struct.pack("<i", len(in_order)))
        for _, token in in_order:
            text = bytes(to_byte[letter] for letter in token)
            file.write(struct.pack("<i", len(text)) + text)
        for name, values in load_file(folder / "model.safetensors").items():
            if name == "proj_out.weight":
                continue
            name = renamed(name)
            if name.startswith("encoder.conv") and name.endswith("bias"):
                values = values[:, None]
            is_narrow = is_half and values.ndim > 1 and not name.endswith(("bias", "positional_embedding"))
            values = np.ascontiguousarray(values, np.float16 if is_narrow else np.float32)
            file.write(struct.pack("<3i", values.ndim, len(name), int(is_narrow)))
            file.write(struct.pack(f"<{values.ndim}i", *values.shape[::-1]) + name.encode() + values.tobytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
