"""Models: an opened file or folder, and what it can do."""

from __future__ import annotations

import array
import ctypes
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from . import _declarations as c
from ._errors import UsageError
from ._info import Info, Plan, Score, read_info, read_plan
from ._library import (Handle, Owner, Stop, call, decode, encoded, id_array, interruptible, json_text,
                       lib, listed, make, out_pointer, take_text, text, whole, wholes, wrong_type)
from ._sequence import Sequence

if TYPE_CHECKING:
    from ._equiv import Report
    from ._generate import Generation, Session, Stream
    from ._measure import Timing
    from ._store import PrefixStore

T = TypeVar("T")
SHORT_TEXT = 1 << 14  # bytes or ids; Ctrl-C is seen while a longer text is read or made
MOST_IDLE = 8  # contexts that a model keeps for later calls


class Context:
    """A context and the flag that ends its calls."""

    def __init__(self, program: Handle, threads: Handle) -> None:
        made, self.stop = out_pointer(), Stop()
        with program as p, threads as t:
            call("gqac_context_create_on", p, t, ctypes.byref(made))
            self.handle = Handle("context", made, "gqac_context_free", program, threads)
        self.pointer = made
        call("gqac_context_set_monitor", made, ctypes.byref(self.stop.monitor), None)


class Lease:
    """A context while a call uses it, and as long as arrays show its memory."""

    def __init__(self, model: Model, pool: list[Context], context: Context) -> None:
        self.model, self.pool, self.context = model, pool, context
        self.pointer, self.stop = context.pointer, context.stop
        self._released = False

    def view(self) -> View:
        """What an array refers to. The context is free for other calls when it is gone."""
        with self.model.guard:
            self.model.views += 1
        return View(self)

    def release(self) -> None:
        """The call has ended. Views may still keep the context."""
        self._released = True

    def __del__(self) -> None:
        with self.model.guard:
            if self.model.closed or len(self.pool) >= MOST_IDLE:
                self.model.forget(self.context)
            else:
                self.pool.append(self.context)


class View:
    """Keeps the context of an array."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease

    def __del__(self) -> None:
        with self.lease.model.guard:
            self.lease.model.views -= 1


def _warn(settings: Any, vocabulary: int) -> None:
    beyond = lib.gqac_token_rules_beyond(settings.rules, vocabulary) if vocabulary else -1
    if not settings.not_obeyed and beyond < 0:
        return
    import logging
    log = logging.getLogger("gqac")
    if settings.not_obeyed:
        log.warning("not obeyed, %s", decode(settings.not_obeyed))
    if beyond >= 0:
        log.warning("the config forbids id %d, but the model has only %d ids", beyond, vocabulary)


class Model(Owner):
    """A model: a folder with genai_config.json, an .onnx file, an artefact (.gqac) or .gq text.

    target: "cpu" (default), "ref" or "gpu". threads: number of threads that compute, 0: one for
    each core that the process may use. math: "model" (default: as the file specifies), "exact"
    (fp32 where the file specifies int8 activations) or "bf16". seqlens_k: "total-1" (default) or
    "cached". memory_budget: maximum bytes of all contexts and caches; 0: limit memory-bytes.
    stateless: the model is for gqac.run alone, and may be any graph, with or without a cache.

    Threads may share a model; parts of their calls that use all of its worker threads run one after
    another. Use it as a context manager, or call close, to free it at once. Raises FileError;
    ModelError: the content is invalid or unsupported; UsageError: an option is wrong; AbsentError:
    this machine lacks the target.
    """

    def __init__(self, path: str | os.PathLike[str], *, target: str = "cpu", threads: int = 0,
                 math: str = "model", seqlens_k: str = "total-1", memory_budget: int = 0,
                 stateless: bool = False) -> None:
        if path is None:
            raise wrong_type("path", path, "a string (str) or path")
        self._path = text("path", path)
        self.path, self.target, self.closed, self.views = os.fspath(path), target, False, 0
        self.guard = threading.RLock()  # of `closed`, `views` and the contexts; __del__ may come inside
        self._opening = threading.Lock()  # one thread at a time opens a program
        self._settings = {"target": text("target", target), "math": text("math", math),
                          "seqlens_k": text("seqlens_k", seqlens_k),
                          "memory_budget": memory_budget}
        self._contexts: list[Context] = []
        self._runs: list[Context] = []
        # All contexts, so that garbage collection never finalizes one that returns to its pool.
        self._owned: set[Context] = set()
        self._stateless: Handle | None = None
        self._second: Handle | None = None
        made = out_pointer()
        call("gqac_threads_create", whole("threads", threads), ctypes.byref(made))
        self._threads = Handle("threads", made, "gqac_threads_free")
        self._text: Handle | None = None
        self._handle = self._open(stateless, True)
        if stateless:
            self._stateless = self._handle

    def _open(self, stateless: bool, with_text: bool = False) -> Handle:
        stop = Stop()
        options = make(c.gqac_options, stateless=stateless, monitor=ctypes.pointer(stop.monitor),
                       **self._settings)
        program, texts = out_pointer(), out_pointer()

        def work() -> None:
            call("gqac_model_open", self._path, ctypes.byref(options), c.GQAC_TEXT_ALL,
                 ctypes.byref(program), ctypes.byref(texts) if with_text else None)

        interruptible(stop, work)
        if with_text:
            self._text = Handle("model", texts, "gqac_text_free")
            _warn(lib.gqac_text_get_settings(texts).contents, lib.gqac_program_vocabulary(program))
        return Handle("model", program, "gqac_program_free")

    def close(self) -> None:
        """Closes the model: later calls raise UsageError. The memory is freed when no sequence,
        store or array of the model is left; without this call, when they and the model are
        garbage-collected."""
        with self.guard:
            self.closed = True
            for pool in (self._contexts, self._runs):
                while pool:
                    self.forget(pool.pop())
        self._handle.close()
        with self._opening:  # from here on nothing is opened
            for handle in (self._stateless, self._second, self._text, self._threads):
                if handle:
                    handle.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"gqac.Model({self.path!r}, target={self.target!r})"

    # ---- parts, for the other modules ------------------------------------------------------------

    @property
    def program(self) -> Handle:
        """The program for sequences."""
        if self._handle is self._stateless:
            raise UsageError("the model was opened with stateless=True, for gqac.run",
                             status="USAGE", hint="open it without stateless")
        return self._handle

    @property
    def stateless_program(self) -> Handle:
        """The program for gqac.run, which is opened on first use."""
        with self._opening, self._handle:
            if self._stateless is None:
                self._stateless = self._open(True)
            return self._stateless

    @property
    def second_program(self) -> Handle:
        """The model opened once more, for proofs that continue what is on disk."""
        with self._opening, self._handle:
            if self._second is None:
                self._second = self._open(False)
            return self._second

    @property
    def texts(self) -> Handle:
        """Config, tokenizer and template."""
        assert self._text
        return self._text

    def lease(self, stateless: bool = False) -> Lease:
        """A context that no other call uses."""
        program = self.stateless_program if stateless else self.program
        pool = self._runs if stateless else self._contexts
        with program:  # fails if it is closed
            with self.guard:
                context = pool.pop() if pool else None
            if context is None:
                context = Context(program, self._threads)
                with self.guard:
                    self._owned.add(context)
            context.stop.flag.value = False  # a stream that was left may have set it
            return Lease(self, pool, context)

    def forget(self, context: Context) -> None:
        """Frees a context."""
        self._owned.discard(context)
        context.handle.close()

    @property
    def settings(self) -> Any:
        """gqac_text_settings."""
        with self.texts as texts:
            return lib.gqac_text_get_settings(texts).contents

    # ---- properties --------------------------------------------------------------------------------

    @property
    def info(self) -> Info:
        """What the program is: names and shapes of inputs and outputs, past/present pairs,
        vocabulary, positions, profile, and whether results depend on splits."""
        return read_info(self._handle)

    @property
    def vocabulary(self) -> int:
        """Number of ids, the last dimension of logits; 0: the model does not fix it."""
        with self._handle as program:
            return int(lib.gqac_program_vocabulary(program))

    def plan(self, past: int = 0) -> Plan:
        """The kernels of a decode step after `past` cached tokens, with the bytes that each must
        move. Raises InputError if the model has too few positions."""
        return read_plan(self.program, past)

    # ---- text --------------------------------------------------------------------------------------

    def tokenize(self, string: str, *, special: bool = True, plain: bool = False) -> list[int]:
        """Ids of a text. special: the post-processor adds its tokens, such as the beginning of text.
        plain: special tokens that the text spells out are ordinary text. Raises UsageError if the
        model has no tokenizer, ModelError if it cannot be used."""
        ids, found = self._tokenized("string", string, special, plain), []
        for at in range(0, len(ids), SHORT_TEXT):  # Ctrl-C is seen between them
            found += ids[at:at + SHORT_TEXT].tolist()
        return found

    def _tokenized(self, name: str, string: str, special: bool = True,
                   plain: bool = False) -> array.array[int]:
        """The same as an array; `name` is that of the argument."""
        data = encoded(name, string)
        options = make(c.gqac_tokenize_options, special=special, plain=plain)

        def work() -> array.array[int]:
            ids, n = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_size_t()
            with self.texts as texts:
                call("gqac_text_tokenize_with", texts, data, len(data), ctypes.byref(options),
                     ctypes.byref(ids), ctypes.byref(n))
            try:
                return array.array("q", ctypes.string_at(ids, n.value * 8))
            finally:
                lib.gqac_release(ids)

        return _on_text(len(data), work)

    def detokenize(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of ids; bytes that form no character become U+FFFD. Raises InputError for an id
        that the tokenizer does not have."""
        given, count = id_array(ids)

        def work() -> str:
            out, length = out_pointer(), ctypes.c_size_t()
            with self.texts as texts:
                call("gqac_text_detokenize", texts, given, count, skip_special, ctypes.byref(out),
                     ctypes.byref(length))
            return _take(out, length)

        return _on_text(count, work)

    def render(self, messages: Iterable[Mapping[str, Any]], *,
               tools: Iterable[Mapping[str, Any]] | None = None, add_generation_prompt: bool = True,
               **variables: Any) -> str:
        """The text that the chat template makes of messages. Other keywords are variables of the
        template. Raises UsageError if the model has no template or messages are not mappings with a
        role, InputError if the template refuses them."""
        variables.update(messages=_checked(messages), add_generation_prompt=add_generation_prompt)
        if tools is not None:
            variables["tools"] = listed("tools", tools)
        data = json_text("variables", variables)

        def work() -> str:
            out, length = out_pointer(), ctypes.c_size_t()
            with self.texts as texts:
                call("gqac_text_render", texts, data, ctypes.byref(out), ctypes.byref(length))
            return _take(out, length)

        return _on_text(len(data), work)

    # ---- generation ----------------------------------------------------------------------------------

    @overload
    def generate(self, prompt: str | None = ..., *, stream: Literal[False] = ...,
                 **options: Any) -> Generation: ...

    @overload
    def generate(self, prompt: str | None = ..., *, stream: Literal[True],
                 **options: Any) -> Stream: ...

    def generate(self, prompt: str | None = None, *, stream: bool = False,
                 **options: Any) -> Generation | Stream:
        """Continues a text (`prompt`) or token ids (`ids=`). Returns a Generation with text, ids,
        finish_reason and metrics; with stream=True an iterator of Piece, one for each new id.

        Options: ids; max_new_tokens (128); temperature, top_k, top_p, min_p, seed, request (with
        any of them ids are sampled; without, the most likely id is chosen, unless the model's
        config specifies otherwise); repetition_penalty, presence_penalty, frequency_penalty;
        logit_bias {id: bias}; stop (texts that end the answer); eos (ids that end it); n_top (most
        likely ids that each Piece lists); chunk (prompt tokens in a step); speculate (drafts in a
        step); session (a gqac.Session, whose cached prefix is reused), or store, tenant, kv and
        context for a new one; grammar (rules that the answer follows) or json_schema (a dict, or a
        JSON string). No bit of the answer depends on chunk, speculate, store and threads.

        Ctrl-C ends the call, even while the prompt is tokenized or computed. Raises InputError for
        an empty prompt or an id that is not in the vocabulary, UsageError for a wrong option,
        CapacityError.
        """
        from ._generate import Request, run, start
        if (prompt is None) == (options.get("ids") is None):
            raise UsageError("generate needs either a prompt or ids", status="USAGE")
        ids = options.pop("ids", None)
        if prompt is not None:
            ids = self._tokenized("prompt", prompt)
        request = Request(self, ids, **options)
        return start(request) if stream else run(request)

    @overload
    def chat(self, messages: Iterable[Mapping[str, Any]], *, stream: Literal[False] = ...,
             tools: Iterable[Mapping[str, Any]] | None = ...,
             tool_choice: str | Mapping[str, Any] = ..., parallel_tool_calls: bool = ...,
             **options: Any) -> Generation: ...

    @overload
    def chat(self, messages: Iterable[Mapping[str, Any]], *, stream: Literal[True],
             tools: Iterable[Mapping[str, Any]] | None = ...,
             tool_choice: str | Mapping[str, Any] = ..., parallel_tool_calls: bool = ...,
             **options: Any) -> Stream: ...

    def chat(self, messages: Iterable[Mapping[str, Any]], *, stream: bool = False,
             tools: Iterable[Mapping[str, Any]] | None = None,
             tool_choice: str | Mapping[str, Any] = "auto", parallel_tool_calls: bool = True,
             **options: Any) -> Generation | Stream:
        """Answers messages ({"role": ..., "content": ...}) through the model's chat template. Options
        and result are those of generate; with the same session or store in each turn, only new
        tokens are computed. tools: functions that the model may call, {"type": "function",
        "function": {"name", "parameters", ...}}; message finds their calls in the answer.
        tool_choice: "auto", "none" (the template does not see the tools), "required" (the answer is
        a call) or {"type": "function", "function": {"name": ...}}. parallel_tool_calls False: an
        answer has at most one call. Raises ModelError if calls in the syntax of the template cannot
        be required or limited."""
        from ._constraint import of_tools
        from ._generate import Request, run, start
        offered = None if tools is None or tool_choice == "none" else listed("tools", tools)
        calls = None if tool_choice == "none" else of_tools(self, offered, tool_choice,
                                                            parallel_tool_calls)
        ids = self._tokenized("prompt", self.render(messages, tools=offered), False)
        request = Request(self, ids, calls=calls, **options)
        return start(request) if stream else run(request)

    def message(self, answer: Generation | Iterable[int], *,
                tools: Iterable[Mapping[str, Any]] | None = None,
                stop: Iterable[str] = ()) -> dict[str, Any]:
        """The message of an answer (or of its ids) for the next turn: {"role": "assistant", "content":
        ...} and, if it calls tools, "tool_calls", a list of {"id", "type", "function": {"name",
        "arguments"}}, whose arguments are JSON. Calls are found by the syntax of the chat template,
        if it is a known one; what is cut off, damaged, or calls none of `tools` (None: any name) is
        content. stop: the texts that were given to chat."""
        from ._calls import message
        from ._generate import Generation
        ids = answer.ids if isinstance(answer, Generation) else answer
        return message(self, ids, tools, stop)

    def session(self, *, kv: str | None = None, context: int = 0, store: PrefixStore | None = None,
                tenant: str | None = None) -> Session:
        """The cached rows of one conversation, for generate and chat."""
        from ._generate import Session
        return Session(self, kv=kv, context=context, store=store, tenant=tenant)

    def sequence(self, *, kv: str | None = None, capacity: int = 0,
                 final_length: int = 0) -> Sequence:
        """An empty Sequence."""
        return Sequence(self, kv=kv, capacity=capacity, final_length=final_length)

    # ---- measures ------------------------------------------------------------------------------------

    def score(self, ids: Iterable[int] | str, *, splits: Iterable[int] = ()) -> Score:
        """The negative log-likelihood of ids (or of a text) as `gqac score` computes it: in nats, of
        all tokens but the first. splits: lengths of calls; one more call has the remaining tokens.
        They change no bit of the logits. (A model that returns only the last logits is called with
        one token at a time.) Raises InputError for fewer than two tokens, or if splits are longer
        than ids."""
        from ._measure import score
        return score(self, self.tokenize(ids) if isinstance(ids, str) else wholes("ids", ids),
                     wholes("splits", splits))

    def equiv(self, **options: Any) -> Report:
        """Proves that splits, batches, threads and kinds of cache change no bit: computes a
        reference token by token, then runs plans that must reproduce all logits and cached rows.

        Options: tokens (64) or ids; splits ("all", "random:N" or a list of lengths); via ("split",
        "decode", "import", "prefix", "snapshot", "baked"); batch (1); threads (a list); kv (a list
        of kinds); budget (seconds). Report.equal is the answer. Ctrl-C ends it."""
        from ._equiv import prove
        return prove(self, **options)

    def bench(self, *, prompt: Iterable[int] = (512,), new: Iterable[int] = (64,),
              repeat: int = 5) -> list[Timing]:
        """Times prompts, and decode after each prompt, like `gqac bench -p ... -n ...`; the times
        include what Python adds to each step. Returns a Timing for each row. prompt, new: lengths in
        tokens; repeat: number of measured runs of a row, after one warm-up run. Raises InputError if
        the model has fewer positions, UsageError for a number below 1."""
        from ._measure import bench
        return bench(self, wholes("prompt", prompt), wholes("new", new), whole("repeat", repeat))


def _on_text(size: int, work: Callable[[], T]) -> T:
    """Does the work on a text or ids of this size; Ctrl-C ends the wait for a long one."""
    return work() if size <= SHORT_TEXT else interruptible(None, work)


def _checked(messages: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages as a list; a template would render anything."""
    listed = isinstance(messages, Iterable) and not isinstance(messages, (str, bytes, Mapping))
    found = list(messages) if listed else []
    if not found or not all(isinstance(m, Mapping) and isinstance(m.get("role"), str) for m in found):
        raise UsageError(f"messages = {str(messages)[:200]} is not a list of at least one message",
                         status="USAGE",
                         rule="a message is a mapping with a string `role`",
                         hint='[{"role": "user", "content": "..."}]')
    return found


def _take(out: Any, length: Any) -> str:
    """A text that a call returned, which is freed."""
    try:
        return take_text(out.value, length.value)
    finally:
        lib.gqac_release(out)
