#!/usr/bin/env python3
"""On the cpu target new keys and values are written to a cache or a present in one step, with the
bytes of the separate steps.

    python test/python/test_cpu_append.py
"""

import re

import numpy as np
from onnx import TensorProto, helper

import harness
from fusion import constant, floats, Fusion, LEVELS, MS, node


class Appended(Fusion):
    """Heads that are written directly to the cache of a sequence."""

    def test_against_stateless(self):
        """The logits of a run without a sequence, in which every step is a separate node."""
        for name in ("llama", "qwen2", "qwen3", "gemma2", "phi3", "mistral", "llama-fp16"):
            path = harness.model(name)
            dump = self.good("compile", path, "--target", "cpu", "--dump", "claim", "--stop-after",
                             "claim").out
            layers = dump.count(" = attention ")
            self.assertEqual(len(re.findall(r'= kv_append .*via "cpu.heads_append"', dump)),
                             2 * layers, name)
            self.assertEqual(len(re.findall(r'= rotary .*via "cpu.heads_append"', dump)),
                             2 * layers, name)
            self.assertNotRegex(dump, r"= (split_heads|Split) .*via \"cpu.generic\"", name)
            ids = harness.MODELS / name / "ref" / "ids.txt"
            alone, stepped = self.stateless(path, ids), self.dir / f"{name}.npy"
            self.good("score", path, "--ids", ids, "--target", "cpu", "--logits", stepped)
            self.assertEqual(np.load(stepped).tobytes(), alone.astype(np.float32).tobytes(), name)

    def test_x28_hybrid(self):
        """X28: a chunk after a cached prefix, then single tokens. Heads and appends are one kernel,
        and the logits are those of a run in which they are separate."""
        for name in ("llama", "gemma2", "llama-int4-acc4"):
            path, ids = harness.model(name), harness.MODELS / name / "ref" / "ids.txt"
            self.assertIn('via "cpu.heads_append"', self.good(
                "compile", path, "--target", "cpu", "--dump", "claim", "--stop-after",
                "claim").out)
            alone, stepped = self.stateless(self.shown(path), ids), self.dir / f"{name}.npy"
            for splits in ("9,15", "20,1,1,7"):
                self.good("score", path, "--ids", ids, "--target", "cpu", "--splits", splits,
                          "--logits", stepped)
                self.assertEqual(np.load(stepped).tobytes(), alone.astype(np.float32).tobytes(),
                                 f"{name} {splits}")

    def shown(self, path):
        """The lowered graph of a run with its heads as additional outputs, so that they are split,
        and keys rotated, by separate nodes."""
        text = self.dir / "shown.gq"
        self.good("compile", path, "--stateless", "--stop-after", "lower", "--emit", "text", "-o",
                  text)
        graph = text.read_text()
        heads = [value for values in re.findall(r"^  (%.*) = (?:rotary|split_heads) ", graph, re.M)
                 for value in values.split(", ")]
        self.assertTrue(heads)
        more = "".join(f', {value} as "heads.{i}"' for i, value in enumerate(heads))
        text.write_text(re.sub(r"^(  return .*)$", lambda m: m[1] + more, graph, flags=re.M))
        dump = self.good("compile", text, "--target", "cpu", "--stateless", "--dump", "claim",
                         "--stop-after", "claim").out
        self.assertNotRegex(dump, r'= split_heads .*via "cpu.heads_append"')
        self.assertEqual(len(re.findall(r'= rotary .*via "cpu.heads_append"', dump)),
                         dump.count(" = attention "))
        return text

    def test_projections_apart(self):
        """Queries, keys and values from separate products, as tracers write them."""
        for name in ("llama", "gemma", "mistral", "dynamo-qwen2"):
            dump = self.good("compile", harness.ROOT / "test" / "traced" / name / "model.onnx",
                             "--target", "cpu", "--dump", "claim", "--stop-after", "claim").out
            layers = dump.count(" = attend ")
            self.assertGreater(layers, 0, name)
            for op, count in (("kv_append", 2), ("rotary", 2), ("split_heads", 3)):
                self.assertEqual(len(re.findall(rf'= {op} .*via "cpu.heads_append"', dump)),
                                 count * layers, f"{name} {op}")

    def test_unwanted_results(self):
        """Unused results of an append: the next step reads the cache nevertheless."""
        text = self.dir / "stateful.gq"
        self.good("compile", harness.model("llama-int4-acc4"), "--stop-after", "stateful",
                  "--emit", "text", "-o", text)
        graph = text.read_text()
        for token in re.findall(r"(%[\w.]+), %[\w.]+ = kv_append ", graph):
            graph = re.sub(rf"{re.escape(token)}, (%[\w.]+ = kv_append .*?) : token,",
                           r"_, \1 : _,", graph)
            graph = re.sub(rf"(return .*), {re.escape(token)} as [^,\n]*", r"\1", graph)
        self.assertIn(" : _, f32", graph)
        text.write_text(graph)
        for target in ("cpu", "ref"):
            self.good("score", text, "--ids", harness.MODELS / "llama-int4-acc4" / "ref" / "ids.txt", "--target", target,
                      "--logits", self.dir / f"{target}.npy")
        gap = np.abs(np.load(self.dir / "cpu.npy") - np.load(self.dir / "ref.npy")).max()
        self.assertLess(gap, 1e-3)

    def stateless(self, path, ids):
        """Logits of `run` with an empty past."""
        info = self.good("inspect", path, "--format", "json").json()
        tokens = np.array([harness.read_ids(ids)], np.int64)
        feeds = {"input_ids": tokens, "attention_mask": np.ones_like(tokens),
                 "position_ids": np.arange(tokens.shape[1])[None]}
        for pair in info["kv_pairs"]:
            feeds[pair["past"]] = np.zeros((1, pair["heads"], 0, pair["head_size"]),
                                           np.float16 if pair["dtype"] == "f16" else np.float32)
        folder = self.dir / "feeds"
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for put in info["inputs"]:
            kind = np.int32 if put["dtype"] == "i32" else feeds[put["name"]].dtype
            np.save(folder / (put["name"].replace("/", "_") + ".npy"),
                    feeds[put["name"]].astype(kind))
        self.good("run", path, "--inputs", folder, "--output", self.dir / "out", "--target", "cpu",
                  "-q")
        return np.load(self.dir / "out" / "logits.npy")


class Packed(Fusion):
    """Attention over explicit past and present: keys and values are written to their place at once,
    and queries that are not rotated are read in the packed row."""

    HEADS, KV, SIZE = 4, 2, 24

    def attention(self, packed, past, kind, turned):
        """GroupQueryAttention of 2 x (packed row), or of separate q, k and v."""
        widths = [h * self.SIZE for h in (self.HEADS, self.KV, self.KV)]
        names = ["x"] if packed else ["q", "k", "v"]
        sizes = [sum(widths)] if packed else widths
        nodes = [node("Mul", f"{n} two", f"{n}2") for n in names]
        operands = [*(f"{n}2" for n in names), *([""] * (3 - len(names))),
                    *(["pk", "pv"] if past else ["", ""]), "seq", "total"]
        if turned:
            operands += ["cos", "sin"]
        nodes.append(helper.make_node("GroupQueryAttention", operands, ["a", "k_out", "v_out"],
                                      domain=MS, num_heads=self.HEADS, kv_num_heads=self.KV,
                                      do_rotary=int(turned)))
        nodes.append(node("Neg", "a"))
        inputs = {n: (["B", "S", w], kind) for n, w in zip(names, sizes)}
        if past:
            inputs |= {n: (["B", self.KV, "P", self.SIZE], kind) for n in ("pk", "pv")}
        inputs |= {"seq": (["B"], TensorProto.INT32), "total": ([], TensorProto.INT32)}
        tables = [constant(t, np.full((200, self.SIZE // 2), v, np.float32).astype(
            np.float16 if kind == "f16" else np.float32), kind)
            for t, v in (("cos", 0.5), ("sin", 0.25))] if turned else []
        two = np.float32(2).astype(np.float16 if kind == "f16" else np.float32)
        return self.save(nodes, inputs, ["y", "k_out", "v_out"],
                         [*tables, constant("two", two, kind)], kind)

    def one(self, rows, past, kind, turned):
        """Packed and separate operands have the same results; ref computes the same keys and
        values."""
        q, k, v = (floats(2, rows, h * self.SIZE, kind=kind)
                   for h in (self.HEADS, self.KV, self.KV))
        rest = {"seq": np.int32([past + rows - 1, past + max(rows - 3, 1) - 1]),
                "total": np.int32(past + rows)}
        if past:
            rest["seq"][1] = past + rows - 1
            rest |= {n: floats(2, self.KV, past, self.SIZE, kind=kind) for n in ("pk", "pv")}
        apart = self.attention(False, past, kind, turned)
        self.assertEqual(self.kernels(apart).count("heads_append"), 5 + 2 * turned)
        expected = {level: self.results(apart, {"q": q, "k": k, "v": v, **rest}, "cpu", level)
                    for level in LEVELS}
        for old in (self.dir / "in").iterdir():
            old.unlink()
        packed = self.attention(True, past, kind, turned)
        self.assertEqual(self.kernels(packed).count("heads_append"), 3 + 2 * turned)
        feeds = {"x": np.concatenate([q, k, v], axis=2), **rest}
        ref = self.results(packed, feeds, "ref")
        for level in LEVELS:
            got = self.results(packed, feeds, "cpu", level)
            for name in got or ():
                self.assertEqual(got[name].tobytes(), expected[level][name].tobytes(), f"{level} {name}")
                self.assertEqual(got[name].shape, ref[name].shape)
                if name != "y.npy":
                    self.assertEqual(got[name].tobytes(), ref[name].tobytes(), f"{level} {name}")
            if got:
                np.testing.assert_allclose(got["y.npy"].astype(np.float32), ref["y.npy"].astype(np.float32),
                                           rtol=0, atol=1e-4 if kind == "f32" else 2e-2)
        for old in (self.dir / "in").iterdir():
            old.unlink()

    def test_present(self):
        """One row and several, ragged ones, with and without a past."""
        for rows, past, kind, turned in ((5, 0, "f32", False), (150, 0, "f32", False),
                                         (1, 70, "f32", False), (70, 9, "f16", False),
                                         (5, 0, "f32", True), (66, 3, "f32", True)):
            with self.subTest(rows=rows, past=past, kind=kind, turned=turned):
                self.one(rows, past, kind, turned)

    def test_two_in_one(self):
        """Two attentions divide the same packed row differently: the row is kept until both have
        read their queries from it, whichever runs first."""
        path = self.dir / "model.gq"
        path.write_text("""graph @g(%in: f32[B,S,192], %seq: i32[B], %total: i32[]) {
  const %two: f32[] = 2
  const %one: i64[1] = [1]
  %x = Mul %in, %two : f32[B,S,192]
  %past, %new = seqlens_to_past %seq, %total, %x : i32[B], i32[B]
  %q1, %k1, %v1 = split_heads %x {q=4, kv=2} : f32[B,4,S,24], f32[B,2,S,24], f32[B,2,S,24]
  %K1 = concat_past_present _, %k1, %past, %new, %total : f32[B,2,T,24]
  %V1 = concat_past_present _, %v1, %past, %new, %total : f32[B,2,T,24]
  %q2, %k2, %v2 = split_heads %x {q=6, kv=1} : f32[B,6,S,24], f32[B,1,S,24], f32[B,1,S,24]
  %K2 = concat_past_present _, %k2, %past, %new, %total : f32[B,1,T,24]
  %V2 = concat_past_present _, %v2, %past, %new, %total : f32[B,1,T,24]
  %y2 = attention %q2, %K2, %V2, %past, %new {scale=0.25} : f32[B,S,144]
  %turned = Transpose %y2 {perm=[0,2,1]} : f32[B,144,S]
  %pairs = MatMul %y2, %turned : f32[B,S,S]
  %bias = Unsqueeze %pairs, %one : f32[B,1,S,S]
  %y1 = attention %q1, %K1, %V1, %past, %new, %bias {scale=0.25} : f32[B,S,96]
  return %y1 as "y"
}
""")
        self.assertEqual(self.kernels(path).count("heads_append"), 6)
        feeds = {"in": floats(2, 40, 192), "seq": np.int32([39, 39]), "total": np.int32(40)}
        expected = self.results(path, feeds, "ref")
        for level in LEVELS:
            for name, got in (self.results(path, feeds, "cpu", level) or {}).items():
                np.testing.assert_allclose(got, expected[name], rtol=0, atol=1e-3)


if __name__ == "__main__":
    raise SystemExit(harness.main())
