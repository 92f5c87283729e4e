#!/usr/bin/env python3
"""`gqac rewrite` of encoder-decoder models: `insert-kv` and `static-cross-cache` (rows N3, N4, N14
to N20).

Self-attention gets caches that grow; attention to the encoder's states gets caches that the first
call computes and all others pass on. ONNX Runtime is the oracle: a loop over the rewritten file
must return what one call of the original file returns, project the encoder's states once, and not
read them again. The same loop is run in gqac.
"""

import json
import sys

import numpy as np
import onnx
import onnxruntime as ort

import decoders
import harness
from decoders import F, HEADS, I32, I64, SIZE, WIDTH, Decoder
from harness import Case
from test_insert_kv import names, session

TOKENS, STATES, LIMIT = 11, 7, 2e-5


class Translator(Decoder):
    """A decoder whose layers also attend to an encoder."""

    def __init__(self, kind, seed=3):
        self.encoder = "encoder_hidden_states"
        super().__init__(kind, seed)
        whole = kind == "whole"
        self.inputs = [v for v in self.inputs if v.name != "attention_mask"]
        self.inputs.append(self.info("encoder_ids", I64, ["B", "L"]) if whole else
                           self.info("encoder_hidden_states", F, ["B", "L", WIDTH]))
        if kind == "padded":
            self.inputs.append(self.info("encoder_attention_mask", I64, ["B", "L"]))

    def layer(self, layer, x, of, domain, own, across):
        """Self-attention with a residual, then attention to `of`; returns q, k and v for it."""
        q, k, v = self.qkv(layer, x, HEADS)
        y = self.node(own, q, k, v, out=[f"y{layer}"], domain=domain, **across[0])
        x = self.node("Add", x, self.project(f"s{layer}", y, WIDTH, WIDTH))
        q = self.project(f"cq{layer}", x, WIDTH, WIDTH)
        k, v = (self.project(f"c{n}{layer}", of, WIDTH, WIDTH) for n in "kv")
        return self.node(own, q, k, v, *across[2], domain=domain, **across[1])

    def multi_head_layer(self, layer, x, of, *rest):
        """Both as MultiHeadAttention."""
        return self.layer(layer, x, of, "com.microsoft", "MultiHeadAttention", (
            {"num_heads": HEADS, "unidirectional": 1}, {"num_heads": HEADS}, rest))

    def multi_head_cross(self, layer, x):
        """With a bias of queries, keys and values."""
        return self.multi_head_layer(layer, x, self.encoder, self.weight(f"cb{layer}", 3 * WIDTH))

    def padded(self, layer, x):
        """With a padding mask of the encoder's states."""
        mask = self.once("_padding", lambda: self.node("Cast", "encoder_attention_mask", to=I32))
        return self.multi_head_layer(layer, x, self.encoder, "", mask)

    def attention_layer(self, layer, x, of):
        """Both as Attention of ONNX."""
        heads = {"q_num_heads": HEADS, "kv_num_heads": HEADS}
        return self.layer(layer, x, of, "", "Attention", ({"is_causal": 1, **heads}, heads, ()))

    def attention_cross(self, layer, x):
        """Attention without projections: nodes before it project the keys."""
        return self.attention_layer(layer, x, self.encoder)

    def whole(self, layer, x):
        """With the encoder in the same graph."""
        def make():
            e = self.node("Gather", "embed", "encoder_ids")
            q, k, v = (self.project(f"e{n}", e, WIDTH, WIDTH) for n in "qkv")
            y = self.node("Attention", q, k, v, out=["encoded"], q_num_heads=HEADS,
                          kv_num_heads=HEADS)
            return self.node("Add", e, y)
        return self.attention_layer(layer, x, self.once("_states", make))


KINDS = ("multi_head_cross", "padded", "attention_cross", "whole")


class CrossCache(Case):
    """Loops over rewritten files."""

    def setUp(self):
        super().setUp()
        self.path, self.out = self.dir / "model.onnx", self.dir / "cached.onnx"
        random = np.random.default_rng(5)
        self.ids = np.array([[(i * 37 + 11) % decoders.VOCABULARY for i in range(TOKENS)]])
        self.states = {
            "encoder_hidden_states": random.standard_normal((1, STATES, WIDTH)).astype("f"),
            "encoder_ids": random.integers(0, decoders.VOCABULARY, (1, STATES)),
            "encoder_attention_mask": np.array([[1] * (STATES - 2) + [0] * 2])}

    def rewrite(self, kind, name="insert-kv"):
        """The model of a kind, rewritten."""
        Translator(kind).save(self.path)
        return self.good("rewrite", self.path, "--pass", name, "-o", self.out)

    def given(self, wanted, ids):
        """The inputs of a call except the caches."""
        return {k: v for k, v in {"input_ids": ids, **self.states}.items() if k in wanted}

    def loop(self, run, inputs, outputs, chunks, spoil=True):
        """Logits of calls with these numbers of tokens; the first one has caches without rows.
        Later ones get states of another encoder, which must make no difference."""
        caches = {n: np.zeros((1, HEADS, 0, SIZE), np.float32) for n in inputs
                  if n.startswith("cache_")}
        rows, at = [], 0
        kept = dict(self.states)
        for n in chunks:
            out = dict(zip(outputs, run({**self.given(inputs, self.ids[:, at:at + n]), **caches}),
                           strict=True))
            for name in caches:
                now = out[name.replace("_in_", "_out_")]
                if at and not name.endswith(("_0", "_2")):  # these grow
                    self.assertEqual(now.tobytes(), caches[name].tobytes(), name)
                caches[name] = now.copy()
            if spoil:
                self.states["encoder_hidden_states"] = kept["encoder_hidden_states"] * 3 + 1
                self.states["encoder_ids"] = kept["encoder_ids"] * 0
            rows.append(out["logits"][0])
            at += n
        self.states = kept
        return np.concatenate(rows)

    def expected(self):
        """The result of one call of the original model, in ONNX Runtime."""
        s = session(self.path)
        return s.run(["logits"], self.given(names(s.get_inputs()), self.ids))[0][0]

    def in_gqac(self, path):
        """A function that runs the file in gqac, with its inputs and outputs."""
        graph = onnx.load(path).graph
        folder = self.dir / "feeds"
        folder.mkdir(exist_ok=True)

        def run(feeds):
            for name, value in feeds.items():
                np.save(folder / f"{name}.npy", value)
            self.good("run", path, "--inputs", folder, "--output", self.dir / "o", "-q")
            return [np.load(self.dir / "o" / f"{n}.npy") for n in names(graph.output)]
        return run, names(graph.input), names(graph.output)

    def whole_kind(self, kind):
        """N16, N17, N20: in one call, token by token and in pieces."""
        self.rewrite(kind)
        expected, s = self.expected(), session(self.out)
        for chunks in ([TOKENS], [1] * TOKENS, [4, 1, TOKENS - 5]):
            got = self.loop(lambda f: s.run(None, f), names(s.get_inputs()),
                            names(s.get_outputs()), chunks)
            self.close(got, expected, LIMIT, f"{kind} {chunks}")
        run, inputs, outputs = self.in_gqac(self.path)
        once = run(self.given(inputs, self.ids))[0][0]
        self.close(once, expected, LIMIT, kind)
        got = self.loop(*self.in_gqac(self.out), [4, 1, 1, TOKENS - 6])
        self.close(got, once, 2e-6, kind)

    def test_n15_order(self):
        """Self- and cross-attention are counted together, in the order of the file."""
        run = self.rewrite("multi_head_cross")
        self.assertIn("4 attention nodes", run.out)
        graph = onnx.load(self.out).graph
        for values, word in ((graph.input, "in"), (graph.output, "out")):
            self.assertEqual([n for n in names(values) if n.startswith("cache_")],
                             [f"cache_{p}_{word}_{i}" for i in range(4) for p in "kv"])
        onnx.checker.check_model(onnx.load(self.out))

    def test_n3_n18_projected_once(self):
        """The projections of the encoder's states, and the encoder, run in the first call only."""
        for kind in ("multi_head_cross", "attention_cross", "whole"):
            self.rewrite(kind)
            model = onnx.load(self.path)
            made = {o: n for n in model.graph.node for o in n.output}
            cross = [n for n in model.graph.node if n.op_type.endswith("Attention")
                     and len(n.input) > 2 and made[n.input[1]].input[1].startswith("ck")]
            wanted = [made[n.input[i]].name for n in cross for i in (1, 2)]
            self.assertEqual(len(wanted), 4, kind)
            options = ort.SessionOptions()
            options.log_severity_level = 3
            options.enable_profiling = True
            options.profile_file_prefix = str(self.dir / kind)
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            s = ort.InferenceSession(str(self.out), options, providers=["CPUExecutionProvider"])
            self.loop(lambda f, s=s: s.run(None, f), names(s.get_inputs()), names(s.get_outputs()),
                      [3] + [1] * 8)
            with open(s.end_profiling(), encoding="utf-8") as file:
                ran = [e["name"] for e in json.load(file)]
            for name in wanted:
                self.assertEqual(ran.count(f"{name}_kernel_time"), 1, f"{kind} {name}")
            self.assertEqual(sum(n.startswith("Sigmoid") and n.endswith("_kernel_time")
                                 for n in ran), 9 * decoders.LAYERS)

    def test_static_alone(self):
        """static-cross-cache does not change self-attention; then insert-kv adds the rest."""
        run = self.rewrite("attention_cross", "static-cross-cache")
        self.assertIn("2 cross attention nodes", run.out)
        s, expected = session(self.out), self.expected()
        self.assertEqual([n for n in names(s.get_inputs()) if n.startswith("cache_")],
                         [f"cache_{p}_in_{i}" for i in range(2) for p in "kv"])
        first = s.run(None, {**self.given(names(s.get_inputs()), self.ids),
                             **{n: np.zeros((1, HEADS, 0, SIZE), "f")
                                for n in names(s.get_inputs()) if n.startswith("cache_")}})
        self.close(first[0][0], expected, LIMIT)
        again = self.good("rewrite", self.out, "--pass", "static-cross-cache", "-o", self.out)
        self.assertIn("nothing to do", again.out)

    def test_second_run(self):
        """Nothing is inserted twice."""
        self.rewrite("whole")
        before = self.out.read_bytes()
        for name in ("insert-kv", "static-cross-cache"):
            run = self.good("rewrite", self.out, "--pass", name, "-o", self.out)
            self.assertIn("nothing to do", run.out)
            self.assertEqual(self.out.read_bytes(), before)

    def test_unknown_rows(self):
        """Keys and values of unknown rank get no cache."""
        path = self.dir / "cx.gq"
        path.write_text("""graph @cx(%q: f32[B,2,S,4], %k: f32[*], %v: f32[*]) {
  %y = Attention %q, %k, %v {scale=0.5} : f32[B,2,S,4]
  return %y as "logits"
}
""", encoding="utf-8")
        for name in ("static-cross-cache", "insert-kv"):
            run = harness.gqac("rewrite", path, "--pass", name, "-o", self.out)
            self.check(run, 3, "shape of its keys and values", "(Attention)")
            self.assertFalse(self.out.exists())

    def test_n4_recognised(self):
        """Queries and keys of the same tokens are self-attention, for every op."""
        for path in (harness.model("llama"), Decoder("multi_head").save(self.path)):
            run = harness.gqac("rewrite", path, "--pass", "static-cross-cache", "-o", self.out)
            self.check(run, 3, "no attention over the states of an encoder")
            self.assertFalse(self.out.exists())


def add_tests():
    """Adds a method for each kind."""
    for kind in KINDS:
        def good(self, kind=kind):
            self.whole_kind(kind)
        setattr(CrossCache, f"test_n16_n17_n20_{kind}", good)


add_tests()

if __name__ == "__main__":
    sys.exit(harness.main())
