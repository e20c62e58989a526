"""A tokenizer that a server runs: each text is asked for once, and kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from selectrie.backends.remote.answers import Answer
from selectrie.backends.remote.transport import Transport
from selectrie.backends.remote.vocabulary_wire import BEGIN, INSIDE, NORMALIZE, as_bytes, as_text
from selectrie.errors import TextError

_PATH = "/v1/vocabulary/encode"
_KEPT_BYTES = 64 << 20
_MAX_TEXTS = 1_000
_BYTES_OF_TOKEN = 16


class RemoteTokenizer:
    """Asks this project's server for the tokens of plain texts.

    It may be called from any thread but that of the transport.

    Args:
        transport: The connection.
        model: Name of the model.
    """

    def __init__(self, transport: Transport, model: str) -> None:
        self._transport, self._model = transport, model
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, bytes], list[int] | bytes | str] = OrderedDict()
        self._n_bytes = 0

    def begin(self, text: bytes, /) -> list[int]:
        """Return the tokens of a text. Raises `TextError` if there are none for it."""
        return self._tokens(text, BEGIN)

    def inside(self, text: bytes, /) -> list[int]:
        """Return the tokens of a text that continues another one."""
        return self._tokens(text, INSIDE)

    def normalize(self, text: str) -> str:
        """Return a text as the tokenizer normalises it."""
        found = self._asked(text.encode(), NORMALIZE)
        return found.decode() if isinstance(found, bytes) else text

    def prefetch(self, texts: Sequence[bytes]) -> None:
        """Ask for many texts at once."""
        for start in range(0, len(texts), _MAX_TEXTS):
            part = list(dict.fromkeys(texts[start : start + _MAX_TEXTS]))
            for text, found in zip(part, self._answered(part, BEGIN), strict=True):
                self._keep((BEGIN, text), found)

    def _tokens(self, text: bytes, form: str) -> list[int]:
        found = self._asked(text, form)
        if isinstance(found, list):
            return list(found)
        raise TextError("text", str(found))

    def _asked(self, text: bytes, form: str) -> list[int] | bytes | str:
        """Return tokens, a normalised text, or why there are none."""
        key = (form, text)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        (found,) = self._answered([text], form)
        self._keep(key, found)
        return found

    def _answered(self, texts: Sequence[bytes], form: str) -> list[list[int] | bytes | str]:
        body = {"model": self._model, "texts": [as_text(text) for text in texts], "form": form}
        max_bytes = (1 << 20) + _BYTES_OF_TOKEN * sum(map(len, texts))
        answer = self._transport.run(lambda: self._transport.post(_PATH, body, max_bytes=max_bytes))
        if form == NORMALIZE:
            return [as_bytes(one) for one in answer["texts"].sequence(len(texts))]
        reasons = answer["reasons"].sequence(len(texts))
        tokens = answer["tokens"].sequence(len(texts))
        return [_one(found, reason) for found, reason in zip(tokens, reasons, strict=True)]

    def _keep(self, key: tuple[str, bytes], found: list[int] | bytes | str) -> None:
        with self._lock:
            if key in self._kept:
                return
            self._kept[key] = found
            self._n_bytes += _size(key, found)
            while self._n_bytes > _KEPT_BYTES:
                self._n_bytes -= _size(*self._kept.popitem(last=False))


def _one(tokens: Answer, reason: Answer) -> list[int] | str:
    return reason.text() if tokens.value is None else tokens.whole_numbers()


def _size(key: tuple[str, bytes], found: list[int] | bytes | str) -> int:
    """Return about how many bytes of memory an entry takes."""
    return 200 + len(key[1]) + 8 * len(found)
