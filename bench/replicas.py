#!/usr/bin/env python3
"""Two replicas of `gqac serve`, or on Ray Serve, and what they share: the part of the prompts that
is reused, and the time to the first token, through nginx and with a Redis server.

One client sends prompts one after another. Each begins with one of three prefixes of PREFIX tokens
and ends with SUFFIX tokens that are different each time. The replicas have one thread each.
`restarted`: new replicas, with the data of the previous ones on the Redis server.

    python bench/replicas.py MODEL        prints rows of the table in docs/scaling.md
    PYTHONPATH=python GQAC_LIBRARY=build/release/libgqac.so build/ray/bin/python bench/replicas.py \
        MODEL --ray                       those of Ray, in the environment of test_ray.py
"""

import json
import os
import random
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "test" / "python"))
from serving import Server  # noqa: E402
from test_scaling import Front  # noqa: E402
from tiers import Redis  # noqa: E402

PREFIX, SUFFIX, PREFIXES, EACH, NEW = 512, 64, 3, 8, 4


def prompts(seed):
    """[(number of the prefix, ids)] in the order in which they are sent."""
    pick = random.Random(seed)
    ids = lambda n: [pick.randrange(3, 500) for _ in range(n)]  # noqa: E731  every vocabulary has them
    begins = [ids(PREFIX) for _ in range(PREFIXES)]
    order = list(range(PREFIXES)) * EACH
    pick.shuffle(order)
    return [(k, begins[k] + ids(SUFFIX)) for k in order]


def first_token(url, key, ids):
    """(seconds to the first token, reused tokens)."""
    asked = urllib.request.Request(
        url + "/v1/completions", headers={"Content-Type": "application/json",
                                          "X-Prompt-Cache-Key": f"prefix {key}"},
        data=json.dumps({"prompt": ids, "max_tokens": NEW, "stream": True, "ignore_eos": True,
                         "return_token_ids": True,
                         "stream_options": {"include_usage": True}}).encode())
    began, first, reused = time.monotonic(), None, 0
    with urllib.request.urlopen(asked, timeout=300) as reply:
        for line in reply:
            if line.startswith(b"data: {"):
                first = first or time.monotonic() - began
                usage = json.loads(line[6:]).get("usage")
                reused = usage["prompt_tokens_details"]["cached_tokens"] if usage else reused
    return first, reused


def run(name, model, n, remote=None, nginx=False):
    """Prints the row of one setting."""
    flags = ["--threads", 1, "-q", "--per-peer", 1024] + (["--prefix-remote", remote] if remote else [])
    replicas = [Server(*flags, model=model) for _ in range(n)]
    with tempfile.TemporaryDirectory() as folder:
        front = Front(Path(folder), [r.port for r in replicas]) if nginx else None
        found = []
        for i, (key, ids) in enumerate(prompts(7)):
            found.append(first_token(front.url if front else replicas[i % n].url, key, ids))
            time.sleep(0.3)  # until the computed rows are saved
        if front:
            front.stop()
    errors = sum(r.metric("gqac_remote_errors_total") for r in replicas)
    for replica in replicas:
        replica.stop()
    print_row(name, found, errors)


def print_row(name, found, errors):
    """The row of the results: (seconds to the first token, reused tokens) of each request."""
    times = sorted(1000 * first for first, _ in found)
    share = sum(reused for _, reused in found) / (len(found) * (PREFIX + SUFFIX))
    print(f"| {name} | {100 * share:.0f} % | {statistics.median(times):.0f} | "
          f"{times[int(0.95 * len(times))]:.0f} |" + (f" {errors:.0f} errors" if errors else ""),
          flush=True)


def run_on_ray(name, model, remote=None, sessions=False):
    """The same on Ray Serve, where each request asks for one token."""
    import gqac.ray
    from ray import serve
    replies = serve.run(gqac.ray.application(model, replicas=2, threads=1, remote=remote))
    found, errors = [], {}
    for i, (key, ids) in enumerate(prompts(7)):
        session, began = f"prefix {key}" if sessions else f"request {i}", time.monotonic()
        said = replies.generate.remote(ids=ids, session=session, max_new_tokens=1).result()
        found.append((time.monotonic() - began, said["reused_tokens"]))
        time.sleep(0.3)  # until the computed rows are saved
        statistics_ = replies.statistics.remote(session=session).result()
        errors[statistics_["pid"]] = statistics_["remote_errors"]
    serve.delete("default")
    print_row(name, found, sum(errors.values()))


def main(model, *flags):
    """All settings, and the first one again."""
    print("| replicas | reused | median, ms | 95 %, ms |\n|---|---|---|---|")
    with Redis() as redis:
        redis.ask("CONFIG", "SET", "maxmemory", "4gb")
        if flags == ("--ray",):
            import ray
            from ray import serve
            os.environ.update(RAY_worker_niceness="0",  # otherwise its processes have niceness 15
                              RAY_SERVE_QUEUE_LENGTH_RESPONSE_DEADLINE_S="60")
            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
            serve.start(proxy_location="Disabled")  # there are no HTTP requests
            run_on_ray("two, Ray, without sessions", model)
            run_on_ray("two, Ray, sessions", model, sessions=True)
            run_on_ray("two, Ray, without sessions, Redis", model, redis.url)
            run_on_ray("two, Ray, sessions, Redis, restarted", model, redis.url, sessions=True)
            return
        run("one", model, 1)
        run("two, round robin", model, 2)
        run("two, nginx", model, 2, nginx=True)
        run("two, round robin, Redis", model, 2, redis.url)
        run("two, nginx, Redis, restarted", model, 2, redis.url, True)
        run("one, again", model, 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
