"""Turns an ONNX file that computes with eight bits into one that computes in f32 with the same weights.

    python tests/models/unquantized.py FROM TO

Activations are not rounded any more, so that the file is a reference for programs that compute in f32. Needs numpy and onnx
from PyPI.
"""

import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper

FLOAT_OF = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
# Nodes that round a bias to whole numbers.
ROUNDING = (".bias_quant_rounded", ".bias_quantized_node")


class Unquantized:
    def __init__(self, model):
        self.model, self.graph = model, model.graph
        self.values = {value.name: value for value in self.graph.initializer}
        self.nodes, self.added = [], {}

    def value(self, name):
        return numpy_helper.to_array(self.values[name]).astype(np.float32)

    def add(self, name, value):
        self.added[name] = numpy_helper.from_array(np.ascontiguousarray(value, dtype=np.float32), name)
        return name

    def weights(self, name, zero):
        """Whole numbers around zero: their scale is multiplied by a node that stays. What is no weight stays as it is."""
        if name not in self.values:
            return name
        return self.add(f"{name}_around_zero", self.value(name) - self.value(zero))

    def convert(self):
        for node in self.graph.node:
            self.convert_node(node)
        used = {name for node in self.nodes for name in node.input}
        values = [value for name, value in (self.values | self.added).items() if name in used]
        # The types of values between nodes are no longer those of the file.
        for part, new in ((self.graph.node, self.nodes), (self.graph.initializer, values), (self.graph.value_info, [])):
            kept = [type(each).FromString(each.SerializeToString()) for each in new]
            del part[:]
            part.extend(kept)
        return self.model

    def convert_node(self, node):
        inputs = list(node.input)
        if node.op_type == "DynamicQuantizeLinear":
            value, scale, zero = node.output
            self.nodes.append(helper.make_node("Identity", inputs, [value], node.name))
            self.add(scale, np.ones(()))
            self.add(zero, np.zeros(()))
        elif node.name.endswith(ROUNDING):
            self.nodes.append(helper.make_node("Identity", inputs, list(node.output), node.name))
        elif node.op_type in FLOAT_OF:
            sources = [inputs[0], self.weights(inputs[1], inputs[3])]
            node.op_type = FLOAT_OF[node.op_type]
            del node.input[:]
            node.input.extend(sources)
            self.nodes.append(node)
        elif node.op_type == "DynamicQuantizeLSTM":
            for at, scale, zero in ((1, 8, 9), (2, 10, 11)):
                scale, zero = (self.value(inputs[each]).reshape(2, 1, -1) for each in (scale, zero))
                values = (self.value(inputs[at]) - zero) * scale
                inputs[at] = self.add(f"{inputs[at]}_of_{node.name}", values.transpose(0, 2, 1))
            kept = {each.name: helper.get_attribute_value(each) for each in node.attribute if each.name in ("hidden_size", "direction")}
            self.nodes.append(helper.make_node("LSTM", inputs[:8], list(node.output), node.name, **kept))
        else:
            self.nodes.append(node)


def main(source, target):
    onnx.save(Unquantized(onnx.load(source)).convert(), target)


if __name__ == "__main__":
    main(*sys.argv[1:])
