#!/usr/bin/env python3
"""The gpu target computes the bits of cpu, on the first device that `gqac devices` lists.

    python test/python/test_gpu.py

Whole models, the matrix of GroupQueryAttention, products of every form and NaN: the same bytes as
cpu (fp32, fp16, int4). `equiv` finds no difference between modes. A missing device is exit 77.
Without a device only this last part runs.
"""

import itertools
import math
import random
import re
import subprocess
import sys
import unittest
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper

import harness
import test_gqa_ort as gqa
from harness import FULL, MODELS, Case, gqac, sample
from test_cpu_nbits import Node as NBits

NAMES = sorted(p.name for p in MODELS.iterdir() if p.is_dir())
needs_device = unittest.skipUnless(harness.has_device(),
                                   "there is no OpenCL device; on Debian, pocl-opencl-icd is one")


FORMS = (dict(), dict(zero="packed"), dict(zero="float"), dict(bias=True), dict(bits=8),
         dict(bits=8, zero="packed"), dict(bits=2, block=16), dict(bits=2, block=32, zero="packed"),
         dict(block=16), dict(block=128), dict(block=1024, zero="packed"),
         dict(half=True, zero="packed", bias=True))  # of MatMulNBits


def score(case, model, target, *flags):
    """The bytes of the logits of 70 tokens: more than a tile of keys."""
    ids, out = case.dir / "ids.txt", case.dir / f"{target}.npy"
    ids.write_text(" ".join(str(7 * i % 250 + 1) for i in range(70)))
    case.good("score", model, "--target", target, "--ids", ids, "--logits", out, *flags)
    return np.load(out).tobytes()


def layer(dtype, size, heads, kv, attrs="", sink=False, half=0, bits=0, scales=1, norms=False,
          uneven=False):
    """One layer of attention in that type, as text; its packed projection is a sine of the ids.
    attrs: more attributes of the node; half: number of pairs of the rotary embedding; bits: of the
    codes of a quantised cache with `scales` scales; norms: queries and keys are normalised; uneven:
    each row of each head has a different largest element."""
    width = (heads + 2 * kv) * size
    row = {0: f"{dtype}[B,{kv},%s,{size}]", 8: f"i8[B,{kv},%s,{size}]",
           4: f"u8[B,{kv},%s,{(size + 1) // 2}]"}[bits]
    factors = ", ".join(f"{0.05 + 0.37 * (7 * i % 11) / 11:.4f}" for i in range(width))
    past, present = row % "P", row % "T"
    more, cast, table = "", "", ", ".join(f"{math.sin(0.3 * i):.4f}" for i in range(1200 * half))
    if half:
        more += f"\n  const %wide: f32[1200,{half}] = [{table}]"
        cast = f"\n  %table = Cast %wide {{to={dtype}}} : {dtype}[1200,{half}]"
        attrs += ", do_rotary=1"
    if sink:
        more += f"\n  const %sink: {dtype}[{heads}] = [{', '.join(['0.25'] * heads)}]"
    if bits:
        steps = ", ".join(f"{(1 + i % 5) / 2 ** bits:.6f}" for i in range(scales))
        kind = "PER_TENSOR" if scales == 1 else "PER_CHANNEL"
        more += f"\n  const %scale: f32[{scales}] = [{steps}]"
        attrs += (f', kv_cache_bit_width={bits}, k_quant_type="{kind}", '
                  f'v_quant_type="{kind}"')
    qkv = "%qkv, _, _"
    if norms:
        qkv = "%q2, %k2, %vs"
        weight = ", ".join(f"{0.5 + i % 7 / 8:.4f}" for i in range(size))
        more += (f"\n  const %wide_weight: f32[{size}] = [{weight}]"
                 f"\n  const %widths: i64[3] = [{heads * size}, {kv * size}, {kv * size}]"
                 f"\n  const %apart: i64[3] = [0, -1, {size}]")
        cast += f"\n  %weight = Cast %wide_weight {{to={dtype}}} : {dtype}[{size}]"
    sine = f"%sin = Sin %m : f32[B,S,{width}]"
    if uneven:
        heights = ", ".join(f"{1 + i // size % 5 * 0.75:.2f}" for i in range(width))
        more += f"\n  const %heights: f32[{width}] = [{heights}]"
        sine = (f"%wave = Sin %m : f32[B,S,{width}]\n  %rows = Sin %u : f32[B,S,1]"
                f"\n  %by = Mul %rows, %heights : f32[B,S,{width}]"
                f"\n  %sin = Mul %wave, %by : f32[B,S,{width}]")
    inputs = [*(["%table"] * 2 if half else ["_"] * 2), "_", "_",
              "%sink" if sink else "_", *["%scale"] * (2 if bits else 0)]
    last = max((i + 1 for i, name in enumerate(inputs) if name != "_"), default=0)
    inputs = "".join(f", {name}" for name in inputs[:last])
    cut = ""
    if norms:
        cut = ("\n  %qs, %ks, %vs = Split %qkv, %widths {axis=-1} : "
               + ", ".join(f"{dtype}[B,S,{n * size}]" for n in (heads, kv, kv)))
        for x, n in ("q", heads), ("k", kv):
            more += f"\n  const %{x}_together: i64[3] = [0, -1, {n * size}]"
            cut += (f"\n  %{x}0 = Reshape %{x}s, %apart : {dtype}[B,{n}*S,{size}]"
                    f"\n  %{x}1 = SimplifiedLayerNormalization %{x}0, %weight {{epsilon=0.001}} : "
                    f"{dtype}[B,{n}*S,{size}]"
                    f"\n  %{x}2 = Reshape %{x}1, %{x}_together : {dtype}[B,S,{n * size}]")
    return f"""graph @layer(%input_ids: i64[B,S], %attention_mask: i64[B,T],
    %past_key_values.0.key: {past}, %past_key_values.0.value: {past}) {{
  const %one: i64[] = 1
  const %axis: i64[1] = [1]
  const %last_axis: i64[1] = [2]
  const %c: f32[{width}] = [{factors}]{more}{cast}
  %sum = ReduceSum %attention_mask, %axis {{keepdims=0}} : i64[B]
  %last = Sub %sum, %one : i64[B]
  %seqlens_k = Cast %last {{to=i32}} : i32[B]
  %shape = Shape %attention_mask : i64[2]
  %t = Gather %shape, %one : i64[]
  %total = Cast %t {{to=i32}} : i32[]
  %f = Cast %input_ids {{to=f32}} : f32[B,S]
  %u = Unsqueeze %f, %last_axis : f32[B,S,1]
  %m = Mul %u, %c : f32[B,S,{width}]
  {sine}
  %qkv = Cast %sin {{to={dtype}}} : {dtype}[B,S,{width}]{cut}
  %y, %k, %v = com.microsoft.GroupQueryAttention {qkv}, %past_key_values.0.key,
    %past_key_values.0.value, %seqlens_k, %total{inputs} {{num_heads={heads},
    kv_num_heads={kv}{attrs}}} : {dtype}[B,S,{heads * size}], {present}, {present}
  return %y as "logits", %k as "present.0.key", %v as "present.0.value"
}}
"""


# Layers: type, size of heads, heads of queries and of keys, other attributes, sink, rotary.
TILES = (("f32", 16, 5, 1, "", False, 4), ("f32", 12, 6, 2, ", local_window_size=65", True),
         ("f16", 24, 3, 3, ", softcap=2.5", False, 12))
if FULL:
    TILES += (("f32", 128, 14, 2, ", local_window_size=513, softcap=5.0", True, 16),
              ("bf16", 72, 9, 3), ("f16", 256, 4, 1, "", True), ("f32", 100, 17, 1))

CODES = ((64, 8, 128), (128, 4, 1), (80, 4, 160), (256, 8, 1)) if FULL else ((64, 4, 128),)

UNREAD = f"""graph @main(%input_ids: i64[B,S], %attention_mask: i64[B,T],
    %past_key_values.0.key: f32[B,2,P,8], %past_key_values.0.value: f32[B,2,P,8]) {{
  const %axes: i64[2] = [1, 3]
  const %axis: i64[1] = [2]
  const %c: f32[2,1,8] = [{", ".join(map(str, range(1, 17)))}]
  const %d: f32[80] = [{", ".join(map(str, range(80)))}]
  %f = Cast %input_ids {{to=f32}} : f32[B,S]
  %u = Unsqueeze %f, %axes : f32[B,1,S,1]
  %m = Mul %u, %c : f32[B,2,S,8]
  %k = Concat %past_key_values.0.key, %m {{axis=2}} : f32[B,2,T,8]
  %v = Concat %past_key_values.0.value, %m {{axis=2}} : f32[B,2,T,8]
  %w = Unsqueeze %f, %axis : f32[B,S,1]
  %y = Mul %w, %d : f32[B,S,80]
  return %y as "logits", %k as "present.0.key", %v as "present.0.value"
}}
"""


@needs_device
class Models(Case):
    """Exported models through sequences."""

    def test_bits_of_cpu(self):
        """Every test model: the prompt as a whole, and in pieces."""
        for name in NAMES:
            with self.subTest(name):
                expected = score(self, MODELS / name, "cpu")
                self.assertEqual(score(self, MODELS / name, "gpu"), expected)
        self.assertEqual(score(self, MODELS / "gemma2", "gpu", "--splits", "1,30,2,33"),
                         score(self, MODELS / "gemma2", "cpu"))

    def test_split_of_keys(self):
        """More keys than the contract's split of 512."""
        ids, model = self.dir / "ids.txt", MODELS / "llama"
        ids.write_text(" ".join(str(11 * i % 250 + 1) for i in range(600)))
        for target in ("cpu", "gpu"):
            self.good("score", model, "--target", target, "--ids", ids, "--logits",
                      self.dir / f"{target}.npy")
        cpu, gpu = (np.load(self.dir / f"{target}.npy") for target in ("cpu", "gpu"))
        self.assertEqual(gpu.tobytes(), cpu.tobytes())

    def test_blocks(self):
        """Chunks and single tokens across several blocks of keys and values; fp32, fp16, a
        window."""
        ids = self.dir / "ids.txt"
        ids.write_text(" ".join(str(13 * i % 250 + 1) for i in range(310)))
        splits = ",".join(map(str, [50, 1, 90, *[1] * 60, 100]))
        long = ["llama", "llama-fp16", "gpt-oss"]  # not all models have that many positions
        for name in long + (["gemma2", "phi3", "lfm2", "qwen3.5"] if FULL else []):
            with self.subTest(name):
                got = []
                for target in ("cpu", "gpu"):
                    out = self.dir / f"{target}.npy"
                    self.good("score", MODELS / name, "--target", target, "--ids", ids, "--logits",
                              out, "--splits", splits)
                    got.append(np.load(out).tobytes())
                self.assertEqual(got[1], got[0])

    def test_types_of_blocks(self):
        """Rows of each float type, of heads whose size is not a power of two and of a size with its
        own kernels."""
        path = self.dir / "layer.gq"
        for dtype in ("f32", "f16", "bf16"):
            for size in (40, *((64, 80, 128, 256) if FULL else (64,) if dtype == "f16" else ())):
                with self.subTest((dtype, size)):
                    path.write_text(layer(dtype, size, 6, 2))
                    self.same(path, "40,1,1,120,1", 200)

    def same(self, path, splits, count):
        """gpu has the bits of cpu in the logits of that many tokens."""
        ids, got = self.dir / "ids.txt", []
        ids.write_text(" ".join(str(11 * i % 61) for i in range(count)))
        for target in ("cpu", "gpu"):
            out = self.dir / f"{target}.npy"
            self.good("score", path, "--target", target, "--ids", ids, "--logits", out, "--splits",
                      splits)
            got.append(np.load(out))
        self.assertEqual(got[1].tobytes(), got[0].tobytes())
        self.assertGreater(len(np.unique(got[0])), 1000)

    def test_tiles(self):
        """Tiles of few and of many rows whose keys begin and end around multiples of a tile and of
        a split; with each feature."""
        path = self.dir / "layer.gq"
        for shape in TILES:
            with self.subTest(shape):
                path.write_text(layer(*shape))
                self.same(path, "62,1,1,1,3,7,436,1,1,9,500,1,2", 1100)

    def assert_via(self, dump, kernel, *ops):
        """Every node of these ops is computed by the kernel, and each op occurs."""
        for op in ops:
            lines = [line for line in dump.splitlines() if f" = {op} " in line]
            self.assertTrue(lines, op)
            for line in lines:
                self.assertIn(f'via "{kernel}"', line)

    def test_heads(self):
        """Heads that are read in a packed row, normalised, rotated and appended in one launch:
        types, sizes that are not a multiple of the lanes, partial and interleaved rotary
        embeddings, codes."""
        path = self.dir / "layer.gq"
        shapes = (("f32", 40, 6, 2, "", False, 20), ("f16", 18, 4, 2, ", rotary_interleaved=1", False, 9),
                  ("bf16", 24, 6, 3, "", True, 12), ("f32", 21, 4, 2, "", False, 0, 4, 42))
        for shape in shapes:
            with self.subTest(shape):
                path.write_text(layer(*shape, **{} if shape[7:] else {"norms": True}))
                self.same(path, "40,1,1,70,1", 130)
                dump = self.good("compile", path, "--target", "gpu", "--dump", "claim",
                                 "--stop-after", "claim").out
                self.assert_via(dump, "gpu.heads_append", "kv_append", "split_heads",
                                *(["rotary"] if shape[6] else ["kv_quantise"]),
                                *([] if shape[7:] else ["SimplifiedLayerNormalization", "Split"]))

    def test_codes(self):
        """Quantised caches, whose codes are on the device."""
        path = self.dir / "layer.gq"
        for size, bits, scales in ((16, 8, 1), (11, 4, 22), (24, 4, 1), *CODES):
            with self.subTest((size, bits, scales)):
                path.write_text(layer("f32", size, 6, 2, "", False, 0, bits, scales))
                self.same(path, "62,1,1,1,3,7,436,1,1,9,12,1,2", 560)
                dump = self.good("compile", path, "--target", "gpu", "--dump", "claim",
                                 "--stop-after", "claim").out
                self.assertIn('via "gpu.attention_codes"', dump)
                self.assert_via(dump, "gpu.heads_append", "kv_quantise", "kv_append")
        found = self.good("equiv", path, "--target", "gpu", "--tokens", "80", "--splits", "60,1,5",
                          "--batch", "3", "--via", "prefix", "--against", "cpu", "--format",
                          "json").json()
        self.assertEqual(found["differing"], 0, found)

    def test_kind_quantised(self):
        """Sequences of quantised kinds: the bits of cpu, and one copy to the host in each step, of
        codes and scales."""
        for name, kind in (("llama-fp16", "quantised"), ("llama-fp16", "quantised4"),
                           *[("qwen3", "quantised"), ("qwen3", "quantised4")] * FULL):
            with self.subTest((name, kind)):
                found = self.good("equiv", MODELS / name, "--target", "gpu", "--tokens", "40",
                                  "--kv", kind, "--splits", "9,15", "--batch", "2",
                                  "--against", "cpu", "--format", "json").json()
                self.assertEqual(found["differing"], 0, found)
                self.assertGreater(found["compared"], 10000)
                said = self.good("generate", MODELS / name, "--target", "gpu", "--prompt", "a b",
                                 "--kv", kind, "-n", "3", "-v").err
                last = [line for line in said.splitlines() if "copies of values" in line][-1]
                pairs = self.good("inspect", MODELS / name, "--kv", "--format",
                                  "json").json()["kv_pairs"]
                codes = {"quantised": 1, "quantised4": 2}[kind]  # of a byte; then a scale
                row = sum(p["heads"] * (p["head_size"] // codes + 4) for p in pairs)
                self.assertRegex(last, rf"values: 0 to the device, 0 bytes; 1 back, {row + 8} bytes")

    def test_layers_quantised(self):
        """Quantised kinds, with rows of each type: sizes that are not a multiple of the lanes or of
        two codes, and sizes with their own kernels."""
        path = self.dir / "layer.gq"
        for dtype, size, kind in (("bf16", 21, "quantised4"), ("f32", 40, "quantised"),
                                  *[("f16", 64, "quantised"), ("f16", 80, "quantised4"),
                                    ("f32", 128, "quantised4"), ("f32", 256, "quantised")] * FULL):
            with self.subTest((dtype, size, kind)):
                path.write_text(layer(dtype, size, 6, 2, uneven=True))
                found = self.good("equiv", path, "--target", "gpu", "--tokens", "140", "--kv", kind,
                                  "--splits", "62,1,1,70", "--batch", "2", "--against", "cpu",
                                  "--format", "json").json()
                self.assertEqual(found["differing"], 0, found)
                self.assertGreater(found["compared"], 10000)

    def test_ragged(self):
        """Prompts and single tokens of several sequences in one step."""
        path = self.dir / "layer.gq"
        path.write_text(layer("f32", 24, 6, 2, ", local_window_size=70", True))
        found = self.good("equiv", path, "--target", "gpu", "--tokens", "150", "--splits",
                          "60,1,5,63,1", "--batch", "4", "--against", "cpu", "--format",
                          "json").json()
        self.assertEqual(found["differing"], 0, found)
        self.assertGreater(found["compared"], 10000)

    def test_unread(self):
        """Keys and values that no attention reads are stored nevertheless."""
        path = self.dir / "unread.gq"
        path.write_text(UNREAD)
        found = self.good("equiv", path, "--target", "gpu", "--tokens", "70", "--splits", "60,5,5",
                          "--batch", "3", "--via", "import", "--against", "cpu", "--format",
                          "json").json()
        self.assertEqual(found["differing"], 0, found)
        self.assertGreater(found["compared"], 10000)

    def test_equiv(self):
        """Prompts in pieces, decode, ragged batches, forks and rewinds."""
        names = NAMES if FULL else ["llama", "gemma2", "gpt-oss", "llama-int4-acc4", "qwen3.5"]
        plans = (["--splits", "9,15", "--batch", "3"], ["--splits", "17", "--via", "decode"])
        if FULL:
            plans += ([],)  # every split
        for name in names:
            for plan in plans:
                with self.subTest((name, plan)):
                    found = self.good("equiv", MODELS / name, "--target", "gpu", "--tokens", "40",
                                      "--format", "json", *plan).json()
                    self.assertEqual(found["differing"], 0, found)
                    self.assertGreater(found["compared"], 0)
                    self.assertIn("/gpu/", found["profile"])

    def test_against_cpu(self):
        """The command by which a user compares two targets."""
        found = self.good("equiv", MODELS / "llama", "--target", "gpu", "--against", "cpu",
                          "--tokens", "40", "--splits", "9,15", "--format", "json").json()
        self.assertEqual(found["differing"], 0, found)

    def test_artefact(self):
        """An artefact for gpu runs there, and not on cpu."""
        out = self.dir / "m.gqac"
        self.good("compile", MODELS / "llama", "--target", "gpu", "-o", out)
        self.assertEqual(score(self, out, "gpu"), score(self, MODELS / "llama", "cpu"))
        self.check(gqac("score", out, "--target", "cpu", "--ids", self.dir / "ids.txt"), 2, "gpu")

    def test_claimed(self):
        """The nodes that this file tests are computed by the kernels."""
        text = self.good("compile", MODELS / "llama-int4-acc4", "--target", "gpu", "--dump",
                         "claim", "--stop-after", "claim").out
        for kernel in ("attention", "product_nbits"):
            self.assertIn(f'via "gpu.{kernel}"', text)
        text = self.good("compile", MODELS / "llama", "--target", "gpu", "--dump", "claim",
                         "--stop-after", "claim").out
        self.assertIn('via "gpu.product"', text)


@needs_device
class Attention(gqa.Nodes):
    """Nodes of GroupQueryAttention, generated as in test_gqa_ort.py."""

    test_x10_targets = test_fixed = test_fresh = None  # tests of the base class

    def test_bits_of_cpu(self):
        """Windows, softcap, sinks, bias, rotary, quantised caches: the defined rows."""
        pick, rng = random.Random(19), np.random.default_rng(19)
        nodes, compared = [], 0
        while len(nodes) < (12 if FULL else 3) * gqa.GROUP:
            node = gqa.Node(pick, rng)
            if "qk_output" not in node.attrs:  # such a node is expanded, see docs/numerics.md
                nodes.append(node)
        for i in range(0, len(nodes), gqa.GROUP):
            group = nodes[i:i + gqa.GROUP]
            for node, got, wanted in zip(group, self.ours(group, "gpu"), self.ours(group, "cpu")):
                for name, x, y in zip(node.outputs, got, wanted):
                    for a, b in self.rows_of(node, name, x, y):
                        self.assertEqual(a.tobytes(), b.tobytes(), f"{name}: {node}")
                        compared += a.size
        self.assertGreater(compared, 10000)


@needs_device
class Products(Case):
    """Products with constant weights."""

    def y(self, path, values, target, tool=harness.GQAC):
        """The bytes of the only output."""
        np.save(self.dir / "a.npy", values)
        subprocess.run([str(w) for w in (
            tool, "run", path, "--input", f"a={self.dir / 'a.npy'}", "-q", "--output",
            self.dir / target, "--target", target)],
            env=harness.environment(), check=True, timeout=600, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL)
        return np.load(self.dir / target / "y.npy").tobytes()

    def same(self, path, values, what):
        """gpu returns the bytes of cpu."""
        self.assertEqual(self.y(path, values, "gpu"), self.y(path, values, "cpu"), what)

    def test_nbits(self):
        """Bits, blocks, zero points, bias, element types, K with a remainder, K above 512; NaN."""
        rng = np.random.default_rng(5)
        sizes = (64, 5, 1), (600, 67, 3), (1100, 3, 6)
        for form, level, (k, n, m) in sample(itertools.product(FORMS, (0, 4), sizes), 5):
            node = NBits(rng, k, n, level=level, **form)
            values = node.rows(rng, m)
            path = node.write(self.dir)
            self.same(path, values, (form, level, k, n, m))
            values[0, 1], values[m - 1, 40] = np.nan, np.inf
            self.same(path, values, (form, level, k, n, m, "NaN"))

    def test_matmul(self):
        """fp32 and fp16 weights; numbers of rows around a multiple of the tile; more axes; NaN."""
        rng = np.random.default_rng(6)
        kinds = {np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16}
        for dtype, kind in kinds.items():
            for k, n, shape in ((1, 1, (1,)), (511, 7, (4,)), (513, 65, (5,)), (1030, 3, (2, 3)),
                                (40, 130, (0,))):
                w = rng.standard_normal((k, n)).astype(dtype)
                graph = helper.make_graph(
                    [helper.make_node("MatMul", ["a", "w"], ["y"])], "g",
                    [helper.make_tensor_value_info("a", kind, [*shape, k])],
                    [helper.make_tensor_value_info("y", kind, None)],
                    [numpy_helper.from_array(w, "w")])
                path = self.dir / "matmul.onnx"
                path.write_bytes(helper.make_model(
                    graph, opset_imports=[helper.make_opsetid("", 17)],
                    ir_version=10).SerializeToString())
                values = rng.standard_normal((*shape, k)).astype(dtype)
                self.same(path, values, (dtype, k, n, shape))
                if values.size:
                    values.flat[-1] = np.nan
                    self.same(path, values, (dtype, k, n, shape, "NaN"))


    # (K, N, M): few rows, and tiles of rows; pieces of K and their ends; numbers of columns that
    # are not a multiple of a tile or of 128 bits. One piece, and so many tiles that each group
    # computes all pieces.
    SIZES = ((511, 33, 17), (513, 130, 64), (512, 8, 16), (1024, 65, 1), (1025, 31, 2), (1536, 129, 65),
             (4099, 40, 1), (5000, 3, 4), (40, 200, 70), (7, 300, 33), (1040, 4240, 500))

    def linear(self, kind, w, rows):
        """A model with that weight: y = a times w, in that type, with casts to fp32 at both
        ends."""
        constant = numpy_helper.from_array(w, "w32")
        nodes = [helper.make_node("Cast", ["a"], ["x"], to=kind),
                 helper.make_node("Cast", ["w32"], ["w"], to=kind),
                 helper.make_node("MatMul", ["x", "w"], ["z"]),
                 helper.make_node("Cast", ["z"], ["y"], to=TensorProto.FLOAT)]
        graph = helper.make_graph(
            nodes, "g", [helper.make_tensor_value_info("a", TensorProto.FLOAT, [rows, len(w)])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [constant])
        path = self.dir / "linear.onnx"
        path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                           ir_version=10).SerializeToString())
        return path

    def test_tiles(self):
        """Each type of weight: few rows and tiles, pieces in parallel and one after another."""
        rng = np.random.default_rng(7)
        for kind in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16):
            for k, n, m in self.SIZES if kind == TensorProto.FLOAT else sample(self.SIZES, 3):
                w = rng.standard_normal((k, n)).astype(np.float32)
                values = rng.standard_normal((m, k)).astype(np.float32)
                with self.subTest((kind, k, n, m)):
                    path = self.linear(kind, w, m)
                    self.same(path, values, (kind, k, n, m))
                    values[m // 2, k // 2], values[-1, -1] = np.nan, -np.inf
                    self.same(path, values, (kind, k, n, m, "NaN"))

    def test_signs_of_zero(self):
        """Sums that are -0: products below the smallest float, before the end of K and of a
        piece."""
        for k in (5, 517, 1030):
            for m in (1, 3, 20):
                w, values = np.full((k, 9), -0.0, np.float32), np.zeros((m, k), np.float32)
                w[0], w[512::512], values[:] = -1e-30, -1e-30, 1e-30
                path = self.linear(TensorProto.FLOAT, w, m)
                self.same(path, values, (k, m))
                y = np.frombuffer(self.y(path, values, "gpu"), np.float32)
                self.assertTrue(np.signbit(y).all())

    def test_sums_beside(self):
        """So many tiles that groups add their pieces, with a 16-bit result; for floats and int8.
        The long tier has more rows than are computed at the same time."""
        rng = np.random.default_rng(12)
        n, m = (33000, 600) if FULL else (2430, 700)
        w = rng.standard_normal((520, n)).astype(np.float32)
        self.same(self.linear(TensorProto.FLOAT16, w, m),
                  rng.standard_normal((m, 520)).astype(np.float32), (n, m))
        node = NBits(rng, 544, n, level=4, half=True)
        self.same(node.write(self.dir), node.rows(rng, m), (n, m, "int8"))

    def test_control(self):
        """Adding the pieces in another order is detected: for few rows, for tiles, for int8."""
        rng = np.random.default_rng(10)
        tool = harness.CONTROLS / "GPU_PIECES_DESCEND"
        for m in (1, 20):
            w, values = rng.standard_normal((2000, 40)), rng.standard_normal((m, 2000))
            node = NBits(rng, 2000, 40, level=4)
            for path, x in ((self.linear(TensorProto.FLOAT, w.astype(np.float32), m), values),
                            (node.write(self.dir), node.rows(rng, m))):
                with self.subTest((path.name, m)):
                    expected = self.y(path, x.astype(np.float32), "cpu")
                    self.assertEqual(self.y(path, x.astype(np.float32), "gpu"), expected)
                    self.assertNotEqual(self.y(path, x.astype(np.float32), "gpu", tool), expected)

    def test_nbits_tiles(self):
        """Like test_tiles, for codes."""
        rng = np.random.default_rng(8)
        sizes = self.SIZES if FULL else ((1025, 31, 2), (1100, 130, 66))
        for form, level, (k, n, m) in sample(itertools.product(FORMS, (0, 4), sizes), 3):
            node = NBits(rng, k, n, level=level, **form)
            values = node.rows(rng, m)
            path = node.write(self.dir)
            self.same(path, values, (form, level, k, n, m))
            values[0, 1], values[m - 1, -1] = np.nan, np.inf
            self.same(path, values, (form, level, k, n, m, "NaN"))


# Projections of a mixture of experts: bits and block of the codes, or the type of floats; fc3; zero
# points.
EXPERTS = (dict(), dict(third=True), dict(half=True), dict(bits=4, block=16),
           dict(bits=4, block=0, zero=True), dict(bits=8, block=32, zero=True, third=True),
           dict(bits=2, block=64, zero=True), dict(bits=4, block=16, half=True, mix=True))
# Attributes of the activation, rows, experts of a row, experts, and sizes of a row and of its inner
# row.
ROUTES = ((dict(activation_type="silu"), 1, 1, 1, 16, 16),
          (dict(activation_type="relu", normalize_routing_weights=1), 9, 3, 5, 64, 576),
          (dict(activation_type="gelu"), 65, 2, 3, 576, 80),
          (dict(activation_type="identity"), 3, 4, 4, 64, 64),
          (dict(activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.702,
                activation_beta=1.0, swiglu_limit=0.8, normalize_routing_weights=1), 5, 2, 7, 64, 96),
          (dict(activation_type="swiglu", swiglu_fusion=2), 2, 3, 6, 80, 64),
          (dict(activation_type="silu"), 2, 2, 3, 1088, 64),  # three pieces of k
          # so many rows that they are sorted by expert: more and fewer than a tile for each
          (dict(activation_type="silu"), 90, 2, 3, 80, 144),
          (dict(activation_type="swiglu", swiglu_fusion=1), 40, 4, 64, 576, 64),
          (dict(activation_type="relu"), 70, 1, 2, 64, 16))


@needs_device
class Experts(Case):
    """Mixtures of experts with constant weights: MoE and QMoE."""

    @staticmethod
    def projection(rng, n, k, experts, form):
        """Weights, scales or None, bias or None and zero points or None of one projection."""
        kind = np.float16 if form.get("half") else np.float32
        bits, block = form.get("bits", 0), form.get("block", 0)
        bias = rng.standard_normal((experts, n)).astype(kind)
        if not bits:
            return (rng.standard_normal((experts, n, k)) * 0.2).astype(kind), None, bias, None
        blocks = k // block if block else 1
        zero = (experts, n, -(-blocks * bits // 8)) if block else (experts, -(-n * bits // 8))
        return (rng.integers(0, 256, (experts, n, k * bits // 8)).astype(np.uint8),
                (rng.random((experts, n, blocks) if block else (experts, n)) * 0.1).astype(kind),
                None if form.get("third") else bias,
                rng.integers(0, 256, zero).astype(np.uint8) if form.get("zero") else None)

    def write(self, rng, form, route):
        """A node, and inputs for it."""
        attributes, rows, k, experts, hidden, inner = route
        codes, kind = form.get("bits", 0), np.float16 if form.get("half") else np.float32
        fused = "swiglu_fusion" in attributes
        sizes = [(inner * (2 if fused else 1), hidden), (hidden, inner)]
        sizes += [(inner, hidden)] if form.get("third") and not fused else []
        fc = [self.projection(rng, *size, experts, form) for size in sizes]
        fc += [(None,) * 4] * (3 - len(fc))
        parts = [part for w, s, b, _ in fc for part in ((w, s, b) if codes else (w, b))]
        x = {"x": rng.standard_normal((rows, hidden)).astype(kind),
             "r": rng.integers(-3, 4, (rows, experts)).astype(kind)}  # many values are equal
        if codes:
            parts += [z for *_, z in fc]
            attributes = attributes | {"expert_weight_bits": codes}
            if form["block"]:
                attributes["block_size"] = form["block"]
            if form.get("mix"):
                x["m"] = rng.random((rows, experts)).astype(kind)
        names = [*"xr", *(f"c{i}" if part is not None else "" for i, part in enumerate(parts)),
                 *(["m"] if "m" in x else [])]
        graph = helper.make_graph(
            [helper.make_node("QMoE" if codes else "MoE", names, ["y"], domain="com.microsoft",
                              k=k, **attributes)], "g",
            [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
             for n, v in x.items()],
            [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(kind)),
                                           None)],
            [numpy_helper.from_array(part, f"c{i}") for i, part in enumerate(parts)
             if part is not None])
        path = self.dir / "moe.onnx"
        path.write_bytes(helper.make_model(
            graph, opset_imports=[helper.make_opsetid("com.microsoft", 1)],
            ir_version=10).SerializeToString())
        return path, x

    def y(self, path, x, target):
        """The bytes of the output, and stderr."""
        words = []
        for name, value in x.items():
            np.save(self.dir / f"{name}.npy", value)
            words += ["--input", f"{name}={self.dir / name}.npy"]
        done = self.good("run", path, *words, "--target", target, "--output", self.dir / target,
                         env={"GQAC_VERBOSE": "1"})
        return np.load(self.dir / target / "y.npy").tobytes(), done.err

    def test_bits_of_cpu(self):
        """Forms with routings (in the long tier all pairs); equal router values; NaN."""
        rng = np.random.default_rng(23)
        for form, route in sample(itertools.product(EXPERTS, ROUTES), 3):
            if any(size % (form.get("block", 0) or 16) for size in route[4:]):
                continue
            with self.subTest(form=form, route=route):
                path, x = self.write(rng, form, route)
                got, said = self.y(path, x, "gpu")
                self.assertEqual(got, self.y(path, x, "cpu")[0])
                self.assertIn("; 1 back", said)
                x["x"][0, 3], x["r"][-1, 0] = np.nan, np.nan
                self.assertEqual(self.y(path, x, "gpu")[0], self.y(path, x, "cpu")[0])


X = (3, 5, 37)  # for the graphs below: rows that are not a multiple of the 16 lanes
SHAPES = {"x": X, "s": X, "w": (37,), "h": (5, 37), "big": (2, 3000),
          # rows whose length is a multiple of four; rows longer than a tile, more rows or elements
          # than few
          "x4": (3, 5, 40), "s4": (3, 5, 40), "w4": (40,), "h4": (5, 40), "long": (2, 5002),
          "wl": (5002,), "many": (260, 20), "wm": (20,), "flat": (262150,), "one": ()}
GRAPHS = {  # text of nodes that compute y from x and others
    "RMSNormalization": "y = RMSNormalization(x, w)",
    "RMSNormalization of heads": "y = RMSNormalization <axis = -1, epsilon = 0.25> (x, h)",
    "RMSNormalization of two axes": "y = RMSNormalization <axis = 1> (x, h)",
    "LayerNormalization": "y, m, i = LayerNormalization(x, w, w)",
    "SimplifiedLayerNormalization": "y = SimplifiedLayerNormalization(x, w)",
    "SkipSimplifiedLayerNormalization":
        "y, m, i, t = com.microsoft.SkipSimplifiedLayerNormalization(x, s, w, w)",
    "SkipLayerNormalization": "y, m, i, t = com.microsoft.SkipLayerNormalization(x, s, w, w, w)",
    "broadcast": "a = Add(x, w)\n b = Sub(h, a)\n c = Mul(b, one)\n y = Div(c, s)",
    "unary": "a = Neg(x)\n b = Sigmoid(a)\n c = Sqrt(b)\n d = Tanh(c)\n y = Erf(d)",
    "gates": "a = Swish <alpha = 0.5> (x)\n b = Gelu(a)\n c = Gelu <approximate = \"tanh\"> (b)\n"
             "d = com.microsoft.QuickGelu(c)\n y = com.microsoft.FastGelu(d)",
    "Softmax": "a = Softmax(x)\n b = Softmax <axis = 1> (a)\n y = Softmax <axis = 0> (b)",
    "Softmax of long rows": "a = Mul(big, one)\n y = Softmax(a)",
    "a gate": "a = Swish <alpha = 0.5> (x)\n y = Mul(a, s)",
    "gates of all kinds": "a = Sigmoid(h)\n b = Mul(x, a)\n c = Tanh(w)\n d = Mul(c, b)\n e = Gelu(d)\n"
                          "f = Mul(e, one)\n g = com.microsoft.FastGelu(f)\n i = Mul(s, g)\n"
                          "k = Gelu <approximate = \"tanh\"> (i)\n l = Mul(k, h)\n"
                          "m = com.microsoft.QuickGelu(l)\n y = Mul(m, w)",
    "no gate": "a = Swish(x)\n b = Mul(a, s)\n c = Add(b, a)\n d = Sigmoid(c)\n e = Mul(d, d)\n"
               "f = Neg(e)\n y = Mul(f, s)",
    "fours": "a = Add(x4, w4)\n b = Sub(h4, a)\n c = Mul(b, one)\n d = Div(c, s4)\n e = Swish(d)\n"
             "f = Mul(e, x4)\n g, m, i, t = com.microsoft.SkipLayerNormalization(f, s4, w4, w4, w4)\n"
             "k = RMSNormalization <axis = 1> (t, h4)\n y = Add(g, k)",
    "long rows": "a = LayerNormalization(long, wl, wl)\n y = RMSNormalization(a, wl)",
    "many rows": "y = LayerNormalization(many, wm, wm)",
    "many elements": "a = Swish(flat)\n b = Mul(a, flat)\n c = Erf(b)\n y = Neg(c)",
    "between host and device": "a = Add(x, s)\n b = Round(a)\n c = Mul(b, x)\n d = Floor(c)\n"
                               "y = Add(d, a)",
}
def ints(*values):
    return f"Constant <value = int64[{len(values)}] {{{', '.join(map(str, values))}}}> ()"


# Ops that only move elements, between kernels of the device: the host copies only `x`, the inputs
# that a row names, and the result.
MOVES = {
    "Reshape": f"n = {ints(5, -1)}\n b = Reshape(a, n)\n c = Transpose(b)",
    "Transpose": "b = Transpose <perm = [2, 0, 1]> (a)\n c = Transpose <perm = [1, 0, 2]> (b)",
    "Slice": f"f = {ints(-1, 30)}\n t = {ints(-9, 2)}\n k = {ints(1, 2)}\n d = {ints(-2, -3)}\n"
             "b = Slice(a, f, t, k, d)\n c = Neg(b)",
    "Split": f"n = {ints(20, 3, 14)}\n b, u, c = Split <axis = -1> (a, n)\n"
             "d, c2 = Split <axis = 1, num_outputs = 2> (b)\n e = Neg(c)",
    "Concat": "b = Concat <axis = 1> (a, s, a)\n c = Neg(b)",
    "Expand and Tile": f"m = {ints(2, 3, 5, 37)}\n b = Expand(a, m)\n r = {ints(1, 2, 1, 3)}\n"
                       "c = Tile(b, r)",
    "rows of fours": f"f = {ints(0)}\n t = {ints(32)}\n d = {ints(2)}\n b = Slice(a, f, t, d)\n"
                     "u = Transpose <perm = [1, 0, 2]> (b)\n c = Concat <axis = 1> (u, u)",
    "axes": f"m = {ints(0, 2)}\n b = Unsqueeze(a, m)\n d = Squeeze(b, m)\n e = Identity(d)\n"
            "c = Flatten(e)",
}


# Searches among many equal elements, whose indices the host casts.
ORDERS = {
    "TopK": f"k = {ints(7)}\n v, i = TopK(x, k)",
    "TopK of the least": f"k = {ints(4)}\n v, i = TopK <axis = 1, largest = 0> (x, k)",
    "TopK of all": f"k = {ints(37)}\n v, i = TopK <sorted = 0> (x, k)",
    "TopK of long rows": f"k = {ints(1000)}\n v, i = TopK(big, k)",
    "ArgMax": "v = Neg(x)\n i = ArgMax <axis = -1> (v)",
    "ArgMax, the last": "v = Neg(x)\n i = ArgMax <axis = 0, keepdims = 0, select_last_index = 1> (v)",
    "ArgMin of long rows": "v = Neg(big)\n i = ArgMin <axis = 1> (v)",
}
HOST = ("Round", "Floor")  # ops without a kernel
# Chains of elementwise ops, and the number of nodes in one kernel.
CHAINS = {
    "softcap": ("c = Constant <value = float {2.5}> ()\n a = Div(x, c)\n b = Tanh(a)\n y = Mul(c, b)", 3),
    "rows": (f"r = Constant <value = float[37] {{{', '.join(str(i / 7 - 2) for i in range(37))}}}> ()\n"
             "a = Add(x, r)\n b = Sub(r, s)\n c = Div(a, b)\n d = Sqrt(c)\n e = Neg(d)\n f = Erf(e)\n"
             "y = Mul(f, a)", 7),
    "fours": (f"r = Constant <value = float[40] {{{', '.join(str(i / 7 - 2) for i in range(40))}}}> ()\n"
              "a = Add(x4, r)\n b = Sub(r, s4)\n y = Div(a, b)", 3),
    "types": ("a = Cast <to = 10> (x)\n b = Cast <to = 10> (s)\n c = Add(a, b)\n d = Swish(c)\n"
              "e = Mul(d, a)\n f = Cast <to = 16> (e)\n g = Gelu(f)\n i = Cast <to = 1> (g)\n"
              "k = Gelu <approximate = \"tanh\"> (i)\n y = com.microsoft.FastGelu(k)", 10),
    "long": ("a0 = Neg(x)\n" + "\n".join(f"a{i + 1} = {'Add' if i % 2 else 'Mul'}(a{i}, s)"
                                         for i in range(19)) + "\n y = com.microsoft.QuickGelu(a19)", 21),
    "values of 16 bits": ("p = Cast <to = 16> (x)\n n = Softmax(p)\n q = Mul(n, p)\n t = Sigmoid(q)\n"
                          "v = Softmax(t)\n y = Cast <to = 1> (v)", 2),
}

# Rows of a constant, by indices on the host: -3 to 3, and 0 for NaN.
GATHER = f"""
    lowest = Constant <value = float {{-3}}> ()
    highest = Constant <value = float {{3}}> ()
    k = Constant <value = float[8,3,5] {{{', '.join(str(i * 0.37 - 20) for i in range(120))}}}> ()
    c = Clip(w, lowest, highest)
    i = Cast <to = 7> (c)
    g = Gather(k, i)
    y = Neg(g)
"""
# Bodies of Loop and Scan, whose inputs the host writes again in each iteration.
LOOP = """
    trips = Constant <value = int64 {6}> ()
    go = Constant <value = bool {1}> ()
    last, all = Loop (trips, go, x) <body = step (int64 i, bool c, float[3,5,37] v)
            => (bool c2, float[3,5,37] t, float[3,5,37] u) {
        c2 = Identity(c)
        w2 = Tanh(v)
        t = Add(w2, v)
        u = Identity(t)
    }>
    y = Add(all, last)
"""
SCAN = """
    last, all = Scan <num_scan_inputs = 1, body = step (float[5,37] v, float[5,37] row)
            => (float[5,37] t, float[5,37] u) {
        t = Add(v, row)
        u = Mul(t, row)
    }> (h, x)
    y = Add(all, last)
"""


@needs_device
class Values(Case):
    """Kernels of rows and elements, whose values stay on the device."""

    def write(self, name, text, types=()):
        """The model of a text of nodes; its inputs are those that occur in the text."""
        used = [n for n in SHAPES if any(f"{n}{end}" in text for end in (",", ")"))
                and any(f"{begin}{n}" in text for begin in ("(", " "))]
        shape = {n: ",".join(map(str, SHAPES[n])) for n in used}
        inputs = ", ".join(f"float[{shape[n]}] {n}" if shape[n] else f"float {n}" for n in used)
        path = self.dir / f"{name.replace(' ', '_')}.onnx"
        onnx.save(onnx.parser.parse_model(
            f"<ir_version: 10, opset_import: ['' : 24, 'com.microsoft' : 1]>\n"
            f"g ({inputs}) => (float y) {{\n {text} \n}}".replace("'", '"')), path)
        model = onnx.load(path)
        model.graph.output[0].type.tensor_type.ClearField("shape")
        onnx.save(model, path)
        return path, used

    @staticmethod
    def moves(name):
        """The nodes of a row of MOVES; the last one is y."""
        last = MOVES[name].split("\n")[-1].split("=")[0].split(",")[-1].strip()
        return f"a = Neg(x)\n {MOVES[name]}\n y = Neg({last})"

    @staticmethod
    def narrow(text, kind):
        """The same nodes with 16-bit values: inputs are cast to them, and y is cast back."""
        inner = re.sub(rf"\b({'|'.join(SHAPES)}|y)\b(?! ?<)", r"\1_", text)
        used = sorted({n for n in SHAPES if re.search(rf"\b{n}_\b", inner)})
        casts = "\n".join(f"{n}_ = Cast <to = {kind}> ({n})" for n in used)
        return f"{casts}\n {inner}\n y = Cast <to = 1> (y_)"

    def outputs(self, path, used, target, values, **env):
        """The bytes of y, and stderr."""
        words = []
        for name in used:
            np.save(self.dir / f"{name}.npy", values[name])
            words += ["--input", f"{name}={self.dir / name}.npy"]
        done = self.good("run", path, "--target", target, "-q", "--output", self.dir / target,
                         *words, env=env)
        return np.load(self.dir / target / "y.npy").tobytes(), done.err

    def each(self):
        """(name, path, inputs, their values) for all graphs; then NaN and infinities in the
        first."""
        rng = np.random.default_rng(12)
        moves = ((name, self.moves(name)) for name in MOVES)
        wide = (*GRAPHS.items(), *moves)
        narrow = ((f"{name} {kind}", self.narrow(text, kind)) for name, text in wide
                  for kind in (TensorProto.FLOAT16, TensorProto.BFLOAT16))
        for name, text in (*wide, ("Loop", LOOP), ("Scan", SCAN), ("Gather", GATHER),
                           *sample(narrow, 3)):
            path, used = self.write(name, text)
            values = {n: rng.standard_normal(SHAPES[n]).astype(np.float32) for n in used}
            yield name, path, used, values
            first = values[used[0]].reshape(-1)
            first[1], first[-1], first[len(first) // 2] = np.nan, np.inf, -0.0
            yield f"{name}, NaN", path, used, values

    def test_bits_of_cpu(self):
        """Norms, broadcasting, activations, loops."""
        for name, path, used, values in self.each():
            with self.subTest(name):
                self.assertEqual(self.outputs(path, used, "gpu", values)[0],
                                 self.outputs(path, used, "cpu", values)[0])

    def test_claimed(self):
        """The nodes of these graphs are run by the device, in fp32 and fp16."""
        narrow = [(f"{name} 16", self.narrow(text, TensorProto.FLOAT16))
                  for name, text in GRAPHS.items()]
        for name, text in (*GRAPHS.items(), *narrow):
            path, _ = self.write(name, text)
            dump = self.good("compile", path, "--stateless", "--target", "gpu", "--dump", "claim",
                             "--stop-after", "claim").out
            self.assertIn('via "gpu.', dump)
            for line in dump.splitlines():
                if " via " in line and not any(f"= {op} " in line for op in HOST):
                    self.assertNotIn("gpu.generic", line)

    def orders(self):
        """(name, type, path, inputs, their values) for ORDERS: many equal elements, zeros of both
        signs, NaN and infinities."""
        rng = np.random.default_rng(14)
        for name, text in ORDERS.items():
            for kind in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16):
                begin, cast = ("big", "big_") if "big" in text else ("x", "x_")
                nodes = re.sub(rf"\b{begin}\b", cast, text)
                path, used = self.write(f"{name} {kind}", (
                    f"{cast} = Cast <to = {kind}> ({begin})\n {nodes}\n"
                    f"f = Cast <to = 1> (v)\n g = Cast <to = 1> (i)\n n = {ints(-1)}\n"
                    "p = Reshape(f, n)\n q = Reshape(g, n)\n y = Concat <axis = 0> (p, q)"))
                values = np.round(rng.standard_normal(SHAPES[begin]) * 2).astype(np.float32)
                values.flat[[1, 2, 40]] = np.nan, np.inf, -np.inf
                values.flat[5::7] *= -1
                yield name, kind, path, used, {begin: values}

    def test_orders(self):
        """TopK, ArgMax and ArgMin in three types."""
        for name, kind, path, used, values in self.orders():
            with self.subTest(name, kind=kind):
                dump = self.good("compile", path, "--stateless", "--target", "gpu", "--dump",
                                 "claim", "--stop-after", "claim").out
                self.assertIn(f'via "gpu.{"top" if "TopK" in name else "arg"}"', dump)
                got, wanted = (self.outputs(path, used, target, values)[0]
                               for target in ("gpu", "cpu"))
                self.assertEqual(got, wanted)

    def tables(self):
        """(what, path) for rows of tables of codes: bits, rows that end within a byte, zero points,
        types, entries of several rows, indices that are negative or out of range."""
        rng = np.random.default_rng(15)
        for bits, kind, entry, block, zero, dtype in (
                (4, "U8", (20,), 16, True, np.float32), (2, "U8", (7,), 16, False, np.float16),
                (8, "U8", (50,), 32, True, np.float32), (4, "UINT4", (37,), 16, True, np.float32),
                (4, "INT4", (3, 21), 16, False, np.float16)):
            each = 8 // bits if kind == "U8" else 1
            codes = entry[-1] * each
            blocks = -(-codes // block)
            zero_row = -(-blocks * bits // 8) if kind == "U8" else blocks
            def codes_of(name, shape):
                least, most = {"U8": (0, 256), "UINT4": (0, 16), "INT4": (-8, 8)}[kind]
                numbers = rng.integers(least, most, shape)
                if kind == "U8":
                    return numpy_helper.from_array(numbers.astype(np.uint8), name)
                return helper.make_tensor(name, getattr(TensorProto, kind), shape, numbers.flatten())
            constants = [codes_of("d", (9, *entry)), numpy_helper.from_array(
                rng.standard_normal((9, *entry[:-1], blocks)).astype(dtype), "s"),
                         numpy_helper.from_array(np.array([[0, 8, -1], [3, -9, 5]]), "i")]
            constants += [codes_of("z", (9, *entry[:-1], zero_row))] if zero else []
            graph = helper.make_graph(
                [helper.make_node("Cast", ["x"], ["n"], to=TensorProto.INT64),
                 helper.make_node("Add", ["n", "i"], ["j"]),
                 helper.make_node("GatherBlockQuantized", ["d", "j", "s"] + ["z"] * zero, ["g"],
                                  domain="com.microsoft", bits=bits, block_size=block,
                                  gather_axis=0, quantize_axis=len(entry)),
                 helper.make_node("Cast", ["g"], ["y"], to=TensorProto.FLOAT)], "g",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants)
            path = self.dir / f"table{bits}{kind}.onnx"
            path.write_bytes(helper.make_model(
                graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(
                    "com.microsoft", 1)], ir_version=10).SerializeToString())
            yield (bits, kind), path

    def test_tables(self):
        """Rows of block-quantised tables; 100 is out of range and results in zeros."""
        for what, path in self.tables():
            with self.subTest(what):
                dump = self.good("compile", path, "--stateless", "--target", "gpu", "--dump",
                                 "claim", "--stop-after", "claim").out
                self.assertIn('via "gpu.gather_codes"', dump)
                values = {"x": np.array([[0, 0, 0], [0, 100, -2]], np.float32)}
                got, wanted = (self.outputs(path, ["x"], target, values)[0]
                               for target in ("gpu", "cpu"))
                self.assertEqual(got, wanted)
                self.assertGreater(len(np.unique(np.frombuffer(got, np.float32))), 15)

    def chains(self):
        """(name, nodes, path, inputs, their values) for CHAINS, with NaN and infinities."""
        rng = np.random.default_rng(16)
        for name, (text, nodes) in CHAINS.items():
            path, used = self.write(name, text)
            values = {n: rng.standard_normal(SHAPES[n]).astype(np.float32) for n in used}
            first = values[used[0]].reshape(-1)
            first[1], first[-1], first[len(first) // 2] = np.nan, np.inf, -0.0
            yield name, nodes, path, used, values

    def test_chains(self):
        """Several elementwise ops are one kernel: constants, types, more nodes than a group can
        have."""
        for name, nodes, path, used, values in self.chains():
            with self.subTest(name):
                dump = self.good("compile", path, "--stateless", "--target", "gpu", "--dump",
                                 "claim", "--stop-after", "claim").out
                self.assertEqual(dump.count('via "gpu.chain"'), nodes, dump)
                self.assertEqual(self.outputs(path, used, "gpu", values)[0],
                                 self.outputs(path, used, "cpu", values)[0])

    def test_gates(self):
        """An activation that is read only by one Mul is computed with it."""
        for name, gates in ("a gate", 1), ("gates of all kinds", 6), ("no gate", 0):
            path, _ = self.write(name, GRAPHS[name])
            dump = self.good("compile", path, "--stateless", "--target", "gpu", "--dump", "claim",
                             "--stop-after", "claim").out
            self.assertEqual(dump.count('via "gpu.gate"'), 2 * gates, dump)

    def test_moves(self):
        """Ops that only move elements are run on the device."""
        rng = np.random.default_rng(13)
        for name in MOVES:
            with self.subTest(name):
                path, used = self.write(name, self.moves(name))
                values = {n: rng.standard_normal(SHAPES[n]).astype(np.float32) for n in used}
                said = self.outputs(path, used, "gpu", values, GQAC_VERBOSE="1")[1]
                self.assertIn(f"values: {len(used)} to the device", said)
                self.assertRegex(said, r"; 1 back")

    def test_copies(self):
        """A decode step copies its new rows and the next id together, the logits if their
        probabilities are wanted, and no value to the device."""
        for name in ("llama", "llama-fp16", "llama-int4-acc4", "gemma2", "qwen2", "qwen3", "gpt-oss",
                     "phi3"):
            with self.subTest(name):
                bytes_back = []
                for flag, back in (("-v", "1"), ("--log-steps", "2"))[:1 + (name == "llama" or FULL)]:
                    said = self.good("generate", MODELS / name, "--target", "gpu", "--prompt",
                                     "a b", "-n", "3", "-v", flag).err
                    last = [line for line in said.splitlines() if "copies of values" in line][-1]
                    found = re.search(r"values: (\d+) to the device, .*; (\d+) back, (\d+) bytes",
                                      last)
                    self.assertEqual((found[1], found[2]), ("0", back), last)
                    bytes_back.append(int(found[3]))
                if name == "llama":
                    self.assertEqual(bytes_back[1] - bytes_back[0], 258 * 4 - 8)  # logits instead
                                                                                  # of an id


# Logits are the newest id times a vector of 600 numbers, whose maximum occurs three times: twice
# for the same item of a group, and once for another.
EQUAL = [9 if i in (45, 46, 400) else i % 7 - 3 for i in range(600)]
FLAT = UNREAD.replace("[80]", "[600]").replace("[B,S,80]", "[B,S,600]").replace(
    ", ".join(map(str, range(80))), ", ".join(map(str, EQUAL)))


@needs_device
class Choices(Case):
    """The next id, chosen by the device; test/targets/test_gpu_top.c compares all settings."""

    def test_control(self):
        """Of equal logits the first is chosen, and a kernel that chooses the last is detected."""
        path, found = self.dir / "flat.gq", []
        path.write_text(FLAT)
        (self.dir / "ids.txt").write_text("3 9 4")
        for tool in harness.GQAC, harness.CONTROLS / "GPU_LAST_OF_EQUAL":
            done = subprocess.run(
                [str(w) for w in (tool, "generate", path, "--target", "gpu", "--ids",
                                  self.dir / "ids.txt", "-n", "1", "-q")],
                env=harness.environment(), check=True, timeout=600, stdin=subprocess.DEVNULL,
                capture_output=True, text=True)
            found.append(done.stdout.strip())
        self.assertEqual(found, ["45", "400"])


ICD = Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")


@unittest.skipUnless(FULL and ICD.exists(), "Debian's oclgrind, and the long tier")
class Simulated(Case):
    """The kernels in Oclgrind, which reports accesses out of bounds and data races."""

    def simulator(self):
        """The environment in which Oclgrind is the only device."""
        (self.dir / "oclgrind.icd").write_text(f"{ICD}\n")
        return {"OCL_ICD_VENDORS": str(self.dir), "GQAC_GPU_ANY_DEVICE": "1",
                "OCLGRIND_DATA_RACES": "1", "OCLGRIND_CHECK_API": "1",
                "OCLGRIND_LOCAL_MEM_SIZE": str(48 << 10)}

    def report(self, path, values, tool=None):
        """The report of Oclgrind for one run; the bits must be those of cpu."""
        np.save(self.dir / "a.npy", values)
        words = [tool or harness.GQAC, "run", path, "--input", f"a={self.dir / 'a.npy'}", "-q",
                 "--output", self.dir / "out", "--target"]
        env = harness.environment(self.simulator())
        found = []
        for target in ("gpu", "cpu"):
            done = subprocess.run([str(w) for w in (*words, target)], env=env, text=True,
                                  capture_output=True, check=True, timeout=600)
            found.append((np.load(self.dir / "out" / "y.npy").tobytes(), done.stderr))
        if tool is None:
            self.assertEqual(found[0][0], found[1][0], path)
        return found[0][1]

    def test_products(self):
        """24 forms of quantised weights, in few rows and in a tile."""
        rng = np.random.default_rng(8)
        for form in FORMS:
            for level in (0, 4):
                for m in (1, 3, 17):
                    node = NBits(rng, 160, 5, level=level, **form)
                    with self.subTest((form, level, m)):
                        self.assertEqual(self.report(node.write(self.dir), node.rows(rng, m)), "")

    def test_tiles(self):
        """Weights of each float type: ends of rows, columns, k and pieces."""
        products, rng = Products(), np.random.default_rng(9)
        products.dir = self.dir
        for kind in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16):
            for k, n, m in ((519, 37, 1), (519, 37, 3), (519, 37, 18), (33, 130, 66)):
                w = rng.standard_normal((k, n)).astype(np.float32)
                with self.subTest((kind, k, n, m)):
                    values = rng.standard_normal((m, k)).astype(np.float32)
                    self.assertEqual(self.report(products.linear(kind, w, m), values), "")

    def test_attention(self):
        """A step of each model with different attention."""
        ids = self.dir / "ids.txt"
        ids.write_text("1 2 3 4 5")
        for name in ("llama", "gpt-oss", "gemma2", "llama-fp16", "phi3"):
            with self.subTest(name):
                done = self.good("score", MODELS / name, "--target", "gpu", "--ids", ids,
                                 "--splits", "2", "-q", env=self.simulator())
                self.assertEqual(done.err, "")

    def test_blocks(self):
        """A table of blocks: rows of each type and codes, a prompt over three blocks, and decode;
        heads with their own kernels."""
        ids = self.dir / "ids.txt"
        ids.write_text(" ".join(str(5 * i % 31) for i in range(142)))
        layers = [(dtype, 8, 4, 2) for dtype in ("f32", "f16", "bf16")]
        layers += [("f16", 9, 4, 2, "", True, 3, 0, 1, True), ("f32", 8, 4, 2, "", False, 4, 8, 1, True)]
        layers += [("f32", 9, 4, 2, "", True, 0, 4, 18), ("f16", 64, 2, 1),
                   ("f32", 64, 2, 1, ", softcap=2.0", False, 8, 8)]
        for shape in layers:
            with self.subTest(shape):
                path, got = self.dir / "layer.gq", []
                path.write_text(layer(*shape))
                for target in ("gpu", "cpu"):
                    out = self.dir / f"{target}.npy"
                    done = self.good("score", path, "--target", target, "--ids", ids, "--logits",
                                     out, "--splits", "62,1,1,1,76", "-q", seconds=600,
                                     env=self.simulator())
                    self.assertEqual(done.err, "")
                    got.append(np.load(out).tobytes())
                self.assertEqual(got[0], got[1])

    def test_choices(self):
        """The next id: the best, and the likeliest."""
        path, ids = self.dir / "flat.gq", self.dir / "ids.txt"
        path.write_text(FLAT)
        ids.write_text("3 9 4")
        for flags in [], ["--top-k", "30", "--seed", "5"]:
            with self.subTest(flags):
                words = ["generate", path, "--ids", ids, "-n", "2", "-q", *flags, "--target"]
                done = self.good(*words, "gpu", env=self.simulator())
                self.assertEqual((done.out, done.err), (self.good(*words, "cpu").out, ""))

    def test_orders(self):
        """TopK, ArgMax and ArgMin."""
        values = Values()
        values.dir = self.dir
        env = self.simulator()
        for name, kind, path, used, given in values.orders():
            if kind == TensorProto.FLOAT:
                with self.subTest(name):
                    self.assertEqual(values.outputs(path, used, "gpu", given, **env)[1], "")

    def test_chains(self):
        """Chains of elementwise ops."""
        values = Values()
        values.dir = self.dir
        for name, _, path, used, given in values.chains():
            with self.subTest(name):
                self.assertEqual(values.outputs(path, used, "gpu", given, **self.simulator())[1], "")

    def test_tables(self):
        """Rows of block-quantised tables."""
        values = Values()
        values.dir = self.dir
        for what, path in values.tables():
            with self.subTest(what):
                given = {"x": np.array([[0, 0, 0], [0, 100, -2]], np.float32)}
                self.assertEqual(
                    values.outputs(path, ["x"], "gpu", given, **self.simulator())[1], "")

    def test_values(self):
        """Norms and elementwise ops."""
        env = self.simulator()
        values = Values()
        values.dir = self.dir
        for name, path, used, given in values.each():
            with self.subTest(name):
                self.assertEqual(values.outputs(path, used, "gpu", given, **env)[1], "")

    def test_control(self):
        """A kernel that reads after the end is reported."""
        node = NBits(np.random.default_rng(8), 160, 5, level=0)
        tool = harness.CONTROLS / "GPU_ROWS_AFTER_END"
        values = node.rows(np.random.default_rng(9), 3)
        self.assertIn("Invalid read", self.report(node.write(self.dir), values, tool))


class Devices(Case):
    """The output of `gqac devices`, and --device."""

    @needs_device
    def test_list(self):
        """Every device in both forms, numbered from 0."""
        rows = self.good("devices", "--format", "json").json()
        self.assertEqual([row["index"] for row in rows], list(range(len(rows))))
        text = self.good("devices").out.splitlines()
        self.assertEqual(len(text), len(rows) + 1)
        for row, line in zip(rows, text[1:]):
            self.assertTrue(line.startswith(str(row["index"])), line)
            self.assertGreater(row["memory"], 0)
            self.assertEqual(row["usable"], not row["lacks"])

    @needs_device
    def test_no_such_device(self):
        """Exit 77, and the list of devices."""
        self.check(gqac("run", MODELS / "llama", "--target", "gpu", "--device", "99"), 77,
                   "no device 99", "numbered from 0")

    def test_no_driver(self):
        """Exit 77 without any CUDA device or OpenCL driver, for every verb; other targets do not
        look for devices."""
        env = {"OCL_ICD_VENDORS": str(self.dir), "OCL_ICD_FILENAMES": "", "CUDA_VISIBLE_DEVICES": "-1"}
        for words in (["devices"], ["score", MODELS / "llama", "--target", "gpu", "--text", "a b"],
                      ["compile", MODELS / "llama", "--target", "gpu", "-o", self.dir / "m.gqac"]):
            self.check(gqac(*words, env=env), 77, "no device", "opencl")
        self.assertFalse((self.dir / "m.gqac").exists())
        self.check(gqac("inspect", MODELS / "llama", env=env), 0)

    def test_flag(self):
        """--device applies only to gpu, and is a number."""
        self.check(gqac("score", MODELS / "llama", "--device", "0", "--text", "a b"), 2, "--target")
        self.check(gqac("score", MODELS / "llama", "--target", "gpu", "--device", "x", "--text",
                        "a b"), 2, "--device")


if __name__ == "__main__":
    sys.exit(harness.main())
