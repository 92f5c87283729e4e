#!/usr/bin/env python3
"""Traced models: parts written in simple ops are raised, and compute the same.

The models of test/traced come from Optimum and torch; ONNX Runtime's results are stored with them.
"""

import logging
import sys
import unittest

import numpy as np
import onnx

import harness
from harness import Case, ROOT, defined, read_ids, rows_of

try:
    import ortref
except ImportError:
    ortref = None

try:
    from onnxruntime.quantization import quantize_dynamic
except ImportError:
    quantize_dynamic = None

LIMIT = 2e-5
LAYERS = 2
MASK = "Attention mask"  # a mask that is not recognised: Attention is raised, with the mask as a
                         # tensor
TRACED = ROOT / "test" / "traced"
ROTARY = {"RMSNormalization": 5, "RotaryEmbedding": 4, "Attention": 2, "Swish": 2}
RAISED = {
    "llama": ROTARY,
    "mistral": ROTARY,
    "gpt2": {"Attention": 2, "Gelu": 2},
    "gemma": {**{k: n for k, n in ROTARY.items() if k != "Swish"}, "Gelu": 2},
    "dynamo-qwen2": ROTARY,
    "dynamo-llama": {"Attention": 2, "Swish": 2},  # the rest are already ONNX's own ops
    "gptj": {"RotaryEmbedding": 4, "Attention": 2, "Gelu": 2},
    "bloom": {"Attention": 2},
    "mobius-gemma3": {},
    "mobius-static": {"Swish": 2},
}
STATIC = ("updated_key_cache", "updated_value_cache")  # buffers; all rows are defined


def model(name):
    """The file of a traced model."""
    return TRACED / name / "model.onnx"


class Traced(Case):
    """Each stored model as a sequence, and stateless."""

    def score(self, name, *flags):
        """Bytes of the logits, and the logits."""
        out = self.dir / "logits.npy"
        self.good("score", model(name), "--ids", TRACED / name / "ref" / "ids.txt", "--logits", out,
                  "-q", *flags)
        return np.load(out), out.read_bytes()

    def sequences(self, name):
        """The logits of ONNX Runtime, and the same bits for every split."""
        ids = TRACED / name / "ref" / "ids.txt"
        logits, whole = self.score(name)
        self.close(logits, np.load(TRACED / name / "ref" / "logits.npy"), LIMIT, name)
        for splits in ("9,15", "1,1,1,44"):
            self.assertEqual(self.score(name, "--splits", splits)[1], whole, f"{name} {splits}")
        for batch in (1, 3, 8):
            proof = self.good("equiv", model(name), "--ids", ids, "--splits", "random:3", "--batch",
                              batch, "--threads", "1,2", "--format", "json", "-q").json()
            self.assertEqual(proof["differing"], 0, batch)
            self.assertGreater(proof["compared"], 0, batch)

    def calls(self, name):
        """Past and present as tensors; a batch with padding."""
        for folder in sorted(p for p in (TRACED / name / "ref").iterdir() if p.is_dir()):
            call = folder.name
            self.good("run", model(name), "--inputs", folder / "inputs", "-o", self.dir / call)
            for path in sorted((folder / "expect").glob("*.npy")):
                got, want = np.load(self.dir / call / path.name), np.load(path)
                for b, (past, new) in enumerate(rows_of(folder)):
                    at = (b if path.stem.startswith(STATIC) else
                          defined(path.stem, b, past, new))
                    self.close(got[at], want[at], LIMIT, f"{name} {call} {path.name} {b}")

    # Reason of the skip: ONNX Runtime is the oracle here; ./dev deps installs it, other machines
    # may lack it.
    @unittest.skipIf(ortref is None, "onnxruntime is not installed")
    def test_holes(self):
        """Positions and windows counted from the attention mask, after a hole in it: a sequence has
        no holes, a call may."""
        name, runner = "mobius-gemma3", ortref.Runner(model("mobius-gemma3"))
        ids = np.array(read_ids(TRACED / name / "ref" / "ids.txt"))
        _, past = runner.step(ids[None, :9], runner.empty_past(1))
        mask = np.ones((1, 40), np.int64)
        mask[0, 5:9] = 0
        feed, folder = runner.feed(ids[None, 9:40], past, mask), self.dir / "inputs"
        folder.mkdir()
        for key, value in feed.items():
            np.save(folder / f"{key}.npy", value)
        want = runner.run(feed)["logits"]
        self.good("run", model(name), "--inputs", folder, "-o", self.dir / "out", "-q")
        self.close(np.load(self.dir / "out" / "logits.npy"), want, LIMIT, name)
        unhidden = runner.run({**feed, "attention_mask": np.ones_like(mask)})["logits"]
        self.assertGreater(harness.relative(unhidden, want), LIMIT)
        self.good("compile", model(name), "-o", self.dir / "m.gqac", "-q")
        self.good("run", self.dir / "m.gqac", "--inputs", folder, "-o", self.dir / "of", "-q")
        self.close(np.load(self.dir / "of" / "logits.npy"), want, LIMIT, "of an artefact")

    def looked_at(self, name):
        """inspect lists what was raised; the graph has those ops."""
        info = self.good("inspect", model(name), "--ops", "--format", "json").json()
        self.assertEqual((info["raised"], info["not_raised"]), (RAISED[name], []), name)
        if name != "gemma":  # its positions are counted in the graph
            self.assertEqual(info["mixing"], [], name)
        self.good("compile", model(name), "--stop-after", "lower", "--emit", "text", "-o",
                  self.dir / "lower.gq")
        text = (self.dir / "lower.gq").read_text()
        self.assertEqual((text.count(" = attend "), text.count(" = Softmax ")), (LAYERS, 0), name)

    def test_table(self):
        """The table shows what was raised and what was not, also in words."""
        out = self.good("inspect", model("gpt2"), "--ops").out
        self.assertRegex(out, r"\nraised in a stateless run\n  Attention +2\n  Gelu +2\n")
        self.assertNotIn("not raised", out)

    def test_without(self):
        """If the pass is disabled by name, nothing is raised, and a sequence is refused."""
        path = self.dir / "m.gq"
        self.good("compile", model("llama"), "--disable", "raise", "--stop-after", "tidy",
                  "--emit", "text", "-o", path)
        self.assertIn(" = Softmax ", path.read_text())
        self.check(harness.gqac("compile", model("llama"), "--disable", "raise", "-o",
                                self.dir / "m.gqac", "--dump", "stateful"), 3, "past_key_values")


    # Reason of the skip: its quantiser makes the model; ./dev deps installs it.
    @unittest.skipUnless(quantize_dynamic, "onnxruntime.quantization is not installed")
    def test_rounded(self):
        """Activations quantised with one scale for all rows: only for sequences."""
        path = self.dir / "m.onnx"
        logging.disable(logging.WARNING)
        quantize_dynamic(model("gpt2"), path)
        told = self.good("inspect", path, "--ops", "--invariance", "--format", "json").json()
        self.assertEqual(told["raised"], {"Gelu": 2})
        self.assertEqual([n["what"] for n in told["not_raised"]], ["Attention"] * LAYERS)
        for note in told["not_raised"]:
            self.assertTrue(note["stopped_by"].endswith("QuantizeLinear"), note)
        self.assertEqual({n["op"] for n in told["mixing"]}, {"DynamicQuantizeLinear"})
        for more, ops in (((), ("attend", 2)), (("--stateless",), ("Softmax", 2))):
            self.good("compile", path, *more, "--stop-after", "lower", "--emit", "text", "-o",
                      self.dir / "lower.gq")
            self.assertEqual((self.dir / "lower.gq").read_text().count(f" = {ops[0]} "), ops[1])


class Biased(Case):
    """T5 scores: no scale, and both a bias of positions and a mask added; the bias stays a
    tensor."""

    SIZES = {"batch_size": 2, "decoder_sequence_length": 5, "encoder_sequence_length": 7,
             "past_decoder_sequence_length": 4}

    def feed(self, path):
        """Random inputs of any size."""
        rng, feed = np.random.default_rng(3), {}
        for i in onnx.load(path).graph.input:
            t = i.type.tensor_type
            shape = [d.dim_value or self.SIZES[d.dim_param] for d in t.shape.dim]
            whole = t.elem_type == onnx.TensorProto.INT64
            feed[i.name] = (rng.integers(2, 60, shape) if whole else
                            rng.standard_normal(shape).astype(np.float32))
            if "mask" in i.name:
                feed[i.name] = np.ones(shape, np.int64)
                feed[i.name][1, 5:] = 0
        return feed

    def decoder(self, name):
        """Every attention is one op, and computes what ONNX Runtime computes."""
        path, folder = TRACED / "t5" / f"{name}.onnx", self.dir / "in"
        self.good("compile", path, "--stateless", "--stop-after", "lower", "--emit", "text", "-o",
                  self.dir / "m.gq")
        text = (self.dir / "m.gq").read_text()
        self.assertEqual((text.count(" = attend "), text.count(" = Softmax ")), (2 * LAYERS, 0))
        notes = self.good("inspect", path, "--ops", "--format", "json").json()["not_raised"]
        self.assertEqual({(n["what"], n["op"]) for n in notes}, {(MASK, "Min")})
        if not ortref:
            return
        folder.mkdir()
        feed = self.feed(path)
        for key, value in feed.items():
            np.save(folder / f"{key}.npy", value)
        self.good("rewrite", path, "--pass", "raise", "-o", self.dir / "raised.onnx", "-q")
        self.assertNotIn("Softmax", [n.op_type for n in onnx.load(self.dir / "raised.onnx").graph.node])
        session = ortref.ort.InferenceSession(path)
        names = [o.name for o in session.get_outputs()]
        wanted = dict(zip(names, session.run(None, feed)))
        for which in (path, self.dir / "raised.onnx"):
            self.good("run", which, "--inputs", folder, "-o", self.dir / "out", "-q")
            for key, want in wanted.items():
                self.close(np.load(self.dir / "out" / f"{key}.npy"), want, LIMIT, key)
        raised = ortref.ort.InferenceSession(self.dir / "raised.onnx").run(names, feed)
        for key, got in zip(names, raised):
            self.close(got, wanted[key], LIMIT, f"{key} of the new file in ONNX Runtime")

    def test_prompt(self):
        """The decoder without a past."""
        self.decoder("decoder_model")

    def test_step(self):
        """The decoder after a past."""
        self.decoder("decoder_with_past_model")


class Rewritten(Case):
    """`gqac rewrite --pass raise`."""

    def rewritten(self, name):
        """ONNX Runtime returns for the new file what it returned for the old one."""
        path = self.dir / "raised.onnx"
        self.good("rewrite", model(name), "--pass", "raise", "-o", path)
        ops = [n.op_type for n in onnx.load(path).graph.node]
        for op, n in RAISED[name].items():
            if not name.startswith(("dynamo-llama", "mobius")):
                self.assertEqual(ops.count(op), n, op)
        self.assertNotIn("Softmax", ops)
        again = self.good("rewrite", path, "--pass", "raise", "-o", self.dir / "again.onnx").out
        self.assertIn("nothing to do", again)
        logits = self.dir / "logits.npy"
        self.good("score", path, "--ids", TRACED / name / "ref" / "ids.txt", "--logits", logits,
                  "--splits", "7,11", "-q")
        want = np.load(TRACED / name / "ref" / "logits.npy")
        self.close(np.load(logits), want, LIMIT, name)
        if ortref:
            ids = np.array(read_ids(TRACED / name / "ref" / "ids.txt"))
            for chunks in (None, [9, 15, 24]):
                self.close(ortref.runner(path).score(ids, chunks), want, LIMIT, name)


def add_tests():
    """Adds a method for each model."""
    for name in RAISED:
        for case, part in ((Traced, "sequences"), (Traced, "calls"), (Traced, "looked_at"),
                           (Rewritten, "rewritten")):
            def test(self, name=name, part=part):
                getattr(self, part)(name)
            setattr(case, f"test_{part}_{name}", test)


add_tests()

if __name__ == "__main__":
    sys.exit(harness.main())
