#!/usr/bin/env python3
"""Negative controls: builds with one rule of the numerics contract broken must fail `equiv`.

A proof that cannot fail proves nothing. Each control is run on every target that has the rule, with
a model and a set of plans for which the correct tool finds no difference; `equiv` must exit with 1
and name position, layer and value.
"""

import json
import re
import subprocess
import sys
import unittest

import harness
from decoders import Decoder

BOTH = ("ref", "cpu")
EACH = ("ref", "cpu", "gpu")
# control: (targets, model, flags). The plans exercise the broken rule.
CONTROLS = {
    "MASK_OFF_BY_ONE": (EACH, "llama", ["--tokens", "40", "--splits", "random:4"]),
    "UNROUNDED_CHUNK": (BOTH, "llama-fp16", ["--tokens", "40", "--splits", "9,15"]),
    "KERNEL_BY_ROWS": (EACH, "llama", ["--tokens", "40", "--splits", "9,15"]),
    "THREAD_SPLIT": (("ref",), "llama", ["--tokens", "80", "--splits", "40", "--threads", "3"]),
    "BF16_BY_ROWS": (("cpu",), "llama", ["--tokens", "40", "--splits", "9,15", "--math", "bf16"]),
    "PACKED_BEGIN": (EACH, "llama", ["--tokens", "40", "--splits", "9,15", "--batch", "3"]),
    "CPU_SPLIT_BY_THREADS": (("cpu",), "llama",
                             ["--tokens", "150", "--splits", "70", "--threads", "3"]),
    "GPU_MERGE_DESCENDING": (("gpu",), "llama", ["--tokens", "600", "--splits", "590",
                                                 "--against", "cpu"]),
    "GPU_SPLIT_BY_GROUPS": (("gpu",), "llama", ["--tokens", "150", "--splits", "140"]),
    # The recurrent ops of qwen3.5 run on the host, so values are uploaded again in each step.
    "GPU_STALE_COPY": (("gpu",), "qwen3.5", ["--tokens", "9", "--splits", "4", "--against", "cpu"]),
    "GPU_STALE_BLOCKS": (("gpu",), "llama",
                         ["--tokens", "40", "--splits", "9,15", "--batch", "3", "--via", "import"]),
    "STALE_BLOCK": (BOTH, "llama", ["--tokens", "40", "--splits", "9,15", "--via", "prefix"]),
    "WINDOW_EARLY": (EACH, "gemma2", ["--tokens", "100", "--splits", "30,20", "--kv", "windowed"]),
    "CODES_BY_ROWS": (EACH, "llama", ["--tokens", "40", "--splits", "9,15", "--kv", "quantised"]),
    "SCALE_BY_ROWS": (EACH, "llama", ["--tokens", "40", "--splits", "9,15", "--kv", "quantised4"]),
    "ROTARY_BATCH": (("cpu",), "rotary_padded", ["--tokens", "40", "--splits", "9,15",
                                                 "--batch", "6"]),
}
WRITTEN = "rotary_padded"  # a kind of decoders.py
FIRST = re.compile(r"^first difference: position \d+, (layer \d+, )?\S+, value \d+: \S+, "
                   r"expected \S+; plan ", re.MULTILINE)


class Controls(harness.Case):
    """One case for each broken build and target, which the correct tool must pass."""

    def equiv(self, tool, target, control, *more):
        """Runs the control's plans with that binary."""
        _, model, flags = CONTROLS[control]
        path = self.dir / "model.onnx" if model == WRITTEN else harness.model(model)
        if model == WRITTEN:
            Decoder(model).save(path)
        words = [tool, "equiv", path, *flags, "--target", target, *more]
        return subprocess.run([str(w) for w in words], stdout=subprocess.PIPE, timeout=600,
                              stdin=subprocess.DEVNULL, env=harness.environment(), check=False,
                              text=True)

    def check_control(self, name, target):
        """The broken build must find a difference and report its place; the correct tool must
        not."""
        if target == "gpu" and not harness.has_device():
            self.skipTest("there is no OpenCL device")
        broken = harness.CONTROLS / name
        done = self.equiv(broken, target, name, "--format", "json")
        report = json.loads(done.stdout)
        self.assertEqual(done.returncode, 1, report)
        self.assertGreater(report["differing"], 0)
        first = report["first"]
        self.assertGreaterEqual(first["position"], 0)
        self.assertIn("layer", first)
        self.assertTrue(first["what"])
        self.assertNotEqual(first["actual"], first["expected"])
        done = self.equiv(broken, target, name)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, FIRST)
        done = self.equiv(harness.GQAC, target, name, "--format", "json")
        report = json.loads(done.stdout)
        self.assertEqual((done.returncode, report["differing"]), (0, 0))
        self.assertGreater(report["compared"], 0)


    def test_store_misses(self):
        """A store that never has a hit computes the correct bits, but too many tokens."""
        broken = harness.CONTROLS / "STORE_MISSES"
        words = [broken, "equiv", harness.model("llama"), "--tokens", "40", "--via", "prefix"]
        done = subprocess.run([str(w) for w in words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=600, stdin=subprocess.DEVNULL,
                              env=harness.environment(), check=False, text=True)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("0 of 40 tokens were reused, not 1", done.stderr)


for control, (on, _, _) in CONTROLS.items():
    for at in on:
        setattr(Controls, f"test_{control.lower()}_{at}",
                lambda self, name=control, target=at: self.check_control(name, target))


if __name__ == "__main__":
    sys.exit(harness.main())
