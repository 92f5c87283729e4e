"""A running `gqac serve`, for the tests that send requests to it."""

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from harness import GQAC, ROOT, SANITIZED, SANITIZER, Case, environment, gqac, write_ids

TINY = ROOT / "models" / "tiny-gqa"
SLOW = 10 if SANITIZED else 1
PROMPT = "She had been a very short time at home, when"
# A request to complete a text, without the length of its body; to use it, POST % (length, body).
POST_HEAD = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
             b"Content-Type: application/json\r\n")
POST = POST_HEAD + b"Content-Length: %d\r\n\r\n%s"
# Settings of a request, and the flags of `gqac generate` with the same meaning.
SETTINGS = [
    ({}, ()),
    ({"seed": 7}, ("--seed", 7)),
    ({"seed": 8, "temperature": 1.3, "top_p": 0.9},
     ("--seed", 8, "--temperature", 1.3, "--top-p", 0.9)),
    ({"seed": 9, "top_k": 20, "min_p": 0.05}, ("--seed", 9, "--top-k", 20, "--min-p", 0.05)),
    ({"temperature": 0, "presence_penalty": 0.5, "frequency_penalty": 0.25},
     ("--temperature", 0, "--presence-penalty", 0.5, "--frequency-penalty", 0.25)),
    ({"seed": 3, "repetition_penalty": 1.0, "logit_bias": {"262": 2.5, "13": -100}},
     ("--seed", 3, "--repetition-penalty", 1.0, "--logit-bias", "262=2.5", "--logit-bias",
      "13=-100")),
    ({"stop": [" and", "the"]}, ("--stop", " and", "--stop", "the")),
]


def words(seed, n):
    """A text of n words."""
    pick = random.Random(seed)
    return " ".join(pick.choice("she he was the of a home time long had Emma".split())
                    for _ in range(n))


def absent():
    """True if this gqac was built without the server."""
    return "has no server" in gqac("serve", "nothing").err


def events(text):
    """The JSON of a stream's events, without its comments and the final [DONE]."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


class Server:
    """One process; its errors and its log are written to a file."""

    def __init__(self, *args, model=TINY, env=None, tool=GQAC):
        self.log = tempfile.NamedTemporaryFile(prefix="gqac-serve-")
        words = [str(tool), "serve", str(model), "--port", "0", *map(str, args)]
        self.child = subprocess.Popen(words, stderr=self.log, stdout=subprocess.DEVNULL,
                                      env=environment(env))
        self.url = self.port = None
        self.await_ready()

    def await_ready(self):
        """Wait for "listening on URL"."""
        deadline = time.monotonic() + 60 * SLOW
        while not (match := re.search(r"^listening on (http://\S+:(\d+))$", self.errors(), re.M)):
            if self.child.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the server does not listen:\n{self.errors()}")
            time.sleep(0.005)
        self.url, self.port = match[1], int(match[2])

    def errors(self):
        """Its output on stderr."""
        return Path(self.log.name).read_text(errors="replace")

    def lines(self):
        """The log of its requests."""
        return [json.loads(line) for line in self.errors().splitlines() if line.startswith("{")]

    def stop(self, number=signal.SIGTERM):
        """Its exit code after a signal; a sanitizer report is an error."""
        if self.child.poll() is None:
            self.child.send_signal(number)
        code = self.child.wait(60 * SLOW)
        said = self.errors()
        for mark in SANITIZER:
            if mark in said:
                raise AssertionError(said[-4000:])
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self.log.close()

    def request(self, path, body=None, key=None, headers=None, seconds=60 * SLOW):
        """(status, JSON or text) of one request on a new connection."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        if key:
            sent["Authorization"] = f"Bearer {key}"
        asked = urllib.request.Request(self.url + path, data=data, headers=sent)
        try:
            with urllib.request.urlopen(asked, timeout=seconds) as reply:
                status, text = reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with contextlib.closing(error):
                status, text = error.code, error.read().decode()
        with contextlib.suppress(ValueError):
            text = json.loads(text)
        return status, text

    def good(self, path, body=None, **more):
        """The JSON of a request that must succeed."""
        status, reply = self.request(path, body, **more)
        if status != 200:
            raise AssertionError(f"{status} {reply}")
        return reply

    def metric(self, name):
        """A value of /metrics; 0 if it is missing."""
        text = self.request("/metrics")[1]
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
        return float(found[1]) if found else 0.0

    def await_metric(self, name, value, seconds=10):
        """Seconds until a metric reaches a value."""
        began = time.monotonic()
        while self.metric(name) != value:
            if time.monotonic() > began + seconds * SLOW:
                raise AssertionError(f"{name} is {self.metric(name)}, not {value}")
            time.sleep(0.002)
        return time.monotonic() - began

    def connect(self):
        """A plain socket."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30 * SLOW)

    def memory(self):
        """Resident bytes."""
        with open(f"/proc/{self.child.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Compared(Case):
    """Compares the replies of `self.server` with the command line."""

    def generate(self, prompt, *flags, n=16):
        """The JSON of the command line."""
        how = ("--prompt", prompt) if isinstance(prompt, str) else (
            "--ids", write_ids(self.dir / "ids", prompt))
        return self.good("generate", TINY, *how, "-n", n, "--format", "json", "--top-logprobs", 3,
                         *flags).json()

    def completion(self, prompt=PROMPT, most=16, **fields):
        """The JSON of a completion, with ids and log-probabilities."""
        return self.server.good("/v1/completions", {
            "prompt": prompt, "max_tokens": most, "return_token_ids": True, "logprobs": 3, **fields})

    def same(self, choice, want):
        """A choice has the same ids, text and bits of log-probabilities as the command line."""
        self.assertEqual(choice["token_ids"], want["ids"])
        self.assertEqual(choice["text"], want["text"])
        scores = choice["logprobs"]
        self.assertEqual(scores["token_logprobs"][-len(want["ids"]):],
                         [x["logprob"] for x in want["logprobs"]])
        for got, one in zip(scores["top_logprobs"][-len(want["ids"]):], want["logprobs"]):
            self.assertLessEqual({x["logprob"] for x in one["top"]}, set(got.values()))
