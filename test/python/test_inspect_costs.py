#!/usr/bin/env python3
"""gqac inspect --plan and --memory: the costs of a token and of a context.

    python test/python/test_inspect_costs.py        GQAC names the binary
"""

import sys

import onnx

import harness
from decoders import WIDTH, Decoder
from harness import Case, MODELS, gqac, model

LLAMA = MODELS / "llama"
QWEN35 = MODELS / "qwen3.5"
LFM2 = MODELS / "lfm2"
ROW = 2 * 2 * 2 * 32 * 4  # keys and values of a token: layers, 2, heads, D, f32
SUMS = ("weight_bytes", "cache_bytes", "input_bytes", "output_bytes", "barriers")


class Plan(Case):
    """The steps of one token."""

    def plan(self, *args, path=LLAMA):
        """The plan of a model as JSON."""
        return self.good("inspect", path, "--plan", *args, "--format", "json").json()["plan"]

    def test_steps(self):
        """Every kernel once, in order, with shapes for one token; totals are sums."""
        for target in ("ref", "cpu"):
            found = self.plan("--target", target, "--memory", 100)
            steps = found["steps"]
            self.assertEqual(found["past"], 100)
            self.assertTrue(all(s["kernel"].startswith(target + ".") for s in steps))
            self.assertEqual(steps[-1]["shape"], "[1,1,258]")
            self.assertEqual(steps[0]["op"], "Gather")
            for name in SUMS:
                self.assertEqual(found["total"][name], sum(s[name] for s in steps), name)
        names = [s["kernel"] for s in steps]
        self.assertEqual(names.count("cpu.attention"), 2)
        long = self.plan("--target", "ref", "--memory", 600)
        self.assertGreater(long["total"]["barriers"], 0)  # long enough for several threads
        self.assertLess(len(steps), len(self.plan("--target", "ref")["steps"]))

    def test_cache(self):
        """The cache that a step reads and writes grows by one row for each token."""
        for past in (0, 1, 63, 64, 300):
            found = self.plan("--target", "cpu", "--memory", past) if past else \
                self.plan("--target", "cpu")
            attention = [s for s in found["steps"] if s["kernel"] == "cpu.attention"]
            self.assertEqual(sum(s["cache_bytes"] for s in attention), (past + 1) * ROW)
            self.assertEqual(found["total"]["cache_bytes"], (past + 2) * ROW)

    def test_n21_cost(self):
        """N21: the bytes of a step grow by the same row for each cached token, and only for the
        cache; without a cache a step computes all tokens again."""
        plans = [self.plan("--target", "cpu", "--memory", n) for n in (100, 200, 300, 400)]
        totals = [p["total"] for p in plans]
        self.assertEqual({t["weight_bytes"] for t in totals}, {totals[0]["weight_bytes"]})
        seen = [t["cache_bytes"] for t in totals]
        self.assertEqual({b - a for a, b in zip(seen, seen[1:])}, {100 * ROW})
        fed = {}
        for kv in ("contiguous", "off"):
            done = self.good("generate", LLAMA, "--ids", LLAMA / "ref" / "ids.txt", "-n", 12,
                             "--kv", kv, "--format", "json").json()
            fed[kv] = done["metrics"]["computed_tokens"]
        prompt = len(harness.read_ids(LLAMA / "ref" / "ids.txt"))
        self.assertEqual(fed, {"contiguous": prompt + 11, "off": 12 * prompt + 12 * 11 // 2})

    def test_states(self):
        """A state is read and written as a whole, for any length; for no tokens there is none."""
        path = Decoder("recurrent_alone").save(self.dir / "alone.onnx")
        state = 4 * (2 * 6 * 5 + 6 * 37)
        for target in ("ref", "cpu"):
            for past in (0, 1, 100):
                found = self.plan("--target", target, *(("--memory", past) if past else ()),
                                  path=path)
                self.assertEqual(found["past"], past)
                self.assertEqual(found["total"]["cache_bytes"], state * (2 if past else 1))

    def test_taps(self):
        """A convolution reads the rows within its taps, and writes one."""
        path = Decoder("conv").save(self.dir / "conv.onnx")
        for past in (1, 5, 100):
            steps = self.plan("--target", "cpu", "--memory", past, path=path)["steps"]
            seen = [s["cache_bytes"] for s in steps if s["op"] == "kv_tail"]
            self.assertEqual(seen, [4 * WIDTH * min(past, taps) for taps in (2, 6)])

    def test_weights(self):
        """Weights are read once; of the embedding one row."""
        found = self.plan("--target", "ref")
        gather = found["steps"][0]
        self.assertEqual((gather["weight_bytes"], gather["output_bytes"]), (96 * 4, 96 * 4))
        head = found["steps"][-1]
        self.assertEqual(head["weight_bytes"], 96 * 258 * 4)
        info = self.good("inspect", LLAMA, "--format", "json").json()
        self.assertLess(found["total"]["weight_bytes"], 4 * info["parameters"])
        self.assertGreater(found["total"]["weight_bytes"], 4 * (info["parameters"] - 258 * 96) // 2)

    def test_forms(self):
        """Folder, file, artefact and table report the same; nothing else is printed."""
        plan = self.plan()
        packed = self.dir / "m.gqac"
        self.good("compile", LLAMA, "-o", packed)
        self.assertEqual(self.plan(path=packed), plan)
        self.assertEqual(self.plan(path=model("llama")), plan)
        table = self.good("inspect", LLAMA, "--plan").out.splitlines()
        rows = [line.split()[0] for line in table[3:-1]]
        self.assertEqual(rows, [s["kernel"] for s in plan["steps"]])
        self.assertNotIn("plan", self.good("inspect", LLAMA, "--format", "json").json())

    def test_every_model(self):
        """Each test model has a plan."""
        for folder in sorted(p for p in MODELS.iterdir() if p.is_dir()):
            found = self.plan("--memory", 20, path=folder)
            self.assertGreater(found["total"]["cache_bytes"], 0, folder)

    def test_refused(self):
        """More tokens than positions; a value that is not a number."""
        for more in ((), ("--plan",)):
            refused = gqac("inspect", LLAMA, *more, "--memory", 100000)
            self.check(refused, 4, "tables of positions")
        self.check(gqac("inspect", MODELS / "phi3", "--memory", 100000), 4, "tables of positions")
        opt = self.dir / "opt.onnx"  # its table of positions has two rows before that of the first
                                     # token
        made = harness.ROOT / "test" / "traced" / "opt-no-cache" / "model.onnx"
        self.good("rewrite", made, "--pass", "insert-kv", "-o", opt)
        rows, = (w.dims[0] for w in onnx.load(made).graph.initializer
                 if w.name.endswith("embed_positions.weight"))
        self.good("inspect", opt, "--memory", rows - 2)
        self.check(gqac("inspect", opt, "--memory", rows - 1), 4, f"rows for only {rows - 2}")
        for value in ("0", "-1", "x", ""):
            self.check(gqac("inspect", LLAMA, "--memory", value), (2, 4), "memory")


class Memory(Case):
    """The memory of a context."""

    def test_memory(self):
        """Whole blocks of the cache; weights do not depend on the length."""
        found = {n: self.good("inspect", LLAMA, "--memory", n, "--format", "json").json()["memory"]
                 for n in (1, 64, 65, 640)}
        for n, memory in found.items():
            blocks = -(-n // memory["kv_block_tokens"])
            self.assertEqual(memory["tokens"], n)
            self.assertGreaterEqual(memory["kv_blocks"], blocks)
            self.assertGreaterEqual(memory["kv"], n * ROW)
            self.assertLess(memory["kv"], (n + 64) * ROW * 2)
            self.assertEqual(memory["weights"], found[1]["weights"])
            self.assertGreater(memory["decode"], 0)
        self.assertGreater(found[640]["prefill"], found[64]["prefill"])
        # attention reads the blocks, so no rows are gathered
        self.assertEqual(found[640]["decode"], found[1]["decode"])
        table = self.good("inspect", LLAMA, "--memory", 640).out
        self.assertIn("memory for 640 tokens", table)
        self.assertIn(f"{found[640]['weights'] / 2**20:.2f} MiB", table)

    def test_scratch(self):
        """It is reported for cpu; for ref the table says that it is not."""
        for target in ("cpu", "ref"):
            flags = ("inspect", LLAMA, "--memory", 600, "--target", target)
            memory = self.good(*flags, "--format", "json").json()["memory"]
            table = self.good(*flags).out
            if target == "cpu":
                self.assertGreater(memory["prefill_scratch"], memory["decode_scratch"])
                self.assertGreater(memory["decode_scratch"], 0)
            else:
                self.assertEqual((memory["prefill_scratch"], memory["decode_scratch"]), (0, 0))
            self.assertEqual("scratch, prompt" in table, target == "cpu")
            self.assertEqual("without kernel scratch" in table, target == "ref")
            total = sum(memory[k] for k in ("weights", "kv", "states", "convolutions"))
            total += max(memory[k] + memory[f"{k}_scratch"] for k in ("prefill", "decode"))
            self.assertRegex(table, f"total +{total / 2**20:.2f} MiB")

    def test_convolutions(self):
        """Their inputs are kept only before the few lengths that have a recurrent state."""
        found = {n: self.good("inspect", QWEN35, "--memory", n, "--format", "json").json()["memory"]
                 for n in (64, 320)}
        row = 3 * 224 * 4  # layers, channels, bytes
        self.assertEqual(found[64]["convolutions"], 64 * row)
        self.assertLessEqual(found[320]["convolutions"], 320 * row)
        self.assertLess(found[320]["kv"], 320 * row)
        lfm2 = self.good("inspect", LFM2, "--memory", 320, "--format", "json").json()["memory"]
        self.assertEqual(lfm2["convolutions"], 0)


if __name__ == "__main__":
    sys.exit(harness.main())
