#!/usr/bin/env python3
"""Train the bundled model, models/tiny-gqa, and export it with the onnxruntime-genai model builder.

A byte-level BPE Llama with grouped-query attention (8 query heads, 2 KV heads) learns the six
novels of Jane Austen (public domain), as Debian's package r-cran-janeaustenr carries them.

    apt-get install --no-install-recommends r-cran-janeaustenr
    make/bin/python tools/train_tiny.py --work DIR           # about an hour on two cores
    make/bin/python tools/train_tiny.py --work DIR --export  # models/tiny-gqa and its int4 twin

The environment `make` is described in tools/README.md. Recipe:
  text       chapters, each paragraph on one line, an empty line between; every 20th chapter is held
             out (from the 10th on, counted over all novels)
  tokenizer  byte-level BPE, 512 ids, trained on the training chapters; <s> before each chapter and
             </s> after it
  batches    windows at random offsets of the token stream, drawn from (SEED, step)
  rate       linear warm-up, constant, then linear to zero over the last sixth, where the windows
             are twice as long and half as many
The loss log goes to DIR/training.csv: the first two held-out chapters, all of them in the last
row. A run that was stopped continues from DIR/state.pt.
--baseline prints the held-out bits per byte of interpolated Kneser-Ney 5-grams over bytes and over
the same tokens, --score those of the exported models by `gqac score` (build/release/gqac).
"""

import argparse
import csv
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SEED = 20261121
NOVELS = ("sensesensibility", "prideprejudice", "mansfieldpark", "emma", "northangerabbey",
          "persuasion")
HELD_OUT_EVERY, HELD_OUT_FIRST = 20, 10
VOCABULARY, BOS, EOS = 512, "<s>", "</s>"
CONFIG = dict(
    hidden_size=128, intermediate_size=320, num_hidden_layers=4, num_attention_heads=8,
    num_key_value_heads=2, head_dim=16, max_position_embeddings=1280, rms_norm_eps=1e-5,
    tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
)
STEPS, WARMUP, DECAY = 2700, 200, 1 / 6
WINDOW, BATCH, RATE = 512, 8, 3e-3
PENALTY = 1.2  # the default of generation: without a penalty so small a model repeats itself
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ message['content'] }}{% else %}\"{{ message['content'] }}\"{% endif %}"
    "{{ '\\n\\n' }}{% endfor %}{% if add_generation_prompt %}\"{% endif %}"
)


# ---- text


def novels() -> list[str]:
    """The chapters of all novels, in order."""
    chapters = []
    for name in NOVELS:
        lines = subprocess.run(
            ["Rscript", "-e", f"writeLines(janeaustenr::{name}, useBytes=TRUE)"],
            check=True, capture_output=True, text=True).stdout.split("\n")
        paragraphs, chapter = [""], None
        for line in [*lines, "CHAPTER end"]:
            line = " ".join(line.replace("_", "").split())
            if line.upper().startswith("CHAPTER ") and len(line.split()) == 2:
                if chapter is not None:
                    chapters.append("\n\n".join(p for p in paragraphs if p) + "\n")
                chapter, paragraphs = line, [""]
            elif line.upper().startswith("VOLUME ") or line in ("FINIS", "THE END"):
                continue
            elif not line:
                paragraphs.append("")
            else:
                paragraphs[-1] += (" " if paragraphs[-1] else "") + line
    return chapters


def split_text() -> tuple[list[str], list[str]]:
    chapters = novels()
    held = set(range(HELD_OUT_FIRST - 1, len(chapters), HELD_OUT_EVERY))
    return ([c for i, c in enumerate(chapters) if i not in held],
            [c for i, c in enumerate(chapters) if i in held])


def tokenizer_of(work: Path, text: list[str]):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    path = work / "tokenizer.json"
    if not path.exists():
        tok = Tokenizer(models.BPE())
        tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tok.decoder = decoders.ByteLevel()
        tok.train_from_iterator(text, trainers.BpeTrainer(
            vocab_size=VOCABULARY, special_tokens=[BOS, EOS], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        tok.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B",
            special_tokens=[(BOS, tok.token_to_id(BOS))])
        tok.save(str(path))
    return Tokenizer.from_file(str(path))


def stream(tok, text: list[str]) -> list[int]:
    ids = []
    for chapter in text:
        ids += tok.encode(chapter).ids + [tok.token_to_id(EOS)]
    return ids


# ---- training


def rate_at(step: int, steps: int) -> float:
    tail = int(steps * (1 - DECAY))
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 1.0 if step < tail else (steps - step) / (steps - tail)


def pieces(n: int):
    """(begin, at, end): tokens at .. end - 1 of n are measured with those from begin on as context,
    if possible at least a training window of them."""
    at = 1
    while at < n:
        begin = max(0, at - WINDOW)
        end = min(n, begin + 2 * WINDOW)
        yield begin, at, end
        at = end


def held_out_bits(model, tok, chapters: list[str]) -> float:
    """Bits per byte of the chapters."""
    import torch

    bits, bytes_ = 0.0, 0
    model.eval()
    with torch.no_grad():
        for chapter in chapters:
            ids = torch.tensor(tok.encode(chapter).ids)
            bytes_ += len(chapter.encode())
            for begin, at, end in pieces(len(ids)):
                logits = model(ids[None, begin:end]).logits[0].float()
                rows = torch.arange(at - 1 - begin, end - 1 - begin)
                bits += torch.nn.functional.cross_entropy(
                    logits[rows], ids[at:end], reduction="sum").item() / math.log(2)
    model.train()
    return bits / bytes_


def model_of(tok):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(SEED)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=tok.get_vocab_size(), bos_token_id=tok.token_to_id(BOS),
        eos_token_id=tok.token_to_id(EOS), pad_token_id=tok.token_to_id(EOS), **CONFIG))


def train(work: Path, steps: int) -> None:
    import torch

    training, held = split_text()
    tok = tokenizer_of(work, training)
    ids = torch.tensor(stream(tok, training))
    model = model_of(tok)
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
         {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}],
        lr=RATE, betas=(0.9, 0.98), eps=1e-9)
    step, log, state = 0, [], work / "state.pt"
    if state.exists():
        saved = torch.load(state)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step, log = saved["step"], saved["log"]
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(ids)} tokens, "
          f"{sum(len(c.encode()) for c in training)} bytes, held out "
          f"{sum(len(c.encode()) for c in held)}", flush=True)
    began, average = time.time(), None
    for step in range(step, steps):
        tail = step >= int(steps * (1 - DECAY))
        window, batch = (2 * WINDOW, BATCH // 2) if tail else (WINDOW, BATCH)
        generator = torch.Generator().manual_seed(SEED * 1000003 + step)
        starts = torch.randint(0, len(ids) - window - 1, (batch,), generator=generator)
        x = torch.stack([ids[s:s + window] for s in starts])
        y = torch.stack([ids[s + 1:s + window + 1] for s in starts])
        for group in optimizer.param_groups:
            group["lr"] = RATE * rate_at(step, steps)
        loss = torch.nn.functional.cross_entropy(model(x).logits.flatten(0, 1), y.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average = loss.item() if average is None else 0.98 * average + 0.02 * loss.item()
        if (step + 1) % 250 == 0 or step + 1 == steps or step + 1 == 50:
            bits = held_out_bits(model, tok, held if step + 1 == steps else held[:2])
            log.append((step + 1, round(average, 4), round(bits, 4)))
            print(f"step {step + 1}: loss {average:.4f}, held-out bits per byte {bits:.4f}, "
                  f"{time.time() - began:.0f} s", flush=True)
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                        "step": step + 1, "log": log}, state)
            with open(work / "training.csv", "w", newline="") as f:
                csv.writer(f).writerows([("step", "loss", "held_out_bits_per_byte"), *log])
    model.save_pretrained(work / "hf")
    (work / "result.json").write_text(json.dumps({
        "steps": steps, "held_out_bytes": sum(len(c.encode()) for c in held),
        "held_out_bits_per_byte": round(held_out_bits(model, tok, held), 4)}))


# ---- the 5-gram baseline


class KneserNey:
    """Interpolated Kneser-Ney of order n, with one discount for each order."""

    def __init__(self, sequences, n: int, vocabulary: int):
        self.n, self.vocabulary = n, vocabulary
        counts = [Counter() for _ in range(n + 1)]  # [k]: k-grams; in lower orders: continuations
        for s in sequences:
            for i in range(len(s)):
                counts[min(i + 1, n)][tuple(s[max(0, i + 1 - n):i + 1])] += 1
        for k in range(n, 1, -1):
            for gram in counts[k]:
                counts[k - 1][gram[1:]] += 1
        self.counts = counts
        self.total = [defaultdict(int) for _ in range(n + 1)]
        self.kinds = [defaultdict(int) for _ in range(n + 1)]
        self.discount = [0.0] * (n + 1)
        for k in range(1, n + 1):
            for gram, c in counts[k].items():
                self.total[k][gram[:-1]] += c
                self.kinds[k][gram[:-1]] += 1
            ones = sum(c == 1 for c in counts[k].values())
            twos = sum(c == 2 for c in counts[k].values())
            self.discount[k] = ones / (ones + 2 * twos) if ones and twos else 0.5

    def probability(self, context: tuple, symbol: int) -> float:
        p = 1 / self.vocabulary
        for k in range(1, min(len(context) + 1, self.n) + 1):
            c = context[len(context) - k + 1:]
            total = self.total[k].get(c, 0)
            if total:
                d = self.discount[k]
                p = (max(self.counts[k].get((*c, symbol), 0) - d, 0) + d * self.kinds[k][c] * p) \
                    / total
        return p

    def bits(self, sequence) -> float:
        return -sum(math.log2(self.probability(tuple(sequence[max(0, i + 1 - self.n):i]), s))
                    for i, s in enumerate(sequence))


def baseline(work: Path) -> dict:
    training, held = split_text()
    tok = tokenizer_of(work, training)
    size = sum(len(c.encode()) for c in held)
    result = {}
    for name, encode, vocabulary in (
            ("bytes", lambda c: list(c.encode()), 256),
            ("tokens", lambda c: tok.encode(c, add_special_tokens=False).ids,
             tok.get_vocab_size())):
        model = KneserNey([encode(c) for c in training], 5, vocabulary)
        result[name] = round(sum(model.bits(encode(c)) for c in held) / size, 4)
    (work / "baseline.json").write_text(json.dumps(result))
    return result


# ---- the exported models


def score(work: Path) -> dict:
    """Held-out bits per byte, computed by gqac."""
    training, held = split_text()
    tok = tokenizer_of(work, training)
    file, result = work / "ids.txt", {}

    def nll(model: str, ids: list[int]) -> float:
        file.write_text(" ".join(map(str, ids)))
        run = subprocess.run(
            [str(ROOT / "build" / "release" / "gqac"), "score", str(ROOT / "models" / model),
             "--ids", str(file), "--format", "json"], check=True, capture_output=True, text=True)
        return json.loads(run.stdout)["nll"]

    for model in ("tiny-gqa", "tiny-gqa-int4"):
        nats = 0.0
        for chapter in held:
            ids = tok.encode(chapter).ids
            for begin, at, end in pieces(len(ids)):
                nats += nll(model, ids[begin:end]) - nll(model, ids[begin:at])
        size = sum(len(c.encode()) for c in held)
        result[model] = round(nats / math.log(2) / size, 4)
    return result


def export(work: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    hf = work / "hf"
    fast = PreTrainedTokenizerFast(tokenizer_file=str(work / "tokenizer.json"), bos_token=BOS,
                                   eos_token=EOS, pad_token=EOS,
                                   model_max_length=CONFIG["max_position_embeddings"])
    fast.chat_template = TEMPLATE
    fast.save_pretrained(hf)
    shutil.copy(work / "tokenizer.json", hf / "tokenizer.json")
    for name, precision, options in (
            ("tiny-gqa", "fp32", []),
            ("tiny-gqa-int4", "int4", ["int4_block_size=32", "int4_accuracy_level=1"])):
        out, made = ROOT / "models" / name, work / name
        shutil.rmtree(made, ignore_errors=True)
        subprocess.run(
            [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(hf), "-o",
             str(made), "-p", precision, "-e", "cpu", "-c", str(work / "cache"),
             "--extra_options", "hf_token=false", *options],
            check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"}, stdout=subprocess.DEVNULL)
        out.mkdir(parents=True, exist_ok=True)
        for old in out.iterdir():
            old.unlink()
        for file in ("model.onnx", "model.onnx.data", "genai_config.json", "tokenizer.json",
                     "tokenizer_config.json", "chat_template.jinja"):
            if (made / file).exists():
                shutil.copy(made / file, out / file)
        config = json.loads((out / "genai_config.json").read_text())
        config["search"]["repetition_penalty"] = PENALTY  # the builder has no option for it
        (out / "genai_config.json").write_text(json.dumps(config, indent=4) + "\n")
    shutil.copy(work / "training.csv", ROOT / "models" / "tiny-gqa" / "training.csv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="what is kept between runs")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--baseline", action="store_true")
    parser.add_argument("--export", action="store_true")
    parser.add_argument("--score", action="store_true")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    if args.baseline:
        print(baseline(args.work))
    elif args.export:
        export(args.work)
    elif args.score:
        print(score(args.work))
    else:
        train(args.work, args.steps)


if __name__ == "__main__":
    main()
