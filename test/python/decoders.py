"""Small decoders with attention ops other than GroupQueryAttention, written node by node.

Decoder(kind) makes a two-layer model: embedding, attention with a residual, a gate, logits. `kind`
is one of KINDS; each has the same arithmetic with another op, and another way to represent lengths
and padding. Inputs are input_ids, attention_mask and the pasts, as in exported models.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, WIDTH, HEADS, KV_HEADS, LAYERS = 61, 32, 4, 2, 2
SIZE = WIDTH // HEADS
ROOM = 160  # rows of a buffer
F, I32, I64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64


class Decoder:
    """Collects nodes; model() returns the file."""

    def __init__(self, kind, seed=3):
        self.kind = kind
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights = [], []
        self.inputs = [self.info("input_ids", I64, ["B", "S"]),
                       self.info("attention_mask", I64, ["B", "T"])]
        self.outputs = [self.info("logits", F, ["B", "S", VOCABULARY])]
        for name, value in (("zero", [0]), ("one", [1]), ("two", [2]), ("axes", [1, 2]),
                            ("scalar", 1)):
            self.constant(name, np.array(value, np.int64))
        x = self.node("Gather", self.weight("embed", VOCABULARY, WIDTH), "input_ids")
        for layer in range(LAYERS):
            y = getattr(self, kind)(layer, x)
            x = self.node("Add", x, self.project(f"o{layer}", y, WIDTH, WIDTH))
            gate = self.node("Sigmoid", self.project(f"g{layer}", x, WIDTH, WIDTH))
            x = self.node("Add", x, self.node("Mul", gate, x))
        self.node("MatMul", x, self.weight("head", WIDTH, VOCABULARY), out=["logits"])

    # ---- pieces ----------------------------------------------------------------------------------

    @staticmethod
    def info(name, dtype, shape):
        """A graph input or output."""
        return helper.make_tensor_value_info(name, dtype, shape)

    def constant(self, name, value):
        """Adds an initialiser; returns its name."""
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, name, *shape):
        """Adds a random weight."""
        scale = 1.0 if len(shape) == 1 or shape[0] == VOCABULARY else 1.3 / shape[0] ** 0.5
        return self.constant(name, (self.random.standard_normal(shape) * scale).astype(np.float32))

    def node(self, op, *inputs, out=None, domain="", **attributes):
        """Adds a node; returns its first output."""
        out = out or [f"node.{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op, list(inputs), out, domain=domain,
                                           name=f"{op}_{len(self.nodes)}", **attributes))
        return out[0]

    def project(self, name, x, width, columns):
        """x times a weight."""
        return self.node("MatMul", x, self.weight(name, width, columns))

    def qkv(self, layer, x, kv_heads):
        """Projections q, k, v [B,S,heads*D]."""
        return [self.project(f"{n}{layer}", x, WIDTH, h * SIZE)
                for n, h in (("q", HEADS), ("k", kv_heads), ("v", kv_heads))]

    def pair(self, layer, heads, rows=("P", "T"), presents=True):
        """The names of the pasts and presents of a layer."""
        names = [f"past_key_values.{layer}.{n}" for n in ("key", "value")]
        for name in names:
            self.inputs.append(self.info(name, F, ["B", heads, rows[0], SIZE]))
        results = [f"present.{layer}.{n}" for n in ("key", "value")]
        for name in results if presents else ():
            self.outputs.append(self.info(name, F, ["B", heads, rows[1], SIZE]))
        return names, results

    def once(self, name, make):
        """A value that all layers share."""
        if not hasattr(self, name):
            setattr(self, name, make())
        return getattr(self, name)

    def valid(self):
        """The sum of the mask: the number of valid rows after this call, i64 [B]."""
        return self.once("_valid", lambda: self.node("ReduceSum", "attention_mask", "one",
                                                     keepdims=0))

    def chunk(self):
        """S, i64 [1]."""
        return self.once("_chunk", lambda: self.node("Shape", "input_ids", start=1, end=2))

    def mask32(self):
        """attention_mask as i32."""
        return self.once("_mask32", lambda: self.node("Cast", "attention_mask", to=I32))

    def additive(self):
        """(1 - mask) * -10000 as [B,1,1,T]."""
        def make():
            x = self.node("Cast", "attention_mask", to=F)
            x = self.node("Unsqueeze", x, "axes")
            x = self.node("Sub", self.constant("f1", np.float32(1)), x)
            return self.node("Mul", x, self.constant("low", np.float32(-10000)))
        return self.once("_additive", make)

    def triangle(self):
        """0 or -10000 [B|1,1,S,T]: which keys are visible to a query, computed from shapes."""
        def make():
            total = self.node("Shape", "attention_mask", start=1, end=2)
            first = self.node("Sub", total, self.chunk())
            ends = [self.node("Squeeze", n) for n in (first, total)]
            zero = self.constant("s0", np.int64(0))
            rows = self.node("Unsqueeze", self.node("Range", *ends, "scalar"), "one")
            columns = self.node("Unsqueeze", self.node("Range", zero, ends[1], "scalar"), "zero")
            seen = self.node("LessOrEqual", columns, rows)
            mask = self.node("Where", seen, self.constant("f0", np.float32(0)),
                             self.constant("hide", np.float32(-10000)))
            return self.node("Unsqueeze", mask, self.constant("front", np.array([0, 1])))
        return self.once("_triangle", make)

    # ---- kinds -----------------------------------------------------------------------------------

    def attention(self, layer, x, mask="", **attributes):
        """Attention-23 with 3-D inputs and a growing past."""
        past, present = self.pair(layer, KV_HEADS)
        return self.node("Attention", *self.qkv(layer, x, KV_HEADS), mask, *past,
                         out=[f"y{layer}", *present], q_num_heads=HEADS, kv_num_heads=KV_HEADS,
                         **{"is_causal": 1, **attributes})

    def attention_capped(self, layer, x):
        """The same with softcap, scale and a mask that only pads."""
        return self.attention(layer, x, self.additive(), softcap=3.0, scale=0.6)

    def attention_bool(self, layer, x):
        """A bool mask that only pads."""
        mask = self.once("_bool", lambda: self.node(
            "Unsqueeze", self.node("Cast", "attention_mask", to=TensorProto.BOOL), "axes"))
        return self.attention(layer, x, mask)

    def attention_window(self, layer, x):
        """A window of five keys and no is_causal."""
        return self.attention(layer, x, is_causal=0, left_window_size=4, right_window_size=0)

    def attention_4d(self, layer, x):
        """The same with 4-D inputs."""
        heads = []
        for value, n in zip(self.qkv(layer, x, KV_HEADS), (HEADS, KV_HEADS, KV_HEADS)):
            shape = self.once(f"_shape{n}", lambda n=n: self.constant(
                f"shape{n}", np.array([0, 0, n, SIZE])))
            heads.append(self.node("Transpose", self.node("Reshape", value, shape),
                                   perm=[0, 2, 1, 3]))
        past, present = self.pair(layer, KV_HEADS)
        y = self.node("Attention", *heads, "", *past, out=[f"y{layer}", *present], is_causal=1)
        flat = self.once("_flat", lambda: self.constant("flat", np.array([0, 0, WIDTH])))
        return self.node("Reshape", self.node("Transpose", y, perm=[0, 2, 1, 3]), flat)

    def attention_static(self, layer, x):
        """TensorScatter into a buffer, and Attention-24 with its valid length."""
        past, present = self.pair(layer, KV_HEADS, (ROOM, ROOM))
        shape = self.once("_kv", lambda: self.constant("kv", np.array([0, 0, KV_HEADS, SIZE])))
        shape_q = self.once("_q", lambda: self.constant("qs", np.array([0, 0, HEADS, SIZE])))
        q, *fresh = self.qkv(layer, x, KV_HEADS)
        first = self.once("_first", lambda: self.node("Sub", self.valid(), self.chunk()))
        for value, cache, result in zip(fresh, past, present):
            rows = self.node("Transpose", self.node("Reshape", value, shape), perm=[0, 2, 1, 3])
            self.node("TensorScatter", cache, rows, first, out=[result])
        q = self.node("Transpose", self.node("Reshape", q, shape_q), perm=[0, 2, 1, 3])
        y = self.node("Attention", q, *present, "", "", "", self.valid(), is_causal=1)
        flat = self.once("_flat", lambda: self.constant("flat", np.array([0, 0, WIDTH])))
        return self.node("Reshape", self.node("Transpose", y, perm=[0, 2, 1, 3]), flat)

    def multi_head(self, layer, x, *rest, **attributes):
        """com.microsoft.MultiHeadAttention with a growing past."""
        past, present = self.pair(layer, HEADS)
        bias = self.weight(f"b{layer}", 3 * WIDTH)
        padding, addend = rest or ("", "")
        return self.node("MultiHeadAttention", *self.qkv(layer, x, HEADS), bias, padding, addend,
                         *past, out=[f"y{layer}", *present], domain="com.microsoft",
                         num_heads=HEADS, **{"unidirectional": 1, **attributes})

    def multi_head_padded(self, layer, x):
        """With a padding mask of keys."""
        return self.multi_head(layer, x, self.mask32(), "")

    def multi_head_lengths(self, layer, x):
        """With the number of keys as its padding mask."""
        lengths = self.once("_lengths", lambda: self.node("Cast", self.valid(), to=I32))
        return self.multi_head(layer, x, lengths, "")

    def multi_head_biased(self, layer, x):
        """With a padding mask, and a bias that only pads."""
        return self.multi_head(layer, x, self.mask32(), self.additive())

    def multi_head_buffer(self, layer, x):
        """With a buffer and past_sequence_length."""
        past, present = self.pair(layer, HEADS, (ROOM, ROOM))
        first = self.once("_one", lambda: self.node("Cast", self.node(
            "Sub", self.node("Shape", "attention_mask", start=1, end=2), self.chunk()), to=I32))
        return self.node("MultiHeadAttention", *self.qkv(layer, x, HEADS), "", "", "", *past, first,
                         out=[f"y{layer}", *present], domain="com.microsoft", num_heads=HEADS,
                         unidirectional=1)

    def multi_head_outside(self, layer, x, last=False):
        """Keys and values are appended to the past outside the node, whose queries are the last of
        them. last: it has only the last query."""
        past, present = self.pair(layer, HEADS)
        shape = self.once("_heads", lambda: self.constant("heads", np.array([0, 0, HEADS, SIZE])))
        q, *fresh = self.qkv(layer, x, HEADS)
        for value, cache, result in zip(fresh, past, present):
            rows = self.node("Transpose", self.node("Reshape", value, shape), perm=[0, 2, 1, 3])
            self.node("Concat", cache, rows, axis=2, out=[result])
        if last:
            ends = self.once("_ends", lambda: [self.constant("minus", np.array([-1])),
                                               self.constant("far", np.array([1 << 40]))])
            q = self.node("Slice", q, *ends, "one")
        return self.node("MultiHeadAttention", q, *present, domain="com.microsoft",
                         num_heads=HEADS, unidirectional=1)

    def masked_decoder(self, layer, x, share=0):
        """com.microsoft.DecoderMaskedMultiHeadAttention."""
        past, present = self.pair(layer, HEADS, (ROOM, ROOM) if share else ("P", "T"))
        more = []
        if share:
            more.append(self.once("_one", lambda: self.node("Cast", self.node(
                "Sub", self.node("Shape", "attention_mask", start=1, end=2), self.chunk()),
                to=I32)))
        return self.node("DecoderMaskedMultiHeadAttention", *self.qkv(layer, x, HEADS),
                         self.mask32(), "", *past, *more, out=[f"y{layer}", *present],
                         domain="com.microsoft", num_heads=HEADS, past_present_share_buffer=share)

    def masked_decoder_buffer(self, layer, x):
        """The same with a buffer."""
        return self.masked_decoder(layer, x, 1)

    def packed(self, layer, x, mask=""):
        """com.microsoft.Attention: past of keys and values in one tensor."""
        self.inputs.append(self.info(f"past_{layer}", F, [2, "B", HEADS, "P", SIZE]))
        self.outputs.append(self.info(f"present_{layer}", F, [2, "B", HEADS, "T", SIZE]))
        return self.node("Attention", x, self.weight(f"w{layer}", WIDTH, 3 * WIDTH),
                         self.weight(f"b{layer}", 3 * WIDTH), mask, f"past_{layer}",
                         out=[f"y{layer}", f"present_{layer}"], domain="com.microsoft",
                         num_heads=HEADS, unidirectional=1)

    def packed_padded(self, layer, x):
        """With a padding mask of keys."""
        return self.packed(layer, x, self.mask32())

    def conv(self, layer, x, past="", present=""):
        """Attention, then a causal convolution that carries its state."""
        taps, room = 3 + layer, (2 + layer) * (1 + layer)
        names = [f"{n}.{layer}.conv" for n in ("past", "present")]
        for name, values in zip(names, (self.inputs, self.outputs)):
            values.append(self.info(name, F, ["B", WIDTH, room]))
        turned = self.node("Transpose", self.attention(layer, x), perm=[0, 2, 1])
        y = self.node("CausalConvWithState", turned, self.weight(f"c{layer}", WIDTH, 1, taps),
                      self.weight(f"cb{layer}", WIDTH), past or names[0],
                      out=[f"conv{layer}", present or names[1]], domain="com.microsoft",
                      activation="silu", dilation=1 + layer)
        return self.node("Transpose", y, perm=[0, 2, 1])

    def recurrent(self, layer, x, domain="com.microsoft"):
        """A recurrence whose state is carried, before attention or after it."""
        names = [f"{n}.{layer}.recurrent" for n in ("past", "present")]
        heads, dk, dv = 2 - layer, 6, 5 + 32 * layer
        for name, values in zip(names, (self.inputs, self.outputs)):
            values.append(self.info(name, F, ["B", heads, dk, dv]))
        y = self.attention(layer, x) if layer else x
        q, k = (self.node("LpNormalization", self.project(f"r{n}{layer}", y, WIDTH, h * dk),
                          axis=-1, p=2) for n, h in (("q", 2), ("k", heads)))
        v, a, b = (self.project(f"r{n}{layer}", y, WIDTH, w)
                   for n, w in (("v", heads * dv), ("a", heads), ("b", heads)))
        a = self.node("Neg", self.node("Softplus", a))
        out = [f"recurrent{layer}", names[1]]
        self.node("LinearAttention", q, k, v, names[0], a, self.node("Sigmoid", b), out=out,
                  domain=domain, q_num_heads=2, kv_num_heads=heads, update_rule="gated_delta")
        y = self.project(f"ro{layer}", out[0], 2 * dv, WIDTH)
        return y if layer else self.attention(layer, y)

    def recurrent_alone(self, layer, x):
        """Linear attention of the ONNX domain, and no cache with rows."""
        self.attention, kept = lambda _, y: y, self.attention
        y = self.recurrent(layer, x, domain="")
        self.attention = kept
        return y

    def rotary_padded(self, layer, x):
        """GroupQueryAttention that rotates by its own lengths, in a graph that reads the length of
        a call: rows of several sequences are padded."""
        lengths = self.once("_gqa", lambda: [
            self.node("Cast", self.node("Sub", self.valid(), "one"), to=I32),
            self.node("Cast", self.node("Squeeze", self.node(
                "Shape", "attention_mask", start=1, end=2)), to=I32)])
        angles = np.outer(np.arange(ROOM), 1e3 ** (-np.arange(SIZE // 2) / (SIZE // 2)))
        tables = self.once("_tables", lambda: [
            self.constant(n, f(angles).astype(np.float32))
            for n, f in (("cos", np.cos), ("sin", np.sin))])
        past, present = self.pair(layer, KV_HEADS)
        nothing = self.node("Mul", self.node("Cast", self.chunk(), to=F),
                            self.constant(f"f0{layer}", np.float32(0)))
        return self.node("GroupQueryAttention", *self.qkv(layer, self.node("Add", x, nothing),
                                                          KV_HEADS), *past, *lengths, *tables,
                         out=[f"y{layer}", *present], domain="com.microsoft", num_heads=HEADS,
                         kv_num_heads=KV_HEADS, do_rotary=1)

    # ---- linear biases (ALiBi) -------------------------------------------------------------------

    def slopes(self, layer, x):
        """A bias that is the position of the key: [1,1,1,T], from the length of the mask."""
        def make():
            total = self.node("Squeeze", self.node("Shape", "attention_mask", start=1, end=2))
            places = self.node("Range", self.constant("s0", np.int64(0)), total, "scalar")
            front = self.constant("front3", np.array([0, 1, 2]))
            return self.node("Unsqueeze", self.node("Cast", places, to=F), front)
        return self.attention(layer, x, self.once("_slopes", make))

    def alibi(self, dtype):
        """A slope for each head times the position of each key, computed in that type, as in
        Falcon: [B*H,1,T] in f32. The position is 0 where attention_mask is."""
        def make():
            counted = self.node("CumSum", "attention_mask", self.constant("i1", np.int32(1)))
            places = self.node("Mul", self.node("Sub", counted, "scalar"), "attention_mask")
            places = self.node("Cast", self.node("Unsqueeze", places, "one"), to=dtype)
            slopes = 0.21 * 0.5 ** np.arange(HEADS, dtype=np.float32)[:, None]
            slopes = self.node("Cast", self.constant("slope", slopes), to=dtype)
            rows = self.node("Mul", self.node("Shape", "attention_mask", end=1),
                             self.constant("heads", np.array([HEADS])))
            shape = self.node("Concat", rows, "one", self.node("Shape", "attention_mask", start=1),
                              axis=0)
            return self.node("Cast", self.node("Reshape", self.node("Mul", slopes, places), shape),
                             to=F)
        return self.once("_alibi", make)

    def unfolded(self, dtype):
        """The same as [B,H,1,T]."""
        return self.once("_unfolded", lambda: self.node(
            "Reshape", self.alibi(dtype), self.node(
                "Concat", self.node("Shape", "attention_mask", end=1), self.constant(
                    "rest", np.array([HEADS, 1, -1])), axis=0)))

    def hidden(self):
        """The lowest number for keys after the query: [1,1,S,T]."""
        return self.once("_hidden", lambda: self.node(
            "Where", self.node("Equal", self.triangle(), self.constant("nothing", np.float32(0))),
            "nothing", self.constant("lowest", np.finfo(np.float32).min)))

    def falcon(self, layer, x):
        """Masked keys get the mask instead of the biases, which are rounded to bf16 and then
        scaled."""
        def make():
            bias = self.node("Div", self.unfolded(TensorProto.BFLOAT16), self.constant(
                "root", np.float32(SIZE ** 0.5)))
            later = self.node("Less", self.hidden(), self.constant("minus", np.float32(-1)))
            return self.node("Where", later, "lowest", bias)
        past, present = self.pair(layer, HEADS)
        return self.node("Attention", *self.qkv(layer, x, HEADS), self.once("_falcon", make), *past,
                         out=[f"y{layer}", *present], q_num_heads=HEADS, kv_num_heads=HEADS)

    def falcon_simple(self, layer, x):
        """The same in simple ops: the scale is applied after the biases, and the mask after the
        scale."""
        heads = self.once("_hs", lambda: self.constant("hs", np.array([0, 0, HEADS, SIZE])))
        flat = self.once("_flat", lambda: self.constant("flat", np.array([0, 0, WIDTH])))
        past, present = self.pair(layer, HEADS)
        q, k, v = [self.node("Transpose", self.node("Reshape", n, heads), perm=[0, 2, 1, 3])
                   for n in self.qkv(layer, x, HEADS)]
        k, v = [self.node("Concat", a, b, out=[c], axis=2)
                for a, b, c in zip(past, (k, v), present)]
        scores = self.node("MatMul", q, self.node("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.node("Mul", self.node("Add", scores, self.unfolded(TensorProto.BFLOAT16)),
                           self.constant(f"inverse{layer}", np.float32(SIZE ** -0.5)))
        weights = self.node("Softmax", self.node("Add", scores, self.hidden()), axis=-1)
        return self.node("Reshape", self.node("Transpose", self.node("MatMul", weights, v),
                                              perm=[0, 2, 1, 3]), flat)

    def multi_head_slopes(self, layer, x):
        """MultiHeadAttention with a bias for each head and key."""
        past, present = self.pair(layer, HEADS)
        return self.node("MultiHeadAttention", *self.qkv(layer, x, HEADS), "", "",
                         self.unfolded(F), *past, out=[f"y{layer}", *present],
                         domain="com.microsoft", num_heads=HEADS, unidirectional=1)

    def halves(self, layer, x):
        """Products that are rounded to f16, of positions that are rounded too."""
        return self.attention(layer, x, self.unfolded(TensorProto.FLOAT16))

    # ---- what a sequence must refuse -------------------------------------------------------------

    def mask_from_shapes(self, layer, x):
        """Causality as a mask."""
        return self.attention(layer, x, self.triangle(), is_causal=0)

    def bias_from_shapes(self, layer, x):
        """The same with com.microsoft."""
        return self.multi_head(layer, x, "", self.triangle(), unidirectional=0)

    def one_bias(self, layer, x):
        """A mask that adds a constant where attention_mask is one."""
        return self.attention(layer, x, self.node(
            "Unsqueeze", self.node("Cast", "attention_mask", to=F), "axes"))

    def slopes_of_rounded(self, layer, x):
        """The position of a key is rounded to bf16, but its product with a slope is not."""
        def make():
            counted = self.node("CumSum", "attention_mask", self.constant("i1", np.int32(1)))
            places = self.node("Cast", self.node("Sub", counted, "scalar"), to=TensorProto.BFLOAT16)
            places = self.node("Unsqueeze", self.node("Cast", places, to=F), "axes")
            slopes = 0.97 * 0.5 ** np.arange(HEADS, dtype=np.float32).reshape(1, HEADS, 1, 1)
            return self.node("Mul", self.constant("slope", slopes), places)
        return self.attention(layer, x, self.once("_slopes_of_rounded", make))

    def rounded_on_the_way(self, layer, x):
        """A constant that is added to a bias in bf16, and subtracted again."""
        def make():
            more = self.node("Cast", self.constant("more", np.float32(304)), to=TensorProto.BFLOAT16)
            bias = self.node("Cast", self.unfolded(TensorProto.BFLOAT16), to=TensorProto.BFLOAT16)
            return self.node("Cast", self.node("Sub", self.node("Add", bias, more), more), to=F)
        return self.attention(layer, x, self.once("_rounded_on_the_way", make))

    def no_past(self, layer, x):
        """One layer has no cache."""
        if layer == 0:
            return self.attention(layer, x)
        return self.node("Attention", *self.qkv(layer, x, KV_HEADS), q_num_heads=HEADS,
                         kv_num_heads=KV_HEADS, is_causal=1)

    def half_present(self, layer, x):
        """The keys are not an output."""
        y = self.attention(layer, x)
        self.outputs = [o for o in self.outputs if o.name != f"present.{layer}.key"]
        return y

    def no_present(self, layer, x):
        """Layer 1 has no outputs for its cache."""
        y = self.attention(layer, x)
        self.outputs = [o for o in self.outputs if not o.name.startswith("present.1")]
        return y

    def shared_past(self, layer, x):
        """Layer 1 reads the cache of layer 0 and has no new keys of its own."""
        if layer == 0:
            return self.attention(layer, x)
        q = self.qkv(layer, x, KV_HEADS)[0]
        return self.node("Attention", q, "present.0.key", "present.0.value", q_num_heads=HEADS,
                         is_causal=1)

    def read_elsewhere(self, layer, x):
        """The cache is also the input of another op."""
        y = self.attention(layer, x)
        mean = self.node("ReduceMean", f"present.{layer}.key", self.constant(
            f"rows{layer}", np.array([1, 2, 3])), keepdims=0)
        return self.node("Add", y, self.node("Unsqueeze", mean, "axes"))

    def circular(self, layer, x):
        """A ring buffer."""
        y = self.attention_static(layer, x)
        for n in self.nodes:
            if n.op_type == "TensorScatter" and not n.attribute:
                n.attribute.append(helper.make_attribute("mode", "circular"))
        return y

    def lengths_of_ids(self, layer, x):
        """The valid length is computed from the token ids."""
        self.once("_valid", lambda: self.node("ReduceMax", "input_ids", "one", keepdims=0))
        return self.attention_static(layer, x)

    def conv_scaled(self, layer, x):
        """The state of a convolution is not exactly the past."""
        half = self.constant(f"half{layer}", np.float32(0.5))
        return self.conv(layer, x, past=self.node("Mul", f"past.{layer}.conv", half))

    def conv_changed(self, layer, x):
        """The output is not exactly the state."""
        y = self.conv(layer, x, present=f"state{layer}")
        half = self.constant(f"half{layer}", np.float32(0.5))
        self.node("Mul", f"state{layer}", half, out=[f"present.{layer}.conv"])
        return y

    def last_query(self, layer, x):
        """A causal node that has only the last query; its row is added to all rows."""
        return self.multi_head_outside(layer, x, last=True)

    def queries_padded(self, layer, x):
        """A padding mask [B,S,T]."""
        mask = self.once("_3d", lambda: self.node("Cast", self.node(
            "Expand", self.node("Unsqueeze", "attention_mask", "one"),
            self.node("Concat", "one", self.chunk(), "one", axis=0)), to=I32))
        return self.multi_head(layer, x, mask, "")

    def model(self):
        """The complete model."""
        graph = helper.make_graph(self.nodes, self.kind, self.inputs, self.outputs, self.weights)
        opsets = [helper.make_opsetid("", 27 if self.kind == "recurrent_alone" else 24), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def save(self, path):
        """Writes the file; returns its path."""
        onnx.save(self.model(), path)
        return path

    def empty(self, ids):
        """The inputs of a first call."""
        feeds = {"input_ids": np.array([ids], np.int64),
                 "attention_mask": np.ones((1, len(ids)), np.int64)}
        for value in self.inputs[2:]:
            shape = [d.dim_value or {"B": 1, "P": 0}[d.dim_param]
                     for d in value.type.tensor_type.shape.dim]
            feeds[value.name] = np.zeros(shape, np.float32)
        return feeds


KINDS = ["attention", "attention_capped", "attention_bool", "attention_window", "attention_4d",
         "attention_static", "multi_head", "multi_head_padded", "multi_head_lengths",
         "multi_head_biased", "multi_head_buffer", "multi_head_outside", "masked_decoder",
         "masked_decoder_buffer", "packed", "packed_padded", "conv", "recurrent", "recurrent_alone",
         "slopes", "falcon", "falcon_simple", "multi_head_slopes", "halves"]
