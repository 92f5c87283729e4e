#!/usr/bin/env python3
"""--prefix-remote: prefixes are shared through a server that speaks Redis's protocol, and whatever
the server does, replies have the bytes of a cold run.

    python test/python/test_remote.py      (GQAC_TEST_FULL=1: also on redis-server itself)
"""

import concurrent.futures
import json
import sys
import threading
import time

import harness
from harness import Case, FULL, gqac, write_ids
from serving import SLOW, TINY, Server
from tiers import Fake, Proxy, Redis, Swapping

WHY_NOT = gqac("generate", "nothing", "--prompt", "x", "--prefix-remote", "redis://x").err
ABSENT = "has no client" in WHY_NOT
QUICK = ("--remote-timeout", 150 * SLOW)
SURE = ("--remote-timeout", 60000)  # however busy the machine is


def ids(n, seed=0):
    """n token ids."""
    return [(i * (37 + seed) + i // 7) % 250 for i in range(n)]


@harness.unittest.skipIf(ABSENT, "built without hiredis")
class Remote(Case):
    """What the tests below share."""

    def said(self, tokens, *flags):
        """(json of the answer without metrics, reused tokens) of the command line."""
        path = write_ids(self.dir / "ids.txt", tokens)
        found = self.good("generate", TINY, "--ids", path, "--format", "json", "-q", "-n", 4,
                          "--top-logprobs", 1, *flags).json()
        return found, found.pop("metrics")["reused_tokens"]


class OnFake(Remote):
    """The client, on a server of the test."""

    def test_shared(self):
        """A second process reuses what the first one computed; so does a longer prompt."""
        with Fake() as fake:
            remote = ("--prefix-remote", fake.url + "/7", *SURE)
            cold = self.said(ids(150))[0]
            self.assertEqual(self.said(ids(150), *remote), (cold, 0))
            self.assertEqual(len(fake.values), 2)
            self.assertTrue(all(k.startswith(b"gqac:") and len(k) == 69 for k in fake.values))
            self.assertEqual(self.said(ids(150), *remote), (cold, 128))
            self.assertEqual(fake.commands[0], b"SELECT")
            longer = ids(150) + cold["ids"] + ids(60, 3)
            want = self.said(longer)[0]
            self.assertEqual(self.said(longer, *remote), (want, 128))
            self.assertEqual(len(fake.values), 3)
            self.assertEqual(self.said(ids(150), *remote, "--kv", "quantised")[1], 0)
            folder = self.dir / "store"  # both tiers: the folder has all 153 tokens
            self.said(longer, *remote, "--prefix-store", folder)
            self.assertEqual(self.said(longer, *remote, "--prefix-store", folder), (want, 213))

    def test_faults(self):
        """Each thing that a server must not do: the answer is the one without a server, in time."""
        def only(name, wrong):
            return lambda command, reply: wrong(reply) if command == name else reply
        def at_once(data):
            return lambda reply: data
        faults = {
            "silent": lambda command, reply: None,
            "error": lambda command, reply: b"-ERR no\r\n",
            "endless": only(b"GET", lambda r: [b"$400000\r\n"] + 5000 * [b"x"]),
            "trickle": only(b"STRLEN", lambda r: 5000 * [b":"]),
            "flood": only(b"STRLEN", at_once(b"+" + (4 << 20) * b"x")),
            "huge": only(b"STRLEN", at_once(b":9223372036854775807\r\n")),
            "negative": only(b"STRLEN", at_once(b":-5\r\n")),
            "array": only(b"GET", at_once(b"*1000000000\r\n")),
            "nested": only(b"GET", at_once(b"*1\r\n" * 100000)),
            "bulk": only(b"GET", at_once(b"$99999999999\r\nabc")),
            "wrong type": only(b"GET", at_once(b":5\r\n")),
            "status": only(b"GET", at_once(b"+OK\r\n")),
            "gone": only(b"GET", at_once(b"$-1\r\n")),
            "noise": only(b"GET", at_once(bytes(range(256)))),
            "flipped": only(b"GET", lambda r: r[:5000] + bytes([r[5000] ^ 1]) + r[5001:]),
            "cut": only(b"GET", lambda r: b"$9\r\n" + r[8:17] + b"\r\n"),
            "two replies": only(b"GET", lambda r: r + b"+OK\r\n"),
        }
        cold = self.said(ids(150))[0]
        with Fake() as fake:
            remote = ("--prefix-remote", fake.url)
            self.said(ids(150), *remote, *SURE)
            for name, fault in faults.items():
                with self.subTest(fault=name):
                    fake.fault = fault
                    began = time.monotonic()
                    found, reused = self.said(ids(150), *remote, *QUICK)
                    self.assertLess(time.monotonic() - began, 30 * SLOW)
                    self.assertEqual(found, cold)
                    self.assertEqual(reused, 0)
                    fake.drop()
            fake.fault = lambda command, reply: reply
            self.assertEqual(self.said(ids(150), *remote, *SURE), (cold, 128))
            fake.once = True  # a kept connection is closed by the server
            self.assertEqual(self.said(ids(150), *remote, *SURE), (cold, 128))
        self.assertEqual(self.said(ids(150), *remote), (cold, 0))  # nobody listens

    def test_addresses(self):
        """Addresses that are refused; the password is sent, and shown nowhere."""
        for address in ("", "localhost", "http://localhost", "rediss://localhost", "redis://",
                        "redis://:@h", "redis://user@h", "redis://h:x", "redis://h:0",
                        "redis://h:65536", "redis://h/x", "redis://h/1/2", "redis://[::1",
                        "redis://[]:1", "redis://:%zz@h", "redis://:%00@h", "redis://:secret@h:x",
                        "redis://" + 300 * "h"):
            with self.subTest(address=address):
                result = gqac("generate", TINY, "--prompt", "x", "--prefix-remote", address)
                self.check(result, 2, "remote tier", "redis://")
                self.assertNotIn("secret", result.err)
        for more in (("--remote-timeout", 5), ("--prefix-remote", "redis://h", "--kv", "off"),
                     ("--prefix-remote", "redis://h", "--remote-timeout", 0)):
            self.check(gqac("generate", TINY, "--prompt", "x", *more), 2)
        for more in (("--cache-budget", 0), ("--sandbox",)):
            self.check(gqac("serve", TINY, "--prefix-remote", "redis://h", *more), 2,
                       more[0] if more[0] != "--sandbox" else "connects")
        with Fake() as fake:
            at = fake.url.removeprefix("redis://").replace("127.0.0.1", "localhost")
            self.said(ids(70), "--prefix-remote", f"redis://:p%40ss@{at}", *SURE)
            self.said(ids(70), "--prefix-remote", f"valkey://me:p%3Ass@{at}/", *SURE)
            told = [c for c in fake.commands if c.startswith(b"AUTH")]
            self.assertEqual(set(told), {b"AUTH p@ss", b"AUTH me p:ss"})

    def test_info(self):
        """gqac cache info asks the server."""
        with Fake() as fake:
            self.said(ids(150), "--prefix-remote", fake.url, *SURE)
            found = self.good("cache", "info", fake.url, "--format", "json").json()
            self.assertEqual((found["keys"], found["version"], found["bytes"]), (2, "0", 5))
            self.good("cache", "info", fake.url + "/2").out.index("2 in this database")
            fake.fault = lambda command, reply: b"-ERR no\r\n"
            self.check(gqac("cache", "info", fake.url), 5, "does not answer as Redis does")
            fake.close()
        self.check(gqac("cache", "info", fake.url), 5, "accept a connection")

    def test_served(self):
        """Two servers, one after the other; metrics."""
        body = {"prompt": ids(150), "max_tokens": 8, "return_token_ids": True, "logprobs": 1}
        with Fake() as fake:
            remote = ("--prefix-remote", fake.url, *SURE)
            with Server(*remote) as one:
                cold = one.good("/v1/completions", body)["choices"]
                self.assertEqual(one.stop(), 0)
            self.assertEqual(len(fake.values), 2)
            with Server(*remote) as two:
                reply = two.good("/v1/completions", body)
                self.assertEqual(reply["choices"], cold)
                self.assertEqual(reply["usage"]["prompt_tokens_details"]["cached_tokens"], 128)
                self.assertEqual(two.metric("gqac_remote_hits_total"), 1)
                self.assertEqual(two.metric("gqac_remote_errors_total"), 0)
                self.assertGreater(two.metric("gqac_remote_read_bytes_total"), 2 * 65536)
                reply = two.good("/v1/completions", {**body, "cache_salt": "x"})
                self.assertEqual(reply["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
                fake.close()
                reply = two.good("/v1/completions", {**body, "prompt": ids(150, 9)})
                self.assertLess(reply["usage"]["prompt_tokens_details"]["cached_tokens"], 64)
                self.assertGreaterEqual(two.metric("gqac_remote_errors_total"), 1)

    def test_beside(self):
        """While the tier does not answer for one prompt, others are answered."""
        others, late = threading.Event(), []
        def slow(command, reply):
            if command == b"STRLEN" and not others.wait(20 * SLOW):
                late.append(command)
            return reply
        body = {"prompt": ids(150), "max_tokens": 4, "return_token_ids": True}
        short = {**body, "prompt": ids(20, 5)}
        with Fake() as fake, Server() as cold, Server("--prefix-remote", fake.url, *SURE) as server:
            want = [cold.good("/v1/completions", b)["choices"] for b in (body, short)]
            fake.fault = slow
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                fetched = pool.submit(server.good, "/v1/completions", body)
                while b"STRLEN" not in fake.commands and not fetched.done():
                    time.sleep(0.001)
                for _ in range(3):
                    self.assertEqual(server.good("/v1/completions", short)["choices"], want[1])
                self.assertFalse(fetched.done())
                others.set()
                self.assertEqual(fetched.result()["choices"], want[0])
            self.assertEqual(late, [])

    def test_stopped(self):
        """A server that is stopped writes values for ten times the time limit at most."""
        def slow(command, reply):
            if command == b"SET":
                time.sleep(0.15)
            return reply
        with Fake() as fake:
            fake.fault = slow
            server = Server("--prefix-remote", fake.url, "--remote-timeout", 200)
            for seed in range(12):
                server.good("/v1/completions", {"prompt": ids(200, seed), "max_tokens": 1})
            self.assertEqual(server.stop(), 0)
            self.assertLess(len(fake.values), 36)


@harness.unittest.skipUnless(FULL, "long tier: runs redis-server")
class OnRedis(Remote):
    """Two replicas on one redis-server, which is killed, slow and lies."""

    @classmethod
    def setUpClass(cls):
        cls.redis = Redis()
        cls.cold = Server()

    @classmethod
    def tearDownClass(cls):
        cls.cold.stop()
        cls.redis.kill()

    def body(self, seed, n=200):
        """A request."""
        return {"prompt": ids(150) + ids(n - 150, seed), "max_tokens": 6, "seed": seed,
                "return_token_ids": True, "logprobs": 2}

    def compare(self, server, seeds):
        """Replies to some requests are those of a server without a remote tier; the tokens that were
        cached."""
        cached = 0
        for seed in seeds:
            want = self.cold.good("/v1/completions", self.body(seed))["choices"]
            reply = server.good("/v1/completions", self.body(seed))
            self.assertEqual(json.dumps(reply["choices"]), json.dumps(want))
            cached += reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        return cached

    def replica(self, url, flags=SURE):
        """A server on a tier."""
        server = Server("--prefix-remote", url, *flags)
        self.addCleanup(server.stop)
        return server

    def wait_saved(self, keys):
        """Until the tier has so many keys."""
        for _ in range(500):
            if int(self.redis.ask("DBSIZE")) >= keys:
                return
            time.sleep(0.01)
        self.fail(f"{self.redis.ask('DBSIZE')} keys, not {keys}")

    def test_killed(self):
        """Redis is killed under load, and comes back empty: no reply changes, and hits return."""
        one, two = self.replica(self.redis.url), self.replica(self.redis.url)
        self.compare(one, [1])
        self.wait_saved(3)
        self.assertEqual(self.compare(two, [1]), 192)
        self.redis.kill()
        self.compare(one, range(2, 6))
        self.compare(two, range(4, 8))
        self.assertGreater(one.metric("gqac_remote_errors_total"), 0)
        self.redis.start()
        time.sleep(8)  # longer than the pauses
        self.compare(one, [20])
        self.compare(one, [21])
        self.wait_saved(2)
        three = self.replica(self.redis.url)
        self.assertGreaterEqual(self.compare(three, [21]), 128)

    def test_slow(self):
        """Redis answers after 100 s: replies are those without it, and soon."""
        self.compare(self.replica(self.redis.url), [30])
        self.wait_saved(3)
        with Proxy(self.redis.port) as proxy:
            proxy.change = lambda data: time.sleep(100) or data
            server = self.replica(proxy.url + "/3", QUICK)
            began = time.monotonic()
            self.compare(server, range(30, 36))
            self.assertLess(time.monotonic() - began, 60 * SLOW)
            self.assertGreater(server.metric("gqac_remote_errors_total"), 0)
            self.assertEqual(server.metric("gqac_remote_hits_total"), 0)

    def test_lying(self):
        """Some bytes of each reply are changed, or it is that of another key."""
        self.compare(self.replica(self.redis.url), [40, 41])
        self.wait_saved(4)
        with Proxy(self.redis.port) as proxy:
            proxy.change = lambda data: data[:-9] + bytes([data[-9] ^ 8]) + data[-8:] if len(
                data) > 1000 else data
            server = self.replica(proxy.url + "/3")
            self.compare(server, [40, 41, 42])
            self.assertGreater(server.metric("gqac_remote_damaged_total"), 0)
        with Swapping(self.redis.port) as proxy:
            server = self.replica(proxy.url + "/3")
            self.compare(server, [40, 41, 42])
            self.assertGreater(server.metric("gqac_remote_damaged_total"), 0)

    def test_full(self):
        """A server without memory refuses values: they are counted, and reads go on."""
        with Redis("--maxmemory", "100kb", "--maxmemory-policy", "noeviction") as small:
            server = self.replica(small.url)
            self.compare(server, [50, 51])
            server.await_metric("gqac_remote_errors_total", 1)
            self.assertEqual(server.metric("gqac_remote_saved_total"), 0)


if __name__ == "__main__":
    sys.exit(harness.main())
