#!/usr/bin/env python3
"""Two replicas behind the nginx of docs/scaling.md: requests with the same key reach the same
replica, replies have the bits of a single server, streams arrive while they are computed, and a
replica may be killed.

    GQAC_TEST_FULL=1 python test/python/test_scaling.py
"""

import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import harness
from harness import Case, FULL, ROOT
from serving import SLOW, Server, absent

RECIPE, MODULE = re.findall(r"```nginx\n(.*?)```", (ROOT / "docs" / "scaling.md").read_text(), re.S)
SCRIPT = re.search(r"```js\n(.*?)```", (ROOT / "docs" / "scaling.md").read_text(), re.S)[1]


def reading_bodies():
    """The recipe with the key in the body."""
    first, rest = MODULE.split("\n\n", 1)
    text, replaced = re.subn(r"    map \$http_x_prompt_cache_key .*?\n    }\n", lambda _: rest, RECIPE,
                             flags=re.S)
    assert replaced == 1 and first.startswith("load_module") and "map" not in text
    return f"{first}\n{text}"


class Front(Server):
    """nginx with a recipe, to which requests can be sent."""

    def __init__(self, folder, ports, text=RECIPE):
        if not shutil.which("nginx"):
            raise AssertionError("nginx is not installed: ./dev test --full does that")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        for old, new in zip(("8080", "8081", "8082"), (self.port, *ports)):
            assert f"127.0.0.1:{old}" in text
            text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
        paths = "".join(f"{name}_temp_path {folder}/{name};\n" for name in (
            "client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        text = text.replace("http {\n", f"http {{\naccess_log off;\n{paths}", 1)
        (folder / "nginx.conf").write_text(text)
        (folder / "key.js").write_text(SCRIPT)
        self.child = subprocess.Popen(
            ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr", "-g",
             f"daemon off; pid {folder}/pid;"], stderr=subprocess.DEVNULL)
        for _ in range(500):
            with contextlib.suppress(OSError):
                self.connect().close()
                return
            time.sleep(0.01)
        raise AssertionError("nginx does not listen")

    def stop(self, *_):
        """Ends nginx and its workers."""
        self.child.terminate()
        return self.child.wait(20)


def body(seed, most=8, **fields):
    """A request."""
    return {"prompt": [(i * (31 + seed) + i // 5) % 250 for i in range(100)], "max_tokens": most,
            "seed": seed, "return_token_ids": True, "logprobs": 1, **fields}


@harness.unittest.skipUnless(FULL, "long tier: runs nginx")
@harness.unittest.skipIf(absent(), "built without the server")
class Nginx(Case):
    """Two replicas."""

    recipe = RECIPE

    def setUp(self):
        super().setUp()
        self.replicas = [Server("--per-peer", 1024) for _ in range(2)]
        for replica in self.replicas:
            self.addCleanup(replica.stop)
        self.front = Front(self.dir, [replica.port for replica in self.replicas], self.recipe)
        self.addCleanup(self.front.stop)

    def named(self, key, asked):
        """(headers, body) of a request with a key."""
        return {"X-Prompt-Cache-Key": key} if key else {}, asked

    def ask(self, key, seed, **fields):
        """A reply through nginx."""
        headers, asked = self.named(key, body(seed, **fields))
        return self.front.good("/v1/completions", asked, headers=headers)

    def counts(self):
        """The number of completions of each replica."""
        name = 'gqac_requests_total{path="/v1/completions",status="200"}'
        return [replica.metric(name) for replica in self.replicas]

    def test_affinity(self):
        """Requests with the same key reach the same replica, and find its cache; keys are divided
        between replicas."""
        for key in ("a", "b", None):
            before = self.counts()
            for turn in range(4):
                reply = self.ask(key, 1)
                if turn:
                    self.assertEqual(reply["usage"]["prompt_tokens_details"]["cached_tokens"], 99)
            grown = [after - old for after, old in zip(self.counts(), before)]
            self.assertEqual(sorted(grown), [0, 4])
        before = self.counts()
        for key in range(24):
            self.ask(f"key {key}", 2)
        grown = [after - old for after, old in zip(self.counts(), before)]
        self.assertGreaterEqual(min(grown), 4)
        self.assertEqual(sum(grown), 24)

    def test_bits(self):
        """Replies through either replica equal those of a single one."""
        for seed in range(3, 9):
            want = self.replicas[0].good("/v1/completions", body(seed))["choices"]
            for key in ("a", "b", "c"):
                self.assertEqual(self.ask(key, seed)["choices"], want)

    def test_stream(self):
        """The first event arrives while the answer is computed; disconnecting ends it."""
        headers, asked = self.named("a", body(1, 400, stream=True, ignore_eos=True))
        sent = urllib.request.Request(
            self.front.url + "/v1/completions", data=json.dumps(asked).encode(),
            headers={"Content-Type": "application/json", **headers})
        with urllib.request.urlopen(sent, timeout=60 * SLOW) as reply:
            first = next(line for line in reply if line not in (b": ping\n", b"\n"))
            self.assertTrue(first.startswith(b"data: "))
            running = [replica.metric("gqac_requests_running") for replica in self.replicas]
            self.assertEqual(sorted(running), [0, 1])
        self.replicas[running.index(1)].await_metric("gqac_requests_running", 0, 2)

    def test_killed(self):
        """A replica is killed: the other answers for its keys."""
        want = self.ask("a", 5)["choices"]
        owner = self.counts().index(1)
        self.replicas[owner].child.kill()
        self.replicas[owner].child.wait()
        for _ in range(5):
            self.assertEqual(self.ask("a", 5)["choices"], want)
        self.assertEqual(self.replicas[1 - owner].metric(
            'gqac_requests_total{path="/v1/completions",status="200"}'), 5)
        self.replicas[1 - owner].child.kill()
        status, _ = self.front.request("/v1/completions", body(5), headers={})
        self.assertEqual(status, 502)


class KeyInBody(Nginx):
    """The same with a field of the body; the header is used if the field is missing."""

    recipe = reading_bodies()

    def named(self, key, asked):
        return {}, {**asked, "prompt_cache_key": key} if key else asked

    def test_large(self):
        """A body of megabytes is read too, the header is used if the body has no key, and a body
        that is not JSON gets the error of the replica."""
        for key in range(8):
            before = self.counts()
            filled = {**body(1), "prompt_cache_key": f"key {key}", "user": "x" * 4_000_000}
            self.front.good("/v1/completions", filled)
            self.ask(f"key {key}", 1)
            self.front.good("/v1/completions", body(1), headers={"X-Prompt-Cache-Key": f"key {key}"})
            grown = [after - old for after, old in zip(self.counts(), before)]
            self.assertEqual(sorted(grown), [0, 3])
        self.assertGreater(min(self.counts()), 0)
        self.assertEqual(self.front.request("/v1/completions", b"{")[0], 400)
        self.assertEqual(self.front.request("/health")[0], 200)


if __name__ == "__main__":
    sys.exit(harness.main())
