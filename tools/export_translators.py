#!/usr/bin/env python3
"""Make tiny pairs of an encoder and a decoder as Optimum exports them, for check_translators.py.

    PYTHON tools/export_translators.py --out DIR [NAME ...]     (the environment of how = optimum in
                                                                 export_traced.py)
A folder has encoder_model.onnx, decoder_model.onnx, decoder_with_past_model.onnx, and the last two
in one as decoder_model_merged.onnx. Parameters are random.
"""

import argparse
import os
import shutil
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

from export_traced import strip

SEED, STD, VOCAB = 5, 0.4, 61
TEXT, SPEECH = "text2text-generation-with-past", "automatic-speech-recognition-with-past"
SIZES = dict(vocab_size=VOCAB, d_model=32, encoder_layers=2, decoder_layers=2,
             encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
             decoder_ffn_dim=48, pad_token_id=0, bos_token_id=1, eos_token_id=2,
             forced_eos_token_id=None, decoder_start_token_id=3)
BANDS, FRAMES = 8, 3000  # Optimum traces speech with these frames


@dataclass
class Family:
    """One row: the prefix of its classes in transformers, its configuration, its task."""

    name: str
    prefix: str
    config: dict
    task: str = TEXT
    suffix: str = "ForConditionalGeneration"


FAMILIES = [
    Family("t5", "T5", dict(
        vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
        relative_attention_num_buckets=8, relative_attention_max_distance=20,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, pad_token_id=0, eos_token_id=1,
        decoder_start_token_id=0)),
    Family("bart", "Bart", {**SIZES, "max_position_embeddings": 64}),
    Family("marian", "Marian", {**SIZES, "max_position_embeddings": 64}, suffix="MTModel"),
    Family("whisper", "Whisper", {
        **SIZES, "num_mel_bins": BANDS, "max_source_positions": FRAMES // 2,
        "max_target_positions": 64, "suppress_tokens": None, "begin_suppress_tokens": None},
        SPEECH),
]


def make_model(family):
    """The model, with random parameters."""
    import torch
    import transformers

    torch.manual_seed(SEED)
    config = getattr(transformers, family.prefix + "Config")(**family.config)
    model = getattr(transformers, family.prefix + family.suffix)(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=1.0 if "relative" in name else STD)
    return model


def make(family, out):
    """One folder."""
    from optimum.exporters.onnx import main_export
    from transformers import WhisperFeatureExtractor

    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        saved, onnx = Path(scratch) / "hf", Path(scratch) / "onnx"
        make_model(family).save_pretrained(saved)
        if family.task == SPEECH:
            WhisperFeatureExtractor(feature_size=BANDS).save_pretrained(saved)
        main_export(str(saved), output=str(onnx), task=family.task, do_validation=False,
                    no_post_process=False)
        for path in sorted(onnx.glob("*.onnx")):
            strip(path)
            shutil.copy(path, out)
        for name in ("config.json", "generation_config.json"):
            shutil.copy(onnx / name, out)


def main():
    """Make the named ones, or all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*", choices=[[], *(f.name for f in FAMILIES)])
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    for family in FAMILIES:
        if not args.names or family.name in args.names:
            make(family, args.out / family.name)
            print(family.name)


if __name__ == "__main__":
    sys.exit(main())
