#!/usr/bin/env python3
"""`gqac rewrite --pass two-graph` (rows M1, M2, M3, M11, M12, M14, M19, M21) in ONNX Runtime.

The prefill graph takes a whole prompt, the decode graph one token after its caches. Together they
must compute the logits of the original model in ONNX Runtime, for exports of several families.
test/runtime/test_two_graph.c tests them in gqac, through its API.
"""

import sys

import numpy as np
import onnx
from onnx import numpy_helper

import decoders
import harness
from decoders import Decoder
from harness import Case, gqac
from ortref import Runner
from test_exported_forms import Exported
from test_insert_kv import names, session

MODELS = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gpt-oss")
PROMPT, TOKENS, ROOM = 9, 21, 24


UNKNOWN_ROWS = """graph @tg(%input_ids: i64[B,S], %k: f32[*], %v: f32[*]) {
  const %embed: f32[2,8] = sha256 0123456789abcdef
  %q = Gather %embed, %input_ids : f32[B,S,8]
  %y = Attention %q, %k, %v {scale=0.5, is_causal=1, q_num_heads=2, kv_num_heads=2} : f32[B,S,8]
  return %y as "logits"
}
"""
# Positions that differ from those of the input.
SHIFTED = """graph @pid(%input_ids: i64[B,S], %past_key: f32[B,1,P,2],
    %past_value: f32[B,1,P,2], %seqlens_k: i32[B], %total: i32[],
    %position_ids: i64[B,S]) {
  const %embed: f32[4,6] = sha256 0123456789abcdef
  const %cos: f32[4,1] = [1.0, 0.5, 0.25, 0.125]
  const %sin: f32[4,1] = [0.0, 0.5, 0.75, 0.875]
  const %two: i64[] = 2
  %x = Gather %embed, %input_ids : f32[B,S,6]
  %pos = Add %position_ids, %two : i64[B,S]
  %y, %k, %v = com.microsoft.GroupQueryAttention %x, _, _, %past_key,
    %past_value, %seqlens_k, %total, %cos, %sin, %pos {num_heads=1, kv_num_heads=1, do_rotary=1}
    : f32[B,S,2], f32[B,1,P+S,2], f32[B,1,P+S,2]
  return %y as "logits", %k as "present_key", %v as "present_value"
}
"""


class TwoGraph(Case):
    """Both files of a model."""

    def setUp(self):
        super().setUp()
        self.out = self.dir / "two.onnx"
        self.prefill, self.decode = (self.dir / f"two.{p}.onnx" for p in ("prefill", "decode"))

    def rewrite(self, path):
        """Writes the two files."""
        return self.good("rewrite", path, "--pass", "two-graph", "-o", self.out, "--format",
                         "json").json()

    def run_both(self, ids):
        """The logits of the prompt's last token, then of each further one."""
        first, then = session(self.prefill), session(self.decode)
        outputs = names(first.get_outputs())
        got = dict(zip(outputs, first.run(None, {"input_ids": ids[None, :PROMPT]}), strict=True))
        rows = [got["logits"][0]]
        caches = {}
        for name in outputs[1:]:
            batch, heads, _, size = got[name].shape
            caches[name] = np.full((batch, heads, ROOM, size), 7e3, got[name].dtype)
            caches[name][:, :, :PROMPT] = got[name]
        for at in range(PROMPT, len(ids)):
            feeds = {"input_ids": ids[None, at:at + 1], "kv_pos": np.array([at]), **caches}
            out = dict(zip(names(then.get_outputs()), then.run(None, feeds), strict=True))
            rows.append(out["logits"][0])
            for name, cache in caches.items():
                kept = np.arange(ROOM) != at
                self.assertTrue((out[f"{name}.out"][:, :, kept] == cache[:, :, kept]).all())
            caches = {name: out[f"{name}.out"] for name in caches}
        return np.concatenate(rows)

    def exported(self, name):
        """An export of the builder."""
        path = harness.model(name)
        done = self.rewrite(path)
        self.assertEqual(done["files"], [str(self.prefill), str(self.decode)])
        self.assertFalse(self.out.exists())
        ids = np.array([i * 7 % 50 + 3 for i in range(TOKENS)], np.int64)
        expected = Runner(path).score(ids)[PROMPT - 1:]
        self.close(self.run_both(ids), expected, 2e-5, name)

    def test_sinks(self):
        """Sinks become a factor of the result: those of the model, and of smooth_softmax, together
        with a softcap."""
        for sink, softcap in ((True, 1.5), (False, 0.0), (False, 1.5)):
            model = onnx.load(harness.model("gpt-oss"))
            for node in model.graph.node:
                if node.op_type != "GroupQueryAttention":
                    continue
                kept = [a for a in node.attribute if a.name not in ("softcap", "smooth_softmax")]
                del node.attribute[:]
                node.attribute.extend(kept)
                node.attribute.append(onnx.helper.make_attribute("softcap", softcap))
                if not sink:
                    del node.input[11:]
                    node.attribute.append(onnx.helper.make_attribute("smooth_softmax", 1))
            onnx.save(model, self.dir / "model.onnx")
            self.rewrite(self.dir / "model.onnx")
            ids = np.array([i * 7 % 50 + 3 for i in range(TOKENS)], np.int64)
            expected = Runner(self.dir / "model.onnx").score(ids)[PROMPT - 1:]
            self.close(self.run_both(ids), expected, 2e-5, (sink, softcap))

    def test_cohere(self):
        """As traced by Optimum: angles are a product of matrices, norms have a scale for heads."""
        path = self.dir / "model.onnx"
        Exported("cohere").save(path)
        self.rewrite(path)
        ids = np.array([i * 7 % 50 + 3 for i in range(TOKENS)], np.int64)
        self.close(self.run_both(ids), Runner(path).score(ids)[PROMPT - 1:], 2e-5, "cohere")

    def test_experts_written_out(self):
        """Qwen3-MoE from Optimum: the reason is that tokens are selected, not the positions."""
        path = self.dir / "model.onnx"
        Exported("experts").save(path)
        self.check(gqac("rewrite", path, "--pass", "two-graph", "-o", self.out), 3, "NonZero",
                   "selects tokens by their values", "op MoE")

    def test_m1_weights(self):
        """Both graphs have the same initializers, weights of the model, with the same names and bytes."""
        for name in ("qwen3", "gpt-oss"):
            self.rewrite(harness.model(name))
            both = [{w.name: numpy_helper.to_array(w).tobytes()
                     for w in onnx.load(p).graph.initializer} for p in (self.prefill, self.decode)]
            self.assertEqual(*both)
            own = {w.name: numpy_helper.to_array(w).tobytes()
                   for w in onnx.load(harness.model(name)).graph.initializer}
            self.assertTrue(set(both[0].items()) <= set(own.items()))
            self.assertGreater(len(both[0]), 20)

    def test_m3_m14_shapes_and_ops(self):
        """The inputs, outputs and ops of each graph."""
        self.rewrite(harness.model("llama"))
        first, then = (onnx.load(p) for p in (self.prefill, self.decode))
        for m in (first, then):
            onnx.checker.check_model(m)
        shapes = {v.name: [d.dim_value or d.dim_param for d in v.type.tensor_type.shape.dim]
                  for v in then.graph.input}
        self.assertEqual(names(first.graph.input), ["input_ids"])
        self.assertEqual(names(then.graph.input),
                         ["input_ids", "kv_pos"] + [f"kv_cache.layer.{i}.{p}" for i in (0, 1)
                                                    for p in "kv"])
        self.assertEqual(shapes["input_ids"][1], 1)
        self.assertEqual(shapes["kv_cache.layer.1.v"][1:], [2, "max_sequence_length", 32])
        self.assertEqual(names(then.graph.output)[1], "kv_cache.layer.0.k.out")
        logits = [[d.dim_value or d.dim_param for d in m.graph.output[0].type.tensor_type.shape.dim]
                  for m in (first, then)]
        self.assertEqual([dims[1] for dims in logits], [1, 1])
        counts = [{op: sum(n.op_type == op for n in m.graph.node) for op in (
            "Attention", "TensorScatter", "RotaryEmbedding", "GroupQueryAttention", "Range")}
                  for m in (first, then)]
        self.assertEqual(counts[0], {"Attention": 2, "TensorScatter": 0, "RotaryEmbedding": 4,
                                     "GroupQueryAttention": 0, "Range": 1})
        self.assertEqual(counts[1], {"Attention": 2, "TensorScatter": 4, "RotaryEmbedding": 4,
                                     "GroupQueryAttention": 0, "Range": 0})

    def test_other_attention(self):
        """Attention-24, MultiHeadAttention and Attention of com.microsoft with a past."""
        for kind in ("attention", "attention_4d", "multi_head", "multi_head_padded", "packed",
                     "packed_padded"):
            d = Decoder(kind)
            path = d.save(self.dir / "model.onnx")
            self.rewrite(path)
            ids = np.array([(i * 37 + i // 7 * 5 + 11) % decoders.VOCABULARY
                            for i in range(TOKENS)], np.int64)
            s = session(path)
            expected = s.run(["logits"], d.empty(ids))[0][0][PROMPT - 1:]
            self.close(self.run_both(ids), expected, 2e-5, kind)

    def test_traced(self):
        """Attention that tracers write in simple ops is raised first."""
        for name in ("llama", "mistral", "gemma", "gpt2", "dynamo-qwen2", "dynamo-llama"):
            path = harness.ROOT / "test" / "traced" / name / "model.onnx"
            self.rewrite(path)
            ids = np.array([i * 7 % 50 + 3 for i in range(TOKENS)], np.int64)
            expected = Runner(path).score(ids)[PROMPT - 1:]
            self.close(self.run_both(ids), expected, 2e-5, name)

    def test_counted(self):
        """Positions that a graph without a cache counts would not change in a graph of one token:
        they are refused, and after insert-kv they are an input."""
        for name in ("dynamo-llama-ids-alone", "opt-no-cache"):
            path = harness.ROOT / "test" / "traced" / name / "model.onnx"
            run = gqac("rewrite", path, "--pass", "two-graph", "-o", self.out)
            self.check(run, 3, "number of tokens in a call, on their positions", "insert-kv")
            self.assertFalse(list(self.dir.glob("two*")))
            cached = self.dir / "cached.onnx"
            self.good("rewrite", path, "--pass", "insert-kv", "-o", cached)
            self.rewrite(cached)
            ids = np.array([i * 7 % 50 + 3 for i in range(TOKENS)], np.int64)
            feeds = {"input_ids": ids[None], "attention_mask": np.ones((1, TOKENS), np.int64)}
            whole = session(path)
            names = [i.name for i in whole.get_inputs()]
            expected = whole.run(["logits"], {k: v for k, v in feeds.items() if k in names})[0][0]
            self.close(self.run_both(ids), expected[PROMPT - 1:], 2e-5, name)
            for old in self.dir.glob("two*"):
                old.unlink()

    def test_left_out(self):
        """A node that combines tokens and whose first result is omitted is refused, too."""
        path = self.dir / "model.onnx"
        decoder = onnx.load(harness.ROOT / "test" / "traced" / "llama-no-cache" / "model.onnx")
        graph = decoder.graph
        ids, logits = "input_ids", graph.output[0].name
        for node in graph.node:
            node.output[:] = ["before" if name == logits else name for name in node.output]
        graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "one"))
        graph.node.extend([
            onnx.helper.make_node("TopK", [ids, "one"], ["", "place"], axis=1),
            onnx.helper.make_node("Cast", ["place"], ["moved"], to=onnx.TensorProto.FLOAT),
            onnx.helper.make_node("Unsqueeze", ["moved", "one"], ["wide"]),
            onnx.helper.make_node("Add", ["before", "wide"], [logits])])
        onnx.save(decoder, path)
        run = gqac("rewrite", path, "--pass", "two-graph", "-o", self.out)
        self.check(run, 3, "TopK", "number of tokens in a call, on their positions")

    def test_refused(self):
        """Models without such a form are refused by name, and no file is written."""
        for kind, words in (("masked_decoder", ("DecoderMasked", "cannot be split into")),
                            ("one_bias", ("attn_mask",)),
                            ("attention_static", ("writes its cache",)),
                            ("mask_from_shapes", ("attn_mask",))):
            path = Decoder(kind).save(self.dir / "model.onnx")
            run = harness.gqac("rewrite", path, "--pass", "two-graph", "-o", self.out)
            self.check(run, 3, *words)
            self.assertFalse(self.prefill.exists() or self.decode.exists(), kind)
        for text, words in ((UNKNOWN_ROWS, "shape of its keys and values"),
                            (SHIFTED, "operand position_ids")):
            path = self.dir / "model.gq"
            path.write_text(text, encoding="utf-8")
            run = harness.gqac("rewrite", path, "--pass", "two-graph", "-o", self.out)
            self.check(run, 3, words, "Attention)")
            self.assertFalse(self.prefill.exists() or self.decode.exists(), words)
        path = self.dir / "model.onnx"
        onnx.save(Decoder("attention").model(), path, save_as_external_data=True,
                  location=self.decode.name, size_threshold=64)
        run = harness.gqac("rewrite", path, "--pass", "two-graph", "-o", self.out)
        self.check(run, 2, "would overwrite")
        self.assertFalse(self.prefill.exists())
        self.decode.unlink()
        d = Decoder("attention")
        d.inputs.append(d.info("past.0.conv", decoders.F, ["B", 1, decoders.WIDTH]))
        d.node("Add", d.nodes[-1].input[0], "past.0.conv", out=["carried"])
        d.nodes[-1], d.nodes[-2] = d.nodes[-2], d.nodes[-1]
        d.nodes[-1].input[0] = "carried"
        d.save(self.dir / "model.onnx")
        run = harness.gqac("rewrite", self.dir / "model.onnx", "--pass", "two-graph", "-o", self.out)
        self.check(run, 3, "past.0.conv")


def add_tests():
    """Adds a method for each model."""
    for name in MODELS:
        def good(self, name=name):
            self.exported(name)
        setattr(TwoGraph, f"test_m2_m19_m21_{name}", good)


add_tests()

if __name__ == "__main__":
    sys.exit(harness.main())
