#!/usr/bin/env python3
"""Text IR: printed text can be parsed, is printed again as the same bytes, and computes the same
bits.

    python test/python/test_text.py
"""

import re
import sys

import harness
from harness import Case, MODELS, TOLERANCE, gqac, model

HEAD = re.compile(r"^// after (\S+)\n", re.M)
STAGES = ("import", "tidy", "lower", "stateful", "claim", "expand", "order", "plan")


def dumps(text):
    """[(pass, text)] of a --dump."""
    parts = HEAD.split(text)
    assert parts[0] == "", parts[0][:200]
    return list(zip(parts[1::2], parts[2::2]))


class Text(Case):
    """Round trips."""

    def again(self, text, label):
        """The parsed and printed text equals the original."""
        path, out = self.dir / "a.gq", self.dir / "b.gq"
        path.write_text(text)
        self.good("compile", path, "--stop-after", "import", "--emit", "text", "-o", out)
        self.assertEqual(out.read_text(), text, label)

    def test_dump_all(self):
        """--dump all names the pass before each text; a list selects passes; two runs print the
        same."""
        for flags in ((), ("--stateless",)):
            text = self.good("compile", model("llama"), "--dump", "all", *flags).out
            names = [n for n, _ in dumps(text)]
            for name in ("import", "tidy", "lower", "claim", "expand", "order", "plan"):
                self.assertIn(name, names)
            self.assertEqual("stateful" in names, not flags)
            self.assertEqual(names[0], "import")
            self.assertEqual(self.good("compile", model("llama"), "--dump", "all", *flags).out,
                             text)
        some = self.good("compile", model("llama"), "--dump", "import,lower").out
        self.assertEqual([n for n, _ in dumps(some)][0], "import")
        self.assertEqual({n for n, _ in dumps(some)}, {"import", "lower"})

    def test_stop_after(self):
        """Each pass can be the last one; the written text equals the dump of that pass."""
        for name in STAGES:
            text = self.good("compile", model("llama"), "--dump", "all", "--stop-after", name).out
            self.assertEqual(dumps(text)[-1][0], name)

    def test_disable(self):
        """A pass that no other needs may be omitted; one that is needed is named."""
        self.assertNotIn("simplify", [n for n, _ in dumps(self.good(
            "compile", model("llama"), "--dump", "all", "--disable", "simplify").out)])
        self.check(gqac("compile", model("llama"), "--dump", "plan", "--disable", "claim"), 2,
                   "claim")

    def test_emit_refused(self):
        """--emit onnx after lowering names the op."""
        out = self.dir / "o.onnx"
        self.check(gqac("compile", model("llama"), "--emit", "onnx", "--stop-after", "lower",
                        "-o", out), 3, "onnx")
        self.assertFalse(out.exists())

    def test_bad_text(self):
        """Texts that cannot be parsed or verified are exit 3 with a line number."""
        text = self.emit("llama")
        bad = {"empty": "", "junk": "hello", "cut": text[:len(text) // 2], "NUL": text + "\0",
               "tail": text + "}", "op": text.replace("MatMul", "MatMole"),
               "undefined": text.replace("return %", "return %ghost_"),
               "twice": text + text, "deep": "(" * 100_000, "no graph": "// nothing\n"}
        for label, damaged in bad.items():
            path = self.dir / "bad.gq"
            path.write_text(damaged)
            result = gqac("inspect", path, seconds=10, memory=harness.GIB)
            self.assertEqual(result.code, 3, f"{label}: {result}")
            self.check(result, 3, "bad.gq")

    def emit(self, name, stage="import", *flags):
        """The full text of a model after a stage."""
        path = self.dir / f"{name}.{stage}.gq"
        self.good("compile", model(name), "--stop-after", stage, "--emit", "text", "-o", path,
                  *flags)
        return path.read_text()

    def round_trips(self, name):
        """Full texts, and every dump."""
        for stage in ("import", "tidy"):
            self.again(self.emit(name, stage), f"{name} {stage}")
        for flags in ((), ("--stateless",)):
            text = self.good("compile", model(name), "--dump", "all", *flags).out
            for i, (stage, dump) in enumerate(dumps(text)):
                self.again(dump, f"{name} dump {i} after {stage} {flags}")

    def runs(self, name):
        """.gq files of the imported and of the tidied graph have the same scores, byte for byte."""
        ids, out = MODELS / name / "ref" / "ids.txt", self.dir / "l.npy"
        self.good("score", model(name), "--ids", ids, "--logits", out)
        want = out.read_bytes()
        for stage in ("import", "tidy"):
            self.emit(name, stage)
            self.good("score", self.dir / f"{name}.{stage}.gq", "--ids", ids, "--logits", out)
            self.assertEqual(out.read_bytes(), want, f"{name} {stage}")
        self.good("compile", self.dir / f"{name}.tidy.gq", "-o", self.dir / "m.gqac")
        self.good("score", self.dir / "m.gqac", "--ids", ids, "--logits", out)
        self.assertEqual(out.read_bytes(), want, f"{name} artefact of the text")


def add_models():
    """Adds methods for each model."""
    for name in sorted(TOLERANCE):
        def trips(self, name=name):
            self.round_trips(name)

        def runs(self, name=name):
            self.runs(name)
        setattr(Text, f"test round trips {name}", trips)
        setattr(Text, f"test runs {name}", runs)


add_models()

if __name__ == "__main__":
    sys.exit(harness.main())
