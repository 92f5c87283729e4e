#!/usr/bin/env python3
"""The onnxruntime-genai model builder, offline, with changes that it needs for some families.

    make/bin/python tools/model_builder.py ARGUMENTS OF THE BUILDER

runs its command line. export_models.py and families.py call it for the models of the tests.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
KEEP = (
    "model.onnx", "model.onnx.data", "genai_config.json", "tokenizer.json", "tokenizer_config.json",
)


# ---- experts in MXFP4, which is how gpt-oss is published -----------------------------------------


def to_mxfp4(weight):
    """The nearest MXFP4 of weight [E,N,K]: blocks u8 [E,N,K/32,16], scales u8, and the values that
    they represent."""
    import torch

    magnitudes = torch.tensor((0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0))
    x = weight.reshape(*weight.shape[:2], -1, 32)
    exponent = torch.floor(torch.log2(x.abs().amax(-1) / 6.0)) + 1
    unit = x / torch.pow(2.0, exponent)[..., None]
    code = (unit.abs()[..., None] - magnitudes).abs().argmin(-1)
    value = magnitudes[code] * unit.sign() * torch.pow(2.0, exponent)[..., None]
    code = (code + 8 * (unit < 0)).to(torch.uint8)
    blocks = code[..., 0::2] | code[..., 1::2] << 4
    return blocks, (exponent + 127).to(torch.uint8), value.reshape(weight.shape)


def pack_experts(model):
    """Rounds the experts to MXFP4 in place; returns the tensors in the published form."""
    import torch

    packed = {}
    if type(model).__name__ != "GptOssForCausalLM":
        return packed
    with torch.no_grad():
        for i, layer in enumerate(model.model.layers):
            for name in ("gate_up_proj", "down_proj"):
                p = getattr(layer.mlp.experts, name)
                blocks, scales, value = to_mxfp4(p.transpose(1, 2))
                p.copy_(value.transpose(1, 2))
                prefix = f"model.layers.{i}.mlp.experts.{name}"
                packed |= {f"{prefix}_blocks": blocks, f"{prefix}_scales": scales}
    return packed


def add_tensors(folder, tensors):
    """Adds tensors to a saved model, which ignores them."""
    from safetensors.torch import load_file, save_file

    if not tensors:
        return
    path = folder / "model.safetensors"
    save_file({**load_file(path), **{k: v.contiguous() for k, v in tensors.items()}}, path,
              metadata={"format": "pt"})


def as_published(model):
    """Qwen 3.5 is published with an image encoder, and the builder expects that form."""
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    if type(model).__name__ != "Qwen3_5ForCausalLM":
        return model
    text = model.config
    names = ("tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id")
    whole = Qwen3_5ForConditionalGeneration(Qwen3_5Config(
        text_config=text.to_dict(), **{n: getattr(text, n) for n in names}, vision_config={
            "depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2,
            "out_hidden_size": text.hidden_size, "num_position_embeddings": 16}))
    whole.model.language_model.load_state_dict(model.model.state_dict())
    whole.lm_head.load_state_dict(model.lm_head.state_dict())
    return whole.float().eval()


# ---- the builder ---------------------------------------------------------------------------------


def mend():
    """Adds what builder 0.18.0 lacks for two families.

    Gemma 3 in transformers 5 has a rotary dict for each kind of layer, but the builder reads one;
    and because of a layer of SmolLM3 without rotary it requires position ids.
    """
    from onnxruntime_genai.models import builder
    from transformers import AutoConfig

    loaded = AutoConfig.from_pretrained

    def from_pretrained(*args, **more):
        config = loaded(*args, **more)
        rope = getattr(config, "rope_parameters", None)  # AutoModel requires a tuple
        if rope and config.model_type == "gemma3_text" and "full_attention" in rope:
            config.rope_parameters = dict(rope["full_attention"])
            config.rope_theta = rope["full_attention"]["rope_theta"]
            config.rope_local_base_freq = rope["sliding_attention"]["rope_theta"]
        return config

    def rope(self, layer_id, **more):
        if not self.no_rope_layers[layer_id]:
            return "", ""
        return with_rope(self, layer_id, **more)

    AutoConfig.from_pretrained = from_pretrained
    with_rope = builder.SmolLM3Model.make_attention_qk_rope
    builder.SmolLM3Model.make_attention_qk_rope = rope


def arguments(entry, hf, raw, cache):
    """The arguments of the builder's command line for an entry of a table of models."""
    options = [f"{k}={v}" for k, v in {"hf_token": "false", **entry.options}.items()]
    return ["-i", str(hf), "-o", str(raw), "-p", entry.precision, "-e", entry.provider,
            "-c", str(cache / "hub"), "--extra_options", *options]


def run(words):
    """The builder's command line, in this process."""
    from onnxruntime_genai.models import builder

    mend()
    sys.argv = ["builder", *words]
    a = builder.get_args()
    where = (a.model_name, a.input, a.output, a.precision, a.execution_provider, a.cache_dir)
    builder.create_model(*where, **builder.parse_extra_options(*where, a.extra_options))


def build(entry, hf, out, cache):
    """Run the builder in a separate process and copy the files that the tests need to out."""
    raw = cache / "built"
    command = [sys.executable, str(Path(__file__)), *arguments(entry, hf, raw, cache)]
    done = subprocess.run(command, env={**os.environ, **OFFLINE}, capture_output=True, text=True,
                          check=False)
    if done.returncode:
        sys.exit(f"{entry.name}: {' '.join(command)}\n{done.stdout}{done.stderr}")
    keep(raw, out)


def keep(raw, out):
    """Copy the files of an export that the tests need."""
    out.mkdir(parents=True)
    for name in KEEP:
        if (raw / name).exists():
            shutil.copy(raw / name, out / name)


if __name__ == "__main__":
    run(sys.argv[1:])
