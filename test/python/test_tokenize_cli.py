#!/usr/bin/env python3
"""gqac tokenize: ids of texts and files, text of ids, templates, byte round trips.

    python test/python/test_tokenize_cli.py

The oracle is the library `tokenizers` on the same tokenizer.json.
"""

import json
import random
import subprocess
import sys

import harness
from harness import Case, GQAC, MODELS, gqac, write_ids
from textmodel import add_bos, copy_model, render, tokenizer

LLAMA = MODELS / "llama"
TEXTS = ("", "a", "Hello, world!", "  two  spaces \n", "\t\r\n", "it's 12345 o'clock",
         "Grüße, 你好, שלום, नमस्ते", "\U0001F600\U0001F468\u200d\U0001F469", "e\u0301\ufeff",
         "<s>inside</s> special", "a<s", "\x01\x1b[0m\x7f", "x" * 3000)


class Encode(Case):
    """Texts to ids."""

    def ids(self, *args, model=LLAMA, **more):
        """The ids of a run that must succeed, in both formats."""
        line = self.good("tokenize", model, *args, **more).out
        self.assertEqual(line.count("\n"), 1)
        found = list(map(int, line.split()))
        self.assertEqual(self.good("tokenize", model, *args, "--format", "json", **more).json(),
                         {"ids": found})
        return found

    def test_texts(self):
        """--text and --file, compared with the library."""
        for text in TEXTS:
            want = tokenizer().encode(text).ids
            self.assertEqual(self.ids("--text", text), want, text)
            path = self.dir / "text"
            path.write_bytes(text.encode())
            self.assertEqual(self.ids("--file", path), want, text)

    def test_special_as_text(self):
        """--no-parse-special, compared with the library."""
        oracle = tokenizer()
        oracle.encode_special_tokens = True
        changed = 0
        for text in TEXTS:
            want = oracle.encode(text).ids
            changed += want != tokenizer().encode(text).ids
            self.assertEqual(self.ids("--text", text, "--no-parse-special"), want, text)
        self.assertGreater(changed, 0)
        self.check(gqac("tokenize", LLAMA, "--text", "a", "--template", "--no-parse-special"), 2,
                   "without a template")

    def test_bytes(self):
        """A file is read byte for byte: NUL, and the newline at its end."""
        path = self.dir / "text"
        for text in ("a\0b\0", "line\n", "\n"):
            path.write_bytes(text.encode())
            self.assertEqual(self.ids("--file", path), tokenizer().encode(text).ids)
        for bad in (b"\xff", b"ab\xc3", b"\xed\xa0\x80", b"\xc0\x80"):
            path.write_bytes(bad)
            for more in ((), ("--template",)):
                model = LLAMA if not more else copy_model(self.dir / f"m{bad.hex()}")
                self.check(gqac("tokenize", model, "--file", path, *more), 4, "UTF-8")
        self.check(gqac("tokenize", LLAMA, "--file", self.dir / "none"), 5, "none")

    def test_several(self):
        """A line for each text, in order."""
        out = self.good("tokenize", LLAMA, "--text", "a", "--text", "", "--text", "bc").out
        want = [tokenizer().encode(t).ids for t in ("a", "", "bc")]
        self.assertEqual([list(map(int, line.split())) for line in out.split("\n")[:-1]], want)
        out = self.good("tokenize", LLAMA, "--text", "a", "--text", "bc", "--format", "json").out
        self.assertEqual([json.loads(x)["ids"] for x in out.splitlines()], [want[0], want[2]])

    def test_template(self):
        """One user message, rendered; without the post-processor."""
        folder = copy_model(self.dir / "m")
        for text in TEXTS[1:9]:
            want = tokenizer().encode(render([("user", text)]), add_special_tokens=False).ids
            self.assertEqual(self.ids("--text", text, "--template", model=folder), want)
        self.check(gqac("tokenize", LLAMA, "--text", "x", "--template"), 2, "template")

    def test_post_processor(self):
        """--text includes the tokens of the post-processor, --template does not."""
        folder = add_bos(copy_model(self.dir / "m"))
        plain = tokenizer().encode("hi").ids
        self.assertEqual(self.ids("--text", "hi", model=folder), [256] + plain)
        self.assertEqual(self.ids("--text", "", model=folder), [256])
        self.assertNotIn(256, self.ids("--text", "hi", "--template", model=folder))
        found = self.good("generate", folder, "--prompt", "", "-n", 3, "--format", "json").json()
        self.assertEqual(found["ids"], self.good(
            "generate", folder, "--ids", write_ids(self.dir / "i", [256]), "-n", 3, "--format",
            "json").json()["ids"])

    def test_beyond_the_model(self):
        """The tokenizer may have ids that the model does not have; the model never gets them."""
        folder = copy_model(self.dir / "m")
        path = folder / "tokenizer.json"
        data = json.loads(path.read_text())
        data["added_tokens"].append({"id": 258, "content": "<extra>", "special": False,
                                     "lstrip": False, "rstrip": False, "normalized": False,
                                     "single_word": False})
        path.write_text(json.dumps(data))
        want = tokenizer().encode("hi").ids + [258]
        self.assertEqual(self.ids("--text", "hi<extra>", model=folder), want)
        for kv in ("contiguous", "off"):
            self.check(gqac("generate", folder, "--prompt", "hi<extra>", "--kv", kv, "-q"), 4,
                       "token id 258", "tokenizer")
        (self.dir / "said").write_text("<extra>\n")
        with open(self.dir / "said") as said:
            self.check(gqac("chat", folder, "-q", stdin=said), 4, "token id 258")
        (folder / "genai_config.json").unlink()
        self.assertEqual(self.ids("--text", "hi<extra>", model=folder), want)

    def test_artefact(self):
        """From an artefact, after its folder is removed."""
        folder = copy_model(self.dir / "m")
        want = self.ids("--text", "hi there", "--template", model=folder)
        self.good("compile", folder, "-o", self.dir / "m.gqac")
        folder.rename(self.dir / "away")
        self.assertEqual(self.ids("--text", "hi there", "--template", model=self.dir / "m.gqac"),
                         want)

    def test_usage(self):
        """Incompatible arguments."""
        ids = LLAMA / "ref" / "ids.txt"
        for args in ((), ("--decode",), ("--ids", ids), ("--text", "x", "--ids", ids),
                     ("--decode", "--ids", ids, "--text", "x"), ("--template",),
                     ("--decode", "--ids", ids, "--template"),
                     ("--decode", "--ids", ids, "--file", ids), ("--text",), ("--frobnicate",)):
            result = self.check(gqac("tokenize", LLAMA, *args), 2)
            self.assertEqual(result.out, "")
        bare = copy_model(self.dir / "bare", drop=("tokenizer.json",))
        self.check(gqac("tokenize", bare, "--text", "x"), 2, "tokenizer")
        self.check(gqac("tokenize", bare, "--decode", "--ids", ids), 2, "tokenizer")
        self.check(gqac("tokenize", self.dir / "none", "--text", "x"), 5)
        self.check(gqac("tokenize", LLAMA, "--file", self.dir), 5)


class Decode(Case):
    """Ids to text."""

    def raw(self, ids, *args):
        """The bytes that --decode prints."""
        path = write_ids(self.dir / "ids", ids)
        done = subprocess.run([GQAC, "tokenize", LLAMA, "--decode", "--ids", path, *args],
                              capture_output=True, env=harness.environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, b"")
        return done.stdout

    def test_round_trip(self):
        """Encoded texts are decoded to the same bytes, without a newline."""
        for text in TEXTS[1:]:
            ids = tokenizer().encode(text).ids
            want = tokenizer().decode(ids)
            self.assertEqual(self.raw(ids), want.encode(), text)
            self.assertEqual(json.loads(self.raw(ids, "--format", "json")), {"text": want})

    def test_random(self):
        """Random ids: valid UTF-8, without special tokens, the text of the library."""
        rng = random.Random(7)
        for _ in range(20):
            ids = [rng.randrange(258) for _ in range(rng.randrange(1, 60))]
            self.assertEqual(self.raw(ids).decode(), tokenizer().decode(ids), ids)
        self.assertEqual(self.raw([256, 257]), b"")

    def test_bad_ids(self):
        """Ids that the tokenizer does not have, and files without ids."""
        for ids in ([258], [-1], [1, 1 << 62]):
            self.check(gqac("tokenize", LLAMA, "--decode", "--ids",
                            write_ids(self.dir / "i", ids)), 4, str(ids[-1]))
        (self.dir / "i").write_text("1 x")
        self.check(gqac("tokenize", LLAMA, "--decode", "--ids", self.dir / "i"), 4)
        self.check(gqac("tokenize", LLAMA, "--decode", "--ids", self.dir / "none"), 5)

    def test_full_disk(self):
        """A failed write is exit 5."""
        with open("/dev/full", "w") as full:
            for args in (("--text", "x"), ("--text", "x", "--format", "json")):
                done = subprocess.run([GQAC, "tokenize", LLAMA, *args], stdout=full,
                                      stderr=subprocess.PIPE, check=False,
                                      env=harness.environment())
                self.assertEqual(done.returncode, 5, done.stderr)


if __name__ == "__main__":
    sys.exit(harness.main())
