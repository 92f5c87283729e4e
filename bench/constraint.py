#!/usr/bin/env python3
"""The cost of a schema: the time of decode steps with --json-schema and without.

Runs `gqac generate --format json` with a schema and without one in ABBA order, pinned to the same
cores; the first pair is a warm-up and discarded. The model is a Qwen2.5-0.5B in int4 with random
weights and a vocabulary of 32,000 tokens, with a byte-level BPE that is trained on the sources and
pages of this repository. Answers are sampled, and the schemas require more tokens than a run has,
so that no answer ends early. For each schema it reports

  without, with   milliseconds for each token of decode except the first, median of all runs
  cost            median of the pairs: time with the schema / time without, minus 1

Prints a table; --out FILE appends a record to a JSON-lines file, e.g. bench/results/constraint.jsonl.
Exit 1: an answer ended early.

    ./dev bench constraint [--pairs N] [--threads N] [--tokens N] [--only TEXT] [--out FILE]
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

import generated
import models
import records
from generated import GQAC
from records import ROOT

VOCAB = 32000
STRING = {"type": "string", "maxLength": 12}
PERSON = {"type": "object", "additionalProperties": False, "required": ["name", "age", "mood", "tags"],
          "properties": {"name": STRING, "age": {"type": "integer"}, "mood": {"enum": ["glad", "vexed"]},
                         "tags": {"type": "array", "items": STRING, "maxItems": 3}}}
SCHEMAS = {
    "objects": {"type": "array", "items": PERSON, "minItems": 1000},
    "numbers": {"type": "array", "items": {"type": "number"}, "minItems": 1000},
    "dates": {"type": "array", "items": {"type": "string", "format": "date-time"}, "minItems": 1000},
    "a long string": {"type": "string", "minLength": 100000},
}
TEXTS = ("*.c", "*.h", "*.cl", "*.md", "*.py", "*.json", "*.jsonl", "*.txt", "*.def")
SAMPLED = ("--prompt", "A list:", "--temperature", "1", "--seed", "3")


def model() -> Path:
    """The model, with a tokenizer in its folder."""
    path = models.qwen("0.5b-32k", "int4", "pruned")
    if not (path.parent / "tokenizer.json").exists():
        train(path.parent / "tokenizer.json")
    return path


def train(out: Path):
    from tokenizers import Tokenizer, decoders, models as kinds, pre_tokenizers, trainers

    files = [str(p) for folder in ("src", "include", "docs", "test", "python", "bench", "tools", "models")
             for kind in TEXTS for p in sorted((ROOT / folder).rglob(kind))]
    bpe = Tokenizer(kinds.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train(files, trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=["<|end|>"],
                                         initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if bpe.get_vocab_size() != VOCAB:
        sys.exit(f"the tokenizer has {bpe.get_vocab_size()} tokens, not {VOCAB}")
    bpe.save(str(out))


def measure(args, path, schema) -> dict:
    flags = {"without": (), "with": ("--json-schema", json.dumps(schema))}
    times = {name: [] for name in flags}
    for pair in range(args.pairs + 1):
        for name in flags if pair % 2 else reversed(flags):
            said = generated.generate(path, args.threads, *SAMPLED, "-n", args.tokens, *flags[name],
                                      "-q")
            if len(said["ids"]) != args.tokens:
                sys.exit(f"an answer {name} a schema ended after {len(said['ids'])} tokens")
            if pair:
                times[name].append(1e3 / said["metrics"]["decode_tokens_per_second"])
    return {**{f"{name}_ms": statistics.median(t) for name, t in times.items()},
            "cost": statistics.median(w / o for w, o in zip(times["with"], times["without"])) - 1,
            "samples": times}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--only", default="", help="only schemas whose names contain this text")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(words)

    path = model()
    results = {name: measure(args, path, schema) for name, schema in SCHEMAS.items()
               if args.only in name}
    print("\n".join(table(results)))
    record = {"bench": "constraint", **records.made_here(args.threads), "owner": "gqac",
              "version": records.first_line(str(GQAC), "version"), "dtype": "int4",
              "shapes": {"vocab": VOCAB, "tokens": args.tokens, "schemas": SCHEMAS},
              "results": results,
              "method": f"{args.pairs} ABBA pairs after one warm-up pair, pinned; medians"}
    if args.out:
        records.append(args.out, record)
    return 0


def table(results) -> list[str]:
    """The lines of a table with the results of a record."""
    lines = ["| schema | ms a token without | with | cost |", "|---|---|---|---|"]
    for name, r in results.items():
        lines.append(f"| {name} | {r['without_ms']:.2f} | {r['with_ms']:.2f} | {100 * r['cost']:+.1f} % |")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
