#!/usr/bin/env python3
"""Every family of the model builder in every precision, as tiny random models outside the tree.

    make/bin/python tools/families.py export DIR [PAIR ...]

A pair is FAMILY-PRECISION, for example gemma3-fp16, or a shell pattern of pairs; by default all are
made. DIR/PAIR gets the output of the builder. tools/check_families.py compares them with ONNX
Runtime. Models are made like those of test/models by export_models.py: random, from one seed, with
attention scores whose spread is SCORE_STD.
"""

import argparse
import fnmatch
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import export_models
import model_builder
from export_models import (EXACT_INT4, GPT_OSS, LFM2, LLAMA, QWEN35, ROPE, SMOLLM3, THETA,
                           Model)

LONG = dict(
    hidden_size=128, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=320, original_max_position_embeddings=64, rms_norm_eps=1e-5,
    sliding_window=None,
)
GEMMA = dict(
    LLAMA, max_position_embeddings=320, tie_word_embeddings=True,
    hidden_activation="gelu_pytorch_tanh",
)


def long_rope(pairs, partial):
    """LongRoPE with factors for that many pairs of a head."""
    return {
        "rope_type": "longrope", "type": "longrope", "rope_theta": 10000.0,
        "partial_rotary_factor": partial, "original_max_position_embeddings": 64,
        "short_factor": [1.0 + 0.05 * i for i in range(pairs)],
        "long_factor": [1.5 + 0.5 * i for i in range(pairs)],
    }


FAMILIES = [
    Model("llama", "Llama", dict(LLAMA, max_position_embeddings=320)),
    Model("llama3", "Llama", dict(
        LLAMA, max_position_embeddings=320, tie_word_embeddings=True, rope_parameters={
            "rope_type": "llama3", "rope_theta": THETA, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 32})),
    Model("mistral", "Mistral", dict(
        LLAMA, max_position_embeddings=320, sliding_window=16,
        layer_types=["sliding_attention"] * 2), options={"windowed_kv_cache": "false"}),
    Model("mistral-window", "Mistral", dict(
        LLAMA, max_position_embeddings=320, sliding_window=16,
        layer_types=["sliding_attention"] * 2)),
    Model("qwen2", "Qwen2", dict(
        hidden_size=96, intermediate_size=128, num_attention_heads=6, num_key_value_heads=2,
        max_position_embeddings=320, tie_word_embeddings=False, rope_parameters=ROPE)),
    Model("qwen2.5", "Qwen2", dict(
        hidden_size=96, intermediate_size=128, num_attention_heads=6, num_key_value_heads=2,
        max_position_embeddings=320, tie_word_embeddings=True, rope_parameters=ROPE)),
    Model("qwen3", "Qwen3", dict(
        hidden_size=96, intermediate_size=128, num_attention_heads=6, num_key_value_heads=2,
        head_dim=48, max_position_embeddings=320, tie_word_embeddings=True,
        rope_parameters=ROPE)),
    Model("phi2", "Phi", dict(
        hidden_size=192, intermediate_size=256, num_attention_heads=4, hidden_act="gelu_new",
        max_position_embeddings=320, rope_parameters=dict(ROPE, partial_rotary_factor=1 / 3))),
    Model("phi3-mini", "Phi3", dict(LONG, rope_parameters=long_rope(16, 1.0)),
          long_rope=True),
    Model("phi4-mini", "Phi3", dict(
        LONG, hidden_size=256, tie_word_embeddings=True, rope_parameters=long_rope(24, 0.75)),
          long_rope=True),
    Model("gemma", "Gemma", dict(GEMMA, rope_parameters=ROPE)),
    Model("gemma2", "Gemma2", dict(
        GEMMA, sliding_window=16, layer_types=["sliding_attention", "full_attention"],
        query_pre_attn_scalar=20, attn_logit_softcapping=6.0, final_logit_softcapping=8.0,
        rope_parameters=ROPE), options={"windowed_kv_cache": "false"}),
    Model("gemma3", "Gemma3", dict(
        GEMMA, num_hidden_layers=3, sliding_window=16, query_pre_attn_scalar=20,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={"full_attention": ROPE,
                         "sliding_attention": dict(ROPE, rope_theta=10.0)}),
        config_class="Gemma3TextConfig", options={"windowed_kv_cache": "false"}),
    Model("smollm3", "SmolLM3", SMOLLM3),
    Model("granite", "Granite", dict(
        hidden_size=96, intermediate_size=128, num_attention_heads=6, num_key_value_heads=2,
        max_position_embeddings=320, embedding_multiplier=6.0, logits_scaling=4.0,
        residual_multiplier=0.6, attention_multiplier=0.2, tie_word_embeddings=True,
        rope_parameters=ROPE)),
    Model("olmo", "Olmo", dict(
        hidden_size=96, intermediate_size=128, num_attention_heads=6, num_key_value_heads=6,
        max_position_embeddings=320, tie_word_embeddings=False, rope_parameters=ROPE)),
    Model("nemotron", "Nemotron", dict(
        hidden_size=96, intermediate_size=128, num_attention_heads=2, num_key_value_heads=1,
        head_dim=48, max_position_embeddings=320, hidden_act="relu2",
        rope_parameters=dict(ROPE, partial_rotary_factor=2 / 3))),
    Model("gpt-oss", "GptOss", GPT_OSS, options={"windowed_kv_cache": "false"}),
    Model("lfm2", "Lfm2", LFM2),
    Model("qwen3.5", "Qwen3_5", QWEN35, config_class="Qwen3_5TextConfig"),
]


ROUNDED = 2e-2  # tolerance if activations are rounded to 8 bits


@dataclass
class Precision:
    """The arguments of the builder, and max|Δlogits| / max|logits| compared with ONNX Runtime."""

    precision: str
    provider: str
    tolerance: float
    options: dict = field(default_factory=dict)


# With tied embeddings the builder makes an invalid file of int4-asym (the table of the embedding is
# the float weight that it replaced) and none of qdq, so these have two tables. ONNX Runtime
# supports the norms of q and k in attention only on GPUs, so fp16 has them outside.
PRECISIONS = {
    "fp32": Precision("fp32", "cpu", 2e-5),
    "fp16": Precision("fp16", "cuda", 5e-3, {"fuse_qk_norm_gqa": "false"}),
    "int4-sym": Precision("int4", "cpu", ROUNDED, {"block_size": 32}),
    "int4-asym": Precision("int4", "cpu", 2e-5, dict(
        EXACT_INT4, is_symmetric="false", shared_embeddings="false")),
    "int8": Precision("int8", "cpu", ROUNDED, {"block_size": 32}),
    "qdq": Precision("int4", "cpu", 2e-5, {
        "block_size": 32, "use_qdq": "true", "shared_embeddings": "false"}),
}
# Pairs that need not pass, with the reason; check_families.py fails if one of them does.
EXCEPT = {
    "qwen3.5-fp16": "its states round at every token; ONNX Runtime differs from itself by 9e-3",
}
# Token ids that differ from those of salt 0. With these, two experts are so close to a tie that the
# last bit of fp16 decides (ONNX Runtime, token by token, then differs from itself as much), or a
# recurrence propagates a rounding to 8 bits that was decided by a last bit.
PROMPT = {"gpt-oss-fp16": 2, "qwen3.5-int8": 1}


def pairs():
    """Every pair by name: (family, precision)."""
    return {f"{f.name}-{p}": (f, p) for f in FAMILIES for p in PRECISIONS}


def chosen(patterns):
    """The pairs named on a command line."""
    every = pairs()
    for pattern in patterns:
        if not fnmatch.filter(every, pattern):
            sys.exit(f"no pair is called {pattern}")
    return {n: v for n, v in every.items()
            if not patterns or any(fnmatch.fnmatch(n, p) for p in patterns)}


def in_child(work, log):
    """Run work() in a forked process, so that no state of the builder is left; returns True if it
    succeeds."""
    child = os.fork()
    if not child:
        code = 1
        try:
            with open(log, "w", encoding="utf-8") as f:
                os.dup2(f.fileno(), 1)
                os.dup2(f.fileno(), 2)
                work()
                code = 0
        except BaseException:  # after any error, the log contains it and the parent continues
            import traceback
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def export(out, patterns):
    """Make the pairs in out; if the builder refuses a pair, its log is left there."""
    export_models.check_pins()
    os.environ.update(model_builder.OFFLINE)
    import torch
    from onnxruntime_genai.models import builder  # noqa: F401  imported once, before the forks

    torch.set_num_threads(1)
    work = Path(tempfile.mkdtemp(prefix="families."))
    saved, probe = {}, export_models.ScoreProbe()
    for name, (family, precision) in chosen(patterns).items():
        hf = work / family.name
        if family.name not in saved:
            saved[family.name], _ = export_models.save_hf(family, hf, probe)
            print(f"{family.name}: scores spread by {saved[family.name]}", flush=True)
        how = PRECISIONS[precision]
        entry = replace(family, precision=how.precision, provider=how.provider,
                        options={**family.options, **how.options})
        folder, raw = out / name, work / name
        shutil.rmtree(folder, ignore_errors=True)
        log = work / "log.txt"
        words = model_builder.arguments(entry, hf, raw, work)
        good = in_child(lambda w=words: model_builder.run(w), log)
        if good:
            model_builder.keep(raw, folder)
        else:
            folder.mkdir(parents=True)
            shutil.copy(log, folder / "builder.log")
        shutil.rmtree(raw, ignore_errors=True)
        print(f"  {name}: {'exported' if good else 'REFUSED by the builder'}", flush=True)
    shutil.rmtree(work)


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["export"])
    parser.add_argument("out", type=Path)
    parser.add_argument("pairs", nargs="*")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    export(args.out.resolve(), args.pairs)


if __name__ == "__main__":
    main()
