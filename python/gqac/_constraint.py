"""Constraints: which texts an answer may be."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._errors import UsageError
from ._library import Handle, call, out_pointer

if TYPE_CHECKING:
    from ._model import Model


def constraint(model: Model, grammar: str | None,
               json_schema: Mapping[str, Any] | bool | str | None) -> Handle | None:
    """Compiles a grammar or a schema for the tokens of a model; None: neither is given."""
    if grammar is not None and json_schema is not None:
        raise UsageError("grammar and json_schema exclude each other", status="USAGE")
    if grammar is None and json_schema is None:
        return None
    if grammar is not None:
        function, given = "gqac_constraint_from_grammar", grammar
    else:
        function = "gqac_constraint_from_schema"
        given = json_schema if isinstance(json_schema, str) else json.dumps(json_schema)
    made, data = out_pointer(), given.encode()
    with model.texts as texts:
        call(function, texts, data, len(data), ctypes.byref(made))
        return Handle("constraint", made, "gqac_constraint_free", model.texts)
