#!/usr/bin/env python3
"""--check-finite names the first node whose result is NaN or infinite; without it the score is NaN.

    python test/python/test_finite.py [WORDS]
"""

import sys

import numpy as np

import harness
from harness import Case, ROOT, gqac

GRAPH = """graph @m(%input_ids: i64[B,S]) {{
  const %emb: f32[3,4] = [1,2,3,4,0,1,1,1,2,2,2,2]
  const %d: f32[4] = [{divisor}]
  const %mask: f32[4] = [0,0,0,-inf]
  %x = Gather %emb, %input_ids : ?
  %y = Div %x, %d : ?
  %z = Add %y, %mask : ?
  %logits = Add %z, %z : ?
  return %logits
}}
"""


class Finite(Case):
    """A graph that divides by zero for one id."""

    def score(self, divisor, ids, *flags):
        """Scores ids."""
        (self.dir / "m.gq").write_text(GRAPH.format(divisor=divisor))
        (self.dir / "ids").write_text(ids)
        return gqac("score", self.dir / "m.gq", "--ids", self.dir / "ids", "--kv", "off", *flags)

    def test_nan(self):
        """2/0 in the row of id 2, and 0/0 in the row of id 1."""
        for target, op in (("ref", "Div"), ("cpu", "Add")):  # cpu joins the nodes
            flags = ("--check-finite", "--target", target)
            self.check(self.score("0,1,1,1", "2 1 2", *flags), 1, "infinite", "[0,0,0]", op)
            self.check(self.score("0,1,1,1", "1 2 2", *flags), 1, "not a number", "[0,0,0]", op)
        self.check(self.score("0,1,1,1", "1 2 2"), 0)

    def test_run(self):
        """The same of `gqac run`, which then writes no outputs."""
        (self.dir / "m.gq").write_text(GRAPH.format(divisor="1,0,1,1"))
        np.save(self.dir / "ids.npy", np.array([[2, 1, 0]]))
        run = ("run", self.dir / "m.gq", "--input", f"input_ids={self.dir / 'ids.npy'}",
               "--output", self.dir / "out")
        self.check(gqac(*run, "--check-finite"), 1, "infinite", "[0,0,1]", "of logits")
        self.assertFalse((self.dir / "out").exists())
        self.check(gqac(*run), 0)
        self.assertTrue((self.dir / "out" / "logits.npy").exists())

    def test_legal(self):
        """The minus infinity of a mask is not reported, and a real model has no such node."""
        self.check(self.score("1,1,1,1", "2 1 2", "--check-finite"), 0)
        model = ROOT / "test/models/llama/model.onnx"
        ids = ROOT / "test/models/llama/ref/ids.txt"
        flagged = gqac("score", model, "--ids", ids, "--check-finite")
        self.check(flagged, 0)
        self.assertEqual(flagged.out, gqac("score", model, "--ids", ids).out)


if __name__ == "__main__":
    sys.exit(harness.main())
