"""Generation: requests, answers, streams and sessions."""

from __future__ import annotations

import ctypes
import numbers
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _declarations as c
from ._constraint import constraint
from ._errors import UsageError
from ._library import (Handle, Owner, call, decode, id_array, instance, interruptible, lib, make,
                       model_of, no_option, out_pointer, take_text, text, text_array, used, whole,
                       wrong_type)

if TYPE_CHECKING:
    from ._model import Lease, Model
    from ._store import PrefixStore


class Metrics(NamedTuple):
    """Times in milliseconds, tokens per second, and numbers of tokens; see gqac_generate_metrics in
    generate.h."""

    time_to_first_token_ms: float
    decode_tokens_per_second: float
    forward_ms: list[float]
    reused_tokens: int
    computed_tokens: int
    drafted_tokens: int
    accepted_tokens: int


class Generation(NamedTuple):
    """An answer. ids: the new ids, an end-of-text id included; finish_reason: "eos", "length" or
    "stop"."""

    text: str
    ids: list[int]
    finish_reason: str
    metrics: Metrics


class Piece(NamedTuple):
    """One new id, and the text that it completes: whole characters, possibly none.
    log_probability: natural logarithm of its softmax over the model's own logits; top: the most
    likely ids with theirs."""

    text: str
    id: int
    log_probability: float
    eos: bool
    top: list[tuple[int, float]]


def handles_of(store: PrefixStore | None) -> list[Handle]:
    """The handle of a store, if there is one."""
    from ._store import PrefixStore
    return [] if store is None else [instance("store", store, PrefixStore).handle]


class Session(Owner):
    """The cached rows of one conversation: the longest prefix of a new prompt that it holds is not
    computed again. kv: kind of cache, or "off"; context: maximum number of tokens, 0: the model's;
    store, tenant: a PrefixStore that prompts continue. Threads that use the same session wait for
    each other."""

    def __init__(self, model: Model, *, kv: str | None = None, context: int = 0,
                 store: PrefixStore | None = None, tenant: str | None = None) -> None:
        self.model, self.lock = model_of(model), threading.RLock()
        self._tenant = text("tenant", tenant)
        limit = context or int(model.settings.context_length)
        options = make(c.gqac_session_options, kv=text("kv", kv), context=limit, tenant=self._tenant)
        made = out_pointer()
        parents = [model.program] + handles_of(store)
        with used(*parents) as (program, *pointers):
            if pointers:
                options.store = pointers[0]
            call("gqac_session_create", program, ctypes.byref(options), ctypes.byref(made))
            self._handle = Handle("session", made, "gqac_session_free", *parents)

    @property
    def handle(self) -> Handle:
        """For calls."""
        return self._handle

    @property
    def ids(self) -> list[int]:
        """The ids whose rows are cached."""
        n = ctypes.c_size_t()
        with self.lock, self._handle as session:
            ids = lib.gqac_session_ids(session, ctypes.byref(n))
            return list(ids[:n.value]) if n.value else []


def sampling(model: Model, *, temperature: float | None = None, top_k: int | None = None,
             top_p: float | None = None, min_p: float | None = None,
             repetition_penalty: float | None = None, presence_penalty: float = 0.0,
             frequency_penalty: float = 0.0, seed: int | None = None, request: int | None = None,
             logit_bias: Mapping[int, float] | None = None) -> tuple[Any, Any]:
    """gqac_sampling with the model's own defaults, and what must live as long as it."""
    own = model.settings
    drawn = (temperature, top_k, top_p, min_p, seed, request)

    def choose(given: Any, otherwise: Any) -> Any:
        return otherwise if given is None else given

    made = make(c.gqac_sampling, sample=own.do_sample or any(x is not None for x in drawn),
                temperature=choose(temperature, own.temperature), top_k=choose(top_k, own.top_k),
                top_p=choose(top_p, own.top_p), min_p=choose(min_p, 0.0),
                repetition_penalty=choose(repetition_penalty, own.repetition_penalty),
                seed=choose(seed, 0), request=choose(request, 0),
                presence_penalty=presence_penalty, frequency_penalty=frequency_penalty,
                rules=own.rules)
    if logit_bias is not None and not isinstance(logit_bias, Mapping):
        raise wrong_type("logit_bias", logit_bias, "a mapping of ids to numbers")
    array = (c.gqac_logit_bias * len(logit_bias or ()))()
    for entry, (token, value) in zip(array, (logit_bias or {}).items()):
        entry.id = whole("an id of logit_bias", token)
        if not isinstance(value, numbers.Real):
            raise wrong_type(f"logit_bias[{token}]", value, "a number")
        entry.bias = float(value)
    made.n_bias, made.bias = len(array), array
    return made, array


def stop_texts(stop: Iterable[str] | str) -> Any:
    """Texts that end an answer, or one of them, as a C array."""
    made = text_array("stop", stop)
    if not all(made):
        raise UsageError("there is an empty stop text", status="USAGE")
    return made


class Request:
    """What is asked of Model.generate, checked and in the form of C."""

    def __init__(self, model: Model, ids: Iterable[int], *, max_new_tokens: int | None = None,
                 stop: Iterable[str] | str = (), eos: Iterable[int] | None = None, n_top: int = 0,
                 chunk: int = 0, speculate: int = 0, session: Session | None = None,
                 store: PrefixStore | None = None, tenant: str | None = None,
                 kv: str | None = None, context: int = 0, grammar: str | None = None,
                 json_schema: Mapping[str, Any] | bool | str | None = None,
                 calls: Handle | None = None, **choice: Any) -> None:
        if session and (store or tenant or kv or context):
            raise UsageError("store, tenant, kv and context cannot be given beside a session, which has its own",
                             status="USAGE", hint="give them to Model.session")
        self.model = model
        if session is not None:
            instance("session", session, Session)
        self.session = session or Session(model, kv=kv, context=context, store=store, tenant=tenant)
        self.ids, n = id_array(ids)
        try:
            self.sampling, self._bias = sampling(model, **choice)
        except TypeError as error:
            raise no_option("Model.generate", error) from None
        own = model.settings
        most = 128 if max_new_tokens is None else whole("max_new_tokens", max_new_tokens)
        if max_new_tokens is None and own.max_length:
            most = min(most, max(own.max_length - n, 0))
        self._stops = stop_texts(stop)
        self._eos, n_eos = id_array(own.eos[:own.n_eos] if eos is None else eos)
        self.struct = make(c.gqac_generate_request, prompt=self.ids, n_prompt=n, max_new=most,
                           min_length=own.min_length, n_eos=n_eos, eos=self._eos, n_stop=len(self._stops),
                           stop=self._stops, chunk=chunk, n_top=n_top, speculate=speculate)
        self.struct.sampling = ctypes.pointer(self.sampling)
        if calls and (grammar is not None or json_schema is not None):
            raise UsageError("tool_choice, strict tools and parallel_tool_calls cannot be combined "
                             "with grammar or json_schema", status="USAGE")
        self._constraint = calls or constraint(model, grammar, json_schema)
        if self._constraint:
            with self._constraint as pointer:
                self.struct.constraint = pointer

    def generate(self, lease: Lease) -> Generation:
        """Runs to the end."""
        results = (ctypes.POINTER(c.gqac_generation) * 1)()
        with self.session.lock, self.session.handle as session, self.model.texts as texts:
            self.struct.session = session
            has_tokenizer = self.model.settings.has_tokenizer
            call("gqac_generate", lease.pointer, texts if has_tokenizer else None, 1,
                 ctypes.byref(self.struct), results)
            try:
                return _generation(results[0].contents)
            finally:
                lib.gqac_generation_free(results[0])


def _generation(said: Any) -> Generation:
    m = said.metrics
    metrics = Metrics(m.time_to_first_token_ms, m.decode_tokens_per_second,
                      list(m.forward_ms[:m.n_forwards]) if m.n_forwards else [], m.reused_tokens,
                      m.computed_tokens, m.drafted_tokens, m.accepted_tokens)
    return Generation(take_text(said.text, said.length),
                      list(said.ids[:said.n_ids]) if said.n_ids else [],
                      decode(lib.gqac_finish_name(said.finish)), metrics)


def run(request: Request) -> Generation:
    """The whole answer."""
    lease = request.model.lease()
    request.struct.ids_only = not request.struct.n_top  # nothing reads probabilities
    return interruptible(lease.stop, lambda: request.generate(lease))


class Stream(Iterator[Piece]):
    """Pieces of an answer as they come. `result` is the Generation, once the iterator has ended.
    close ends the answer; so does abandoning the iterator, once it is garbage-collected. Threads may
    share it: each piece goes to one of them, an error too, and the iterator ends for all."""

    def __init__(self, request: Request) -> None:
        import queue
        self.result: Generation | None = None
        self._lease = request.model.lease()
        self._pieces: queue.SimpleQueue[Piece | BaseException | Generation | None] = queue.SimpleQueue()
        self._flags = _Flags()
        self._ended = False
        self._thread = threading.Thread(target=_produce, name="gqac-stream", daemon=True,
                                        args=(request, self._lease, self._pieces, self._flags))
        self._thread.start()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Piece:
        if self._ended:
            raise StopIteration
        try:
            item = self._pieces.get()
        except BaseException:  # Ctrl-C: a prompt ends at once
            self.close()
            raise
        if isinstance(item, Piece):
            return item
        if isinstance(item, Generation):
            self.result = item
        self._ended = True
        self._pieces.put(None)  # for the next thread that waits
        self._thread.join()
        if isinstance(item, BaseException):
            raise item
        raise StopIteration

    def close(self) -> None:
        """Ends the answer at once, and waits for its end."""
        self._ended = self._flags.ended = True
        self._lease.stop.flag.value = True
        self._thread.join()
        self._lease.stop.flag.value = False

    def __del__(self) -> None:
        if hasattr(self, "_thread") and self._thread.is_alive():
            self._flags.ended = True
            self._lease.stop.flag.value = True


class _Flags:
    """What the thread of a stream looks at."""

    ended = False


def _piece(event: Any) -> Piece:
    top = [(event.top[i].id, event.top[i].log_probability) for i in range(event.n_top)]
    return Piece(take_text(event.text, event.length), event.id, event.log_probability, event.eos,
                 top)


def _produce(request: Request, lease: Lease, pieces: Any, flags: _Flags) -> None:
    """The thread of a stream."""
    def take(_: Any, event: Any) -> bool:
        pieces.put(_piece(event.contents))
        return not flags.ended

    try:
        request.struct.on_token = c.gqac_generate_callback(take)
        pieces.put(request.generate(lease))
    except BaseException as error:
        pieces.put(error.with_traceback(None))  # its frames hold the lease
    finally:
        request.struct.on_token = c.gqac_generate_callback()  # `take` holds the pieces


def start(request: Request) -> Stream:
    """The answer piece by piece."""
    return Stream(request)
