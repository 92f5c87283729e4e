#!/usr/bin/env python3
"""generate and chat with --prompt-cache and --prefix-store, and gqac cache: answers have the bytes
of a cold run, tokens are reused, and files that do not fit are never used and never overwritten.

    python test/python/test_prompt_cache.py      (GQAC_TEST_FULL=1: 500 killed processes)
"""

import json
import random
import shutil
import signal
import subprocess
import sys
import time

import harness
from harness import Case, FULL, GQAC, MODELS, gqac, write_ids

TINY = harness.ROOT / "models" / "tiny-gqa"
LINES = "I am happy.\nHow do you do?\nIt was a fine day.\nI am happy.\n"


def ids(n, seed=0):
    """n token ids."""
    return [(i * (37 + seed) + i // 7) % 250 for i in range(n)]


class PromptCache(Case):
    """Cold and warm runs."""

    def setUp(self):
        super().setUp()
        self.store = self.dir / "store"
        self.file = self.dir / "prompt.gqs"

    def said(self, tokens, *flags, model="llama"):
        """(JSON of the answer without metrics, reused, computed)."""
        path = write_ids(self.dir / "ids.txt", tokens)
        found = self.good("generate", MODELS / model, "--ids", path, "--format", "json", "-q",
                          *flags).json()
        metrics = found.pop("metrics")
        return found, metrics["reused_tokens"], metrics["computed_tokens"]

    def check_warm(self, model, flags, exact):
        """A second run, a longer prompt and one that diverges from it."""
        new = ("-n", 8, "--temperature", "0.7", "--seed", 3)
        first = ids(100)
        cold, reused, computed = self.said(first, *new, model=model)
        self.assertEqual((reused, computed), (0, 107))
        self.assertEqual(self.said(first, *new, *flags, model=model), (cold, 0, 107))
        warm, reused, computed = self.said(first, *new, *flags, model=model)
        self.assertEqual(warm, cold)
        self.assertEqual(reused + computed, 107)
        self.assertEqual(reused, 99) if exact else self.assertGreaterEqual(reused, 64)
        longer = first + cold["ids"] + ids(30, 5)
        want, _, total = self.said(longer, *new, model=model)
        warm, reused, computed = self.said(longer, *new, *flags, model=model)
        self.assertEqual((warm, reused, computed), (want, 107, total - 107))
        other = first[:70] + ids(40, 9)
        want, _, total = self.said(other, *new, model=model)
        warm, reused, computed = self.said(other, *new, *flags, model=model)
        self.assertEqual((warm, reused + computed), (want, total))
        self.assertEqual(reused, 70) if exact else self.assertGreaterEqual(reused, 64)

    def test_answers(self):
        """Dense, recurrent and hybrid models, in files and folders."""
        for model in ("llama", "lfm2", "qwen3.5"):
            for flags in (("--prompt-cache", self.file), ("--prefix-store", self.store)):
                with self.subTest((model, flags)):
                    self.check_warm(model, flags, model != "qwen3.5")
                    shutil.rmtree(self.store, ignore_errors=True)
                    self.file.unlink(missing_ok=True)

    def test_short_digests(self):
        """Files are named by a digest of what they contain. If names collide, files replace each
        other, but answers stay the same: ids are compared."""
        random.seed(4)
        tool, reused = harness.CONTROLS / "SHORT_DIGEST", 0
        prompts = [ids(70, i % 5) + [random.randrange(250) for _ in range(9)] for i in range(40)]
        for prompt in prompts + prompts[:20]:
            path = write_ids(self.dir / "ids.txt", prompt)
            words = ("generate", MODELS / "llama", "--ids", path, "-n", 2, "--format", "json", "-q",
                     "--prefix-store", self.store)
            run = subprocess.run([tool, *map(str, words)], capture_output=True, check=True)
            found = json.loads(run.stdout)
            metrics = found.pop("metrics")
            self.assertEqual(found, self.said(prompt, "-n", 2)[0])
            self.assertEqual(metrics["reused_tokens"] + metrics["computed_tokens"], 80)
            reused += metrics["reused_tokens"]
        names = [f.name for f in self.store.iterdir()]
        self.assertLessEqual(len(names), 16)
        self.assertTrue(all(name[2:64] == "0" * 62 for name in names))
        self.assertGreater(reused, 16 * 70)
        self.assertEqual(self.cache("verify", self.store)["damaged"], 0)

    def test_rope_tables(self):
        """Above the LongRoPE threshold everything is computed again, and the answer is the same."""
        new = ("-n", 30)
        for n in (50, 300):
            want, _, _ = self.said(ids(n), *new, model="phi3")
            for flags in (("--prompt-cache", self.file), ("--prefix-store", self.store)):
                for again in range(2):
                    found, reused, _ = self.said(ids(n), *new, *flags, model="phi3")
                    self.assertEqual(found, want, (n, flags))
                    if n == 300 and again:
                        self.assertEqual(reused, 299)

    def test_chat(self):
        """The turns of a second process begin where the first one ended; stdout has the same
        bytes."""
        def chat(*flags):
            with open(self.dir / "lines.txt", "rb") as stdin:
                return self.good("chat", TINY, "-q", "-n", 12, "--format", "json", *flags,
                                 stdin=stdin)
        (self.dir / "lines.txt").write_text(LINES)
        strip = lambda r: [{k: v for k, v in json.loads(line).items() if k != "metrics"}
                           for line in r.out.splitlines()]
        reused = lambda r: [json.loads(line)["metrics"]["reused_tokens"]
                            for line in r.out.splitlines()]
        cold = chat()
        for flags in (("--prompt-cache", self.file), ("--prefix-store", self.store)):
            self.assertEqual(strip(chat(*flags)), strip(cold))
            warm = chat(*flags)
            self.assertEqual(strip(warm), strip(cold))
            self.assertEqual(reused(cold)[0], 0)
            self.assertGreater(reused(warm)[0], 0)

    def test_drafts(self):
        """Also with --speculate."""
        want, _, _ = self.said(ids(60) * 2, "-n", 20)
        for _ in range(2):
            found, _, _ = self.said(ids(60) * 2, "-n", 20, "--speculate", 4, "--prefix-store",
                                    self.store)
            for count in ("drafted_tokens", "accepted_tokens"):
                found.pop(count, None)
            self.assertEqual(found, want)

    # ---- files that do not fit -------------------------------------------------

    def test_damaged(self):
        """A damaged file is reported, not used, and replaced."""
        cold, _, _ = self.said(ids(40), "-n", 4)
        path = write_ids(self.dir / "ids.txt", ids(40))
        self.said(ids(40), "-n", 4, "--prompt-cache", self.file)
        whole = self.file.read_bytes()
        for bad in (whole[:-1], whole[:600], whole[:300] + b"\1" + whole[301:],
                    whole[:-9] + b"\7" + whole[-8:]):
            self.file.write_bytes(bad)
            done = self.good("generate", MODELS / "llama", "--ids", path, "-n", 4,
                             "--prompt-cache", self.file, "--format", "json")
            self.assertIn("the prompt cache is not used", done.err)
            found = done.json()
            self.assertEqual(found["ids"], cold["ids"])
            self.assertEqual(found["metrics"]["reused_tokens"], 0)
            self.assertEqual(self.said(ids(40), "-n", 4, "--prompt-cache", self.file)[1], 39)

    def test_other_model(self):
        """A valid file of another model, target or --math is never replaced, also with -q."""
        path = write_ids(self.dir / "ids.txt", ids(20))
        self.said(ids(40), "-n", 2, "--prompt-cache", self.file)
        whole = self.file.read_bytes()
        for model, flags in (("gemma2", ()), ("gemma2", ("-q",)), ("llama", ("--target", "ref")),
                             ("llama", ("--math", "bf16", "-q"))):
            done = self.check(gqac("generate", MODELS / model, "--ids", path, "-n", 2, *flags,
                                   "--prompt-cache", self.file), 2, "belongs to another model")
            self.assertEqual((done.out, self.file.read_bytes() == whole), ("", True))
            self.assertIn(f"where: {self.file}", done.err)
            self.assertIn("delete the file", done.err)
        (self.dir / "lines.txt").write_text("hello\n")
        with open(self.dir / "lines.txt", "rb") as stdin:
            self.check(gqac("chat", TINY, "--prompt-cache", self.file, stdin=stdin), 2, "another")
        self.assertEqual(self.file.read_bytes(), whole)
        self.file.write_bytes(b"")  # as created by mktemp
        self.said(ids(40), "-n", 2, "--prompt-cache", self.file)
        self.assertEqual(self.file.read_bytes(), whole)

    def test_files_of_others(self):
        """A file that is not a snapshot is not replaced, nor is the model."""
        path = write_ids(self.dir / "ids.txt", ids(9))
        command = ("generate", MODELS / "llama", "--ids", path, "-n", 2, "--prompt-cache")
        for content in ("my notes", "GQAC"):
            self.file.write_text(content)
            self.check(gqac(*command, self.file), 4, "is not a snapshot")
            self.assertEqual(self.file.read_text(), content)
        self.check(gqac(*command, path), 2, "overwrite")
        self.check(gqac(*command, self.dir), 5)
        self.check(gqac(*command, self.dir / "no" / "file"), 5)
        shutil.copytree(MODELS / "llama", self.dir / "llama")
        for name in ("model.onnx", "model.onnx.data"):
            before = (self.dir / "llama" / name).read_bytes()
            self.check(gqac("generate", self.dir / "llama", "--ids", path, "--prompt-cache",
                            self.dir / "llama" / name), 2)
            self.assertEqual((self.dir / "llama" / name).read_bytes(), before)

    def test_usage(self):
        """Flags that contradict each other."""
        path = write_ids(self.dir / "ids.txt", ids(9))
        for flags, text in (
                (("--kv", "off", "--prompt-cache", self.file), "--kv off"),
                (("--kv", "off", "--prefix-store", self.store), "--kv off"),
                (("--store-budget", "5"), "--prefix-store"),
                (("--prefix-store", self.store, "--store-budget", "0"), "whole number"),
                (("--prefix-store", ""), "not the name of a folder")):
            self.check(gqac("generate", MODELS / "llama", "--ids", path, *flags), 2, text)
        self.check(gqac("generate", MODELS / "llama", "--ids", path, "--prefix-store", path), 5)
        self.check(gqac("generate", MODELS / "llama", "--ids", path, "--prefix-store",
                        self.dir / "a" / "b"), 5)

    # ---- gqac cache --------------------------------------------------------------

    def cache(self, *words, code=0):
        """The JSON of gqac cache."""
        return self.check(gqac("cache", *words, "--format", "json"), code).json()

    def test_cache(self):
        """Every action on a folder of three files, one of which is then damaged."""
        for seed in range(3):
            self.said(ids(50, seed), "-n", 2, "--prefix-store", self.store)
        found = self.cache("ls", self.store)
        self.assertEqual([f["tokens"] for f in found["files"]], [51] * 3)
        self.assertEqual(found["bytes"], sum(f.stat().st_size for f in self.store.iterdir()))
        self.assertEqual(self.cache("verify", self.store)["damaged"], 0)
        self.assertEqual(self.cache("info", self.store)["files"][0]["kind"], "contiguous")
        for action in ("ls", "info", "verify"):
            self.assertIn(found["files"][0]["name"], self.good("cache", action, self.store).out)

        copy = self.dir / "copy"  # it is created, as with --prefix-store
        self.assertIn("3 files added", self.good("cache", "export", self.store, copy).out)
        self.assertIn("3 were there already", self.good("cache", "export", self.store, copy).out)
        self.assertEqual(sorted(f.name for f in copy.iterdir()),
                         sorted(f.name for f in self.store.iterdir()))

        victim = self.store / found["files"][1]["name"]
        data = bytearray(victim.read_bytes())
        data[-100] ^= 4
        victim.write_bytes(data)
        self.assertEqual(self.cache("verify", self.store, code=1)["damaged"], 1)
        self.assertEqual(self.cache("ls", self.store)["damaged"], 1)
        self.assertRegex(self.good("cache", "ls", self.store).out, rf"damaged .* {victim.name}")
        self.check(gqac("cache", "import", copy, victim), 4, "checksum")
        self.assertIn("1 files removed, 2 files", self.good("cache", "gc", self.store).out)
        folder = self.store / "x.gqs"
        folder.mkdir()
        self.assertIn("0 files removed", self.good("cache", "gc", self.store).out)
        folder.rmdir()
        self.good("cache", "import", self.store, *sorted(copy.iterdir()))
        self.assertEqual(self.cache("verify", self.store)["damaged"], 0)
        self.assertEqual(len(self.cache("ls", self.store)["files"]), 3)
        self.assertEqual(self.said(ids(50, 1), "-n", 2, "--prefix-store", self.store)[1], 49)

    def test_cache_errors(self):
        """Each error with its exit code."""
        self.store.mkdir()
        (self.store / "a.gqs").write_text("notes")
        (self.store / "b.gqs").symlink_to(self.store / "a.gqs")
        (self.store / "notes.txt").write_text("notes")
        self.assertEqual(self.cache("ls", self.store)["damaged"], 2)
        self.check(gqac("cache", "verify", self.store), 1, "not a regular file")
        for words, code in ((("ls",), 2), (("list", self.store), 2), (("ls", self.store, "x"), 2),
                            (("ls", self.dir / "none"), 5), (("gc", self.dir / "none"), 5),
                            (("export", self.store), 2), (("import", self.store), 2),
                            (("export", self.store, self.dir / "none"), 0),
                            (("export", self.store, self.dir / "none" / "of" / "it"), 5),
                            (("import", self.store, self.dir / "none"), 5),
                            (("ls", self.store, "--budget", "3"), 2),
                            (("gc", self.store, "--budget", "0"), 2)):
            self.check(gqac("cache", *words), code)
        self.good("cache", "gc", self.store)
        self.assertEqual([f.name for f in self.store.iterdir()], ["notes.txt"])
        for action in ("ls", "info", "verify"):
            self.assertIn("no snapshot files", self.good("cache", action, self.store).err)
        self.assertEqual(self.good("cache", "ls", self.store, "-q").err, "")

    def test_budget(self):
        """The least recently used files are removed first."""
        flags = ("-n", 2, "--prefix-store", self.store, "--store-budget", 1)
        for seed in range(6):
            self.said(ids(300, seed), *flags)
            self.assertEqual(self.said(ids(300), *flags)[1], 299)  # used again, so it is kept
        found = self.cache("verify", self.store)
        self.assertLessEqual(found["bytes"], 1 << 20)
        self.assertEqual((len(found["files"]), found["damaged"]), (3, 0))
        self.assertEqual(self.said(ids(300, 5), *flags)[1], 299)
        self.assertLess(self.said(ids(300, 1), *flags)[1], 9)

    # ---- killed ------------------------------------------------------------------

    def test_killed(self):
        """A process that is killed at any time leaves the old file or the new one, complete."""
        draw = random.Random(3)
        path = write_ids(self.dir / "ids.txt", ids(150))
        command = [str(w) for w in (GQAC, "generate", MODELS / "llama", "--ids", path, "-n", 30,
                                    "-q", "--prompt-cache", self.file, "--prefix-store",
                                    self.store)]
        begun = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=harness.environment())
        whole = time.monotonic() - begun
        for _ in range(500 if FULL else 10):
            child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=harness.environment())
            time.sleep(draw.uniform(0, 1.1 * whole))
            child.send_signal(signal.SIGKILL)
            child.wait()
            shutil.copy(self.file, self.store / ("0" * 64 + ".gqs"))
            self.assertEqual(self.cache("verify", self.store)["damaged"], 0)


if __name__ == "__main__":
    sys.exit(harness.main())
