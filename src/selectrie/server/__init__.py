"""An HTTP server: typed decisions, as clients of OpenAI and TypeSafe ask for them.

`app(engine)` is a plain ASGI application. It needs the extra `server`.
"""

from __future__ import annotations

from selectrie.server.application import app
from selectrie.server.options import ServerOptions

__all__ = ["ServerOptions", "app"]
