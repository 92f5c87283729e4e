"""Runs in an environment with Ray: two replicas of the bundled model. Prints what test_ray.py
checks."""

import json
import sys
import time

import gqac
import gqac.ray
import ray
from ray import serve


def shared(path, prompts, remote):
    """Answers of two replicas on a Redis server, then those of two new ones, whose own caches are
    empty; how much the first ones have saved, and how much failed."""
    found = {"answers": [], "saved": 0, "errors": 0}
    for turn in range(2):
        replies = serve.run(gqac.ray.application(path, replicas=2, remote=remote,
                                                 store={"remote_ms": 20000}))
        asked = [replies.generate.remote(ids=ids, session=session, max_new_tokens=8, seed=3)
                 for session, ids in prompts.items()]
        found["answers"].append([reply.result() for reply in asked])
        for _ in range(1000):  # until the values are written
            saved = {s["pid"]: s for s in (replies.statistics.remote(session=session).result()
                                           for session in prompts)}.values()
            if turn or sum(s["remote_saved"] for s in saved) >= len(prompts):
                break
            time.sleep(0.02)
        found["saved"] += sum(s["remote_saved"] for s in saved)
        found["errors"] += sum(s["remote_errors"] for s in saved)
        serve.delete("default")
    return found


def main(path, remote):
    """Requests of sessions, twice each; the same with a Redis server; and the same ids without
    Ray."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    serve.start(proxy_location="Disabled")  # there are no HTTP requests
    replies = serve.run(gqac.ray.application(path, replicas=2))
    prompts = {f"session {i}": [(k * (31 + i) + k // 5) % 250 for k in range(100)] for i in range(8)}
    found = {"sessions": {}, "alone": {}}
    for turn in range(2):
        asked = {s: replies.generate.remote(ids=ids, session=s, max_new_tokens=8, seed=3)
                 for s, ids in prompts.items()}
        for session, reply in asked.items():
            found["sessions"].setdefault(session, []).append(reply.result())
    found["pids"] = {s: replies.statistics.remote(session=s).result()["pid"] for s in prompts}
    streamed = replies.options(stream=True).stream.remote(
        ids=prompts["session 0"], session="session 0", max_new_tokens=8, seed=3)
    found["streamed"] = [token["id"] for token in streamed]
    try:
        replies.generate.remote(ids=[], session="x").result()
    except Exception as error:
        found["error"] = str(error)
    serve.delete("default")
    found["shared"] = shared(path, prompts, remote)
    serve.shutdown()
    ray.shutdown()
    with gqac.Model(path, threads=1) as model:
        for session, ids in prompts.items():
            found["alone"][session] = model.generate(ids=ids, max_new_tokens=8, seed=3).ids
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
