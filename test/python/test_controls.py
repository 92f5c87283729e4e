#!/usr/bin/env python3
"""Negative controls: builds with one rule of the numerics contract broken must fail `equiv`.

A proof that cannot fail proves nothing. Each control is run on a model and a set of plans on which
the tool as it is shows no difference; `equiv` must exit with 1 and name position, layer and value.
"""

import json
import os
import subprocess
import sys
import unittest

import harness

# control: (model, flags). The plans are those that exercise the broken rule.
CONTROLS = {
    "MASK_OFF_BY_ONE": ("llama", ["--tokens", "40", "--splits", "random:4"]),
    "UNROUNDED_CHUNK": ("llama-fp16", ["--tokens", "40", "--splits", "9,15"]),
    "KERNEL_BY_ROWS": ("llama", ["--tokens", "40", "--splits", "9,15"]),
    "THREAD_SPLIT": ("llama", ["--tokens", "80", "--splits", "40", "--threads", "3"]),
}


class Controls(unittest.TestCase):
    """One case for each broken build, and one for the tool as it is."""

    def equiv(self, tool, model, flags):
        """Runs equiv with that binary; returns (exit code, its JSON)."""
        words = [tool, "equiv", harness.model(model), *flags, "--format", "json"]
        done = subprocess.run([str(w) for w in words], stdout=subprocess.PIPE, timeout=600,
                              stdin=subprocess.DEVNULL, env=harness.environment(), check=False)
        return done.returncode, json.loads(done.stdout)

    def check_control(self, name):
        """The broken build must differ and say where; the tool itself must not."""
        model, flags = CONTROLS[name]
        code, report = self.equiv(os.path.join(os.environ["GQAC_CONTROLS"], name), model, flags)
        self.assertEqual(code, 1, report)
        self.assertGreater(report["differing"], 0)
        first = report["first"]
        self.assertGreaterEqual(first["position"], 0)
        self.assertIn("layer", first)
        self.assertTrue(first["what"])
        self.assertNotEqual(first["actual"], first["expected"])
        code, report = self.equiv(harness.GQAC, model, flags)
        self.assertEqual((code, report["differing"]), (0, 0))
        self.assertGreater(report["compared"], 0)


for control in CONTROLS:
    setattr(Controls, f"test_{control.lower()}",
            lambda self, name=control: self.check_control(name))


if __name__ == "__main__":
    sys.exit(harness.main())
