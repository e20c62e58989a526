"""A prompt and a grammar as tokens and an automaton over what follows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from selectrie.automaton import Automaton
from selectrie.boundary import OwnPaths, PromptText, encode_prompt, open_prompt
from selectrie.errors import GrammarError, OptionError, PromptTooLongError
from selectrie.grammar import Grammar
from selectrie.options import Prompting
from selectrie.prompts import Prompt, read_prompt, truncate_left
from selectrie.types import IntArray, Limits
from selectrie.vocabulary import Vocabulary, to_bytes

_MOST_LISTED = 10_000
"""Texts of a finite grammar looked at to see whether one continues another."""


@dataclass(frozen=True, slots=True, eq=False)
class Constrained:
    """A prompt whose continuation a grammar restricts, as tokens.

    prompt: int32[T], the kept context. automaton: over what follows it: first `healed`, the bytes of the last token of the
    prompt's text, then the delimiter (and before it the
    space that the tokenizer puts before a text), then a text of the grammar. terminator: "eog" or "none". canonicity: of paths after it.
    """

    vocabulary: Vocabulary
    grammar: Grammar
    prompt: IntArray
    automaton: Automaton
    healed: bytes
    delimiter: bytes
    boundary: str
    terminator: str
    canonicity: OwnPaths


@dataclass(frozen=True, slots=True)
class Space:
    """How long what follows may be, and what it has to fit into."""

    limits: Limits
    max_tokens: int


def constrain(
    vocabulary: Vocabulary, space: Space, prompt: Prompt, grammar: Grammar, *, terminator: str, prompting: Prompting
) -> Constrained:
    """Check a request and cut it into tokens; everything that can be refused without the model is refused here.

    terminator: "none", "eog", or "auto".

    Boundary "heal": the last token of the prompt's text is taken back, and what follows spells its bytes first, so that it
    may be cut otherwise; "split" keeps it. "harness" is about choices, and refused.
    """
    if not isinstance(grammar, Grammar):
        raise OptionError("grammar", grammar, "a Grammar: Grammar.from_gbnf(text), from_regex, from_file, load(name) …")
    if not isinstance(prompting, Prompting):
        raise OptionError("prompting", prompting, "a Prompting record")
    read, _ = _fitting(vocabulary, space, read_prompt(vocabulary, prompt, prompting), prompting)
    opened = open_prompt(vocabulary, read, prompting.boundary)
    delimiter = opened.put + to_bytes(prompting.delimiter, "delimiter")
    return Constrained(
        vocabulary=vocabulary,
        grammar=grammar,
        prompt=opened.context,
        automaton=grammar.automaton(vocabulary, prefix=opened.healed + delimiter),
        healed=opened.healed,
        delimiter=delimiter,
        boundary="heal" if opened.healed else "split",
        terminator=_terminator(vocabulary, grammar) if terminator == "auto" else terminator,
        canonicity=opened.paths,
    )


def _fitting(
    vocabulary: Vocabulary, space: Space, read: PromptText, prompting: Prompting
) -> tuple[PromptText, IntArray]:
    """The prompt, cut on the left where that is wanted, and its tokens; `PromptTooLongError` where a longest path does not
    fit behind it."""
    tokens = encode_prompt(vocabulary, read)
    most = space.limits.nodes - space.max_tokens
    if len(tokens) > most >= 1 and prompting.truncate == "left":
        read = truncate_left(vocabulary, read, most)
        tokens = encode_prompt(vocabulary, read)
    if len(tokens) > most:
        shorter = "shorten the prompt, set truncate='left', " if most >= 1 else ""
        raise PromptTooLongError(
            needed_tokens=len(tokens) + space.max_tokens,
            available_tokens=space.limits.nodes,
            remedy=f"{shorter}lower max_tokens ({space.max_tokens}), or load with a larger n_ctx",
        )
    return read, tokens


def _terminator(vocabulary: Vocabulary, grammar: Grammar) -> str:
    """What ends a text: "eog" where one of the grammar may go on to another one, or nobody can tell; else, and without such
    tokens, "none"."""
    if not len(vocabulary.eog):
        return "none"
    try:
        if not grammar.is_finite:
            return "eog"
        texts = sorted(text.encode() for text in grammar.expand(_MOST_LISTED + 1))
    except GrammarError:  # it has texts that cannot be listed
        return "eog"
    is_continued = any(after.startswith(text) for text, after in pairwise(texts))
    return "eog" if is_continued or len(texts) > _MOST_LISTED else "none"
