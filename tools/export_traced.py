#!/usr/bin/env python3
"""Make the traced test models in test/traced, and ONNX Runtime's answers for them.

Like export_models.py, but for tracers, which write attention in simple ops: Optimum (the legacy
tracer of torch with transformers), the same tracer alone, and torch.export. Configurations, random
parameters, scores and the stored files are like those of export_models.py. There are two
environments, because Optimum needs an older transformers:

    the one of export_models.py, and onnxscript       for how = script, dynamo, bare...
    the same, and mobius-onnx==0.1.0                  for how = mobius, mobius-static
    optimum-onnx==0.1.0 transformers==4.57.6 and torch==2.15.0      for how = optimum, merge
    PYTHON tools/export_traced.py --out test/traced NAME ...

The pairs EXPORTER-FAMILY of traced_families.py, for docs/families.md, are made by

    PYTHON tools/export_traced.py --out DIR --pairs PATTERN ...     (--list: prints them)
"""

import argparse
import os
import shutil
import sys
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import export_models as builder
import families
from export_models import BOS, EOS, FIRST, N_IDS, SCORE_STD, SECOND, THETA, VOCAB

LAYERS, PAST, NEW = 2, 5, 3
WHISPER_SEED = 1  # for answers that do not repeat one id
SHAPE = dict(hidden_size=48, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=160, rms_norm_eps=1e-5, tie_word_embeddings=False)
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": THETA}}
GPT2 = dict(n_embd=48, n_head=4, n_positions=160, n_inner=64, n_layer=LAYERS)


@dataclass
class Traced:
    """One row of the table: a configuration and how it is traced."""

    name: str
    family: str
    config: dict
    how: str
    attention: str = "sdpa"
    opset: int = 18
    runs: tuple = field(default=("hybrid", "batch"))


MODELS = [
    Traced("llama", "Llama", {**SHAPE, "rope_theta": THETA}, "optimum"),
    Traced("mistral", "Mistral", {**SHAPE, "rope_theta": THETA, "sliding_window": 16},
           "optimum"),
    Traced("gemma", "Gemma", {**SHAPE, "head_dim": 16, "rope_theta": THETA}, "optimum"),
    Traced("gpt2", "GPT2", GPT2, "script", "eager", 17),
    Traced("dynamo-qwen2", "Qwen2", {**SHAPE, **ROPE}, "dynamo", "eager"),
    Traced("dynamo-llama", "Llama", {**SHAPE, **ROPE}, "dynamo", "sdpa", 23),
    Traced("gptj", "GPTJ", {}, "optimum"),  # of traced_families.py
    Traced("bloom", "Bloom", {}, "optimum"),
    Traced("mobius-gemma3", "Gemma3", {
        **SHAPE, "head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 20,
        "layer_types": ["sliding_attention", "full_attention"],
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_parameters": {"full_attention": ROPE["rope_parameters"],
                            "sliding_attention": dict(ROPE["rope_parameters"], rope_theta=10.0)},
    }, "mobius"),
    Traced("mobius-static", "Qwen3", {**SHAPE, **ROPE, "head_dim": 16}, "mobius-static",
           runs=("static",)),
    Traced("llama-no-cache", "Llama", {**SHAPE, **ROPE}, "bare", "eager", 17),
    Traced("dynamo-llama-no-cache", "Llama", {**SHAPE, **ROPE}, "bare-dynamo", "sdpa", 23),
    Traced("dynamo-llama-ids-alone", "Llama", {**SHAPE, **ROPE}, "bare-dynamo-ids"),
    Traced("dynamo-mistral-no-cache", "Mistral", {**SHAPE, **ROPE, "sliding_window": 5},
           "bare-dynamo", "eager"),
    Traced("opt-no-cache", "OPT", {}, "bare-counted", "eager", 17),  # of traced_families.py
]


def make_model(entry, ids):
    """A transformers model with random parameters whose scores have the spread SCORE_STD."""
    import torch
    import transformers

    config = getattr(transformers, entry.family + "Config")(
        vocab_size=VOCAB, num_hidden_layers=LAYERS, bos_token_id=BOS, eos_token_id=EOS,
        pad_token_id=EOS, **entry.config)
    kind = "LMHeadModel" if entry.family == "GPT2" else "ForCausalLM"
    model = getattr(transformers, entry.family + kind)(config).float().eval()
    generator = torch.Generator().manual_seed(builder.SEED)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if entry.family == "GPT2" and "ln_" in name and name.endswith("weight"):
                p.copy_(1 + 0.4 * torch.randn(p.shape, generator=generator))
            else:
                p.copy_(builder.random_parameter(entry, name, p, generator))
    spread_scores(model, torch.tensor(ids)[None])
    model.set_attn_implementation(entry.attention)
    return model


def spread_scores(model, ids):
    """Scale the weights of queries and keys, layer by layer."""
    import torch

    probe = builder.ScoreProbe()
    model.set_attn_implementation("probe")
    with torch.no_grad():
        for layer in list(range(LAYERS)) * 2:
            model(ids)
            for p in score_parameters(model, layer):
                p *= (SCORE_STD / probe.spread[layer]) ** 0.5
        model(ids)
    assert all(abs(s - SCORE_STD) < 0.5 for s in probe.spread.values()), probe.spread


def score_parameters(model, layer):
    """The parameters of a layer that scale its scores."""
    if hasattr(model, "transformer"):
        qkv, width = model.transformer.h[layer].attn.c_attn, model.config.n_embd
        return [qkv.weight[:, :2 * width], qkv.bias[:2 * width]]
    return builder.qk_parameters(model, layer)


# ---- the three ways ------------------------------------------------------------------------------


def by_optimum(_, model, folder):
    """Optimum: one graph with past and present."""
    from optimum.exporters.onnx import main_export

    model.save_pretrained(folder / "hf")
    main_export(str(folder / "hf"), output=str(folder / "onnx"), no_post_process=False,
                task="text-generation-with-past", do_validation=False)


def wrapped(model):
    """Tensors in, tensors out, as traced by Optimum."""
    import torch
    from transformers.cache_utils import DynamicCache

    class Wrapper(torch.nn.Module):
        """The decoder with its cache as arguments."""

        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask, position_ids, *past):
            cache = DynamicCache()
            for i in range(len(past) // 2):
                cache.update(past[2 * i], past[2 * i + 1], i)
            out = self.model(input_ids=input_ids, attention_mask=attention_mask,
                             position_ids=position_ids, past_key_values=cache, use_cache=True)
            layers = out.past_key_values.layers
            return (out.logits, *(t for x in layers for t in (x.keys, x.values)))

    return Wrapper()


def example(model):
    """Arguments for tracing, and the names of inputs and outputs."""
    import torch

    c = model.config
    heads = getattr(c, "num_key_value_heads", c.num_attention_heads)
    heads = 1 if getattr(c, "multi_query", False) else heads
    size = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    past = [torch.randn(2, heads, PAST, size) for _ in range(2 * LAYERS)]
    args = (torch.randint(0, 256, (2, NEW)), torch.ones(2, PAST + NEW, dtype=torch.int64),
            torch.arange(PAST, PAST + NEW)[None].repeat(2, 1), *past)
    kv = [f"{i}.{part}" for i in range(LAYERS) for part in ("key", "value")]
    return (args, ["input_ids", "attention_mask", "position_ids",
                   *(f"past_key_values.{x}" for x in kv)],
            ["logits", *(f"present.{x}" for x in kv)])


def by_script(entry, model, folder, past=True, name="model.onnx"):
    """torch.onnx's legacy tracer: a decoder after a past, or one that creates it."""
    import torch

    args, inputs, outputs = example(model)
    rows = {0: "batch_size", 1: "sequence_length"}
    total = {0: "batch_size", 1: "past_sequence_length + sequence_length"}
    if not past:  # the file with the other one does not know its past
        total[1] = "attention_mask_sequence_length"
        args, inputs = (args[0], args[1][:, :NEW], args[2] - PAST), inputs[:3]
    axes = {n: {0: "batch_size", 2: "past_sequence_length"} for n in inputs[3:]}
    axes |= {n: {0: "batch_size", 2: total[1]} for n in outputs[1:]}
    axes |= {"input_ids": rows, "position_ids": rows, "logits": rows, "attention_mask": total}
    torch.onnx.export(wrapped(model), args, str(folder / "onnx" / name), dynamo=False,
                      opset_version=entry.opset, dynamic_axes=axes, input_names=inputs,
                      output_names=outputs)


def by_merge(entry, model, folder):
    """Both, merged into one file by Optimum: an If on use_cache_branch."""
    from optimum.exporters.onnx.model_patcher import eager_mask_without_vmap
    from optimum.onnx import merge_decoders
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    ALL_MASK_ATTENTION_FUNCTIONS.register("eager", eager_mask_without_vmap)  # required by the
                                                                             # tracer
    two = folder / "onnx" / "first.onnx", folder / "onnx" / "later.onnx"
    for path, past in zip(two, (False, True), strict=True):
        by_script(entry, model, folder, past, path.name)
    merge_decoders(*two, save_path=folder / "onnx" / "model.onnx")


def by_dynamo(entry, model, folder):
    """torch.export."""
    import torch

    args, inputs, outputs = example(model)
    auto = torch.export.Dim.AUTO
    shapes = {n: {0: auto, 1: auto} for n in inputs[:3]}
    shapes["past"] = tuple({0: auto, 2: auto} for _ in inputs[3:])
    torch.onnx.export(wrapped(model), args, str(folder / "onnx" / "model.onnx"), dynamo=True,
                      opset_version=entry.opset, dynamic_shapes=shapes, input_names=inputs,
                      output_names=outputs, external_data=False)


def by_bare(entry, model, folder):
    """Either tracer with a model that returns only logits, without a cache; except with "bare", it
    counts positions itself, and with "ids" it has no mask."""
    import torch

    class Wrapper(torch.nn.Module):
        """The decoder of one call."""

        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask=None, position_ids=None):
            places = {} if position_ids is None else {"position_ids": position_ids}
            return self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False,
                              **places).logits

    args, inputs, _ = example(model)
    n = {"bare": 3, "bare-dynamo-ids": 1}.get(entry.how, 2)
    rows = {0: "batch_size", 1: "sequence_length"}
    args, inputs = (args[0], args[1][:, :NEW], args[2])[:n], inputs[:n]
    auto = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    how = {"dynamo": True, "dynamic_shapes": {i: auto for i in inputs}, "external_data": False}
    if not entry.how.startswith("bare-dynamo"):
        how = {"dynamo": False, "dynamic_axes": {i: rows for i in (*inputs, "logits")}}
    torch.onnx.export(Wrapper(), args, str(folder / "onnx" / "model.onnx"), **how,
                      opset_version=entry.opset, input_names=inputs, output_names=["logits"])


def by_mobius(entry, _, folder):
    """mobius, from a model saved by transformers."""
    from mobius.__main__ import main as mobius

    if not isinstance(entry.config, builder.Model):
        name = "Gemma3TextConfig" if entry.family == "Gemma3" else ""
        entry.config = builder.Model(entry.name, entry.family, entry.config, config_class=name)
    builder.save_hf(entry.config, folder / "hf", builder.ScoreProbe())
    static = ["--static-cache", "--max-seq-len", "64"] if entry.how == "mobius-static" else []
    mobius(["build", "--config", str(folder / "hf"), "--ep",
            "cpu" if entry.how == "mobius-cpu" else "default", *static, str(folder / "onnx")])


WAYS = {"merge": by_merge, "mobius": by_mobius, "mobius-static": by_mobius, "mobius-cpu": by_mobius,
        "optimum": by_optimum, "script": by_script, "dynamo": by_dynamo, "bare": by_bare,
        "bare-dynamo": by_bare, "bare-dynamo-ids": by_bare, "bare-counted": by_bare}


def strip(path):
    """Remove debugging information of the tracer: traces with paths, docs, shapes of every value.
    External data become part of the file."""
    import onnx

    m = onnx.load(path)
    del m.metadata_props[:], m.graph.metadata_props[:], m.graph.value_info[:]
    m.doc_string = ""
    if "/" in m.graph.name:
        m.graph.name = "model"
    for n in m.graph.node:
        del n.metadata_props[:]
        n.doc_string = ""
    for v in [*m.graph.input, *m.graph.output, *m.graph.initializer]:
        del v.metadata_props[:]
    onnx.save(m, path)


def reference(entry, out):
    """The results of ONNX Runtime, in the files that export_models.py writes."""
    import ortref

    runner = ortref.runner(out / "model.onnx")
    ids, ref = builder.make_ids(N_IDS, 0), out / "ref"
    ref.mkdir()
    full = runner.score(ids)
    split = runner.score(ids, [FIRST, SECOND] + [1] * (N_IDS - FIRST - SECOND))
    error = float(np.abs(split - full).max() / np.abs(full).max())
    print(f"  {entry.name}: split against full {error:.1e} of max|logit|")
    assert error < 2e-5, error
    builder.save_ids(ref / "ids.txt", ids)
    np.save(ref / "logits.npy", full)
    for name in entry.runs:
        case = case_static if name == "static" else builder.CASES[name]
        builder.save_case(ref / name, *case(runner, ids))


def case_static(runner, ids):
    """More prompt, in buffers that contain the first one."""
    _, past = runner.step(ids[None, :FIRST], runner.empty_past(1), 0)
    feed = runner.feed(ids[None, FIRST:FIRST + SECOND], past, FIRST)
    return feed, runner.run(feed), [(FIRST, SECOND)]


def model_of(entry, ids):
    """The model of an entry, or of the family that it names."""
    if entry.config:
        return make_model(entry, ids)
    import traced_families

    return traced_families.make_model(
        next(f for f in traced_families.FAMILIES if f.name == entry.name.split("-")[0]), ids)


def make(entry, out):
    """One folder of test/models."""
    print(entry.name)
    folder = out / entry.name
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "onnx").mkdir()
        own = entry.how.startswith("mobius")  # it reads a saved model
        model = None if own else model_of(entry, builder.make_ids(N_IDS, 0))
        WAYS[entry.how](entry, model, Path(work))
        strip(Path(work) / "onnx" / "model.onnx")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copy(Path(work) / "onnx" / "model.onnx", folder / "model.onnx")
    if not entry.how.startswith("bare"):
        reference(entry, folder)


def make_pair(name, out):
    """Only the file of a pair of traced_families.py. In a separate process, because exporters leave
    patches."""
    import traced_families

    exporter, family = traced_families.pairs()[name]

    def work():
        with tempfile.TemporaryDirectory() as scratch:
            folder, model = Path(scratch), None
            (folder / "onnx").mkdir()
            if not exporter.how.startswith("mobius"):
                model = traced_families.make_model(family, builder.make_ids(N_IDS, 0))
                if exporter.how not in ("script", "merge"):
                    sdpa(model)
            entry = Traced(family.name, "", family, exporter.how, opset=exporter.opset)
            WAYS[exporter.how](entry, model, folder)
            strip(folder / "onnx" / "model.onnx")
            (out / name).mkdir()
            shutil.copy(folder / "onnx" / "model.onnx", out / name / "model.onnx")

    shutil.rmtree(out / name, ignore_errors=True)
    good = families.in_child(work, out / f"{name}.log")
    print(f"{name}: {'exported' if good else 'FAILED'}", flush=True)


def sdpa(model):
    """Attention as exporters use it by default; some families have only one kind. Mixtures of
    experts as batched products, which torch.export can trace (transformers 5)."""
    try:
        model.set_attn_implementation("sdpa")
    except ValueError:
        pass
    if hasattr(model.config, "num_local_experts") and hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("batched_mm")


def make_whisper(out):
    """An encoder and a decoder without a cache, from the legacy tracer."""
    import json

    import torch
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(WHISPER_SEED)
    model = WhisperForConditionalGeneration(WhisperConfig(
        vocab_size=61, num_mel_bins=8, encoder_layers=2, decoder_layers=2, d_model=32,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
        decoder_ffn_dim=48, max_source_positions=20, max_target_positions=40, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=3, suppress_tokens=None,
        begin_suppress_tokens=None, attn_implementation="eager")).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.4)

    class Encoder(torch.nn.Module):
        """Features to states."""

        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, features):
            return self.model.model.encoder(features).last_hidden_state

    class Decoder(torch.nn.Module):
        """Ids and states to logits."""

        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, mask, states):
            decoded = self.model.model.decoder(input_ids=ids, attention_mask=mask, use_cache=False,
                                            encoder_hidden_states=states)
            return self.model.proj_out(decoded.last_hidden_state)

    folder = out / "whisper"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    features, ids = torch.randn(1, 8, 40), torch.randint(0, 61, (1, 5))
    rows = {0: "batch_size", 1: "sequence_length"}
    export = {"dynamo": False, "opset_version": 17}
    torch.onnx.export(Encoder(), (features,), str(folder / "encoder_model.onnx"), **export,
                      input_names=["input_features"], output_names=["last_hidden_state"],
                      dynamic_axes={"input_features": {0: "batch_size"}})
    torch.onnx.export(Decoder(), (ids, torch.ones_like(ids), Encoder()(features)),
                      str(folder / "decoder_model.onnx"), **export, output_names=["logits"],
                      input_names=["input_ids", "attention_mask", "encoder_hidden_states"],
                      dynamic_axes={"input_ids": rows, "attention_mask": rows, "logits": rows,
                                    "encoder_hidden_states": {0: "batch_size", 1: "states"}})
    for name in ("encoder_model", "decoder_model"):
        strip(folder / f"{name}.onnx")
    (folder / "config.json").write_text(json.dumps(
        {"decoder_start_token_id": 3, "eos_token_id": 2}) + "\n", encoding="utf-8")


def main():
    """Make the named models."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--list", action="store_true", help="print the names of all pairs")
    parser.add_argument("--pairs", nargs="+", default=[], help="pairs, or shell patterns of them")
    parser.add_argument("names", nargs="*", help="models of test/traced")
    args = parser.parse_args()
    unknown = set(args.names) - {m.name for m in MODELS} - {"whisper"}
    if unknown:
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    warnings.filterwarnings("ignore")
    if args.list:
        import traced_families
        print("\n".join(traced_families.chosen(args.pairs)))
        return
    if not args.out:
        parser.error("--out is missing")
    args.out.mkdir(parents=True, exist_ok=True)
    if args.pairs:
        import traced_families
        os.environ["HF_HUB_OFFLINE"] = "1"
        for name in traced_families.chosen(args.pairs):
            make_pair(name, args.out)
    for entry in MODELS:
        if entry.name in args.names:
            make(entry, args.out)
    if "whisper" in args.names:
        make_whisper(args.out)


if __name__ == "__main__":
    sys.exit(main())
