#!/usr/bin/env python3
"""A model file that is truncated while it is in use: a clear message and exit code 5, no signal.

    python test/python/test_lost_file.py [WORDS]
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import onnx

import harness
from harness import Case, ROOT, environment, gqac


class LostFile(Case):
    """Artefacts and external data, which gqac maps."""

    def lose(self, model, part, threads, target="cpu"):
        """Computes, and truncates the part of the model in the meantime."""
        child = subprocess.Popen(
            [harness.GQAC, "bench", model, "-p", "512", "-n", "1", "--repeat", "1000", "--threads",
             str(threads), "--target", target, "-q"], env=environment(), stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True)
        maps = Path(f"/proc/{child.pid}/maps")
        deadline = time.monotonic() + 60
        while part.name not in maps.read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        harness.await_work(child, 20)
        self.assertIsNone(child.poll(), "it ended before its file was lost")
        os.truncate(part, 4096)
        err = child.communicate(timeout=60)[1]
        self.assertEqual(child.returncode, 5, err)
        self.assertIn("a mapped file was truncated", err)
        self.assertIn("try:", err)

    def test_artefact(self):
        """Weights of an artefact are read by all threads."""
        model = self.dir / "m.gqac"
        for threads in (1, 2):
            made = gqac("compile", ROOT / "models/tiny-gqa/model.onnx", "-o", model)
            self.check(made, 0)
            self.lose(model, model, threads)

    def test_external_data(self):
        """Weights in a file of their own, of which a step reads the rows of the embedding."""
        model, weights = self.dir / "model.onnx", self.dir / "weights"
        for target, threads in (("cpu", 1), ("cpu", 2), ("ref", 1)):
            weights.unlink(missing_ok=True)
            onnx.save(onnx.load(ROOT / "models/tiny-gqa/model.onnx"), model, save_as_external_data=True,
                      location=weights.name, size_threshold=0)
            self.lose(model, weights, threads, target)

    def test_legal(self):
        """A file that is replaced by renaming is unchanged for processes that have it open."""
        model = self.dir / "m.gqac"
        self.check(gqac("compile", ROOT / "models/tiny-gqa/model.onnx", "-o", model), 0)
        child = subprocess.Popen(
            [harness.GQAC, "bench", model, "-p", "64", "-n", "1", "--repeat", "40", "-q"],
            env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        harness.await_work(child, 5)
        (self.dir / "new").write_text("another file")
        os.replace(self.dir / "new", model)
        err = child.communicate(timeout=120)[1]
        self.assertEqual(child.returncode, 0, err)


if __name__ == "__main__":
    sys.exit(harness.main())
