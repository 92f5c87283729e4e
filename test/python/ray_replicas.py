"""Runs in an environment with Ray: two replicas of the bundled model; prints what test_ray.py checks."""

import json
import sys

import gqac
import gqac.ray
import ray
from ray import serve


def main(path):
    """Requests of sessions, twice each; and the same ids without Ray."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
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
    serve.shutdown()
    ray.shutdown()
    with gqac.Model(path, threads=1) as model:
        for session, ids in prompts.items():
            found["alone"][session] = model.generate(ids=ids, max_new_tokens=8, seed=3).ids
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
