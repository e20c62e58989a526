"""Sequences that a server draws, as a task that reads no rows."""

from __future__ import annotations

from selectrie.core.completion import Completed, CompletionRequest
from selectrie.core.reads import Reads
from selectrie.core.rows import Rows
from selectrie.core.types import Capacity, IntArray
from selectrie.decoding.task import Ask
from selectrie.errors import ProtocolError


class CompletionTask:
    """The sequences that a server draws after one prompt. It satisfies `Task`.

    Attributes:
        request: The prompt and the options of the server's sampler.
        completed: The answer, before the task is told that it is there.
    """

    def __init__(self, request: CompletionRequest) -> None:
        self.request = request
        self.completed: Completed | None = None
        self.floor = Capacity(rows=1, nodes=request.settings.max_tokens - 1, sequences=1)
        self._is_told = False

    @property
    def prompt(self) -> IntArray:
        return self.request.prompt

    def ask(self, capacity: Capacity) -> Ask | None:
        del capacity
        if not self._is_told:
            raise ProtocolError("`ask` was called again before `tell`")
        return None

    def reads(self) -> Reads:
        return Reads(1)

    def tell(self, rows: Rows) -> None:
        del rows
        self._is_told = True

    def result(self) -> Completed:
        if self.completed is None:
            raise ProtocolError("there is no result before `ask` returns None")
        return self.completed
