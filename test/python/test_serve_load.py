#!/usr/bin/env python3
"""gqac serve with many clients at the same time, restarted and killed: no bit of a reply changes,
and saved prefixes are reused.

    python test/python/test_serve_load.py
"""

import concurrent.futures
import http.client
import json
import random
import select
import signal
import sys
import time

import openai

import harness
from harness import Case, FULL, gqac
from serving import PROMPT, SETTINGS, SLOW, TINY, Compared, Server, absent, events, words

CLIENTS, REPLIES = 32, 500 if FULL else 96
OFFICIAL = ("seed", "temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias",
            "stop")


class Load(Compared):
    """32 clients at the same time."""

    def test_load(self):
        """One client of the openai package sends requests in 32 threads, for prompts with common
        beginnings; half of the replies come after a restart. Cold or cached, no id and no bit
        differs from the command line."""
        picks = random.Random(1)
        heads = [words(k, 40) for k in range(3)]
        cases = [(heads[k % 3] + " " + words(k, k % 23), *SETTINGS[picks.randrange(6)])
                 for k in range(12)]
        wants = [self.generate(text, *flags, n=12) for text, _, flags in cases]

        def ask(k):
            text, fields, _ = cases[k % len(cases)]
            known = {name: fields[name] for name in OFFICIAL if name in fields}
            return client.completions.create(
                model="x", prompt=text, max_tokens=12, logprobs=3, **known,
                extra_body={**fields, "return_token_ids": True}).model_dump()
        cached = []
        for half in (range(REPLIES // 2), range(REPLIES // 2, REPLIES)):
            with (Server("--threads", 2, "--prefix-store", self.dir / "store") as server,
                  openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client,
                  concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool):
                for k, reply in zip(half, pool.map(ask, half)):
                    self.same(reply["choices"][0], wants[k % len(cases)])
                    cached.append(reply["usage"]["prompt_tokens_details"]["cached_tokens"])
                self.assertEqual(server.stop(), 0)
        self.assertIn(0, cached[:CLIENTS])
        self.assertGreater(min(cached[REPLIES // 2:]), 40)  # the common beginnings have more tokens

    def test_streams(self):
        """Many streams at the same time: each ends, and has the ids and log-probabilities of its
        answer."""
        body = {"prompt": PROMPT, "seed": 1, "return_token_ids": True, "logprobs": 1,
                "ignore_eos": True}

        def ask(k):
            text = self.server.request("/v1/completions", {
                **body, "max_tokens": 40 + k % 160, "stream": True}, seconds=30 * SLOW)[1]
            choices = [event["choices"][0] for event in events(text)]
            return (sum((c["token_ids"] for c in choices), []),
                    sum((c["logprobs"]["token_logprobs"] for c in choices), []))
        with (Server("--threads", 2) as self.server,
              concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool):
            want = self.completion(most=200, seed=1, ignore_eos=True)["choices"][0]
            for k, (ids, values) in enumerate(pool.map(ask, range(REPLIES))):
                n = 40 + k % 160
                self.assertEqual(ids, want["token_ids"][:n])
                self.assertEqual(values, want["logprobs"]["token_logprobs"][:n])


class Controls(Case):
    """A server whose scheduler uses the logits of another request."""

    def test_other_row(self):
        """Single requests have the correct ids; together they do not, which test_load would
        detect."""
        body = {"max_tokens": 12, "return_token_ids": True, "ignore_eos": True}
        with Server("--threads", 1, tool=harness.CONTROLS / "OTHER_ROW") as server:
            def ask(k):
                return server.good("/v1/completions", {**body, "prompt": words(k, 20)})
            alone = [ask(k)["choices"][0]["token_ids"] for k in range(4)]
            with concurrent.futures.ThreadPoolExecutor(32) as pool:
                found = [r["choices"][0]["token_ids"] for r in pool.map(ask, [0, 1, 2, 3] * 16)]
            self.assertNotEqual(found, alone * 16)
            with Server("--threads", 1) as whole:
                self.assertEqual([whole.good("/v1/completions", {**body, "prompt": words(k, 20)})
                                  ["choices"][0]["token_ids"] for k in range(4)], alone)


class Ends(Case):
    """The folder of prefixes after SIGTERM and SIGKILL."""

    def setUp(self):
        super().setUp()
        self.args = ("--prefix-store", self.dir / "store", "--threads", 1)

    def test_restart(self):
        """After SIGTERM prefixes are reused, and after SIGKILL those that were written; the same
        bits."""
        body = {"prompt": words(3, 80), "max_tokens": 8, "seed": 3, "return_token_ids": True}
        replies = []
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
            with Server(*self.args) as server:
                replies.append(server.good("/v1/completions", body))
                if number == signal.SIGKILL:
                    server.await_metric("gqac_store_saved_total", 1)
                self.assertEqual(server.stop(number), 0 if number == signal.SIGTERM else -9)
        self.assertEqual(len({str(r["choices"]) for r in replies}), 1)
        n = replies[0]["usage"]["prompt_tokens"]
        self.assertEqual([r["usage"]["prompt_tokens_details"]["cached_tokens"] for r in replies],
                         [0, n - 1, n - 1])
        self.good("cache", "verify", self.dir / "store")

    def test_killed(self):
        """Killed while 8 clients send requests: each prefix that was counted as saved is found
        afterwards, no file is damaged, and replies have the same bits."""
        pick = random.Random(9)
        for turn in range(8 if FULL else 3):
            bodies, replies = [], {}

            def ask(seed):
                own = random.Random(seed)
                while True:
                    body = {"prompt": [own.randrange(3, 500) for _ in range(150)], "max_tokens": 2,
                            "return_token_ids": True, "logprobs": 1}
                    bodies.append(body)
                    try:
                        replies[str(body)] = server.good("/v1/completions", body)["choices"]
                    except (OSError, http.client.HTTPException):
                        return  # the server is gone
            with concurrent.futures.ThreadPoolExecutor(8) as pool, Server(*self.args) as server:
                asking = [pool.submit(ask, 100 * turn + i) for i in range(8)]
                least, deadline = pick.randrange(3, 30), time.monotonic() + 60 * SLOW
                while (saved := server.metric("gqac_store_saved_total")) < least:
                    self.assertLess(time.monotonic(), deadline)
                self.assertEqual(server.stop(signal.SIGKILL), -9)
                for one in asking:
                    one.result()
            with Server(*self.args) as server:
                again = [server.good("/v1/completions", body) for body in bodies]
                found = [r["usage"]["prompt_tokens_details"]["cached_tokens"] == 149 for r in again]
                self.assertGreaterEqual(sum(found), saved)
                self.assertTrue(replies)
                for body, reply in zip(bodies, again):
                    if str(body) in replies:
                        self.assertEqual(reply["choices"], replies[str(body)])
                self.assertEqual(server.metric("gqac_store_damaged_files_total"), 0)
        self.good("cache", "verify", self.dir / "store")


class Texts(Case):
    """Texts of megabytes for /tokenize."""

    TEXT = words(1, 1600000)  # about 6 MB
    SHORT = {"content": words(2, 10000)}

    def test_others(self):
        """Other requests are answered while a long text is tokenized. Its ids are those of the
        command line."""
        path = self.dir / "text"
        path.write_text(self.TEXT)
        want = [int(word) for word in gqac("tokenize", TINY, "--file", path).out.split()]
        with Server() as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
            seen = False  # a metric was returned while the text was tokenized
            for _ in range(5):
                reply = pool.submit(server.good, "/tokenize", {"content": self.TEXT})
                while not reply.done():
                    seen = server.metric("gqac_texts_pending") == 1 or seen
                self.assertEqual(reply.result()["tokens"], want)
                self.assertEqual(reply.result()["count"], len(want))
                if seen:  # unless this process was stopped in the meantime
                    break
            self.assertTrue(seen)
            self.assertEqual(server.good("/tokenize", {"content": "a"})["count"], 2)
            self.assertEqual(server.stop(), 0)

    def send(self, s):
        """Sends the text."""
        body = json.dumps({"content": self.TEXT}).encode()
        s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n"
                  b"Content-Type: application/json\r\n\r\n%b" % (len(body), body))

    def await_pending(self, server, n, s):
        """True when n texts are pending; False if `s` gets its reply before."""
        while not select.select([s], [], [], 0)[0]:
            if server.metric("gqac_texts_pending") == n:
                return True
        return False

    def occupied(self, server, s):
        """The reply to a text that arrives while a longer one from `s` is tokenized; if this
        process is stopped in the meantime, it arrives too late."""
        self.send(s)
        self.await_pending(server, 1, s)
        return server.request("/tokenize", self.SHORT)[:2]

    def test_full(self):
        """No more than --queue long texts wait, and clients that leave make room."""
        with Server("--queue", 1) as server:
            for _ in range(5):
                with server.connect() as s:
                    status, answer = self.occupied(server, s)
                    other = server.request("/v1/completions", {"prompt": "a", "max_tokens": 1})[0]
                if status == 429:
                    break
            self.assertEqual((status, answer.get("error", {}).get("code")), (429, "busy"))
            self.assertEqual(other, 200)
            deadline = time.monotonic() + 60 * SLOW
            while (status := server.request("/tokenize", self.SHORT)[0]) == 429 and time.monotonic() < deadline:
                time.sleep(0.02)
            self.assertEqual(status, 200)
            self.assertEqual(server.stop(), 0)

    def test_leave(self):
        """A text that waits is not pending any more when its client leaves."""
        with Server("--queue", 2) as server:
            for _ in range(5):
                with server.connect() as s:
                    self.send(s)
                    left = self.await_pending(server, 1, s)
                    with server.connect() as other:
                        self.send(other)
                        left = left and self.await_pending(server, 2, s)
                    left = left and self.await_pending(server, 1, s)
                server.await_metric("gqac_texts_pending", 0, 60)
                if left:
                    break
            self.assertTrue(left)
            self.assertEqual(server.stop(), 0)

    def test_stop(self):
        """A server that is asked to stop completes the text."""
        with Server() as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
            count = server.good("/tokenize", {"content": self.TEXT})["count"]
            for _ in range(5):
                reply = pool.submit(server.good, "/tokenize", {"content": self.TEXT})
                while server.metric("gqac_texts_pending") == 0 and not reply.done():
                    pass
                if not reply.done():
                    break
            self.assertEqual(server.stop(), 0)
            self.assertEqual(reply.result()["count"], count)


if __name__ == "__main__":
    if absent():
        print("this gqac was built without the server")
        sys.exit(77)
    sys.exit(harness.main())
