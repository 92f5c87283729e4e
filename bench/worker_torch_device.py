"""torch on a CUDA device as one of the benchmark's engines; the words and lines are those of worker_gqac.c.

It runs the models of models.py that have sequences: one attention whose rows are looked up, or a whole
Qwen of fp16. Attention is torch's FlashAttention (scaled_dot_product_attention). Each call is a
CUDA graph that is captured in advance; its time ends when the last row of logits is on the host.
math=bf16 converts all weights to bf16.
"""

import sys
import time

import onnx
import torch
from onnx import numpy_helper
from torch.nn.attention import SDPBackend, bias, sdpa_kernel
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

import worker


class Engine(worker.Engine):
    """Sequences whose keys and values are tensors [B,Hkv,T,D] on the device."""

    def __init__(self, a):
        super().__init__(a)
        if not torch.cuda.is_available():
            raise ValueError("this build of torch finds no CUDA device")
        graph = onnx.load(a.model).graph
        nodes = [n for n in graph.node if n.op_type == "GroupQueryAttention"]
        if any(n.op_type == "MatMulNBits" for n in graph.node):
            raise ValueError("it has no weights of 4 bits")
        attributes = {x.name: x for x in nodes[0].attribute}
        self.heads, self.kv_heads = (attributes[n].i for n in ("num_heads", "kv_num_heads"))
        self.scale, self.layers = attributes["scale"].f, len(nodes)
        shapes = {i.name: i.type.tensor_type.shape.dim for i in graph.input}
        self.head = shapes["past_key_values.0.key"][3].dim_value
        self.dtype = torch.bfloat16 if a.math == "bf16" else None
        self.weights = {t.name: self.weight(t) for t in graph.initializer}

    def weight(self, tensor):
        """On the device; matrices in the form that linear() needs."""
        value = torch.from_numpy(numpy_helper.to_array(tensor).copy()).cuda()
        if value.is_floating_point() and self.dtype:
            value = value.to(self.dtype)
        matrix = value.dim() == 2 and tensor.name not in ("embed", "rows", "cos_cache", "sin_cache")
        return value.t().contiguous() if matrix else value

    def version(self):
        return f"{torch.__version__}, {torch.cuda.get_device_name()}"

    def attend(self, i, qkv, past):
        """Appends keys and values to the cache of layer i. qkv: [B,S,(Hq+2Hkv)*D]."""
        keys, values = self.caches[i]
        b, s, _ = qkv.shape
        q, k, v = qkv.view(b, s, -1, self.head).transpose(1, 2).split(
            [self.heads, self.kv_heads, self.kv_heads], 1)
        if "cos_cache" in self.weights:
            q, k = (self.rotate(x, past) for x in (q, k))
        end = past + s
        keys[:, :, past:end], values[:, :, past:end] = k, v
        k, v, mask = keys[:, :, :end], values[:, :, :end], None
        if s > 1 and past:  # this mask does not support groups of heads
            mask, group = bias.causal_lower_right(s, end), self.heads // self.kv_heads
            k, v = (x.repeat_interleave(group, 1) for x in (k, v))
        y = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=s > 1 and not past,
                                         scale=self.scale, enable_gqa=mask is None)
        return y.transpose(1, 2).reshape(b, s, -1)

    def rotate(self, x, past):
        cos, sin = (self.weights[f"{n}_cache"][past:past + x.shape[2]] for n in ("cos", "sin"))
        first, second = x.chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    def forward(self, ids, past):
        """The last row of logits of each sequence."""
        w, norm = self.weights, self.norm
        if "rows" in w:
            return self.attend(0, w["rows"][ids], past)[:, -1]
        residual = w["embed"][ids]
        hidden = norm(residual, "first_norm")
        for i in range(self.layers):
            p = f"layer{i}."
            y = self.attend(i, linear(hidden, w[p + "qkv"], w[p + "qkv_bias"]), past)
            residual = residual + linear(y, w[p + "o"])
            hidden = norm(residual, p + "post_norm")
            gate = silu(linear(hidden, w[p + "gate"])) * linear(hidden, w[p + "up"])
            residual = residual + linear(gate, w[p + "down"])
            hidden = norm(residual, p + "next_norm")
        return linear(hidden[:, -1], w["lm_head"])

    def norm(self, x, name):
        return rms_norm(x, (x.shape[-1],), self.weights[name], 1e-6)

    @torch.inference_mode()
    def open_sequences(self, rows):
        a = self.a
        table = next(w for n, w in self.weights.items() if n in ("rows", "embed"))
        shape = (2, a.batch, self.kv_heads, a.past + a.calls * a.tokens, self.head)
        self.caches = [torch.zeros(shape, dtype=table.dtype, device="cuda")
                       for _ in range(self.layers)]
        for cache, part in zip(self.caches[0], ("key", "value")):
            if rows:
                cache[:, :, :a.past] = torch.from_numpy(rows[f"past_key_values.0.{part}"]).cuda()
        flash = table.dtype in (torch.float16, torch.bfloat16)
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION] if flash else
                         [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            if a.past and not rows:
                self.forward(self.on_device(0, a.past, alike=True), 0)
            self.graphs = [self.capture(a.past + c * a.tokens) for c in range(a.calls)]

    def on_device(self, past, tokens, alike=False):
        """The tokens of all sequences; `alike`: those of the first one, as in a past."""
        ids = [torch.from_numpy(self.ids(past, tokens, 0 if alike else i))
               for i in range(self.a.batch)]
        return torch.stack(ids).cuda()

    def capture(self, past):
        """A graph of one call, and its logits."""
        ids, graph = self.on_device(past, self.a.tokens), torch.cuda.CUDAGraph()
        self.forward(ids, past)  # libraries make their preparations
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            logits = self.forward(ids, past)
        return graph, logits, ids

    def run_sequence(self):
        began = time.perf_counter()
        for graph, logits, _ in self.graphs:
            graph.replay()
            self.last = logits.cpu()
        return (time.perf_counter() - began) / len(self.graphs)

    def output(self):
        return self.last.float().numpy()


if __name__ == "__main__":
    sys.exit(worker.main(Engine))
