#!/usr/bin/env python3
"""--prefix-remote: prefixes are shared through a server with the Redis protocol, and whatever the
server does, replies have the bytes of a cold run.

    python test/python/test_remote.py      (GQAC_TEST_FULL=1: also with redis-server itself)
"""

import concurrent.futures
import itertools
import json
import re
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import harness
from harness import Case, FULL, gqac, write_ids
from serving import SLOW, TINY, Server
from tiers import Authority, Fake, Listener, Proxy, Redis, Swapping

WHY_NOT = gqac("generate", "nothing", "--prompt", "x", "--prefix-remote", "redis://x").err
ABSENT = "has no client" in WHY_NOT
NO_TLS = "has no TLS" in gqac("cache", "info", "rediss://x", "--remote-cacert", "nothing").err
QUICK = ("--remote-timeout", 150 * SLOW)
SURE = ("--remote-timeout", 60000)  # also on busy machines


def ids(n, seed=0):
    """n token ids."""
    return [(i * (37 + seed) + i // 7) % 250 for i in range(n)]


@harness.unittest.skipIf(ABSENT, "built without hiredis")
class Remote(Case):
    """Shared by the tests below."""

    def said(self, tokens, *flags):
        """(JSON of the answer without metrics, reused tokens) of the command line."""
        path = write_ids(self.dir / "ids.txt", tokens)
        found = self.good("generate", TINY, "--ids", path, "--format", "json", "-q", "-n", 4,
                          "--top-logprobs", 1, *flags).json()
        return found, found.pop("metrics")["reused_tokens"]


class OnFake(Remote):
    """The client, with a server of the test."""

    def test_shared(self):
        """A second process reuses what the first one has computed; so does a longer prompt."""
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
        """For each fault of a server, the answer is that without a server, within the time
        limit."""
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
            fake.once = True  # the server closes a kept connection
            self.assertEqual(self.said(ids(150), *remote, *SURE), (cold, 128))
        self.assertEqual(self.said(ids(150), *remote), (cold, 0))  # no server listens

    def test_addresses(self):
        """Invalid addresses are refused; the password is sent, but never shown."""
        for address in ("", "localhost", "http://localhost", "redissx://localhost", "redis://",
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
        """gqac cache info calls the server."""
        with Fake() as fake:
            self.said(ids(150), "--prefix-remote", fake.url, *SURE)
            found = self.good("cache", "info", fake.url, "--format", "json").json()
            self.assertEqual((found["keys"], found["version"], found["bytes"]), (2, "0", 5))
            self.good("cache", "info", fake.url + "/2").out.index("2 in this database")
            fake.fault = lambda command, reply: \
                b"$16\r\nredis_version:\xff7\r\n" if command == b"INFO" else reply
            found = self.good("cache", "info", fake.url, "--format", "json").json()
            self.assertEqual((found["keys"], found["version"]), (2, "\\xff7"))
            fake.fault = lambda command, reply: b"-ERR no\r\n"
            self.check(gqac("cache", "info", fake.url), 5, "refuses a command: ERR no")
            fake.fault = lambda command, reply: b":5\r\n"
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

    def test_reasons(self):
        """stderr says why a call failed, once for each reason until it works again."""
        body = {"prompt": ids(150), "max_tokens": 1}
        def reasons(server):
            return [line for line in server.errors().splitlines() if "remote tier failed" in line]
        def ask_until(server, name, value):
            for seed in range(2000):
                if server.metric(name) >= value:
                    return
                server.good("/v1/completions", {**body, "prompt": ids(70, seed)})
                time.sleep(0.05)
            self.fail(f"{name} is {server.metric(name)}, not {value}")
        with Fake() as fake:
            fake.fault = lambda command, reply: b"-NOAUTH no password\r\n"
            with Server("--prefix-remote", fake.url, *SURE) as server:
                for seed in range(3):
                    server.good("/v1/completions", {**body, "prompt": ids(150, seed)})
                server.await_metric("gqac_remote_errors_total", 2)
                self.assertEqual(len(reasons(server)), 1)
                self.assertIn("refuses a command: NOAUTH no password (127.0.0.1)",
                              reasons(server)[0])
            with Server("--prefix-remote", fake.url, *SURE, "-q") as server:
                server.good("/v1/completions", body)
                self.assertEqual(reasons(server), [])
        with Fake() as fake, Server("--prefix-remote", fake.url, *SURE) as server:
            turns = itertools.cycle((b"-NOAUTH one\r\n", b"-NOAUTH two\r\n"))
            fake.fault = lambda command, reply: next(turns)
            ask_until(server, "gqac_remote_errors_total", 4)
            fake.fault = lambda command, reply: reply
            ask_until(server, "gqac_remote_saved_total", 1)
            errors = server.metric("gqac_remote_errors_total")
            fake.fault = lambda command, reply: b"-NOAUTH two\r\n"
            ask_until(server, "gqac_remote_errors_total", errors + 1)
            self.assertEqual([re.search("NOAUTH (\\w+)", line)[1] for line in reasons(server)],
                             ["one", "two", "two"])
        path = write_ids(self.dir / "ids.txt", ids(150))
        with Fake() as fake:  # a reply of the wrong kind; "": none is wrong, and values are saved
            for wrong in (b"STRLEN", b"SET", b"", b"GET"):
                with self.subTest(command=wrong):
                    fake.fault = lambda command, reply, wrong=wrong: \
                        b":-5\r\n" if command == wrong else reply
                    said = self.good("generate", TINY, "--ids", path, "-n", 4, "--prefix-remote",
                                     fake.url, *SURE).err
                    self.assertEqual("not answer as Redis does" in said, bool(wrong), said)

    def test_stopped(self):
        """If a server is stopped, it writes values for at most ten times the time limit."""
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


@harness.unittest.skipIf(NO_TLS, "built without OpenSSL")
class OnTls(Remote):
    """rediss://: the same bytes with TLS, and which servers are trusted."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.files = tempfile.TemporaryDirectory(prefix="gqac-tls-")
        folder = Path(cls.files.name)
        cls.ours, cls.other = Authority(folder, "ours"), Authority(folder, "other")
        cls.trust = ("--remote-cacert", cls.ours.cert)

    @classmethod
    def tearDownClass(cls):
        cls.files.cleanup()
        super().tearDownClass()

    def refuse(self, url, why, *flags):
        """stderr has the reason, and so has `cache info`."""
        self.assertRegex(self.check(gqac("cache", "info", url, *flags), 5).err, why)
        self.fall_back(url, why, *flags, *SURE)

    def fall_back(self, url, why, *flags):
        """The answer is computed, and stderr has the reason."""
        found = gqac("generate", TINY, "--ids", write_ids(self.dir / "ids.txt", ids(150)),
                     "--format", "json", "-n", 4, "--top-logprobs", 1, "--prefix-remote", url,
                     *flags)
        self.assertEqual(found.code, 0, found.err)
        told = [line for line in found.err.splitlines() if "a call of the remote tier failed" in line]
        self.assertTrue(told, found.err)
        self.assertEqual(len(told), len(set(told)), found.err)  # each reason once
        self.assertRegex(found.err, why)
        said = found.json()
        self.assertEqual(said.pop("metrics")["reused_tokens"], 0)
        self.assertEqual(said, self.said(ids(150))[0])

    def test_shared(self):
        """The same as without TLS; the password is sent only to the host that the certificate
        names."""
        cold = self.said(ids(150))[0]
        with Fake(self.ours.context()) as fake:
            remote = ("--prefix-remote", fake.url + "/7", *self.trust)
            self.assertEqual(self.said(ids(150), *remote, *SURE), (cold, 0))
            self.assertEqual(len(fake.values), 2)
            self.assertEqual(self.said(ids(150), *remote, *SURE), (cold, 128))
            named = fake.url.replace("rediss://127.0.0.1", "valkeys://me:p%3Ass@localhost")
            self.assertEqual(self.said(ids(150), "--prefix-remote", named, *self.trust, *SURE),
                             (cold, 128))
            self.assertIn(b"AUTH me p:ss", fake.commands)
            fake.fault = lambda command, reply: [reply[i:i + 30000]
                                                 for i in range(0, len(reply), 30000)]
            self.assertEqual(self.said(ids(150), *remote, *SURE), (cold, 128))
            fake.once, fake.fault = True, lambda command, reply: reply
            self.assertEqual(self.said(ids(150), *remote, *SURE), (cold, 128))
            fake.fault = lambda command, reply: None
            began = time.monotonic()
            self.assertEqual(self.said(ids(150), *remote, *QUICK), (cold, 0))
            self.assertLess(time.monotonic() - began, 30 * SLOW)
            self.good("cache", "info", "--help").out.index("--remote-cacert")

    def test_refused(self):
        """A certificate of another authority, for another host, or an invalid one: no command is
        sent, and above all no password."""
        for context, host, why, flags in (
                (self.other.context(), "127.0.0.1", "its certificate is refused", self.trust),
                (self.ours.context(), "127.0.0.1", "its certificate is refused", ()),
                (self.ours.context("DNS:elsewhere"), "localhost", "not for this host", self.trust),
                (self.ours.context("DNS:127.0.0.1"), "127.0.0.1", "not for this host", self.trust),
                (self.ours.context("DNS:local*"), "localhost", "not for this host", self.trust),
                (self.ours.context("email:me@localhost", common="localhost"), "localhost",
                 "not for this host", self.trust)):
            with self.subTest(why=why, host=host), Fake(context) as fake:
                url = fake.url.replace("//127.0.0.1", f"//:secret@{host}")
                self.refuse(url, why, *flags)
                self.assertEqual(fake.commands, [])
        with Fake() as plain:
            self.refuse(plain.url.replace("redis", "rediss"), "it (does not speak TLS|closed)",
                        *self.trust)
        with Fake(self.ours.context()) as fake:
            self.refuse(fake.url.replace("rediss", "redis"), "it (closed|does not answer as Redis)")
        silent = Listener()
        silent.serve = lambda peer: time.sleep(100)
        with silent:
            self.fall_back(silent.url.replace("redis", "rediss"), "in time", *QUICK)

    def test_own(self):
        """A server that requires a certificate of the client."""
        cert, key = self.ours.issue("client")
        wrong = self.other.issue("client")
        cold = self.said(ids(150))[0]
        with Fake(self.ours.context(asks=True)) as fake:
            own = ("--remote-cert", cert, "--remote-key", key)
            for reused in (0, 128):
                self.assertEqual(self.said(ids(150), "--prefix-remote", fake.url, *self.trust, *own,
                                           *SURE), (cold, reused))
            self.good("cache", "info", fake.url, *self.trust, *own)
            asked = len(fake.commands)
            self.refuse(fake.url, "asked for a certificate and closed the connection", *self.trust)
            self.refuse(fake.url, "TLS failed|closed the connection", *self.trust, "--remote-cert", wrong[0],
                        "--remote-key", wrong[1])
            self.assertEqual(len(fake.commands), asked)
        context = self.ours.context(asks=True)
        context.verify_mode = ssl.CERT_OPTIONAL
        def leave(command, reply):
            if command == b"STRLEN":
                raise EOFError
            return reply
        with Fake(context) as fake:  # answers without a certificate, then disconnects
            fake.fault = leave
            self.fall_back(fake.url + "/7", r"failed: it closed the connection \(", *self.trust, *SURE)

    def test_files(self):
        """Invalid files are refused before the model is loaded, and so are files that would not be
        read."""
        nothing, text = self.dir / "nothing.pem", self.dir / "text.pem"
        text.write_text("no certificate")
        cert, key = self.ours.issue("client")
        locked = self.dir / "locked.key"
        subprocess.run(["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:x", "-out",
                        locked], check=True)
        rsa = self.dir / "rsa.key"
        subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-out", rsa], check=True,
                       capture_output=True)
        own = ("--remote-cert", cert, "--remote-key")
        for code, why, *flags in (
                (5, str(nothing), "--remote-cacert", nothing),
                (2, "has no certificate", "--remote-cacert", text),
                (2, "has no certificate", "--remote-cert", text, "--remote-key", key),
                (2, "has no key", *own, text), (2, "has no key", *own, locked),
                (2, "not that of the certificate", *own, self.other.key),
                (2, "not that of the certificate", *own, rsa),
                (2, "needs its key", "--remote-cert", cert)):
            with self.subTest(flags=flags):
                self.check(gqac("serve", "nothing", "--prefix-remote", "rediss://h", *flags), code,
                           why)
        trust = ("--remote-cacert", self.ours.cert)
        self.check(gqac("serve", "nothing", "--prefix-remote", "redis://h", *trust), 2,
                   "rediss://")
        self.check(gqac("serve", "nothing", *trust), 2, "--prefix-remote")
        self.check(gqac("cache", "ls", self.dir, *trust), 2, "cache info")
        self.check(gqac("generate", "nothing", "--cacert", "x"), 2, "--remote-cacert")
        # the variable may be set for other commands
        self.check(gqac("cache", "ls", self.dir, env={"GQAC_REMOTE_CACERT": str(trust[1])}), 0)


class OnRedis(Remote):
    """Replicas with one redis-server; shared by the tests below."""

    @classmethod
    def setUpClass(cls):
        cls.redis = cls.make_redis()
        cls.cold = Server()

    @classmethod
    def tearDownClass(cls):
        cls.cold.stop()
        cls.redis.kill()

    @classmethod
    def make_redis(cls):
        """The server."""
        return Redis()

    def body(self, seed, n=200):
        """A request."""
        return {"prompt": ids(150) + ids(n - 150, seed), "max_tokens": 6, "seed": seed,
                "return_token_ids": True, "logprobs": 2}

    def compare(self, server, seeds):
        """Replies to some requests equal those of a server without a remote tier; returns the
        number of cached tokens."""
        cached = 0
        for seed in seeds:
            want = self.cold.good("/v1/completions", self.body(seed))["choices"]
            reply = server.good("/v1/completions", self.body(seed))
            self.assertEqual(json.dumps(reply["choices"]), json.dumps(want))
            cached += reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        return cached

    def replica(self, url, flags=SURE):
        """A server with a tier."""
        server = Server("--prefix-remote", url, *flags)
        self.addCleanup(server.stop)
        return server

    def wait_saved(self, keys):
        """Waits until the tier has that many keys."""
        for _ in range(500):
            if int(self.redis.ask("DBSIZE")) >= keys:
                return
            time.sleep(0.01)
        self.fail(f"{self.redis.ask('DBSIZE')} keys, not {keys}")


@harness.unittest.skipUnless(FULL, "long tier: runs redis-server")
class Plain(OnRedis):
    """redis-server is killed, slow, or returns wrong data."""

    def test_killed(self):
        """Redis is killed under load, and starts again empty: no reply changes, and hits return."""
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
        """Redis answers after 100 s: replies equal those without it, and are not late."""
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
        """Some bytes of each reply are changed, or it belongs to another key."""
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
        """A server without memory refuses values: this is counted, and reads continue."""
        with Redis("--maxmemory", "100kb", "--maxmemory-policy", "noeviction") as small:
            server = self.replica(small.url)
            self.compare(server, [50, 51])
            server.await_metric("gqac_remote_errors_total", 1)
            self.assertEqual(server.metric("gqac_remote_saved_total"), 0)


@harness.unittest.skipUnless(FULL, "long tier: runs redis-server")
@harness.unittest.skipIf(NO_TLS, "built without OpenSSL")
class Encrypted(OnRedis):
    """redis-server with TLS, which requires a certificate, a user and a password."""

    @classmethod
    def make_redis(cls):
        cls.files = tempfile.TemporaryDirectory(prefix="gqac-tls-")
        cls.addClassCleanup(cls.files.cleanup)
        folder = Path(cls.files.name)
        cls.ours, cls.other = Authority(folder, "ours"), Authority(folder, "other")
        cls.own = cls.ours.issue("client")
        return Redis(tls=(*cls.ours.issue("server"), cls.ours.cert), login=("me", "p:ss"))

    def url(self, login="me:p%3Ass"):
        """The address, with a user and a password."""
        return self.redis.url.replace("//", f"//{login}@")

    def flags(self, trusted):
        """The flags of a client that trusts an authority."""
        return ("--remote-cacert", trusted.cert, "--remote-cert", self.own[0], "--remote-key",
                self.own[1], *SURE)

    def test_shared(self):
        """One replica reuses what the other has computed, also after a restart of redis."""
        one = self.replica(self.url(), self.flags(self.ours))
        two = self.replica(self.url(), self.flags(self.ours))
        self.compare(one, [1, 2])
        self.wait_saved(4)
        self.assertEqual(self.compare(two, [1, 2]), 2 * 192)
        self.redis.kill()
        self.compare(two, range(3, 6))
        self.assertGreater(two.metric("gqac_remote_errors_total"), 0)
        self.redis.start()
        time.sleep(8)  # longer than the pauses
        self.compare(one, [6])
        self.wait_saved(1)
        found = self.good("cache", "info", self.url(), *self.flags(self.ours)[:6], "--format",
                          "json").json()
        self.assertGreaterEqual(found["keys"], 1)

    def test_refused(self):
        """Another authority, a missing client certificate, a wrong password: replies are
        unchanged."""
        self.compare(self.replica(self.url(), self.flags(self.ours)), [11])
        self.wait_saved(3)
        for url, flags, why in (
                (self.url(), self.flags(self.other), "its certificate is refused"),
                (self.url(), ("--remote-cacert", self.ours.cert, *SURE), "asked for a certificate"),
                (self.url("me:wrong"), self.flags(self.ours), "it refused the password"),
                (self.url(":p%3Ass"), self.flags(self.ours), "it refused the password"),
                (self.redis.url, self.flags(self.ours), "it refused the database")):
            with self.subTest(why=why, url=url):
                server = self.replica(url, flags)
                self.compare(server, [11, 12])
                self.assertGreater(server.metric("gqac_remote_errors_total"), 0)
                self.assertEqual(server.metric("gqac_remote_hits_total"), 0)
                self.assertIn(why, server.errors())
                self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    sys.exit(harness.main())
