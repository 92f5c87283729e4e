"""The scheduler: requests that share steps, which run on a thread of the scheduler."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _declarations as c
from ._constraint import constraint
from ._errors import Error, UsageError, from_diag
from ._generate import handles_of, sampling, stop_texts
from ._library import (Handle, Owner, call, decode, id_array, instance, lib, make, model_of,
                       no_option, out_pointer, take_text, text, used)

if TYPE_CHECKING:
    from ._model import Model
    from ._sequence import Sequence
    from ._store import PrefixStore


class Statistics(NamedTuple):
    """Statistics of a scheduler; see gqac_scheduler_statistics in schedule.h."""

    waiting: int
    running: int
    ended: int
    steps: int
    reused_tokens: int
    computed_tokens: int
    new_tokens: int
    preemptions: int
    drafted_tokens: int
    accepted_tokens: int


class Answer(NamedTuple):
    """How a request ended. finish_reason: "eos", "length", "stop" or "cancelled"."""

    text: str
    ids: list[int]
    finish_reason: str
    reused_tokens: int
    computed_tokens: int
    preemptions: int
    drafted_tokens: int
    accepted_tokens: int


class Token(NamedTuple):
    """One new id, and the text that it completes, possibly none. id -1: no new id, but text that
    was held back as the possible beginning of a stop text, and is added when the answer ends."""

    text: str
    id: int


class Request:
    """A submitted request: iterate over it (`for` or `async for`) to get each Token, or call
    `result`. Threads may share it: each Token goes to one of them, and all of them learn the end.
    Only one task of asyncio may wait at a time."""

    def __init__(self, scheduler: Scheduler, reply: Handle | None) -> None:
        import queue
        self.number = 0
        self._tenant: str | None = None
        self._constraint: Handle | None = None  # lives as long as the request
        self._scheduler, self._reply = scheduler, reply
        self._items: queue.SimpleQueue[Token | Answer | Error] = queue.SimpleQueue()
        self._end: Answer | Error | None = None
        self._wake: Callable[[], None] | None = None

    # ---- on the thread of the scheduler

    def _put(self, item: Token | Answer | Error) -> None:
        self._items.put(item)
        wake = self._wake
        if wake:
            wake()

    def _push(self, token: int) -> bool:
        """Takes a new id; false: a stop text has come."""
        if not self._reply:
            self._put(Token("", token))
            return True
        with self._reply as reply:
            call("gqac_reply_push", reply, token)
            self._put(Token(_taken(reply), token))
            return not lib.gqac_reply_stopped(reply)

    def _finish(self, end: Any) -> None:
        whole = ""
        if self._reply:
            with self._reply as reply:
                call("gqac_reply_finish", reply)
                rest = _taken(reply)
                length = ctypes.c_size_t()
                address = lib.gqac_reply_text(reply, ctypes.byref(length))
                whole = take_text(address, length.value)
            if rest:
                self._put(Token(rest, -1))
        if end.finish == c.GQAC_FINISH_FAILED:
            diag = end.diag.contents
            self._put(from_diag(diag.status, diag, lib.gqac_status_name(diag.status).decode()))
            return
        self._put(Answer(whole, list(end.ids[:end.n_ids]) if end.n_ids else [],
                         decode(lib.gqac_finish_name(end.finish)), end.reused_tokens,
                         end.computed_tokens, end.preemptions, end.drafted_tokens,
                         end.accepted_tokens))

    # ---- for the caller

    def cancel(self) -> None:
        """Ends the request with finish_reason "cancelled"."""
        with self._scheduler.handle as scheduler:
            lib.gqac_scheduler_cancel(scheduler, self.number)

    def _keep(self, item: Token | Answer | Error) -> Token | None:
        if isinstance(item, Token):
            return item
        self._end = item
        self._items.put(item)  # for the next thread that waits
        if isinstance(item, Error):
            raise item
        return None

    def __iter__(self) -> Iterator[Token]:
        while self._end is None:
            token = self._keep(self._items.get())
            if token:
                yield token

    async def __aiter__(self) -> AsyncIterator[Token]:
        import asyncio
        import queue
        loop, ready = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(ready.set)

        self._wake = wake
        try:
            while self._end is None:
                ready.clear()
                try:
                    item = self._items.get_nowait()
                except queue.Empty:
                    await ready.wait()
                    continue
                token = self._keep(item)
                if token:
                    yield token
        finally:
            self._wake = None

    def result(self) -> Answer:
        """Waits for the end. Raises what made the request fail."""
        for _ in self:
            pass
        return self._answer()

    async def wait(self) -> Answer:
        """The same for asyncio."""
        async for _ in self:
            pass
        return self._answer()

    def _answer(self) -> Answer:
        if isinstance(self._end, Error):
            raise self._end
        assert self._end
        return self._end


def _taken(reply: Any) -> str:
    length = ctypes.c_size_t()
    address = lib.gqac_reply_take(reply, ctypes.byref(length))
    return take_text(address, length.value)


def _not_saved(why: object) -> None:
    import logging
    logging.getLogger("gqac").warning("an answer was not saved: %s", why)


class _Saver:
    """Saves the rows of answers to the folder and the remote tier of a store, on a thread of its own.
    What it cannot take, because 64 others wait, is not saved; nor is what fails. The log says so."""

    def __init__(self, model: Model, store: PrefixStore) -> None:
        import queue
        self._model, self._store = model, store
        self._waiting: queue.Queue[tuple[Sequence, str | None] | None] = queue.Queue(64)
        self._thread = threading.Thread(target=self._work, name="gqac-saver", daemon=True)
        self._thread.start()

    def add(self, rows: Any, tenant: str | None) -> None:
        """Takes a fork of the rows of a request."""
        import queue

        from ._sequence import Sequence
        made = out_pointer()
        try:
            call("gqac_sequence_fork", rows, ctypes.byref(made))
            self._waiting.put_nowait((Sequence.wrap(self._model, made, self._store.handle), tenant))
        except queue.Full:
            _not_saved("too many others wait")
        except Error as error:
            _not_saved(error)

    def _work(self) -> None:
        while waiting := self._waiting.get():
            try:
                self._store.save(waiting[0], tenant=waiting[1])
            except Exception as error:  # the thread must go on: close waits for it
                _not_saved(error)
            del waiting  # or it would live until the next one

    def close(self) -> None:
        """Saves what waits."""
        self._waiting.put(None)
        self._thread.join()


class Scheduler(Owner):
    """Many requests on one model, packed into shared steps; each gets the ids that it would get
    alone, if the model is split-safe. tokens: maximum number of tokens in one step (0: 256);
    running: of admitted requests (0: 64); kv: kind of cache; store: a PrefixStore whose prefixes
    requests continue; save: prompts and answers are saved to the folder and the remote tier of the
    store; speculate: maximum number of drafts of a request in one step. A thread makes the steps
    while there are requests. close, or leaving the context manager, cancels the remaining requests
    and completes pending saves. Any thread may submit."""

    def __init__(self, model: Model, *, tokens: int = 0, running: int = 0, kv: str | None = None,
                 store: PrefixStore | None = None, save: bool = False, speculate: int = 0) -> None:
        stores = handles_of(store)
        if save and not (store and store._saves):
            raise UsageError("save = True needs a store with a folder or a remote tier", status="USAGE")
        self.model = model_of(model)
        self._kept = text("kv", kv)
        options = make(c.gqac_scheduler_options, tokens=tokens, running=running, kv=self._kept,
                       speculate=speculate)
        self._lease = model.lease()
        made = out_pointer()
        parents = [self._lease.context.handle, model.program] + stores
        with used(*parents) as (context, _, *pointers):
            if pointers:
                options.store = pointers[0]
            call("gqac_scheduler_create", context, ctypes.byref(options), ctypes.byref(made))
            self._handle = Handle("scheduler", made, "gqac_scheduler_free", *parents)
        self._saver = _Saver(model, store) if save and store else None
        self._requests: dict[int, Request] = {}
        self._number = 0
        self._changed = threading.Condition()
        self._closing = False
        self._token = c.gqac_request_token(self._on_token)
        self._ended = c.gqac_request_ended(self._on_end)
        self._thread = threading.Thread(target=self._work, name="gqac-scheduler", daemon=True)
        self._thread.start()

    @property
    def handle(self) -> Handle:
        """For calls."""
        return self._handle

    def __enter__(self) -> Scheduler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancels the remaining requests, and frees the scheduler."""
        with self._changed:
            self._closing = True
            self._lease.stop.flag.value = True
            self._changed.notify()
        self._thread.join()
        if self._saver:
            self._saver.close()
            self._saver = None
        self._handle.close()
        self._lease.stop.flag.value = False

    def submit(self, prompt: str | None = None, *, ids: Iterable[int] | None = None,
               max_new_tokens: int = 128, stop: Iterable[str] | str = (),
               eos: Iterable[int] | None = None, priority: int = 0, tenant: str | None = None,
               sequence: Sequence | None = None, grammar: str | None = None,
               json_schema: Mapping[str, Any] | bool | str | None = None, **choice: Any) -> Request:
        """Submits a text or ids; the result is the Request. sequence: the request continues a
        sequence, and the prompt is what follows. Higher priorities are first. grammar and
        json_schema are those of Model.generate, and `choice` its sampling options. Raises
        InputError for an empty prompt, one that is too long, or an id that is not in the
        vocabulary; UsageError for a wrong option."""
        if (prompt is None) == (ids is None):
            raise UsageError("submit needs either a prompt or ids", status="USAGE")
        array, n = id_array(self.model.tokenize(prompt) if prompt is not None else ids)
        try:
            chosen, _bias = sampling(self.model, **choice)
        except TypeError as error:
            raise no_option("Scheduler.submit", error) from None
        own = self.model.settings
        ends, n_eos = id_array(own.eos[:own.n_eos] if eos is None else eos)
        made = Request(self, self._reply(stop_texts(stop)))
        made._tenant = tenant
        asked = make(c.gqac_request, prompt=array, n_prompt=n, max_new=max_new_tokens, n_eos=n_eos,
                     eos=ends, priority=priority, tenant=text("tenant", tenant), on_token=self._token,
                     on_end=self._ended)
        asked.sampling = ctypes.pointer(chosen)
        made._constraint = constraint(self.model, grammar, json_schema)
        if made._constraint:
            with made._constraint as pointer:
                asked.constraint = pointer
        with self._changed:
            if self._closing:
                raise UsageError("the scheduler is closed", status="USAGE")
            self._number += 1
            asked.arg = self._number
            self._requests[self._number] = made
            number = ctypes.c_int64()
            try:
                self._submit(asked, sequence, number)
            except BaseException:
                del self._requests[self._number]
                raise
            made.number = number.value
            self._changed.notify()
        return made

    def _submit(self, asked: Any, sequence: Sequence | None, number: Any) -> None:
        with self._handle as scheduler:
            if sequence is None:
                call("gqac_scheduler_submit", scheduler, ctypes.byref(asked), ctypes.byref(number))
                return
            from ._sequence import Sequence
            instance("sequence", sequence, Sequence)
            with sequence.lock, sequence._handle as pointer:
                asked = type(asked).from_buffer_copy(asked)
                setattr(asked, "from", pointer)
                call("gqac_scheduler_submit", scheduler, ctypes.byref(asked), ctypes.byref(number))

    def _reply(self, stops: Any) -> Handle | None:
        if not self.model.settings.has_tokenizer and not len(stops):
            return None
        made = out_pointer()
        with self.model.texts as texts:
            call("gqac_reply_create", texts, len(stops), stops, ctypes.byref(made))
            handle = Handle("reply", made, "gqac_reply_free", self.model.texts)
        handle.kept = stops
        return handle

    @property
    def statistics(self) -> Statistics:
        """Numbers of requests, steps and tokens."""
        found = make(c.gqac_scheduler_statistics)
        with self._handle as scheduler:
            call("gqac_scheduler_get_statistics", scheduler, ctypes.byref(found))
        return Statistics(*[getattr(found, name) for name in Statistics._fields])

    # ---- the thread

    def _on_token(self, arg: int, _: int, token: int) -> bool:
        return self._requests[arg]._push(token)

    def _on_end(self, arg: int, end: Any) -> None:
        request, ended = self._requests.pop(arg), end.contents
        if self._saver and ended.sequence and ended.finish not in (c.GQAC_FINISH_FAILED,
                                                                   c.GQAC_FINISH_CANCELLED):
            self._saver.add(ended.sequence, request._tenant)
        request._finish(ended)

    def _work(self) -> None:
        left = ctypes.c_int64()
        while True:
            with self._changed:
                while not self._closing and not self._requests:
                    self._changed.wait()
                if self._closing:
                    break
            try:
                with self._handle as scheduler:
                    call("gqac_scheduler_step", scheduler, ctypes.byref(left))
            except Error as error:
                if not self._closing:
                    self._fail(error)
        for request in list(self._requests.values()):
            request.cancel()
        self._lease.stop.flag.value = False
        if self._requests:  # on_end of each is called; nothing is computed
            with self._handle as scheduler:
                call("gqac_scheduler_step", scheduler, ctypes.byref(left))

    def _fail(self, error: Error) -> None:
        """A step failed for no single request: all end with the reason."""
        for number, request in list(self._requests.items()):
            request.cancel()
            request._put(error)
            self._requests[number] = Request(self, None)  # takes the end that follows
