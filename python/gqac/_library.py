"""The shared library: loading it, calling it, and owning its objects.

ctypes releases the GIL during a call. A long call made on the main thread runs on a helper thread,
so that Ctrl-C is seen while it runs: `interruptible`.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import functools
import operator
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from . import _declarations as c
from ._errors import AbsentError, Error, InputError, UsageError, from_diag

if TYPE_CHECKING:
    from ._model import Model

T = TypeVar("T")


def _path() -> str:
    """The library: GQAC_LIBRARY, or the one that the wheel contains."""
    given = os.environ.get("GQAC_LIBRARY")
    return given or os.path.join(os.path.dirname(__file__), "libgqac.so.0")


class _Whole:
    """The type of an integer argument. ctypes alone would cut integers that do not fit."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def from_param(self, value: Any) -> Any:
        """What ctypes calls for an argument."""
        made = value if isinstance(value, self.kind) else self.kind(value)
        if type(value) is int and made.value != value:
            raise OverflowError(f"{value} is out of range")
        return made


TEXTS = (str, bytes, bytearray)  # are no lists of integers
OPTIONS = {"max_new": "max_new_tokens", "n_logits": "logits"}  # fields that options name otherwise
WHOLE = {kind: _Whole(kind) for kind in (ctypes.c_int, ctypes.c_int32, ctypes.c_int64,
                                         ctypes.c_uint64, ctypes.c_size_t)}


class Library:
    """Functions of libgqac.so, and of libgqac_remote.so beside it, declared when they are first used."""

    def __init__(self, path: str) -> None:
        self._folder = os.path.dirname(path)
        try:
            self._file = ctypes.CDLL(path)
        except OSError as error:
            raise ImportError(f"gqac cannot load its library: {error}\n  try:   set GQAC_LIBRARY to "
                              "the path of another libgqac.so") from error

    @functools.cached_property
    def _remote(self) -> ctypes.CDLL:
        try:
            return ctypes.CDLL(os.path.join(self._folder, "libgqac_remote.so.0"))
        except OSError as error:
            raise AbsentError("this build of gqac has no client for a remote tier", status="ABSENT",
                              where=str(error), rule="it was built without hiredis", hint="install "
                              "libhiredis-dev and build gqac again (cmake -DGQAC_REMOTE=ON)") from None

    def __getattr__(self, name: str) -> Any:
        result, arguments = c.FUNCTIONS[name]
        function = getattr(self._remote if name.startswith("gqac_remote_") else self._file, name)
        function.restype = result
        function.argtypes = [WHOLE.get(kind, kind) for kind in arguments]
        setattr(self, name, function)
        return function


lib = Library(_path())


def failure(status: int, diag: Any) -> Error:
    """The exception for a status that is not OK."""
    return from_diag(status, diag, lib.gqac_status_name(status).decode())


def call(name: str, *arguments: Any) -> None:
    """Calls a function whose last argument is a diag, and raises what it reports."""
    diag = c.gqac_diag()
    try:
        status = getattr(lib, name)(*arguments, ctypes.byref(diag))
    except ctypes.ArgumentError as error:
        raise UsageError(f"{name}: {error}", status="USAGE") from None
    if status:
        raise failure(status, diag)


def wrong_type(name: str, value: Any, expected: str) -> Error:
    """The exception for an option or argument of a type that it cannot have."""
    return UsageError(f"{name} = {str(repr(value))[:100]} is not {expected}", status="USAGE")


def instance(name: str, value: Any, kind: type[T]) -> T:
    """The value, which must be an object of this class."""
    if not isinstance(value, kind):
        raise wrong_type(name, value, f"a gqac.{kind.__name__}")
    return value


def whole(name: str, value: Any) -> int:
    """An integer of any kind, such as NumPy's."""
    try:
        return operator.index(value)
    except TypeError:
        raise wrong_type(name, value, "an integer") from None


def model_of(value: Any) -> Model:
    """The value, which must be a model."""
    from ._model import Model
    return instance("model", value, Model)


def wholes(name: str, values: Any) -> list[int]:
    """A list of integers."""
    if isinstance(values, TEXTS) or not isinstance(values, Iterable):
        raise wrong_type(name, values, "a list of integers")
    return [whole(f"{name}[{i}]", value) for i, value in enumerate(values)]


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    """The value, which must be a mapping."""
    if not isinstance(value, Mapping):
        raise wrong_type(name, value, "a mapping")
    return value


def listed(name: str, values: Any) -> list[Any]:
    """A list of anything."""
    if isinstance(values, (*TEXTS, Mapping)) or not isinstance(values, Iterable):
        raise wrong_type(name, values, "a list")
    return list(values)


def encoded(name: str, value: Any) -> bytes:
    """A text in UTF-8."""
    if not isinstance(value, str):
        raise wrong_type(name, value, "a string (str)")
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _surrogate(name, error) from None


def _surrogate(name: str, error: UnicodeEncodeError) -> Error:
    """The exception for a string that cannot be written in UTF-8."""
    return InputError(f"character {error.start} of {name} is the lone surrogate "
                      f"U+{ord(error.object[error.start]):04X}", status="INVALID_INPUT",
                      rule="a string can be written in UTF-8, which has no lone surrogates",
                      hint=f'{name}.encode("utf-8", "replace").decode() has "?" in place of them')


@functools.cache
def _kinds(struct: Any) -> dict[str, Any]:
    """The types of the fields of a struct."""
    return {field[0]: field[1] for field in struct._fields_}


def make(kind: Any, **fields: Any) -> Any:
    """A struct with its size set, its other fields 0 or as given. ctypes cuts integers that do not
    fit; here they are refused."""
    made = kind(size=ctypes.sizeof(kind))
    kinds = _kinds(kind)
    for name, value in fields.items():
        if kinds[name] is ctypes.c_bool and value not in (True, False):
            raise wrong_type(name, value, "True or False")
        try:
            setattr(made, name, value)
        except TypeError:
            raise wrong_type(OPTIONS.get(name, name), value, "a number" if kinds[name] is ctypes.c_double
                             else "an integer" if kinds[name] in WHOLE
                             else f"a {kinds[name].__name__}") from None
        if type(value) is int and getattr(made, name) != value:
            raise UsageError(f"{name} = {value} is out of range", status="USAGE")
    return made


def no_option(function: str, error: TypeError) -> Error:
    """The exception for a keyword that a function does not have, or a value of a wrong type."""
    words = str(error).split("'")
    if "unexpected keyword" not in words[0]:
        return UsageError(f"{function}: {error}", status="USAGE")
    return UsageError(f"{function} has no option '{words[1]}'", status="USAGE",
                      hint=f"help(gqac.{function})")


def _whole(encoded: bytes) -> bytes:
    """A text for C, which would end at a NUL."""
    if b"\0" in encoded:
        raise UsageError(f"the string {os.fsdecode(encoded)!r} contains NUL", status="USAGE")
    return encoded


def text(name: str, value: str | os.PathLike[str] | None) -> bytes | None:
    """The text or path of an option, for C."""
    try:
        return None if value is None else _whole(os.fsencode(value))
    except TypeError:
        raise wrong_type(name, value, "a string (str) or path") from None
    except UnicodeEncodeError as error:
        raise _surrogate(name, error) from None


def json_text(name: str, value: Any) -> bytes:
    """A value as JSON."""
    import json
    try:
        return json.dumps(value).encode()
    except RecursionError:
        raise UsageError(f"{name}: JSON cannot be nested so deeply", status="USAGE") from None
    except (TypeError, ValueError):
        raise wrong_type(name, value, "made of what JSON has: mappings with string keys, lists, "
                         "strings, numbers, True, False and None") from None


def text_array(name: str, values: Any) -> Any:
    """A text, or several, as a C array of char *."""
    if not isinstance(values, Iterable):
        raise wrong_type(name, values, "a string (str) or a list of them")
    texts = [_whole(encoded(name, value)) for value in ([values] if isinstance(values, str) else values)]
    return (ctypes.c_char_p * len(texts))(*texts)


def decode(value: bytes | None) -> str:
    """A text of C."""
    return "" if value is None else value.decode("utf-8", "replace")


def take_text(pointer: Any, length: Any) -> str:
    """Copies `length` bytes of UTF-8 at a pointer."""
    return ctypes.string_at(pointer, length).decode("utf-8", "replace") if pointer else ""


def structs(first: Any, n: int, kind: Any) -> list[Any]:
    """The structs of a list of the library, in which they may be longer than ours."""
    if not n:
        return []
    address, size = ctypes.addressof(first.contents), int(first.contents.size)
    return [kind.from_address(address + i * size) for i in range(n)]


def id_array(ids: Any) -> tuple[Any, int]:
    """Token ids as a C array of int64, and their number."""
    if type(ids).__module__ == "numpy":
        ids = ids.tolist()
    try:
        values = array.array("q", wholes("ids", ids) if isinstance(ids, TEXTS) else ids)
    except TypeError:
        values = array.array("q", wholes("ids", ids))
    except OverflowError:
        raise InputError("a token id does not fit into 64 bits", status="OUT_OF_RANGE") from None
    return (ctypes.c_int64 * len(values)).from_buffer(values), len(values)


# ---- fork ------------------------------------------------------------------------------------------

_process = os.getpid()
_count = threading.RLock()  # guards the numbers of users of all objects; __del__ may come inside


def _forked() -> None:
    global _process, _count
    _process = os.getpid()
    _count = threading.RLock()  # another thread may have held the old one


os.register_at_fork(after_in_child=_forked)


# ---- objects ----------------------------------------------------------------------------------------

class Handle:
    """Owns an object of the library. It is freed when it was closed (or is unreachable) and nothing
    uses it any more: neither a call, nor an object that was made from it."""

    def __init__(self, what: str, pointer: Any, free: str, *parents: Handle) -> None:
        self.what, self._pointer, self._free = what, pointer, free
        self._parents: tuple[Handle, ...] = ()  # those of which this object is a user
        self._users, self._closed = 0, False
        self._process = _process
        self.kept: Any = None  # what the object refers to
        try:
            for parent in parents:
                parent._use()
                self._parents += (parent,)
        except BaseException:  # a parent is closed
            self.close()
            raise

    def _use(self) -> None:
        with _count:
            if self._closed:
                raise UsageError(f"the {self.what} is closed", status="USAGE")
            self._users += 1

    def _drop(self, users: int) -> None:
        with _count:
            self._users -= users
            pointer = self._pointer if self._closed and not self._users else None
            if pointer:
                self._pointer = None
        if not pointer:
            return
        if self._process == _process:  # after a fork its threads do not exist
            getattr(lib, self._free)(pointer)
        for parent in self._parents:
            parent._drop(1)

    def close(self) -> None:
        """Frees the object as soon as nothing uses it."""
        with _count:
            self._closed = True
        self._drop(0)

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self.close()

    def __enter__(self) -> Any:
        """The pointer, which stays valid until __exit__."""
        if self._process != _process:
            raise UsageError(
                f"this {self.what} was made before a fork", status="USAGE",
                rule="objects of gqac belong to one process, because a forked process has none of its threads",
                hint="open the model in each process, or start processes by 'spawn'")
        self._use()
        return self._pointer

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._drop(1)

    def __reduce__(self) -> Any:
        raise TypeError("objects of gqac cannot be pickled")


@contextlib.contextmanager
def used(*handles: Handle) -> Iterator[list[Any]]:
    """The pointers of several objects. An object that is made from them becomes their user before
    this ends, so that a thread that closes them in between does not free them."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(handle) for handle in handles]


class Owner:
    """A public object that owns a handle: it closes, and cannot be pickled."""

    _handle: Handle

    def close(self) -> None:
        """After it, calls raise UsageError. The memory is freed when nothing that was made from the
        object is left; without this call, when the object is garbage."""
        self._handle.close()

    def __reduce__(self) -> Any:
        raise TypeError(f"a gqac.{type(self).__name__} cannot be pickled: open the model in each "
                        "process by its path, and save sequences with Sequence.save")


def out_pointer() -> Any:
    """For a pointer that a call sets."""
    return ctypes.c_void_p()


# ---- Ctrl-C -----------------------------------------------------------------------------------------

ABORT: Any = type(c.gqac_monitor().abort)


class Stop:
    """A flag that ends calls, and the monitor that reads it."""

    def __init__(self) -> None:
        self.flag = ctypes.c_bool(False)
        self.monitor = make(c.gqac_monitor, arg=ctypes.addressof(self.flag))
        self.monitor.abort = ctypes.cast(lib.gqac_stop_requested, ABORT)


def _await(ended: Any, over: list[bool]) -> None:
    """Waits for the end of a call that was told to end, whatever signals come; it uses memory of the
    caller until then. `ended` is acquired once only: a signal may come just after that."""
    while True:
        try:
            while not over:
                ended.acquire()
            return
        except BaseException:  # a second Ctrl-C
            continue


def interruptible(stop: Stop | None, work: Callable[[], T]) -> T:
    """Does the work. On the main thread, where signals arrive, another thread does it while this one
    waits: an exception here, such as KeyboardInterrupt, ends the work and is raised. stop None:
    nothing ends the work, which goes on with the memory that it refers to, and its result is lost."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    result: list[T] = []
    failed: list[BaseException] = []
    over: list[bool] = []
    permit, ended = threading.Lock(), threading.Lock()
    ended.acquire()

    def run() -> None:
        if not permit.acquire(blocking=False):
            return
        try:
            result.append(work())
        except BaseException as error:  # raised by the waiting thread
            failed.append(error)
        finally:
            over.append(True)
            ended.release()

    if stop:
        stop.flag.value = False
    thread = threading.Thread(target=run, name="gqac", daemon=True)
    try:
        thread.start()
        ended.acquire()
    except BaseException:
        if permit.acquire(blocking=False) or not stop:  # the thread has not begun, and will not
            raise
        stop.flag.value = True
        _await(ended, over)
        stop.flag.value = False
        raise
    if failed:
        raise failed.pop()
    return result[0]
