"""What is measured: one Row for each line of the comparison, and the task of each engine.

Shapes: B sequences (1 except for whole models), S new tokens of each, P past, T = P + S, D head
size. A floor is a ratio (time of the peer / time of gqac) that was set for a machine with AVX-512;
"best" is the fastest peer that ran. A row that reads memory at MEMORY_SHARE of the rate measured
before and after it also meets its floors.
"""

from dataclasses import dataclass, field, replace

import models

MIB = 1 << 20
MEMORY_SHARE = 0.85
ROTATE_BYTES = 128 * MIB  # of keys and values, for decode rows: more than fits in caches
ORT, OV, LLAMA, TORCH = "onnxruntime", "openvino", "llama.cpp", "torch"
PROVIDER = "provider"  # gqac itself, in a session of ONNX Runtime
OWN = "unconstrained"
TENSORS = "row-major"  # gqac itself, with keys and values as tensors [B,Hkv,T,D]
FP32 = "fp32-cache"  # gqac itself, with keys and values in fp32
PARTS = "parts"  # gqac itself: the chunk in one call, then the other sequences in another
BEFORE = "before"  # gqac itself, of another build
ONE = "one-sequence"  # gqac itself, with only the first of the sequences
MEMORY = "memory"  # only reads as many bytes as a step reads
SELF = ("gqac", TENSORS, FP32, PARTS, BEFORE, ONE)
SAME = (ORT, TENSORS, PARTS, PROVIDER, BEFORE)  # peers whose results are compared with gqac's
BITS = {"f32": 32, "f16": 16, "int8": 8, "int4": 4}  # of a cached value
KIND_BITS = {"quantised": 8, "quantised4": 4}  # the same, in caches of these kinds


@dataclass
class Row:
    """One line. kind: attention (a chunk without a past), sequence, matmul or model."""

    name: str
    kind: str
    shapes: dict
    dtype: str = "f32"
    math: str = "model"
    peers: tuple = (ORT, OV, LLAMA)
    floor: tuple = ()  # (peer, ratio)
    short: bool = False  # part of the default run
    in_cache: bool = False  # a decode row whose keys and values may stay in the last-level cache
    tolerance: float = 1e-4  # max|difference| / max|value| compared with ONNX Runtime, or with gqac
                             # itself
    extra: dict = field(default_factory=dict)  # softcap, window, sink; see model()

    # -- the amount of work of one call

    def batch(self):
        return self.extra.get("batch", 1)

    def tokens(self):
        """New tokens of all sequences in a call."""
        s = self.shapes["S"]
        return self.extra.get("chunk", s) + (self.batch() - 1) * s

    def visible(self):
        """Pairs of query and key that are not masked."""
        p, s, w = self.shapes["P"], self.shapes["S"], self.extra.get("window", 0)
        return sum(min(p + r + 1, w or p + r + 1) for r in range(s))

    def flops(self):
        x = self.shapes
        if self.kind == "matmul":
            return 2 * x["M"] * x["K"] * x["N"] * x["layers"]
        return 4 * x["Hq"] * x["D"] * self.visible()

    def kv_bytes(self):
        x, kind = self.shapes, self.extra.get("kv")
        row = x["D"] * KIND_BITS[kind] // 8 + 4 if kind else x["D"] * BITS[self.dtype] // 8
        return 2 * x["Hkv"] * (x["P"] + x["S"]) * row

    def weight_bytes(self):
        x = self.shapes
        if self.kind == "model":
            count = models.weights(self.extra["size"])
        else:
            count = x["K"] * x["N"] * x["layers"]
        return count * {"f32": 4, "f16": 2, "int4": 0.5 + 4 / 32}[self.dtype]

    def step_bytes(self):
        """Bytes that a decode step of a whole model reads: the weights once, and all caches."""
        x = self.shapes
        width = 2 if self.dtype == "f16" else 4
        cache = 2 * x["layers"] * x["kv_heads"] * x["head"] * (x["P"] + x["S"]) * width
        return self.weight_bytes() + self.batch() * cache

    def step_flops(self):
        """Operations of its products with weights; each row goes through the LM head."""
        return 2 * self.batch() * self.shapes["S"] * models.weights(self.extra["size"])

    def bytes_read(self):
        """Bytes that one call must read from memory, if that limits it: one row of tokens."""
        if self.shapes.get("M", self.shapes.get("S")) != 1 or self.batch() > 1:
            return None
        return self.kv_bytes() if self.kind == "sequence" else self.weight_bytes()

    def rate(self, ms):
        """(value, unit): the rate of this row."""
        if self.kind == "model":
            return 1e3 * self.tokens() / ms, "tok/s"
        if self.bytes_read():
            return 1e-6 * self.bytes_read() / ms, "GB/s"
        return 1e-6 * self.flops() / ms, "GF/s"

    def rotate(self):
        if self.kind != "sequence" or self.shapes["S"] > 1 or self.in_cache:
            return 1
        return int(ROTATE_BYTES // self.kv_bytes()) + 1

    # -- the tasks of the engines

    def model(self):
        x = self.shapes
        if self.kind == "attention":
            return models.attention(x["Hq"], x["Hkv"], x["D"], self.dtype,
                                    **{k: v for k, v in self.extra.items() if k != "calls"})
        if self.kind == "sequence":
            return models.sequence(x["Hq"], x["Hkv"], x["D"], self.dtype)
        if self.kind == "matmul":
            return models.matmuls(x["K"], x["layers"], "int4" if self.dtype == "int4" else "f32")
        return models.qwen(self.extra["size"], self.extra["form"], self.extra.get("head", "slice"))

    def words(self, engine):
        """The arguments of an engine's worker, without threads; None: the engine has no form of
        this row."""
        if engine == FP32:
            return replace(self, dtype="f32", extra={}).words("gqac")
        if engine == ONE:
            return replace(self, extra={**self.extra, "batch": 1}).words("gqac")
        if engine == MEMORY:
            read = self.kv_bytes() if self.kind == "sequence" else int(self.step_bytes())
            return [f"bytes={read}", f"rotate={self.rotate()}"]
        x, words = self.shapes, [f"math={self.math}"] if engine in SELF else []
        if engine in (LLAMA, OWN):
            return words + self.native_words(engine)
        if engine == OV and self.kind in ("attention", "sequence"):
            if self.extra or self.dtype != "f32":
                return None
            return words + ["kind=sdpa", *self.attention_words()]
        words.append(f"model={self.model()}")
        if self.kind == "matmul":
            return words + ["kind=run", f"input=x:{models.array('x', [1, x['M'], x['K']])}"]
        if self.kind == "attention":
            qkv = models.array("qkv", [1, x["S"], (x["Hq"] + 2 * x["Hkv"]) * x["D"]], self.dtype)
            return words + ["kind=run", f"input=qkv:{qkv}",
                            f"input=seqlens_k:{models.number(x['S'] - 1, [1])}",
                            f"input=total:{models.number(x['S'], [])}"]
        if self.extra.get("kv"):
            words.append(f"kv={self.extra['kv']}")
        kind = {TENSORS: "rows", PARTS: "parts"}.get(engine, "sequence")
        words += [f"kind={kind}", *self.steps(), f"rotate={self.rotate()}"]
        if self.kind == "model" and engine in SELF:
            words.append("logits=1")  # as servers request, and as declared in its file
        if self.kind == "sequence" and x["P"]:
            shape = [1, x["Hkv"], x["P"], x["D"] * min(BITS[self.dtype], 8) // 8]
            words += [f"row=past_key_values.0.{part}:{models.array(part, shape, self.dtype)}"
                      for part in ("key", "value")]
        return words

    def steps(self):
        """The tokens of the sequences."""
        x = self.shapes
        words = [f"past={x['P']}", f"tokens={x['S']}", f"calls={self.extra.get('calls', 1)}",
                 f"vocab={self.vocabulary()}"]
        return words + [f"{key}={self.extra[key]}" for key in ("batch", "chunk")
                        if key in self.extra]

    def vocabulary(self):
        if self.kind == "model":
            return models.QWEN[self.extra["size"]]["vocab"]
        return self.shapes["Hq"] * self.shapes["D"]

    def attention_words(self):
        x = self.shapes
        return [f"heads={x['Hq']}", f"kv_heads={x['Hkv']}", f"head={x['D']}", f"past={x['P']}",
                f"tokens={x['S']}", f"rotate={self.rotate()}"]

    def native_words(self, engine):
        x = self.shapes
        if self.kind == "model":
            return ["kind=model", f"model={models.gguf(self.extra['size'], self.extra['form'])}",
                    *self.steps()]
        if self.kind == "matmul":
            return ["kind=matmul", f"k={x['K']}", f"layers={x['layers']}", f"tokens={x['M']}",
                    f"dtype={'q4_0' if self.dtype == 'int4' else 'f32'}"]
        return ["kind=attention", *self.attention_words(), f"dtype={self.dtype}",
                f"softcap={self.extra.get('softcap', 0)}"]


def attention(name, s, heads=(32, 8, 128), **more):
    return Row(name, "attention", dict(Hq=heads[0], Hkv=heads[1], D=heads[2], P=0, S=s), **more)


def sequence(name, p, s, heads=(32, 8, 128), **more):
    return Row(name, "sequence", dict(Hq=heads[0], Hkv=heads[1], D=heads[2], P=p, S=s), **more)


def matmul(name, m, form, layers, **more):
    peers = (ORT, OV, LLAMA, TORCH) if form == "f32" else (ORT, OV, LLAMA)
    return Row(name, "matmul", dict(M=m, K=4096, N=4096, layers=layers), dtype=form, peers=peers,
               **more)


def model(name, size, form, p, s, calls=1, extra=None, **more):
    """extra: batch, the number of sequences in a call; chunk, tokens of the first of them; head."""
    return Row(name, "model", dict(P=p, S=s, **models.QWEN[size]), dtype=form,
               extra=dict(size=size, form=form, calls=calls, **(extra or {})), **more)


def together(size, form, batch, **more):
    """A decode step of several sequences. decode@512 is the same for one."""
    shared = {("f32", 2): (ONE, 1 / 1.15), ("f32", 4): (ONE, 1 / 1.35),  # weights are read once
              ("int4", 2): (MEMORY, 1 / 1.25), ("int4", 4): (MEMORY, 1 / 1.25)}
    floor = [(ORT, 1.0), (LLAMA, 1.0), shared.get((form, batch))]
    return model(f"{size}-{form}-decode-x{batch}@512", size, form, 512, 1, 16 if batch < 8 else 4,
                 extra=dict(batch=batch), peers=(ORT, LLAMA, ONE, MEMORY),
                 floor=tuple(filter(None, floor)), tolerance=1e-3 if form == "f32" else 0.2, **more)


def mix(form, head="all"):
    """A chunk together with seven sequences that decode, in one step compared with two."""
    name = f"0.5b-{form}-mix-128+7x1@256" + (f"-{head}" if head != "all" else "")
    return model(name, "0.5b", form, 256, 1, extra=dict(batch=8, chunk=128, head=head),
                 peers=(PARTS, LLAMA), floor=((PARTS, 1 / 1.1),), tolerance=0)


def in_session(size, form, p, s):
    """A call through gqac's API, compared with the same call through its execution provider for
    ONNX Runtime; the same bits."""
    name = f"{size}-{form}-session-{s}@{p}"
    return model(name, size, form, p, s, 16 if s == 1 else 1, peers=(PROVIDER,), tolerance=0)


def layout(s, heads=(32, 8, 128), dtype="f32"):
    """A chunk of s tokens after a past: keys as columns, as in sequences, compared with rows."""
    form = ("-d64" if heads == SMALL else "") + ("-f16" if dtype == "f16" else "")
    return sequence(f"layout-{s}@4096{form}", 4096, s, heads, dtype=dtype, peers=(TENSORS,),
                    tolerance=0)


def codes(t, dtype):
    """A token after t - 1, whose keys and values are codes, compared with fp32."""
    return sequence(f"decode-{t}-{dtype}", t - 1, 1, dtype=dtype, peers=(FP32,))


def near_memory(t, least, dtype="f32", kv=None):
    """A token after t - 1, compared with reading the memory of the cache; for a kind of cache with
    codes also compared with fp32. least: the ratio that it should reach, to the last of these."""
    peers = (MEMORY, FP32) if kv else (MEMORY,)
    name = f"memory-decode-{t}-{kv or dtype}"
    return sequence(name, t - 1, 1, dtype=dtype, peers=peers, extra=dict(kv=kv) if kv else {},
                    floor=((peers[-1], least),) if least else ())


SMALL = (14, 2, 64)
MODELS = (("0.5b", "int4"), ("1.5b", "int4"), ("0.5b", "f32"))  # models that are measured in
                                                                # batches
BATCHES = (2, 4, 8, 16, 32)
BF16 = dict(math="bf16", peers=(ORT,), tolerance=3e-2)
ROWS = [
    attention("prefill-512", 512, floor=((ORT, 1.6),), short=True),
    attention("prefill-4096", 4096, floor=((ORT, 1.2),)),
    attention("prefill-512-bf16", 512, floor=((ORT, 2.3),), **BF16),
    attention("prefill-4096-bf16", 4096, floor=((ORT, 1.9),), **BF16),
    sequence("hybrid-16@4096", 4096, 16, floor=((ORT, 2.0),)),
    sequence("hybrid-128@4096", 4096, 128, floor=((ORT, 1.2),), short=True),
    sequence("hybrid-512@4096", 4096, 512, floor=((ORT, 1.15),)),
    sequence("decode-4096", 4095, 1, floor=((ORT, 1.8),), short=True),
    sequence("decode-32768", 32767, 1, floor=((ORT, 2.5),)),
    sequence("decode-2048-in-cache", 2047, 1, in_cache=True, floor=((ORT, 3.0),)),
    sequence("decode-32768-f16", 32767, 1, dtype="f16", peers=(ORT, LLAMA), tolerance=1e-2,
             floor=((LLAMA, 2.0),)),
    attention("softcap-2048", 2048, extra=dict(softcap=50), floor=((ORT, 4.0),)),
    attention("sink-2048", 2048, extra=dict(sink=True), peers=(ORT,), floor=((ORT, 2.0),)),
    attention("window-512-2048", 2048, extra=dict(window=512), peers=(ORT,), floor=((ORT, 2.0),)),
    attention("d64-prefill-512", 512, SMALL, floor=((ORT, 1.5),)),
    sequence("d64-hybrid-128@4096", 4096, 128, SMALL, floor=((ORT, 1.2),)),
    sequence("d64-decode-4096", 4095, 1, SMALL, floor=((OV, 1.5),)),
    matmul("matmul-f32-1", 1, "f32", 3, floor=(("best", 0.97),)),
    matmul("matmul-f32-16", 16, "f32", 3, floor=(("best", 1.0), (ORT, 1.4)), short=True),
    matmul("matmul-f32-512", 512, "f32", 3, floor=(("best", 0.97),)),
    matmul("matmul-int4-1", 1, "int4", 20, tolerance=5e-2, floor=(("best", 0.97),), short=True),
    matmul("matmul-int4-16", 16, "int4", 20, tolerance=5e-2, floor=((ORT, 1.3),)),
    matmul("matmul-int4-512", 512, "int4", 4, tolerance=5e-2, floor=((ORT, 1.8),)),
    model("0.5b-f32-prefill-512", "0.5b", "f32", 0, 512, tolerance=1e-3, floor=((ORT, 1.0),)),
    model("0.5b-f32-decode@512", "0.5b", "f32", 512, 1, 16, tolerance=1e-3, floor=((ORT, 1.2),)),
    model("0.5b-f32-hybrid-128@2048", "0.5b", "f32", 2048, 128, tolerance=1e-3,
          floor=((ORT, 1.2),)),
    model("1.5b-int4-prefill-512", "1.5b", "int4", 0, 512, tolerance=0.2, floor=((ORT, 1.6),)),
    model("1.5b-int4-decode@512", "1.5b", "int4", 512, 1, 16, tolerance=0.2, floor=((ORT, 1.2),)),
    model("1.5b-int4-hybrid-128@2048", "1.5b", "int4", 2048, 128, tolerance=0.2,
          floor=((ORT, 1.4),)),
    model("0.5b-int4-decode@512", "0.5b", "int4", 512, 1, 16, tolerance=0.2, floor=((ORT, 1.0),)),
    *(together(size, form, batch) for size, form in MODELS for batch in BATCHES),
    *(mix(form) for form in ("int4", "f32")), mix("int4", "pruned"),
    attention("same-bits-prefill-512", 512, peers=(OWN,), floor=((OWN, 1 / 1.1),)),
    attention("same-bits-prefill-2048", 2048, peers=(OWN,), floor=((OWN, 1 / 1.1),)),
    attention("same-bits-prefill-4096", 4096, peers=(OWN,), floor=((OWN, 1 / 1.1),)),
    sequence("same-bits-decode-4096", 4095, 1, peers=(OWN,), floor=((OWN, 1 / 1.05),)),
    sequence("same-bits-decode-32768", 32767, 1, peers=(OWN,), floor=((OWN, 1 / 1.05),)),
    *(codes(t, dtype) for t in (4096, 32768) for dtype in ("int8", "int4")),
    near_memory(32768, 0.88), near_memory(32768, 0.85, "f16"),
    near_memory(32768, 2.2, kv="quantised"), near_memory(32768, None, kv="quantised4"),
    *(in_session("0.5b", form, p, s) for form in ("int4", "f32")
      for p, s in ((0, 512), (512, 1), (2048, 128))),
    *(layout(s) for s in (1, 16, 128, 512)),
    *(layout(s, SMALL) for s in (1, 128)),
    *(layout(s, dtype="f16") for s in (1, 128)),
]
BY_NAME = {row.name: row for row in ROWS}
