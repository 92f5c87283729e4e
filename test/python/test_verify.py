#!/usr/bin/env python3
"""gqac verify: two targets value by value, and stored outputs.

    python test/python/test_verify.py        GQAC names the binary
"""

import shutil
import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper

import harness
from harness import Case, MODELS, gqac, model, write_ids

LLAMA = model("llama")
STORED = MODELS / "llama" / "ref" / "hybrid"


class Targets(Case):
    """The cpu target compared with ref."""

    def test_models(self):
        """Every test model is within the tolerance for its types."""
        for folder in sorted(p for p in MODELS.iterdir() if p.is_dir()):
            found = self.good("verify", folder, "--target", "cpu", "--format", "json").json()
            loose = folder.name in ("llama-fp16", "llama-int4-acc4")
            self.assertEqual(found["tolerance"], 2e-2 if loose else 1e-4, folder.name)
            self.assertEqual((found["equal"], found["against"], found["steps"]), (True, "ref", 5))
            self.assertGreater(found["compared"], 5 * 2 * 3, folder.name)
            self.assertLessEqual(found["worst"]["error"], found["tolerance"])
            self.assertNotIn("first", found)

    def test_exact_is_tight(self):
        """--math exact computes in fp32 what the model has in int8."""
        found = self.good("verify", model("llama-int4-acc4"), "--target", "cpu", "--math", "exact",
                          "--format", "json").json()
        self.assertEqual(found["tolerance"], 1e-4)

    def test_values(self):
        """-v lists each value once: logits, cached rows, values inside the layers."""
        result = self.good("verify", LLAMA, "--target", "cpu", "--format", "json", "-v").json()
        names = [v["value"] for v in result["values"]]
        self.assertEqual(len(set(names)), len(names))
        self.assertIn("logits", names)
        self.assertIn("past_key_values.1.value", names)
        self.assertTrue(any("GroupQueryAttention" in n for n in names), names)
        self.assertEqual(result["worst"]["error"], max(v["error"] for v in result["values"]))
        table = self.good("verify", LLAMA, "--target", "cpu", "-v").out
        for name in names:
            self.assertIn(name, table)

    def test_ids(self):
        """The tokens of a file: one call for all except the last four, then one by one."""
        for n, steps in ((1, 1), (4, 4), (5, 5), (30, 5)):
            ids = write_ids(self.dir / "ids", [(7 * i) % 258 for i in range(n)])
            found = self.good("verify", LLAMA, "--target", "cpu", "--ids", ids, "--format",
                              "json").json()
            self.assertEqual(found["steps"], steps)
        self.check(gqac("verify", LLAMA, "--target", "cpu", "--ids",
                        write_ids(self.dir / "ids", [258])), 4, "258")

    def test_divergence(self):
        """The fraction of a large number shows every rounding: that node is named, and none before
        it."""
        made = onnx.load(LLAMA)
        graph = made.graph
        node = next(n for n in graph.node if "logits" in n.output)
        node.output[list(node.output).index("logits")] = "raw"
        graph.initializer.append(numpy_helper.from_array(np.float32(65536), "large"))
        for op, inputs, output in (("Mul", ["raw", "large"], "scaled"),
                                   ("Round", ["scaled"], "whole"),
                                   ("Sub", ["scaled", "whole"], "logits")):
            graph.node.append(helper.make_node(op, inputs, [output], name=f"/{output}"))
        path = self.dir / "m.onnx"
        onnx.save(made, path)
        result = gqac("verify", path, "--target", "cpu", "--format", "json", "-v")
        found = self.check(result, 1).json()
        first = found["first"]
        self.assertEqual((first["node"], first["op"], first["step"]), ("/logits", "Sub", 0))
        self.assertGreater(first["error"], found["tolerance"])
        self.assertGreaterEqual(found["worst"]["error"], first["error"])
        for v in found["values"]:
            if v["value"] != "logits":
                self.assertLessEqual(v["error"], found["tolerance"], v)
        self.check(gqac("verify", path, "--target", "cpu"), 1, "first divergence: step 0", "/logits")

    def test_refused(self):
        """Artefacts, a target compared with itself, unknown targets, both kinds of operands."""
        packed = self.dir / "m.gqac"
        self.good("compile", MODELS / "llama", "-o", packed)
        self.check(gqac("verify", packed), 2, "artefact")
        renamed = self.dir / "m.onnx"
        shutil.copy(packed, renamed)
        self.check(gqac("verify", renamed), 2, "artefact")
        for target in ("ref", "cpu"):
            self.check(gqac("verify", LLAMA, "--target", target, "--against", target), 2, "same")
        self.check(gqac("verify", LLAMA, "--against", "tpu"), 2, "tpu")
        self.check(gqac("verify", LLAMA, "--against", self.dir / "no"), 5, "no such folder")
        self.check(gqac("verify", LLAMA, "--ids", "x", "--against", STORED), 2, "--ids")
        self.check(gqac("verify", self.dir / "none.onnx"), 5)


class Stored(Case):
    """Outputs of another runtime in a folder."""

    def copy(self):
        """A copy of the stored call, to be changed."""
        folder = self.dir / "stored"
        shutil.copytree(STORED, folder)
        return folder

    def test_equal(self):
        """inputs/ and expect/, or all files in one folder; both targets."""
        for target in ("ref", "cpu"):
            found = self.good("verify", LLAMA, "--target", target, "--against", STORED, "--format",
                              "json").json()
            self.assertEqual((found["equal"], found["compared"]), (True, 5))
        flat = self.dir / "flat"
        flat.mkdir()
        for f in (*(STORED / "inputs").iterdir(), *(STORED / "expect").iterdir()):
            shutil.copy(f, flat)
        self.assertIn("5 tensors", self.good("verify", LLAMA, "--against", flat).out)

    def test_different(self):
        """One element outside the tolerance is exit 1 with its place; one inside is not."""
        folder = self.copy()
        path = folder / "expect" / "logits.npy"
        logits = np.load(path)
        for factor, code in ((0.5, 0), (2, 1)):
            changed = logits.copy()
            changed[0, 3, 77] += factor * 1e-4 * np.abs(logits).max()
            np.save(path, changed)
            found = self.check(gqac("verify", LLAMA, "--against", folder, "--format", "json"),
                               code).json()
            self.assertEqual(found["equal"], code == 0)
        self.assertEqual((found["first"]["value"], found["first"]["index"]),
                         ("logits", 3 * logits.shape[-1] + 77))
        changed[0, 3, 77] = np.nan
        np.save(path, changed)
        self.check(gqac("verify", LLAMA, "--against", folder), 1, "first divergence", "logits")
        np.save(path, logits[:, 1:])
        self.check(gqac("verify", LLAMA, "--against", folder), 1, "another shape")

    def test_valid_rows(self):
        """Rows of a static cache after the valid length are ignored, however large they are."""
        folder = self.dir / "static"  # 9 cached and 15 new tokens in 64 rows
        shutil.copytree(harness.MODELS / "llama" / "ref" / "static", folder)
        path = folder / "expect" / "present.0.key.npy"
        rows = np.load(path)
        for at, change, code in ((24, np.nan, 0), (63, 1e6, 0), (23, 1, 1)):
            changed = rows.copy()
            changed[0, 1, 63, 1] = 1e6  # would allow large differences
            changed[0, 1, at, 5] += change
            np.save(path, changed)
            found = self.check(gqac("verify", LLAMA, "--against", folder, "--format", "json"),
                               code).json()
            self.assertEqual((found["equal"], found["compared"]), (code == 0, 5))
        self.assertEqual((found["first"]["value"], found["first"]["index"]),
                         ("present.0.key", (64 + 23) * 32 + 5))
        np.save(path, np.repeat(rows, 999, axis=0))
        self.check(gqac("verify", LLAMA, "--against", folder), 1, "another shape")

    def test_nothing(self):
        """A folder without outputs proves nothing."""
        folder = self.copy()
        shutil.rmtree(folder / "expect")
        self.check(gqac("verify", LLAMA, "--against", folder), 5, "no .npy file of any output")


if __name__ == "__main__":
    sys.exit(harness.main())
