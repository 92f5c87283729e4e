#!/usr/bin/env python3
"""The cpu target on every level of this machine: the same bytes, on any number of threads.

`score --logits` on each test model and on the bundled ones is compared byte for byte between the
levels and between 1, 2, 3 and 5 threads. Levels that the machine lacks must be refused with exit
77, unknown ones with exit 2. And cpu is close to ref, which expands attention and multiplies
without packing: the definition with other divisions of the same sums.
"""

import re
import sys

import numpy as np

import harness
from harness import Case, ROOT, gqac, model, read_ids, write_ids

# max|Δlogits| / max|logits| of cpu compared with ref. fp32 differs only in the division of
# attention, by roundings of fp32. f16 models round the result of each op, and a difference in the
# last bit of fp32 changes some of these roundings (an ulp of f16 is 1e-3); int8 activations are
# rounded likewise, to steps of 1/127 of a block's maximum.
BOUND = {"llama-fp16": 5e-3, "llama-int4-acc4": 2e-2, "tiny-gqa-int4": 2e-2}
FP32 = 1e-5
BUNDLED = ("tiny-gqa", "tiny-gqa-int4")


def levels():
    """(levels that run, levels that are absent), as the messages of gqac name them."""
    said = gqac("version", "--target", "cpu", "--format", "json", env={"GQAC_CPU": "mmx"})
    names = re.search(r"levels: (.*)", said.err).group(1).split(", ")
    runs = [n for n in names if gqac("version", "--target", "cpu", "--format", "json",
                                     env={"GQAC_CPU": n}).code == 0]
    return runs, [n for n in names if n not in runs]


RUNS, ABSENT = levels()


def path_of(name):
    """A test model or a bundled one."""
    return ROOT / "models" / name if name in BUNDLED else model(name)


class Levels(Case):
    """One method for each model, and for the refusals."""

    def ids(self, name):
        """Valid token ids, for more than one key tile if that is fast."""
        if name in BUNDLED:
            return write_ids(self.dir / "ids.txt", [(7 * i * i + 3 * i) % 250 for i in range(80)])
        long = model(name).parent / "ref" / "ids600.txt"
        if long.exists():
            return write_ids(self.dir / "ids.txt", read_ids(long)[:140])
        return model(name).parent / "ref" / "ids.txt"

    def logits(self, name, ids, target="cpu", level="", threads=1, splits=None):
        """The file that score writes."""
        out = self.dir / f"{target}.{level}.{threads}.{splits}.npy"
        flags = ("--splits", splits) if splits else ()
        self.good("score", path_of(name), "--ids", ids, "--target", target, "--threads", threads,
                  "--logits", out, *flags, env={"GQAC_CPU": level})
        return out

    def check_model(self, name):
        """Levels and threads change no byte; ref is close."""
        ids = self.ids(name)
        plain = self.logits(name, ids, level="scalar")
        expected = plain.read_bytes()
        for level in RUNS[1:]:
            for threads, splits in ((1, None), (3, "9,15")):
                got = self.logits(name, ids, level=level, threads=threads, splits=splits)
                self.assertEqual(got.read_bytes(), expected, f"{level}, {threads} threads")
        for threads in (2, 3, 5):
            got = self.logits(name, ids, level=RUNS[-1], threads=threads)
            self.assertEqual(got.read_bytes(), expected, f"{RUNS[-1]}, {threads} threads")
        found, ref = np.load(plain), np.load(self.logits(name, ids, target="ref", threads=2))
        self.assertTrue(np.isfinite(ref).all())
        self.close(found, ref, BOUND.get(name, FP32), name)

    def test_levels_are_told(self):
        """scalar runs everywhere; version names the requested level."""
        self.assertIn("scalar", RUNS)
        for level in RUNS:
            told = self.good("version", "--target", "cpu", "--format", "json",
                             env={"GQAC_CPU": level}).json()
            self.assertEqual((told["target"], told["level"]), ("cpu", level))
        told = self.good("version", "--target", "cpu", "--format", "json").json()
        self.assertEqual(told["level"], RUNS[-1])

    def test_unknown_level(self):
        """A usage error that names the levels."""
        ids = self.ids("llama")
        for level in ("mmx", "AVX2", "avx2 "):
            self.check(gqac("score", model("llama"), "--ids", ids, "--target", "cpu",
                            env={"GQAC_CPU": level}), 2, level.strip(), *RUNS, *ABSENT)

    def test_absent_level(self):
        """A level that the machine lacks is absent, exit 77, and the message names those that it
        has."""
        if not ABSENT:
            self.skipTest("this machine runs every level")
        for level in ABSENT:
            self.check(gqac("score", model("llama"), "--ids", self.ids("llama"), "--target", "cpu",
                            env={"GQAC_CPU": level}), 77, level, *RUNS)


for model_name in (*sorted(harness.TOLERANCE), *BUNDLED):
    setattr(Levels, f"test model {model_name}",
            lambda self, name=model_name: self.check_model(name))

if __name__ == "__main__":
    sys.exit(harness.main())
