"""gqac runs exported ONNX language models, with the same bits however tokens are split into calls,
batched, threaded or cached. docs/python.md introduces it.

    model = gqac.Model("models/tiny-gqa")
    print(model.generate("She had been", max_new_tokens=20).text)
    print(model.equiv())
"""

from ._equiv import First, Report, Series
from ._errors import (AbortedError, AbsentError, CapacityError, Error, FileError, InputError,
                      InternalError, MismatchError, ModelError, NoMemoryError, RecomputeError,
                      UsageError)
from ._generate import Generation, Metrics, Piece, Session, Stream
from ._info import Info, Kernel, Node, Pair, Plan, Score, Tensor
from ._library import lib as _lib
from ._measure import Timing
from ._model import Model
from ._run import run
from ._scheduler import Answer, Request, Scheduler, Token
from ._sequence import Item, Sequence, Snapshot, step
from ._store import Prefix, PrefixStore

__version__: str = _lib.gqac_version().decode()

__all__ = ["AbortedError", "AbsentError", "Answer", "CapacityError", "Error", "FileError", "First",
           "Generation", "Info", "InputError", "InternalError", "Item", "Kernel", "Metrics",
           "MismatchError", "Model", "ModelError", "NoMemoryError", "Node", "Pair", "Piece", "Plan",
           "Prefix", "PrefixStore", "RecomputeError", "Report", "Request", "Scheduler", "Score",
           "Sequence", "Series", "Session", "Snapshot",
           "Stream", "Tensor", "Timing", "Token", "UsageError", "run", "step"]
