#!/usr/bin/env python3
"""MatMulNBits compared with its definition, bit for bit: a scalar emulation in NumPy.

    python test/python/test_matmul_nbits.py

The definition is the comment at the top of src/ops/matmul_nbits.c. A fused multiply-add of fp32 is
emulated exactly: the product is exact in float64, the sum is rounded to odd in float64, and a value
rounded to odd with 53 bits is rounded to 24 bits like the exact one.
"""

import itertools
import os
import random
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import harness
from harness import Case, relative

try:
    import onnxruntime as ort
except ImportError:
    ort = None

PIECE = 512  # k in one fma chain; pieces are added ascending
F32 = np.float32
SEED = 20262


# ---- exact arithmetic ----------------------------------------------------------------------------


def sum_to_odd(a, b):
    """a + b in float64, rounded to odd."""
    s = a + b
    t = s - a
    error = (a - (s - t)) + (b - t)
    truncated = np.where((error != 0) & ((error < 0) != (s < 0)), np.nextafter(s, 0.0), s)
    bits = truncated.view(np.int64) | (error != 0)
    return bits.view(np.float64)


def fma(x, y, z):
    """fp32 x·y + z with one rounding."""
    product = x.astype(np.float64) * y.astype(np.float64)
    return sum_to_odd(product, np.broadcast_to(z.astype(np.float64), product.shape)).astype(F32)


def pieces(steps, shape):
    """Sum of the (position, x, y) of `steps`: a chain in each piece of k, pieces ascending."""
    total, chain, at = None, np.zeros(shape, F32), 0
    for k, x, y in steps:
        if k // PIECE != at:
            total = chain if total is None else total + chain
            chain, at = np.zeros(shape, F32), k // PIECE
        chain = fma(x, y, chain)
    return chain if total is None else total + chain


# ---- the recipe ----------------------------------------------------------------------------------


def unpack(data, bits, count):
    """Codes along the last axis, low bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = data[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return codes.reshape(*data.shape[:-1], -1)[..., :count].astype(np.int32)


class Node:
    """Random inputs of one node and its expected result."""

    def __init__(self, rng, rows, k, n, bits=4, block=32, zero=None, bias=False, half=False,
                 scale=1.0):
        self.k, self.n, self.bits, self.block = k, n, bits, block
        self.blocks = -(-k // block)
        self.type = np.float16 if half else F32
        self.groups = None  # g_idx [K]: the block whose scale and zero point apply to each k
        self.a = (rng.standard_normal((rows, k)) * scale).astype(self.type)
        self.b = rng.integers(0, 256, (n, self.blocks, block * bits // 8)).astype(np.uint8)
        self.s = (rng.standard_normal((n, self.blocks)) * 0.1).astype(self.type)
        self.bias = rng.standard_normal(n).astype(self.type) if bias else None
        self.zero = None
        if zero == "packed":
            size = (n, -(-self.blocks * bits // 8))
            self.zero = rng.integers(0, 256, size).astype(np.uint8)
        elif zero == "float":
            self.zero = rng.integers(0, 1 << bits, (n, self.blocks)).astype(self.type)

    def codes(self):
        """code - zp [N,blocks,block]; float if the zero points are."""
        codes = unpack(self.b, self.bits, self.block)
        if self.zero is None:
            return codes - (1 << (self.bits - 1))
        if self.zero.dtype != np.uint8:
            return codes.astype(F32) - self.zero.astype(F32)[..., None]
        return codes - unpack(self.zero, self.bits, self.blocks)[..., None]

    def finish(self, y):
        """The bias, and the rounding to the type of A."""
        if self.bias is not None:
            y = y + self.bias.astype(F32)
        return y.astype(self.type)

    def exact(self):
        """accuracy_level 0: fp32 weights, a chain over k."""
        of = np.arange(self.k) // self.block if self.groups is None else self.groups[:self.k]
        codes = unpack(self.b, self.bits, self.block).reshape(self.n, -1)[:, :self.k]
        zero = np.full((self.n, self.blocks), 1 << (self.bits - 1)) if self.zero is None else (
            unpack(self.zero, self.bits, self.blocks) if self.zero.dtype == np.uint8 else self.zero)
        w = (codes.astype(F32) - zero.astype(F32)[:, of]) * self.s.astype(F32)[:, of]
        a = self.a.astype(F32)
        steps = ((k, a[:, k, None], w[None, :, k]) for k in range(self.k))
        return self.finish(pieces(steps, (len(a), self.n)))

    def quantised(self):
        """(qa [rows,blocks,block] integers, their scales [rows,blocks])"""
        rows = len(self.a)
        a = np.zeros((rows, self.blocks * self.block), F32)
        a[:, :self.k] = self.a
        a = a.reshape(rows, self.blocks, self.block)
        most = np.abs(a).max(axis=2)
        inverse = np.where(most > 0, F32(127) / np.where(most > 0, most, F32(1)), F32(0))
        return np.rint(a * inverse[..., None]).astype(np.int64), most / F32(127)

    def int8(self):
        """accuracy_level 4: int8 activations, exact sums, a chain over the blocks."""
        qa, sa = self.quantised()
        sums = np.einsum("mbi,nbi->bmn", qa, self.codes().astype(np.int64))
        scales = sa.T[:, :, None] * self.s.astype(F32).T[:, None, :]
        steps = ((b * self.block, sums[b].astype(F32), scales[b]) for b in range(self.blocks))
        return self.finish(pieces(steps, (len(self.a), self.n)))

    def model(self, level):
        """ModelProto of the node."""
        held = {"b": self.b, "s": self.s, "z": self.zero, "g": self.groups, "bias": self.bias}
        names = ["a", *(name if held[name] is not None else "" for name in held)]
        while not names[-1]:
            names.pop()
        node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", K=self.k,
                                N=self.n, bits=self.bits, block_size=self.block,
                                accuracy_level=level)
        kind = TensorProto.FLOAT16 if self.type == np.float16 else TensorProto.FLOAT
        graph = helper.make_graph(
            [node], "g", [helper.make_tensor_value_info("a", kind, ["M", self.k])],
            [helper.make_tensor_value_info("y", kind, ["M", self.n])],
            [numpy_helper.from_array(v, k) for k, v in held.items() if v is not None])
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17),
                                                       helper.make_opsetid("com.microsoft", 1)])
        made.ir_version = 10
        return made


class Recipe(Case):
    """Nodes of every form."""

    def run_node(self, node, level, *flags):
        """The result of gqac."""
        path = self.dir / "model.onnx"
        path.write_bytes(node.model(level).SerializeToString())
        np.save(self.dir / "a.npy", node.a)
        self.good("run", path, "--input", f"a={self.dir / 'a.npy'}", "-o", self.dir, *flags)
        return np.load(self.dir / "y.npy")

    def same(self, node, label):
        """Levels 4 and 0 have their defined bits; threads and the number of rows change nothing."""
        y4, y0 = self.run_node(node, 4), self.run_node(node, 0)
        floats = node.zero is not None and node.zero.dtype != np.uint8
        want4 = node.exact() if floats or (node.bits == 2 and node.block == 16) else node.int8()
        self.assertEqual(y4.tobytes(), want4.tobytes(), f"{label}: level 4")
        self.assertEqual(y0.tobytes(), node.exact().tobytes(), f"{label}: level 0")
        exact = self.run_node(node, 4, "--math", "exact", "--threads", "3")
        self.assertEqual(exact.tobytes(), y0.tobytes(), f"{label}: --math exact")
        if ort and node.block <= 256:  # it does not support longer ones
            self.close_to_ort(node, {4: y4, 0: y0}, label)

    def close_to_ort(self, node, results, label):
        """The definition is also close to ONNX Runtime's."""
        options = ort.SessionOptions()
        options.log_severity_level = 3
        for level, y in results.items():
            session = ort.InferenceSession(node.model(level).SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
            want = session.run(None, {"a": node.a})[0]
            limit = 2e-2 if level == 4 else 5e-3 if node.type == np.float16 else 2e-5
            self.assertLessEqual(relative(y, want), limit, f"{label}: ONNX Runtime level {level}")

    def test_forms(self):
        """Bits, blocks, zero points, bias, half precision; K of one piece, of several, ragged."""
        rng = np.random.default_rng(SEED)
        forms = itertools.product((4, 8, 2), (16, 32, 128), (None, "packed"), (96, 1100))
        for bits, block, zero, k in forms:
            for rows in (1, 5):
                label = f"bits {bits} block {block} zero {zero} k {k} rows {rows}"
                with self.subTest(label):
                    self.same(Node(rng, rows, k, 7, bits, block, zero), label)

    def test_more(self):
        """Bias, half precision, float zero points, blocks as long as a piece and longer."""
        rng = np.random.default_rng(SEED + 1)
        for more in ({"bias": True}, {"half": True}, {"half": True, "bias": True},
                     {"zero": "float"}, {"block": 512}, {"block": 1024}, {"scale": 1e-30},
                     {"scale": 1e30}):
            with self.subTest(str(more)):
                self.same(Node(rng, 3, 1600, 6, **more), str(more))

    def test_groups(self):
        """g_idx: each column of A uses the scale and zero point of any block, in fp32 at every
        level."""
        rng = np.random.default_rng(SEED + 3)
        for bits, block, zero, k in ((4, 32, None, 96), (4, 16, "packed", 1100), (8, 64, "packed", 130),
                                     (2, 32, "float", 96), (4, 128, None, 200)):
            node = Node(rng, 3, k, 19, bits, block, zero, bias=True)
            padded = node.blocks * block
            own = (np.arange(padded) // block).astype(np.int32)
            for groups in (rng.permutation(own[:k]), rng.integers(0, node.blocks, padded), own, own[:k],
                           np.zeros(k)):
                node.groups = groups.astype(np.int32)
                for level in (0, 4):
                    for flags in ((), ("--target", "ref"), ("--threads", "3")):
                        y = self.run_node(node, level, *flags)
                        self.assertEqual(y.tobytes(), node.exact().tobytes(), (bits, block, zero, level))
                if ort and zero is None and bits == 4:  # with g_idx it ignores zero points
                    self.close_to_ort(node, {0: y}, "g_idx")

    def test_wrong_groups(self):
        """A g_idx of another length or type, and one with an index out of range."""
        node = Node(np.random.default_rng(SEED), 2, 96, 5)
        good = np.arange(96) // 32
        for groups, kind in ((good[:95], np.int32), (np.append(good, 0), np.int32), (good, np.int64),
                             (good - 1, np.int32), (good + 1, np.int32)):
            node.groups = groups.astype(kind)
            path = self.dir / "model.onnx"
            path.write_bytes(node.model(0).SerializeToString())
            np.save(self.dir / "a.npy", node.a)
            self.check(harness.gqac("run", path, "--input", f"a={self.dir / 'a.npy'}"), 3, "g_idx")

    def test_zeros(self):
        """A block of zeros, negative zeros, ties and a large magnitude."""
        node = Node(np.random.default_rng(SEED + 2), 4, 64, 5)
        node.a[0] = 0
        node.a[1, :32] = -0.0
        node.a[2] = np.arange(64) % 9 - 4.5
        node.a[3, 7] = 1e36
        self.same(node, "zeros")

    def test_random(self):
        """A few cases of a new seed."""
        seed = int(os.environ.get("GQAC_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"fresh seed: GQAC_TEST_SEED={seed}")
        rng = np.random.default_rng(seed)
        for _ in range(6):
            self.same(Node(rng, int(rng.integers(1, 9)), int(rng.integers(1, 1500)),
                           int(rng.integers(1, 40)), block=int(rng.choice([16, 64, 256])),
                           zero=rng.choice([None, "packed"])), f"seed {seed}")

    def test_emulation(self):
        """The emulated fma itself, compared with exact fractions."""
        from fractions import Fraction
        rng = np.random.default_rng(5)
        x, y, z = (np.ldexp(rng.standard_normal(4000), rng.integers(-20, 20, 4000)).astype(F32)
                   for _ in range(3))
        z[::2] = -(x * y)[::2]
        got = fma(x, y, z)
        for i, value in enumerate(got):
            exact = Fraction(float(x[i])) * Fraction(float(y[i])) + Fraction(float(z[i]))
            errors = [abs(Fraction(float(v)) - exact)
                      for v in (value, np.nextafter(value, F32(9e30)),
                                np.nextafter(value, F32(-9e30)))]
            self.assertEqual(errors[0], min(errors), (x[i], y[i], z[i]))


if __name__ == "__main__":
    sys.exit(harness.main())
