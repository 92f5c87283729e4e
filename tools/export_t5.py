#!/usr/bin/env python3
"""Make test/traced/t5: an encoder, a decoder, and that decoder with a past, of torch's old tracer.

The files and names are those of Optimum's unmerged exports. T5's attention has no scale and a bias
that each decoder computes from the lengths of its call.

    PYTHON tools/export_t5.py --out test/traced      (the environment of export_models.py)
"""

import argparse
import json
import shutil
import sys
import warnings
from pathlib import Path

from export_traced import strip

SEED, LAYERS, HEADS, SIZE, VOCAB, WIDTH = 5, 2, 4, 8, 61, 32
PARTS = [f"{i}.{side}.{part}" for i in range(LAYERS) for side in ("decoder", "encoder")
         for part in ("key", "value")]
OWN = [name for name in PARTS if "decoder" in name]


def make_model():
    """T5 v1.1 (gated) with random parameters."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(SEED)
    model = T5ForConditionalGeneration(T5Config(
        vocab_size=VOCAB, d_model=WIDTH, d_kv=SIZE, d_ff=48, num_layers=LAYERS, num_heads=HEADS,
        relative_attention_num_buckets=8, relative_attention_max_distance=20,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, pad_token_id=0, eos_token_id=1,
        decoder_start_token_id=0, attn_implementation="eager")).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=1.0 if "relative" in name else 0.4)
    return model


def make_parts(model):
    """The three modules to be traced."""
    import torch
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache

    def caches(past):
        own, cross = DynamicCache(), DynamicCache()
        both = EncoderDecoderCache(own, cross)
        for i in range(len(past) // 4):
            own.update(past[4 * i], past[4 * i + 1], i)
            cross.update(past[4 * i + 2], past[4 * i + 3], i)
            both.is_updated[i] = True
        return both

    class Encoder(torch.nn.Module):
        """Ids to states."""

        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, mask):
            return self.model.encoder(input_ids=ids, attention_mask=mask).last_hidden_state

    class Decoder(torch.nn.Module):
        """From ids, states and possibly a past, to logits and presents."""

        def __init__(self, given):
            super().__init__()
            self.model, self.given = model, given

        def forward(self, mask, ids, states, *past):
            decoded = self.model.decoder(
                input_ids=ids, encoder_attention_mask=mask, encoder_hidden_states=states,
                use_cache=True, past_key_values=caches(past))
            kept = decoded.past_key_values
            own, cross = kept.self_attention_cache.layers, kept.cross_attention_cache.layers
            made = {f"{i}.{side}.{part}": getattr(layers[i], f"{part}s")
                    for side, layers in (("decoder", own), ("encoder", cross))
                    for i in range(LAYERS) for part in ("key", "value")}
            return (self.model.lm_head(decoded.last_hidden_state),
                    *(made[name] for name in (OWN if self.given else PARTS)))

    return Encoder(), Decoder(False), Decoder(True)


def export(module, args, path, inputs, outputs):
    """Traces with variable batch and lengths; a decoder with a past takes one token."""
    import torch

    states, rows = "encoder_sequence_length", "decoder_sequence_length"
    axes = {}
    for name in (*inputs, *outputs):
        axes[name] = {0: "batch_size"}
        if "past_key_values" in name or "present" in name:
            past = "past_decoder_sequence_length" if "past_key" in name else rows
            axes[name][2] = states if ".encoder." in name else past
        elif name.startswith("encoder_") or "encoder_model" in path.name:
            axes[name][1] = states
        elif "with_past" not in path.name:
            axes[name][1] = rows
    torch.onnx.export(module, args, str(path), dynamo=False, opset_version=17, input_names=inputs,
                      output_names=outputs, dynamic_axes=axes)
    strip(path)


def main():
    """Make the folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, required=True)
    folder = parser.parse_args().out / "t5"
    warnings.filterwarnings("ignore")
    import torch

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    encoder, decoder, later = make_parts(make_model())
    source = torch.randint(2, VOCAB, (1, 7))
    mask, states = torch.ones_like(source), encoder(source, torch.ones_like(source))
    some, feeds = torch.tensor([[0, 5]]), ["encoder_attention_mask", "input_ids",
                                           "encoder_hidden_states"]
    past = decoder(mask, some, states)[1:]
    export(encoder, (source, mask), folder / "encoder_model.onnx",
           ["input_ids", "attention_mask"], ["last_hidden_state"])
    export(decoder, (mask, some, states), folder / "decoder_model.onnx", feeds,
           ["logits", *(f"present.{name}" for name in PARTS)])
    export(later, (mask, some[:, :1], states, *past), folder / "decoder_with_past_model.onnx",
           [*feeds, *(f"past_key_values.{name}" for name in PARTS)],
           ["logits", *(f"present.{name}" for name in OWN)])
    (folder / "config.json").write_text(json.dumps(
        {"decoder_start_token_id": 0, "eos_token_id": 1}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
