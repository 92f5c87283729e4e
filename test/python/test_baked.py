#!/usr/bin/env python3
"""`compile --bake`: prompts reuse the rows of a prefix that an artefact contains.

The counts of tokens are exact, answers are those of the model without a prefix, and `equiv --via
baked` proves the bits; an artefact with changed rows must fail this proof.
"""

import hashlib
import json
import struct
import sys

import numpy as np
import onnx

import harness
from harness import Case, gqac, model, write_ids
from test_artefact import HEADER, ROW, head, sections, table

TINY = harness.ROOT / "models" / "tiny-gqa"
SYSTEM = "She had been a very short time at home, when the party were too much overcome.\n"
INNER = 512  # bytes of the inner header
PARTS = ("geometry", "positions", "ids", "rows", "states")


def sha(data):
    """A digest as stored in the file."""
    return hashlib.sha256(data).digest()


def part(image, name):
    """(offset, length) of a section of the image."""
    at = 232 + PARTS.index(name) * 48
    return struct.unpack_from("<QQ", image, at)


def signed(image):
    """The image with recomputed digests."""
    out = bytearray(image)
    for i, name in enumerate(PARTS):
        offset, length = part(out, name)
        at = 232 + i * 48 + 16
        out[at:at + 32] = sha(out[offset:offset + length])
    out[INNER - 32:INNER] = bytes(32)
    out[INNER - 32:INNER] = sha(out[:INNER])
    return bytes(out)


def image_of(data):
    """The last section of an artefact."""
    offset, length = table(data)[-1]
    return data[offset:offset + length]


def with_image(data, image):
    """The artefact with another last section of the same length, and correct digests."""
    last, out = sections(data) - 1, bytearray(data)
    offset, length = table(data)[-1]
    assert len(image) == length
    out[offset:offset + length] = image
    row = HEADER + ROW * last
    out[row + 160:row + 192] = sha(image)
    out[32:64] = bytes(32)
    out[32:64] = sha(out[:head(data)])
    return bytes(out)


class Baked(Case):
    """Tests on an artefact that each case compiles."""

    def setUp(self):
        super().setUp()
        self.text = self.dir / "system.txt"
        self.text.write_text(SYSTEM)
        self.path = self.dir / "m.gqac"

    def bake(self, source=TINY, *flags):
        """The number of tokens that inspect reports."""
        self.good("compile", source, "-o", self.path, "--bake", self.text, "-q", *flags)
        return self.good("inspect", self.path, "--format", "json").json()["baked"]

    def test_not_finite(self):
        """A prefix with a row of NaN is not baked."""
        graph = onnx.load(model("llama"))
        gather = next(n for n in graph.graph.node
                      if n.op_type == "Gather" and n.input[1] == "input_ids")
        table = next(t for t in graph.graph.initializer if t.name == gather.input[0])
        rows = onnx.numpy_helper.to_array(table).copy()
        rows[7] = np.nan
        table.CopyFrom(onnx.numpy_helper.from_array(rows, table.name))
        path, bake = self.dir / "nan.onnx", ("-q", "--bake-as", "ids", "--bake")
        onnx.save(graph, path)
        ids = [5] * 90 + [7] + [5] * 30
        self.good("compile", path, "-o", self.path, *bake, write_ids(self.dir / "ids", ids[:90]))
        self.check(gqac("compile", path, "-o", self.path, *bake, write_ids(self.dir / "ids", ids)),
                   3, "token 90", "NaN")

    def answer(self, source, prompt, *flags):
        """(text, reused, computed, ids) of a greedy answer of 6 tokens."""
        told = self.good("generate", source, "--prompt", prompt, "-n", 6, "--temperature", 0,
                         "--format", "json", "-q", *flags).json()
        metrics = told["metrics"]
        return told["text"], metrics["reused_tokens"], metrics["computed_tokens"]

    def tokens(self, text):
        """Ids of a prompt."""
        return [int(i) for i in self.good("tokenize", TINY, "--text", text).out.split()]

    def test_prompt(self):
        """generate: exactly the rows of the text are reused, and the answer is the same."""
        baked = self.bake(TINY, "--bake-as", "prompt")
        self.assertEqual((baked["kind"], baked["bytes"] > 1024 * 64), ("contiguous", True))
        prompt = SYSTEM.strip() + " And so"
        n = len(self.tokens(prompt))
        self.assertLess(len(self.tokens(SYSTEM.strip())) - baked["tokens"], 6)
        cold, warm = self.answer(TINY, prompt), self.answer(self.path, prompt)
        self.assertEqual(cold[1:], (0, n + 5))
        self.assertEqual(warm, (cold[0], baked["tokens"], n + 5 - baked["tokens"]))
        other = self.answer(self.path, "It was a fine day")
        self.assertEqual(other[1], 1)  # only the begin-of-text token
        self.assertEqual(other[0], self.answer(TINY, "It was a fine day")[0])
        self.assertEqual(self.answer(self.path, prompt, "--kv", "paged"), warm)
        self.assertEqual(self.answer(self.path, prompt, "--kv", "quantised")[1], 0)
        self.assertEqual(self.answer(self.path, prompt, "--kv", "off")[1], 0)

    def chat(self, source, *flags):
        """The answers of two turns, as JSON."""
        (self.dir / "turns").write_text("Who is there?\nAnd then?\n")
        with open(self.dir / "turns", encoding="utf-8") as turns:
            out = self.good("chat", source, "-n", 5, "--temperature", 0, "--format", "json", "-q",
                            *flags, stdin=turns).out
        return [json.loads(line) for line in out.splitlines()]

    def test_chat(self):
        """chat: the system message as --system and --system-file render it."""
        baked = self.bake()["tokens"]
        cold = self.chat(TINY, "--system", SYSTEM.strip())
        warm = self.chat(self.path, "--system-file", self.text)
        self.assertEqual([t["text"] for t in cold], [t["text"] for t in warm])
        a, b = cold[0]["metrics"], warm[0]["metrics"]
        self.assertEqual((a["reused_tokens"], b["reused_tokens"]), (0, baked))
        self.assertEqual(a["computed_tokens"] - b["computed_tokens"], baked)
        self.assertGreater(baked, 20)
        self.assertEqual(cold[1]["metrics"]["reused_tokens"], warm[1]["metrics"]["reused_tokens"])

    def test_with_caches(self):
        """With --prefix-store and --prompt-cache the longest prefix is continued."""
        baked = self.bake(TINY, "--bake-as", "prompt")["tokens"]
        store, cache = self.dir / "store", self.dir / "c.gqs"
        prompt = SYSTEM.strip() + " And so it"
        n = len(self.tokens(prompt))
        flags = ("--prefix-store", store, "--prompt-cache", cache)
        first = self.answer(self.path, prompt, *flags)
        again = self.answer(self.path, prompt, *flags)
        self.assertEqual(first[0], again[0])
        self.assertEqual((first[1], again[1]), (baked, n - 1))
        self.assertEqual(self.answer(self.path, prompt, "--prefix-store", store)[1], n - 1)
        other = self.answer(self.path, SYSTEM.strip() + " But", "--prompt-cache", cache)
        self.assertGreaterEqual(other[1], baked)

    def proof(self, *flags):
        """The JSON of `equiv --via baked`."""
        return self.good("equiv", self.path, "--via", "baked", "--format", "json", "-q",
                         *flags).json()

    def test_proof(self):
        """Hits of every length, on three kinds of models and every kind of cache."""
        self.text.write_text(" ".join(str((i * 29 + 7) % 250) for i in range(70)))
        for name, kind in (("llama", "contiguous"), ("lfm2", "contiguous"),
                           ("qwen3.5", "quantised"), ("gemma2", "windowed")):
            baked = self.bake(model(name), "--bake-as", "ids", "--kv", kind)
            self.assertEqual((baked["tokens"], baked["kind"]), (70, kind))
            told = self.proof("--kv", kind, "--tokens", 9, "--batch", 2, "--threads", "1,2",
                              "--splits", "all" if harness.FULL else "70,9")
            self.assertEqual(told["differing"], 0, name)
            self.assertGreater(told["reused_tokens"], 0, name)
            self.check(gqac("equiv", self.path, "--via", "baked", "--kv",
                            "contiguous" if kind != "contiguous" else "quantised", "-q"), 2,
                       "baked for the kind")
        self.assertGreater(self.proof("--kv", "windowed", "--splits", "all")["plans"], 70)

    def test_altered(self):
        """equiv detects a changed row even if all checksums are correct: digests do not prove what
        the model computes."""
        self.text.write_text(" ".join(str(i) for i in range(5, 45)))
        self.bake(model("llama"), "--bake-as", "ids")
        good = self.path.read_bytes()
        image = image_of(good)
        self.assertEqual(signed(image), image)
        self.assertEqual(with_image(good, image), good)
        offset, _ = part(image, "rows")
        spoilt = bytearray(image)
        spoilt[offset + 4 * 3 + 2] ^= 0x10  # of the key of the fourth token
        self.path.write_bytes(with_image(good, signed(spoilt)))
        self.good("inspect", self.path, "--verify")
        self.check(gqac("equiv", self.path, "--via", "baked", "--splits", "40,64", "-q"), 1)
        self.path.write_bytes(with_image(good, spoilt))  # only its own checksum is wrong
        for verb in (("generate", self.path, "--ids", self.text), ("equiv", self.path)):
            self.check(gqac(*verb), 3, "baked prefix", "checksum of the rows")

    def test_foreign(self):
        """Another profile, graph, version or layout is refused, and so is damage."""
        self.text.write_text("1 2 3 4 5")
        self.bake(model("llama"), "--bake-as", "ids")
        good = self.path.read_bytes()
        image = image_of(good)
        begin, length = part(image, "geometry")
        end = max(i for i in range(begin, begin + length) if image[i]) + 1
        for at, words in ((24 + 8, ("another model",)), (0, ("first bytes",)), (8, ("version",)),
                          (end - 16, ("another layout",))):
            bad = bytearray(image)
            bad[at] ^= 1
            self.path.write_bytes(with_image(good, signed(bad)))
            self.check(gqac("generate", self.path, "--ids", self.text), 3, "baked prefix", *words)
        for at in range(0, len(image), len(image) // 9 + 1):
            bad = bytearray(good)
            bad[table(good)[-1][0] + at] ^= 4
            self.path.write_bytes(bad)
            self.check(gqac("generate", self.path, "--ids", self.text), 3, "baked prefix")
            self.check(gqac("inspect", self.path, "--verify"), 3, "'baked'")
        for n in (len(good) - 1, table(good)[-1][0] + 10):
            self.path.write_bytes(good[:n])
            self.check(gqac("inspect", self.path), 3)
        self.assertEqual(struct.unpack_from("<I", good, 8)[0], 6)
        self.good("compile", model("llama"), "-o", self.path, "-q")
        self.assertEqual(struct.unpack_from("<I", self.path.read_bytes(), 8)[0], 5)

    def test_levels(self):
        """All instruction sets have the same blocks and bits."""
        self.text.write_text(" ".join(str(i) for i in range(5, 45)))
        self.bake(model("llama-fp16"), "--bake-as", "ids")
        for level in ("scalar", "avx2"):
            done = gqac("equiv", self.path, "--via", "baked", "--splits", "40,64", "-q",
                        "--format", "json", env={"GQAC_CPU": level})
            if done.code == 77:
                continue
            self.assertEqual((done.code, done.json()["differing"]), (0, 0), done)

    def test_usage(self):
        """Prompts and models that cannot be baked."""
        out, ids = self.dir / "o.gqac", self.dir / "ids"
        ids.write_text("1 2")
        for flags, words in ((("--bake-as", "ids"), "--bake-as needs --bake"), (("--kv", "paged"), "--kv needs --bake"),
                             (("--bake", ids, "--bake-as", "text"), "system, prompt or ids"),
                             (("--bake", ids, "--stateless"), "--stateless"),
                             (("--bake", ids, "--kv", "pagd"), "pagd"),
                             (("--bake", ids, "--bake-as", "system"), "chat template")):
            self.check(gqac("compile", model("llama"), "-o", out, *flags), 2, words)
        self.check(gqac("compile", model("llama"), "-o", self.dir / "o.onnx", "--bake", ids), 2,
                   "artefact")
        self.check(gqac("compile", TINY, "-o", out, "--bake", self.dir / "none"), 5, "none")
        ids.write_text("1 9999")
        self.check(gqac("compile", TINY, "-o", out, "--bake", ids, "--bake-as", "ids"), 4, "9999")
        ids.write_text("")
        self.check(gqac("compile", TINY, "-o", out, "--bake", ids, "--bake-as", "ids"), 4)
        self.assertFalse(out.exists())
        self.good("compile", TINY, "-o", out, "-q")
        self.check(gqac("equiv", out, "--via", "baked"), 2, "no baked prefix")
        self.check(gqac("chat", TINY, "--system", "a", "--system-file", self.text), 2,
                   "cannot be combined")


if __name__ == "__main__":
    sys.exit(harness.main())
