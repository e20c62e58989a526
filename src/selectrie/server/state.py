"""What the parts of one application share."""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from starlette.requests import Request

from selectrie.engine.scheduler.turns import Turn
from selectrie.server.body import BodyBudget
from selectrie.server.metrics import Metrics
from selectrie.server.models import Models
from selectrie.server.options import ServerOptions
from selectrie.server.places import Places
from selectrie.server.uploads import Uploads

KEY = "selectrie.server"
"""Name of the state in the scope of a request."""


@dataclass(slots=True, eq=False)
class ServerState:
    """The state of an application.

    Attributes:
        models: Which model answers.
        options: The options.
        metrics: What is counted.
        is_draining: Whether new work is refused.
        is_dropping: Whether what is not sent yet is lost, because the server ends.
        n_open: Number of requests that wait or are worked on.
        uploads: Those of them whose bodies have not come yet.
        bodies: The bytes that their bodies have together.
        places: Where work on large ones is done.
        turns: The turn of each client with an open request, by its key or address.
    """

    models: Models
    options: ServerOptions
    metrics: Metrics = field(default_factory=Metrics)
    is_draining: bool = False
    is_dropping: bool = False
    n_open: int = 0
    uploads: Uploads = field(default_factory=Uploads)
    places: Places = field(default_factory=Places)
    turns: WeakValueDictionary[bytes | str, Turn] = field(default_factory=WeakValueDictionary)
    bodies: BodyBudget = field(init=False)

    def __post_init__(self) -> None:
        self.bodies = BodyBudget(self.options.max_body_bytes)

    def turn_of(self, client: bytes | str) -> Turn:
        """Return the turn of a client: the same one as long as somebody holds it."""
        return self.turns.setdefault(client, Turn())


def state_of(request: Request) -> ServerState:
    """Return the state of the application that answers a request."""
    state: ServerState = request.scope[KEY]
    return state
