"""A model with another vocabulary object."""

from __future__ import annotations

from selectrie.core.model import SOLO_SEQUENCES, Extension, Model
from selectrie.core.types import BoolArray, Capacity, IntArray, Limits, ModelIdentity
from selectrie.core.vocabulary import Vocabulary


class ModelWithVocabulary:
    """The same `Model` with another vocabulary object.

    Requests read texts by it, and call the model as before.
    """

    def __init__(self, model: Model, vocabulary: Vocabulary) -> None:
        self.model, self._vocabulary = model, vocabulary

    @property
    def vocabulary(self) -> Vocabulary:
        return self._vocabulary

    @property
    def limits(self) -> Limits:
        return self.model.limits

    @property
    def identity(self) -> ModelIdentity:
        return self.model.identity

    def extend(self, parents: IntArray, tokens: IntArray, wanted: BoolArray, keep: BoolArray) -> Extension:
        return self.model.extend(parents, tokens, wanted, keep)

    def set_batch_multiple(self, value: int) -> None:
        self.model.set_batch_multiple(value)

    def match_prefix(self, tokens: IntArray) -> tuple[int, int]:
        return self.model.match_prefix(tokens)

    def release(self, nodes: IntArray, *, forget: bool = False) -> None:
        self.model.release(nodes, forget=forget)

    def capacity(self) -> Capacity:
        return self.model.capacity()

    def trim(self, idle_rows: int) -> int:
        return self.model.trim(idle_rows)

    def new_context(self, nodes: int, sequences: int = SOLO_SEQUENCES, rows: int | None = None) -> Model:
        return self.model.new_context(nodes, sequences, rows)

    def interrupt(self) -> None:
        self.model.interrupt()

    def close(self) -> None:
        self.model.close()
