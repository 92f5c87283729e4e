#!/usr/bin/env python3
"""gqac serve: what clients of streams receive while nothing is ready, and how they receive errors.

    python test/python/test_serve_streams.py
"""

import concurrent.futures
import contextlib
import json
import signal
import sys
import time

import harness
import openai
from harness import Case
from serving import POST, SLOW, Server, absent, events

SHORT = {"prompt": "She had been", "max_tokens": 9}
LONG = {"prompt": "I", "max_tokens": 1200, "ignore_eos": True, "n": 63, "temperature": 1}
HELLO = [{"role": "user", "content": "Hello"}]


class Streams(Case):
    """Servers with one place, which a request can occupy as long as necessary."""

    def serve(self, *args):
        """(server, official client)."""
        server = self.enterContext(Server("--target", "ref", "--parallel", 1, *args))
        return server, self.enterContext(openai.OpenAI(
            base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=20 * SLOW))

    def send(self, server, body):
        """A socket that has sent a completion request; the connection ends after its reply."""
        data = json.dumps(body).encode()
        s = self.enterContext(contextlib.closing(server.connect()))
        s.sendall(POST.replace(b"HTTP/1.1", b"HTTP/1.0") % (len(data), data))
        return s

    def occupy(self, server):
        """A socket; until it is closed, other requests wait."""
        s = self.send(server, LONG)
        server.await_metric("gqac_requests_running", 1)
        return s

    def rest(self, s):
        """The rest that is sent."""
        return b"".join(iter(lambda: s.recv(65536), b""))

    def test_waiting(self):
        """A stream that has nothing to send: its header and a comment within two seconds, then a
        comment every two seconds. The client of OpenAI's API gets the same answer as without
        waiting."""
        server, client = self.serve()
        asks = [lambda: "".join(c.choices[0].text for c in client.completions.create(
                    model="x", **SHORT, stream=True)),
                lambda: "".join(c.choices[0].delta.content or "" for c in client.chat.completions.create(
                    model="x", messages=HELLO, max_tokens=9, stream=True)),
                lambda: "".join(e.delta for e in client.responses.create(
                    model="x", input="Hello", max_output_tokens=9, stream=True)
                                if e.type == "response.output_text.delta")]
        wants = [ask() for ask in asks]
        blocking = self.occupy(server)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            answers = [pool.submit(ask) for ask in asks]
            whole, stream = self.send(server, SHORT), self.send(server, {**SHORT, "stream": True})
            began, text, times = time.monotonic(), b"", []
            while len(times) < 4:
                part = stream.recv(65536)
                self.assertTrue(part, "the stream has ended")
                text += part
                times += [time.monotonic() - began] * part.count(b": ping\n\n")
            head, _, body = text.partition(b"\r\n\r\n")
            self.assertTrue(head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"))
            self.assertEqual(body, b": ping\n\n" * 4)
            self.assertLess(times[0], 2.5 * SLOW)
            for before, after in zip(times, times[1:]):
                self.assertGreater(after - before, 0.5)
                self.assertLess(after - before, 1.8 * SLOW)
            blocking.close()
            self.assertEqual([answer.result() for answer in answers], wants)
        found = events((body + self.rest(stream)).decode())
        self.assertEqual("".join(event["choices"][0]["text"] for event in found), wants[0])
        self.assertEqual(json.loads(self.rest(whole).partition(b"\r\n\r\n")[2])["choices"][0]["text"],
                         wants[0])

    def test_left(self):
        """A client that disconnects while its stream has only comments frees its place."""
        server, _ = self.serve()
        blocking = self.occupy(server)
        stream = self.send(server, {**SHORT, "stream": True})
        text = b""
        while b": ping" not in text:
            text += stream.recv(65536)
        waiting = server.metric("gqac_requests_waiting")
        stream.close()
        server.await_metric("gqac_requests_waiting", waiting - 1)
        blocking.close()
        server.await_metric("gqac_requests_running", 0)
        self.assertEqual([x["status"] for x in server.lines()].count(499), 2)

    def test_error_after(self):
        """An error after the header is an event, which the official client raises, with every
        endpoint."""
        server, client = self.serve()
        self.occupy(server)
        asks = [lambda: client.completions.create(model="x", **SHORT, stream=True),
                lambda: client.chat.completions.create(model="x", messages=HELLO, stream=True),
                lambda: client.responses.create(model="x", input="Hello", stream=True)]
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            streams = list(pool.map(lambda ask: ask(), asks))  # their headers have arrived
        whole = self.send(server, SHORT)
        server.child.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        server.child.send_signal(signal.SIGTERM)  # ends what runs and waits
        for stream in streams:
            with stream, self.assertRaises(openai.APIError) as caught:
                list(stream)
            self.assertEqual((caught.exception.code, caught.exception.type), ("stopping", "server_error"))
        self.assertTrue(self.rest(whole).startswith(b"HTTP/1.1 503 "))

    def test_error_before(self):
        """An error before the header has its status; 429 says when to try again."""
        _, client = self.serve("--queue", 1)
        with self.assertRaises(openai.BadRequestError):
            client.completions.create(model="x", prompt="x", stream=True, temperature=-1)

        def ask(_):
            try:
                with client.completions.create(model="x", prompt="I", max_tokens=1200, stream=True,
                                               extra_body={"ignore_eos": True}) as stream:
                    return len(list(stream)) > 1
            except openai.RateLimitError as error:
                return error
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = list(pool.map(ask, range(8)))
        self.assertIn(True, found)
        errors = [error for error in found if error is not True]
        self.assertTrue(errors)
        for error in errors:
            self.assertEqual((error.code, error.response.headers["Retry-After"]), ("busy", "1"))
        with Server("--memory-budget", 2) as small, openai.OpenAI(
                base_url=small.url + "/v1", api_key="none", max_retries=0) as client:
            with self.assertRaises(openai.InternalServerError) as caught:
                client.completions.create(model="x", prompt=[7] * 1000, max_tokens=2, stream=True)
            self.assertEqual((caught.exception.status_code, caught.exception.code), (503, "CAPACITY"))

    def test_error_of_one(self):
        """An error in one choice ends the others, whose answers would not be returned."""
        rules = 'root ::= "b" [a-z ]{900} | "ca" x0\nx16 ::= "z"\n' + "".join(
            f'x{i} ::= "a" x{i + 1} "b" | "a" x{i + 1} "c"\n' for i in range(16))  # too ambiguous
        for stream in (False, True):
            with Server() as server:
                status, reply = server.request("/v1/completions", {
                    "prompt": "hi", "n": 8, "max_tokens": 400, "temperature": 3, "seed": 3,
                    "grammar": rules, "stream": stream})
                self.assertEqual(status, 200 if stream else 400)
                self.assertIn("too ambiguous", str(reply))
                server.await_metric("gqac_requests_running", 0)
                self.assertLess(server.metric("gqac_new_tokens_total"), 1000)  # of more than 2000


if __name__ == "__main__":
    if absent():
        print("this gqac was built without the server")
        sys.exit(77)
    sys.exit(harness.main())
