"""Renders the chats of an untrusted model in a child process with limits.

A chat template is a program of the model file. Jinja's sandbox keeps it from the
system, but not from running forever or from filling the memory. The child is run as
`python -m selectrie.engine.chat_child` and renders chats while its standard input is
open. It reads the template, then messages and arguments, and writes one line of JSON
for each chat. A chat that takes too long is stopped by ending the child; the next chat
gets another.
"""

from __future__ import annotations

import json
import math
import pickle
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import BufferedReader

from selectrie.core.tracked_text import TrackedText, join_texts, spans_of
from selectrie.core.vocabulary import ChatTemplate
from selectrie.engine.trial import START_LINE, hold_signals, start_child, write_line
from selectrie.errors import PromptError, remedies, words

START_S = 60.0
"""Seconds in which the child must start."""
MAX_S = 10.0
"""Seconds in which a chat must be rendered."""
MAX_BYTES = 2 << 30
"""Maximum memory of the child in bytes, where the system can limit it."""
_MODULE = "selectrie.engine.chat_child"


class ChatChild:
    """A `ChatTemplate` that is rendered in a child process, within `MAX_S` seconds.

    Calls from several threads are served one after the other. The first call starts the
    child.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._child: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()

    def __call__(self, messages: Sequence[Mapping[str, object]], /, **template_args: object) -> str:
        """Return the rendered chat; raise `PromptError` if it fails or is too slow."""
        try:
            chat = pickle.dumps(pickle.dumps((messages, template_args)))
        except Exception as error:
            raise PromptError(
                f"messages and arguments cannot be sent to the chat template's process: {error}"
            ) from error
        with self._turn:
            if self._child is None or self._child.poll() is not None:
                self._start()
            line = self._request_line(chat, MAX_S)
        if not line:
            way = remedies("render the chat yourself and give it as text with `parse_special`, or as token ids")
            reason = f"its process ended, or took more than {MAX_S:.0f} s"
            raise PromptError(words("the model's chat template is not rendered: {}; {}", reason, way))
        answer = json.loads(line)
        if "error" in answer:
            raise PromptError(answer["error"])
        return answer["text"] if "text" in answer else join_texts(TrackedText(*span) for span in answer["spans"])

    def _start(self) -> None:
        """Start a child and send it the template; raise `PromptError` if that fails."""
        self._stop_child()
        template, line = pickle.dumps(self._template), b""
        with suppress(OSError):
            with hold_signals():
                self._child = start_child(_MODULE, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
                self._end_child = weakref.finalize(self, _kill_child, self._child)
            line = self._request_line(template, START_S)
        if line.strip() != START_LINE.encode():
            self._stop_child()  # its lines would be taken for answers
            raise PromptError("the model's chat template is not rendered: no child process can be started here")

    def _request_line(self, request: bytes, limit_s: float) -> bytes:
        """Send a request to the child and return the line that it answers.

        b"" if the child ended or was too slow; the child is then gone.
        """
        child, line = self._child, b""
        assert child is not None and child.stdin is not None and child.stdout is not None  # noqa: PT018, S101 - pipes
        timer = threading.Timer(limit_s, child.kill)
        timer.daemon = True
        timer.start()
        try:
            with suppress(BrokenPipeError):
                child.stdin.write(request)
                child.stdin.flush()
                line = child.stdout.readline()
        finally:
            timer.cancel()
            if not line.endswith(b"\n"):
                line = b""
                self._stop_child()
        return line

    def _stop_child(self) -> None:
        """End the child, if there is one."""
        if self._child is not None:
            self._child = None
            self._end_child()


def _kill_child(child: subprocess.Popen[bytes]) -> None:
    """Kill the process, wait for its end and close its pipes."""
    child.kill()
    child.communicate()  # closes the pipes and waits


def main() -> None:
    """Render chats until standard input ends."""
    _limit_process()
    requests = sys.stdin.buffer
    assert isinstance(requests, BufferedReader)  # noqa: S101 - which typeshed does not say
    template: ChatTemplate = pickle.load(requests)  # noqa: S301 - written by our own parent process
    write_line(START_LINE)
    while requests.peek(1):
        chat = pickle.load(requests)  # noqa: S301
        _set_alarm(math.ceil(MAX_S) + 1)
        write_line(json.dumps(_render_chat(template, chat)))
        _set_alarm(0)


def _render_chat(template: ChatTemplate, chat: bytes) -> dict[str, object]:
    """Return the rendered chat, or the error, as the JSON object of the answer."""
    try:
        messages, template_args = pickle.loads(chat)  # noqa: S301
    except Exception as error:  # noqa: BLE001 - such as a class of the caller's `__main__`
        return {"error": f"messages and arguments cannot be read in the chat template's process: {error}"}
    try:
        text = template(messages, **template_args)
    except PromptError as error:
        return {"error": str(error)}
    return {"spans": spans_of(text)} if isinstance(text, TrackedText) else {"text": text}


def _set_alarm(limit_s: int) -> None:
    """End this process after some seconds, even without the parent; never for 0."""
    if hasattr(signal, "alarm"):
        signal.alarm(limit_s)


def _limit_process() -> None:
    """Ignore Ctrl-C, which the parent handles, and limit memory and core files."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_BYTES if hard < 0 else min(MAX_BYTES, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


if __name__ == "__main__":
    main()
