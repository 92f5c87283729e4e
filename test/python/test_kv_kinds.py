#!/usr/bin/env python3
"""Cache kinds through the tool: every kind on every test model has the bits of its token-by-token
run, at any addresses of blocks and on every level; the memory that they take; what is refused."""

import itertools
import json
import subprocess
import sys

import onnx
from onnx import helper

import harness
import ortref
from harness import FULL, KV_KINDS, Case, ROOT, gqac, model, write_ids
from test_gqa_caches import Variant

MODELS = sorted(p.name for p in (ROOT / "test" / "models").iterdir() if (p / "ref").is_dir())
HYBRID = ("lfm2", "qwen3.5")
WINDOWS = ("gemma2", "gpt-oss", "mistral")
LEVELS = ("scalar", "avx2", "avx512", "avx512vnni", "avx512bf16")


class Kinds(Case):
    """Cache kinds."""

    def equal(self, path, *flags, tool=harness.GQAC, env=None):
        """equiv finds no difference; returns its report."""
        words = [tool, "equiv", path, "--format", "json", "-q", *flags]
        done = subprocess.run([str(w) for w in words], stdout=subprocess.PIPE, timeout=600,
                              stdin=subprocess.DEVNULL, env=harness.environment(env), check=False,
                              text=True)
        self.assertEqual(done.returncode, 0, (words, done.stdout[-600:]))
        report = json.loads(done.stdout)
        self.assertEqual((report["differing"], report["plans"]), (0, report["planned"]))
        return report

    def test_every_model(self):
        """Windows are crossed, rows rewound and forked."""
        for name in MODELS:
            with self.subTest(name):
                self.equal(model(name), "--tokens", 150 if name in WINDOWS or FULL else 80,
                           "--splits", "random:2", "--batch", 3, "--threads", 2, "--kv", KV_KINDS)
            for target in ("ref",) if FULL else ():
                self.equal(model(name), "--tokens", 150, "--splits", "random:3", "--batch", 3,
                           "--target", target, "--kv", KV_KINDS)

    def test_every_way(self):
        """Rows that were exported, saved or shared."""
        for name in ("gemma2", "llama-fp16", *HYBRID) if FULL else ("gemma2", "llama-fp16"):
            for via in ("import", "prefix", "snapshot"):
                with self.subTest(f"{name} {via}"):
                    self.equal(model(name), "--tokens", 140, "--splits", "64,65", "--threads", 2,
                               "--via", via, "--kv", "windowed,quantised,quantised4")

    def test_hybrid_models(self):
        """In models with convolutions and recurrent states: hits of the lengths around blocks, from
        memory and from disk, in every kind."""
        for name, via, target in itertools.product(
                HYBRID, ("prefix", "snapshot"), ("cpu", "ref") if FULL else ("cpu",)):
            with self.subTest(f"{name} {via} {target}"):
                found = self.equal(model(name), "--tokens", 300 if FULL else 70, "--threads", 2,
                                   *(() if FULL else ("--splits", "64")), "--via", via, "--target",
                                   target, "--kv", KV_KINDS)
                self.assertGreater(found["reused_tokens"], 0)
                self.assertEqual(found["reused_tokens"] + found["computed_tokens"],
                                 found["tokens"] * found["plans"])

    def test_scattered_and_small_tiles(self):
        """Blocks at random addresses; tiles of four keys."""
        for tool in ("SHUFFLED_BLOCKS", "SMALL_TILES"):
            self.equal(model("gemma2"), "--tokens", 200, "--splits", "random:3", "--batch", 3,
                       "--threads", 2, "--kv", KV_KINDS,
                       tool=harness.CONTROLS / tool)

    def test_levels(self):
        """A quantised cache has the same bits on every instruction set; bf16 products have their
        own."""
        for kind, math in itertools.product(("quantised", "quantised4"), ("model", "bf16")):
            proof = self.dir / f"{kind}-{math}.json"
            end = "/kv8" if kind == "quantised" else "/kv4"
            for level in LEVELS:
                env = {"GQAC_CPU": level}
                if gqac("score", model("llama"), "--ids", write_ids(self.dir / "i", range(9)),
                        env=env).code:
                    continue  # this machine lacks the level
                report = self.equal(model("llama"), "--tokens", 80, "--splits", 30, "--kv",
                                    kind, "--math", math, "--certificate", proof, env=env)
                self.assertTrue(report["profile"].endswith(end))
            self.assertTrue(json.loads(proof.read_text())["profile"].endswith(end))

    def memory(self, path, tokens, *flags):
        """The memory that inspect reports."""
        return self.good("inspect", path, "--memory", tokens, *flags, "--format",
                         "json").json()["memory"]

    def test_memory(self):
        """For each kind; if every layer has a window, a long sequence takes no more than a short
        one."""
        path = model("gemma2")
        whole, half, codes, nibbles = (self.memory(path, 640, *flags)["kv"] for flags in (
            (), ("--kv", "windowed"), ("--kv", "quantised"), ("--kv", "int4")))
        self.assertEqual(codes, whole // 4 + whole // 32)  # plus a scale for each row of 32
        self.assertEqual(nibbles, whole // 8 + whole // 32)
        self.assertEqual(half, whole // 2 + whole // 2 * 2 // 10)  # two of ten blocks
        made = onnx.load(path)
        for node in ortref.gqa_nodes(made):
            for old in [a for a in node.attribute if a.name == "local_window_size"]:
                node.attribute.remove(old)
            node.attribute.append(helper.make_attribute("local_window_size", 16))
        for data in path.parent.glob("*.data"):
            (self.dir / data.name).symlink_to(data)
        onnx.save(made, self.dir / "windows.onnx")
        sizes = {self.memory(self.dir / "windows.onnx", n, "--kv", "windowed")["kv"]
                 for n in (160, 320, 640)}
        self.assertEqual(len(sizes), 1, sizes)
        self.equal(self.dir / "windows.onnx", "--tokens", 300, "--splits", "random:2", "--batch", 2,
                   "--threads", 2, "--kv", "windowed")

    def test_refused(self):
        """Codes of codes; unknown names; a certificate for two profiles."""
        path = Variant("llama", 8, "PER_TENSOR").save(self.dir)
        ids = write_ids(self.dir / "ids", range(9))
        for words in (("score", path, "--ids", ids), ("equiv", path),
                      ("inspect", path, "--memory", 10)):
            self.check(gqac(*words, "--kv", "quantised"), 3, "quantised", "f16", "contiguous")
            self.check(gqac(*words, "--kv", "int4"), 3, "quantised4", "f16", "contiguous")
        for words in (("score", path, "--ids", ids), ("equiv", path)):
            self.check(gqac(*words, "--kv", "heap"), 2, "heap", *KV_KINDS.split(","), "basic")
        self.check(gqac("equiv", model("llama"), "--tokens", 9, "--kv", "paged,quantised",
                        "--certificate", self.dir / "c"), 2, "--certificate", "/kv8")
        self.equal(model("llama"), "--tokens", 9, "--splits", "4", "--kv", " paged ,quantised")


if __name__ == "__main__":
    sys.exit(harness.main())
