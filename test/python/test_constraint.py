#!/usr/bin/env python3
"""generate and chat with --grammar and --json-schema: the form of answers, and what is refused and
how.

    python test/python/test_constraint.py
"""

import json
import re
import subprocess
import sys

import harness
from harness import Case, gqac
from textmodel import copy_model

TINY = harness.ROOT / "models" / "tiny-gqa"
FINE = ("generate", TINY, "--prompt", "It was a fine day", "-q")
PERSON = {"type": "object", "required": ["name", "age"], "properties": {
    "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 1,
                                                         "maximum": 99}}}


class Constraint(Case):
    """The flags."""

    def write(self, name, text):
        """A file in the folder of the test."""
        path = self.dir / name
        path.write_text(text)
        return path

    def test_grammar(self):
        """From a file, inline and from stdin: the same answer, which the grammar accepts."""
        rules = 'root ::= word (" " word){3} "."\nword ::= [a-z]{1,6}  # short\n'
        path = self.write("short.gbnf", rules)
        flags = (*FINE, "-n", "60", "--temperature", "0.9", "--seed", "3", "--grammar")
        said = self.good(*flags, path).out
        self.assertRegex(said, r"^[a-z]{1,6}( [a-z]{1,6}){3}\.\n$")
        self.assertEqual(self.good(*flags, rules).out, said)
        with open(path, "rb") as file:
            self.assertEqual(self.good(*flags, "-", stdin=file).out, said)

    def test_schema(self):
        """JSON that satisfies the schema, and the end of the answer."""
        path = self.write("person.json", json.dumps(PERSON))
        flags = (*FINE, "-n", "90", "--format", "json", "--json-schema")
        said = self.good(*flags, path).json()
        person = json.loads(said["text"])
        self.assertEqual(list(person), ["name", "age"])
        self.assertTrue(len(person["name"]) <= 12 and 1 <= person["age"] <= 99)
        self.assertEqual(said["finish_reason"], "stop")
        cut = self.good(*FINE, "-n", "3", "--format", "json", "--json-schema",
                        json.dumps(PERSON)).json()
        self.assertEqual((cut["finish_reason"], cut["ids"]), ("length", said["ids"][:3]))

    def test_drafts(self):
        """With drafts of a second model, to which the grammar also applies, the answer is the
        same."""
        flags = (*FINE, "-n", "60", "--format", "json", "--seed", "5", "--temperature", "0.5",
                 "--grammar", 'root ::= (" " [a-m]+){5,} "."')
        want = self.good(*flags).json()
        for _ in range(5):  # the number of drafts depends on the times of a busy machine
            found = self.good(*flags, "--speculate", "5", "--draft",
                              harness.ROOT / "models" / "tiny-gqa-int4").json()
            self.assertEqual((found["ids"], found["text"]), (want["ids"], want["text"]))
            if found["metrics"]["accepted_tokens"] > 3:  # without the mask: 1 or 2
                return
        self.fail("drafts of the second model are hardly ever accepted")

    def test_chat(self):
        """The constraint applies to every turn from its beginning."""
        words = [str(harness.GQAC), "chat", str(TINY), "-q", "--grammar", 'root ::= "yes" | "no"']
        done = subprocess.run(words, input="Is it?\nAnd now?\n", stdout=subprocess.PIPE, text=True,
                              env=harness.environment(), check=True, timeout=120)
        self.assertTrue(re.fullmatch(r"((yes|no)\n){2}", done.stdout), done.stdout)

    def test_refused(self):
        """Invalid flags are exit 2, keywords 3, invalid grammars 4, missing files 5."""
        wrong = self.write("wrong.gbnf", "root ::= word\n")
        self.check(gqac(*FINE, "--grammar", wrong), 4, "'word' is not defined", "wrong.gbnf", "line 1")
        self.check(gqac(*FINE, "--json-schema", '{"items": {"multipleOf": 2}}'), 3,
                   "keyword 'multipleOf'", "#/items")
        self.check(gqac(*FINE, "--json-schema", '{"$ref": "#"}'), 4, "accepts no text")
        self.check(gqac(*FINE, "--json-schema", "{}", "--grammar", wrong), 2, "cannot be combined")
        self.check(gqac("generate", TINY, "--prompt", "-", "--grammar", "-"), 2, "standard input")
        self.check(gqac("chat", TINY, "--grammar", "-"), 2, "standard input")
        self.check(gqac(*FINE, "--grammar", self.dir / "none"), 5, "none", "does not contain ::=")
        self.check(gqac(*FINE, "--json-schema", "[]"), 5, "try:   a file that exists, or a schema")
        ids = harness.write_ids(self.dir / "ids.txt", [5, 6])
        bare = copy_model(self.dir / "bare", drop=("tokenizer.json",))
        self.check(gqac("generate", bare, "--ids", ids, "--grammar", 'root ::= "a"'), 2,
                   "no tokenizer")


if __name__ == "__main__":
    sys.exit(harness.main())
