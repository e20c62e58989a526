"""Small random vocabularies, texts and searches of all their spellings."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from selectrie.core.types import Capacity
from selectrie.decoding.spelling import ByteEvent, CloseBounds, SpellingSearch, SpellingSpec
from selectrie.testing import make_vocabulary
from tests.support.task_driver import Driver

PROMPT = np.array([0], dtype=np.int32)
WIDE = [Capacity(64, 4096, 4096)]


@st.composite
def vocabularies(draw):
    """Both letters as tokens, and more pieces over them: some twice, some without bytes."""
    more = draw(st.lists(st.sampled_from([b"", b"a", b"b", b"ab", b"ba", b"aa", b"aab", b"bab", b"abba"]), max_size=7))
    return make_vocabulary([b"a", b"b", *more])


def segmented(vocabulary, text, random):
    """A random spelling of a text."""
    tokens = []
    while text:
        fitting = [token for token, piece in enumerate(vocabulary.pieces) if piece and text.startswith(piece)]
        tokens.append(random.choice(fitting))
        text = text[len(vocabulary.pieces[tokens[-1]]) :]
    return np.array(tokens, dtype=np.int32)


def spec_of(vocabulary, texts, random, *, healed=b"", ends=True, **options):
    """A search of texts after healed bytes, with a random spelling as the canonical one."""
    events = [ByteEvent(healed + text, ends) for text in texts]
    canonical = [(at, segmented(vocabulary, one.text, random)) for at, one in enumerate(events)]
    given_bytes = [ByteEvent(healed, ends=False)] if healed else []
    options = {"goal": CloseBounds(1.01), **options}
    return SpellingSpec(vocabulary, (*events, *given_bytes), tuple(canonical), **options)


class Watched(Driver):
    """Keeps the bounds after every row that was told."""

    def tell(self, task, paths):
        super().tell(task, paths)
        read = task.bounds().as_read
        self.bounds = [*getattr(self, "bounds", []), (read.low, read.high)]


def searched(model, spec, rooms=WIDE, *, prompt=PROMPT):
    """The outcome of a search, and the bounds after each of its asks."""
    driver = Watched(model, rooms, may_repeat=True)
    return driver.run(SpellingSearch(prompt, spec)), driver
