#!/usr/bin/env python3
"""What drafts change: time and steps of answers with --speculate and without.

Runs `gqac generate --format json` with --speculate 0 and N in ABBA order, pinned to the same cores;
the first pair is a warm-up and thrown away. Some texts repeat themselves and some do not: the bundled
model repeats itself with a repetition penalty below 1, random weights do anyway, and sampled texts do
not. For each text it reports

  plain, drafts   tokens per second of decode (the first token left out), median of all runs
  ratio           median of the pairs: above 1, drafts are faster
  drafted, accepted, forwards   of the runs with drafts (medians, as they depend on times)

and it fails if the ids differ between runs. The models are the bundled one, alone and with its int4
form as the model that drafts, and a Qwen2.5-0.5B in int4 with random weights, whose steps take as
long as those of a real one. Prints a table and a JSON record; --out FILE appends the record to a JSON-lines file,
e.g. bench/results/speculate.jsonl.

    ./dev bench speculate [--drafts N] [--pairs N] [--threads N] [--bundled] [--out FILE]
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import generated
import models
import records
from generated import GQAC
from records import ROOT

TINY, INT4 = (ROOT / "models" / name for name in ("tiny-gqa", "tiny-gqa-int4"))
PROMPT = ("--prompt", "She had been a very short time at home, when it was a fine day")
REPEATS, DIFFERS = ("--repetition-penalty", "0.7"), ("--temperature", "0.8", "--seed", "3")


def rows(bundled: bool, ids: Path):
    """(name, model, flags) of what is measured."""
    yield "tiny-gqa, repeats", TINY, (*PROMPT, "-n", "400", *REPEATS)
    yield "tiny-gqa, differs", TINY, (*PROMPT, "-n", "400", *DIFFERS)
    yield "tiny-gqa, differs, int4 drafts", TINY, (*PROMPT, "-n", "400", *DIFFERS, "--draft", str(INT4))
    if bundled:
        return
    qwen = models.qwen("0.5b", "int4", "pruned")
    ids.write_text(" ".join(str(i * 7919 % 151936) for i in range(64)))
    yield "0.5b-int4, repeats", qwen, ("--ids", str(ids), "-n", "64")
    yield "0.5b-int4, differs", qwen, ("--ids", str(ids), "-n", "40", "--temperature", "1", "--seed", "3")


def generate(args, model, flags, drafts) -> dict:
    if not drafts and "--draft" in flags:
        flags = flags[:flags.index("--draft")]
    return generated.generate(model, args.threads, *flags, "--speculate", drafts, "-q")


def measure(args, model, flags) -> dict:
    rates = {"plain": [], "drafts": []}
    counts, ids = [], set()
    for pair in range(args.pairs + 1):
        for name in ("plain", "drafts") if pair % 2 else ("drafts", "plain"):
            said = generate(args, model, flags, args.drafts if name == "drafts" else 0)
            m = said["metrics"]
            ids.add(tuple(said["ids"]))
            if not pair:
                continue
            rates[name].append(m["decode_tokens_per_second"])
            if name == "drafts":
                counts.append((m["drafted_tokens"], m["accepted_tokens"], m["per_forward_ms"]["n"]))
    if len(ids) != 1:
        sys.exit("the ids differ between runs")
    drafted, accepted, forwards = (statistics.median(column) for column in zip(*counts))
    return {"tokens": len(ids.pop()), "forwards": forwards, "drafted": drafted, "accepted": accepted,
            **{f"{name}_tokens_per_second": statistics.median(r) for name, r in rates.items()},
            "ratio": statistics.median(d / p for p, d in zip(rates["plain"], rates["drafts"])),
            "samples": rates}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--drafts", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bundled", action="store_true", help="the bundled models only")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(words)

    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model, flags in rows(args.bundled, Path(folder) / "ids.txt"):
            results[name] = measure(args, model, flags)
    print("\n".join(table(results)))
    record = {"bench": "speculate", **records.made_here(args.threads), "owner": "gqac",
              "version": records.first_line(str(GQAC), "version"), "dtype": "f32, int4",
              "shapes": {"drafts": args.drafts}, "results": results,
              "method": f"{args.pairs} ABBA pairs after one warm-up pair, pinned; medians"}
    if args.out:
        records.append(args.out, record)
    return 0


def table(results) -> list[str]:
    """The lines of a table of the results of a record."""
    lines = ["| text | tokens | forward passes | drafted | accepted | tokens/s without | with | ratio |",
             "|---|---|---|---|---|---|---|---|"]
    for name, r in results.items():
        lines.append(f"| {name} | {r['tokens']} | {r['forwards']:.0f} | {r['drafted']:.0f} | "
                     f"{r['accepted']:.0f} | {r['plain_tokens_per_second']:.4g} | "
                     f"{r['drafts_tokens_per_second']:.4g} | {r['ratio']:.2f}× |")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
