#!/usr/bin/env python3
"""Exports with prune_lm_head: a Gather before the LM head leaves only the logits of the last row.

Every test model is pruned, and must return what ONNX Runtime returns for the pruned file, and in
that row the bits of the unpruned model.
"""

import sys
import unittest

import numpy as np
import onnx

import harness
from harness import Case, MODELS, TOLERANCE, defined, model, rows_of

try:
    import ortref
except ImportError:
    ortref = None

CALLS = ("prefill", "hybrid", "decode", "batch")
IDS = " ".join(map(str, [256, *range(40, 60)]))


# Reason of the skip: ONNX Runtime is the oracle here; ./dev deps installs it, other machines may
# lack it.
@unittest.skipIf(ortref is None, "onnxruntime is not installed")
class Pruned(Case):
    """Test models with logits [B,1,V]."""

    def prune(self, name):
        """The pruned file, next to the config of the model."""
        path = self.dir / name / "model.onnx"
        path.parent.mkdir()
        onnx.save(ortref.pruned(model(name)), path)
        config = (MODELS / name / "genai_config.json").read_text()
        (path.parent / "genai_config.json").write_text(config)
        return path

    def outputs(self, path, call, name):
        """The outputs of `gqac run` for a stored call."""
        self.good("run", path, "--inputs", MODELS / name / "ref" / call / "inputs", "-o",
                  self.dir / call)
        return {p.stem: np.load(p) for p in (self.dir / call).glob("*.npy")}

    def run_call(self, name, path, call):
        """A stored call of the pruned file: ONNX Runtime's outputs, and the bits of the last
        row."""
        folder = MODELS / name / "ref" / call
        got = self.outputs(path, call, name)
        whole = self.outputs(model(name), call, name)
        feed = {p.stem: np.load(p) for p in (folder / "inputs").glob("*.npy")}
        want = ortref.Runner(path).run(feed)
        self.assertEqual(sorted(got), sorted(want))
        width = feed["input_ids"].shape[1]
        self.assertEqual(got["logits"].shape, (len(feed["input_ids"]), 1, whole["logits"].shape[2]))
        for b, (past, new) in enumerate(rows_of(folder)):
            for out, value in want.items():
                at = np.s_[b] if out == "logits" else defined(out, b, past, new)
                if out != "logits" or new == width:  # otherwise the last row of the chunk does not
                                                     # belong to b
                    self.close(got[out][at], value[at], TOLERANCE[name],
                               f"{name} {call} {out} {b}")
            if new == width:
                self.assertEqual(got["logits"][b, 0].tobytes(),
                                 whole["logits"][b, -1].tobytes(), f"{name} {call} {b}")

    def test_split_safe(self):
        """A sequence can compute any row, so the Gather of the last one does not mix rows; in a
        stateless run, selecting other rows does."""
        path = self.prune("llama")
        found = self.good("inspect", path, "--format", "json").json()
        self.assertEqual(found["mixing"], [])
        self.assertIn("split-safe: yes", self.good("inspect", path, "--invariance").out)
        equal = self.good("equiv", path, "--tokens", 8)
        self.assertNotIn("mixes", equal.err)
        self.assertIn("equal: 0 differing values", equal.out)

    def test_generate(self):
        """Generation needs only the last row: the same ids."""
        (self.dir / "ids.txt").write_text(IDS)
        for name in ("llama", "gemma2", "lfm2", "qwen3.5"):
            words = ("--ids", self.dir / "ids.txt", "-n", "12", "--format", "json")
            got = self.good("generate", self.prune(name), *words).json()["ids"]
            self.assertEqual(got, self.good("generate", model(name), *words).json()["ids"], name)

    def test_bench(self):
        """Decode of several sequences: each has one new token, with logits."""
        rows = self.good("bench", self.prune("llama"), "-p", "8", "-n", "2", "--batch", "4",
                         "--repeat", "1", "--format", "json").json()["rows"]
        self.assertEqual([r["name"] for r in rows], ["pp8", "tg2x4@8"])

    def test_any_row(self):
        """Sequences return every requested row, with the bits of the unpruned model."""
        ids = self.dir / "ids.txt"
        ids.write_text(IDS)
        for name in ("llama", "llama-int4-acc4", "phi3", "qwen3.5"):
            with self.subTest(name):
                path, out = self.prune(name), self.dir / "logits.npy"
                self.good("score", model(name), "--ids", ids, "--logits", out, "-q")
                whole = np.load(out)
                self.good("score", path, "--ids", ids, "--logits", out, "-q")
                self.assertEqual(np.load(out).tobytes(), whole.tobytes())
                proof = self.good("equiv", path, "--ids", ids, "--splits", "random:3", "--batch", 3,
                                  "--format", "json", "-q").json()
                self.assertEqual(proof["differing"], 0)
                self.assertGreater(proof["compared"], 3 * 2 * whole.size)


def add_cases():
    """Adds a test for each model."""
    for name in TOLERANCE:
        def calls(self, name=name):
            path = self.prune(name)
            for call in CALLS:
                if (MODELS / name / "ref" / call).exists():
                    self.run_call(name, path, call)
        setattr(Pruned, "test_run_" + name.replace(".", "_").replace("-", "_"), calls)


add_cases()


if __name__ == "__main__":
    sys.exit(harness.main())
