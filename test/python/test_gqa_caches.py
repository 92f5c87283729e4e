#!/usr/bin/env python3
"""Whole models with quantised and with window-sized caches, made from the test models.

    python test/python/test_gqa_caches.py

In sequences splits change no bit; a chain of stateless calls on window-sized caches, whose rows
move, computes exactly the logits of a sequence, which keeps all rows.
"""

import sys
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import harness
import ortref
from harness import FULL, Case, gqac, model, write_ids

TOKENS = 160 if FULL else 80


class Variant:
    """A test model whose GroupQueryAttention nodes have other caches."""

    def __init__(self, name, bits=0, kind="NONE", window=0, capacity=0):
        self.name, self.window, self.capacity = name, window, capacity
        self.model = onnx.load(model(name))
        self.nodes = ortref.gqa_nodes(self.model)
        self.size = ortref.head_size(self.model)
        self.kv_heads = ortref.attribute(self.nodes[0], "kv_num_heads")
        self.width = (self.size + 1) // 2 if bits == 4 else self.size
        rng = np.random.default_rng(7)
        for node in self.nodes:
            if bits:
                self.quantise(node, bits, kind, rng)
            if window:
                self.shrink(node)
        self.values = {v.name: v for v in [*self.model.graph.input, *self.model.graph.output]}
        for node in self.nodes:
            for cached in (*node.input[3:5], *node.output[1:3]):
                self.retype(self.values[cached], bits)

    def quantise(self, node, bits, kind, rng):
        """Adds scales and attributes."""
        count = 1 if kind == "PER_TENSOR" else self.kv_heads * self.size
        names = [f"{node.name}.{x}_scale" for x in "kv"]
        for name in names:
            scale = rng.uniform(0.5, 1.5, count) * 8 / 2 ** (bits - 1)
            self.model.graph.initializer.append(
                numpy_helper.from_array(scale.astype(np.float32), name))
        while len(node.input) < 12:
            node.input.append("")
        node.input.extend(names)
        for name, value in (("k_quant_type", kind), ("v_quant_type", kind),
                            ("kv_cache_bit_width", bits)):
            node.attribute.append(helper.make_attribute(name, value))

    def shrink(self, node):
        """A cache of the size of the window."""
        for old in [a for a in node.attribute if a.name == "local_window_size"]:
            node.attribute.remove(old)
        node.attribute.append(helper.make_attribute("local_window_size", self.window))
        node.attribute.append(helper.make_attribute("sliding_window_cache", 1))

    def retype(self, value, bits):
        """Changes the type of a past or present tensor."""
        tensor = value.type.tensor_type
        if bits:
            tensor.elem_type = TensorProto.INT8 if bits == 8 else TensorProto.UINT8
            tensor.shape.dim[3].dim_value = self.width
        if self.capacity:
            tensor.shape.dim[2].dim_value = self.capacity

    def save(self, folder):
        """The model in a folder with the weights of the original."""
        for data in model(self.name).parent.glob("*.data"):
            (folder / data.name).symlink_to(data)
        onnx.save(self.model, folder / "model.onnx")
        return folder / "model.onnx"

    def empty_past(self):
        """Past tensors of one batch row: filled with codes that mean nothing, or without rows."""
        out = {}
        for node in self.nodes:
            for name in node.input[3:5]:
                kind = helper.tensor_dtype_to_np_dtype(
                    self.values[name].type.tensor_type.elem_type)
                shape = (1, self.kv_heads, self.capacity, self.width)
                out[name] = np.full(shape, 99, kind)
        return out


QUANTISED = [("llama", 8, "PER_TENSOR"), ("llama", 4, "PER_CHANNEL"), ("qwen3", 4, "PER_TENSOR"),
             ("llama-fp16", 8, "PER_CHANNEL"), ("gemma2", 8, "PER_CHANNEL")]
WINDOWS = [Variant("llama", window=9, capacity=13), Variant("llama-fp16", window=33, capacity=33),
           Variant("llama", 4, "PER_CHANNEL", window=9, capacity=20),
           Variant("mistral", 8, "PER_TENSOR", window=5, capacity=70)]


class Caches(Case):
    """Models with other caches."""

    def equal(self, path, *flags):
        """equiv finds no difference."""
        found = self.good("equiv", path, "--format", "json", "-q", *flags).json()
        self.assertEqual(found["differing"], 0)
        self.assertGreater(found["compared"], 0)
        self.assertEqual(found["mixing"], [])

    def test_equiv(self):
        """Splits, batches and threads change no bit of logits and codes."""
        for name, bits, kind in QUANTISED:
            with self.subTest(f"{name} {bits} {kind}"):
                self.setUp()
                variant = Variant(name, bits, kind)
                path = variant.save(self.dir)
                pairs = self.good("inspect", path, "--format", "json").json()["kv_pairs"]
                self.assertEqual({(p["dtype"], p["head_size"]) for p in pairs},
                                 {("i8" if bits == 8 else "u8", variant.width)})
                self.equal(path, "--tokens", TOKENS, "--splits", "random:5", "--batch", 3,
                           "--threads", "2")
                for via in ("import", "prefix", "snapshot"):
                    self.equal(path, "--tokens", 70, "--splits", "64", "--via", via)

    def test_quantised_differs(self):
        """Codes differ from the values: a quantised model has other logits, but close ones."""
        ids = write_ids(self.dir / "ids", range(40))
        logits = []
        for variant in (Variant("llama"), Variant("llama", 8, "PER_CHANNEL")):
            folder = self.dir / str(len(logits))
            folder.mkdir()
            self.good("score", variant.save(folder), "--ids", ids, "--logits", folder / "l.npy")
            logits.append(np.load(folder / "l.npy"))
        error = harness.relative(logits[1], logits[0])
        self.assertGreater(error, 1e-4)
        self.assertLess(error, 0.5)

    def chain(self, path, variant, ids, chunks):
        """Logits of stateless calls, with each present used as the next past."""
        past, rows, at = variant.empty_past(), [], 0
        folder = self.dir / "io"
        for n in chunks:
            (folder / "in").mkdir(parents=True, exist_ok=True)
            feeds = {"input_ids": ids[None, at:at + n],
                     "attention_mask": np.ones((1, at + n), np.int64),
                     "position_ids": np.arange(at, at + n)[None], **past}
            for name, value in feeds.items():
                if name in variant.values:
                    np.save(folder / "in" / f"{name}.npy", value)
            self.good("run", path, "--inputs", folder / "in", "--output", folder / "out", "-q")
            rows.append(np.load(folder / "out" / "logits.npy")[0].astype(np.float32))
            past = {name: np.load(folder / "out" / f"{ortref.present_name(name)}.npy")
                    for name in past}
            at += n
        return np.concatenate(rows)

    def test_window_caches(self):
        """Rows that move, in chains of calls, have the bits of a sequence that keeps all rows."""
        ids = np.random.default_rng(3).integers(0, 250, 90)
        for variant in WINDOWS:
            with self.subTest(variant.name):
                self.setUp()
                path = variant.save(self.dir)
                self.good("score", path, "--ids", write_ids(self.dir / "ids", ids), "--logits",
                          self.dir / "l.npy")
                expected = np.load(self.dir / "l.npy")
                for chunks in ([90], [40, 1, 1, 1, 30, 17], [1] * 24 + [66]):
                    got = self.chain(path, variant, ids, chunks)
                    self.assertEqual(got.tobytes(), expected.tobytes(), str(chunks))
                self.equal(path, "--tokens", 60, "--splits", "random:4", "--batch", 2)

    def test_refused(self):
        """A cache that is too small for its window, and invalid lengths."""
        variant = Variant("llama", window=9, capacity=8)
        path = variant.save(self.dir)
        feeds = {"input_ids": np.zeros((1, 1), np.int64),
                 "attention_mask": np.ones((1, 5), np.int64), **variant.empty_past()}
        (self.dir / "in").mkdir()
        for name, value in feeds.items():
            np.save(self.dir / "in" / f"{name}.npy", value)
        self.check(gqac("run", path, "--inputs", self.dir / "in"), 4, "sliding_window_cache",
                   "local_window_size is 9")


if __name__ == "__main__":
    sys.exit(harness.main())
