"""Converts a caller's prompt to fixed tokens and the text after them.

A prompt is text, token ids or chat messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import cache, partial
from hashlib import blake2b
from itertools import groupby
from typing import Any, SupportsIndex, TypeGuard

import numpy as np

from selectrie.core.tracked_text import TEMPLATE, VALUE, TrackedText, match_trimmed, spans_of, texts_in, track
from selectrie.core.types import IntArray, Limits
from selectrie.core.vocabulary import TIME_ARGUMENT, ChatTemplate, Vocabulary, to_bytes
from selectrie.errors import (
    MAX_QUOTED,
    THE_PROMPT,
    IncompatibleOptionsError,
    MessageText,
    MissingTextError,
    OptionError,
    PromptError,
    PythonOnly,
    Quoted,
    TextError,
    clip,
    clipped,
    remedies,
    words,
)
from selectrie.options import PromptParams
from selectrie.tokenization.encoding import PromptText, encode_after, encode_prompt, least_tokens

ROLE = re.compile(r"\w[\w .-]*")
"""Pattern of a role.

Templates write a role between control tokens, so it must not be able to spell one.
"""
_USUAL_ROLES = ("system", "user", "assistant")
_ROLES = (*_USUAL_ROLES, "developer", "tool")
_LEAST_RATIO = 0.8
"""Similarity from which a role is taken as a mistake: "usr" and "user" have 0.86."""
_MAX_ROLES = 16
"""Maximum number of unusual roles; the template is rendered twice for each."""
_DEVELOPER = re.compile(r"""(["'])developer\1""")
_MARKS = ("selectrie", "0b7e")
"""Contents that a template which writes a message writes differently."""


def adapt_roles(vocabulary: Vocabulary, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with roles that the model's chat template knows.

    OpenAI's role `developer` becomes `system` unless the template names it. Any other
    role stays if the template writes its messages.

    Raises:
        OptionError: For a role whose messages the template leaves out, or which differs
            from a usual one by a letter or two and is not named by the template.
    """
    template = vocabulary.chat_template
    is_known = bool(_DEVELOPER.search(vocabulary.chat_source))
    read = [
        {**message, "role": "system"} if message["role"] == "developer" and not is_known else dict(message)
        for message in messages
    ]
    others = {message["role"]: index for index, message in enumerate(read) if message["role"] not in _USUAL_ROLES}
    if len(others) > _MAX_ROLES:
        raise OptionError("messages", len(others), f"at most {_MAX_ROLES} roles beside system, user and assistant")
    if template is None:
        return read
    for role, index in others.items():
        near = [] if role in _ROLES else get_close_matches(role.lower(), _ROLES, 1, _LEAST_RATIO)
        if near and not re.search(rf"""(["']){re.escape(role)}\1""", vocabulary.chat_source):
            allowed = f"a role that the model's chat template names; did you mean {near[0]!r}?"
            raise OptionError(f"messages[{index}].role", role, allowed)
        try:
            written = {template([{"role": role, "content": mark}, {"role": "user", "content": "x"}]) for mark in _MARKS}
        except PromptError:
            continue  # it may be written in another order; if it is refused, then with its reason
        if len(written) == 1:
            allowed = "a role that the model's chat template writes, such as 'user'"
            raise OptionError(f"messages[{index}].role", role, allowed)
    return read


SHORTEN_PROMPT = remedies(words("shorten {}", THE_PROMPT), "set `truncate='left'`")
"""Advice for a prompt that does not fit."""


def length_advice(n_prompt: int, max_tokens: int, n_nodes: int, *, can_shorten: bool) -> MessageText:
    """Return the advice for a prompt that does not fit with the tokens after it.

    It lists remedies, each of which is enough. The one with more tokens to save
    comes first.

    Args:
        n_prompt: Number of tokens of the prompt.
        max_tokens: Maximum number of tokens after it.
        n_nodes: Number of tokens of a prompt that fits with one token after it.
        can_shorten: Whether a shorter prompt would fit.
    """
    lower = words("lower `max_tokens` ({})", max_tokens)
    if n_prompt > n_nodes:
        return SHORTEN_PROMPT if can_shorten else words("shorten {} and {}", THE_PROMPT, lower)
    shorten = SHORTEN_PROMPT if can_shorten else ""
    return remedies(lower, shorten) if max_tokens > n_prompt else remedies(shorten, lower)


def check_length(vocabulary: Vocabulary, limits: Limits, text: bytes, remedy: str = SHORTEN_PROMPT) -> None:
    """Raise `PromptTooLongError` if a context with this text cannot fit.

    The text is not encoded: it has at least as many tokens as the longest ones need.
    """
    n_least = least_tokens(vocabulary, text, limit=limits.nodes)
    if n_least > limits.nodes:
        raise limits.too_long(n_least, remedy, is_least=True)


_RENDERED = remedies("render the chat yourself and give it as text with `parse_special`, or as token ids")
_ANSWERS = (b"A", b"0", b'"')
"""Answers before which the end of a chat must have its own tokens."""
_MAX_SHOWN = 3
"""Number of control tokens that a note names."""
_TOOL_CALLS = "tool_calls"
"""The field of a message that is a list of JSON objects."""
_VISIBLE = (*range(0x21, 0x7F), *range(0xC2, 0xF5))
"""First bytes of characters that are no white space."""

Message = Mapping[str, object]
Prompt = str | Sequence[int] | Sequence[Message] | PromptText


CheckLength = Callable[[bytes], None]
"""Raises an error for a prompt whose text certainly has too many tokens."""


def read_prompt(
    vocabulary: Vocabulary, prompt: Prompt, prompting: PromptParams, *, check_length: CheckLength | None = None
) -> PromptText:
    """Return the fixed tokens of a prompt and the plain text after them.

    Kinds of prompt:

    - str: BOS if the model adds one, then the text. Control tokens are recognised in it
      with `parse_special`.
    - Token ids: they are checked, and BOS is added before them if the model adds one
      and they do not begin with it. Their end becomes text, as far as the tokenizer
      gives the same tokens for it, so that the boundary can be healed.
    - `PromptText`: taken as it is if it has a token or text.
    - Chat messages (`{"role": ..., "content": ...}`), or a str with `prompting.system`:
      rendered by the model's template, with `assistant_prefix` after it. Control tokens
      are recognised in the template's own text, never in text of messages or
      `template_args`. The template's end becomes fixed tokens if the template writes
      the same before an answer and the answer cannot change them. A message may also
      have `tool_calls`, a list of objects as in OpenAI's API. In a prefix that is
      `TrackedText`, control tokens are recognised where its origin is the template.

    With `prompting.add_bos=False` no BOS is added to any of them.

    `check_length` is called with the prompt's text before anything is encoded.

    Raises:
        PromptError: For a prompt without any token, a chat without a template,
            malformed messages (with their index), or a template that changes the
            messages' text.
        TextError: For a lone surrogate.
        TokenRangeError: For a token that does not exist.
        OptionError: For chat options with a prompt that is not a chat.
    """
    if isinstance(prompt, PromptText):
        _refuse_chat_options(prompting)
        read = prompt
    elif not _is_listed(prompt):
        raise PromptError(f"a prompt must be text, token ids or messages, not {_kind_of(prompt)}")
    elif isinstance(prompt, str) and prompting.system is None:
        _refuse_chat_options(prompting)
        spans = [(to_bytes(prompt, "prompt"), prompting.parse_special)]
        read = _read_spans(vocabulary, spans, check_length)
        spelled = () if prompting.parse_special else vocabulary.controls_spelled(spans[0][0])
        skips_template = vocabulary.chat_template is not None and not prompting.parse_special
        prefix = with_bos(vocabulary, read.prefix, prompting)
        read = replace(read, prefix=prefix, spelled=spelled, skips_template=skips_template)
    elif isinstance(prompt, str):
        read = _read_chat(vocabulary, [{"role": "user", "content": prompt}], prompting, check_length)
    elif len(prompt) and isinstance(prompt[0], Mapping):
        read = _read_chat(vocabulary, prompt, prompting, check_length)
    else:
        _refuse_chat_options(prompting)
        read = _read_ids(vocabulary, prompt, prompting)
    if not len(read.prefix) and not read.text:
        without = words("`add_bos=False` adds no BOS")
        if vocabulary.bos is None:
            without = words("this model puts no BOS token before text")
        remedy = f"give a prompt, or one token id as its prompt{_suggest_id(vocabulary)}"
        raise PromptError(words("the prompt is empty and {}, so nothing predicts the first token; {}", without, remedy))
    return read


def exact_tokens(vocabulary: Vocabulary, prompt: Prompt, prompting: PromptParams) -> tuple[IntArray, tuple[str, ...]]:
    """Return the tokens of a prompt that nothing follows.

    Token ids are taken exactly as they are given: no BOS is added before them. Anything
    else is read as `read_prompt` does, and its text is encoded.

    Returns:
        The tokens, int32[T] with T >= 1, and the notes on the prompt.

    Raises the errors of `read_prompt`.
    """
    if _is_ids(prompt):
        _refuse_chat_options(prompting)
        tokens = _check_ids(vocabulary, prompt)
        if not len(tokens):
            raise PromptError("the prompt is empty: it has no token that could be evaluated; give at least one id")
        return tokens, ()
    read = read_prompt(vocabulary, prompt, prompting)
    return encode_prompt(vocabulary, read), prompt_notes(read)


def is_chat(prompt: Prompt, prompting: PromptParams) -> bool:
    """Return whether a prompt is chat messages, or a text with a system message."""
    if isinstance(prompt, str | PromptText) or not _is_listed(prompt):
        return prompting.system is not None
    return len(prompt) > 0 and isinstance(prompt[0], Mapping)


def _is_ids(prompt: object) -> TypeGuard[Sequence[Any]]:
    """Return whether a prompt is a sequence of token ids, or empty."""
    if isinstance(prompt, str | PromptText) or not _is_listed(prompt):
        return False
    return not len(prompt) or not isinstance(prompt[0], Mapping)


def _kind_of(value: object) -> str:
    """Return the type of a value for a message, with the shape of an array."""
    return type(value).__name__ + (f" of shape {value.shape}" if isinstance(value, np.ndarray) else "")


def _is_listed(prompt: object) -> TypeGuard[Sequence[Any]]:
    """Return whether a prompt is a sequence of items: no bytes, arrays of one axis."""
    if isinstance(prompt, np.ndarray):
        return prompt.ndim == 1
    return isinstance(prompt, Sequence) and not isinstance(prompt, bytes | bytearray | memoryview)


def prompt_notes(prompt: PromptText) -> tuple[str, ...]:
    """Return notes for the caller about how the prompt was read (`Selection.notes`)."""
    notes = []
    if prompt.is_normalized:
        notes.append(
            "the prompt was changed as the model's tokenizer normalises text, so it is not evaluated as it was given"
        )
    if prompt.spelled:
        remedy = "parse_special (--parse-special) reads them as control tokens, and messages write a chat"
        notes.append(f"{spelled_note(prompt.spelled)} plain text; {remedy}")
    return tuple(notes)


def spelled_note(spelled: Sequence[str]) -> str:
    """Return the beginning of a note on control tokens that a prompt names."""
    shown = ", ".join(map(repr, spelled[:_MAX_SHOWN])) + (", …" if len(spelled) > _MAX_SHOWN else "")
    return f"the prompt spells {shown}, which {'is' if len(spelled) == 1 else 'are'} read as"


def require_normalized(vocabulary: Vocabulary, text: bytes, what: str) -> bytes:
    """Return the text; raise `TextError` if the tokenizer would normalise it.

    The error is about `what`.
    """
    normal = vocabulary.normalized(text)
    if normal != text:
        shown, written = (clip(ascii(one.decode("utf-8", "replace")), MAX_QUOTED) for one in (text, normal))
        raise TextError(what, f"the model's tokenizer normalises {shown} to {written}; give it in that form")
    return text


def truncate_left(vocabulary: Vocabulary, prompt: PromptText, max_tokens: int) -> PromptText:
    """Return the prompt without its oldest tokens, at most `max_tokens` long.

    `max_tokens` is at least 1. BOS is kept and counted; the tokens after it are
    dropped. The remaining tokens stay the same: those that the tokenizer would not
    give for the remaining text become fixed tokens.
    """
    if max_tokens < 1:
        raise OptionError("max_tokens", max_tokens, "at least 1")
    tokens = encode_prompt(vocabulary, prompt)
    if len(tokens) <= max_tokens:
        return prompt
    n_kept = int(vocabulary.bos is not None and tokens[0] == vocabulary.bos)
    kept = tokens[:n_kept]
    first = len(tokens) - max_tokens + n_kept
    if first < len(prompt.prefix):
        return replace(prompt, prefix=np.concatenate([kept, prompt.prefix[first:]]))
    if first == len(tokens):
        return replace(prompt, prefix=kept, text=b"")
    cut = with_text(vocabulary, kept, tokens[first:])
    return replace(cut, is_normalized=prompt.is_normalized, spelled=prompt.spelled)


def _read_spans(
    vocabulary: Vocabulary, spans: list[tuple[bytes, bool]], check_length: CheckLength | None
) -> PromptText:
    """Return the prompt of these spans (`Vocabulary.encode_spans`), without BOS.

    The text after the last control token is normalised as its tokenizer does.
    """
    if check_length is not None:
        check_length(b"".join([text for text, _ in spans]))
    tokens, rest = vocabulary.encode_spans(spans)
    is_normalized = any(vocabulary.normalized(text) != text for text, _ in spans)
    return PromptText(tokens, vocabulary.normalized(rest), bool(len(tokens)), is_normalized)


def with_bos(vocabulary: Vocabulary, tokens: IntArray, prompting: PromptParams) -> IntArray:
    """Return the tokens with BOS before them, if the model adds one.

    BOS is not added if they begin with it, nor with `prompting.add_bos=False`.
    """
    if not prompting.add_bos or vocabulary.bos is None or (len(tokens) and tokens[0] == vocabulary.bos):
        return tokens
    return np.concatenate([np.array([vocabulary.bos], dtype=np.int32), tokens])


def _suggest_id(vocabulary: Vocabulary) -> str:
    """Return the EOS token as advice for an empty prompt, "" without one."""
    if vocabulary.eos is None:
        return ""
    return f", such as [{vocabulary.eos}] ({vocabulary.texts[vocabulary.eos]})"


def _refuse_chat_options(prompting: PromptParams) -> None:
    """Raise an error for an option that only a chat can have."""
    for name, value in (
        ("system", prompting.system),
        ("assistant_prefix", prompting.assistant_prefix),
        ("template_args", {name: one for name, one in prompting.template_args.items() if name != TIME_ARGUMENT}),
    ):
        if value:
            raise IncompatibleOptionsError(
                name, "a prompt that is not a chat", words("give chat messages, or text with `system`")
            )


def _read_ids(vocabulary: Vocabulary, ids: Sequence[Any], prompting: PromptParams) -> PromptText:
    """Read token ids as fixed tokens and the text after the last control token."""
    tokens = with_bos(vocabulary, _check_ids(vocabulary, ids), prompting)
    controls = np.flatnonzero(np.isin(tokens, vocabulary.control))
    start = int(controls[-1]) + 1 if len(controls) else 0
    return with_text(vocabulary, tokens[:start], tokens[start:])


def _check_ids(vocabulary: Vocabulary, ids: Sequence[Any]) -> IntArray:
    """Return token ids as int32[], checked.

    Raises `PromptError` for an item of another kind, and `TokenRangeError` for an id
    that does not exist.
    """
    for i, value in enumerate(ids if set(map(type, ids)) != {int} else ()):
        if isinstance(value, bool) or not isinstance(value, SupportsIndex):
            raise PromptError(
                words(
                    "prompt[{}] is {}: a prompt must be text, token ids or messages, not a mixture{}",
                    i,
                    Quoted(value),
                    PythonOnly("; for several prompts use `select_many` or `generate`" * isinstance(value, str)),
                )
            )
    return vocabulary.check_tokens(ids)


def with_text(vocabulary: Vocabulary, prefix: IntArray, tokens: IntArray) -> PromptText:
    """Return a prompt of `prefix` and `tokens`, with the end of `tokens` as text.

    The tokenizer gives exactly these tokens for that text.
    """
    everything = np.concatenate([prefix, tokens])
    n_fixed = len(prefix)
    while n_fixed < len(everything):
        spelled = vocabulary.decode(everything[n_fixed:])
        if spelled and spelled[0] & 0xC0 == 0x80:  # inside a character; no text begins there
            n_fixed += 1
            continue
        fixed = everything[:n_fixed]
        texts = (spelled[1:], spelled) if vocabulary.space_prefix and spelled[:1] == b" " else (spelled,)
        common = 0
        for text in texts:
            encoded = np.asarray(encode_after(vocabulary, fixed, text), dtype=np.int32)
            if np.array_equal(encoded, everything[n_fixed:]):
                return PromptText(fixed, text)
            common = max(common, _common_end(encoded, everything[n_fixed:]))
        n_fixed = max(n_fixed + 1, len(everything) - common)
    return PromptText(everything, b"")


def _common_end(a: IntArray, b: IntArray) -> int:
    """Return the length of the longest common suffix of two token sequences."""
    n = min(len(a), len(b))
    differs = np.flatnonzero(a[len(a) - n :] != b[len(b) - n :])
    return n - int(differs[-1]) - 1 if len(differs) else n


def _read_chat(
    vocabulary: Vocabulary, messages: Sequence[Any], prompting: PromptParams, check_length: CheckLength | None
) -> PromptText:
    """Render a chat by the model's template, and read the result."""
    if vocabulary.chat_template is None:
        raise PromptError(
            "this model has no chat template, so it cannot read messages; give the prompt as text, "
            "formatted as the model expects"
        )
    checked = adapt_roles(vocabulary, [_check_message(i, message) for i, message in enumerate(messages)])
    if prompting.system is not None:
        checked.insert(0, {"role": "system", "content": prompting.system})
    rendered = render_chat(vocabulary.chat_template, checked, prompting.template_args)
    typed = to_bytes(prompting.assistant_prefix, "assistant_prefix")
    spans = [*template_spans(vocabulary, rendered), *_prefix_spans(prompting.assistant_prefix)]
    read = replace(_read_spans(vocabulary, spans, check_length), time=time_of(prompting))
    # The chat ends in the template's own text, which may then be fixed.
    is_templates = read.text and rendered and spans_of(rendered[-1:])[0][1] == TEMPLATE
    if is_templates and prompting.boundary != "harness" and _is_continued(vocabulary, checked, prompting, rendered):
        read = with_fixed_end(vocabulary, read, typed)
    return replace(read, prefix=with_bos(vocabulary, read.prefix, prompting)) if vocabulary.bos_in_chats else read


def _prefix_spans(prefix: str) -> list[tuple[bytes, bool]]:
    """Return an `assistant_prefix` as pairs (bytes, whether it has control tokens)."""
    spans = spans_of(prefix) if isinstance(prefix, TrackedText) else [(prefix, VALUE)]
    return [(text.encode(), origin == TEMPLATE) for text, origin in spans]


def with_fixed_end(vocabulary: Vocabulary, prompt: PromptText, typed: bytes = b"") -> PromptText:
    """Return the prompt with its text before `typed` turned into fixed tokens, if safe.

    It is safe if no token spans the position and a visible character after it, and
    the text has its own tokens before `typed`, or before any of some answers.
    Otherwise the prompt is returned unchanged. `typed` is the end of the prompt
    that a caller wrote.
    """
    head = prompt.text.removesuffix(typed)
    is_apart = head and prompt.text == head + typed and not typed[:1].isspace()
    if not is_apart or vocabulary.derived(_joins_visible)(head[-1]):
        return prompt

    def encoded(text: bytes) -> list[int]:
        return encode_after(vocabulary, prompt.prefix, text, continues=prompt.continues)

    try:
        own = encoded(head)
        is_certain = vocabulary.decode(own) in (head, vocabulary.with_added_space(head))
        for following in (typed,) if typed else _ANSWERS:
            with suppress(TextError):  # the vocabulary has no token for it
                is_certain &= encoded(head + following)[: len(own)] == own
    except MissingTextError:  # an older trace did not ask for them
        return prompt
    if not is_certain:
        return prompt
    return replace(prompt, prefix=np.concatenate([prompt.prefix, np.asarray(own, dtype=np.int32)]), text=typed)


def _joins_visible(vocabulary: Vocabulary) -> Callable[[int], bool]:
    """Return whether a token may span a byte and a visible character after it."""
    return cache(lambda last: any(vocabulary.joins(last, first) for first in _VISIBLE))


def _is_continued(
    vocabulary: Vocabulary, messages: Sequence[Mapping[str, Any]], prompting: PromptParams, rendered: str
) -> bool:
    """Return whether the chat with an answer begins as `rendered`, with no blank next.

    False if the template does not render the answer, or an older trace did not.
    """
    answered = [*messages, {"role": "assistant", "content": _ANSWERS[0].decode()}]
    try:
        whole = vocabulary.chat_template(answered, **prompting.template_args) if vocabulary.chat_template else ""
    except (PromptError, MissingTextError):
        return False
    return whole.startswith(rendered) and bool(whole[len(rendered) :][:1].strip())


def time_of(prompting: PromptParams) -> str:
    """Return the time that the options give to the chat template, or ""."""
    return str(prompting.template_args.get(TIME_ARGUMENT, ""))


def track_args(template_args: Mapping[str, Any], where: str = "template_args") -> dict[str, Any]:
    """Return arguments of a chat template with their texts tracked as values.

    Raises `OptionError` for a value of a kind that JSON does not have, and `TextError`
    for a lone surrogate; both name `where`.
    """
    args = {name: track(value, f"{where}[{name!r}]") for name, value in template_args.items()}
    for name, value in args.items():
        for text in texts_in(value):
            to_bytes(text, f"{where}[{name!r}]")
    return args


def template_spans(vocabulary: Vocabulary, rendered: TrackedText) -> list[tuple[bytes, bool]]:
    """Return a rendered chat as pairs (bytes, whether control tokens are recognised).

    Raises `PromptError` if text of the caller would spell a control token, by itself or
    together with the template's text.
    """
    spans = []
    for is_value, pieces in groupby(spans_of(rendered), key=lambda piece: piece[1] == VALUE):
        run = [(to_bytes(text, "chat messages"), origin == TEMPLATE) for text, origin in pieces]
        if not is_value and not all(is_template for _, is_template in run):
            whole = b"".join([data for data, _ in run])
            (as_read, _), (as_one, _) = map(vocabulary.encode_spans, (run, [(whole, True)]))
            if not np.array_equal(as_read, as_one):
                mixed = b"".join([data for data, is_template in run if not is_template]).decode()
                raise PromptError(
                    words(
                        "the model's chat template computes {} from its own text and that of messages together, so its "
                        "control tokens cannot be distinguished from theirs; {}",
                        clip_stripped(mixed),
                        _RENDERED,
                    )
                )
        spans += run
    return spans


def clip_stripped(text: str) -> str:
    """Return the text for an error message, stripped, clipped and quoted."""
    return clipped(text.strip())


def _check_message(index: int, message: object) -> dict[str, Any]:
    """Return a message as a dict of texts, but for the list of its tool calls.

    Raises `PromptError` if it is malformed.
    """
    where = f"messages[{index}]"
    if not isinstance(message, Mapping):
        raise PromptError(words("is {}: expected an object with 'role' and 'content'", Quoted(message)), where=where)
    for key in ("role", "content"):
        if key not in message:
            raise PromptError(f"has no {key!r}: expected an object with 'role' and 'content'", where=where)
    message = {**message, "content": _joined(message["content"])}
    for key, value in message.items():
        if key == _TOOL_CALLS and isinstance(value, list | tuple):
            track_args({key: value}, where)
            continue
        if not isinstance(key, str) or not isinstance(value, str):
            parts = ", or a list of parts {'type': 'text', 'text': …}" if key == "content" else ""
            raise PromptError(words("is {}: expected text{}", Quoted(value), parts), where=f"{where}[{key!r}]")
        to_bytes(value, f"{where}[{key!r}]")
    if not ROLE.fullmatch(str(message["role"])):
        raise PromptError(
            words("has role {}: expected a word such as 'user', 'assistant' or 'system'", Quoted(message["role"])),
            where=where,
        )
    return message


def _joined(content: object) -> Any:
    """Return the text of a content of text parts, joined by line ends.

    Anything else is returned as it is.
    """
    if not isinstance(content, list | tuple) or not content:
        return content
    texts = [part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None for part in content]
    return "\n".join(map(str, texts)) if all(isinstance(text, str) for text in texts) else content


def render_chat(
    template: ChatTemplate, messages: list[dict[str, Any]], template_args: Mapping[str, Any]
) -> TrackedText:
    """Render a chat with the origin of each character.

    The template is rendered with `TrackedText`, which records the origins, and the
    result must equal the rendering of plain text; otherwise `PromptError` is
    raised. Roles count as the template's, because they are words.
    """
    args = track_args(template_args)
    values: list[Mapping[str, object]] = [
        {TrackedText(key): _track_field(key, value) for key, value in message.items()} for message in messages
    ]
    cause = None
    for _ in range(2):  # twice: a template may write the time, which changes
        plain = template(messages, **template_args)
        try:
            rendered: str | None = template(values, **args)
        except PromptError as error:
            rendered, cause = None, error
        if rendered is not None and not isinstance(rendered, TrackedText):
            rendered = _track_by_marks(messages, plain, partial(template, **template_args))
        if isinstance(rendered, TrackedText) and rendered == plain:
            return rendered
    raise PromptError(
        words(
            "the model's chat template changes what messages say, so its own control tokens cannot be distinguished "
            "from theirs; {}",
            _RENDERED,
        )
    ) from cause


def _track_field(key: str, value: Any) -> Any:
    """Return a field of a message with its texts tracked; a role is the template's."""
    return TrackedText(value, TEMPLATE) if key == "role" else track(value, key)


def _track_by_marks(
    messages: list[dict[str, Any]], plain: str, render: Callable[[list[dict[str, Any]]], str]
) -> TrackedText | None:
    """Return the rendering of a template that does not track text itself.

    The contents of messages are located by rendering once more with a mark in place of
    each value. Returns None if the template does more to messages than trimming them,
    or if a message has tool calls, whose texts are not located.
    """
    if any(_TOOL_CALLS in message for message in messages):
        return None
    key = blake2b(repr(messages).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    values: list[str] = []
    marked: list[dict[str, str]] = []
    for message in messages:
        marks = {}
        for name, value in message.items():
            # Blank values stay, because templates ask whether there is any content.
            if name == "role" or not value.strip():
                marks[name] = value
            else:
                marks[name] = f"m{key}n{len(values)}m"
                values.append(value)
        marked.append(marks)
    parts = re.split(f"m{key}n([0-9]+)m", render(marked))
    return match_trimmed(plain, parts[::2], [values[int(index)] for index in parts[1::2]])
