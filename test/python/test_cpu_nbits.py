#!/usr/bin/env python3
"""MatMulNBits on the cpu target: packed weights, the bits of ref.

    python test/python/test_cpu_nbits.py

ref runs the definition (src/ops/matmul_nbits.c), which test_matmul_nbits.py compares with an
emulation. Here cpu must return the same bytes at every level of this machine, for any number of
rows and threads, and must have packed the node, which --dump pack shows.
"""

import itertools
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import harness
from harness import MODELS, Case, gqac

LEVELS = ("scalar", "avx2", "avx512", "avx512vnni", "avx512bf16")
SEED = 7731


class Node:
    """One MatMulNBits with random constants."""

    def __init__(self, rng, k, n, bits=4, block=32, zero=None, bias=False, half=False, level=4):
        self.k, self.n, self.bits, self.block, self.level = k, n, bits, block, level
        self.blocks = -(-k // block)
        self.type = np.float16 if half else np.float32
        self.held = {
            "b": rng.integers(0, 256, (n, self.blocks, block * bits // 8)).astype(np.uint8),
            "s": (rng.standard_normal((n, self.blocks)) * 0.1).astype(self.type)}
        if zero == "packed":
            size = (n, -(-self.blocks * bits // 8))
            self.held["z"] = rng.integers(0, 256, size).astype(np.uint8)
        elif zero == "float":
            self.held["z"] = (rng.random((n, self.blocks)) * (1 << bits)).astype(self.type)
        if bias:
            self.held["bias"] = rng.standard_normal(n).astype(self.type)

    def rows(self, rng, m):
        """Values of x: ordinary, large and tiny ones, zeros, a block of zeros."""
        a = rng.standard_normal((m, self.k))
        a *= 10.0 ** rng.integers(-3, 3, (m, 1))
        a[rng.random((m, self.k)) < 0.05] = 0
        a[m // 2, :self.block] = 0
        return a.astype(self.type)

    def write(self, folder):
        """The .onnx file."""
        names = ["a", "b", "s", "z" if "z" in self.held else "", "",
                 "bias" if "bias" in self.held else ""]
        while not names[-1]:
            names.pop()
        node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", K=self.k,
                                N=self.n, bits=self.bits, block_size=self.block,
                                accuracy_level=self.level)
        kind = TensorProto.FLOAT16 if self.type == np.float16 else TensorProto.FLOAT
        graph = helper.make_graph(
            [node], "g", [helper.make_tensor_value_info("a", kind, ["M", self.k])],
            [helper.make_tensor_value_info("y", kind, ["M", self.n])],
            [numpy_helper.from_array(v, k) for k, v in self.held.items()])
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17),
                                                       helper.make_opsetid("com.microsoft", 1)])
        made.ir_version = 10
        (folder / "model.onnx").write_bytes(made.SerializeToString())
        return folder / "model.onnx"


class CpuNbits(Case):
    """cpu compared with ref, byte by byte."""

    def y(self, path, a, *flags, level=None):
        """The result of gqac for rows `a`."""
        np.save(self.dir / "a.npy", a)
        self.good("run", path, "--input", f"a={self.dir / 'a.npy'}", "-o", self.dir, *flags,
                  env={"GQAC_CPU": level} if level else None)
        return np.load(self.dir / "y.npy")

    def same(self, node, a, label, threads=1, level=None):
        """The bytes of ref. If `a` has no NaN, neither has y, so equality is meaningful."""
        path = node.write(self.dir)
        want = self.y(path, a, "--target", "ref")
        got = self.y(path, a, "--target", "cpu", "--threads", str(threads), level=level)
        self.assertEqual(got.tobytes(), want.tobytes(),
                         f"{label}: {np.count_nonzero(got != want)} of {got.size} differ")
        return got

    def levels(self):
        """The levels of this machine."""
        node = Node(np.random.default_rng(1), 32, 16)
        path = node.write(self.dir)
        np.save(self.dir / "a.npy", np.zeros((1, 32), np.float32))
        codes = {name: gqac("run", path, "--input", f"a={self.dir / 'a.npy'}", "-o", self.dir,
                            "--target", "cpu", env={"GQAC_CPU": name}).code for name in LEVELS}
        self.assertLessEqual(set(codes.values()), {0, 77}, codes)
        return [name for name, code in codes.items() if code == 0]

    def test_forms(self):
        """Bits, blocks, zero points, both levels; ragged K and N; a changing number of rows."""
        rng = np.random.default_rng(SEED)
        forms = itertools.product((4, 2, 8), (16, 32, 64, 128, 256), (None, "packed", "float"),
                                  (0, 4))
        for i, (bits, block, zero, level) in enumerate(forms):
            k, n, m = (96, 520, 1100, 1024)[i % 4], (70, 64, 17, 130)[i % 3], i % 9 + 1
            node = Node(rng, k, n, bits, block, zero, bias=i % 2 == 1, half=i % 5 == 0,
                        level=level)
            label = f"bits {bits} block {block} zero {zero} level {level} k {k} n {n} rows {m}"
            with self.subTest(label):
                self.same(node, node.rows(rng, m), label, threads=i % 3 + 1)

    def test_rows(self):
        """1 to 40 rows, and more than one unit of work; each row has the bits that it has alone."""
        rng = np.random.default_rng(SEED + 1)
        for level in (0, 4):
            node = Node(rng, 1056, 100, zero="packed", bias=True, level=level)
            a = node.rows(rng, 300)
            whole = self.same(node, a, f"level {level}", threads=2)
            path = node.write(self.dir)
            for m in range(1, 41):
                y = self.y(path, a[:m], "--target", "cpu", "--threads", str(m % 3 + 1))
                self.assertEqual(y.tobytes(), whole[:m].tobytes(), f"level {level} rows {m}")

    def test_levels(self):
        """Every instruction set of this machine."""
        rng = np.random.default_rng(SEED + 2)
        for name in self.levels():
            for bits, level in itertools.product((2, 4, 8), (0, 4)):
                node = Node(rng, 600, 75, bits, zero="packed", level=level)
                self.same(node, node.rows(rng, 7), f"{name} bits {bits} level {level}", level=name)

    def test_threads(self):
        """1, 2, 3 and 5."""
        rng = np.random.default_rng(SEED + 3)
        for level in (0, 4):
            node = Node(rng, 512, 700, level=level)
            a = node.rows(rng, 200)
            for threads in (1, 2, 3, 5):
                self.same(node, a, f"level {level} threads {threads}", threads)

    def test_values(self):
        """NaN, infinities, subnormals, the largest numbers, negative zeros."""
        rng = np.random.default_rng(SEED + 4)
        for level, bits in itertools.product((0, 4), (2, 4, 8)):
            node = Node(rng, 544, 80, bits, bias=True, level=level)
            a = node.rows(rng, 8)
            a[0, 3], a[1, 40], a[2, 535] = np.nan, np.inf, -np.inf
            a[3, :64] = 1e-42
            a[4] *= np.float32(1e-41)
            a[5, 7] = 3e38
            a[6] = -0.0
            a[7] = np.arange(544) % 9 - 4.5
            y = self.same(node, a, f"level {level} bits {bits}")
            self.assertTrue(np.isnan(y[:1]).all() and np.isfinite(y[3:5]).all())
            node.held["s"][:3] = np.float32([[np.nan], [np.inf], [1e-40]])  # in three columns
            self.same(node, a, f"scales, level {level} bits {bits}")

    def test_taken(self):
        """Forms that are packed and forms that are not: no kernel supports blocks of 1024."""
        rng = np.random.default_rng(SEED + 5)
        for block, packed in ((32, True), (512, True), (1024, False)):
            node = Node(rng, 2048, 64, block=block)
            result = self.good("compile", node.write(self.dir), "--target", "cpu", "--dump", "pack",
                               "--stop-after", "pack")
            self.assertEqual("linear_nbits" in result.out, packed, block)
            self.assertEqual("MatMulNBits" in result.out, not packed, block)
            self.same(node, node.rows(rng, 3), f"block {block}")

    def test_exact(self):
        """--math exact computes level 4 in fp32."""
        rng = np.random.default_rng(SEED + 6)
        node = Node(rng, 300, 90)
        a, path = node.rows(rng, 4), node.write(self.dir)
        exact = self.y(path, a, "--target", "cpu", "--math", "exact")
        self.assertEqual(exact.tobytes(),
                         self.y(path, a, "--target", "ref", "--math", "exact").tobytes())
        self.assertNotEqual(exact.tobytes(), self.y(path, a, "--target", "cpu").tobytes())

    def test_models(self):
        """The exported int4 models, and an artefact, which contains the packed weights."""
        for name in ("llama-int4-acc1", "llama-int4-acc4"):
            logits, packed = {}, self.dir / f"{name}.gqac"
            path, ids = harness.model(name), MODELS / name / "ref" / "ids.txt"
            result = self.good("compile", path, "--target", "cpu", "-o", packed, "--dump", "pack")
            self.assertIn("linear_nbits", result.out)
            self.assertNotIn("MatMulNBits", result.out)
            for what, model, target in (("ref", path, "ref"), ("cpu", path, "cpu"),
                                        ("artefact", packed, "cpu")):
                self.good("score", model, "--ids", ids, "--target", target, "--logits",
                          self.dir / f"{what}.npy")
                logits[what] = np.load(self.dir / f"{what}.npy")
            self.close(logits["cpu"], logits["ref"], harness.TOLERANCE[name], name)
            self.assertEqual(logits["artefact"].tobytes(), logits["cpu"].tobytes(), name)


if __name__ == "__main__":
    sys.exit(harness.main())
