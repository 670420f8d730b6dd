"""Turns Kokoro-82M in ONNX with weights of eight bits, and voices of numpy, into safetensors under the published names.

    python tests/models/kokoro.py PART... VOCABULARY VOICES TO

PARTs are the pieces of the .onnx file in order, VOCABULARY is a JSON file with `vocab`, VOICES an .npz file. Needs numpy,
onnx and safetensors from PyPI. Weights are named by the nodes that use them: the export kept no other names.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from safetensors.numpy import save_file

# Of the published config.json; the ONNX file has none.
CONFIG = {
    "istftnet": {
        "upsample_kernel_sizes": [20, 12], "upsample_rates": [10, 6], "gen_istft_hop_size": 5, "gen_istft_n_fft": 20,
        "resblock_dilation_sizes": [[1, 3, 5], [1, 3, 5], [1, 3, 5]], "resblock_kernel_sizes": [3, 7, 11],
        "upsample_initial_channel": 512,
    },
    "dim_in": 64, "dropout": .2, "hidden_dim": 512, "max_conv_dim": 512, "max_dur": 50, "multispeaker": True, "n_layer": 3,
    "n_mels": 80, "n_token": 178, "style_dim": 128, "text_encoder_kernel_size": 5,
    "plbert": {
        "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 2048, "max_position_embeddings": 512,
        "num_hidden_layers": 12, "dropout": .1,
    },
}
# Modules of the predictor that the export put beside it.
OF_PREDICTOR = ("F0", "N", "shared", "lstm", "duration_proj")
# Gates as ONNX orders them, in PyTorch's order.
GATES = [0, 2, 3, 1]


def module(node):
    """`decoder.encode.conv1` of `/decoder/decoder/encode/conv1/Conv_quant`."""
    words = node.lstrip("/").split("/")[1:-1]
    kept = [word for at, word in enumerate(words) if not any(later.startswith(word + ".") for later in words[at + 1:at + 2])]
    if kept[0].split(".")[0].removesuffix("_proj") in OF_PREDICTOR and words[0] not in ("predictor", "decoder"):
        kept.insert(0, "predictor")
    return ".".join(kept)


def plain(name):
    """Without the two halves of the export."""
    return re.sub(r"^(encoder|decoder)\.", "", name)


class Graph:
    def __init__(self, data):
        self.graph = onnx.load_model_from_string(data).graph
        self.values = {value.name: value for value in self.graph.initializer}
        self.tensors = {}

    def value(self, name):
        return numpy_helper.to_array(self.values[name])

    def dequantized(self, name):
        """Scales are one number, or one for each of the last dimension."""
        base = name.removesuffix("_quantized")
        zero = self.zeros.get(name, f"{base}_zero_point")
        scale = self.value(f"{base}_scale").astype(np.float32)
        return (self.value(name).astype(np.float32) - self.value(zero).astype(np.float32)) * scale

    def put(self, name, value):
        self.tensors.setdefault(name, np.ascontiguousarray(value.astype(np.float32)))

    def read(self):
        # Equal zero points are stored once: nodes say which they use.
        self.zeros = {}
        for node in self.graph.node:
            if node.op_type in ("ConvInteger", "MatMulInteger"):
                self.zeros[node.input[1]] = node.input[3]
            elif node.op_type == "DequantizeLinear":
                table = node.input[1].replace("_scale", "_quantized")
                self.zeros[table] = node.input[2]
        for node in self.graph.node:
            self.read_node(node)
        for name in self.values:
            if re.search(r"\.(bias|gamma|beta|LayerNorm\.weight|full_layer_layer_norm\.weight|alpha\d\.\d)$", name):
                self.put(plain(name), self.value(name))
        return self.tensors

    def read_node(self, node):
        kind, inputs = node.op_type, list(node.input)
        if kind == "ConvInteger":
            self.put(f"{module(node.name)}.weight", self.dequantized(inputs[1]))
        elif kind in ("Conv", "ConvTranspose") and "istft" not in node.name:
            self.put(f"{module(node.name)}.weight", self.value(inputs[1]))
        elif kind == "MatMulInteger" and not re.search(r"_\d+/MatMul", node.name):
            name = plain(inputs[1]).removesuffix("_quantized")
            name = f"{module(node.name)}.weight" if name.startswith("onnx::") else name
            self.put(name, self.dequantized(inputs[1]).T)
        elif kind == "MatMul" and inputs[1] in self.values:
            self.put(f"{module(node.name)}.weight", self.value(inputs[1]).T)
        elif kind == "Gather" and inputs[0].endswith("weight_quantized"):
            self.put(plain(inputs[0]).removesuffix("_quantized"), self.dequantized(inputs[0]))
        elif kind == "DynamicQuantizeLSTM":
            self.read_recurrence(module(node.name), inputs)

    def read_recurrence(self, name, inputs):
        def gates(values):
            return np.concatenate([np.split(values, 4)[gate] for gate in GATES])

        scales = {1: (inputs[8], inputs[9]), 2: (inputs[10], inputs[11])}
        for at, part in ((1, "weight_ih"), (2, "weight_hh")):
            scale, zero = (self.value(each).astype(np.float32).reshape(2, 1, -1) for each in scales[at])
            values = (self.value(inputs[at]).astype(np.float32) - zero) * scale
            for end, direction in zip(("", "_reverse"), values):
                self.put(f"{name}.{part}_l0{end}", gates(direction.T))
        for end, direction in zip(("", "_reverse"), self.value(inputs[3])):
            own, state = np.split(direction, 2)
            self.put(f"{name}.bias_ih_l0{end}", gates(own))
            self.put(f"{name}.bias_hh_l0{end}", gates(state))


def main(*arguments):
    *parts, vocabulary, voices, target = map(Path, arguments)
    tensors = Graph(b"".join(part.read_bytes() for part in parts)).read()
    (target / "voices").mkdir(parents=True, exist_ok=True)
    save_file(tensors, target / "model.safetensors")
    config = CONFIG | {"vocab": json.loads(vocabulary.read_text())["vocab"]}
    (target / "config.json").write_text(json.dumps(config, ensure_ascii=False, indent=1) + "\n")
    tables = np.load(voices)
    for name in tables.files:
        save_file({"voice": np.ascontiguousarray(tables[name].astype(np.float32))}, target / "voices" / f"{name}.safetensors")
    print(target, len(tensors), "tensors,", sum(value.size for value in tensors.values()), "numbers,", len(tables.files), "voices")


if __name__ == "__main__":
    main(*sys.argv[1:])
