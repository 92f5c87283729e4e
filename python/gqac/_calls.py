"""Calls of tools in answers."""

from __future__ import annotations

import ctypes
import secrets
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from . import _declarations as c
from ._library import call, decode, json_text, lib, listed, make, out_pointer, take_text, text_array, wholes

if TYPE_CHECKING:
    from ._model import Model

LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


def _text(texts: Any, ids: Iterable[int], stop: Iterable[str], calls: Any) -> str:
    """The text of an answer, with the special tokens by which calls are recognised."""
    reply, length, ends = out_pointer(), ctypes.c_size_t(), text_array("stop", stop)
    call("gqac_reply_create", texts, len(ends), ends, ctypes.byref(reply))
    try:
        lib.gqac_reply_show_calls(reply, calls)
        for token in wholes("answer", ids):
            call("gqac_reply_push", reply, token)
        call("gqac_reply_finish", reply)
        return take_text(lib.gqac_reply_text(reply, ctypes.byref(length)), length.value)
    finally:
        lib.gqac_reply_free(reply)


def _made(part: Any) -> dict[str, Any]:
    """A call, in the form of messages. An answer without an id gets one that every template accepts."""
    name, arguments = (decode(ctypes.string_at(p)) for p in (part.name, part.arguments))
    own = decode(ctypes.string_at(part.id)) if part.id else ""
    return {"id": own or "".join(secrets.choice(LETTERS) for _ in range(9)), "type": "function",
            "function": {"name": name, "arguments": arguments}}


def message(model: Model, ids: Iterable[int], tools: Iterable[Mapping[str, Any]] | None,
            stop: Iterable[str]) -> dict[str, Any]:
    """The message of an answer."""
    calls, part = out_pointer(), make(c.gqac_call_part)
    offered = None if tools is None else json_text("tools", listed("tools", tools))
    content: list[str] = []
    found: list[dict[str, Any]] = []
    with model.texts as texts:
        call("gqac_calls_create", texts, offered, ctypes.byref(calls))
        try:
            text = _text(texts, ids, stop, calls)
            if not calls:
                return {"role": "assistant", "content": text}
            data = text.encode()
            call("gqac_calls_push", calls, data, len(data))
            call("gqac_calls_finish", calls)
            while lib.gqac_calls_next(calls, ctypes.byref(part)):
                if part.text:
                    content.append(take_text(part.text, part.length))
                else:
                    found.append(_made(part))
        finally:
            lib.gqac_calls_free(calls)
    answer: dict[str, Any] = {"role": "assistant", "content": "".join(content)}
    if found:
        answer["tool_calls"] = found
    return answer
