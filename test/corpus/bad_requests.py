"""Invalid requests to the server: schemas, grammars, tools, and HTTP headers.

A row has the request, and a word in the message of the answer; a row without a word is valid.
"""

from dataclasses import dataclass


@dataclass
class RequestRow:
    """One request. kind schema, grammar: the value of that field; tools: fields of a chat; head:
    HTTP bytes, with the expected status."""

    name: str
    kind: str
    word: str | None
    sent: object
    status: int = 400


ROWS = []


def add(kind, *rows):
    """Rows of (word, request) or (word, request, name)."""
    for word, sent, *name in rows:
        shown = (name[0] if name else str(sent)[:60]).replace("\n", "; ")
        ROWS.append(RequestRow(shown, kind, word, sent, 400 if word is not None else 200))


def nested(depth, key, inner):
    """An object nested in objects, depth times."""
    for _ in range(depth):
        inner = {key: inner}
    return inner


# ---- schemas -------------------------------------------------------------------------------------

EMPTY, SMALL, LARGE = "accepts no text", "counts are", "too large"
add("schema",
    ("type", {"type": "nothing"}), ("type", {"type": ["string", "nothing"]}), ("type", {"type": []}), ("type", {"type": 5}),
    ("type", {"type": None}), ("type", {"type": "String"}), ("$ref", {"$ref": "http://x"}), ("leads nowhere", {"$ref": "#/a"}),
    ("$ref", {"$ref": 7}), ("leads nowhere", {"$ref": "#/$defs/a", "$defs": {}}), (EMPTY, {"$ref": "#"}),
    (EMPTY, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
    ("anyOf", {"anyOf": []}), ("anyOf", {"anyOf": {}}), ("anyOf", {"anyOf": "x"}), ("schema", {"anyOf": [5]}),
    (EMPTY, {"enum": []}), ("enum", {"enum": {}}), ("enum", {"enum": 5}),
    ("minLength", {"type": "string", "minLength": -1}), ("minLength", {"type": "string", "minLength": "x"}),
    ("minLength", {"type": "string", "minLength": 1.5}), (EMPTY, {"type": "string", "minLength": 5, "maxLength": 3}),
    ("maxLength", {"type": "string", "maxLength": 10**12}), ("minLength", {"type": "string", "minLength": 10**8}),
    ("maxLength", {"type": "string", "maxLength": 131073}),
    ("pattern", {"type": "string", "pattern": "("}), ("pattern", {"type": "string", "pattern": "[z-a]"}),
    ("pattern", {"type": "string", "pattern": "^(?!a)"}), ("pattern", {"type": "string", "pattern": r"\1"}),
    ("pattern", {"type": "string", "pattern": r"\p{Han}"}), ("pattern", {"type": "string", "pattern": 5}),
    ("pattern", {"type": "string", "pattern": "a**"}), ("pattern", {"type": "string", "pattern": "\\"}),
    ("pattern", {"type": "string", "pattern": "a{2,1}"}),
    ("format", {"type": "string", "format": "nonsense"}), ("format", {"type": "string", "format": 5}),
    (EMPTY, {"type": "array", "minItems": 5, "maxItems": 2}), ("minItems", {"type": "array", "minItems": 1.5}),
    ("maxItems", {"type": "array", "maxItems": 99999999}), ("prefixItems", {"type": "array", "prefixItems": 3}),
    ("uniqueItems", {"type": "array", "uniqueItems": True}), ("contains", {"type": "array", "contains": {}}),
    ("required", {"type": "object", "required": ["a"], "properties": {}}), ("required", {"type": "object", "required": "a"}),
    ("required", {"type": "object", "required": [5], "properties": {"a": {}}}),
    ("properties", {"type": "object", "properties": []}), ("schema", {"type": "object", "properties": {"a": 5}}),
    ("minProperties", {"type": "object", "minProperties": 5}), ("patternProperties", {"patternProperties": {"(": {}}}),
    ("propertyNames", {"type": "object", "propertyNames": {"maxLength": 3}}),
    ("not", {"not": {}}), ("if", {"if": {}, "then": {}}), ("unknownkey", {"unknownkey": 1}),
    (EMPTY, {"type": "integer", "minimum": 5, "maximum": 3}), ("minimum", {"type": "integer", "minimum": "a"}),
    ("multipleOf", {"type": "number", "multipleOf": 0}), ("", {"type": "integer", "minimum": 1e300}),
    ("", {"type": "string", "maxLength": None}),
    ("", nested(300, "items", {}), "300 arrays in one another"), ("", nested(40, "not", {}), "40 times not"),
    (LARGE, {"enum": [str(i) * 9 for i in range(20000)]}, "20 000 values"),
    (LARGE, {"const": "x" * 200000}, "a text of 200 000 letters"),
    (LARGE, {"type": "string", "pattern": "(" * 60 + "a" * 4 + "){40}" * 60}, "repetitions in repetitions"))
add("schema", *((None, s) for s in (
    {"type": "string", "pattern": "(a*)*b"}, {"type": "string", "minLength": 2.0}, {"type": ["string", "null"]},
    {"type": "object", "properties": {}}, {"type": "array", "items": {"$ref": "#"}},
    {"enum": [1, "a", None, True]}, {"type": "integer", "minimum": -5, "maximum": 5},
    {"type": "string", "maxLength": 1000}, {"description": "x", "title": "y", "type": "boolean"},
    {"anyOf": [{"type": "string"}, {"type": "null"}]})))
# ---- grammars ------------------------------------------------------------------------------------

add("grammar",
    ("rule", "root"), ("grammar", "root ::="), ("literal", 'root ::= "a'), ("not defined", "root ::= a"),
    (EMPTY, "root ::= root"), (EMPTY, 'root ::= root "a"'), (EMPTY, 'root ::= "a" root'), (EMPTY, "root ::= a\na ::= b\nb ::= a"),
    ("group", 'root ::= ("a"'), ("part of a rule", 'root ::= "a")'), ("class", "root ::= ["), ("", "root ::= []"),
    ("range", "root ::= [z-a]"), ("class", "root ::= [a-"), ("repetition", 'root ::= "a"{'), ("maximum", 'root ::= "a"{2,1}'),
    ("repeated", 'root ::= "a"{99999999999}'), ("repeated", 'root ::= "a"{1000000}'), (LARGE, 'root ::= (("a"{1000}){1000}){1000}'),
    ("part of a rule", "root ::= *"), ("empty text", "root ::= |"), ("empty text", 'root ::= ""*'), ("empty text", 'root ::= (""*)*'),
    ("root", 'x ::= "a"'), ("twice", 'root ::= "a"\nroot ::= "b"'), ("digits", r'root ::= "\x"'), ("digits", r'root ::= "\u12"'),
    ("character", r'root ::= "\ud800"'), ("character", r'root ::= "\U00110000"'), ("escape", r'root ::= "\q"'), ("rule", 'root = "a"'),
    ("root", "# only"), ("rule", '1 ::= "a"'), ("root", 'Root ::= "a"'), ("begins with itself", 'root ::= (root? "a")*'),
    (LARGE, 'root ::= "' + "a" * 200000 + '"', "a literal of 200 000 letters"),
    (LARGE, "root ::= " + " | ".join(f'"{i}"' for i in range(50000)), "50 000 alternatives"),
    (LARGE, "root ::= " + '"a"? ' * 30000, "30 000 parts that may lack"), ("", "root ::= [a]" + "?" * 1000, "1000 question marks"),
    ("", "root ::= " + "(" * 100000, "100 000 brackets"), ("", 'root ::= "a"\0', "a NUL"))
add("grammar", *((None, g, g[:50]) for g in (
    'root ::= "a" |', "root ::= [^]", 'root ::= "a" # c', "root ::= .", 'root::="a"', r"root ::= [\x00-\U0010FFFF]",
    'root ::= "a" b\nb ::= "c" root?', "root ::= " + "(" * 400 + '"a"' + ")" * 400,
    "\n".join(["root ::= r0", *(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(60)), 'r60 ::= "a"']))))
# ---- tools ---------------------------------------------------------------------------------------


def function(**fields):
    """A tool."""
    return {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, **fields}}


FORCED = {"tool_choice": "required"}
for label, word, fields in (
        ("no list", "tools", {"tools": {}}), ("a text", "tools", {"tools": "x"}), ("a number", "tools", {"tools": [1]}),
        ("null in the list", "tools", {"tools": [None]}), ("an empty tool", "tools", {"tools": [{}]}),
        ("another type", "tools", {"tools": [{"type": "browser"}]}), ("no function", "tools", {"tools": [{"type": "function"}]}),
        ("a function that is a text", "tools", {"tools": [{"type": "function", "function": "f"}]}),
        ("no name", "name", {"tools": [{"type": "function", "function": {}}]}), ("a name that is a number", "name", {"tools": [function(name=5)]}),
        ("an empty name", "name", {"tools": [function(name="")]}), ("a name with a space", "name", {"tools": [function(name="a b")]}),
        ("a description that is a number", "description", {"tools": [function(description=5)]}), ("a name with a quote", "name", {"tools": [function(name='f"')]}),
        ("two tools of one name", "", {"tools": [function(), function()], **FORCED}),
        ("parameters that are a list", "parameters", {"tools": [function(parameters=[])], **FORCED}),
        ("parameters of no schema", "", {"tools": [function(parameters={"type": "nothing"})], **FORCED}),
        ("parameters that lead nowhere", "", {"tools": [function(parameters={"$ref": "#/x"})], **FORCED}),
        ("parameters that accept nothing", "", {"tools": [function(parameters={"enum": []})], **FORCED}),
        ("strict that is a text", "strict", {"tools": [function(strict="yes")]}),
        ("a choice without tools", "tool", {"tool_choice": "required"}), ("a choice that is a number", "tool_choice", {"tools": [function()], "tool_choice": 5}),
        ("a choice that is unknown", "tool_choice", {"tools": [function()], "tool_choice": "always"}),
        ("a choice of nobody", "tool_choice", {"tools": [function()], "tool_choice": {"type": "function", "function": {"name": "g"}}}),
        ("a choice without a name", "tool_choice", {"tools": [function()], "tool_choice": {"type": "function"}}),
        ("parallel calls that are a text", "parallel_tool_calls", {"tools": [function()], "parallel_tool_calls": "no"})):
    ROWS.append(RequestRow(label, "tools", word, fields))
for label, fields in (("flat", {"tools": [{"type": "function", "name": "f", "parameters": {}}]}),
                      ("no parameters", {"tools": [{"type": "function", "function": {"name": "f"}}]}),
                      ("nulls", {"tools": [function(description=None, parameters=None, strict=None)]}),
                      ("a dotted name", {"tools": [function(name="server.read-file_2")]}), ("none", {"tools": []})):
    ROWS.append(RequestRow(label, "tools", None, fields, 200))
# ---- heads ---------------------------------------------------------------------------------------

GET = b"GET /health HTTP/1.1\r\nHost: x\r\n"
BODY = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
for label, status, sent in (
        ("no version", 400, b"GET /health \r\nHost: x\r\n\r\n"), ("version 0.9", 505, b"GET /health HTTP/0.9\r\nHost: x\r\n\r\n"),
        ("version in small letters", 400, b"GET /health http/1.1\r\nHost: x\r\n\r\n"), ("a method of 5000 letters", 405, b"G" * 5000 + b" / HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("an empty method", 400, b" /health HTTP/1.1\r\nHost: x\r\n\r\n"), ("a tab", 400, b"GET\t/health\tHTTP/1.1\r\nHost: x\r\n\r\n"),
        ("another host behind a line", 400, GET + b"Host : x\r\n\r\n"), ("a line feed in a value", 400, GET + b"a: b\nc\r\n\r\n"),
        ("a carriage return in a value", 400, GET + b"a: b\rc\r\n\r\n"), ("a NUL in a value", 400, GET + b"a: \0\r\n\r\n"),
        ("a NUL in a name", 400, GET + b"a\0: b\r\n\r\n"), ("a name that is not ASCII", 400, GET + b"\xc3\xa9: b\r\n\r\n"),
        ("two lengths in one", 400, BODY + b"Content-Length: 1,1\r\n\r\nx"), ("a length in hexadecimal", 400, BODY + b"Content-Length: 0x10\r\n\r\n"),
        ("a length with a sign", 400, BODY + b"Content-Length: +1\r\n\r\nx"), ("an empty length", 400, BODY + b"Content-Length: \r\n\r\n"),
        ("two encodings", 400, BODY + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("an encoding twice", 501, BODY + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
        ("another encoding", 501, BODY + b"Transfer-Encoding: identity\r\n\r\n"),
        ("a chunk without a size", 400, BODY + b"Transfer-Encoding: chunked\r\n\r\n\r\n"), ("a chunk of spaces", 400, BODY + b"Transfer-Encoding: chunked\r\n\r\n 1\r\nx\r\n"),
        ("a chunk with a sign", 400, BODY + b"Transfer-Encoding: chunked\r\n\r\n+1\r\nx\r\n"),
        ("a chunk without its end", 400, BODY + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx0\r\n\r\n"),
        ("a body of another type", 415, b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\n{}")):
    ROWS.append(RequestRow(label, "head", "", sent, status))
