#!/usr/bin/env python3
"""Merged decoders: one If on use_cache_branch around a decoder with a past and one without.

A sequence uses the branch with a past for every call, also the first: the same bits as the decoder
alone. `two-graph` writes two files, and `gqac run` runs the file as it was exported.
num_logits_to_keep is another input that sequences set.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper

import decoders
import harness
from decoders import Decoder
from harness import Case, write_ids
from test_insert_kv import names, session, strip

TOKENS = 19


def merge(kind):
    """Both decoders of a kind in one model; large weights are outside the branches."""
    whole = Decoder(kind)
    model = whole.model()
    bare = strip(Decoder(kind).model())
    for old, new in zip(model.graph.node, bare.graph.node, strict=True):
        results = [o for o in old.output if o.startswith("present")]
        new.output.extend(results)
    return whole, join(model, bare)


def join(model, bare):
    """Two models of the same inputs and outputs in one."""
    outer = list(model.graph.initializer)
    branches = {}
    for word, m in (("then_branch", model), ("else_branch", bare)):
        nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in m.graph.node]
        for n in nodes:
            for list_ in (n.input, n.output):
                renamed = [f"{word}.{x}" if x in local(m) else x for x in list_]
                del list_[:]
                list_.extend(renamed)
        outputs = [helper.make_tensor_value_info(f"{word}.{o.name}", TensorProto.FLOAT, None)
                   for o in model.graph.output]
        branches[word] = helper.make_graph(nodes, word, [], outputs)
    choose = helper.make_node("Squeeze", ["use_cache_branch"], ["choice"], name="choose")
    top = helper.make_node("If", ["choice"], [o.name for o in model.graph.output], name="both",
                           **branches)
    inputs = [*model.graph.input,
              helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])]
    graph = helper.make_graph([choose, top], "merged", inputs, list(model.graph.output), outer)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=10)


def local(model):
    """The values that the nodes of a model compute."""
    return {o for n in model.graph.node for o in n.output if o}


class Merged(Case):
    """Decoders of two kinds, merged."""

    def setUp(self):
        super().setUp()
        self.path, self.alone = self.dir / "merged.onnx", self.dir / "alone.onnx"
        self.ids = [(i * 37 + i // 7 * 5 + 11) % decoders.VOCABULARY for i in range(TOKENS)]
        self.file = write_ids(self.dir / "ids.txt", self.ids)

    def score(self, path):
        """Logits through a sequence, in two calls."""
        out = self.dir / "l.npy"
        self.good("score", path, "--ids", self.file, "--splits", "8", "--logits", out, "-q")
        return np.load(out)

    def test_sequence(self):
        """The bits of the decoder alone; equiv finds no difference; no node mixes rows."""
        for kind in ("attention", "multi_head"):
            decoder, merged = merge(kind)
            decoder.save(self.alone)
            onnx.save(merged, self.path)
            self.assertEqual(self.score(self.path).tobytes(), self.score(self.alone).tobytes())
            proof = self.good("equiv", self.path, "--ids", self.file, "--splits", "random:3",
                              "--format", "json", "-q").json()
            self.assertEqual(proof["differing"], 0)
            told = self.good("inspect", self.path, "--invariance", "--kv", "--format", "json")
            self.assertEqual(told.json()["mixing"], [])
            self.assertEqual(len(told.json()["kv_pairs"]), 2 * decoders.LAYERS)

    def test_traced(self):
        """Attention is raised in both branches, with its past and the outputs of the branch."""
        traced = onnx.load(harness.ROOT / "test" / "traced" / "gpt2" / "model.onnx")
        onnx.save(join(traced, traced), self.path)
        told = self.good("inspect", self.path, "--ops", "--invariance", "--format", "json").json()
        self.assertEqual((told["raised"]["Attention"], told["not_raised"]), (4, []))
        self.assertEqual(told["mixing"], [])
        self.good("compile", self.path, "--stateless", "--stop-after", "raise", "--emit", "text",
                  "-o", self.dir / "m.gq")
        self.assertEqual((self.dir / "m.gq").read_text().count(" = Attention "), 4)

    def test_artefact(self):
        """In an artefact for sequences the branch is already chosen."""
        onnx.save(merge("attention")[1], self.path)
        self.good("compile", self.path, "-o", self.dir / "m.gqac")
        self.assertEqual(self.score(self.path).tobytes(), self.score(self.dir / "m.gqac").tobytes())

    def test_as_exported(self):
        """`run` takes the input, and both branches match ONNX Runtime's."""
        decoder, merged = merge("attention")
        onnx.save(merged, self.path)
        feeds = decoder.empty(self.ids)
        folder = self.dir / "in"
        folder.mkdir()
        for use in (True, False):
            feeds["use_cache_branch"] = np.array([use])
            for name, value in feeds.items():
                np.save(folder / f"{name}.npy", value)
            self.good("run", self.path, "--inputs", folder, "--output", self.dir / "o", "-q")
            expected = session(self.path).run(None, feeds)
            for output, want in zip(names(merged.graph.output), expected, strict=True):
                self.close(np.load(self.dir / "o" / f"{output}.npy"), want, 2e-5, output)

    def test_two_graph(self):
        """Each file is one of the two graphs."""
        onnx.save(merge("attention")[1], self.path)
        self.good("rewrite", self.path, "--pass", "two-graph", "-o", self.dir / "o.onnx")
        for part in ("prefill", "decode"):
            graph = onnx.load(self.dir / f"o.{part}.onnx").graph
            self.assertNotIn("If", {n.op_type for n in graph.node})
            self.assertNotIn("use_cache_branch", names(graph.input))
        got = session(self.dir / "o.prefill.onnx").run(None, {"input_ids": np.array([self.ids])})
        self.close(got[0][0, 0], self.score(self.path)[-1], 2e-5)

    def test_num_logits_to_keep(self):
        """An input that a sequence does not have: the logits of every row."""
        decoder = Decoder("attention")
        decoder.save(self.alone)
        expected = self.score(self.alone)
        decoder.inputs.append(decoder.info("num_logits_to_keep", TensorProto.INT64, []))
        decoder.nodes[-1].output[0] = "all"
        decoder.node("Neg", "num_logits_to_keep", out=["minus"])
        decoder.node("Unsqueeze", "minus", "zero", out=["first"])
        decoder.node("Slice", "all", "first", decoder.constant("end", np.array([2**62])), "one",
                     out=["logits"])
        decoder.save(self.path)
        self.assertEqual(self.score(self.path).tobytes(), expected.tobytes())


if __name__ == "__main__":
    sys.exit(harness.main())
