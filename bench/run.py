#!/usr/bin/env python3
"""gqac compared with every installed peer, in one run, on the same cores.

For each row and peer: pairs in ABBA order (gqac, peer; peer, gqac; ...), each engine warmed by at
least three calls, pinned, stopped while the other runs. A pair's ratio is the peer's time divided
by gqac's, each the median of its calls; the row's ratio is the median of the pairs. Before and
after a row the machine is calibrated (fma and memory read); if it changed by more than 5 %, the row
is measured again, and marked if it changed again. Outputs are compared with ONNX Runtime's, and
with gqac's own if that is the peer.

    ./dev bench [--accept] [--only ROW,...] [--pairs N] [--threads 1|2] [--against PEER,...]
                [--out FILE] [--once] [--list]
    ./dev bench --peers             fetches the peers that the default run does not (llama.cpp)
    ./dev bench --before FILE [...] compares only with the worker_gqac of another build
    ./dev bench overhead [...]      the cost of a step outside its kernels: see overhead.py
    ./dev bench kv_cache [...]      the effect of a KV cache: see kv_cache.py
    ./dev bench load [...]          the times that clients of a server wait: see load.py
    ./dev bench speculate [...]     the effect of drafts: see speculate.py
    ./dev bench constraint [...]    the cost of a JSON schema: see constraint.py
    ./dev bench gpu [...]           the target gpu on a device: see gpu.py
    ./dev bench providers [...]     ONNX Runtime's CPU provider and gqac's in one process: see providers.py
    ./dev bench artefact [...]      how a compiled model is opened and shared: see artefact.py

--accept runs every row and appends to bench/results/cpu.jsonl. Exit 1: a result differs from ONNX
Runtime's, or from gqac's own on tensors, by more than its row allows; 77: there are fewer cores than
threads.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import artefact
import constraint
import engines
import gpu
import kv_cache
import load
import overhead
import providers
import records
import rows
import speculate

MOVED = 0.05


def calibrate(threads):
    """The present rates of the machine: fma_gflops_N and dram_gbps_N for 1 and `threads`
    threads."""
    out = subprocess.run([engines.TOOLS / "calibrate", str(threads)], check=True,
                         capture_output=True, text=True).stdout
    return json.loads(out)


def moved(before, after, threads):
    keys = (f"fma_gflops_{threads}", f"dram_gbps_{threads}")
    return any(abs(after[k] - before[k]) > MOVED * before[k] for k in keys)


def describe(c):
    return ", ".join(f"{k} {v}" for k, v in c.items() if k[-1].isdigit())


def pairs_with(peer, gqac, row, args, record):
    """Compares one peer with gqac, and adds the results to the record."""
    other = engines.Engine(peer, row, args.threads)
    try:
        record["versions"][peer] = other.process.facts["version"]
        record["open_ms"][peer] = other.process.facts["open_ms"]
        if peer in rows.SAME:
            record["difference"] = engines.difference(gqac, other)
            record["difference_from"] = peer
        for i in range(args.pairs):
            first, second = (gqac, other) if i % 2 == 0 else (other, gqac)
            times = {first: first.sample(), second: second.sample()}
            record["pairs"].append({"peer": peer, "gqac_ms": times[gqac],
                                    "peer_ms": times[other]})
    finally:
        other.process.close()


def summarise(row, record):
    """results: median and minimum time of every engine, its rate, and the ratio of the peers."""
    times = {}
    for pair in record["pairs"]:
        times.setdefault("gqac", []).append(pair["gqac_ms"])
        times.setdefault(pair["peer"], []).append(pair["peer_ms"])
    for engine, samples in times.items():
        ms = statistics.median(statistics.median(s) for s in samples)
        rate, unit = row.rate(ms)
        record["results"][engine] = {"ms": ms, "min_ms": min(map(min, samples)), "rate": rate,
                                     "unit": unit}
    for peer in set(times) - {"gqac"}:
        ratios = [statistics.median(p["peer_ms"]) / statistics.median(p["gqac_ms"])
                  for p in record["pairs"] if p["peer"] == peer]
        record["results"][peer]["ratio"] = statistics.median(ratios)


def measure(row, args):
    """One pass over a row: the record, and the engines that could not take part."""
    record = {"bench": "pairs", "row": row.name, **provenance(row, args), "versions": {},
              "calibration": {"before": calibrate(args.threads)}, "pairs": [], "results": {},
              "repeated": False}
    absent = []
    gqac = engines.Engine("gqac", row, args.threads)
    try:
        record["versions"]["gqac"] = gqac.process.facts["version"]
        record.update({key: gqac.process.facts[key] for key in ("profile", "level")})
        record["open_ms"] = {"gqac": gqac.process.facts["open_ms"]}
        for peer in [rows.BEFORE] if args.before else row.peers:
            if peer not in args.peers:
                continue
            try:
                pairs_with(peer, gqac, row, args, record)
            except engines.Absent as error:
                absent.append(str(error))
    finally:
        gqac.process.close()
    after = calibrate(args.threads)
    record["calibration"]["after"] = after
    record["moved"] = moved(record["calibration"]["before"], after, args.threads)
    summarise(row, record)
    return record, absent


def provenance(row, args):
    return {
        **records.made_here(args.threads), "owner": "gqac bench driver",
        "dtype": row.dtype, "math": row.math,
        "shapes": {"B": row.batch(), **row.shapes, **row.extra},
        "method": f"{args.pairs} ABBA pairs a peer, each sample the median of its calls, "
                  f"{engines.WARMUPS} warm-up calls, pinned, the other engine stopped, wall time of one "
                  f"call, rotation over {row.rotate()}",
    }


def best_peer(record):
    peers = {e: r["ratio"] for e, r in record["results"].items()
             if "ratio" in r and e not in (*rows.SELF, rows.MEMORY)}
    return min(peers, key=peers.get) if peers else None


def show(row, record, absent):
    own = record["results"].get("gqac")
    if own:
        print(f"  gqac          {own['ms']:10.3f} ms  {own['rate']:8.1f} {own['unit']}")
    for engine, r in record["results"].items():
        if engine != "gqac":
            print(f"  {engine:13} {r['ms']:10.3f} ms  {r['rate']:8.1f} {r['unit']}   "
                  f"ratio {r['ratio']:.2f}  ({record['versions'][engine]})")
    for peer, floor in row.floor:
        peer = best_peer(record) if peer == "best" else peer
        if peer in record["results"]:
            ratio = record["results"][peer]["ratio"]
            print(f"  floor {floor:.2f} against {peer}: {'reached' if ratio >= floor else 'missed'}")
    if "difference" in record:
        print(f"  largest difference from {record['difference_from']}: {record['difference']:.2g}")
    for line in absent:
        print(f"  not measured: {line}")
    print(f"  calibration before: {describe(record['calibration']['before'])}\n"
          f"               after: {describe(record['calibration']['after'])}"
          + ("   MOVED" if record["moved"] else ""), flush=True)


def run_row(row, args):
    """Measures, repeats once if the machine changed, prints and records. True if the result is
    correct."""
    print(f"{row.name}  ({args.threads} threads)", flush=True)
    try:
        record, absent = measure(row, args)
        if record["moved"] and not args.once:
            record, absent = measure(row, args)
            record["repeated"] = True
    except engines.Absent as error:
        print(f"  not measured: {error}", flush=True)
        return True
    show(row, record, absent)
    if record["pairs"] and args.out:
        if args.pairs >= records.LEAST_PAIRS:
            records.append(args.out, record)
        else:
            print(f"  not recorded: records have at least {records.LEAST_PAIRS} pairs")
    tolerance = 0 if args.before else row.tolerance
    if record.get("difference", 0) > tolerance:
        print(f"  WRONG: it differs by more than {tolerance:g}", flush=True)
        return False
    return True


def chosen(words):
    """Rows by their full name, or, if a word is not a full name, all that begin with it."""
    return [r for r in rows.ROWS if r.name in words or
            any(w not in rows.BY_NAME and r.name.startswith(w) for w in words)]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--accept", action="store_true", help="every row, recorded")
    parser.add_argument("--only", help="rows by name, comma-separated; a prefix takes all it fits")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, choices=(1, 2), default=2)
    parser.add_argument("--against", help="peers: of " + ", ".join(engines.COMMANDS))
    parser.add_argument("--before", type=Path, help="worker_gqac of another build: the only peer")
    parser.add_argument("--out", type=Path, help="JSON-lines file that records are appended to")
    parser.add_argument("--once", action="store_true", help="no second measurement of moved rows")
    parser.add_argument("--list", action="store_true", help="names the rows and ends")
    args = parser.parse_args()
    if args.before:
        engines.COMMANDS[rows.BEFORE] = [args.before.resolve()]
    args.peers = args.against.split(",") if args.against else list(engines.COMMANDS)
    if set(args.peers) - set(engines.COMMANDS) or args.pairs < 1:
        parser.error("--against or --pairs is not possible")
    if args.accept and not args.out and not args.before:
        args.out = engines.ROOT / "bench" / "results" / "cpu.jsonl"
    args.rows = chosen(args.only.split(",")) if args.only \
        else [r for r in rows.ROWS if args.accept or r.short]
    if not args.rows:
        parser.error("--only names no row; --list shows them")
    return args


def main():
    for other in (artefact, constraint, gpu, kv_cache, load, overhead, providers, speculate):
        if sys.argv[1:2] == [other.__name__]:
            return other.main(sys.argv[2:])
    args = arguments()
    if args.list:
        print("\n".join(f"{r.name:26} {'short' if r.short else ''}" for r in rows.ROWS))
        return 0
    cores = len(os.sched_getaffinity(0))
    if args.threads > cores:
        print(f"{args.threads} threads need as many cores, and there are {cores}", file=sys.stderr)
        return 77
    right = [run_row(row, args) for row in args.rows]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
