#!/usr/bin/env python3
"""The whole models of bench/models.py, at a small size: the three forms of the LM head have the
same weights, and gqac and ONNX Runtime agree for each.

    python test/python/test_bench_models.py        GQAC names the binary
"""

import sys
import unittest
from unittest import mock

import numpy as np

import harness
from harness import Case, ROOT

sys.path.insert(0, str(ROOT / "bench"))
import models  # noqa: E402

try:
    import ortref
except ImportError:
    ortref = None

TINY = models.QWEN["tiny"]
IDS = np.array([[5, 90, 17, 3, 64, 8]])
LIMIT = {"f32": 2e-5, "f16": 2e-2, "int4": 2e-2}


# Reason of the skip: ONNX Runtime is the oracle here; ./dev deps installs it, other machines may
# lack it.
@unittest.skipIf(ortref is None, "onnxruntime is not installed")
class Models(Case):
    """qwen() of a size for tests."""

    def logits(self, form, head):
        """gqac's logits of a prompt, compared with those of ONNX Runtime."""
        path = models.qwen("tiny", form, head)
        runner = ortref.Runner(path)
        feed = runner.feed(IDS, runner.empty_past(1))
        for name, value in feed.items():
            np.save(self.dir / f"{name}.npy", value)
        self.good("run", path, "--inputs", self.dir, "-o", self.dir / head)
        got = np.load(self.dir / head / "logits.npy")
        self.close(got, runner.run(feed)["logits"], LIMIT[form], f"{form} {head}")
        return got

    def test_heads(self):
        """Every row, or the last one by Slice or by Gather: the same bits."""
        with mock.patch.object(models, "HOME", self.dir / "made"):
            for form in LIMIT:
                every = self.logits(form, "all")
                self.assertEqual(every.shape, (1, IDS.size, TINY["vocab"]))
                for head, ops in (("slice", (1, 0)), ("pruned", (0, 1))):
                    last = self.logits(form, head)
                    self.assertEqual(last.shape, (1, 1, TINY["vocab"]))
                    self.assertEqual(last.tobytes(), every[:, -1].tobytes(), f"{form} {head}")
                    made = self.good("inspect", models.qwen("tiny", form, head), "--format",
                                     "json").json()["ops"]
                    self.assertEqual((made.get("Slice", 0), made.get("Unsqueeze", 0)), ops)


if __name__ == "__main__":
    sys.exit(harness.main())
