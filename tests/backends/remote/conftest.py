"""What the tests of servers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture
def opened() -> Iterator[Callable[..., Any]]:
    """Open the model of an ASGI application, asked in this process; it is closed at the end."""
    httpx2 = pytest.importorskip("httpx2", reason="needs the extra 'remote'")
    from selectrie.backends.remote.opening import open_server
    from selectrie.backends.remote.transport import Server
    from tests.support.deciding import BYTES

    models = []

    def open_application(application: Any, vocabulary: Any = BYTES, *, model: str | None = None, **options: Any) -> Any:
        read = None if vocabulary is None else lambda _: vocabulary
        made = open_server(
            Server("http://fake", **{"timeout_s": 20.0, **options}),
            model=model,
            read_tokenizer=read,
            http_transport=httpx2.ASGITransport(application),
        )
        models.append(made)
        return made

    yield open_application
    for one in models:
        one.close()
