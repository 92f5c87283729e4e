"""The models that the benchmarks run: made on demand in build/bench-models with onnx and numpy.

Three kinds. An operator model is one GroupQueryAttention without a past, or a chain of matmuls. A
sequence model looks up rows of packed q, k, v by input_ids and passes them to one
GroupQueryAttention whose output is called logits, so that an engine of sequences and one with
explicit past and present run the same file. A whole model has the nodes, names and shapes of a
Qwen2.5 export of ONNX Runtime's model builder; only its last row goes through the LM head, as in
generation; other forms of the same weights differ in this. Weights are random, scaled so that every
layer keeps its variance. Equal names are equal files: the generator is seeded by the name.
"""

import os
import zlib
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
from onnx import TensorProto, helper

import engines

ROOT = Path(__file__).resolve().parent.parent
HOME = Path(os.environ.get("GQAC_BENCH_MODELS", ROOT / "build" / "bench-models"))
MS = "com.microsoft"
FLOAT = {"f32": (TensorProto.FLOAT, np.float32), "f16": (TensorProto.FLOAT16, np.float16)}
# Codes of a quantised cache: bits, type, and the scale of a value of about 1.
CODES = {"int8": (8, TensorProto.INT8, np.int8, 1 / 74), "int4": (4, TensorProto.UINT8, np.uint8, 1 / 4.6)}
QWEN = {
    "0.5b": dict(hidden=896, layers=24, heads=14, kv_heads=2, head=64, inner=4864, vocab=151936),
    "0.5b-32k": dict(hidden=896, layers=24, heads=14, kv_heads=2, head=64, inner=4864, vocab=32000),
    "1.5b": dict(hidden=1536, layers=28, heads=12, kv_heads=2, head=128, inner=8960, vocab=151936),
    "tiny": dict(hidden=64, layers=2, heads=4, kv_heads=2, head=16, inner=96, vocab=96),  # for tests
}
MAX_POSITIONS = 8192


class Noise:
    """Normal values from one pool, which is generated once, so that gigabytes take seconds."""

    def __init__(self, name: str, size=1 << 22):
        self.random = np.random.default_rng(zlib.crc32(name.encode()))
        self.pool = self.random.standard_normal(size, dtype=np.float32)

    def normal(self, shape, scale=1.0):
        count = int(np.prod(shape))
        start = int(self.random.integers(self.pool.size))
        rolled = np.roll(self.pool, -start)
        values = np.resize(rolled, count) * np.float32(scale)
        return values.reshape(shape)

    def bytes(self, shape):
        return self.random.integers(0, 256, shape, dtype=np.uint8)


class File:
    """A model under construction; its weights go straight to model.onnx.data."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.data = open(folder / "model.onnx.data", "wb")
        self.nodes, self.weights, self.inputs, self.outputs = [], [], [], []
        self.count = 0

    def weight(self, name, values):
        values = np.ascontiguousarray(values)
        tensor = TensorProto(name=name, dims=values.shape,
                             data_type=helper.np_dtype_to_tensor_dtype(values.dtype))
        if values.nbytes < 4096:
            tensor.raw_data = values.tobytes()
        else:
            self.data.write(b"\0" * (-self.data.tell() % 4096))
            offset = self.data.tell()
            values.tofile(self.data)
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", "model.onnx.data"), ("offset", offset),
                               ("length", values.nbytes)):
                tensor.external_data.add(key=key, value=str(value))
        self.weights.append(tensor)
        return name

    def node(self, op, *inputs, out=None, domain="", **attributes):
        """A node; `out` is a name or several, '' for omitted ones. Returns the first."""
        self.count += 1
        out = [out or f"{op}_{self.count}"] if not isinstance(out, (list, tuple)) else list(out)
        self.nodes.append(helper.make_node(op, list(inputs), out, name=f"n{self.count}/{op}",
                                           domain=domain, **attributes))
        return out[0]

    def input(self, name, kind, shape):
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name, kind, shape):
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def save(self):
        self.data.close()
        graph = helper.make_graph(self.nodes, "bench", self.inputs, self.outputs, self.weights)
        model = helper.make_model(graph, producer_name="gqac bench", ir_version=10, opset_imports=[
            helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)])
        onnx.save(model, self.folder / "model.onnx")
        (self.folder / "complete").touch()


def made(name, build) -> Path:
    """The .onnx file of model `name`, built if it does not exist."""
    folder = HOME / name
    if not (folder / "complete").exists():
        f = File(folder)
        build(f, Noise(name))
        f.save()
    return folder / "model.onnx"


def lengths(f):
    """seqlens_k and total_sequence_length from attention_mask, as the model builder computes
    them."""
    f.input("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"])
    f.input("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"])
    one = f.weight("one", np.array([1], np.int64))
    valid = f.node("ReduceSum", "attention_mask", one, keepdims=0)
    seqlens = f.node("Cast", f.node("Sub", valid, one), to=TensorProto.INT32)
    total = f.node("Gather", f.node("Shape", "attention_mask"),
                   f.weight("axis", np.array(1, np.int64)), axis=0)
    return seqlens, f.node("Cast", total, to=TensorProto.INT32)


def cache(f, layer, kv_heads, head, kind):
    past = [f.input(f"past_key_values.{layer}.{part}", kind,
                    ["batch_size", kv_heads, "past_sequence_length", head])
            for part in ("key", "value")]
    present = [f"present.{layer}.{part}" for part in ("key", "value")]
    for name in present:
        f.output(name, kind, ["batch_size", kv_heads, "total_sequence_length", head])
    return past, present


def attention(heads, kv_heads, head, dtype="f32", softcap=0.0, window=-1, sink=False):
    """One GroupQueryAttention without a past: packed q, k, v in; output and present out."""
    name = (f"gqa-{heads}-{kv_heads}-d{head}-{dtype}" + (f"-softcap{softcap:g}" if softcap else "")
            + (f"-window{window}" if window > 0 else "") + ("-sink" if sink else ""))

    def build(f, noise):
        kind, np_type = FLOAT[dtype]
        f.input("qkv", kind, [1, "S", (heads + 2 * kv_heads) * head])
        f.input("seqlens_k", TensorProto.INT32, [1])
        f.input("total", TensorProto.INT32, [])
        tail = ["", "", "", "", f.weight("sink", noise.normal([heads]).astype(np_type))] \
            if sink else []
        f.node("GroupQueryAttention", "qkv", "", "", "", "", "seqlens_k", "total", *tail,
               out=["y", "present_key", "present_value"], domain=MS, num_heads=heads,
               kv_num_heads=kv_heads, scale=head ** -0.5, softcap=float(softcap),
               local_window_size=window)
        f.output("y", kind, [1, "S", heads * head])
        for part in ("key", "value"):
            f.output(f"present_{part}", kind, [1, kv_heads, "S", head])
    return made(name, build)


def sequence(heads, kv_heads, head, dtype="f32"):
    """Rows of q, k, v by input_ids, one GroupQueryAttention with past and present, "logits". The
    cache has the type of the rows, or codes with a scale for each channel."""
    def build(f, noise):
        kind, np_type = FLOAT[dtype if dtype in FLOAT else "f32"]
        stored, size, scales, attributes = kind, head, [], {}
        if dtype in CODES:
            bits, stored, _, scale = CODES[dtype]
            size = head * bits // 8
            scales = [f.weight(f"{part}_scale", np.full(kv_heads * head, scale, np.float32))
                      for part in "kv"]
            scales = ["", "", "", "", "", *scales]
            attributes = dict(k_quant_type="PER_CHANNEL", v_quant_type="PER_CHANNEL",
                              kv_cache_bit_width=bits)
        width = (heads + 2 * kv_heads) * head
        seqlens, total = lengths(f)
        table = f.weight("rows", noise.normal([heads * head, width]).astype(np_type))
        qkv = f.node("Gather", table, "input_ids")
        past, present = cache(f, 0, kv_heads, size, stored)
        f.node("GroupQueryAttention", qkv, "", "", *past, seqlens, total, *scales,
               out=["logits", *present], domain=MS, num_heads=heads, kv_num_heads=kv_heads,
               scale=head ** -0.5, **attributes)
        f.output("logits", kind, ["batch_size", "sequence_length", heads * head])
    return made(f"sequence-{heads}-{kv_heads}-d{head}-{dtype}", build)


def matmuls(k, layers, form):
    """x through `layers` square matmuls with different weights: form "f32" or "int4"."""
    def build(f, noise):
        x = f.input("x", TensorProto.FLOAT, [1, "M", k])
        for layer in range(layers):
            out = "y" if layer == layers - 1 else None
            x = linear(f, noise, x, f"w{layer}", k, k, form, out)
        f.output("y", TensorProto.FLOAT, [1, "M", k])
    return made(f"matmul-{k}x{layers}-{form}", build)


def linear(f, noise, x, name, k, n, form, out=None):
    """x · W, where W is [k, n] fp32, fp16, or int4 in blocks of 32 with accuracy level 4."""
    if form in FLOAT:
        values = noise.normal([k, n], k ** -0.5).astype(FLOAT[form][1])
        return f.node("MatMul", x, f.weight(name, values), out=out)
    scales = 1 / (4.6 * k ** 0.5) * (1 + 0.1 * noise.normal([n, k // 32]))
    return f.node("MatMulNBits", x, f.weight(name + "_Q4", noise.bytes([n, k // 32, 16])),
                  f.weight(name + "_scales", scales.astype(np.float32)), out=out, domain=MS, K=k,
                  N=n, bits=4, block_size=32, accuracy_level=4)


def rotary_tables(f, head, np_type):
    angle = np.outer(np.arange(MAX_POSITIONS), 1e6 ** (-np.arange(0, head, 2) / head))
    return (f.weight("cos_cache", np.cos(angle).astype(np_type)),
            f.weight("sin_cache", np.sin(angle).astype(np_type)))


def weights(size):
    """The number of elements of the matrices by which one token is multiplied."""
    c = QWEN[size]
    width, inner = c["heads"] * c["head"], c["inner"]
    layer = c["hidden"] * (2 * width + 2 * c["kv_heads"] * c["head"] + 3 * inner)
    return c["layers"] * layer + c["hidden"] * c["vocab"]


def qwen(size, form, head="slice"):
    """A Qwen2.5 of this size with random weights, form "f32", "f16" or "int4"; parts that are not
    int4 are fp32.

    head: the rows that go through the LM head. "slice" is the last one, by Slice; "all" is every
    one, as in most exports; "pruned" the last one, by Gather and Unsqueeze, as with the model
    builder's prune_lm_head.
    """
    base = qwen_of_last_row(size, form)
    if head == "slice":
        return base
    path = base.with_name(f"{head}.onnx")  # in the same folder: the weights are the same file
    if not path.exists():
        model = onnx.load(base, load_external_data=False)
        take_rows_otherwise(model.graph, head)
        onnx.save(model, path.with_suffix(".part"), format="protobuf")
        path.with_suffix(".part").rename(path)
    return path


def take_rows_otherwise(graph, head):
    """Replaces the Slice before the LM head by the nodes of `head`."""
    at = next(i for i, n in enumerate(graph.node) if n.op_type == "Slice")
    cut = graph.node[at]
    del graph.node[at]
    if head == "all":
        for node in graph.node:
            node.input[:] = [cut.input[0] if x == cut.output[0] else x for x in node.input]
        logits = next(o for o in graph.output if o.name == "logits")
        logits.type.tensor_type.shape.dim[1].dim_param = "sequence_length"
        return
    last = onnx.numpy_helper.from_array(np.array(-1, np.int64), "last_row")
    graph.initializer.append(last)
    graph.node.insert(at, helper.make_node("Gather", [cut.input[0], last.name], ["last_hidden"],
                                           name="lm_head/Gather", axis=1))
    graph.node.insert(at + 1, helper.make_node("Unsqueeze", ["last_hidden", "axis_one"],
                                               [cut.output[0]], name="lm_head/Unsqueeze"))


def qwen_of_last_row(size, form):
    """The file that the weights belong to."""
    c = QWEN[size]
    kind, np_type = FLOAT["f16" if form == "f16" else "f32"]

    def layer(f, noise, i, hidden, residual, rope):
        heads, kv_heads, head, p = c["heads"], c["kv_heads"], c["head"], f"layer{i}."
        width = (heads + 2 * kv_heads) * head
        qkv = linear(f, noise, hidden, p + "qkv", c["hidden"], width, form)
        bias = noise.normal([width], 0.1).astype(np_type)
        qkv = f.node("Add", qkv, f.weight(p + "qkv_bias", bias))
        past, present = cache(f, i, kv_heads, head, kind)
        y = f.node("GroupQueryAttention", qkv, "", "", *past, *rope["lengths"], *rope["tables"],
                   out=[p + "attention", *present], domain=MS, num_heads=heads,
                   kv_num_heads=kv_heads, scale=head ** -0.5, do_rotary=1, rotary_interleaved=0)
        y = linear(f, noise, y, p + "o", heads * head, c["hidden"], form)
        hidden, residual = skip_norm(f, residual, y, p + "post_norm")
        gate = linear(f, noise, hidden, p + "gate", c["hidden"], c["inner"], form)
        up = linear(f, noise, hidden, p + "up", c["hidden"], c["inner"], form)
        silu = f.node("Mul", gate, f.node("Sigmoid", gate))
        y = linear(f, noise, f.node("Mul", silu, up), p + "down", c["inner"], c["hidden"], form)
        return skip_norm(f, residual, y, p + "next_norm")

    def skip_norm(f, residual, y, name):
        weight = f.weight(name, np.ones(c["hidden"], np_type))
        out = [name + ".y", "", "", name + ".sum"]
        return f.node("SkipSimplifiedLayerNormalization", residual, y, weight, out=out, domain=MS,
                      epsilon=1e-6), out[3]

    def build(f, noise):
        rope = {"lengths": lengths(f), "tables": rotary_tables(f, c["head"], np_type)}
        embed = f.weight("embed",
                         noise.normal([c["vocab"], c["hidden"]], 0.02).astype(np_type))
        residual = f.node("Gather", embed, "input_ids")
        hidden = f.node("SimplifiedLayerNormalization", residual,
                        f.weight("first_norm", np.ones(c["hidden"], np_type)), axis=-1,
                        epsilon=1e-6, stash_type=1)
        for i in range(c["layers"]):
            hidden, residual = layer(f, noise, i, hidden, residual, rope)
        last = f.node("Slice", hidden, f.weight("minus_one", np.array([-1], np.int64)),
                      f.weight("end", np.array([2 ** 31], np.int64)),
                      f.weight("axis_one", np.array([1], np.int64)))
        linear(f, noise, last, "lm_head", c["hidden"], c["vocab"], form, out="logits")
        f.output("logits", kind, ["batch_size", 1, c["vocab"]])
    return made(f"qwen2.5-{size}-{form}", build)


def gguf(size, form, words=False) -> Path:
    """The same shapes for llama.cpp: F32, or Q4_0 (blocks of 32) with an f16 embedding.

    words: with an artificial text for each id, without which llama-server does not run.
    """
    name = f"qwen2.5-{size}-{form}"
    path = HOME / f"{name}{'-words' if words else ''}.gguf"
    if not path.exists():
        write_gguf(path.with_suffix(".part"), QWEN[size], form, Noise(f"{name}.gguf"), words)
        path.with_suffix(".part").rename(path)
    return path


def write_gguf(path, c, form, noise, words):
    try:
        import gguf as lib  # of the llama.cpp sources: see engines.py
    except ImportError:
        raise engines.Absent("llama.cpp: its sources, which write its models, are not here") from None

    path.parent.mkdir(parents=True, exist_ok=True)
    w = lib.GGUFWriter(path, "qwen2")
    w.add_block_count(c["layers"])
    w.add_context_length(MAX_POSITIONS)
    w.add_embedding_length(c["hidden"])
    w.add_feed_forward_length(c["inner"])
    w.add_head_count(c["heads"])
    w.add_head_count_kv(c["kv_heads"])
    w.add_rope_freq_base(1e6)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_vocab_size(c["vocab"])
    if words:
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("qwen2")
        w.add_token_list([f"t{i}" for i in range(c["vocab"])])
        w.add_token_types([lib.TokenType.NORMAL] * c["vocab"])
        w.add_token_merges(["t 0"])
    else:
        w.add_tokenizer_model("none")

    def linear_weight(name, n, k):
        if form == "f32":
            w.add_tensor(name, noise.normal([n, k], k ** -0.5))
            return
        blocks = np.empty([n, k // 32, 18], np.uint8)
        scales = np.full([n, k // 32, 1], 1 / (4.6 * k ** 0.5), np.float16)
        blocks[:, :, :2] = scales.view(np.uint8)
        blocks[:, :, 2:] = noise.bytes([n, k // 32, 16])
        w.add_tensor(name, blocks.reshape(n, -1), raw_dtype=lib.GGMLQuantizationType.Q4_0)

    hidden, head = c["hidden"], c["head"]
    w.add_tensor("token_embd.weight", noise.normal([c["vocab"], hidden], 0.02).astype(
        np.float32 if form == "f32" else np.float16))
    for i in range(c["layers"]):
        p = f"blk.{i}."
        for name in ("attn_norm", "ffn_norm"):
            w.add_tensor(p + name + ".weight", np.ones(hidden, np.float32))
        for name, heads in (("q", c["heads"]), ("k", c["kv_heads"]), ("v", c["kv_heads"])):
            linear_weight(p + f"attn_{name}.weight", heads * head, hidden)
            w.add_tensor(p + f"attn_{name}.bias", noise.normal([heads * head], 0.1))
        linear_weight(p + "attn_output.weight", hidden, c["heads"] * head)
        linear_weight(p + "ffn_gate.weight", c["inner"], hidden)
        linear_weight(p + "ffn_up.weight", c["inner"], hidden)
        linear_weight(p + "ffn_down.weight", hidden, c["inner"])
    w.add_tensor("output_norm.weight", np.ones(hidden, np.float32))
    linear_weight("output.weight", c["vocab"], hidden)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def array(name, shape, dtype="f32") -> Path:
    """A .npy file of normal values, or of codes."""
    path = HOME / "data" / f"{name}-{'x'.join(map(str, shape))}-{dtype}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = Noise(path.name, 1 << 20)
        np.save(path, noise.bytes(shape).view(CODES[dtype][2]) if dtype in CODES
                else noise.normal(shape).astype(FLOAT[dtype][1]))
    return path


def number(value, shape) -> Path:
    """A .npy file of an int32."""
    path = HOME / "data" / f"i32-{value}-{'x'.join(map(str, shape)) or 'scalar'}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.full(shape, value, np.int32))
    return path
