#!/usr/bin/env python3
"""The times that clients of a server wait, compared with llama.cpp's server.

Three parts, on a Qwen2.5-0.5B in int4 with random weights, both engines alternately on the same
cores:

  first   time to the first token of prompts that begin like earlier ones: five turns of chat, and 20
          suffixes of several lengths after one prefix of 2,000 tokens. gqac with the store and without
          it (once for each length), llama-server with its prompt cache. The ratio without / with is compared
          with that of a FLOP model.
  mixed   16 clients at the same time, each of which sends its prompts one after another: 32 to 1,000
          tokens that begin with one of three prefixes, and 64 new tokens each. Tokens per second,
          and the 95th percentile of the time to the first token.
  served  prompts as in `mixed` from 1, 4, 16 and 64 clients at the same time, to `gqac serve`.

For `first` and `mixed` gqac's scheduler with its prefix store is called in its process
(worker_load.c); llama-server over HTTP, with ids in place of text, as are both for `served`. For
`first` the server's own time for the prompt is used, which excludes HTTP; for the others that of
the client, which includes the waiting time.

    ./dev bench load [--part first|mixed|served] [--passes N] [--threads N] [--out FILE]

--out FILE appends a record for each part, e.g. bench/results/load.jsonl.
"""

import argparse
import contextlib
import json
import random
import statistics
import sys
import tempfile
from pathlib import Path

import engines
import models
import records
import servers

SIZE, FORM = "0.5b", "int4"
PREFIX = 2000
SUFFIXES = (1, 8, 16, 32, 64, 96, 128, 192, 256, 512)  # each twice
SYSTEM, TURN, ANSWER, TURNS = 200, 100, 32, 5
CLIENTS, EACH, NEW, LENGTH = 16, 2, 64, 1088
LEVELS = {1: 8, 4: 4, 16: 2, 64: 1}  # clients of `served`, and the requests of each
SHARED = (600, 300, 100)  # tokens of the three prefixes
BAR, FROM = 0.85, 64  # share of the ratio of the FLOP model, from this number of computed tokens on


def draw(r, n):
    return [r.randrange(models.QWEN[SIZE]["vocab"]) for _ in range(n)]


# Each pass has its own ids, because the cache of llama-server outlives a pass.


def chat(pass_number):
    """One client: (follows, new, ids) of its requests."""
    r = random.Random(f"chat {pass_number}")
    return [[(turn > 0, ANSWER, draw(r, TURN + (0 if turn else SYSTEM))) for turn in range(TURNS)]]


def suffixes(pass_number, lengths):
    """One client that sends the prefix, then the prefix with suffixes."""
    r = random.Random(f"suffixes {pass_number}")
    prefix = draw(r, PREFIX)
    return [[(False, 1, prefix)] + [(False, 1, prefix + draw(r, n)) for n in lengths]]


def mixed(pass_number, clients=CLIENTS, each=EACH):
    r = random.Random(f"mixed {pass_number}")
    prefixes = [draw(r, n) for n in SHARED]
    plan = []
    for _ in range(clients):
        requests = []
        for _ in range(each):
            n, prefix = r.randint(32, 1000), prefixes[r.randrange(3)]
            common = min(len(prefix), n - 16)
            requests.append((False, NEW, prefix[:common] + draw(r, n - common)))
        plan.append(requests)
    return plan


def flops(past, new):
    """Operations for `new` tokens after `past`: products with weights, attention, one row of
    logits."""
    c = models.QWEN[SIZE]
    head = c["hidden"] * c["vocab"]
    pairs = new * past + new * (new + 1) // 2
    return (2 * (models.weights(SIZE) - head) * new + 2 * head
            + 4 * c["heads"] * c["head"] * c["layers"] * pairs)


# ---- gqac ----


class Gqac:
    def __init__(self, threads):
        model = models.qwen(SIZE, FORM, "pruned")
        engines.COMMANDS["gqac load"] = [engines.TOOLS / "worker_load"]
        self.process = engines.Process("gqac load", [f"model={model}"], threads)

    def read(self, plan):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "plan"
            path.write_text("".join(
                f"{client} {int(follows)} {new} {' '.join(map(str, ids))}\n"
                for client, requests in enumerate(plan) for follows, new, ids in requests))
            self.process.ask(f"plan {path}")

    def serve(self, plan, store):
        """The requests in the order of the plan, as dicts, and the total time in ms."""
        self.read(plan)
        said = json.loads(self.process.ask(f"serve {int(store)}").removeprefix("times "))
        keys = ("first_ms", "end_ms", "reused", "computed")
        return [dict(zip(keys, x)) for x in said["requests"]], said["wall_ms"]

    def cancel(self, times):
        """Times in ms from the cancellation of the prefix, during its computation, to its end."""
        self.read(suffixes(0, ()))
        return [float(self.process.ask("cancel").removeprefix("times ")) for _ in range(times)]


# ---- time to the first token ----


def first_pass(gqac, server, number):
    """{row: {with, without, peer, ...}} for one pass, for each turn and each suffix."""
    rows = {}
    with_store, _ = gqac.serve(chat(number), True)
    without, _ = gqac.serve(chat(number), False)
    peer, _ = server.serve(chat(number))
    for i in range(TURNS):
        rows[f"chat, turn {i + 1}"] = sample(with_store[i:i + 1], without[i:i + 1], peer[i:i + 1],
                                             ANSWER - 1)
    warm, _ = gqac.serve(suffixes(number, SUFFIXES * 2), True)
    cold, _ = gqac.serve(suffixes(number, SUFFIXES), False)
    peer, _ = server.serve(suffixes(number, SUFFIXES * 2))
    n = len(SUFFIXES)
    for i, length in enumerate(SUFFIXES, 1):
        rows[f"suffix of {length}"] = sample([warm[i], warm[i + n]], [cold[i]], [peer[i], peer[i + n]], 0)
    return rows


def sample(with_store, without, peer, decoded):
    """decoded: tokens computed after the first new one."""
    def ms(requests, key="first_ms"):
        return statistics.median(x[key] for x in requests)
    return {"with_ms": ms(with_store), "without_ms": ms(without), "peer_ms": ms(peer, "prompt_ms"),
            "peer_http_ms": ms(peer, "http_ms"), "reused": with_store[0]["reused"],
            "computed": with_store[0]["computed"] - decoded, "peer_reused": peer[0]["reused"]}


def summarise_first(passes):
    results = {}
    for row in passes[0]:
        r = {key: statistics.median(p[row][key] for p in passes) for key in passes[0][row]}
        r["ratio"] = statistics.median(p[row]["without_ms"] / p[row]["with_ms"] for p in passes)
        r["model_ratio"] = flops(0, r["reused"] + r["computed"]) / flops(r["reused"], r["computed"])
        results[row] = r
    return results


def first_table(results):
    lines = ["| prompt | reused | computed | without, ms | with, ms | ratio | FLOP model | share | "
             "llama-server, ms (by HTTP) |", "|---|---|---|---|---|---|---|---|---|"]
    for row, r in results.items():
        lines.append(f"| {row} | {r['reused']:.0f} | {r['computed']:.0f} | {r['without_ms']:.1f} | "
                     f"{r['with_ms']:.1f} | {r['ratio']:.2f}× | {r['model_ratio']:.2f}× | "
                     f"{100 * r['ratio'] / r['model_ratio']:.0f} % | {r['peer_ms']:.1f} "
                     f"({r['peer_http_ms']:.1f}) |")
    return lines


def first_missed(results):
    return [f"{row}: {what}" for row, r in results.items() for what, bad in (
        (f"below {BAR} of the FLOP model",
         r["computed"] >= FROM and r["ratio"] < BAR * r["model_ratio"]),
        ("llama-server is faster", r["with_ms"] >= r["peer_ms"])) if bad]


# ---- many clients ----


def percentile_95(values):
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def load_of(requests, wall, key):
    first = [r[key] for r in requests]
    return {"tokens_per_second": 1e3 * NEW * len(requests) / wall, "wall_ms": wall,
            "first_p50_ms": statistics.median(first), "first_p95_ms": percentile_95(first),
            "reused": sum(r["reused"] for r in requests)}


def load_pass(own, peer, number):
    """{engine: load} for one pass; own and peer measure it. The order of the engines changes with
    the pass."""
    order = [("gqac", own), ("llama-server", peer)]
    return {name: measure() for name, measure in (order[::-1] if number % 2 else order)}


def mixed_pass(gqac, server, number):
    plan = mixed(number)
    return load_pass(lambda: load_of(*gqac.serve(plan, True), "first_ms"),
                     lambda: load_of(*server.serve(plan), "http_ms"), number)


def served_pass(gqac, server, number, clients):
    plan = mixed(number, clients, LEVELS[clients])
    return load_pass(lambda: load_of(*gqac.serve(plan), "http_ms"),
                     lambda: load_of(*server.serve(plan), "http_ms"), number)


def summarise_load(passes):
    return {engine: {key: statistics.median(p[engine][key] for p in passes)
                     for key in passes[0][engine]} for engine in ("gqac", "llama-server")}


def load_table(levels):
    """levels: {clients: results}."""
    lines = ["| clients | engine | tokens/s | first token, median, ms | 95th percentile, ms | "
             "reused tokens |", "|---|---|---|---|---|---|"]
    for clients, results in levels.items():
        for engine, r in results.items():
            lines.append(f"| {clients} | {engine} | {r['tokens_per_second']:.1f} | "
                         f"{r['first_p50_ms']:.0f} | {r['first_p95_ms']:.0f} | {r['reused']:.0f} |")
    return lines


def load_missed(levels):
    return [f"{clients} clients: {what}" for clients, results in levels.items()
            for own, peer in [(results["gqac"], results["llama-server"])] for what, bad in (
                ("llama-server has more tokens/s",
                 own["tokens_per_second"] <= peer["tokens_per_second"]),
                ("llama-server has the shorter 95th percentile",
                 own["first_p95_ms"] >= peer["first_p95_ms"])) if bad]


# ---- the parts ----

# The measurement of each part; it returns its fields of the record and the lines of its table.


def llama(args, slots, length):
    return servers.LlamaServer(models.gguf(SIZE, FORM, words=True), args.threads, slots, length)


def in_process(args, take_pass, slots, length):
    """Passes of gqac in its process and of llama-server, and the fields of both."""
    with contextlib.closing(llama(args, slots, length)) as server:
        gqac = Gqac(args.threads)
        with contextlib.closing(gqac.process):
            gqac.serve(chat(-1), True)  # warm-up, discarded
            server.serve(chat(-1))
            passes = [take_pass(gqac, server, i) for i in range(args.passes)]
            cancelled = gqac.cancel(10)
    print(f"a cancelled prompt ends after {max(cancelled):.2f} ms or less")
    return passes, {
        "versions": {"gqac": gqac.process.facts["version"], "llama-server": server.version},
        "level": gqac.process.facts["level"], "samples": passes, "cancel_ms": cancelled,
        "method": f"{METHOD.format(args.passes)}; llama-server by HTTP, gqac in its process"}


def measure_first(args):
    passes, fields = in_process(args, first_pass, 1, 4096)
    results = summarise_first(passes)
    return first_table(results), {
        "shapes": {"prefix": PREFIX, "suffixes": list(SUFFIXES), "system": SYSTEM, "turn": TURN,
                   "answer": ANSWER}, "results": results, "missed": first_missed(results), **fields}


def measure_mixed(args):
    passes, fields = in_process(args, mixed_pass, CLIENTS, LENGTH)
    levels = {CLIENTS: summarise_load(passes)}
    return load_table(levels), {
        "shapes": {"clients": CLIENTS, "requests": EACH, **MIXED}, "results": levels[CLIENTS],
        "missed": load_missed(levels), **fields}


def measure_served(args):
    samples = {}
    for clients in LEVELS:
        with contextlib.closing(llama(args, clients, LENGTH)) as server, \
                contextlib.closing(servers.GqacServer(models.qwen(SIZE, FORM, "pruned"),
                                                      args.threads, clients, LENGTH)) as gqac:
            for engine in (server, gqac):
                engine.serve(chat(-1))  # warm-up, discarded
            samples[clients] = [served_pass(gqac, server, i, clients) for i in range(args.passes)]
    levels = {clients: summarise_load(passes) for clients, passes in samples.items()}
    return load_table(levels), {
        "shapes": {"clients": list(LEVELS), "requests": list(LEVELS.values()), **MIXED},
        "results": levels, "samples": [samples], "missed": load_missed(levels),
        "versions": {"gqac": gqac.version, "llama-server": server.version}, "level": gqac.level,
        "method": f"{METHOD.format(args.passes)}; both by HTTP"}


MIXED = {"new": NEW, "prefixes": list(SHARED), "prompt": [32, 1000]}
METHOD = ("median of {} passes after a warm-up, engines in turns and pinned, the other one stopped; "
          "ids in place of text")
PARTS = {"first": measure_first, "mixed": measure_mixed, "served": measure_served}


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", choices=tuple(PARTS))
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(words)
    for part in [args.part] if args.part else PARTS:
        try:
            table, fields = PARTS[part](args)
        except engines.Absent as error:
            print(f"not measured: {error}", file=sys.stderr)
            return 1
        print("\n".join(table), *(f"missed: {x}" for x in fields["missed"]), sep="\n", flush=True)
        fields["shapes"]["model"] = f"qwen2.5-{SIZE}"
        if args.out:
            records.append(args.out, {
                "bench": "load", **records.made_here(args.threads), "owner": "gqac", "part": part,
                "dtype": "int4; cache f32, llama-server f16", **fields})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
