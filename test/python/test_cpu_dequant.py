#!/usr/bin/env python3
"""DequantizeLinear and MatMul on the cpu target: one product with packed weights, the bits of ref.

    python test/python/test_cpu_dequant.py

ref runs the two ops of the file. --dump pack shows the ops on cpu.
"""

import itertools
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper

import harness
from harness import Case, gqac

SEED = 4021
CODES = {"i4": (TensorProto.INT4, -8, 8, np.int8), "u4": (TensorProto.UINT4, 0, 16, np.uint8),
         "i8": (TensorProto.INT8, -128, 128, np.int8), "u8": (TensorProto.UINT8, 0, 256, np.uint8)}


def codes(rng, kind, name, shape):
    """A random initialiser of that type."""
    code, low, high, carrier = CODES[kind]
    values = rng.integers(low, high, shape).astype(carrier).ravel()
    return helper.make_tensor(name, code, shape, values.tolist())


class Product:
    """MatMul by a weight [k,n] (or [n,k] and Transpose) from DequantizeLinear."""

    def __init__(self, rng, kind, k, n, block=0, by="tensor", zero=False, turned=False,
                 half=False):
        shape = [n, k] if turned else [k, n]
        size = {"tensor": [], "columns": [n], "rows": [k]}.get(by)
        axis = {"columns": 0 if turned else 1, "rows": 1 if turned else 0}.get(by, 0)
        if size is None: # blocks along k, or along n ("across")
            axis = int(turned) if by == "blocks" else 1 - int(turned)
            size = list(shape)
            size[axis] = -(-size[axis] // block)
        self.n = n
        scale = (rng.random(size) * 0.01 + 0.001).astype(np.float16 if half else np.float32)
        held = [codes(rng, kind, "w", shape), onnx.numpy_helper.from_array(np.asarray(scale), "s")]
        names = ["w", "s"]
        if zero:
            held.append(codes(rng, kind, "z", size))
            names.append("z")
        self.nodes = [helper.make_node("DequantizeLinear", names, ["d"], axis=axis,
                                       block_size=block)]
        if turned:
            self.nodes.append(helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]))
        self.nodes.append(helper.make_node("MatMul", ["a", "t" if turned else "d"], ["y"]))
        kind = TensorProto.FLOAT16 if half else TensorProto.FLOAT
        self.type = np.float16 if half else np.float32
        self.graph = helper.make_graph(
            self.nodes, "g", [helper.make_tensor_value_info("a", kind, ["M", k])],
            [helper.make_tensor_value_info("y", kind, ["M", n])], held)

    def write(self, folder):
        """The .onnx file."""
        made = helper.make_model(self.graph, opset_imports=[helper.make_opsetid("", 21)])
        made.ir_version = 10
        onnx.save(made, folder / "model.onnx")
        return folder / "model.onnx"


class CpuDequant(Case):
    """cpu compared with ref, byte by byte."""

    def y(self, path, a, *flags):
        """The result of gqac for rows `a`."""
        np.save(self.dir / "a.npy", a)
        self.good("run", path, "--input", f"a={self.dir / 'a.npy'}", "-o", self.dir, *flags)
        return np.load(self.dir / "y.npy")

    def ops(self, path):
        """Ops after pack."""
        text = self.good("compile", path, "--dump", "pack", "--stop-after", "pack", "--target",
                         "cpu").out
        return [line.split(" = ")[1].split()[0] for line in text.splitlines() if " = " in line
                and "const" not in line]

    def check_product(self, product, a, label, ops):
        """Fused or not as expected, and the bytes of ref."""
        path = product.write(self.dir)
        want = self.y(path, a.astype(product.type), "--target", "ref")
        self.assertTrue(np.isfinite(want).all())
        for threads in ("1", "2"):
            got = self.y(path, a.astype(product.type), "--target", "cpu", "--threads", threads)
            self.assertEqual(got.tobytes(), want.tobytes(), label)
        self.assertEqual(self.ops(path), ops, label)

    def test_taken(self):
        """Types, granularities, zero points, both orders of the weight."""
        rng = np.random.default_rng(SEED)
        forms = itertools.product(CODES, (("tensor", 0), ("columns", 0), ("blocks", 32),
                                          ("blocks", 48), ("blocks", 2048)), (False, True),
                                  (False, True))
        for i, (kind, (by, block), zero, turned) in enumerate(forms):
            k, n = (192, 520, 1056)[i % 3], (130, 200)[i % 2]
            label = f"{kind} {by} {block} zero {zero} turned {turned} k {k} n {n}"
            with self.subTest(label):
                product = Product(rng, kind, k, n, block, by, zero, turned)
                self.check_product(product, rng.standard_normal((i % 5 + 1, k)), label,
                                   ["linear_nbits"])

    def test_left(self):
        """Scales for rows of the weight, blocks across columns or too short, and 16 bits, where
        weights would be rounded: the ops are not fused."""
        rng = np.random.default_rng(SEED + 1)
        for form in ({"by": "rows"}, {"by": "across", "block": 32}, {"by": "blocks", "block": 24},
                     {"by": "columns", "half": True}):
            with self.subTest(str(form)):
                product = Product(rng, "i4", 400, 200, **form)
                self.check_product(product, rng.standard_normal((3, 400)), str(form),
                                   ["DequantizeLinear", "MatMul"])

    def test_short(self):
        """So few rows that blocks would be mostly padding: the ops are not fused."""
        rng = np.random.default_rng(SEED + 2)
        for k, ops in ((1, 2), (15, 2), (17, 1), (33, 1)):
            with self.subTest(k):
                product = Product(rng, "i8", k, 80000 // k)
                self.check_product(product, rng.standard_normal((3, k)), k,
                                   ["DequantizeLinear", "MatMul"] if ops == 2
                                   else ["linear_nbits"])

    def test_bad_shapes(self):
        """Scales that do not fit are reported by name on every target."""
        product = Product(np.random.default_rng(SEED + 3), "i8", 512, 256, 64, "blocks")
        product.graph.node[0].attribute[1].i = 100
        path = product.write(self.dir)
        np.save(self.dir / "a.npy", np.zeros((1, 512), np.float32))
        for target in ("cpu", "ref"):
            self.check(gqac("run", path, "--input", f"a={self.dir / 'a.npy'}", "-o", self.dir,
                            "--target", target), 3, "DequantizeLinear", "blocks of 100")


if __name__ == "__main__":
    sys.exit(harness.main())
