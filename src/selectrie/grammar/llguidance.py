"""Adapts llguidance grammars to the automaton port, and reads texts with them."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from selectrie.core.types import BoolArray, IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import GrammarError, ProtocolError
from selectrie.grammar.acceptance import LEADS, LENGTH_BITS, describe_bytes, describe_characters, limit_descriptions
from selectrie.grammar.machine.machine import DEAD
from selectrie.grammar.rules import TokenTerminal
from selectrie.grammar.token_mask import byte_trie

GuidanceDialect = Literal["auto", "lark", "regex", "serialised"]

UNFORCED = '%llguidance {"no_forcing": true}'
"""Makes llguidance allow every token that fits.

By default, it allows only the token that its tokenizer would choose where bytes are
forced.
"""

SPECIAL = b"\xff"
"""Prefix of llguidance for tokens that are not text; UTF-8 never contains it."""

MATCHER_BYTES, STEP_BYTES = 4096, 160
"""Memory of a matcher and of each token it has read.

Measured by resident size with llguidance 1.9.1: 3.5 kB and 140 bytes.
"""

STATE_BYTES = 300
"""Memory of a transition and of the state that it leads to."""

STUCK = "NoExtensionBias"
"""Why llguidance stops if no token of the vocabulary fits."""

REFUSED = "doesn't satisfy the grammar"
"""Part of the message of a matcher that had to read what its grammar refuses.

Any other message means that llguidance exceeded one of its limits.
"""

LIMITS: Mapping[str, Any] = {"step_lexer_fuel": 10_000_000, "max_items_in_row": 20_000, "step_max_items": 500_000}
"""Limits of llguidance, above its defaults.

50 000 of fuel take it about 1 ms; 2 000 optional properties are 8 007 items.
"""
GAVE_UP = "lexer error"
"""Beginning of llguidance's messages if the fuel did not suffice."""

TOO_MANY = re.compile(r"(?:Parser Error: )?Current row has (\d+) items")
"""Beginning of llguidance's messages if `max_items_in_row` did not suffice."""

NO_TEXT = "this vocabulary cannot spell any text of the grammar; check whether one of its rules never ends"
MAX_CHARACTERS = 500_000
"""Maximum length of a grammar.

llguidance reads about 0.4 MB a second of a rule with many symbols.
"""
MAX_RULES = 1_000
"""Maximum number of Lark definitions and of targets that JSON Schemas refer to.

llguidance descends into them by recursion. It aborts the process if 8 MiB of stack are
not enough, which happens from between 2 000 and 4 000 rules on.
"""
MAX_SHOWN = 300
"""Characters kept at either end of llguidance's messages.

They may repeat the whole grammar.
"""

NO_STATE = -1

Key = TypeVar("Key")
Value = TypeVar("Value")
_POSITION = re.compile(r"(?:at )?(\d+)\((\d+)\): (.*)", re.DOTALL)
_DEFINED = re.compile(r"^[ \t]*[?!]*[A-Za-z_][\w-]*(?:::[^:\n]*|\[[^\]\n]*\]|\.-?\d+)*[ \t]*:", re.MULTILINE)
_CONTEXT = re.compile(r"\n +\d+ \| ")


@dataclass(frozen=True, slots=True)
class GuidanceGrammar:
    """A checked grammar that llguidance reads.

    Attributes:
        serialised: JSON of the form `{"grammars": [...]}`.
        route: The notation that the grammar was made from, with llguidance's version.
            The digest is blake2b over `route` and `serialised`, since another version
            may read the same grammar differently.
        notes: Parts of the source that have no effect although its author may expect
            one.
    """

    serialised: str
    route: str
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        return blake2b(f"{self.route}\n{self.serialised}".encode(), digest_size=16).hexdigest()

    def automaton(self, vocabulary: Vocabulary, *, cache_bytes: int = 64 << 20) -> GuidanceAutomaton:
        """Return the automaton over a vocabulary's tokens.

        Raises `GrammarError` if the grammar names a token that does not exist.
        """
        return GuidanceAutomaton(self, vocabulary, cache_bytes=cache_bytes)


def read_guidance(text: str, *, dialect: GuidanceDialect = "auto") -> GuidanceGrammar:
    """Return a checked grammar from a text in one of llguidance's dialects.

    With "auto", a JSON object is a serialised grammar, `/…/` around the whole text is a
    regular expression (in Rust's syntax, matching the whole text), and any other text
    is Lark. Raises `GrammarError` with llguidance's message and position.
    """
    import llguidance

    if len(text) > MAX_CHARACTERS:
        raise GrammarError(f"the grammar has {len(text)} characters; llguidance reads at most {MAX_CHARACTERS}")
    _check_characters(text)
    dialect = _dialect_of(text) if dialect == "auto" else dialect
    source = text
    if dialect == "regex":
        pattern = text.strip()[1:-1] if _dialect_of(text) == "regex" else text
        text, source = llguidance.LLMatcher.grammar_from_regex(pattern), ""
        text = json.loads(text)["grammars"][0]["lark_grammar"]
    grammars = _serialised_grammars(text) if dialect == "serialised" else [{"lark_grammar": text}]
    _check_depth(grammars)
    return check_guidance(grammars, f"llguidance {guidance_version()} {dialect}", source=source)


def check_guidance(grammars: Sequence[Mapping[str, Any]], route: str, *, source: str = "") -> GuidanceGrammar:
    """Return a checked grammar from grammars in llguidance's serialised form.

    The first grammar is the start. Raises `GrammarError` if llguidance refuses them.

    Args:
        grammars: The grammars.
        route: See `GuidanceGrammar.route`.
        source: The text that positions in errors refer to.
    """
    serialised = json.dumps({"grammars": _disable_forcing(grammars)}, ensure_ascii=False)
    _check_characters(serialised)
    import llguidance

    failed, messages = llguidance.LLMatcher.validate_grammar_with_warnings(serialised)
    if failed:
        raise convert_error(messages[0], source)
    return GuidanceGrammar(serialised, route)


def guidance_version() -> str:
    """Return the version of llguidance."""
    import llguidance

    return str(llguidance.__version__)


class GuidanceAutomaton:
    """The tokens of a vocabulary that an llguidance grammar allows.

    Not thread-safe. A state is a path of tokens: equal paths are the same state,
    different paths are different states. A state is an entry in tables. Matchers and
    masks of states are cached up to `cache_bytes`; one that was dropped is made again
    by reading the path.

    All tokens with the same bytes are allowed alike. Control tokens are allowed where
    the grammar names them (`<think>`), end-of-generation tokens never. A step costs a
    copy of a matcher (4 µs or more, growing with the length); a mask costs what
    llguidance takes to compute it.

    Raises `GrammarError` if llguidance refuses the grammar, if the vocabulary cannot
    spell a beginning of any of its texts, and later if llguidance exceeds one of its
    limits.
    """

    def __init__(self, grammar: GuidanceGrammar, vocabulary: Vocabulary, *, cache_bytes: int = 64 << 20) -> None:
        self._n_tokens = vocabulary.n_tokens
        self._barred = frozenset(int(token) for token in vocabulary.eog)
        self._eog = vocabulary.eog
        self._pieces, self._trie = vocabulary.pieces, byte_trie(vocabulary)
        import llguidance

        limits = llguidance.LLParserLimits(**LIMITS)
        matcher = llguidance.LLMatcher(
            vocabulary.derived(_make_tokenizer), grammar.serialised, log_level=0, limits=limits
        )
        if matcher.is_error():
            raise convert_error(matcher.get_error())
        self._first = matcher
        self._parent, self._token, self._depth = [0], [0], [0]
        self._next: dict[tuple[int, int], int] = {}
        self._ends: dict[int, bool] = {}
        self._mask_of: dict[int, bytes] = {}
        self._masks: _ByteLru[bytes, BoolArray | IntArray] = _ByteLru(cache_bytes // 2, lambda mask: mask.nbytes)
        self._matchers: _ByteLru[int, tuple[Any, int]] = _ByteLru(
            cache_bytes - cache_bytes // 2, lambda held: MATCHER_BYTES + STEP_BYTES * held[1]
        )
        first = self.allowed(0)
        if not self.can_end(0) and not (first.any() if first.dtype == np.bool_ else len(first)):
            raise GrammarError(NO_TEXT)

    @property
    def n_bytes(self) -> int:
        """Return the approximate memory of states, masks and matchers, in bytes."""
        return STATE_BYTES * len(self._next) + self._masks.n_bytes + self._matchers.n_bytes

    def start(self) -> int:
        return 0

    def allowed(self, state: int) -> BoolArray | IntArray:
        """Return the tokens that may come next (see `Automaton.allowed`)."""
        key = self._mask_of.get(state)
        mask = None if key is None else self._masks.get(key)
        if mask is None:
            self.can_end(state)  # ask first: a matcher that finds no next token can no longer tell
            matcher = self._matcher(state)
            bits = matcher.compute_bitmask()
            if matcher.is_error():
                if matcher.get_error() != STUCK:
                    raise convert_error(matcher.get_error())
                bits = bytes(len(bits))
            key = blake2b(bits, digest_size=16).digest()
            self._mask_of[state] = key
            mask = self._masks.get(key)
            if mask is None:
                mask = self._unpack_mask(bits)
                self._masks.put(key, mask)
        return mask

    def advance(self, state: int, token: int) -> int:
        """Return the state after a token (see `Automaton.advance`)."""
        if not 0 <= token < self._n_tokens or token in self._barred:
            raise ProtocolError(f"token {token} is not allowed in state {state}")
        following = self._step(state, token)
        if following == NO_STATE:
            raise ProtocolError(f"token {token} is not allowed in state {state}")
        return following

    def can_end(self, state: int) -> bool:
        """Return whether the text may end here."""
        ends = self._ends.get(state)
        if ends is None:
            ends = self._ends[state] = bool(self._matcher(state).is_accepting())
        return ends

    def allowed_after(self, state: int, prefix: bytes) -> BoolArray | IntArray:
        """Return the tokens that begin with `prefix` and continue as the state allows.

        Only the bytes after the prefix, at least one, are read from the state
        on. With b"", the result is that of `allowed`. Otherwise it is int32[]
        ids: each token that starts with the prefix is tried, which takes 3 µs
        and creates no state.
        """
        if not prefix:
            return self.allowed(state)
        node = self._trie.find(prefix)
        if node < 0:
            return np.empty(0, dtype=np.int32)
        matcher, first, n_tokens = self._matcher(state), len(prefix), self._n_tokens + 1
        tokens: list[int] = []
        refused: bytes | None = None
        for token in self._trie.token[self._trie.own_stop[node] : self._trie.last_rank[node]].tolist():
            piece = self._pieces[token]
            if refused is not None and piece.startswith(refused):
                continue
            n_read = matcher.validate_tokens([n_tokens + byte for byte in piece[first:]])
            if n_read == len(piece) - first:
                tokens.append(token)
            else:
                refused = piece[: first + n_read + 1]
        if refused is not None:
            _check_refused(matcher, [n_tokens + byte for byte in refused[first:]])
        return np.sort(np.array(tokens, dtype=np.int32))

    def walk(self, state: int, text: bytes) -> int:
        """Return the state after the bytes `text` in any tokens; -1 if refused."""
        for byte in text if state != NO_STATE else b"":
            state = self._step(state, self._n_tokens + 1 + byte)
            if state == NO_STATE:
                break
        return state

    def _step(self, state: int, token: int) -> int:
        """Return the state after a token of llguidance, or `NO_STATE` if it is refused.

        The result is cached.
        """
        following = self._next.get((state, token))
        if following is None:
            matcher = self._matcher(state)
            if matcher.validate_tokens([token]) == 1:
                following = len(self._parent)
                self._parent.append(state)
                self._token.append(token)
                self._depth.append(self._depth[state] + 1)
                self._cache_matcher(following, self._consume(matcher.deep_copy(), [token]))
            else:
                _check_refused(matcher, [token])
                following = NO_STATE
            self._next[state, token] = following
        return following

    def _matcher(self, state: int) -> Any:
        """Return the matcher of a state.

        If it was dropped, it is made again from the nearest state before it that has
        one.
        """
        path: list[int] = []
        at = state
        held = self._matchers.get(at)
        while at != 0 and held is None:
            path.append(self._token[at])
            at = self._parent[at]
            held = self._matchers.get(at)
        matcher = self._first if at == 0 or held is None else held[0]
        if path:
            matcher = self._consume(matcher.deep_copy(), path[::-1])
            self._cache_matcher(state, matcher)
        return matcher

    def _cache_matcher(self, state: int, matcher: Any) -> None:
        self._matchers.put(state, (matcher, self._depth[state]))

    @staticmethod
    def _consume(matcher: Any, path: list[int]) -> Any:
        """Return a matcher after some tokens; raise its error if it refuses one."""
        if not matcher.consume_tokens(path):
            raise convert_error(matcher.get_error())
        return matcher

    def _unpack_mask(self, bits: bytes) -> BoolArray | IntArray:
        """Return a mask of llguidance as bool[V], or as int32[] ids if smaller."""
        allowed = np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=self._n_tokens, bitorder="little")
        allowed[self._eog] = 0
        mask: BoolArray | IntArray = allowed.view(np.bool_)
        if 4 * int(np.count_nonzero(mask)) < self._n_tokens:
            mask = np.flatnonzero(mask).astype(np.int32)
        mask.flags.writeable = False
        return mask


class _ByteLru(Generic[Key, Value]):
    """A least-recently-used cache with a budget of bytes.

    It always keeps the last value put in.
    """

    def __init__(self, max_bytes: int, size: Callable[[Value], int]) -> None:
        self._max_bytes, self._size, self.n_bytes = max_bytes, size, 0
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """Return a value and mark it as used; None if it is absent."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Add a value and drop the least recently used ones beyond the budget."""
        self._values[key] = value
        self.n_bytes += self._size(value)
        while self.n_bytes > self._max_bytes and len(self._values) > 1:
            self.n_bytes -= self._size(self._values.popitem(last=False)[1])


def convert_error(message: str, source: str = "") -> GrammarError:
    """Convert an error message of llguidance to a `GrammarError`.

    It contains the message without llguidance's excerpt, and the position in `source`.
    """
    message = message.partition("\n<state>")[0]
    if message == STUCK:
        return GrammarError(NO_TEXT)
    if message.startswith(GAVE_UP):
        return GrammarError(
            "llguidance gave up: a pattern or a count of characters has more states than it "
            f"examines; simplify it, or reduce its counts ({message[:MAX_SHOWN]})"
        )
    if too_many := TOO_MANY.match(message):
        return GrammarError(
            f"llguidance gave up: a text can continue in {too_many[1]} ways at one position, but it "
            f"follows at most {LIMITS['max_items_in_row']}; use fewer optional properties, or fewer "
            "alternatives at one position"
        )
    position = _POSITION.match(message)
    reason = _CONTEXT.split(position[3] if position else message)[0].strip()
    reason = reason if len(reason) <= 2 * MAX_SHOWN else f"{reason[:MAX_SHOWN]} … {reason[-MAX_SHOWN:]}"
    lines = source.split("\n")
    if position and int(position[1]) <= len(lines) and source:
        line = int(position[1])
        return GrammarError(reason, line=line, column=int(position[2]), excerpt=lines[line - 1])
    return GrammarError(reason)


def _check_refused(matcher: Any, tokens: list[int]) -> None:
    """Raise an error if a matcher refused tokens because it exceeded a limit.

    A matcher reports this only when it has to read the tokens, and then each time.
    """
    if matcher.is_stopped() and not matcher.is_error():
        return  # the text has ended
    copy = matcher.deep_copy()
    if copy.consume_tokens(tokens) or REFUSED not in copy.get_error():
        raise convert_error(copy.get_error())


def _dialect_of(text: str) -> Literal["lark", "regex", "serialised"]:
    """Return the dialect that a text is recognised as."""
    stripped = text.strip()
    if stripped.startswith("{"):
        return "serialised"
    return "regex" if len(stripped) > 1 and stripped[0] == stripped[-1] == "/" else "lark"


def _serialised_grammars(text: str) -> list[dict[str, Any]]:
    """Parse the list under "grammars" of a serialised grammar, or raise an error."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"the serialised grammar is not JSON: {error}") from error
    grammars = value.get("grammars") if isinstance(value, dict) else None
    if not isinstance(grammars, list) or not grammars or not all(isinstance(one, dict) for one in grammars):
        raise GrammarError('a serialised grammar has the form {"grammars": [...]}, with at least one object inside')
    if value.get("max_tokens") is not None:
        raise GrammarError("max_tokens is not supported: a grammar decides on text, not tokens; pass it to the search")
    return grammars


def _disable_forcing(grammars: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return copies of the grammars, with `UNFORCED` in the first Lark grammar.

    One grammar is enough. Without a Lark grammar, a new one is put before the others.
    """
    copies = [dict(grammar) for grammar in grammars]
    for grammar in copies:
        if isinstance(grammar.get("lark_grammar"), str):
            grammar["lark_grammar"] += "\n" + UNFORCED  # at the end, so that positions of errors stay the same
            return copies
    name = copies[0].setdefault("name", "schema") or "schema"
    return [{"lark_grammar": f"start: @{name}\n{UNFORCED}"}, {**copies[0], "name": name}, *copies[1:]]


def _check_characters(text: str) -> None:
    """Raise `GrammarError` if the text contains a surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise GrammarError(f"the grammar has the surrogate U+{code:04X}, which is not a character; remove it") from None


def _check_depth(grammars: Sequence[Mapping[str, Any]]) -> None:
    """Raise `GrammarError` for grammars that might overflow llguidance's stack.

    Chains of references are not followed; their greatest possible length counts.
    """
    texts = [text for grammar in grammars if isinstance(text := grammar.get("lark_grammar"), str)]
    n_rules = sum(len(_DEFINED.findall(text)) for text in texts)
    for grammar in grammars:
        schema = grammar.get("json_schema")
        if schema is not None:
            references, depth = _find_references(schema)
            n_rules += len(references) * depth
    if n_rules > MAX_RULES:
        raise GrammarError(f"the grammar has {n_rules} rules; llguidance reads at most {MAX_RULES}; split the grammar")


def _find_references(schema: object) -> tuple[set[str], int]:
    """Return the references in a schema, and the depth of its nesting."""
    references: set[str] = set()
    deepest = 0
    waiting = [(schema, 0)]
    while waiting:
        part, depth = waiting.pop()
        deepest = max(deepest, depth)
        if isinstance(part, dict):
            if isinstance(part.get("$ref"), str):
                references.add(part["$ref"])
            waiting += [(value, depth + 1) for value in part.values()]
        elif isinstance(part, list):
            waiting += [(value, depth + 1) for value in part]
    return references, deepest


class _Pieces:
    """A vocabulary in the form that llguidance expects.

    After the vocabulary's tokens come one that ends a text and one for each byte. The
    vocabulary's end-of-generation tokens are ordinary control tokens here, so that
    ending a text stays separate from them.
    """

    bos_token_id = None
    special_token_ids: tuple[int, ...] = ()

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._first_byte = vocabulary.n_tokens + 1
        self.eos_token_id = vocabulary.n_tokens
        own = [
            (b"" if piece.startswith(SPECIAL) else piece) or _special_piece(text)
            for piece, text in zip(vocabulary.pieces, vocabulary.texts, strict=True)
        ]
        single = [bytes([byte]) if bytes([byte]) != SPECIAL else b"" for byte in range(256)]
        self.tokens = [*own, SPECIAL + b"<end of the text>", *single]

    def __call__(self, text: bytes | str) -> list[int]:
        return [self._first_byte + byte for byte in (text.encode() if isinstance(text, str) else text)]


def _special_piece(text: str) -> bytes:
    return SPECIAL + text.encode("utf-8", "surrogatepass") if text else b""


def _make_tokenizer(vocabulary: Vocabulary) -> Any:
    import llguidance

    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Pieces(vocabulary)))


MAX_READS = 8
"""Maximum number of bytes read to find the characters that begin with one byte."""


class GuidedBytes:
    """A `ByteReader` over an llguidance automaton whose vocabulary is the 256 bytes.

    This vocabulary has no tokens that the grammar could name, so a grammar that names
    one raises an error. The mask of each state is computed before a byte is read, as in
    a search, because that makes llguidance renew the budget of its lexer.
    """

    token_sets: tuple[TokenTerminal, ...] = ()

    def __init__(self, grammar: GuidanceGrammar) -> None:
        self._automaton = grammar.automaton(_byte_vocabulary(), cache_bytes=16 << 20)
        self.start = self._automaton.start()

    def step(self, configuration: int, byte: int) -> int:
        """Return the state after one more byte, or `DEAD` if it is refused."""
        if configuration == DEAD or byte not in self.following(configuration):
            return DEAD
        return self._automaton.walk(configuration, bytes([byte]))

    def following(self, configuration: int) -> frozenset[int]:
        """Return the bytes that may come next in a state."""
        allowed = self._automaton.allowed(configuration)
        return frozenset((np.flatnonzero(allowed) if allowed.dtype == np.bool_ else allowed).tolist())

    def expected(self, configuration: int) -> tuple[str, ...]:
        """Return descriptions of the characters that may come next.

        A character of several bytes is found by reading its bytes, and each path of
        bytes is a separate state here. So at most `MAX_READS` bytes are read after each
        first byte. If that is not enough, that byte represents its characters.
        """
        bytes_ = self.following(configuration)
        characters: list[tuple[int, int]] = []
        unread: list[int] = []
        for lead in sorted(bytes_):
            n_more = next((n for first, last, n in LEADS if first <= lead < last), None)
            if n_more is None:
                continue
            ranges = self._character_ranges(configuration, lead, n_more, lead - LENGTH_BITS[n_more])
            if ranges is None:
                unread.append(lead)
            else:
                characters += ranges
        inside = [byte for byte in sorted(bytes_) if 0x80 <= byte < 0xC0]
        shown = describe_characters(characters) + describe_bytes((byte, byte) for byte in [*inside, *unread])
        return limit_descriptions(shown, self.can_end(configuration))

    def _character_ranges(self, configuration: int, byte: int, n_more: int, base: int) -> list[tuple[int, int]] | None:
        """Return ranges of the characters that continue with `byte`; None if too many.

        `base` holds the bits of the code point known so far, and `n_more` bytes follow.
        """
        if not n_more:
            return [(base, base)]
        waiting, ranges = [(configuration, byte, n_more, base)], list[tuple[int, int]]()
        n_reads = 0
        while waiting:
            at, byte, n_more, base = waiting.pop()
            n_reads += 1
            if n_reads > MAX_READS:
                return None
            after = self.step(at, byte)
            nexts = sorted(one for one in self.following(after) if 0x80 <= one < 0xC0)
            if n_more == 1:
                ranges += [((base << 6) + one - 0x80, (base << 6) + one - 0x80) for one in nexts]
            else:
                waiting += [(after, one, n_more - 1, (base << 6) + one - 0x80) for one in nexts]
        return sorted(ranges)

    def can_end(self, configuration: int) -> bool:
        """Return whether the text may end here."""
        return self._automaton.can_end(configuration)

    def token_terminals(self, _configuration: int) -> tuple[int, ...]:
        """Return (): only bytes may come next."""
        return ()


def _byte_vocabulary() -> Vocabulary:
    """Return a vocabulary whose tokens are the 256 bytes."""
    pieces = tuple(bytes([byte]) for byte in range(256))
    nothing = np.empty(0, dtype=np.int32)
    return Vocabulary(
        pieces=pieces,
        texts=tuple(f"<0x{byte:02X}>" for byte in range(256)),
        bos=None,
        eos=None,
        eog=nothing,
        control=nothing,
        space_prefix=False,
        tokenize=list,
    )
