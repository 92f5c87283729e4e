#!/usr/bin/env python3
"""gqac serve: the replies to a tenant, and the time to its first token, do not reveal the prompts
of another tenant. For the times, a pair is a prompt that the other tenant has sent and a prompt
that nobody has sent, in random order. Under the hypothesis that both take equally long, the first
takes longer in half of the pairs.

    GQAC_TEST_FULL=1 python test/python/test_serve_tenants.py
"""

import http.client
import json
import math
import random
import re
import statistics
import sys
import time

import harness
from harness import Case, FULL
from serving import Server, absent

PAIRS, CONTROLS, BATCH, TOKENS = 1000, 400, 50, 200
NEVER = 1e-6  # the probability that a test of equal times fails by chance
WORD = "Zanzibar"  # only one tenant sends it


def limit(n):
    """The least k for which, of n throws, a fair coin falls k or more times on either side with a
    probability of at most NEVER."""
    tail, k = 0, n + 1
    while 2 * (tail + math.comb(n, k - 1)) <= NEVER * 2**n:
        k -= 1
        tail += math.comb(n, k)
    return k


class Tenant:
    """Sends requests over one connection."""

    def __init__(self, server, key):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def ask(self, prompt):
        """(seconds to the first and only token, number of cached tokens)."""
        body = json.dumps({"prompt": prompt, "max_tokens": 1})
        began = time.perf_counter()
        try:
            self.connection.request("POST", "/v1/completions", body, self.headers)
            with self.connection.getresponse() as response:
                reply = json.load(response)
        except http.client.RemoteDisconnected:  # the connection was idle for a minute
            self.connection.close()
            return self.ask(prompt)
        seconds = time.perf_counter() - began
        return seconds, reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def measure(server, pairs, seed):
    """The differences in seconds, known prompt minus new prompt, ascending; the median of all
    times; the maximum number of cached tokens."""
    pick = random.Random(seed)
    victim, spy = Tenant(server, "key-of-victim"), Tenant(server, "key-of-spy")
    differences, times, cached = [], [], 0
    while len(differences) < pairs:
        batch = [[[pick.randrange(3, 500) for _ in range(TOKENS)] for _ in "ab"]
                 for _ in range(BATCH)]
        for asked, _ in batch:
            victim.ask(asked)
        for pair in batch:
            found = [None, None]
            for i in pick.sample((0, 1), 2):
                found[i], reused = spy.ask(pair[i])
                cached = max(cached, reused)
            differences.append(found[0] - found[1])
            times += found
    return sorted(differences), statistics.median(times), cached


def questions(word):
    """[(method, path, body)]: a request to every endpoint, and invalid ones, with a word wherever a
    request may have text."""
    talk = [{"role": "user", "content": f"The way to {word}"}]
    tool = {"name": word or "x", "description": word, "parameters": {"properties": {f"a{word}": {}}}}
    schema = {"properties": {f"b{word}": {"const": word}}, "required": [f"b{word}"]}
    text, more = {"prompt": f"The way to {word} was", "max_tokens": 9}, {"user": word, "model": word}
    bodies = [
        ("/v1/completions", {**text, **more, "echo": True, "logprobs": 5, "return_token_ids": True}),
        ("/v1/completions", {**text, "stop": [f"{word}."], "verify_cache": True, "n": 2}),
        ("/v1/completions", {**text, "cache_salt": word, "stream": True}),
        ("/v1/completions", {**text, "json_schema": schema, "max_tokens": 30}),
        ("/v1/completions", {**text, "grammar": f'root ::= "{word}" [a-z]'}),
        ("/v1/chat/completions", {"messages": talk, "max_tokens": 9, "chat_template_kwargs": {
            f"c{word}": word}, "tools": [{"type": "function", "function": tool}]}),
        ("/v1/chat/completions", {"messages": talk, "max_tokens": 9, "stream": True, **more}),
        ("/v1/responses", {"input": f"The way to {word}", "max_output_tokens": 9, "instructions": word}),
        ("/apply-template", {"messages": talk}), ("/tokenize", {"content": word}),
        ("/detokenize", {"tokens": [4 + len(word)]}), ("/v1/embeddings", {"input": word}),
        ("/v1/completions", {**text, "temperature": word}), (f"/v1/{word}", text),
        ("/v1/completions", {**text, "grammar": f"root ::= {word}-"}),
        ("/v1/completions", {**text, "json_schema": {f"d{word}": 1, "not": {}}}),
        ("/v1/chat/completions", {"messages": [{"role": word, "content": 1}]}),
        ("/v1/chat/completions", {"messages": talk, "tool_choice": {"type": "function", "function": {
            "name": f"e{word}"}}}),
        ("/v1/responses", {"input": [{"type": word}]}), ("/health", {}), ("/v1/completions", [word])]
    return ([("POST", path, json.dumps(body)) for path, body in bodies]
            + [("POST", "/tokenize", f'{{"content": "{word}'), ("PUT", "/v1/models", word)]
            + [("GET", path, None) for path in (
                "/", "/health", "/v1/models", f"/{word}", "/v1/completions", "/metrics")])


class Two(Case):
    """Two keys, of two tenants or of one."""

    def served(self, *keys):
        """A server with a file of keys."""
        file = self.dir / "keys"
        file.write_text("".join(f"{key}\n" for key in keys))
        return self.enterContext(Server("-q", "--api-key-file", file, "--threads", 1))


class Replies(Two):
    """The contents of replies."""

    def read(self, server, key, word=""):
        """The whole replies to the questions, in two rounds, without the parts that always differ:
        ids, times and nonces."""
        found = []
        for method, path, body in questions(word) * 2:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
            connection.request(method, path, body, {
                "Authorization": f"Bearer {key}", "Content-Type": "application/json"})
            with connection.getresponse() as reply:
                text = f"{reply.status} {reply.reason}\n{reply.headers}\n{reply.read().decode()}"
            connection.close()
            found.append((path, re.sub(
                r'"(id|item_id|created|created_at)":("[^"]*"|\d+)|nonce[-=]"?[0-9a-f]{32}|Date: [^\r\n]*', "", text)))
        return found

    def test_words(self):
        """No reply to a tenant contains a word or the name of another. The replies equal those of a
        server to which the other has sent nothing; with two keys of one tenant they differ."""
        def whole(found):  # a stream has its tokens in any number of chunks
            return [(path, text) for path, text in found if path != "/metrics" and "data: {" not in text]
        keys = (f"{WORD} key-{WORD}", "spy key-of-spy")
        want = whole(self.read(self.served(*keys), "key-of-spy"))
        server = self.served(*keys)
        own = self.read(server, f"key-{WORD}", WORD)
        self.assertGreater(sum(WORD in text for _, text in own), 15)
        found = self.read(server, "key-of-spy")
        for path, text in found + self.read(server, f"key-{WORD}-") + self.read(server, ""):
            self.assertNotIn(WORD.lower(), text.lower(), path)
        self.assertEqual(whole(found), want)
        server = self.served("spy key-of-spy", f"spy key-{WORD}")
        self.read(server, f"key-{WORD}", WORD)
        self.assertNotEqual(whole(self.read(server, "key-of-spy")), want)


# Reason of the skip: 1,000 pairs take minutes; ./dev test --full runs them.
@harness.unittest.skipUnless(FULL, "long tier: thousands of requests")
class Times(Two):
    """The time of the first token."""

    def judge(self, name, found):
        """The pairs in which the known prompt took longer, and the number of cached tokens; prints
        the measurements, with the interval of the median from the same test."""
        differences, usual, cached = found
        n, longer = len(differences), sum(d > 0 for d in differences)
        low, middle, high = (1e6 * differences[i] for i in (n - limit(n), n // 2, limit(n) - 1))
        print(f"{name}: {n} pairs, {longer} longer; median {usual * 1e3:.1f} ms, of the differences "
              f"{middle:+.0f} us ({low:+.0f} to {high:+.0f}); at most {cached} tokens cached")
        return longer, cached

    def test_tenants(self):
        """1,000 pairs cannot be distinguished; the same pairs with one tenant can."""
        longer, cached = self.judge("two tenants", measure(self.served(
            "victim key-of-victim", "spy key-of-spy"), PAIRS, 1))
        self.assertLess(max(longer, PAIRS - longer), limit(PAIRS))
        self.assertLess(cached, 8)  # common beginnings of the tenant's own prompts
        longer, cached = self.judge("one tenant, the control", measure(self.served(
            "both key-of-victim", "both key-of-spy"), CONTROLS, 2))
        self.assertGreaterEqual(CONTROLS - longer, limit(CONTROLS))
        self.assertEqual(cached, TOKENS - 1)

    def test_limit(self):
        """The limit is that of the binomial distribution."""
        for n in (CONTROLS, PAIRS):
            tail = [2 * sum(math.comb(n, i) for i in range(k, n + 1)) for k in (limit(n), limit(n) - 1)]
            self.assertLessEqual(tail[0], NEVER * 2**n)
            self.assertGreater(tail[1], NEVER * 2**n)


if __name__ == "__main__":
    if absent():
        print("this gqac was built without the server")
        sys.exit(77)
    sys.exit(harness.main())
