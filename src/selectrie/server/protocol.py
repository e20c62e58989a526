"""Connections: uvicorn's protocol of HTTP/1.1 with limits of time.

uvicorn limits the time between requests, and the gate that of a body that is wanted.
What they leave open is closed here: headers that never end, bodies that are not read,
and clients that do not take their response. Errors of HTTP itself have the shape of all
other errors.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from selectrie.errors import MAX_QUOTED, clip
from selectrie.server.exchange import Exchange, id_of
from selectrie.server.http_errors import HttpError, headers_of

MAX_HEAD_BYTES = 1 << 16
"""Maximum size of a request line and its headers, in bytes."""
_ABSOLUTE = re.compile(rb"https?://(?P<host>[^/?]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a connection, in seconds.

    Attributes:
        header_s: Time in which the headers of a request must arrive, from their first
            byte on, or from the beginning of the connection.
        rest_s: Time in which the rest of a body may arrive after its response was sent.
            It is read and dropped: a connection that is closed over it would be reset,
            and the client could lose the response.
        stall_s: Time in which a client takes nothing of what is sent to it.
    """

    header_s: float = 20.0
    rest_s: float = 30.0
    stall_s: float = 60.0


class _Connection(h11.Connection):
    """h11's connection of a server, which refuses two more kinds of requests.

    h11 reads a body by `Transfer-Encoding` if there is a `Content-Length` too. A proxy
    that goes by the other header takes a part of that body for a second request, so
    both together are refused (RFC 9112, 6.3). h11 limits the head of a request only
    while it is incomplete, and here a whole one is limited too.

    Attributes:
        refusal: The error that answers the client's last one.
        is_head: Whether the last request is one whose response has no body.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD_BYTES)
        self.refusal = HttpError(400, "bad_http", "expected HTTP/1.1")
        self.is_head = False

    def next_event(self) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        """Return the next event of the client.

        Raises:
            h11.RemoteProtocolError: For what is not HTTP, or is refused. `refusal` has
                the response.
        """
        begins_request = self.their_state is h11.IDLE
        if begins_request:
            self.is_head = False  # a line that is no request may follow one for a head
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                self.is_head = event.method == b"HEAD"
                _check_head(event)
                event = _with_origin_form(event)
        except h11.RemoteProtocolError as error:
            if begins_request and error.error_status_hint == 431:
                message = f"request line and headers are larger than {MAX_HEAD_BYTES} bytes: send fewer or shorter ones"
                self.refusal = HttpError(431, "headers_too_large", message)
            else:
                reason = clip(str(error).partition(": bytearray(")[0], MAX_QUOTED)
                self.refusal = HttpError(400, "bad_http", f"not a request of HTTP/1.1: {reason}")
            raise
        return event


def _check_head(request: h11.Request) -> None:
    """Raise h11's error for a request that is too large, or says two lengths."""
    size = len(request.target) + sum(len(name) + len(value) for name, value in request.headers)
    if size > MAX_HEAD_BYTES:
        raise h11.RemoteProtocolError("Headers too large", error_status_hint=431)
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in request.headers}:
        raise h11.RemoteProtocolError("it has both Content-Length and Transfer-Encoding")


def _with_origin_form(request: h11.Request) -> h11.Request:
    """Return a request whose target is a path.

    The host of a target in absolute form takes the place of `Host` (RFC 9112, 3.2.2).
    """
    found = _ABSOLUTE.match(request.target)
    if found is None:
        return request
    path = request.target[found.end() :]
    headers = [(name, value) for name, value in request.headers if name != b"host"]
    return h11.Request(
        method=request.method,
        target=path if path.startswith(b"/") else b"/" + path,
        headers=[(b"host", found["host"]), *headers],
        http_version=request.http_version,
    )


class _Transport:
    """A transport whose `close` lets the client send the rest of its body first.

    uvicorn closes a connection after its last response. Where a body was refused before
    it was read, the client would be reset, and never see the response.
    """

    def __init__(self, transport: asyncio.Transport, protocol: HttpProtocol) -> None:
        self._transport, self._protocol = transport, protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        if not self._protocol.linger():
            self._transport.close()


class HttpProtocol(H11Protocol):
    """One connection.

    Args:
        limits: Its limits.
        named: What uvicorn gives its protocols.
    """

    def __init__(self, *, limits: ConnectionLimits, **named: Any) -> None:
        super().__init__(**named)
        self.conn: _Connection = _Connection()
        self._limits = limits
        self._is_refused = False
        self._awaited: tuple[str, object] | None = None
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None

    @property
    def has_unsent(self) -> bool:
        """Return whether a response was not sent to its end."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        is_answering = cycle is not None and not (cycle.response_complete or cycle.disconnected)
        return is_answering or self.transport.get_write_buffer_size() > 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # At 0, writing pauses whenever something was not sent at once.
        transport.set_write_buffer_limits(high=0)
        super().connection_made(cast("asyncio.Transport", _Transport(transport, self)))
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._reading, self._writing):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, or is refused, and close the connection."""
        del msg  # the connection knows more
        self._refuse(self.conn.refusal)

    def shutdown(self) -> None:
        """Close the connection when no response is due."""
        if self._is_refused:
            self.transport.close()
        else:
            super().shutdown()

    def linger(self) -> bool:
        """Go on reading what the client still sends of a body, and drop it.

        Returns whether there is such a body, and this was not begun before.
        """
        has_rest = self.conn.their_state is h11.SEND_BODY and not self._is_refused
        return has_rest and not self.transport.is_closing() and self._drop_rest()

    def _drop_rest(self) -> bool:
        """End the responses; read and drop what comes until the client closes.

        Returns False, and does nothing, if the transport cannot end only one direction.
        """
        if not self.transport.can_write_eof():
            return False
        self._is_refused = True
        self.transport.write_eof()
        self.flow.resume_reading()
        self._watch()
        return True

    def _watch(self) -> None:
        """Limit the time of what the connection now waits for.

        The limit holds for all of the headers, or the rest of a body, so a client does
        not gain time with every byte.
        """
        awaited = self._what_is_awaited()
        if awaited == self._awaited:
            return
        self._awaited = awaited
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        if awaited is not None:
            seconds = self._limits.header_s if awaited[0] == "headers" else self._limits.rest_s
            self._reading = self.loop.call_later(seconds, self._too_late)

    def _what_is_awaited(self) -> tuple[str, object] | None:
        """Return "headers" or "rest", and the request before; None for neither."""
        if self.transport.is_closing():
            return None
        if self._is_refused:
            return ("rest", self.cycle)
        if self.conn.their_state is h11.IDLE:
            return None if self.timeout_keep_alive_task is not None else ("headers", self.cycle)
        is_rest = self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete
        return ("rest", self.cycle) if is_rest else None

    def _too_late(self) -> None:
        if self._awaited is not None and self._awaited[0] == "headers" and self.conn.trailing_data[0]:
            seconds = self._limits.header_s
            self._refuse(HttpError(408, "header_timeout", f"the headers did not arrive within {seconds:g} s"))
        else:
            self.transport.close()

    def _watch_writing(self) -> None:
        """Close the connection for good if nothing is taken for a while."""
        if self._writing is not None:
            self._writing.cancel()
        n_unsent = self.transport.get_write_buffer_size()
        self._writing = self.loop.call_later(self._limits.stall_s, self._stalled, n_unsent)

    def _stalled(self, n_before: int) -> None:
        n_unsent = self.transport.get_write_buffer_size()
        if n_unsent >= n_before:
            self.transport.abort()
        elif n_unsent:
            self._watch_writing()

    def _refuse(self, error: HttpError) -> None:
        """Answer with an error, if no response has begun, and end the connection.

        What the client still sends is read and dropped until it closes, or for the time
        of a rest: a connection that is closed over unread bytes is reset.
        """
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE) or self._is_refused:
            self.transport.close()
            return
        self._is_refused = True
        if self.cycle is not None:  # the application must not answer too
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = error.encoded()
        headers = [*headers_of(error, body), *Exchange(id_of(""), "other").headers(), (b"connection", b"close")]
        content = h11.Data(b"" if self.conn.is_head else body)
        for event in (h11.Response(status_code=error.status, headers=headers), content, h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        if not self._drop_rest():
            self.transport.close()
