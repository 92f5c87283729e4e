"""Decoder families for exporters other than the model builder, as tiny random models.

export_traced.py makes pairs EXPORTER-FAMILY of them on demand, and check_traced.py compares the
results with ONNX Runtime. A tracer's family is a configuration that both transformers 4.57 and 5
accept; parameters are random, from one seed, and those of queries and keys are scaled until scores
have the spread SCORE_STD, as in export_models.py. mobius builds the families of tools/families.py
itself.
"""

import fnmatch
import sys
from dataclasses import dataclass, field

import export_models as builder
import families
from export_models import BOS, EOS, SCORE_STD, THETA, VOCAB

LAYERS = 2
HEADS = dict(hidden_size=48, intermediate_size=64, num_attention_heads=4,
             max_position_embeddings=160)
GROUPS = dict(HEADS, num_key_value_heads=2, tie_word_embeddings=False)
ROPE = {"rope_theta": THETA}
WIDE = dict(GROUPS, hidden_size=64)  # heads of 16, half of each rotated
SMALL = dict(n_embd=48, n_head=4, n_layer=LAYERS, n_positions=160, n_inner=64)


@dataclass
class Family:
    """One row: the prefix of its classes in transformers, its configuration."""

    name: str
    prefix: str
    config: dict = field(default_factory=dict)
    partial: float = 1.0  # part of a head that is rotated
    suffix: str = "ForCausalLM"


FAMILIES = [
    Family("llama", "Llama", {**GROUPS, **ROPE}),
    Family("qwen2", "Qwen2", {**GROUPS, **ROPE}),
    Family("qwen3", "Qwen3", {**GROUPS, **ROPE, "head_dim": 16}),
    Family("mistral", "Mistral", {**GROUPS, **ROPE, "sliding_window": 16}),
    Family("gemma", "Gemma", {**GROUPS, **ROPE, "head_dim": 16, "tie_word_embeddings": True}),
    Family("gemma2", "Gemma2", {
        **GROUPS, **ROPE, "head_dim": 16, "tie_word_embeddings": True, "sliding_window": 16,
        "query_pre_attn_scalar": 20, "attn_logit_softcapping": 6.0,
        "final_logit_softcapping": 8.0}),
    Family("phi", "Phi", {**HEADS, **ROPE, "hidden_size": 64}, 0.5),
    Family("phi3", "Phi3", {**GROUPS, **ROPE, "original_max_position_embeddings": 160}),
    Family("gpt2", "GPT2", SMALL, suffix="LMHeadModel"),
    Family("gpt-neox", "GPTNeoX", {**HEADS, "hidden_size": 64, "rotary_emb_base": THETA}, 0.5),
    Family("opt", "OPT", dict(hidden_size=48, ffn_dim=64, num_attention_heads=4,
                              max_position_embeddings=160, word_embed_proj_dim=48)),
    Family("bloom", "Bloom", dict(hidden_size=48, n_head=4, n_layer=LAYERS)),
    Family("falcon", "Falcon", {**ROPE, "hidden_size": 48, "num_attention_heads": 4,
                                "max_position_embeddings": 160, "multi_query": True}),
    Family("starcoder2", "Starcoder2", {**GROUPS, **ROPE, "sliding_window": None}),
    Family("olmo", "Olmo", {**GROUPS, **ROPE}),
    Family("stablelm", "StableLm", {**WIDE, **ROPE}, 0.5),
    Family("codegen", "CodeGen", {**SMALL, "n_ctx": 160, "rotary_dim": 8}),
    Family("gptj", "GPTJ", {**SMALL, "rotary_dim": 8}),
    Family("gpt-neo", "GPTNeo", dict(
        hidden_size=48, intermediate_size=64, num_layers=LAYERS, num_heads=4, window_size=16,
        attention_types=[[["global", "local"], 1]], max_position_embeddings=160)),
    Family("mpt", "Mpt", dict(d_model=48, n_heads=4, n_layers=LAYERS, expansion_ratio=2,
                              max_seq_len=160)),
    Family("gpt-oss", "GptOss", {
        **GROUPS, **ROPE, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2,
        "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}),
]


MOE = builder.Model("qwen3-moe", "Qwen3Moe", dict(
    hidden_size=96, intermediate_size=128, moe_intermediate_size=64, num_experts=4,
    num_experts_per_tok=2, num_attention_heads=6, num_key_value_heads=2, head_dim=32,
    max_position_embeddings=320, tie_word_embeddings=False, decoder_sparse_step=1,
    norm_topk_prob=True, rope_parameters=builder.ROPE))
# Families of mobius 0.1.0: no Gemma 2 (it lacks query_pre_attn_scalar), no LFM2, no text-only Qwen
# 3.5. It omits the window of Mistral, which is then the same as Llama.
BUILT = [f for f in families.FAMILIES if f.name not in
         ("gemma2", "lfm2", "mistral-window", "phi4-mini", "qwen2.5", "qwen3.5")] + [MOE]


@dataclass
class Exporter:
    """A column: its families, and how export_traced.py makes them."""

    name: str
    how: str
    families: list
    opset: int = 24
    says: str = ""


EXPORTERS = [
    Exporter("optimum", "optimum", FAMILIES, 18, "Optimum: its tracer, opset 18"),
    Exporter("merged", "merge", [f for f in FAMILIES if f.name in ("llama", "qwen2", "gpt2")], 17,
             "torch's tracer twice, and Optimum's `merge_decoders` of both"),
    Exporter("dynamo", "dynamo", FAMILIES, 23, "`torch.onnx.export(dynamo=True)`, opset 23"),
    Exporter("mobius", "mobius", BUILT, says="mobius, its default: Attention of opset 24"),
    Exporter("mobius-cpu", "mobius-cpu", BUILT, says="mobius for cpu: GroupQueryAttention"),
    Exporter("mobius-static", "mobius-static", BUILT, says="mobius, static cache"),
]
# Pairs that an exporter refuses, or writes in a form that ONNX Runtime refuses.
REFUSED = {
    "optimum-starcoder2": "Optimum does not support this family",
    "dynamo-mpt": "torch.export finds lengths that contradict each other",
    "mobius-cpu-nemotron": "ONNX Runtime's op has no attribute rotary_embedding_dim",
    **{f"mobius-static-{n}": "mobius has no static cache for it"
       for n in ("phi2", "gemma", "gemma3", "smollm3", "granite", "olmo", "gpt-oss")},
}
# Pairs that are raised only in sequences.
SEQUENCES = {
    "dynamo-gpt-neo": "the rows selected from its table may not be those of the queries",
    **{f"{e}-gpt-oss": "no op of the standard has sinks"
       for e in ("optimum", "dynamo", "mobius", "mobius-cpu")},
}


def pairs():
    """Every pair by name: (exporter, family)."""
    return {f"{e.name}-{f.name}": (e, f) for e in EXPORTERS for f in e.families}


def chosen(patterns):
    """The pairs named on a command line, without refused ones."""
    every = {n: p for n, p in pairs().items() if n not in REFUSED}
    for pattern in patterns:
        if not fnmatch.filter(every, pattern):
            sys.exit(f"no pair is called {pattern}")
    return {n: p for n, p in every.items()
            if not patterns or any(fnmatch.fnmatch(n, p) for p in patterns)}


def configuration(family):
    """The family's configuration, with rotary settings where this version of transformers reads
    them."""
    import transformers

    values = dict(family.config)
    if "rope_theta" in values or "rotary_emb_base" in values:
        theta = values.get("rope_theta", values.get("rotary_emb_base"))
        if transformers.__version__.startswith("4."):
            values["rotary_pct" if family.prefix == "GPTNeoX"
                   else "partial_rotary_factor"] = family.partial
        else:
            values.pop("rope_theta", None)
            values["rope_parameters"] = {"rope_type": "default", "rope_theta": theta,
                                         "partial_rotary_factor": family.partial}
    if not {"n_layer", "n_layers", "num_layers"} & set(values):
        values["num_hidden_layers"] = LAYERS
    return getattr(transformers, family.prefix + "Config")(
        vocab_size=VOCAB, bos_token_id=BOS, eos_token_id=EOS, pad_token_id=EOS, **values)


def make_model(family, ids):
    """Its model with random parameters and eager attention."""
    import torch
    import transformers

    config = configuration(family)
    config._attn_implementation = "eager"  # noqa: SLF001  transformers has no other way for all
    model = getattr(transformers, family.prefix + family.suffix)(config).float().eval()
    generator = torch.Generator().manual_seed(builder.SEED)
    entry = builder.Model(family.name, family.prefix, {})
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if ".ln_" in name and name.endswith("weight"):
                p.copy_(1 + 0.4 * torch.randn(p.shape, generator=generator))
            else:
                p.copy_(builder.random_parameter(entry, name, p, generator))
        spread_scores(model, torch.tensor(ids)[None])
        model.get_output_embeddings().weight.mul_(
            builder.LOGIT_STD / model(torch.tensor(ids)[None]).logits.std())
    return model


QK = ("q_proj", "k_proj", "query_key_value", "c_attn", "qkv_proj", "Wqkv")


def spread_scores(model, ids):
    """Scale the weights of queries and keys until the scores of each layer have the wanted
    spread."""
    norms = [n for n, _ in model.named_parameters() if "q_norm" in n or "k_norm" in n]
    for _ in range(4):
        spreads = measure(model, ids)
        for layer, spread in enumerate(spreads):
            for name, p in model.named_parameters():
                if f".{layer}." not in name or not any(q in name for q in (norms or QK)):
                    continue
                p.mul_((SCORE_STD / spread) ** 0.5)
    spreads = measure(model, ids)
    assert all(abs(s - SCORE_STD) < 1.5 for s in spreads), spreads


def measure(model, ids):
    """The spread of the scores of each layer: the input of the softmax, without masked scores."""
    import torch

    found, softmax = [], torch.nn.functional.softmax

    def probe(x, *args, **kwargs):
        if x.dim() == 4:
            seen = x > -1e3
            mean = x.where(seen, 0).sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)
            found.append(float((x - mean)[seen].std()))
        return softmax(x, *args, **kwargs)

    torch.nn.functional.softmax = probe
    try:
        model(ids)
    finally:
        torch.nn.functional.softmax = softmax
    assert len(found) == LAYERS, found
    return found
