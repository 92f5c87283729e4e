#!/usr/bin/env python3
"""Make the test models in test/models, and ONNX Runtime's answers for them.

Every model is a random Hugging Face model exported by the real onnxruntime-genai model builder, so
the tests compile the same kind of files as users, only smaller. Nothing is downloaded.

    python3 -m venv make && make/bin/pip install torch==2.15.0 transformers==5.23.0 \\
        onnx==1.23.2 onnxruntime==1.31.1 onnxruntime-genai==0.18.0
    make/bin/python tools/export_models.py --out test/models [--work DIR] [--ops FILE] [NAME ...]

For each entry of MODELS (without names: for all of them):
  1. build the Hugging Face model, randomise every parameter from one seed, then scale the query and
     key weights until attention scores spread by SCORE_STD, so that a mistake in a mask, a window,
     a softcap or a rotary table shows in the logits (default initialisation hides all of them);
  2. run the model builder on it (a subprocess, offline);
  3. run ONNX Runtime over fixed token ids and store the results under NAME/ref.
The formats are described in test/models/README.md.  The same pins give the same files.
"""

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import model_builder

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test" / "python"))

PINS = {
    "torch": "2.15.0",
    "transformers": "5.23.0",
    "onnx": "1.23.2",
    "onnxruntime": "1.31.1",
    "onnxruntime-genai": "0.18.0",
}
SEED = 20260
VOCAB, BOS, EOS = 258, 256, 257  # 256 byte-level characters, then bos and eos (eos is pad too)
SCORE_STD, SCORE_STD_RANGE = 4.0, (2.5, 6.0)
LOGIT_STD = 3.0
THETA = 30.0  # so small that even the slowest rotary frequency rotates visibly within N_IDS tokens
N_IDS, N_LONG_RUN, N_LONG_ROPE, TAIL = 48, 600, 100, 8
FIRST, SECOND = 9, 15  # prefill of 9 tokens, hybrid prefill of 15 more, then decode
STATIC_ROWS = 64
@dataclass
class Model:
    """One row of the table: a Hugging Face configuration and how it is exported."""

    name: str
    family: str  # Config and ForCausalLM class prefix in transformers
    config: dict
    precision: str = "fp32"
    provider: str = "cpu"
    options: dict = field(default_factory=dict)
    config_class: str = ""  # if it is not family + "Config"
    runs: tuple = ("prefill", "hybrid", "decode", "batch")
    long_run: bool = False  # also N_LONG_RUN tokens, logits of the last TAIL
    long_rope: bool = False  # also N_LONG_ROPE tokens in one call, beyond the LongRoPE threshold


LLAMA = dict(
    hidden_size=96, intermediate_size=128, num_attention_heads=6, num_key_value_heads=2,
    head_dim=32, max_position_embeddings=640, rms_norm_eps=1e-5,
    rope_parameters={"rope_type": "default", "rope_theta": THETA},
)
ROPE = {"rope_type": "default", "rope_theta": THETA}
SMOLLM3 = dict(
    hidden_size=96, intermediate_size=128, num_attention_heads=6, num_key_value_heads=2,
    max_position_embeddings=320, num_hidden_layers=3, no_rope_layers=[1, 0, 1],
    tie_word_embeddings=True, rope_parameters=ROPE,
)
GPT_OSS = dict(
    hidden_size=96, intermediate_size=64, num_attention_heads=6, num_key_value_heads=2,
    head_dim=32, max_position_embeddings=320, sliding_window=16, num_local_experts=4,
    num_experts_per_tok=2, layer_types=["sliding_attention", "full_attention"],
    rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0,
                     "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                     "original_max_position_embeddings": 4096},
)
LFM2 = dict(
    hidden_size=96, intermediate_size=128, num_attention_heads=6, num_key_value_heads=2,
    max_position_embeddings=320, num_hidden_layers=4, block_auto_adjust_ff_dim=False,
    conv_L_cache=3, tie_word_embeddings=True, rope_parameters=ROPE,
    layer_types=["conv", "full_attention", "conv", "full_attention"],
)
QWEN35 = dict(
    hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2,
    head_dim=32, max_position_embeddings=320, num_hidden_layers=4, tie_word_embeddings=True,
    linear_conv_kernel_dim=4, linear_key_head_dim=16, linear_value_head_dim=40,
    linear_num_key_heads=2, linear_num_value_heads=4,
    layer_types=["linear_attention"] * 3 + ["full_attention"],
    rope_parameters=dict(ROPE, partial_rotary_factor=0.25, mrope_section=[2, 1, 1],
                         mrope_interleaved=True),
)
EXACT_INT4 = {"block_size": 32, "accuracy_level": 1}
ALL_RUNS = ("prefill", "hybrid", "decode", "batch", "static")

MODELS = [
    Model("llama", "Llama", LLAMA, runs=ALL_RUNS, long_run=True),
    Model("llama-fp16", "Llama", LLAMA, precision="fp16", provider="cuda", runs=ALL_RUNS),
    Model("llama-int4-acc1", "Llama", LLAMA, precision="int4",
          options={"block_size": 32, "accuracy_level": 1, "is_symmetric": "false"}),
    Model("llama-int4-acc4", "Llama", LLAMA, precision="int4",
          options={"block_size": 32, "accuracy_level": 4}, runs=()),
    Model("mistral", "Mistral", dict(
        hidden_size=96, intermediate_size=112, num_attention_heads=6, num_key_value_heads=2,
        head_dim=16, max_position_embeddings=160, rms_norm_eps=1e-5, sliding_window=16,
        layer_types=["sliding_attention"] * 2,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
    ), options={"windowed_kv_cache": "false"}),
    Model("qwen2", "Qwen2", dict(
        hidden_size=96, intermediate_size=136, num_attention_heads=6, num_key_value_heads=2,
        max_position_embeddings=160, rms_norm_eps=1e-2, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
    )),
    Model("qwen3", "Qwen3", dict(
        hidden_size=80, intermediate_size=120, num_attention_heads=6, num_key_value_heads=2,
        head_dim=48, max_position_embeddings=160, rms_norm_eps=1e-6, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
    )),
    Model("phi3", "Phi3", dict(
        hidden_size=128, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=700, original_max_position_embeddings=64, rms_norm_eps=1e-5,
        sliding_window=None,
        rope_parameters={
            "rope_type": "longrope", "type": "longrope", "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
            "short_factor": [1.0, 1.02, 1.05, 1.1, 1.2, 1.35, 1.5, 1.8],
            "long_factor": [1.5, 1.9, 2.5, 3.4, 4.8, 6.5, 8.5, 10.9],
            "original_max_position_embeddings": 64,
        },
    ), long_rope=True),
    Model("gemma2", "Gemma2", dict(
        hidden_size=96, intermediate_size=128, num_attention_heads=6, num_key_value_heads=2,
        head_dim=32, max_position_embeddings=640, rms_norm_eps=1e-2, sliding_window=16,
        layer_types=["sliding_attention", "full_attention"], query_pre_attn_scalar=20,
        attn_logit_softcapping=6.0, final_logit_softcapping=8.0, tie_word_embeddings=True,
        hidden_activation="gelu_pytorch_tanh", attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
    ), options={"windowed_kv_cache": "false"}, runs=ALL_RUNS, long_run=True),
    Model("smollm3-qdq", "SmolLM3", SMOLLM3, precision="int4", runs=("hybrid", "decode"),
          options={"block_size": 32, "use_qdq": "true", "shared_embeddings": "false"}),
    Model("gpt-oss", "GptOss", GPT_OSS, precision="int4", runs=("hybrid", "decode", "batch"),
          options={"windowed_kv_cache": "false", **EXACT_INT4}),
    # no padded batch: the state of a convolution would include the padding
    Model("lfm2", "Lfm2", LFM2, precision="int4", runs=("prefill", "hybrid", "decode"),
          options=EXACT_INT4),
    Model("qwen3.5", "Qwen3_5", QWEN35, config_class="Qwen3_5TextConfig", precision="int4",
          runs=("hybrid", "decode"), options=EXACT_INT4),
]


# ---- 1. the Hugging Face model -------------------------------------------------------------------


def check_pins():
    """Stop if an installed package is not the pinned version: its files would differ."""
    from importlib.metadata import version

    wrong = [f"{p} {version(p)}, not {v}" for p, v in PINS.items() if version(p) != v]
    if wrong:
        sys.exit("wrong versions: " + "; ".join(wrong))


def make_tokenizer(folder):
    """Save a tokenizer of the 256 byte-level characters, no merges, bos and eos."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    assert (fast.bos_token_id, fast.eos_token_id, len(fast)) == (BOS, EOS, VOCAB)
    fast.save_pretrained(folder)


def make_hf_model(entry):
    """Return the entry's transformers model with every parameter random."""
    import torch
    import transformers

    config = getattr(transformers, entry.config_class or entry.family + "Config")(**{
        "vocab_size": VOCAB, "num_hidden_layers": 2, "bos_token_id": BOS, "eos_token_id": EOS,
        "pad_token_id": EOS, **entry.config,
    })
    model = getattr(transformers, entry.family + "ForCausalLM")(config).float().eval()
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            p.copy_(random_parameter(entry, name, p, generator))
    return model


def random_parameter(entry, name, p, generator):
    """A random tensor like p: norms near one (Gemma's post norms near two), others with unit
    gain."""
    import torch

    noise = torch.randn(p.shape, generator=generator)
    if "norm" in name:
        # Gemma, Nemotron and Qwen 3.5 add one themselves
        offset = entry.family.startswith(("Gemma", "Nemotron")) and "post_" not in name
        offset |= entry.family == "Qwen3_5" and "linear_attn" not in name
        return (0.0 if offset else 1.0) + 0.4 * noise
    if name.endswith("bias"):
        return 0.5 * noise
    if name.endswith("sinks"):
        return 2.0 * noise
    gain = 1.5 if "o_proj" in name or "gate" in name else 1.0
    return noise if "embed" in name else gain * noise / p.shape[-1] ** 0.5


class ScoreProbe:
    """Attention for transformers that also measures the spread of the scores of a query.

    spread[layer] = std over all visible (query, key) of score − mean score of that query, where a
    score is the input of the softcap: scale·q·k after rotary and q/k norm.
    """

    def __init__(self):
        from transformers import AttentionInterface
        from transformers.masking_utils import AttentionMaskInterface, eager_mask

        self.spread = {}
        AttentionInterface.register("probe", self)
        AttentionMaskInterface.register("probe", eager_mask)

    def __call__(self, module, q, k, v, mask, scaling=None, softcap=None, s_aux=None,
                 **_):
        import torch

        group = q.shape[1] // k.shape[1]
        k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
        scores = q @ k.transpose(2, 3) * scaling
        n = scores.shape[-1]
        visible = (mask > -1 if mask is not None else torch.ones(n, n).tril() > 0).expand_as(scores)
        mean = (scores * visible).sum(-1, keepdim=True) / visible.sum(-1, keepdim=True)
        self.spread[module.layer_idx] = float((scores - mean)[visible].std())
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        scores = scores.masked_fill(~visible, float("-inf"))
        if s_aux is not None:
            scores = torch.cat([scores, s_aux.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1)
        weights = scores.softmax(-1)[..., :n]
        return (weights @ v).transpose(1, 2).contiguous(), weights


def qk_parameters(model, layer):
    """The views of a layer's parameters that scale its attention scores, each once."""
    attn = model.model.layers[layer].self_attn
    if hasattr(attn, "q_norm"):
        return [attn.q_norm.weight, attn.k_norm.weight]
    if hasattr(attn, "q_layernorm"):
        return [attn.q_layernorm.weight, attn.k_layernorm.weight]
    if hasattr(attn, "qkv_proj"):
        c = model.config
        head = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
        return [attn.qkv_proj.weight[: (c.num_attention_heads + c.num_key_value_heads) * head]]
    linear = [attn.q_proj, attn.k_proj]
    return [p for m in linear for p in (m.weight, m.bias) if p is not None]


def calibrate(model, ids, probe):
    """Scale q/k and the output layer so that scores and logits have the wanted spread; returns the
    spreads."""
    import torch

    ids = torch.tensor(ids)[None]
    model.set_attn_implementation("probe")
    probe.spread.clear()
    head = model.lm_head.weight
    # norms that multiply by 1 + p
    one = 1.0 if type(model).__name__.startswith(("Gemma3", "Qwen3_5")) else 0.0
    softcap = getattr(model.config, "final_logit_softcapping", None)
    with torch.no_grad():
        model(ids)
        for layer in sorted(probe.spread) * 2:
            model(ids)
            for p in qk_parameters(model, layer):
                p += one
                p *= (SCORE_STD / probe.spread[layer]) ** 0.5
                p -= one
        model.config.final_logit_softcapping = None
        head *= LOGIT_STD / model(ids).logits.std()
        model.config.final_logit_softcapping = softcap
        logits = model(ids).logits[0].numpy()
    for spread in probe.spread.values():
        assert SCORE_STD_RANGE[0] <= spread <= SCORE_STD_RANGE[1], probe.spread
    return [round(probe.spread[i], 2) for i in sorted(probe.spread)], logits


def save_hf(entry, folder, probe):
    """Save the entry's model and tokenizer: (spread of the scores of each layer, its logits)."""
    model = make_hf_model(entry)
    packed = model_builder.pack_experts(model)
    found = calibrate(model, make_ids(N_IDS, 0), probe)
    model.set_attn_implementation("eager")
    model_builder.as_published(model).save_pretrained(folder)
    model_builder.add_tensors(folder, packed)
    make_tokenizer(folder)
    return found


# ---- 2. the export -------------------------------------------------------------------------------


def describe(path):
    """The properties of one file that an importer needs: versions, inputs, outputs, ops,
    attributes."""
    import onnx
    from onnx import helper

    m = onnx.load(path, load_external_data=False)
    opsets = ", ".join(f"{o.domain!r}:{o.version}" for o in m.opset_import)
    lines = [f"ir_version {m.ir_version}, producer {m.producer_name} {m.producer_version}, "
             f"opsets {opsets}"]
    for kind, values in (("input", m.graph.input), ("output", m.graph.output)):
        for v in values:
            t = v.type.tensor_type
            dims = ",".join(d.dim_param or str(d.dim_value) for d in t.shape.dim)
            lines.append(f"{kind} {v.name}: {onnx.TensorProto.DataType.Name(t.elem_type)}[{dims}]")
    types = Counter(onnx.TensorProto.DataType.Name(i.data_type) for i in m.graph.initializer)
    lines.append("initializers " + ", ".join(f"{k}×{n}" for k, n in types.items()))
    ops = {}
    collect_ops(m.graph, ops, helper.get_attribute_value)
    for (domain, op, signature), nodes in sorted(ops.items()):
        lines.append(f"op {domain or 'ai.onnx'}::{op} ×{len(nodes)} {signature} e.g. {nodes[0]}")
    return lines


def collect_ops(graph, ops, value_of):
    """Group the nodes of graph and its sub-graphs by (domain, op, attributes and arity)."""
    for n in graph.node:
        parts = []
        for a in n.attribute:
            value = value_of(a)
            if a.HasField("g"):
                collect_ops(a.g, ops, value_of)
                value = f"<graph of {len(a.g.node)} nodes>"
            elif a.HasField("t"):
                value = f"<tensor type {a.t.data_type} {list(a.t.dims)}>"
            parts.append(f"{a.name}={value}")
        arity = "".join("x" if i else "_" for i in n.input) + "→" + "".join(
            "y" if o else "_" for o in n.output)
        key = (n.domain, n.op_type, f"{arity} {{{', '.join(parts)}}}")
        ops.setdefault(key, []).append(n.name)


# ---- 3. ONNX Runtime's answers -------------------------------------------------------------------


def make_ids(n, salt):
    """bos, then n − 1 random bytes: the same ids for every model, never pad."""
    rng = np.random.RandomState(SEED + salt)
    return np.concatenate([[BOS], rng.randint(0, 256, n - 1)]).astype(np.int64)


def save_ids(path, ids):
    """Write whitespace-separated token ids, sixteen a line."""
    rows = [" ".join(map(str, ids[i:i + 16])) for i in range(0, len(ids), 16)]
    path.write_text("\n".join(rows) + "\n")


def save_case(folder, feed, result, rows):
    """Write one call: inputs/, expect/ and rows.txt ('past new' of each batch row)."""
    for sub, tensors in (("inputs", feed), ("expect", result)):
        (folder / sub).mkdir(parents=True)
        for name, value in tensors.items():
            np.save(folder / sub / (name.replace("/", "_") + ".npy"), value)
    (folder / "rows.txt").write_text("".join(f"{p} {s}\n" for p, s in rows))


def reference(entry, out):
    """Run ONNX Runtime on the exported model and store what the tests compare with."""
    import ortref

    runner = ortref.Runner(out / "model.onnx")
    ref = out / "ref"
    ref.mkdir()
    ids = make_ids(N_IDS, 0)
    full = runner.score(ids)
    save_ids(ref / "ids.txt", ids)
    np.save(ref / "logits.npy", full)
    check_splits(entry, runner, ids, full)
    for name in entry.runs:
        save_case(ref / name, *CASES[name](runner, ids))
    if entry.long_run:
        ids = make_ids(N_LONG_RUN, 1)
        save_ids(ref / "ids600.txt", ids)
        np.save(ref / "logits600_tail.npy", runner.score(ids)[-TAIL:])
    if entry.long_rope:
        ids = make_ids(N_LONG_ROPE, 2)
        save_ids(ref / "ids_long.txt", ids)
        np.save(ref / "logits_long.npy", runner.score(ids))
    return full


def check_splits(entry, runner, ids, full):
    """ONNX Runtime itself must return (nearly) the same logits for 9 + 15 + 24 × 1 tokens."""
    split = runner.score(ids, [FIRST, SECOND] + [1] * (N_IDS - FIRST - SECOND))
    limit = {"fp32": 2e-5, "fp16": 5e-3, "int4": 2e-2}[entry.precision]
    error = float(np.abs(split - full).max() / np.abs(full).max())
    print(f"  {entry.name}: split against full {error:.1e} of max|logit|")
    assert error <= limit, (entry.name, error)


def case_prefill(runner, ids):
    """The first prompt, past of zero rows."""
    feed = runner.feed(ids[None, :FIRST], runner.empty_past(1))
    return feed, runner.run(feed), [(0, FIRST)]


def case_hybrid(runner, ids):
    """More prompt on a growing past."""
    _, past = runner.step(ids[None, :FIRST], runner.empty_past(1))
    feed = runner.feed(ids[None, FIRST:FIRST + SECOND], past)
    return feed, runner.run(feed), [(FIRST, SECOND)]


def case_decode(runner, ids):
    """One token after prefill and hybrid prefill."""
    past = runner.empty_past(1)
    for part in (ids[:FIRST], ids[FIRST:FIRST + SECOND]):
        _, past = runner.step(part[None], past)
    n = FIRST + SECOND
    feed = runner.feed(ids[None, n:n + 1], past)
    return feed, runner.run(feed), [(n, 1)]


def case_batch(runner, ids):
    """Two prompts of 9 and 5 tokens, right-padded with eos."""
    rows = [(0, FIRST), (0, 5)]
    tokens = np.full((2, FIRST), EOS, np.int64)
    mask = np.zeros((2, FIRST), np.int64)
    for b, (_, n) in enumerate(rows):
        tokens[b, :n] = ids[b * FIRST:b * FIRST + n]
        mask[b, :n] = 1
    feed = runner.feed(tokens, runner.empty_past(2), mask)
    return feed, runner.run(feed), rows


def case_static(runner, ids):
    """The hybrid call on past tensors of STATIC_ROWS rows, NaN after the valid ones."""
    feed, growing, rows = case_hybrid(runner, ids)
    for name in runner.past_names:
        small = feed[name]
        shape = (*small.shape[:2], STATIC_ROWS, small.shape[3])
        feed[name] = np.full(shape, np.nan, small.dtype)
        feed[name][:, :, :FIRST] = small
    result = runner.run(feed)
    assert np.abs(result["logits"] - growing["logits"]).max() <= 2e-3, "static differs from growing"
    return feed, result, rows


CASES = {"prefill": case_prefill, "hybrid": case_hybrid, "decode": case_decode,
         "batch": case_batch, "static": case_static}


# ---- all of it -----------------------------------------------------------------------------------


def export(entry, out, work, probe):
    """Make one model folder; returns its row of the printed summary."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(work, ignore_errors=True)
    hf = work / "hf"
    spread, hf_logits = save_hf(entry, hf, probe)
    model_builder.build(entry, hf, out, work)
    logits = reference(entry, out)
    far = float(np.abs(logits - hf_logits).max() / np.abs(hf_logits).max())
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    sha = hashlib.sha256((out / "model.onnx.data").read_bytes()).hexdigest()[:12]
    return {"name": entry.name, "kB": size // 1000, "score_std": spread,
            "logit_std": round(float(logits.std()), 2),
            "logit_max": round(float(np.abs(logits).max()), 2),
            "transformers_vs_ort": f"{far:.1e}", "data_sha256": sha}


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "test" / "models")
    parser.add_argument("--work", type=Path, help="scratch folder (default: a temporary one)")
    parser.add_argument("--ops", type=Path, help="also write the ops of every model to this file")
    parser.add_argument("names", nargs="*", help="models to make (default: all)")
    args = parser.parse_args()
    check_pins()
    unknown = set(args.names) - {m.name for m in MODELS}
    if unknown:
        sys.exit(f"no such model: {', '.join(sorted(unknown))}")
    work = args.work or Path(tempfile.mkdtemp(prefix="export_models."))
    probe = ScoreProbe()
    for entry in MODELS:
        if not args.names or entry.name in args.names:
            print(json.dumps(export(entry, args.out / entry.name, work / entry.name, probe)))
    if args.ops:
        made = [m.name for m in MODELS if (args.out / m.name / "model.onnx").exists()]
        text = [line for name in made
                for line in (f"== {name}", *describe(args.out / name / "model.onnx"), "")]
        args.ops.write_text("\n".join(text))
    if not args.work:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
