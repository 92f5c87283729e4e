#!/usr/bin/env python3
"""The effect of drafts: time and steps of answers with --speculate and without.

Runs `gqac generate --format json` with --speculate 0 and N in ABBA order, pinned to the same cores;
the first pair is a warm-up and discarded. Some texts repeat themselves and some do not: the bundled
model repeats itself with a repetition penalty below 1, random weights do anyway, and sampled texts
do not. For each text it reports

  plain, drafts   tokens per second of decode (without the first token), median of all runs
  ratio           median of the pairs: above 1, drafts are faster
  drafted, accepted, forwards   of the runs with drafts (medians, as they depend on times)

and it fails if the ids differ between runs. Rows with a number of clients are those of `gqac serve`
with that many clients at the same time; their tokens per second count all answers, including the
time of prompts, and `forwards` are steps. The models are the bundled one, alone and with its int4
form as the model that drafts, and a Qwen2.5-0.5B in int4 with random weights, whose steps take as
long as those of a real one. Prints a table and a JSON record; --out FILE appends the record to a
JSON-lines file, e.g. bench/results/speculate.jsonl.

    ./dev bench speculate [--drafts N] [--pairs N] [--threads N] [--bundled] [--only TEXT] [--out FILE]
"""

import argparse
import contextlib
import random
import statistics
import sys
import tempfile
from pathlib import Path

import generated
import models
import records
import servers
from generated import GQAC
from records import ROOT

TINY, INT4 = (ROOT / "models" / name for name in ("tiny-gqa", "tiny-gqa-int4"))
PROMPT = ("--prompt", "She had been a very short time at home, when it was a fine day")
REPEATS, DIFFERS = ("--repetition-penalty", "0.7"), ("--temperature", "0.8", "--seed", "3")


def rows(bundled: bool, ids: Path):
    """(name, model, flags) of each measurement."""
    yield "tiny-gqa, repeats", TINY, (*PROMPT, "-n", "400", *REPEATS)
    yield "tiny-gqa, differs", TINY, (*PROMPT, "-n", "400", *DIFFERS)
    yield "tiny-gqa, differs, int4 drafts", TINY, (*PROMPT, "-n", "400", *DIFFERS, "--draft", str(INT4))
    if bundled:
        return
    qwen = models.qwen("0.5b", "int4", "pruned")
    ids.write_text(" ".join(str(i * 7919 % 151936) for i in range(64)))
    yield "0.5b-int4, repeats", qwen, ("--ids", str(ids), "-n", "64")
    yield "0.5b-int4, differs", qwen, ("--ids", str(ids), "-n", "40", "--temperature", "1", "--seed", "3")


# Clients of `gqac serve`, and the number of requests of each; tokens of prompts and of answers.
LEVELS, PROMPTED, NEW = {1: 4, 4: 2, 16: 1}, 64, 64


def served_rows():
    """(name, clients, fields of each request)."""
    texts = {"repeats": {"temperature": 0}, "differs": {"temperature": 1, "seed": 3},
             "misleads": {"temperature": 4, "top_k": 2, "seed": 3}}  # matches that continue
                                                                     # differently
    for clients in LEVELS:
        for text, fields in texts.items():
            yield f"0.5b-int4, {text}, {clients} client{'s' * (clients > 1)}", clients, fields


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
    return summary(len(ids.pop()), rates, counts)


def plan_of(number, clients):
    """Requests for servers.Server.serve, with different ids in each pass."""
    r = random.Random(f"drafts {number}")
    return [[(False, NEW, [r.randrange(models.QWEN["0.5b"]["vocab"]) for _ in range(PROMPTED)])
             for _ in range(LEVELS[clients])] for _ in range(clients)]


def serve(server, plan) -> dict:
    """One pass: tokens per second, the ids, and the counts in /metrics."""
    before = server.metrics()
    said, wall = server.serve(plan)
    after = server.metrics()
    counts = tuple(after[f"gqac_{key}_total"] - before[f"gqac_{key}_total"]
                   for key in ("drafted_tokens", "accepted_tokens", "steps"))
    return {"rate": 1e3 * NEW * len(said) / wall, "ids": [x["ids"] for x in said], "counts": counts}


def measure_served(args, clients, fields) -> dict:
    model, length = models.qwen("0.5b", "int4", "pruned"), PROMPTED + NEW
    rates, counts = {"plain": [], "drafts": []}, []
    with contextlib.closing(servers.GqacServer(model, args.threads, clients, length)) as plain, \
            contextlib.closing(servers.GqacServer(model, args.threads, clients, length,
                                                  "--speculate", args.drafts)) as drafts:
        plain.sampling = drafts.sampling = fields
        engines = {"plain": plain, "drafts": drafts}
        for pair in range(args.pairs + 1):
            plan = plan_of(pair, clients)
            said = {name: serve(engines[name], plan)
                    for name in (("plain", "drafts") if pair % 2 else ("drafts", "plain"))}
            if said["plain"]["ids"] != said["drafts"]["ids"]:
                sys.exit("the ids differ between servers")
            if not pair:
                continue
            for name, rate in rates.items():
                rate.append(said[name]["rate"])
            counts.append(said["drafts"]["counts"])
    return summary(NEW * clients * LEVELS[clients], rates, counts)


def summary(tokens, rates, counts) -> dict:
    drafted, accepted, forwards = (statistics.median(column) for column in zip(*counts))
    return {"tokens": tokens, "forwards": forwards, "drafted": drafted, "accepted": accepted,
            **{f"{name}_tokens_per_second": statistics.median(r) for name, r in rates.items()},
            "ratio": statistics.median(d / p for p, d in zip(rates["plain"], rates["drafts"])),
            "samples": rates}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--drafts", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bundled", action="store_true", help="the bundled models only")
    parser.add_argument("--only", default="", help="only rows whose names contain this text")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(words)

    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model, flags in rows(args.bundled, Path(folder) / "ids.txt"):
            if args.only in name:
                results[name] = measure(args, model, flags)
    for name, clients, fields in () if args.bundled else served_rows():
        if args.only in name:
            results[name] = measure_served(args, clients, fields)
    print("\n".join(table(results)))
    record = {"bench": "speculate", **records.made_here(args.threads), "owner": "gqac",
              "version": records.first_line(str(GQAC), "version"), "dtype": "f32, int4",
              "shapes": {"drafts": args.drafts}, "results": results,
              "method": f"{args.pairs} ABBA pairs after one warm-up pair, pinned; medians"}
    if args.out:
        records.append(args.out, record)
    return 0


def table(results) -> list[str]:
    """The lines of a table with the results of a record."""
    lines = ["| text | tokens | forward passes | drafted | accepted | tokens/s without | with | ratio |",
             "|---|---|---|---|---|---|---|---|"]
    for name, r in results.items():
        lines.append(f"| {name} | {r['tokens']} | {r['forwards']:.0f} | {r['drafted']:.0f} | "
                     f"{r['accepted']:.0f} | {r['plain_tokens_per_second']:.4g} | "
                     f"{r['drafts_tokens_per_second']:.4g} | {r['ratio']:.2f}× |")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
