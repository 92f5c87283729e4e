#!/usr/bin/env python3
"""Invalid schemas, grammars, tools and HTTP headers, all sent to one server: each is answered with
its status and a message that contains the word, within a second of CPU time, and the answers of the
server stay the same.

    python test/python/test_bad_requests.py [--show]

test/corpus/bad_requests.py explains the rows.
"""

import http.client
import json
import sys

import badrows
import harness
from harness import Case, ROOT
from serving import SLOW, Server, absent

sys.path.insert(0, str(ROOT / "test" / "corpus"))
import bad_requests  # noqa: E402  (needs the path)

LEAST_ROWS = 150
TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
EVERY = 1 if harness.FULL else 20  # number of rows after which the answer is compared


class BadRequests(Case):
    """One server for all."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--threads", 1)
        cls.connection = http.client.HTTPConnection("127.0.0.1", cls.server.port, timeout=60)

    @classmethod
    def tearDownClass(cls):
        cls.connection.close()
        assert cls.server.stop() == 0

    def post(self, path, body):
        """(status, JSON) of a request on a connection that all requests use."""
        self.connection.request("POST", path, json.dumps(body).encode(),
                                {"Content-Type": "application/json"})
        reply = self.connection.getresponse()
        return reply.status, json.loads(reply.read())

    def raw(self, sent):
        """(status, JSON) of the answer to these bytes."""
        with self.server.connect() as s:
            s.sendall(sent)
            reply = http.client.HTTPResponse(s)
            reply.begin()
            return reply.status, json.loads(reply.read())

    def ask(self, row):
        """(status, JSON) of the answer to a row."""
        if row.kind == "head":
            return self.raw(row.sent)
        if row.kind == "tools":
            return self.post(CHAT, {"messages": [{"role": "user", "content": "Go"}],
                                    "max_tokens": 1, **row.sent})
        name = "json_schema" if row.kind == "schema" else row.kind
        return self.post(TEXT, {"prompt": "x", "max_tokens": 1, name: row.sent})

    def answer(self):
        """An answer that must not change: free, and under a schema."""
        free = {"prompt": "She had been", "max_tokens": 8}
        return [self.post(TEXT, body)[1]["choices"][0]["text"]
                for body in (free, {**free, "json_schema": {"type": "array"}})]

    def test_rows(self):
        """Every row, with comparisons of the answer in between."""
        badrows.check_names(self, bad_requests.ROWS, LEAST_ROWS)
        expected = self.answer()
        for i, row in enumerate(bad_requests.ROWS):
            before = harness.worked(self.server.child)
            status, reply = self.ask(row)
            took = harness.worked(self.server.child) - before
            with self.subTest(row.name, kind=row.kind):
                self.assertEqual(status, row.status, reply)
                self.assertLess(took, 100 * SLOW)
                if status != 200:
                    error = reply["error"]
                    self.assertGreater(len(error["message"]), 8)
                    self.assertIn(row.word.lower(),
                                  (error["message"] + str(error.get("param"))).lower())
            if i % EVERY == 0:
                self.assertEqual(self.answer(), expected, row.name)
        self.assertEqual(self.answer(), expected)


def show():
    """Prints every answer."""
    BadRequests.setUpClass()
    case = BadRequests("test_rows")
    for row in bad_requests.ROWS:
        status, reply = case.ask(row)
        error = reply.get("error") or {}
        good = status == row.status and (
            status == 200 or row.word.lower() in (error["message"] + str(error.get("param"))).lower())
        print("ok " if good else "BAD", f"{row.kind}: {row.name} -> {status}",
              error.get("message", "")[:200], error.get("param"))
    BadRequests.tearDownClass()


if __name__ == "__main__":
    if absent():
        print("skipped: built without the server")
        sys.exit(77)
    badrows.main(show)
