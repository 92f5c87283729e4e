"""Exceptions: one class for each kind of status (include/gqac/status.def)."""

from __future__ import annotations

from typing import Any

from . import _declarations as c


class Error(Exception):
    """What every failed call raises.

    status: name of the status, e.g. "INVALID_MODEL"; what: what went wrong; where: file, node and
    op; rule: the rule that was broken; hint: what to try; index: the item of a step that failed,
    from 0, or -1. All but `what` may be empty.
    """

    def __init__(self, what: str, *, status: str = "", where: str = "", rule: str = "",
                 hint: str = "", index: int = -1) -> None:
        super().__init__(what)
        self.status, self.what, self.where = status, what, where
        self.rule, self.hint, self.index = rule, hint, index

    def __str__(self) -> str:
        lines = [self.what]
        for name, text in (("where", self.where), ("rule", self.rule), ("try", self.hint)):
            if text:
                lines.append(f"  {name + ':':<7}{text}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.what, self.status, self.where, self.rule, self.hint,
                        self.index)


def _again(kind: type[Error], what: str, status: str, where: str, rule: str, hint: str,
           index: int) -> Error:
    return kind(what, status=status, where=where, rule=rule, hint=hint, index=index)


class UsageError(Error, ValueError):
    """The call is wrong: an unknown name or option, or an object that is closed."""


class ModelError(Error):
    """The model, its config or an artefact is invalid, unsupported, or exceeds a limit."""


class InputError(Error, ValueError):
    """An input has the wrong content, shape, type, length or position."""


class CapacityError(Error):
    """The capacity of a cache or the memory budget is too small."""


class RecomputeError(Error):
    """Cached rows do not fit this length; the sequence must be computed again."""


class NoMemoryError(Error, MemoryError):
    """Out of memory."""


class FileError(Error, OSError):
    """A file cannot be opened, read or written."""

    def __str__(self) -> str:
        return Error.__str__(self)


class AbsentError(Error):
    """The target is not present on this machine, or a part of gqac is not in this build."""


class AbortedError(Error):
    """The call was ended, by another thread or because its object was closed."""


class MismatchError(Error):
    """A comparison failed."""


class InternalError(Error):
    """An invariant of gqac does not hold, which is a defect of gqac (please report it), or the driver
    of a device failed."""


CLASSES: dict[int, type[Error]] = {
    c.GQAC_MISMATCH: MismatchError, c.GQAC_USAGE: UsageError, c.GQAC_INVALID_MODEL: ModelError,
    c.GQAC_UNSUPPORTED: ModelError, c.GQAC_LIMIT: ModelError, c.GQAC_INVALID_INPUT: InputError,
    c.GQAC_OUT_OF_RANGE: InputError, c.GQAC_CAPACITY: CapacityError,
    c.GQAC_RECOMPUTE: RecomputeError, c.GQAC_NO_MEMORY: NoMemoryError,
    c.GQAC_INTERNAL: InternalError, c.GQAC_IO: FileError, c.GQAC_ABSENT: AbsentError,
    c.GQAC_ABORTED: AbortedError}


def from_diag(status: int, diag: Any, name: str) -> Error:
    """The exception of a failed call; `name` is that of the status."""
    texts = [bytes(getattr(diag, field)).decode("utf-8", "replace")
             for field in ("what", "where", "rule", "hint")]
    return CLASSES.get(status, InternalError)(texts[0], status=name, where=texts[1], rule=texts[2],
                                              hint=texts[3], index=int(diag.index))
