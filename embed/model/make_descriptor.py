"""Writes descriptor.onnx: a picture's layout of light, colour, contrast and edges as 257 numbers.

Nothing in it is trained, so it has no licence of its own and no taste. Each block is made insensitive
to gain by dividing by its own length, softly: below `floor` a block fades instead of turning noise
into directions. A constant component keeps flat pictures apart from rounding.

    python3 make_descriptor.py OUT.onnx
"""

import sys

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper

SIDE = 224
# Full-range BT.601, as JPEG has it.
YCBCR = np.array(
    [[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]], np.float32
)
ORIENTATIONS = 8
# Weight and soft floor of each block, in units of samples in [0, 1].
LUMA_FINE = (1.0, 0.5)
LUMA_COARSE = (1.0, 0.25)
CHROMA = (0.7, 0.25)
CONTRAST = (0.7, 0.25)
EDGES = (1.0, 0.5)
CONSTANT = 0.25


def orientation_kernels():
    """Sobel's two kernels turned to eight directions; the halves of each wave are kept apart."""
    across = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.float64) / 8
    angles = [2 * np.pi * k / ORIENTATIONS for k in range(ORIENTATIONS)]
    # Rounded, so that every machine's cosine gives the same bytes.
    kernels = [np.round(np.cos(a) * across + np.sin(a) * across.T, 6) for a in angles]
    return np.stack(kernels)[:, None].astype(np.float32)


class Graph:
    """Nodes and constants in the order in which they are added."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def constant(self, name, value):
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, op, inputs, name, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def pool(self, source, side, name):
        return self.node("AveragePool", [source], name, kernel_shape=[side, side], strides=[side, side])

    def block(self, source, name, shape):
        """A row a picture, divided by sqrt(length^2 + floor^2) and weighted."""
        weight, floor = shape
        flat = self.node("Flatten", [source], f"{name}_flat", axis=1)
        length = self.node("ReduceSumSquare", [flat, "one"], f"{name}_square", keepdims=1)
        soft = self.node("Add", [length, self.constant(f"{name}_floor", np.float32(floor**2))], f"{name}_soft")
        root = self.node("Sqrt", [soft], f"{name}_root")
        unit = self.node("Div", [flat, root], f"{name}_unit")
        return self.node("Mul", [unit, self.constant(f"{name}_weight", np.float32(weight))], name)


def build():
    g = Graph()
    g.constant("one", np.array([1], np.int64))
    half = g.pool("picture", 2, "half")
    ycc = g.node("Conv", [half, g.constant("ycbcr", YCBCR[:, :, None, None])], "ycc")
    g.constant("split", np.array([1, 2], np.int64))
    g.nodes.append(helper.make_node("Split", ["ycc", "split"], ["luma", "chroma"], name="planes", axis=1))

    mean = g.node("GlobalAveragePool", ["luma"], "mean")
    centred = g.node("Sub", ["luma", mean], "centred")
    fine = g.block(g.pool(centred, 14, "fine_cells"), "fine", LUMA_FINE)
    coarse_cells = g.pool(centred, 28, "coarse_cells")
    coarse = g.block(coarse_cells, "coarse", LUMA_COARSE)
    colour = g.block(g.pool("chroma", 28, "colour_cells"), "colour", CHROMA)

    square = g.node("Mul", [centred, centred], "square")
    variance = g.node("Sub", [g.pool(square, 28, "square_cells"), g.node("Mul", [coarse_cells, coarse_cells], "cells_square")], "variance")
    # Rounding may leave a flat cell below zero.
    deviation = g.node("Sqrt", [g.node("Relu", [variance], "variance_kept")], "deviation")
    contrast = g.block(deviation, "contrast", CONTRAST)

    waves = g.node("Conv", ["luma", g.constant("sobel", orientation_kernels())], "waves")
    halves = g.node("Relu", [waves], "half_waves")
    # 110 x 110 after the convolution; 4 x 4 windows of 27 leave two rows and columns at the rim.
    edges = g.block(g.pool(halves, 27, "edge_cells"), "edges", EDGES)

    shape = g.node("Mul", [g.node("ReduceSum", [coarse, "one"], "row", keepdims=1), g.constant("nothing", np.float32(0))], "zero")
    steady = g.node("Add", [shape, g.constant("steady_weight", np.float32(CONSTANT))], "steady")
    joined = g.node("Concat", [fine, coarse, colour, contrast, edges, steady], "joined", axis=1)
    length = g.node("ReduceL2", [joined, "one"], "length", keepdims=1)
    g.node("Div", [joined, length], "embedding")

    size = 64 + 16 + 32 + 16 + 16 * ORIENTATIONS + 1
    picture = helper.make_tensor_value_info("picture", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])
    out = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["n", size])
    graph = helper.make_graph(g.nodes, "descriptor", [picture], [out], g.constants)
    opset = helper.make_opsetid("", 18)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8, producer_name="descriptor")
    checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


if __name__ == "__main__":
    with open(sys.argv[1], "wb") as file:
        file.write(build())
