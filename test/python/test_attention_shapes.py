#!/usr/bin/env python3
"""Masks and biases of attention whose dimensions are symbols: shapes that do not fit are errors at
run time.

Every dimension is a symbol in the file, so that nothing can be refused before the tensors are
known. Shapes that fit must run; others must end with exit 4 and the node's name, never with a
result or a crash. Past and present are optional outputs.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper

import harness
from harness import Case, gqac

HEADS, SIZE, ROWS, KEYS, PAST = 2, 4, 3, 5, 2
WIDTH = HEADS * SIZE
MS = "com.microsoft"
TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int32): TensorProto.INT32,
         np.dtype(np.bool_): TensorProto.BOOL, np.dtype(np.int64): TensorProto.INT64}


def ones(*shape, dtype=np.float32):
    """Ones."""
    return np.ones(shape, dtype)


QKV = {"q": ones(1, ROWS, WIDTH), "k": ones(1, KEYS, WIDTH), "v": ones(1, KEYS, WIDTH)}
GROUPED = {"q": ones(2, ROWS, WIDTH), "k": ones(2, ROWS, WIDTH), "v": ones(2, ROWS, WIDTH),
           "pk": ones(2, HEADS, PAST, SIZE), "pv": ones(2, HEADS, PAST, SIZE),
           "len": np.full(2, PAST + ROWS - 1, np.int32), "tot": np.array(PAST + ROWS, np.int32)}


def node(op, inputs, outputs="y", domain="", **attributes):
    """A node called "it"; words for inputs, "_" for a missing one."""
    return helper.make_node(op, [n.replace("_", "") for n in inputs.split()], outputs.split(),
                            domain=domain, name="it", **attributes)


def multi_head(inputs, outputs="y"):
    """MultiHeadAttention."""
    return node("MultiHeadAttention", inputs, outputs, MS, num_heads=HEADS)


def standard(inputs, outputs="y", **attributes):
    """Attention of the ONNX standard."""
    return node("Attention", inputs, outputs, q_num_heads=HEADS, kv_num_heads=HEADS, **attributes)


def grouped(inputs, outputs="y"):
    """GroupQueryAttention."""
    return node("GroupQueryAttention", inputs, outputs, MS, num_heads=HEADS, kv_num_heads=HEADS)


# name: (node, feeds, name of the input that varies, shapes that fit, shapes that do not)
TABLE = {
    "bias of MultiHeadAttention": (
        multi_head("q k v _ _ b"), QKV, "b",
        [(1, 1, 3, 5), (1, 2, 3, 5), (1, 2, 1, 5)],
        [(1, 1, 3, 6), (1, 1, 3, 4), (1, 1, 3, 1), (1, 1, 2, 5), (1, 3, 3, 5), (2, 1, 3, 5)]),
    "bias beside a padding mask": (
        multi_head("q k v _ p b"), {**QKV, "p": ones(1, KEYS, dtype=np.int32)}, "b",
        [(1, 1, 3, 5), (1, 2, 1, 5)], [(1, 1, 3, 6), (1, 1, 3, 4), (1, 3, 3, 5)]),
    "projection bias of MultiHeadAttention": (
        multi_head("q k v b"), QKV, "b", [(24,)], [(23,), (16,), (25,), (0,)]),
    "padding mask of MultiHeadAttention": (
        multi_head("q k v _ p"), QKV, "p", [(1, 5), (1, 1), (1, 3, 5), (1,)],
        [(1, 6), (1, 4), (2, 5), (1, 3, 4), (4,)]),
    "bias of com.microsoft.Attention": (
        node("Attention", "x w b", domain=MS, num_heads=HEADS),
        {"x": ones(1, 3, 5), "w": ones(5, 24)}, "b", [(24,)], [(23,), (8,)]),
    "mask of Attention": (
        standard("q k v b"), QKV, "b",
        [(3, 5), (1, 3, 5), (1, 1, 3, 5), (1, 2, 1, 5), (1, 1, 3, 4)],
        [(1, 1, 3, 6), (1, 1, 2, 5), (1, 3, 3, 5), (2, 1, 3, 5), (2, 5)]),
    "past of Attention": (
        standard("q k v _ pk pv", is_causal=1), {**QKV, "pv": ones(1, HEADS, PAST, SIZE)}, "pk",
        [(1, HEADS, PAST, SIZE)],
        [(1, HEADS, PAST, 3), (1, 1, PAST, SIZE), (2, HEADS, PAST, SIZE), (1, HEADS, 3, SIZE)]),
    "bias of GroupQueryAttention": (
        grouped("q k v pk pv len tot _ _ _ b", "y nk nv"), GROUPED, "b",
        [(1, 1, 3, 5), (2, HEADS, 3, 5)],
        [(1, 1, 3, 4), (1, 1, 2, 5), (1, 1, 1, 5), (3, 1, 3, 5), (1, 3, 3, 5)]),
    "keys of GroupQueryAttention": (
        grouped("q k v pk pv len tot", "y nk nv"), GROUPED, "k", [(2, ROWS, WIDTH)],
        [(2, 33, WIDTH), (2, 4, WIDTH), (2, 2, WIDTH), (1, ROWS, WIDTH)]),
    "values of GroupQueryAttention": (
        grouped("q k v pk pv len tot", "y nk nv"), GROUPED, "v", [(2, ROWS, WIDTH)],
        [(2, 33, WIDTH), (2, 4, WIDTH), (2, 2, WIDTH), (1, ROWS, WIDTH)]),
}
# Pasts with only some of the presents: (node, feeds)
OPTIONAL = {
    "Attention": (standard("q k v _ pk pv", "y", is_causal=1),
                  {**QKV, "pk": GROUPED["pk"][:1], "pv": GROUPED["pv"][:1]}),
    "Attention, keys": (standard("q k v _ pk pv", "y nk", is_causal=1),
                        {**QKV, "pk": GROUPED["pk"][:1], "pv": GROUPED["pv"][:1]}),
    "MultiHeadAttention": (multi_head("q k v _ _ _ pk pv"),
                           {**QKV, "pk": GROUPED["pk"][:1], "pv": GROUPED["pv"][:1]}),
    "com.microsoft.Attention": (
        node("Attention", "x w b _ p", "y", MS, num_heads=HEADS, unidirectional=1),
        {"x": ones(1, 3, 5), "w": ones(5, 24), "b": ones(24),
         "p": ones(2, 1, HEADS, PAST, SIZE)}),
}


class Shapes(Case):
    """One node a model."""

    def run_node(self, made, feeds, target="cpu", widths=True):
        """The finished run of a model whose dimensions are symbols, except `widths`."""
        folder = self.dir / "in"
        folder.mkdir(exist_ok=True)
        for old in folder.glob("*.npy"):
            old.unlink()
        inputs = []
        for name, value in feeds.items():
            np.save(folder / f"{name}.npy", value)
            keep = {"w": (0, 1), "q": (2,), "k": (2,), "v": (2,)}.get(name, ()) if widths else ()
            shape = [d if i in keep else f"{name}{i}" for i, d in enumerate(value.shape)]
            inputs.append(helper.make_tensor_value_info(name, TYPES[value.dtype], shape))
        outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in made.output]
        graph = helper.make_graph([made], "g", inputs, outputs)
        opsets = [helper.make_opsetid("", 24), helper.make_opsetid(MS, 1)]
        path = self.dir / "m.onnx"
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
        return gqac("run", path, "--inputs", folder, "--output", self.dir / "out", "-q",
                    "--target", target)

    def table(self, label):
        """All shapes of one row."""
        made, feeds, name, good, bad = TABLE[label]
        dtype = np.int32 if name == "p" else np.float32
        for shape in good:
            self.check(self.run_node(made, {**feeds, name: ones(*shape, dtype=dtype)}), 0)
        for shape in bad:
            result = self.run_node(made, {**feeds, name: ones(*shape, dtype=dtype)})
            self.check(result, 4, "node 'it'")

    def test_unknown_heads(self):
        """The head size, and in four dimensions the number of heads, may be known only in a call.
        The scale that follows from the size is then that of the call."""
        rng = np.random.default_rng(0)
        some = {n: rng.standard_normal(v.shape).astype(np.float32) if v.dtype == np.float32 else v
                for n, v in GROUPED.items()}
        flat = {n: some[n] for n in "qkv"}
        four = {n: x.reshape(2, ROWS, HEADS, SIZE).transpose(0, 2, 1, 3) for n, x in flat.items()}
        for made, feeds in ((standard("q k v", is_causal=1), flat), (multi_head("q k v"), flat),
                            (grouped("q k v pk pv len tot", "y nk nv"), some)):
            for target in ("cpu", "ref"):
                self.check(self.run_node(made, feeds, target), 0)
                expected = np.load(self.dir / "out" / "y.npy")
                self.check(self.run_node(made, feeds, target, widths=False), 0)
                self.close(np.load(self.dir / "out" / "y.npy"), expected, 1e-6, made.op_type)
        self.check(self.run_node(standard("q k v"), flat), 0)
        expected = np.load(self.dir / "out" / "y.npy")
        self.check(self.run_node(node("Attention", "q k v"), four, widths=False), 0)
        y = np.load(self.dir / "out" / "y.npy").transpose(0, 2, 1, 3).reshape(expected.shape)
        self.close(y, expected, 1e-6, "four dimensions")

    def test_words(self):
        """The error for shapes that do not fit contains both shapes."""
        for label in ("mask of Attention", "bias of MultiHeadAttention"):
            made, feeds, name, _, _ = TABLE[label]
            for target in ("cpu", "ref"):
                result = self.run_node(made, {**feeds, name: ones(2, 1, 3, 5)}, target)
                self.check(result, 4, "[2,1,3,5] does not fit scores [1,2,3,5]", "is 1", "batch")

    def test_optional_presents(self):
        """Presents that are not outputs in the file are not computed; the result is the same."""
        for label, (made, feeds) in OPTIONAL.items():
            with self.subTest(label):
                self.check(self.run_node(made, feeds), 0)
                few = np.load(self.dir / "out" / "y.npy")
                full = onnx.NodeProto.FromString(made.SerializeToString())
                packed = label == "com.microsoft.Attention"
                full.output[:] = ["y", "np"] if packed else ["y", "nk", "nv"]
                self.check(self.run_node(full, feeds), 0)
                self.assertEqual(few.tobytes(), np.load(self.dir / "out" / "y.npy").tobytes())


def add_tests():
    """One method for each row of the table."""
    for number, label in enumerate(TABLE):
        def test(self, label=label):
            self.table(label)
        test.__doc__ = label
        setattr(Shapes, f"test_{number}", test)


add_tests()

if __name__ == "__main__":
    sys.exit(harness.main())
