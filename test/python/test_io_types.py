#!/usr/bin/env python3
"""Inputs and outputs whose types differ from those of the graph's arithmetic: the bits must be the
same.

Conversion to f16 with keep_io_types leaves pasts and presents in f32, with a Cast at each end; most
published f16 models have that form. Other files have i32 ids and positions, or masks of floats.
"""

import shutil
import sys
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper

import harness
from harness import MODELS, ROOT, Case, gqac, write_ids

try:
    from onnxruntime.transformers.float16 import convert_float_to_float16
except ImportError:
    convert_float_to_float16 = None

# Reason of the skip: the converter comes with onnxruntime; ./dev deps installs it, other machines
# may lack it.
needs_converter = unittest.skipUnless(convert_float_to_float16, "onnxruntime is not installed")

TRACED = ROOT / "test" / "traced"
# GroupQueryAttention; attention in simple ops; buffers that TensorScatter writes; states of
# convolutions together with caches
PATHS = [MODELS / "llama", TRACED / "llama", TRACED / "gpt2", TRACED / "mobius-static", MODELS / "lfm2"]
TOKENS = 24


def cast_ends(model, kind):
    """The f16 model with pasts and presents of another type: a Cast after each and before each."""
    graph = model.graph
    for value in [v for v in [*graph.input, *graph.output] if v.name.startswith(("past", "present"))]:
        value.type.tensor_type.elem_type = kind
        inner, past = value.name + ".f16", value.name.startswith("past")
        for node in graph.node:
            names = node.input if past else node.output
            names[:] = [inner if n == value.name else n for n in names]
        ends = [value.name, inner] if past else [inner, value.name]
        cast = helper.make_node("Cast", ends[:1], ends[1:], name=f"cast_{value.name}",
                                to=TensorProto.FLOAT16 if past else kind)
        graph.node.insert(0 if past else len(graph.node), cast)
    return model


def retyped(path, kinds):
    """The model with other types of inputs, each followed by a Cast to the old type."""
    model = onnx.load(path)
    graph = model.graph
    for value in [v for v in graph.input if v.name in kinds]:
        tensor, inner = value.type.tensor_type, value.name + ".inner"
        for node in graph.node:
            node.input[:] = [inner if n == value.name else n for n in node.input]
        graph.node.insert(0, helper.make_node("Cast", [value.name], [inner], name=f"cast_{value.name}",
                                              to=tensor.elem_type))
        tensor.elem_type = kinds[value.name]
    return model


def insert(graph, node, place, op, **attributes):
    """Puts an op of one operand before this operand of a node."""
    made = f"{node.name}.{place}.{op}"
    at = next(i for i, n in enumerate(graph.node) if n is node)
    graph.node.insert(at, helper.make_node(op, [node.input[place]], [made], name=made, **attributes))
    node.input[place] = made


def scores_in_f32(model, query_op):
    """The f16 gptj as torch exports a model in f16: queries and keys are cast to f32 before their
    product, and the probabilities to f16. query_op is one more op on queries in f32, or None."""
    graph = model.graph
    users = {i: n for n in graph.node for i in n.input}
    for softmax in [n for n in graph.node if n.op_type == "Softmax"]:
        makers = {o: n for n in graph.node for o in n.output}
        add = makers[softmax.input[0]]
        div = makers[add.input[0]]
        product = makers[div.input[0]]
        back = users[softmax.output[0]]
        assert [n.op_type for n in (add, div, product, back)] == ["Add", "Div", "MatMul", "Cast"]
        cast = makers[product.input[0]]
        assert cast.op_type == "Cast"
        cast.attribute[0].i = TensorProto.FLOAT
        if query_op:
            insert(graph, product, 0, query_op)
        for node, place in ((makers[product.input[1]], 0), (div, 1), (add, 1)):
            insert(graph, node, place, "Cast", to=TensorProto.FLOAT)
    return model


class Types(Case):
    """The same bits with Casts and without."""

    def setUp(self):
        super().setUp()
        self.ids = write_ids(self.dir / "ids.txt", [(i * 37 + i // 7 * 5) % 251 for i in range(TOKENS)])

    def logits(self, path, *flags):
        """The logits of all tokens."""
        out = self.dir / "logits.npy"
        self.good("score", path, "--ids", self.ids, "--logits", out, "-q", *flags)
        return np.load(out)

    def equal(self, plain, cast):
        """Logits of both files, in one call and in several."""
        expected = self.logits(plain)
        self.assertGreater(np.abs(expected).max(), 0.1)
        for flags in ([], ["--splits", "5,9"]):
            self.assertTrue(np.array_equal(self.logits(cast, *flags), expected), f"{cast} {flags}")
        proof = self.good("equiv", cast, "--ids", self.ids, "--splits", "random:2", "--batch", 3,
                          "--format", "json", "-q").json()
        self.assertEqual(proof["differing"], 0)

    @needs_converter
    def test_converted(self):
        """Converted with f32 inputs and outputs, and with f16 ones."""
        for source in PATHS:
            plain, cast = (self.dir / f"{source.name}.{n}.onnx" for n in ("plain", "cast"))
            for path, keep in ((plain, False), (cast, True)):
                model = onnx.load(source / "model.onnx")
                onnx.save(convert_float_to_float16(model, keep_io_types=keep), path)
            with self.subTest(source.name):
                self.equal(plain, cast)

    @needs_converter
    def test_blocked(self):
        """Conversion may keep ops in f32, with Casts around each; attention is raised
        nevertheless."""
        source = TRACED / "llama" / "model.onnx"
        exact = self.logits(source)
        for blocked in (["Softmax"], ["Where"], ["Softmax", "Where"]):
            path = self.dir / "blocked.onnx"
            onnx.save(convert_float_to_float16(onnx.load(source), op_block_list=blocked), path)
            with self.subTest(blocked=blocked):
                self.close(self.logits(path).astype(np.float32), exact, 2e-2, str(blocked))
                self.equal(path, path)
                report = self.good("inspect", path, "--ops", "--format", "json").json()
                self.assertEqual(report["raised"]["Attention"], 2)

    @needs_converter
    def test_scores_in_f32(self):
        """Queries and keys in f16 whose product is in f32, with a mask of f16: attention in f16 has
        the same bits. Queries that are computed in f32 are refused."""
        plain, wide = self.dir / "plain.onnx", self.dir / "wide.onnx"
        half = convert_float_to_float16(onnx.load(TRACED / "gptj" / "model.onnx"))
        onnx.save(half, plain)
        onnx.save(scores_in_f32(onnx.load(plain), None), wide)
        self.equal(plain, wide)
        onnx.save(scores_in_f32(onnx.load(plain), "Tanh"), wide)
        self.check(gqac("score", wide, "--ids", self.ids), 3, "is not read by an attention op")

    def test_stateless(self):
        """The artefact keeps the types of the file's inputs and outputs."""
        cast, artefact = self.dir / "cast.onnx", self.dir / "cast.gqac"
        onnx.save(cast_ends(onnx.load(MODELS / "llama-fp16" / "model.onnx"), TensorProto.FLOAT), cast)
        self.equal(MODELS / "llama-fp16" / "model.onnx", cast)
        self.good("compile", cast, "-o", artefact, "-q")
        for path in (cast, artefact):
            told = self.good("inspect", path, "--io", "--format", "json").json()
            kinds = {v["name"]: v["dtype"] for v in told["inputs"] + told["outputs"]}
            self.assertEqual(kinds["past_key_values.0.key"], "f32")
            self.assertEqual(kinds["present.1.value"], "f32")

    def test_narrow(self):
        """A past whose type is narrower than its cache would lose bits of each row, so it is
        refused."""
        model = cast_ends(onnx.load(MODELS / "llama" / "model.onnx"), TensorProto.FLOAT16)
        for node in model.graph.node:
            if node.name.startswith("cast_past"):
                node.attribute[0].i = TensorProto.FLOAT
        onnx.save(model, self.dir / "narrow.onnx")
        result = gqac("score", self.dir / "narrow.onnx", "--ids", self.ids)
        self.check(result, 3, "'past_key_values.0.key' is of type f16, but attention reads it as f32")

    def test_inputs(self):
        """i32 ids and positions; masks of i32, bool, floats and bytes, in sequences and in a padded
        batch."""
        mask, ids = "attention_mask", ("input_ids", "position_ids")
        kinds = [dict.fromkeys((mask, *ids), TensorProto.INT32)]
        kinds += [{mask: k} for k in (TensorProto.BOOL, TensorProto.FLOAT, TensorProto.FLOAT16,
                                      TensorProto.UINT8)]
        source, path, folder = TRACED / "llama", self.dir / "typed.onnx", self.dir / "in"
        shutil.copytree(source / "ref" / "batch" / "inputs", folder)
        run = ("--inputs", folder, "-q", "-o")
        self.good("run", source / "model.onnx", *run, self.dir / "expected")
        expected = self.logits(source / "model.onnx")
        batch = (self.dir / "expected" / "logits.npy").read_bytes()
        for kind in kinds:
            onnx.save(retyped(source / "model.onnx", kind), path)
            self.assertTrue(np.array_equal(self.logits(path), expected), str(kind))
            for name, dtype in kind.items():
                value = np.load(source / "ref" / "batch" / "inputs" / f"{name}.npy")
                np.save(folder / f"{name}.npy", value.astype(helper.tensor_dtype_to_np_dtype(dtype)))
            self.good("run", path, *run, self.dir / "out")
            self.assertEqual((self.dir / "out" / "logits.npy").read_bytes(), batch, str(kind))
            shutil.copy(source / "ref" / "batch" / "inputs" / "attention_mask.npy", folder)
            for name in ids:
                shutil.copy(source / "ref" / "batch" / "inputs" / f"{name}.npy", folder)


if __name__ == "__main__":
    sys.exit(harness.main())
