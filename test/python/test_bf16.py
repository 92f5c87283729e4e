#!/usr/bin/env python3
"""--math bf16: products of bf16 factors, in a profile of their own.

Levels, threads and splits change no byte, as in every mode; the numbers are close to those of fp32
but different; artefacts and certificates record the mode; the int8 products of accuracy level 4 are
unchanged.
"""

import json
import re
import sys

import numpy as np

from harness import Case, ROOT, gqac, model, read_ids, write_ids

# max|Δlogits| / max|logits| of bf16 against the same model in fp32: two factors with a relative
# error of 2^-8 each, in every product of some layers.
BOUND = 5e-2
MODELS = ("gemma2", "llama", "llama-fp16", "llama-int4-acc1", "mistral", "phi3", "qwen2", "qwen3",
          "tiny-gqa")
BF16 = ("--math", "bf16")


def path_of(name):
    """A test model or the bundled one."""
    return ROOT / "models" / name if name == "tiny-gqa" else model(name)


def levels():
    """The levels that this machine can run; the best one is last."""
    said = gqac("version", "--target", "cpu", "--format", "json", env={"GQAC_CPU": "mmx"})
    names = re.search(r"levels: (.*)", said.err).group(1).split(", ")
    return [n for n in names if gqac("version", "--target", "cpu", "--format", "json",
                                     env={"GQAC_CPU": n}).code == 0]


RUNS = levels()


class Bf16(Case):
    """One method for each model, then what the mode is in files and on the command line."""

    def ids(self, name, most=140):
        """Valid token ids, for two key tiles if that is fast."""
        long = model(name).parent / "ref" / "ids600.txt"
        if name == "tiny-gqa" or not long.exists():
            return write_ids(self.dir / "ids.txt", [(7 * i * i + 3 * i) % 250 for i in range(80)])
        return write_ids(self.dir / "ids.txt", read_ids(long)[:most])

    def logits(self, path, ids, *flags, env=None):
        """The file that score writes; named after its flags."""
        out = self.dir / ("_".join(str(f).strip("-").replace("/", "") for f in flags) +
                          "_".join((env or {}).values()) + ".npy")
        self.good("score", path, "--ids", ids, "--logits", out, *flags, env=env)
        return out

    def check_model(self, name):
        """Levels, threads and splits change no byte; fp32 is close, but different."""
        path, ids = path_of(name), self.ids(name)
        plain = self.logits(path, ids, *BF16, env={"GQAC_CPU": "scalar"})
        for level in RUNS[1:]:
            for flags in (("--threads", 1), ("--threads", 3, "--splits", "9,15")):
                got = self.logits(path, ids, *BF16, *flags, env={"GQAC_CPU": level})
                self.assertEqual(got.read_bytes(), plain.read_bytes(), f"{level} {flags}")
        found, fp32 = np.load(plain), np.load(self.logits(path, ids, "--math", "exact"))
        self.assertTrue(np.isfinite(found).all())
        self.assertFalse((found == fp32).all(), "the mode does nothing")
        self.close(found, fp32, BOUND, name)

    def test_equiv(self):
        """Every split, batch and number of threads computes the bits of token by token."""
        for name, flags in (("llama", ("--tokens", 24, "--splits", "all")),
                            ("llama-fp16", ("--tokens", 80, "--splits", "random:3")),
                            ("llama-int4-acc1", ("--tokens", 80, "--splits", "random:3")),
                            ("qwen3", ("--tokens", 150, "--splits", "random:2"))):
            found = self.good("equiv", path_of(name), *BF16, *flags, "--threads", "1,2,3,5",
                              "--batch", 3, "--format", "json").json()
            self.assertEqual(found["differing"], 0)
            self.assertGreater(found["compared"], 0)
            self.assertIn("/cpu/bf16/", found["profile"])

    def test_int8_stays(self):
        """Accuracy level 4 multiplies integers; a model with such weights changes only
        elsewhere."""
        ops = {}
        for math in ("model", "bf16"):
            told = self.good("compile", path_of("llama-int4-acc4"), "--math", math, "--stop-after",
                             "pack", "--dump", "pack").out
            ops[math] = re.findall(r"linear_nbits.*accuracy_level=4", told)
        self.assertEqual(len(ops["model"]), len(ops["bf16"]))
        self.assertGreater(len(ops["bf16"]), 0)
        self.good("equiv", path_of("llama-int4-acc4"), *BF16, "--tokens", 40, "--splits",
                  "random:3", "--threads", "1,2")

    def test_graph(self):
        """The dump shows which products have bf16 factors."""
        told = self.good("compile", path_of("llama"), *BF16, "--dump", "claim").out
        self.assertIn("linear_bf16", told)
        self.assertRegex(told, r"attention .*bf16=1")
        told = self.good("compile", path_of("llama"), "--dump", "claim").out
        self.assertNotIn("bf16", told)

    def test_artefact(self):
        """It contains the factors, can be opened only for this mode, and computes the same bits."""
        ids, sizes = self.ids("llama"), {}
        for math in ("model", "bf16"):
            packed = self.dir / f"{math}.gqac"
            self.good("compile", path_of("llama"), "--math", math, "-o", packed)
            sizes[math] = packed.stat().st_size
        self.assertLess(sizes["bf16"], 0.75 * sizes["model"])
        direct = self.logits(path_of("llama"), ids, *BF16)
        again = self.logits(self.dir / "bf16.gqac", ids, *BF16, "--threads", 2)
        self.assertEqual(direct.read_bytes(), again.read_bytes())
        told = self.good("inspect", self.dir / "bf16.gqac", "--format", "json").json()["artefact"]
        self.assertEqual(told["math"], "bf16")
        self.assertIn("/bf16/", told["profile"])
        for made, asked in (("bf16", "model"), ("model", "bf16"), ("bf16", "exact")):
            self.check(gqac("score", self.dir / f"{made}.gqac", "--ids", ids, "--math", asked), 2,
                       f"compiled for --math {made}, not {asked}", "compile the original model")

    def test_export(self):
        """In ONNX the roundings are explicit: products of rounded factors, close to those of the
        kernels."""
        for name in ("llama", "llama-int4-acc1"):
            ids = self.ids(name)
            packed, plain = self.dir / f"{name}.gqac", self.dir / f"{name}.onnx"
            self.good("compile", path_of(name), *BF16, "-o", packed)
            self.good("compile", packed, *BF16, "--emit", "onnx", "-o", plain)
            found = np.load(self.logits(packed, ids, *BF16))
            spelt = np.load(self.logits(plain, ids, "--math", "exact"))
            fp32 = np.load(self.logits(path_of(name), ids, "--math", "model"))
            self.close(spelt, found, BOUND, name)
            self.assertFalse((spelt == fp32).all(), "no factor is rounded")

    def test_certificate(self):
        """It has another profile: a proof for one mode does not apply to the other."""
        path = self.dir / "c.json"
        proof = ("equiv", path_of("llama"), "--tokens", 12, "--splits", "5", "--certificate", path)
        self.good(*proof, *BF16)
        self.assertIn("/cpu/bf16/", json.loads(path.read_text())["profile"])
        self.good(*proof, *BF16, "--threads", 2)
        self.check(gqac(*proof), 1, "another numerics profile")

    def test_verify(self):
        """Compared with ref, which computes in fp32: within the tolerance of 16-bit factors."""
        for name in ("llama", "qwen2", "tiny-gqa"):
            self.good("verify", path_of(name), *BF16)

    def test_environment_and_verbs(self):
        """GQAC_MATH, and the verbs that compute."""
        ids = self.ids("llama")
        flagged = self.logits(path_of("llama"), ids, *BF16)
        named = self.logits(path_of("llama"), ids, env={"GQAC_MATH": "bf16"})
        self.assertEqual(flagged.read_bytes(), named.read_bytes())
        self.good("generate", path_of("llama"), "--ids", ids, "-n", 4, *BF16)
        self.good("bench", path_of("llama"), "-p", 8, "-n", 2, "--repeat", 1, *BF16)
        told = self.good("inspect", path_of("llama"), "--plan", *BF16).out
        self.assertIn("cpu.linear_bf16", told)
        self.check(gqac("score", path_of("llama"), "--ids", ids, "--math", "bf8"), 2,
                   "--math is model, exact or bf16")


for model_name in MODELS:
    setattr(Bf16, f"test model {model_name}",
            lambda self, name=model_name: self.check_model(name))

if __name__ == "__main__":
    from harness import main
    sys.exit(main())
