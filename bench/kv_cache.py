#!/usr/bin/env python3
"""The effect of a KV cache: the time of each forward with and without one.

Runs `gqac generate --format json` on the bundled model with --kv contiguous and --kv off, in ABBA
order, pinned to the same cores; the first pair is a warm-up and discarded. From "per_forward_ms" it
fits a line to the forwards 2..n of each run (median of all runs at each step) and reports

  slope  how much longer each step takes than the previous one, in microseconds
  first  the prefill forward, in milliseconds

and the same ids in every run. Prints a table and a JSON record; --out FILE appends the record to a
JSON-lines file, e.g. bench/results/kv_cache.jsonl.

    ./dev bench kv_cache [--tokens N] [--pairs N] [--model DIR] [--threads N] [--out FILE]
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import generated
import records
from generated import GQAC
from records import ROOT

PROMPT = "She had been a very short time at home, when"


def generate(args, kv: str) -> dict:
    return generated.generate(args.model, args.threads, "--prompt", PROMPT, "-n", args.tokens,
                              "--temperature", 0, "--kv", kv)


def slope(times: list[float]) -> float:
    """Least squares, in units for each step."""
    mean_x, mean_y = (len(times) - 1) / 2, statistics.fmean(times)
    return (sum((i - mean_x) * (t - mean_y) for i, t in enumerate(times))
            / sum((i - mean_x) ** 2 for i in range(len(times))))


def provenance(args) -> dict:
    inspected = subprocess.run([str(GQAC), "inspect", str(args.model), "--format", "json"],
                               check=True, capture_output=True, text=True)
    dtype = json.loads(inspected.stdout)["kv_pairs"][0]["dtype"]
    return {
        **records.made_here(args.threads), "owner": "gqac",
        "version": records.first_line(str(GQAC), "version"), "dtype": dtype,
        "shapes": {"model": args.model.name, "new_tokens": args.tokens},
        "method": f"{args.pairs} ABBA pairs after one warm-up pair, pinned; median of each step",
    }


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "tiny-gqa")
    parser.add_argument("--tokens", type=int, default=201)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(words)

    runs = {"contiguous": [], "off": []}
    ids = set()
    for pair in range(args.pairs + 1):
        order = ["contiguous", "off"] if pair % 2 else ["off", "contiguous"]
        for kv in order:
            result = generate(args, kv)
            ids.add(tuple(result["ids"]))
            if pair:
                runs[kv].append(result["metrics"]["per_forward_ms"]["all"])
    if len(ids) != 1:
        print("the ids differ between runs", file=sys.stderr)
        return 1

    record = {"bench": "kv_cache", **provenance(args), "results": {}}
    print(f"| kv | first forward ms | forward 2 ms | forward {args.tokens} ms | slope us/step "
          "| decode tok/s |\n|---|---|---|---|---|---|")
    for kv, all_times in runs.items():
        times = [statistics.median(step) for step in zip(*all_times)]
        row = {"first_ms": times[0], "second_ms": times[1], "last_ms": times[-1],
               "slope_us": 1e3 * slope(times[1:]),
               "decode_tokens_per_second": 1e3 * (len(times) - 1) / sum(times[1:]),
               "forward_ms": [round(t, 4) for t in times]}
        record["results"][kv] = row
        print(f"| {kv} | {row['first_ms']:.2f} | {row['second_ms']:.2f} | {row['last_ms']:.2f} "
              f"| {row['slope_us']:.2f} | {row['decode_tokens_per_second']:.1f} |")
    on, off = record["results"]["contiguous"], record["results"]["off"]
    record["slope_ratio"] = on["slope_us"] / off["slope_us"]
    record["first_ratio"] = on["first_ms"] / off["first_ms"]
    print(f"\nslope with the cache / without: {100 * record['slope_ratio']:.2f} %\n"
          f"first forward with the cache / without: {record['first_ratio']:.3f}\n"
          f"the {args.tokens} ids are the same in all {2 * args.pairs + 2} runs")
    if args.out:
        records.append(args.out, record)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
