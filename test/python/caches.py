"""Small decoders whose caches do not have the form of a past and a present of one head size.

Caches(kind) makes a two-layer model of simple ops, as torch.onnx.export writes it. `kind` is one of
KINDS: `latent` has keys and values of different head sizes, as decoders with latent attention
(DeepSeek-V2, V3) cache them expanded; `compressed` caches their latent rows and expands all of them
in every call; the static kinds write buffers of a constant length at cache_position.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, WIDTH, LAYERS = 67, 36, 2
LATENT_HEADS, NOPE, ROPE, VALUE, RANK = 3, 10, 6, 7, 13
HEADS, KV_HEADS, SIZE, ROWS = 6, 2, 10, 48
WIDE = 14  # elements of values that are wider than keys
F, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
LOWEST = np.float32(np.finfo(np.float32).min)


class Caches:
    """Collects nodes; model() returns the file."""

    def __init__(self, kind, seed=11, batch="B", start=False, centred=False):
        """start: only the position of the first new row is an input; centred: latent rows are
        expanded after subtracting the mean of all of them."""
        self.kind, self.batch, self.centred = kind, batch, centred
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights, self.pairs, self.p = [], [], {}, None
        self.places = "cache_position"
        self.static = kind in ("transposed", "scattered", "elements")
        self.inputs = [self.info("input_ids", I64, [batch, "S"])]
        if self.static:
            self.inputs.append(self.info(self.places, I64, [] if start else ["S"]))
        else:
            self.inputs.append(self.info("attention_mask", I64, [batch, "T"]))
            if kind != "start_of_past":
                self.inputs.append(self.info("position_ids", I64, [1] if kind == "start_input" else [batch, "S"]))
        self.outputs = [self.info("logits", F, [batch, "S", VOCABULARY])]
        if start:
            new = self.node("Range", self.constant(0), self.node(
                "Squeeze", self.length("input_ids", 1)), self.constant(1))
            self.places = self.node("Add", new, self.places)
        x = self.node("Gather", self.weight("embed", VOCABULARY, WIDTH), "input_ids")
        if not kind.startswith("start_"):
            self.tables(ROPE if kind in ("latent", "compressed") else SIZE)
        self.mask = self.static_mask() if self.static else self.grown_mask()
        for layer in range(LAYERS):
            y, width = getattr(self, kind)(layer, self.norm(f"n{layer}", x, WIDTH))
            x = self.node("Add", x, self.project(f"o{layer}", y, width, WIDTH))
            gate = self.node("Sigmoid", self.project(f"g{layer}", x, WIDTH, WIDTH))
            x = self.node("Add", x, self.node("Mul", gate, x))
        self.product(x, self.weight("head", WIDTH, VOCABULARY), out=["logits"])

    def model(self):
        """The file."""
        graph = helper.make_graph(self.nodes, self.kind, self.inputs, self.outputs, self.weights)
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        onnx.checker.check_model(model)
        return model

    # ---- pieces ----------------------------------------------------------------------------------

    @staticmethod
    def info(name, dtype, shape):
        """A graph input or output."""
        return helper.make_tensor_value_info(name, dtype, shape)

    def constant(self, value, dtype=np.int64, name=None):
        """Adds an initialiser; returns its name."""
        name = name or f"constant.{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weight(self, name, *shape):
        """Adds a random weight."""
        scale = 1.0 if len(shape) == 1 or shape[0] == VOCABULARY else 1.5 / shape[0] ** 0.5
        return self.constant(self.random.standard_normal(shape) * scale, np.float32, name)

    def node(self, op, *inputs, out=None, **attributes):
        """Adds a node; returns its first output."""
        out = out or [f"node.{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op, list(inputs), out,
                                           name=f"{op}_{len(self.nodes)}", **attributes))
        return out[0]

    def project(self, name, x, width, columns):
        """x times a weight."""
        return self.product(x, self.weight(name, width, columns))

    def product(self, a, b, out=None):
        """a times b. With static quantisation, both and the result are rounded to codes, as quantize_static of
        ONNX Runtime writes it for each MatMul."""
        if not self.kind.startswith("quantised"):
            return self.node("MatMul", a, b, out=out)
        weight = next((w for w in self.weights if w.name == b), None)
        b = self.rounded(b) if weight is None else self.of_codes(weight)
        return self.rounded(self.node("MatMul", self.rounded(a), b), out)

    def rounded(self, x, out=None):
        """x as 8-bit codes and back, once for each x."""
        if x not in self.pairs:
            scale, zero = (1 / 255, -128) if x == self.p else (1 / 16, 3)
            codes = [self.constant(scale, np.float32), self.constant(zero, np.int8)]
            self.pairs[x] = self.node("DequantizeLinear", self.node("QuantizeLinear", x, *codes), *codes, out=out)
        return self.pairs[x]

    def of_codes(self, weight):
        """A weight [K,N] as codes with a scale for each column."""
        self.weights.remove(weight)
        w = numpy_helper.to_array(weight)
        scale = np.abs(w).max(axis=0) / 127
        return self.node("DequantizeLinear", self.constant(np.rint(w / scale), np.int8),
                         self.constant(scale, np.float32), self.constant(np.zeros(len(scale)), np.int8), axis=1)

    def norm(self, name, x, width):
        """RMS norm in simple ops."""
        square = self.node("Pow", x, self.constant(2.0, np.float32))
        mean = self.node("ReduceMean", square, self.constant([-1]), keepdims=1)
        mean = self.node("Add", mean, self.constant(1e-5, np.float32))
        y = self.node("Div", x, self.node("Sqrt", mean))
        return self.node("Mul", self.constant(1 + .2 * self.random.standard_normal(width),
                                              np.float32, name), y)

    def heads(self, x, n, size):
        """[B,S,n*size] -> [B,n,S,size]."""
        x = self.node("Reshape", x, self.constant([0, 0, n, size]))
        return self.node("Transpose", x, perm=[0, 2, 1, 3])

    def split(self, x, *sizes):
        """Parts of the last axis."""
        names = [f"part.{len(self.nodes)}.{i}" for i in range(len(sizes))]
        self.node("Split", x, self.constant(sizes), out=names, axis=-1)
        return names

    def tables(self, size):
        """cos and sin [B|1,1,S,size] of the positions."""
        places = self.places if self.static else "position_ids"
        axes = [0, 1, 3] if self.static else [1, 3]
        frequencies = 30.0 ** (-np.arange(0, size, 2) / size)
        places = self.node("Cast", self.node("Unsqueeze", places, self.constant(axes)), to=F)
        angles = self.node("Mul", places, self.constant(frequencies, np.float32))
        angles = self.node("Concat", angles, angles, axis=-1)
        self.cos, self.sin = self.node("Cos", angles), self.node("Sin", angles)

    def rotated(self, x, size):
        """x with rotary."""
        a, b = self.split(x, size // 2, size // 2)
        half = self.node("Concat", self.node("Neg", b), a, axis=-1)
        return self.node("Add", self.node("Mul", x, self.cos), self.node("Mul", half, self.sin))

    def length(self, x, axis):
        """Dim `axis` of x, [1]."""
        return self.node("Shape", x, start=axis, end=axis + 1)

    def pair(self, layer, shapes):
        """The names of the pasts and presents of a layer, given their shapes, in which P is the
        rows."""
        rows = ROWS if self.static else "P"
        names = [f"past_key_values.{layer}.{n}" for n in ("key", "value")]
        results = [f"present.{layer}.{n}" for n in ("key", "value")]
        for past, present, shape in zip(names, results, shapes, strict=True):
            self.inputs.append(self.info(past, F, [rows if d == "P" else d for d in shape]))
            self.outputs.append(self.info(present, F, [
                (rows if self.static else "T") if d == "P" else d for d in shape]))
        return zip(names, results, strict=True)

    def attention(self, q, k, v, scale):
        """softmax(scale q k^T + mask) v as [B,S,H*D]."""
        return self.weighed(self.product(q, self.node("Transpose", k, perm=[0, 1, 3, 2])), v, scale)

    def weighed(self, scores, v, scale):
        """softmax(scale scores + mask) v as [B,S,H*D]."""
        scores = self.node("Mul", scores, self.constant(scale, np.float32))
        self.p = self.node("Softmax", self.node("Add", scores, self.mask), axis=-1)
        y = self.node("Transpose", self.product(self.p, v), perm=[0, 2, 1, 3])
        return self.node("Reshape", y, self.constant([0, 0, -1]))

    # ---- masks -----------------------------------------------------------------------------------

    def hide(self, seen):
        """0 where a key is visible."""
        return self.node("Where", seen, self.constant(0.0, np.float32),
                         self.constant(LOWEST, np.float32))

    def grown_mask(self):
        """Which of T keys are visible to each query: causality and padding."""
        total = self.length("attention_mask", 1)
        if self.kind.startswith("folded"):  # the length of a past is also input
            cached = self.node("Gather", self.node("Shape", "past_key_values.0.value"), self.constant([1]), axis=0)
            total = self.node("Add", cached, self.length("input_ids", 1))
        first = self.node("Sub", total, self.length("input_ids", 1))
        one = self.constant(1)
        rows, ends = [self.node("Squeeze", n) for n in (first, total)], self.constant(0)
        rows = self.node("Unsqueeze", self.node("Range", *rows, one), self.constant([1]))
        keys = self.node("Range", ends, self.node("Squeeze", total), one)
        seen = self.node("Unsqueeze", self.node("LessOrEqual", keys, rows), self.constant([0, 1]))
        padding = self.node("Cast", "attention_mask", to=BOOL)
        padding = self.node("Unsqueeze", padding, self.constant([1, 2]))
        self.seen = self.node("And", seen, padding)
        return self.hide(self.seen)

    def static_mask(self):
        """cache_position compared with the number of each row of the buffer."""
        places = self.node("Unsqueeze", self.places, self.constant([0, 1, 3]))
        keys = self.constant(np.arange(ROWS)[None, None, None])
        return self.hide(self.node("LessOrEqual", keys, places))

    # ---- kinds -----------------------------------------------------------------------------------

    def queries(self, layer, x):
        """Queries of latent attention: [B,H,S,NOPE+ROPE]."""
        q = self.project(f"q{layer}", x, WIDTH, LATENT_HEADS * (NOPE + ROPE))
        nope, rope = self.split(self.heads(q, LATENT_HEADS, NOPE + ROPE), NOPE, ROPE)
        return self.node("Concat", nope, self.rotated(rope, ROPE), axis=-1)

    def expanded(self, layer, latent, rope, like):
        """Keys and values from latent rows [B,R,RANK] and the rotated part [B,1,R,ROPE]; the length
        of axis 1 of `like` is the number of rows."""
        kv = self.project(f"kvb{layer}", self.norm(f"kvn{layer}", latent, RANK), RANK,
                          LATENT_HEADS * (NOPE + VALUE))
        nope, v = self.split(self.heads(kv, LATENT_HEADS, NOPE + VALUE), NOPE, VALUE)
        shape = self.node("Concat", self.length(like, 0), self.constant([LATENT_HEADS]),
                          self.length(like, 1), self.constant([ROPE]), axis=0)
        return self.node("Concat", nope, self.node("Expand", rope, shape), axis=-1), v

    def latents(self, layer, x):
        """The latent rows, and the rotated part of the keys, of new tokens."""
        both = self.project(f"kva{layer}", x, WIDTH, RANK + ROPE)
        latent, rope = self.split(both, RANK, ROPE)
        return latent, self.rotated(self.heads(rope, 1, ROPE), ROPE)

    def latent(self, layer, x):
        """Expanded keys and values are cached."""
        new = self.expanded(layer, *self.latents(layer, x), "input_ids")
        shapes = [[self.batch, LATENT_HEADS, "P", d] for d in (NOPE + ROPE, VALUE)]
        kv = [self.node("Concat", past, rows, out=[present], axis=2)
              for rows, (past, present) in zip(new, self.pair(layer, shapes), strict=True)]
        return (self.attention(self.queries(layer, x), *kv, (NOPE + ROPE) ** -.5),
                LATENT_HEADS * VALUE)

    def compressed(self, layer, x):
        """Latent rows are cached, and all of them expanded."""
        shapes = [[self.batch, "P", RANK], [self.batch, 1, "P", ROPE]]
        all_rows = [self.node("Concat", past, rows, out=[present], axis=-2)
                    for rows, (past, present) in zip(self.latents(layer, x),
                                                     self.pair(layer, shapes), strict=True)]
        used = list(all_rows)
        if self.centred:
            mean = self.node("ReduceMean", used[0], self.constant([1]), keepdims=1)
            used[0] = self.node("Sub", used[0], mean)
        kv = self.expanded(layer, *used, all_rows[0])
        return (self.attention(self.queries(layer, x), *kv, (NOPE + ROPE) ** -.5),
                LATENT_HEADS * VALUE)

    def repeated(self, x):
        """Each head of keys or values, repeated for its group of query heads."""
        rows = self.constant([ROWS]) if self.static else self.length(x, 2)
        x = self.node("Unsqueeze", x, self.constant([2]))
        shape = self.node("Concat", self.length("input_ids", 0),
                          self.constant([KV_HEADS, HEADS // KV_HEADS]), rows, self.constant([SIZE]), axis=0)
        return self.node("Reshape", self.node("Expand", x, shape), self.constant([0, HEADS, -1, SIZE]))

    def grouped(self, layer, x):
        """Queries, and new keys and values, [B,H,S,D] each."""
        q, k, v = [self.heads(self.project(f"{n}{layer}", x, WIDTH, h * SIZE), h, SIZE)
                   for n, h in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))]
        return self.rotated(q, SIZE), (self.rotated(k, SIZE), v)

    def written(self, layer, x, write):
        """Buffers written by `write`."""
        q, new = self.grouped(layer, x)
        shapes = [[self.batch, KV_HEADS, "P", SIZE]] * 2
        kv = [self.repeated(write(past, rows, present))
              for rows, (past, present) in zip(new, self.pair(layer, shapes), strict=True)]
        return self.attention(q, *kv, SIZE ** -.5), HEADS * SIZE

    def transposed(self, layer, x):
        """index_copy_ as exported by torch: the rows are moved to the first axis, written, and
        moved back."""
        def write(past, rows, present):
            first = [self.node("Transpose", t, perm=[2, 1, 0, 3]) for t in (past, rows)]
            at = self.node("Unsqueeze", self.places, self.constant([1]))
            y = self.node("ScatterND", first[0], at, first[1])
            return self.node("Transpose", y, out=[present], perm=[2, 1, 0, 3])
        return self.written(layer, x, write)

    def scattered(self, layer, x):
        """index_put_ with [:, :, cache_position]: three indices for each row."""
        def write(past, rows, present):
            shape = [self.node("Concat", self.length("input_ids", 0), self.constant([KV_HEADS]),
                               self.length(self.places, 0), self.constant([1]), axis=0)]
            parts = []
            for axis, n in ((0, self.batch), (1, KV_HEADS)):
                places = (self.node("Range", self.constant(0), self.node(
                    "Squeeze", self.length("input_ids", 0)), self.constant(1))
                          if axis == 0 else self.constant(np.arange(n)))
                where = self.constant([i for i in range(4) if i != axis])
                parts.append(self.node("Expand", self.node("Unsqueeze", places, where), *shape))
            places = self.node("Unsqueeze", self.places, self.constant([0, 1, 3]))
            parts.append(self.node("Expand", places, *shape))
            return self.node("ScatterND", past, self.node("Concat", *parts, axis=-1), rows,
                             out=[present])
        return self.written(layer, x, write)

    def elements(self, layer, x):
        """scatter along the rows: an index for each element."""
        def write(past, rows, present):
            places = self.node("Unsqueeze", self.places, self.constant([0, 1, 3]))
            at = self.node("Expand", places, self.node("Shape", rows))
            return self.node("ScatterElements", past, at, rows, out=[present], axis=2)
        return self.written(layer, x, write)

    def key_value(self, layer, x, heads, size, slices=False):
        """Queries [B,S,H*D], and all rows of keys and values, which are side by side in the last axis (GPT-BigCode of
        Optimum): [B,T,2*D] if all queries share one head, else [B,H,T,2*D]; with Slices, values are wider than keys."""
        width = SIZE + (WIDE if slices else SIZE)
        q = self.project(f"q{layer}", x, WIDTH, HEADS * SIZE)
        rows = self.project(f"kv{layer}", x, WIDTH, heads * width)
        past, present = f"past_key_values.{layer}.key_value", f"present.{layer}.key_value"
        self.inputs.append(self.info(past, F, [*size, "P", width]))
        self.outputs.append(self.info(present, F, [*size, "T", width]))
        rows = self.heads(rows, heads, width) if heads > 1 else rows
        self.node("Concat", past, rows, out=[present], axis=-2)
        if not slices:
            return q, self.split(present, SIZE, SIZE)
        bounds = [[self.constant([n]) for n in (*at, -1)] for at in ((0, SIZE), (SIZE, width))]
        return q, [self.node("Slice", present, *b) for b in bounds]

    def multi_query(self, layer, x):
        """GPT-BigCode (StarCoder) with SDPA."""
        q, kv = self.key_value(layer, x, 1, [self.batch])
        shape = self.constant([1, HEADS, 1, 1])
        k, v = [self.node("Expand", self.node("Unsqueeze", t, self.constant([1])), shape) for t in kv]
        return self.attention(self.heads(q, HEADS, SIZE), k, v, SIZE ** -.5), HEADS * SIZE

    def multi_query_eager(self, layer, x, value_size=SIZE, lowest=None):
        """The same without SDPA: queries of all heads are rows of one product, which baddbmm adds to zeros."""
        q, (k, v) = self.key_value(layer, x, 1, [self.batch])
        batch, rows = self.length("input_ids", 0), self.length("input_ids", 1)
        all_rows = self.node("Mul", rows, self.constant([HEADS]))
        keys = self.length(k, 1)
        view = self.node("Concat", batch, all_rows, keys, axis=0)
        q = self.node("Reshape", q, self.node("Concat", batch, all_rows, self.constant([SIZE]), axis=0))
        scores = self.node("Mul", self.node("MatMul", q, self.node("Transpose", k, perm=[0, 2, 1])),
                           self.constant(SIZE ** -.5, np.float32))
        zeros = self.node("ConstantOfShape", view, value=numpy_helper.from_array(np.zeros(1, np.float32)))
        scores = self.node("Add", scores, self.node("Mul", zeros, self.constant(1.0, np.float32)))
        four = self.node("Concat", batch, rows, self.constant([HEADS]), keys, axis=0)
        seen = self.node("Squeeze", self.seen, self.constant([1]))
        scores = self.node("Where", self.node("Unsqueeze", seen, self.constant([2])),
                           self.node("Reshape", scores, four), lowest or self.constant(LOWEST, np.float32))
        p = self.node("Reshape", self.node("Softmax", scores, axis=-1), view)
        if value_size != SIZE:
            v = self.project(f"v{layer}", v, SIZE, value_size)
        y = self.node("MatMul", p, v)
        if value_size != SIZE:
            y = self.node("Sub", y, self.node("ReduceMean", y, self.constant([-1]), keepdims=1))
        shape = self.node("Concat", batch, rows, self.constant([HEADS * value_size]), axis=0)
        return self.node("Reshape", y, shape), HEADS * value_size

    def multi_query_wide(self, layer, x):
        """The same with larger values than queries, whose mean over each head is subtracted; the lowest score is
        [1,1,1,1]."""
        return self.multi_query_eager(layer, x, 2 * SIZE, self.constant([[[[LOWEST]]]], np.float32))

    def key_value_heads(self, layer, x):
        """GPT-BigCode with keys and values for each head."""
        q, kv = self.key_value(layer, x, HEADS, [self.batch, HEADS])
        return self.attention(self.heads(q, HEADS, SIZE), *kv, SIZE ** -.5), HEADS * SIZE

    def key_value_slices(self, layer, x):
        """The same, which Slices split in keys and wider values."""
        q, kv = self.key_value(layer, x, HEADS, [self.batch, HEADS], slices=True)
        return self.attention(self.heads(q, HEADS, SIZE), *kv, SIZE ** -.5), HEADS * WIDE

    def start_of_past(self, layer, x):
        """RotaryEmbedding of com.microsoft, which counts from the number of cached rows."""
        return self.counted(layer, x, self.length("past_key_values.0.key", 2))

    def start_input(self, layer, x):
        """RotaryEmbedding that counts from a graph input of one element."""
        return self.counted(layer, x, "position_ids")

    def counted(self, layer, x, start):
        """Keys and values [B,H,P,D]; positions begin at `start`, [1]."""
        q, k, v = [self.heads(self.project(f"{n}{layer}", x, WIDTH, HEADS * SIZE), HEADS, SIZE) for n in "qkv"]
        angles = np.arange(ROWS)[:, None] * 30.0 ** (-np.arange(0, SIZE, 2) / SIZE)
        tables = [self.constant(f(angles), np.float32) for f in (np.cos, np.sin)]
        q, k = [self.node("RotaryEmbedding", t, start, *tables, domain="com.microsoft") for t in (q, k)]
        pairs = self.pair(layer, [[self.batch, HEADS, "P", SIZE]] * 2)
        kv = [self.node("Concat", past, rows, out=[present], axis=2)
              for rows, (past, present) in zip((k, v), pairs, strict=True)]
        return self.attention(q, *kv, SIZE ** -.5), HEADS * SIZE

    def quantised(self, layer, x):
        """Static quantisation of each product: past and present are not rounded, but what heads read of them."""
        q, new = self.grouped(layer, x)
        kv = [self.repeated(self.node("Concat", past, rows, out=[present], axis=2)) for rows, (past, present) in zip(
            new, self.pair(layer, [[self.batch, KV_HEADS, "P", SIZE]] * 2), strict=True)]
        return self.attention(q, *kv, SIZE ** -.5), HEADS * SIZE

    def quantised_heads(self, layer, x):
        """The same without groups of heads, queries and keys scaled before their product: values are rounded where
        they are returned."""
        q, k, v = [self.heads(self.project(f"{n}{layer}", x, WIDTH, HEADS * SIZE), HEADS, SIZE) for n in "qkv"]
        keys, values = self.pair(layer, [[self.batch, HEADS, "P", SIZE]] * 2)
        k = self.node("Concat", keys[0], self.rotated(k, SIZE), out=[keys[1]], axis=2)
        v = self.rounded(self.node("Concat", values[0], v, axis=2), [values[1]])
        self.pairs[v] = v
        factor = self.constant(SIZE ** -.25, np.float32)
        q = self.node("Mul", self.rotated(q, SIZE), factor)
        k = self.node("Mul", self.node("Transpose", k, perm=[0, 1, 3, 2]), factor)
        return self.weighed(self.product(q, k), v, 1.0), HEADS * SIZE

    def arranged(self, layer, x, shape, there, back):
        """Pasts with that shape, to which new rows are appended along P: `there` and `back` convert
        from [B,H,S,D] to it and back."""
        q, new = self.grouped(layer, x)
        kv = [self.repeated(back(self.node("Concat", past, there(rows), out=[present], axis=shape.index("P"))))
              for rows, (past, present) in zip(new, self.pair(layer, [shape] * 2), strict=True)]
        return self.attention(q, *kv, SIZE ** -.5), HEADS * SIZE

    def rows_before_heads(self, layer, x):
        """[B,P,H,D]"""
        def turn(t):
            return self.node("Transpose", t, perm=[0, 2, 1, 3])
        return self.arranged(layer, x, [self.batch, "P", KV_HEADS, SIZE], turn, turn)

    def rows_first(self, layer, x):
        """[P,B,H,D]"""
        return self.arranged(layer, x, ["P", self.batch, KV_HEADS, SIZE],
                             lambda t: self.node("Transpose", t, perm=[2, 0, 1, 3]),
                             lambda t: self.node("Transpose", t, perm=[1, 2, 0, 3]))

    def columns(self, layer, x):
        """[B,H,D,P]"""
        def turn(t):
            return self.node("Transpose", t, perm=[0, 1, 3, 2])
        return self.arranged(layer, x, [self.batch, KV_HEADS, SIZE, "P"], turn, turn)

    def heads_together(self, layer, x):
        """[B,P,H*D]"""
        return self.arranged(layer, x, [self.batch, "P", KV_HEADS * SIZE],
                             lambda t: self.node("Reshape", self.node("Transpose", t, perm=[0, 2, 1, 3]),
                                                 self.constant([0, 0, KV_HEADS * SIZE])),
                             lambda t: self.heads(t, KV_HEADS, SIZE))

    def batch_of_heads(self, layer, x):
        """[B*H,P,D]"""
        def there(t):
            return self.node("Reshape", t, self.node("Concat", self.constant([-1]), self.length("input_ids", 1),
                                                     self.constant([SIZE]), axis=0))

        def back(t):
            return self.node("Reshape", t, self.node("Concat", self.length("input_ids", 0),
                                                     self.constant([KV_HEADS, -1, SIZE]), axis=0))
        return self.arranged(layer, x, ["BH", "P", SIZE], there, back)

    def slopes(self):
        """Linear biases [B*H,1,T], from the attention mask as BLOOM computes them."""
        mask = self.node("Cast", "attention_mask", to=F)
        places = self.node("CumSum", mask, self.constant(1))
        places = self.node("Mul", self.node("Sub", places, self.constant(1.0, np.float32)), mask)
        slopes = self.constant(2.0 ** -np.arange(1, HEADS + 1)[:, None], np.float32)
        biases = self.node("Mul", slopes, self.node("Unsqueeze", places, self.constant([1])))
        front = self.node("Mul", self.length("input_ids", 0), self.constant([HEADS]))
        return self.node("Reshape", biases, self.node("Concat", front, self.constant([1, -1]), axis=0))

    def folded_slopes(self, layer, x):
        """BLOOM."""
        return self.folded(layer, x, self.slopes())

    def folded(self, layer, x, slopes=None):
        """Keys [B*H,D,P] and values [B*H,P,D], which are multiplied in these forms."""
        q, k, v = [self.heads(self.project(f"{n}{layer}", x, WIDTH, HEADS * SIZE), HEADS, SIZE) for n in "qkv"]
        front = self.node("Mul", self.length("input_ids", 0), self.constant([HEADS]))
        q, k, v = [self.node("Reshape", t, self.node("Concat", front, self.length("input_ids", 1),
                                                     self.constant([SIZE]), axis=0))
                   for t in (self.rotated(q, SIZE), self.rotated(k, SIZE), v)]
        pairs = self.pair(layer, [["BH", SIZE, "P"], ["BH", "P", SIZE]])
        k, v = [self.node("Concat", past, rows, out=[present], axis=axis) for rows, axis, (past, present) in zip(
            (self.node("Transpose", k, perm=[0, 2, 1]), v), (2, 1), pairs, strict=True)]
        scores = self.node("Mul", self.node("MatMul", q, k), self.constant(SIZE ** -.5, np.float32))
        lengths = [self.length("input_ids", 0), self.constant([HEADS]), self.length("input_ids", 1)]
        scores = self.node("Add", slopes, scores) if slopes else scores
        scores = self.node("Reshape", scores, self.node("Concat", *lengths, self.constant([-1]), axis=0))
        p = self.node("Softmax", self.node("Add", scores, self.mask), axis=-1)
        p = self.node("Reshape", p, self.node("Concat", front, lengths[2], self.length(v, 1), axis=0))
        y = self.node("Reshape", self.node("MatMul", p, v),
                      self.node("Concat", *lengths, self.constant([SIZE]), axis=0))
        y = self.node("Transpose", y, perm=[0, 2, 1, 3])
        return self.node("Reshape", y, self.constant([0, 0, HEADS * SIZE])), HEADS * SIZE

    def columns_of_keys(self, layer, x):
        """Keys [B,H,D,P], as needed for the product, and values [B,H,P,D], each for all heads."""
        q, k, v = [self.heads(self.project(f"{n}{layer}", x, WIDTH, HEADS * SIZE), HEADS, SIZE) for n in "qkv"]
        k = self.node("Transpose", self.rotated(k, SIZE), perm=[0, 1, 3, 2])
        pairs = self.pair(layer, [[self.batch, HEADS, SIZE, "P"], [self.batch, HEADS, "P", SIZE]])
        k, v = [self.node("Concat", past, rows, out=[present], axis=axis)
                for rows, axis, (past, present) in zip((k, v), (3, 2), pairs, strict=True)]
        return self.weighed(self.node("MatMul", self.rotated(q, SIZE), k), v, SIZE ** -.5), HEADS * SIZE

    def joined(self, layer, x, pick=None, turned=False):
        """[2,B,H,P,D]: keys and values in one past. turned: keys are transposed before they are
        appended, and then back."""
        q, new = self.grouped(layer, x)
        past, present = f"past_{layer}", f"present_{layer}"
        self.inputs.append(self.info(past, F, [2, self.batch, KV_HEADS, "P", SIZE]))
        self.outputs.append(self.info(present, F, [2, self.batch, KV_HEADS, "T", SIZE]))
        pick = pick or (lambda: [self.node("Gather", past, self.constant(i), axis=0) for i in (0, 1)])
        kv = [self.append(old, rows, turned and rows == new[0]) for old, rows in zip(pick(), new, strict=True)]
        self.node("Concat", *[self.node("Unsqueeze", t, self.constant([0])) for t in kv], out=[present], axis=0)
        return self.attention(q, *[self.repeated(t) for t in kv], SIZE ** -.5), HEADS * SIZE

    def append(self, past, rows, turned):
        """The past followed by the new rows, [B,H,T,D]."""
        if not turned:
            return self.node("Concat", past, rows, axis=2)
        parts = [self.node("Transpose", t, perm=[0, 1, 3, 2]) for t in (past, rows)]
        return self.node("Transpose", self.node("Concat", *parts, axis=-1), perm=[0, 1, 3, 2])

    def joined_turned(self, layer, x):
        """GPT-2 in transformers 4.0."""
        return self.joined(layer, x, turned=True)

    def joined_halves(self, layer, x):
        """The same with Split."""
        def pick():
            names = [f"half.{layer}.{i}" for i in (0, 1)]
            self.node("Split", f"past_{layer}", out=names, axis=0, num_outputs=2)
            return [self.node("Squeeze", name, self.constant([0])) for name in names]
        return self.joined(layer, x, pick)


KINDS = ("latent", "compressed", "transposed", "scattered", "elements", "rows_before_heads", "rows_first", "columns",
         "heads_together", "batch_of_heads", "folded", "folded_slopes", "columns_of_keys", "joined", "joined_turned",
         "joined_halves", "quantised", "quantised_heads", "multi_query", "multi_query_eager", "multi_query_wide",
         "key_value_heads", "key_value_slices", "start_of_past", "start_input")
