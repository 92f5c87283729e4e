"""OpenVINO as one of the benchmark's engines; the words and lines are those of worker_gqac.c.

kind=run compiles the ONNX file. kind=sequence first turns its past into a state of the model, which
is how OpenVINO runs language models. kind=sdpa is one attention as in OpenVINO's own exports:
state, gather by beam_idx, concat, heads of a group repeated, ScaledDotProductAttention, which it
turns into one kernel with a cache.

A state grows with each call. Before it has grown by more than 2 % it is set back, outside the timed
part, and one call is not timed, so that the buffer has the capacity for the next ones. f32 hint,
latency hint, one stream, pinned.
"""

import sys
import time

import numpy as np
import openvino as ov
import openvino.opset15 as ops
from openvino._offline_transformations import apply_make_stateful_transformation

import worker

F32 = ov.Type.f32


class Engine(worker.Engine):
    """A compiled model with one infer request for each sequence of the rotation."""

    def __init__(self, a):
        super().__init__(a)
        self.core = ov.Core()
        self.config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32",
                       "INFERENCE_NUM_THREADS": a.threads, "NUM_STREAMS": 1,
                       "ENABLE_CPU_PINNING": True, "KV_CACHE_PRECISION": "f32"}

    def version(self):
        return ov.get_version().split("-")[0]

    def compile(self, model):
        return self.core.compile_model(model, "CPU", self.config)

    def open_run(self, inputs):
        self.request = self.compile(self.a.model).create_infer_request()
        for name, array in inputs.items():
            self.request.set_tensor(name, ov.Tensor(np.ascontiguousarray(array)))

    def run(self):
        began = time.perf_counter()
        self.request.infer()
        return time.perf_counter() - began

    def output(self):
        return self.request.get_output_tensor(0).data

    def open_sequences(self, rows):
        a = self.a
        self.sample = 0
        model = sdpa(a) if a.kind == "sdpa" else stateful(self.core, a.model)
        self.model = self.compile(model)
        self.sequences = [Sequence(self, self.model.create_infer_request())
                          for _ in range(a.rotate)]

    def run_sequence(self):
        sequence = self.sequences[self.sample % len(self.sequences)]
        self.sample += 1
        taken = sequence.run()
        self.request = sequence.request
        return taken


class Sequence:
    """One state and its number of rows."""

    def __init__(self, engine, request):
        self.engine, self.a, self.request = engine, engine.a, request
        self.random = np.random.default_rng(1)
        self.most = self.a.past + max(self.a.calls * self.a.tokens, self.a.past // 50)
        self.length = self.saved = None

    def set_back(self):
        """The state with `past` rows, and capacity after them."""
        a = self.a
        self.request.reset_state()
        self.length = 0
        if not a.past:
            return
        before = max(0, a.past - a.tokens)
        if a.kind == "sdpa" and before:
            if self.saved is None:
                shape = [1, a.kv_heads, before, a.head]
                self.saved = [self.random.standard_normal(shape, dtype=np.float32)
                              for _ in self.request.query_state()]
            for state, rows in zip(self.request.query_state(), self.saved):
                state.state = ov.Tensor(rows)
            self.length = before
            self.call(a.past - before)
        else:
            self.call(before)
            self.call(a.past - before)

    def call(self, tokens):
        if not tokens:
            return 0.0
        a = self.a
        self.feed(tokens)
        began = time.perf_counter()
        self.request.infer()
        taken = time.perf_counter() - began
        self.length += tokens
        return taken

    def feed(self, tokens):
        a, past = self.a, self.length
        if a.kind == "sdpa":
            for name, heads in (("q", a.heads), ("k", a.kv_heads), ("v", a.kv_heads)):
                shape = [1, heads, tokens, a.head]
                self.request.set_tensor(name, ov.Tensor(
                    self.random.standard_normal(shape, dtype=np.float32)))
            mask = np.triu(np.full([tokens, past + tokens], -np.inf, np.float32), past + 1)
            self.request.set_tensor("mask", ov.Tensor(np.ascontiguousarray(mask[None, None])))
            self.request.set_tensor("beam_idx", ov.Tensor(np.zeros(1, np.int32)))
            return
        self.request.set_tensor("input_ids", ov.Tensor(self.engine.ids(past, tokens)[None]))
        mask = np.ones([1, past + tokens], np.int64)
        self.request.set_tensor("attention_mask", ov.Tensor(mask))

    def run(self):
        a = self.a
        grown = a.calls * a.tokens
        if self.length is None or a.tokens > 1 or self.length + grown > self.most:
            self.set_back()
        return sum(self.call(a.tokens) for _ in range(a.calls)) / a.calls


def stateful(core, path):
    """The exported model with pasts and presents turned into variables."""
    model = core.read_model(path)
    names = {i.get_any_name() for i in model.inputs}
    model.reshape({n: ov.PartialShape([1, *model.input(n).partial_shape[1:]]) for n in names})
    pairs = {n: n.replace("past_key_values", "present") for n in names if "past_key_values" in n}
    apply_make_stateful_transformation(model, pairs)
    return model


def sdpa(a):
    """One attention with a state of keys and one of values."""
    def parameter(name, shape, kind=F32):
        node = ops.parameter(ov.PartialShape(shape), kind, name=name)
        node.output(0).set_names({name})
        return node

    q = parameter("q", [-1, a.heads, -1, a.head])
    mask = parameter("mask", [-1, 1, -1, -1])
    beams = parameter("beam_idx", [-1], ov.Type.i32)
    group, parameters, sinks, full = a.heads // a.kv_heads, [q, mask, beams], [], []
    for name in ("k", "v"):
        new = parameter(name, [-1, a.kv_heads, -1, a.head])
        batch = ops.gather(ops.shape_of(new), ops.constant([0], np.int64),
                           ops.constant(0, np.int64))
        empty = ops.broadcast(ops.constant(0.0, F32), ops.concat([
            batch, ops.constant([a.kv_heads, 0, a.head], np.int64)], 0))
        past = ops.read_value(empty, f"past_{name}", F32,
                              ov.PartialShape([-1, a.kv_heads, -1, a.head]))
        past = ops.gather(past, beams, ops.constant(0, np.int64))
        rows = ops.concat([past, new], 2)
        sinks.append(ops.assign(rows, f"past_{name}"))
        parameters.append(new)
        if group > 1:
            ones = ops.constant(np.ones([1, 1, group, 1, 1], np.float32))
            wide = ops.multiply(ops.unsqueeze(rows, ops.constant(2, np.int64)), ones)
            rows = ops.reshape(wide, ops.constant([0, a.heads, -1, a.head], np.int64), True)
        full.append(rows)
    y = ops.scaled_dot_product_attention(q, full[0], full[1], mask, causal=False)
    return ov.Model([ops.result(y)], sinks, parameters, "attention")


if __name__ == "__main__":
    sys.exit(worker.main(Engine))
