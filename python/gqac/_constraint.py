"""Constraints: which texts an answer may be."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from . import _declarations as c
from ._errors import UsageError
from ._library import Handle, call, encoded, json_text, make, out_pointer, text, wrong_type

if TYPE_CHECKING:
    from ._model import Model


def constraint(model: Model, grammar: str | None,
               json_schema: Mapping[str, Any] | bool | str | None) -> Handle | None:
    """Compiles a grammar or a schema for the tokens of a model; None: neither is given."""
    if grammar is not None and json_schema is not None:
        raise UsageError("grammar and json_schema cannot be combined", status="USAGE")
    if grammar is None and json_schema is None:
        return None
    import json
    if grammar is not None:
        function, given = "gqac_constraint_from_grammar", grammar
    else:
        function = "gqac_constraint_from_schema"
        try:
            given = json_schema if isinstance(json_schema, str) else json.dumps(json_schema)
        except TypeError:
            raise wrong_type("json_schema", json_schema, "a schema: a dict, True, False, or JSON as a "
                             "string") from None
    made, data = out_pointer(), encoded("grammar" if grammar is not None else "json_schema", given)
    with model.texts as texts:
        call(function, texts, data, len(data), ctypes.byref(made))
        return Handle("constraint", made, "gqac_constraint_free", model.texts)


def of_tools(model: Model, tools: Iterable[Mapping[str, Any]] | None,
             choice: str | Mapping[str, Any], parallel: bool) -> Handle | None:
    """Compiles the calls that an answer must have, or the limits of those that it may have; None:
    there are no limits.
    choice: "auto", "required", or {"type": "function", "function": {"name": ...}}."""
    offered = list(tools or ())
    function = choice.get("function") if isinstance(choice, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not (choice in ("auto", "required") or isinstance(name, str)):
        raise UsageError(f"tool_choice {choice!r} is unknown", status="USAGE",
                         hint='"auto", "none", "required" or {"type": "function", "function": '
                              '{"name": ...}}')
    if choice != "auto" and not offered:
        raise UsageError("tool_choice requires a call, but there are no tools", status="USAGE")
    if not offered:
        return None
    made, data = out_pointer(), json_text("tools", offered)
    chosen = text("tool_choice", name or None)
    wanted = make(c.gqac_tool_choice, name=chosen, parallel=parallel,
                  optional=choice == "auto")
    with model.texts as texts:
        call("gqac_constraint_from_tools", texts, data, len(data), ctypes.byref(wanted),
             ctypes.byref(made))
        return Handle("constraint", made, "gqac_constraint_free", model.texts) if made else None
