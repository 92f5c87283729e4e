#!/usr/bin/env python3
"""The target gpu on a device: its share of the memory bandwidth, its results and times.

For each row: prompts, decode steps and prompts after cached tokens, of whole models and of one
attention over long caches. gqac and a peer alternate, ABBA; each time is the median of the calls
after three warm-up calls. ONNX Runtime is measured with its CUDA provider, on fp16 models, whose
attention it supports on devices; torch, with FlashAttention and CUDA graphs, on these and on rows
of one attention; llama.cpp on int4 models, if it was built with a driver. Engines that are not
installed, or do not run, are named.

Before the rows it measures how fast the device copies its own memory. A row that reads mainly
weights and cached rows is compared with this rate. The last logits are compared with those of
target cpu: they have the same bits, except in rows of `--math bf16` (-bf16), where they are close.

    ./dev bench gpu [--device N] [--size 0.5b|1.5b|tiny] [--only ROW,...] [--pairs N]
                    [--seconds S] [--out FILE] [--list]

No row begins after --seconds (200). Needs only bench/, build/bench and build/release/gqac, so these
can be copied to a machine with a device. --out appends records, e.g. to bench/results/gpu.jsonl.
Exit 1: bits differ from those of cpu, or results in rows of --math bf16 are not close, or gqac
cannot run a row; 77: there is no such device.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import device_memory
import engines
import records
import rows
from generated import GQAC

CUDA, LLAMA, TORCH = "onnxruntime", "llama.cpp", "torch-device"
LEAST_SHARE = 0.85  # of the rate of copies; decode after 16384 tokens or more should reach it
LONG = 16384


class OnDevice:
    """A row of rows.py, as engines run it on a device."""

    def __init__(self, row, device):
        self.row, self.device, self.name, self.extra = row, device, row.name, row.extra
        self.rotate = row.rotate

    def words(self, engine):
        own = self.row.words("gqac" if engine == "gpu" else engine)
        if engine in ("gpu", "gqac") and self.row.kind == "sequence":
            own.append("logits=1")  # the host reads one row
        return own + {"gpu": ["target=gpu", f"device={self.device}"], LLAMA: ["gpu=1"],
                      CUDA: ["provider=CUDAExecutionProvider"],
                      TORCH: [f"math={self.row.math}"]}.get(engine, [])

    def bytes_read(self):
        """The bytes read by a decode step."""
        if self.row.shapes["S"] > 1:
            return None
        return self.row.step_bytes() if self.row.kind == "model" \
            else self.row.batch() * self.row.kv_bytes()

    def allowed(self):
        """The allowed difference of results from those of cpu."""
        return 0 if self.row.math == "model" else self.row.tolerance


def attention(name, p, s, dtype, batch=1, **more):
    """One attention with 32 heads and 8 key-value heads."""
    return rows.sequence(name, p, s, dtype=dtype, in_cache=True, extra=dict(batch=batch),
                         peers=(TORCH,), **more)


def whole(size, form, p, s, calls=1, batch=1, suffix="", **more):
    """A call of a whole model."""
    kind = f"decode{f'-x{batch}' * (batch > 1)}@{p}" if s == 1 else \
        f"hybrid-{s}@{p}" if p else f"prefill-{s}"
    return rows.model(f"{size}-{form}-{kind}{suffix}", size, form, p, s, calls,
                      extra=dict(batch=batch),
                      peers=(CUDA, TORCH) if form == "f16" else (LLAMA,), **more)


def rows_of(size):
    """The most informative ones first, because time may run out."""
    small = size == "tiny"
    long, past, prompt, chunk = (192, 64, 32, 8) if small else (LONG, 512, 2048, 128)
    bf16 = dict(math="bf16", tolerance=3e-2)
    found = [whole(size, form, *shape) for form in ("f16", "int4")
             for shape in ((past, 1, 16), (0, prompt), (prompt, chunk), (past, 1, 4, 8))]
    many = 2 if small else 16
    return [attention(f"attention-decode-x{many}@{long}-f16", long - 1, 1, "f16", many), *found,
            attention(f"attention-decode-x{many}@{long}", long - 1, 1, "f32", many),
            attention(f"attention-prefill-{2 * prompt}-f16", 0, 2 * prompt, "f16"),
            attention(f"attention-prefill-{2 * prompt}-bf16", 0, 2 * prompt, "f16", **bf16),
            attention(f"attention-decode-x{many}@{long}-bf16", long - 1, 1, "f16", many, **bf16),
            *[whole(size, "f16", *shape, suffix="-bf16", **bf16)
              for shape in ((past, 1, 16), (0, prompt), (prompt, chunk))],
            whole(size, "f32", past, 1, 16)]


def measure(row, args, copy_gbps):
    """(record, rows that were not measured)."""
    on, versions, samples, absent = OnDevice(row, args.device), {}, {}, []
    record = {"bench": "gpu", "row": row.name, **records.made_here(args.threads),
              "owner": "gqac bench driver", "device": args.devices[args.device],
              "dtype": row.dtype, "shapes": {"B": row.batch(), **row.shapes, **row.extra},
              "method": f"{args.pairs} ABBA pairs a peer, each the median of its calls after "
                        f"{engines.WARMUPS} that warm up, wall time of one call",
              "copy_gbps": copy_gbps, "versions": versions, "samples": samples,
              "allowed": on.allowed(), "difference_of_peers": {}}
    gqac = engines.Engine("gpu", on, args.threads)
    try:
        versions["gpu"] = gqac.process.facts["version"]
        record["profile"] = gqac.process.facts["profile"]
        record["difference"] = difference_from_cpu(gqac, on, args)
        for peer in row.peers:
            try:
                take_turns(gqac, peer, on, args, versions, samples, record["difference_of_peers"])
            except engines.Absent as error:
                absent.append(str(error))
        if not samples:
            samples["gpu"] = [gqac.sample() for _ in range(args.pairs)]
    finally:
        gqac.process.close()
    record["results"] = summary(on, samples, copy_gbps)
    return record, absent


def difference_from_cpu(gqac, on, args):
    cpu = engines.Engine("gqac", on, args.threads)
    try:
        return engines.difference(gqac, cpu)
    finally:
        cpu.process.close()


def take_turns(gqac, peer, on, args, versions, samples, differences):
    other = engines.Engine(peer, on, args.threads)
    try:
        versions[peer] = other.process.facts["version"]
        differences[peer] = engines.difference(gqac, other)
        for i in range(args.pairs):
            for engine in (gqac, other) if i % 2 == 0 else (other, gqac):
                samples.setdefault("gpu" if engine is gqac else peer, []).append(engine.sample())
    finally:
        other.process.close()


def summary(on, samples, copy_gbps):
    """Median and minimum time of each engine, its rate, and the ratio of peers to gqac."""
    results = {}
    for engine, times in samples.items():
        ms = statistics.median(map(statistics.median, times))
        results[engine] = {"ms": ms, "min_ms": min(map(min, times)),
                           "tokens_per_second": 1e3 * on.row.tokens() / ms}
        if engine == "gpu" and on.bytes_read():
            gbps = 1e-6 * on.bytes_read() / ms
            results[engine] |= {"gbps": gbps, "share_of_copy": gbps / copy_gbps}
    for engine in set(results) - {"gpu"}:
        results[engine]["ratio"] = results[engine]["ms"] / results["gpu"]["ms"]
    return results


def show(row, record, absent):
    for engine, r in record["results"].items():
        more = f"   {r['gbps']:.0f} GB/s, {100 * r['share_of_copy']:.0f} % of a copy" \
            if "gbps" in r else f"   ratio {r['ratio']:.2f}" if "ratio" in r else ""
        print(f"  {engine:13} {r['ms']:10.3f} ms  {r['tokens_per_second']:10.1f} tok/s{more}")
    own = record["results"]["gpu"]
    if row.kind == "sequence" and row.shapes["S"] == 1 and row.shapes["P"] + 1 >= LONG:
        reached = own["share_of_copy"] >= LEAST_SHARE
        print(f"  {100 * LEAST_SHARE:.0f} % of a copy: {'reached' if reached else 'missed'}")
    for line in absent:
        print(f"  not measured: {line}")
    for peer, by in record["difference_of_peers"].items():
        print(f"  {peer} differs by up to {by:.1e}")
    if record["difference"] > record["allowed"]:
        print(f"  WRONG: it differs from target cpu, by up to {record['difference']:g}")
    sys.stdout.flush()


def arguments(words):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--size", choices=sorted(rows.models.QWEN), default="1.5b")
    parser.add_argument("--only", help="rows by name, comma-separated")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--out", type=Path, help="JSON-lines file that records are appended to")
    parser.add_argument("--list", action="store_true", help="names the rows and ends")
    args = parser.parse_args(words)
    args.rows = rows_of(args.size)
    if args.only:
        names = {r.name: r for r in args.rows}
        unknown = [n for n in args.only.split(",") if n not in names]
        if unknown:
            parser.error(f"there is no row {unknown[0]}; --list shows them")
        args.rows = [names[n] for n in args.only.split(",")]
    if args.pairs < 1:
        parser.error("--pairs is not positive")
    args.threads = len(os.sched_getaffinity(0))
    return args


def devices():
    """The output of `gqac devices`; empty if there is none."""
    found = subprocess.run([str(GQAC), "devices", "--format", "json"], capture_output=True,
                           text=True)
    return json.loads(found.stdout) if found.returncode == 0 else []


def main(words):
    began, args, right = time.monotonic(), arguments(words), True
    if args.list:
        print("\n".join(r.name for r in args.rows))
        return 0
    args.devices = devices()
    if not 0 <= args.device < len(args.devices) or not args.devices[args.device]["usable"]:
        print(f"there is no device {args.device} that can be used; see gqac devices",
              file=sys.stderr)
        return 77
    device = args.devices[args.device]
    copy_gbps = device_memory.copy_gbps(args.devices, args.device, device["memory"] // 80)
    print(f"device {args.device}: {device['name']}, {device['driver']}, {device['version']}; a copy "
          f"moves {copy_gbps:.0f} GB/s", flush=True)
    for row in args.rows:
        left = args.seconds - (time.monotonic() - began)
        print(row.name, flush=True)
        if left < 0:
            print(f"  not measured: {args.seconds:g} s are over")
            continue
        try:
            record, absent = measure(row, args, copy_gbps)
        except engines.Absent as error:
            print(f"  not measured: {error}", flush=True)
            right = False
            continue
        show(row, record, absent)
        right = right and record["difference"] <= record["allowed"]
        if args.out:
            records.append(args.out, record)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
