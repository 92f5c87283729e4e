"""Assertions for the tests of programs that use gqac."""

from __future__ import annotations

import os
from typing import Any

from ._equiv import Report
from ._model import Model


def assert_split_invariant(model: Model | str | os.PathLike[str], **options: Any) -> Report:
    """Fails unless all plans reproduce the reference bits: see Model.equiv for the options (by
    default 64 tokens and every split into two calls). Returns the report. Raises AssertionError with
    the first differing value."""
    if not isinstance(model, Model):
        with Model(model) as opened:
            return assert_split_invariant(opened, **options)
    report = model.equiv(**options)
    if report.equal:
        return report
    nodes = ", ".join(f"{n.name} ({n.op})" for n in model.info.mixing)
    raise AssertionError(f"{report}\n  first: {report.first}"
                         + (f"\n  nodes that mix the rows of a call: {nodes}" if nodes else ""))
