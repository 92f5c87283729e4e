"""ONNX Runtime as an oracle for exported language models.

A Runner runs a graph like a generation loop: with input_ids, an attention_mask over past and new
tokens, and the past tensors by name. Only numpy, onnx and onnxruntime are needed.
"""

from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnxruntime as ort

FLOAT = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


def load_ids(path):
    """Read whitespace-separated token ids."""
    return np.array(Path(path).read_text().split(), np.int64)


def present_name(past):
    """past_key_values.N.key → present.N.key, past.N.conv → present.N.conv"""
    return "present." + past.split(".", 1)[1]


class Runner:
    """One CPU session and the names and shapes of its cache."""

    def __init__(self, model, optimise=None):
        """model is a path, or an onnx.ModelProto that contains its weights. By default the graph is
        optimised, except models with DequantizeLinear, because that would round activations."""
        if optimise is None:
            graph = loaded(model, weights=False).graph
            optimise = not any(n.op_type == "DequantizeLinear" for n in graph.node)
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        if not optimise:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
        self.session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        inputs = {i.name: i for i in self.session.get_inputs()}
        self.past_names = [n for n in inputs if n.startswith("past")]
        self.states = {n: inputs[n].shape[1:] for n in self.past_names
                       if all(isinstance(d, int) for d in inputs[n].shape[1:])}
        self.output_names = [o.name for o in self.session.get_outputs()]
        self.wants_positions = "position_ids" in inputs
        self.merged = "use_cache_branch" in inputs  # one decoder with a past and one without
        self.planes = inputs["position_ids"].shape[:-2] if self.wants_positions else []
        self.first_cache = next(n for n in self.past_names if n not in self.states)
        first = inputs[self.first_cache]
        self.dtype = FLOAT[first.type]
        self.kv_heads = first.shape[1]
        self.windowed = [n for n in self.past_names if "sliding" in str(inputs[n].shape[2])]
        self.window = window_size(model) if self.windowed else 0
        self.head_size = first.shape[3]
        if not isinstance(self.head_size, int):
            self.head_size = self._head_size(model)

    def _head_size(self, model):
        """Head size of a model whose cache has a symbolic dim for it: columns of o_proj's input."""
        return head_size(loaded(model))

    def empty_past(self, batch):
        """Past tensors of zero rows. Pasts that do not grow (the state of a convolution, a cache of
        the rows within a window) are zeros."""
        shapes = dict.fromkeys(self.past_names, (self.kv_heads, 0, self.head_size))
        shapes |= dict.fromkeys(self.windowed, (self.kv_heads, self.window, self.head_size))
        shapes |= self.states
        return {n: np.zeros((batch, *shape), self.dtype) for n, shape in shapes.items()}

    def feed(self, ids, past, mask=None):
        """Inputs of one call: ids [B,S]; mask defaults to ones over past rows and new tokens."""
        rows = past[self.first_cache].shape[2]
        if mask is None:
            mask = np.ones((ids.shape[0], rows + ids.shape[1]), np.int64)
        feed = {"input_ids": ids.astype(np.int64), "attention_mask": mask, **past}
        if self.wants_positions:
            places = np.maximum(mask.cumsum(1) - 1, 0)[:, -ids.shape[1]:]
            feed["position_ids"] = np.broadcast_to(places, (*self.planes, *places.shape)).copy()
        if self.merged:
            feed["use_cache_branch"] = np.array([rows > 0])
        return feed

    def run(self, feed):
        """All outputs by name."""
        return dict(zip(self.output_names, self.session.run(None, feed), strict=True))

    def step(self, ids, past, mask=None):
        """One call on a growing cache: (logits [B,S,V], new past)."""
        out = self.run(self.feed(ids, past, mask))
        return out["logits"], {name: out[present_name(name)] for name in self.past_names}

    def calls(self, ids, chunks):
        """The inputs and outputs of each call of one sequence, in chunks of the given lengths."""
        past, at = self.empty_past(1), 0
        for n in chunks:
            feed = self.feed(ids[None, at:at + n], past, np.ones((1, at + n), np.int64))
            out = self.run(feed)
            yield feed, out
            past = {name: out[present_name(name)] for name in self.past_names}
            at += n
        assert at == len(ids), "chunks do not cover the ids"

    def score(self, ids, chunks=None):
        """fp32 logits [N,V] of one sequence, in one call or in chunks of the given lengths."""
        return np.concatenate([out["logits"][0].astype(np.float32)
                               for _, out in self.calls(ids, chunks or [len(ids)])])


class StaticRunner:
    """A session whose cache is buffers of a fixed number of rows, which the graph writes:
    key_cache.N and value_cache.N [B,rows,H*D], write_indices and nonpad_kv_seqlen [B] (mobius)."""

    merged = False

    def __init__(self, model):
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(str(model), options,
                                            providers=["CPUExecutionProvider"])
        self.caches = {i.name: i.shape[1:] for i in self.session.get_inputs()
                       if "_cache" in i.name}
        self.output_names = [o.name for o in self.session.get_outputs()]

    def empty_past(self, batch):
        """Buffers of zeros."""
        return {n: np.zeros((batch, *s), np.float32) for n, s in self.caches.items()}

    def feed(self, ids, past, rows):
        """Inputs of one call: ids [B,S] after `rows` cached rows."""
        batch, new = ids.shape
        return {"input_ids": ids.astype(np.int64), **past,
                "position_ids": np.tile(np.arange(rows, rows + new, dtype=np.int64), (batch, 1)),
                "write_indices": np.full(batch, rows, np.int64),
                "nonpad_kv_seqlen": np.full(batch, rows + new, np.int64)}

    def run(self, feed):
        """All outputs by name."""
        return dict(zip(self.output_names, self.session.run(None, feed), strict=True))

    def step(self, ids, past, rows):
        """One call: (logits [B,S,V], the buffers)."""
        out = self.run(self.feed(ids, past, rows))
        return out["logits"], {n: out["updated_" + n] for n in self.caches}

    def score(self, ids, chunks=None):
        """fp32 logits [N,V] of one sequence, in one call or in chunks of the given lengths."""
        past, found, at = self.empty_past(1), [], 0
        for n in chunks or [len(ids)]:
            logits, past = self.step(ids[None, at:at + n], past, at)
            found.append(logits[0])
            at += n
        return np.concatenate(found)


def runner(model):
    """The runner for a model's kind of cache."""
    inputs = [i.name for i in loaded(model, weights=False).graph.input]
    return StaticRunner(model) if "write_indices" in inputs else Runner(model)


def loaded(model, weights=True):
    """A model from its path, or the model itself."""
    if isinstance(model, onnx.ModelProto):
        return model
    return onnx.load(model, load_external_data=weights)


def pruned(model):
    """The model with only the last row of logits, as the model builder's prune_lm_head makes it:
    Gather and Unsqueeze before the matmul over the vocabulary, logits [B,1,V]."""
    made = onnx.ModelProto.FromString(loaded(model).SerializeToString())
    graph = made.graph
    by_result = {name: n for n in graph.node for name in n.output}
    head = by_result["logits"]
    while "MatMul" not in head.op_type:  # a softcap or a cast may follow it
        head = by_result[head.input[0]]
    names = ["lm_head.pruned.last", "lm_head.pruned.axis", "lm_head.pruned.row", "lm_head.pruned"]
    for name, value in zip(names, (-1, [1])):
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(value, np.int64), name))
    at = list(graph.node).index(head)
    for n in (onnx.helper.make_node("Unsqueeze", names[2:0:-1], names[3:], name="/lm_head/Unsqueeze"),
              onnx.helper.make_node("Gather", [head.input[0], names[0]], [names[2]],
                                    name="/lm_head/Gather", axis=1)):
        graph.node.insert(at, n)
    graph.node[at + 2].input[0] = names[3]
    dims = next(o for o in graph.output if o.name == "logits").type.tensor_type.shape.dim
    dims[1].CopyFrom(type(dims[1])(dim_value=1))
    return made


def gqa_nodes(model):
    """The GroupQueryAttention nodes in graph order."""
    return [n for n in model.graph.node if n.op_type == "GroupQueryAttention"]


def attribute(node, name, default=None):
    """Value of a node's attribute."""
    for a in node.attribute:
        if a.name == name:
            return onnx.helper.get_attribute_value(a)
    return default


def window_size(model):
    """Rows of the caches that contain only a window: the largest window."""
    return max(attribute(n, "local_window_size", -1) for n in gqa_nodes(loaded(model)))


def head_size(model):
    """D, from the width of o_proj's input: rows of its weight divided by num_heads."""
    gqa = gqa_nodes(model)[0]
    user = next(n for n in model.graph.node if gqa.output[0] in n.input)
    while user.op_type == "Mul":  # a gate
        user = next(n for n in model.graph.node if user.output[0] in n.input)
    width = attribute(user, "K")
    if width is None:
        made = {o: n for n in model.graph.node for o in n.output}
        source = user.input[1]
        if source in made:  # DequantizeLinear
            source = made[source].input[0]
        weight = next(i for i in model.graph.initializer if i.name == source)
        width = weight.dims[0]
    return width // attribute(gqa, "num_heads")
