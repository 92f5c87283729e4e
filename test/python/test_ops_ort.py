#!/usr/bin/env python3
"""Ops of exported language models against ONNX Runtime: random nodes, one model each.

    python test/python/test_ops_ort.py        (GQAC_TEST_SEED chooses other cases)

What ONNX Runtime refuses is counted and passed over; enough of each op must have been compared.
"""

import random
import sys
import unittest

import numpy as np
from onnx import TensorProto

import harness
import ortnodes
from ortnodes import FULL, Node, Nodes, floats

COUNT = 300 if FULL else 30


def codes(rng, kind, *shape):
    """Any value of an integer type."""
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max + 1, shape).astype(kind)


def scale_shape(pick, shape, attributes):
    """One of the granularities, said by the attributes."""
    form = pick.choice(["tensor", "axis", "blocks"])
    axis = pick.randrange(len(shape))
    if form == "tensor":
        return ()
    attributes["axis"] = axis - len(shape) * pick.randint(0, 1)
    if form == "axis":
        return (shape[axis],)
    attributes["block_size"] = pick.randint(1, shape[axis])
    blocks = list(shape)
    blocks[axis] = -(-shape[axis] // attributes["block_size"])
    return tuple(blocks)


def dequantize(rng, pick):
    """A random DequantizeLinear."""
    shape = tuple(pick.randint(1, 9) for _ in range(pick.randint(2, 4)))
    kind, attributes = pick.choice([np.int8, np.uint8, np.int16, np.uint16]), {}
    size = scale_shape(pick, shape, attributes)
    inputs = {"x": codes(rng, kind, *shape), "s": floats(rng, *size) * np.float32(0.1),
              "z": codes(rng, kind, *size) if pick.randint(0, 1) else None}
    inputs["s"] = np.asarray(inputs["s"], np.float32)
    inputs["z"] = None if inputs["z"] is None else np.asarray(inputs["z"], kind)
    return Node("DequantizeLinear", "", inputs, ["y"], **attributes)


def quantize(rng, pick):
    """A random QuantizeLinear, some values beyond the codes."""
    shape = tuple(pick.randint(1, 9) for _ in range(pick.randint(2, 4)))
    kind, attributes = pick.choice([np.int8, np.uint8, np.int16, np.uint16]), {}
    size = scale_shape(pick, shape, attributes)
    spread = 2.0 if kind in (np.int8, np.uint8) else 0.01
    zero = pick.randint(0, 1) or kind != np.uint8
    inputs = {"x": floats(rng, *shape) * 99,
              "s": np.asarray((rng.random(size) + 0.1) * spread, np.float32),
              "z": np.asarray(codes(rng, kind, *size), kind) if zero else None}
    types = {np.int8: TensorProto.INT8, np.uint8: TensorProto.UINT8, np.int16: TensorProto.INT16,
             np.uint16: TensorProto.UINT16}
    return Node("QuantizeLinear", "", inputs, [("y", types[kind])], **attributes)


def dynamic(rng, pick):
    """A random DynamicQuantizeLinear: values about any centre, or all on one side of 0."""
    shape = tuple(pick.randint(1, 30) for _ in range(pick.randint(1, 3)))
    x = (floats(rng, *shape) + pick.choice([0, 3, -9])) * pick.choice([1, 100, 0])
    return Node("DynamicQuantizeLinear", "", {"x": x.astype(np.float32)},
                [("y", TensorProto.UINT8), "s", ("z", TensorProto.UINT8)])


def matmul_integer(rng, pick):
    """A random MatMulInteger, zero points of all forms."""
    batch = [(), (2,), (3, 2)][pick.randint(0, 2)]
    m, k, n = pick.randint(1, 9), pick.randint(1, 300), pick.choice([1, 5, 64, 300])
    a, b = (pick.choice([np.int8, np.uint8]) for _ in range(2))
    a_zero = pick.choice([None, (), (1,), (m,), (*batch, m, 1)])
    b_zero = pick.choice([None, (), (1,), (n,)])
    inputs = {"a": codes(rng, a, *batch, m, k),
              "b": codes(rng, b, *(batch if pick.randint(0, 1) else ()), k, n),
              "az": None if a_zero is None else np.asarray(codes(rng, a, *a_zero), a),
              "bz": None if b_zero is None else np.asarray(codes(rng, b, *b_zero), b)}
    return Node("MatMulInteger", "", inputs, [("y", TensorProto.INT32)])


@unittest.skipUnless(ortnodes.ort, "onnxruntime is not installed")
class Ops(Nodes):
    """One test an op."""

    def test_dequantize(self):
        """By tensor, axis and block, with and without zero points."""
        self.compare(dequantize, 0.9, limit=0, count=COUNT)

    def test_quantize(self):
        """By tensor, axis and block; saturation."""
        self.compare(quantize, 0.9, limit=0, count=COUNT)

    def test_dynamic_quantize(self):
        """Codes, scale and zero point, all equal."""
        self.compare(dynamic, 0.9, limit=1e-7, count=COUNT)

    def test_matmul_integer(self):
        """Every element is exact. (That of ONNX Runtime saturates without VNNI, so NumPy it is.)"""
        rng, pick = np.random.default_rng(ortnodes.SEED), random.Random(ortnodes.SEED)
        for number in range(COUNT):
            node = matmul_integer(rng, pick)
            a, b, a_zero, b_zero = (None if v is None else v.astype(np.int64)
                                    for v in node.inputs.values())
            if a_zero is not None:
                a = a - (a_zero[:, None] if a_zero.ndim == 1 else a_zero)
            wanted = a @ (b if b_zero is None else b - b_zero)
            np.testing.assert_array_equal(self.ours(node)[0], wanted, f"case {number}: {node}")


if __name__ == "__main__":
    sys.exit(harness.main())
