#!/usr/bin/env python3
"""gqac serve with invalid requests: each is answered with an error that explains it, the server
continues, and its memory does not grow.

    python test/python/test_serve_bad.py
"""

import datetime
import email.utils
import http.client
import json
import socket
import sys
import time

import harness
from harness import Case, FULL, SANITIZED
from serving import POST, POST_HEAD, Server, absent

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Hello"}]
TYPES = [True, "x", {}, [1], 1.5, -1, 1e300, "\u00e9", [[]]]
# field: invalid values
FIELDS = {
    "max_tokens": ["x", {}, [], 1.5, -1, 10**10, 1e300, True],
    "temperature": ["x", {}, [], -0.1, 1e300, True],
    "top_p": ["x", 0, 1.1, -1, []],
    "min_p": ["x", -0.1, 1.1],
    "top_k": ["x", -2, 1.5, 2**40],
    "seed": ["x", 1.5, [], {}],
    "n": [0, -1, 65, "x", 1.5, 10**15],
    "stop": [1, [1], {}, "", [""], ["x"] * 17, "x" * 1001, [["x"]]],
    "stream": ["x", 1, [], "true"],
    "stream_options": [1, "x", []],
    "logit_bias": [1, "x", [], {"x": 1}, {"-1": 1}, {"512": 1}, {"1": "x"}, {"": 1}, {" 1": 1}, {"-0": 1},
                   {"99999999999999999999": 1}],
    "presence_penalty": ["x", 1e9, []],
    "frequency_penalty": ["x", -1e9],
    "repetition_penalty": ["x", 0, -1],
    "ignore_eos": [1, "x"],
    "verify_cache": [1, "x"],
    "return_token_ids": [1],
    "cache_salt": [1, "x" * 129],
    "model": [1, {}, "x" * 1001],
    "response_format": [{"type": "json_schema"}, {"type": "xml"}, {}, "text", 1,
                        {"type": "json_schema", "json_schema": {"schema": {"not": {}}}},
                        {"type": "json_schema", "schema": {"$ref": "#"}},
                        {"type": "json_schema", "schema": {"minItems": 10**12, "type": "array"}}],
    "grammar": ["root ::= x", "x", 1, "root ::= " + "(" * 100000, 'root ::= "a"{99999}{99999}'],
    "json_schema": [1, {"type": "x"}, {"enum": [str(i) * 9 for i in range(20000)]}, {"enum": []},
                    {"properties": {"a": {"pattern": "(?=x)"}}}],
    "suffix": ["x"],
    "best_of": [2],
    "guided_json": [{}],
    "prediction": [{"type": "content"}],
    "function_call": [{"name": "x"}],
    "functions": [[{"name": "x"}]],
    "audio": [{}],
}
OF_TEXT = [{}, {"prompt": None}, {"prompt": 1}, {"prompt": {}}, {"prompt": []}, {"prompt": [[]]},
           {"prompt": [-1]}, {"prompt": [512]}, {"prompt": [10**18]}, {"prompt": [1.5]},
           {"prompt": ["x", 1]}, {"prompt": [1, "x"]}, {"prompt": [[1], "x", [[2]]]},
           {"prompt": [1] * 1281}, {"prompt": "word " * 1500}, {"prompt": ["x"] * 257},
           {"prompt": "x", "logprobs": True}, {"prompt": "x", "logprobs": 21},
           {"prompt": "x", "echo": "yes"}]
OF_CHAT = [{}, {"messages": 1}, {"messages": []}, {"messages": [1]}, {"messages": [{}]},
           {"messages": [{"role": "user"}]}, {"messages": [{"role": 1, "content": "x"}]},
           {"messages": [{"role": "user", "content": 1}]},
           {"messages": [{"role": "user", "content": [1]}]},
           {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
           {"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]},
           {"messages": HELLO, "logprobs": 1}, {"messages": HELLO, "top_logprobs": 1},
           {"messages": HELLO, "tools": {}}, {"messages": HELLO, "tool_choice": "required"},
           {"messages": HELLO, "tools": [1], "tool_choice": "required"},
           {"messages": HELLO, "tool_choice": {"type": "function"}},
           {"messages": HELLO, "chat_template_kwargs": []},
           {"messages": HELLO, "max_completion_tokens": 0},
           {"messages": [{"role": "assistant", "tool_calls": [{"function": {
               "name": "x", "arguments": '{"a": [' + "1," * 250000 + "1]}"}}] * 2}]}]
OF_RESPONSE = [{"input": "x", "response_format": {"type": "json_object"}}, {}, {"input": 1}, {"input": []}, {"input": [1]}, {"input": [{"role": "user"}]},
               {"input": [{"type": "function_call", "role": "x", "content": "x"}]},
               {"input": "x", "instructions": 1}, {"input": "x", "store": True},
               {"input": "x", "previous_response_id": "x"}, {"input": "x", "include": ["x"]},
               {"input": "x", "max_output_tokens": 0}, {"input": "x", "n": 2},
               {"input": "x", "text": {"format": {"type": "json_schema"}}},
               {"input": "x", "background": True}, {"input": "x", "conversation": "x"}]
BODIES = [b"", b"x", b"{", b"}", b"[]", b"1", b'"x"', b"null", b"{'prompt': 1}", b'{"prompt": "x"',
          b'{"prompt": "x"} x', b'{"prompt": "\xff"}', b'{"prompt": "\xc3\x28"}',
          b'{"prompt": "\\ud800"}', b'{"prompt": "\\u0000"}', b'{"prompt": "a\x00b"}',
          b'{"prompt": "x", "prompt": "y"}', b'{"prompt": NaN}', b'{"prompt": 1e999}',
          b'{"max_tokens": 99999999999999999999999, "prompt": "x"}', b"\xef\xbb\xbf{}", b"\x00" * 99,
          b"[" * 100000, b'{"a":' * 100000, b"[" * 65 + b"]" * 65,
          b'{"prompt": [' + b"1," * 450000 + b"1]}", b'{"a": "' + b"x" * 9000000 + b'"}']
LINE = b"GET /health HTTP/1.1\r\nHost: x\r\n"
# bytes, and the first word of the expected status
RAW = [
    (b"\r\n\r\nGET\r\n\r\n", 400), (b"x\r\n\r\n", 400), (b"GET /health\r\n\r\n", 400),
    (b"GET  /health HTTP/1.1\r\n\r\n", 400), (b"GET /health HTTP/2.0\r\nHost: x\r\n\r\n", 505),
    (b"GET /health HTTP/1.1 \r\nHost: x\r\n\r\n", 505), (b"GET health HTTP/1.1\r\n\r\n", 400),
    (b"GET /hea\x01lth HTTP/1.1\r\n\r\n", 400), (b"G\x00T /health HTTP/1.1\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\n\r\n", 400), (b"GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (LINE + b"Host: y\r\n\r\n", 400), (LINE + b" folded: x\r\n\r\n", 400), (LINE + b"x\r\n\r\n", 400),
    (LINE + b": x\r\n\r\n", 400), (LINE + b"a b: x\r\n\r\n", 400), (LINE + b"a: \x01\r\n\r\n", 400),
    (LINE + b"a: " + b"x" * 40000 + b"\r\n\r\n", 431), (LINE + b"a: b\r\n" * 101 + b"\r\n", 431),
    (LINE + b"a: b\r\n" * 9000 + b"\r\n", 431), (b"GET /" + b"x" * 40000, 431),
    (LINE + b"Expect: magic\r\nContent-Length: 3\r\n\r\n", 417),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", 400),
    (POST_HEAD + b"Content-Length: x\r\n\r\n", 400), (POST_HEAD + b"Content-Length: -1\r\n\r\n", 400),
    (POST_HEAD + b"Content-Length: 1, 2\r\n\r\n", 400),
    (POST_HEAD + b"Content-Length: 99999999999999999999\r\n\r\n", 400),
    (POST_HEAD + b"Content-Length: 9999999999\r\n\r\n", 413),
    (POST_HEAD + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400),
    (POST_HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    (POST_HEAD + b"Transfer-Encoding: gzip\r\n\r\n", 501),
    (POST_HEAD + b"Transfer-Encoding: chunked\r\n\r\nx\r\n", 400),
    (POST_HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", 400),
    (POST_HEAD + b"Transfer-Encoding: chunked\r\n\r\n0x10\r\n" + b"x" * 16 + b"\r\n0\r\n\r\n", 400),
    (POST_HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 40000, 431),
    (POST_HEAD.replace(b"Content-Type", b"X") + b"Content-Length: 2\r\n\r\n{}", 415),
    # answered before the body arrives
    (POST_HEAD.replace(b"/json", b"/x") + b"Content-Length: 2000\r\n\r\n", 415),
    (POST_HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", 413),
    (POST_HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 400),
    (POST_HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nxyz\r\n", 400),
    (POST_HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" + b"a: b\r\n" * 9000, 431),
    (b"DELETE /health HTTP/1.1\r\nHost: x\r\n\r\n", 405), (b"GET /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
    (b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 404),
    (b"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", 404), (b"OPTIONS / HTTP/1.1\r\nHost: x\r\n\r\n", 405), (b"OPTIONS /x HTTP/1.1\r\nHost: x\r\n\r\n", 404),
]


class Bad(Case):
    """Tests that share one server."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--threads", 1, "--per-peer", 40)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def alive(self):
        """The server still returns the same answer."""
        reply = self.server.good(TEXT, {"prompt": "She had been", "max_tokens": 12})
        self.assertEqual(reply["choices"][0]["text"], " spoken of, and the first")

    def is_error(self, status, text, what):
        """A 4xx (or 5xx of HTTP itself) with a message."""
        self.assertIn(status, (400, 404, 405, 408, 413, 415, 417, 429, 431, 501, 505), what)
        error = json.loads(text)["error"]
        self.assertGreater(len(error["message"]), 8, what)
        self.assertIn("type", error)

    def bodies(self):
        """(path, body) of every invalid request that is valid HTTP."""
        for name, values in FIELDS.items():
            for value in values:
                yield TEXT, {"prompt": "x", "max_tokens": 1, name: value}
            yield CHAT, {"messages": HELLO, "max_tokens": 1, name: values[0]}
        for body in OF_TEXT:
            yield TEXT, body
        for body in OF_CHAT:
            yield CHAT, body
        for body in OF_RESPONSE:
            yield "/v1/responses", body
        for body in BODIES:
            yield TEXT, body
        for path, fields in (("/tokenize", ("content",)), ("/detokenize", ("tokens",)),
                             ("/apply-template", ("messages",))):
            for value in (None, 1, {}, [[]], ["x"], [-1], [10**18]):
                yield path, {field: value for field in fields}

    def test_bodies(self):
        """Every invalid body, on reused connections; memory does not grow."""
        cases = [(path, body if isinstance(body, bytes) else json.dumps(body).encode())
                 for path, body in self.bodies()]
        self.assertGreater(len(cases), 150)
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        sizes = []
        for again in range(200 if FULL else 9):
            for path, body in cases:
                if again > 1 and len(body) > 9999:
                    continue
                connection.request("POST", path, body, {"Content-Type": "application/json"})
                reply = connection.getresponse()
                self.is_error(reply.status, reply.read(), (path, body[:200]))
            sizes.append(self.server.memory())
        connection.close()
        print("resident:", *(size >> 10 for size in sizes[::40 if FULL else 1]), "KiB")
        if not SANITIZED:
            self.assertLess(sizes[-1] - sizes[3], 256 << 10)
        self.alive()
        print(f"{len(cases)} wrong bodies")

    def test_contents(self):
        """Messages about contents name the field of the request and the item in it."""
        wrong = {"role": "user", "content": 1}
        parts = [{"type": "text", "text": "x"}, {"type": "text"}]
        image = [{"type": "image_url", "image_url": {"url": "x"}}]
        call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
        result = {"type": "function_call_output", "call_id": "c"}
        other = "must have the type 'text', the only one that this server supports, and a 'text'"
        for field, value, text in (
                ("messages", [], "'messages' must be a list of at least one message"),
                ("messages", [*HELLO, {}], "item 1 of 'messages' must be an object with a 'role'"),
                ("messages", [*HELLO, wrong],
                 "the content of item 1 of 'messages' must be a string or a list of parts"),
                ("messages", [{**wrong, "content": parts}],
                 "part 1 of the content of item 0 of 'messages' " + other),
                ("input", [], "'input' must have at least one item"),
                ("input", [*HELLO, {"role": 1, "content": "x"}],
                 "item 1 of 'input' must be a message with 'role' and 'content'"),
                ("input", [call, {**result, "output": image}],
                 "part 0 of the content of item 1 of 'input' " + other),
                ("input", [*HELLO, call, {**result, "output": "x"}, wrong],
                 "the content of item 3 of 'input' must be a string or a list of parts")):
            path = CHAT if field == "messages" else "/v1/responses"
            bodies = [{field: value}]
            if field == "input" and value:
                bodies.append({field: value, "instructions": "x"})
            for body in bodies:
                status, reply = self.server.request(path, body)
                error = reply["error"]
                self.assertEqual((status, error["param"], error["message"]), (400, field, text))

    def answer(self, sent, close=False):
        """The answer to some bytes, until the server closes the connection."""
        with self.server.connect() as s:
            try:
                s.sendall(sent)
                if close:
                    s.shutdown(socket.SHUT_WR)
                text = b""
                while part := s.recv(65536):
                    text += part
            except ConnectionError:
                pass
            return text

    def test_raw(self):
        """Bytes that are not HTTP, or incomplete: an error, and the connection is closed."""
        for sent, status in RAW:
            with self.subTest(sent=sent[:80]):
                text = self.answer(sent, close=status in (404, 405))
                head, _, body = text.partition(b"\r\n\r\n")
                self.assertEqual(head.split()[:2], [b"HTTP/1.1", b"%d" % status])
                allowed = b"POST" if b"/v1/" in sent else b"GET, HEAD"
                self.assertEqual(b"\r\nAllow: " + allowed + b"\r\n" in head + b"\r\n", status == 405)
                self.is_error(status, body, sent[:80])
                self.has_date(head)
        self.alive()

    def has_date(self, head):
        """Exactly one Date header, with the present time."""
        dates = [line for line in head.split(b"\r\n") if line.startswith(b"Date:")]
        self.assertEqual(len(dates), 1, head)
        text = dates[0].decode().removeprefix("Date: ")
        at = datetime.datetime.strptime(text, "%a, %d %b %Y %H:%M:%S GMT")
        self.assertEqual(text, email.utils.format_datetime(at.replace(tzinfo=datetime.timezone.utc), usegmt=True))
        now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
        self.assertLess(abs((now - at).total_seconds()), 60)

    def test_date(self):
        """Replies have a date: whole ones, streams, those without a body."""
        stream = b'{"prompt": "x", "max_tokens": 1, "stream": true}'
        for sent in (LINE, LINE.replace(b"GET", b"HEAD"), LINE.replace(b"/health", b"/"),
                     POST_HEAD + b"Content-Length: %d\r\n" % len(stream)):
            body = stream if b"POST" in sent else b""
            self.has_date(self.answer(sent + b"Connection: close\r\n\r\n" + body).partition(b"\r\n\r\n")[0])

    def test_too_big(self):
        """The field is named, not one with a greater decimal number; so is a byte order mark."""
        status, reply = self.server.request("/v1/completions", b'\xef\xbb\xbf{"prompt": "x"}')
        self.assertEqual(status, 400)
        self.assertIn("byte order mark", reply["error"]["message"])
        status, reply = self.server.request(
            "/v1/completions", b'{"prompt": "x", "a": [1e300], "seed": {"b": [1, -99999999999999999999]}}')
        self.assertEqual((status, reply["error"]["param"]), (400, "seed"))

    def test_half_closed(self):
        """A client that closes its side: complete requests are answered, the rest is refused."""
        body = json.dumps({"prompt": "I", "max_tokens": 1200, "ignore_eos": True}).encode()
        whole = POST % (len(body), body)
        for sent, status in ((LINE + b"\r\n", 200), (LINE, 400), (whole[:-1], 400), (whole, 499),
                             (b"G", 400)):
            text = self.answer(sent, close=True)
            self.assertEqual(text.split()[1], b"%d" % status, sent[:60])
        self.assertEqual(self.answer(b"", close=True), b"")
        self.server.await_metric("gqac_requests_running", 0)
        self.alive()

    def test_pipelined(self):
        """Requests that are sent before their answers are all answered, in order."""
        ask = b'{"prompt": "x", "max_tokens": %d}'
        sent = b""
        for n in (1, 2, 3):
            body = ask % n
            sent += LINE + b"\r\n" + POST % (len(body), body)
        with self.server.connect() as s:
            s.sendall(sent + LINE + b"Connection: close\r\n\r\n")
            text = b""
            while part := s.recv(65536):
                text += part
        self.assertEqual(text.count(b"HTTP/1.1 200 OK"), 7)
        found = [json.JSONDecoder().raw_decode(part.decode())[0]
                 for part in text.split(b"\r\n\r\n")[1:]]
        self.assertEqual([x["usage"]["completion_tokens"] for x in found if "usage" in x], [1, 2, 3])

    def test_chunked(self):
        """A chunked body, sent slowly."""
        body = b'{"prompt": "x", "max_tokens": 1}'
        with self.server.connect() as s:
            s.sendall(POST_HEAD + b"Transfer-Encoding: chunked\r\nConnection: close\r\n"
                                  b"Expect: 100-continue\r\n\r\n")
            self.assertEqual(s.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
            for at in range(0, len(body), 7):
                part = body[at:at + 7]
                s.sendall(b"%x;a=b\r\n%s\r\n" % (len(part), part))
                time.sleep(0.001)
            s.sendall(b"0\r\nTrailer: x\r\n\r\n")
            self.assertIn(b" 200 OK", s.recv(65536))
        body = b'{"prompt": "x", "max_tokens": 1}' + b" " * 12000
        sent = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
        head = POST_HEAD + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        self.assertIn(b" 200 OK", self.answer(head + sent))

    def test_crowd(self):
        """More connections from one address than allowed are refused, and the others work."""
        crowd = [self.server.connect() for _ in range(45)]
        try:
            refused = 0
            for s in crowd:
                s.setblocking(False)
            time.sleep(0.05)
            for s in crowd:
                try:
                    refused += s.recv(100).startswith(b"HTTP/1.1 429")
                except BlockingIOError:
                    pass
            self.assertEqual(refused, 5)
            crowd[0].setblocking(True)
            crowd[0].sendall(LINE + b"\r\n")
            self.assertIn(b"200 OK", crowd[0].recv(1000))
        finally:
            for s in crowd:
                s.close()
        self.alive()

    @harness.unittest.skipUnless(FULL, "long tier: waits for deadlines")
    def test_slow(self):
        """A header or a body that does not arrive in time is refused, however slowly it is sent."""
        for sent in (LINE, POST_HEAD + b"Content-Length: 1000\r\n\r\n"):
            with self.server.connect() as s:
                s.settimeout(1)
                began, text = time.monotonic(), b""
                s.sendall(sent)
                while not text and time.monotonic() < began + 60:
                    s.sendall(b"x")
                    try:
                        text = s.recv(1000)
                    except TimeoutError:
                        pass
                self.assertIn(b" 408 ", text)
                self.assertLess(time.monotonic() - began, 40)
        self.alive()


if __name__ == "__main__":
    if absent():
        print("this gqac was built without the server")
        sys.exit(77)
    sys.exit(harness.main())
