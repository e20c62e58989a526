"""A byte-level BPE vocabulary, learned deterministically from the text in this file.

A reader of tokens cannot tell it from a real one: it has all 256 bytes, merges with
ranks, control tokens, two end-of-generation tokens and a chat template. Its layout is
bytes, learned merges, synthetic merges, control tokens.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, product
from string import ascii_lowercase

CONTROL = ("<|begin|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SUFFIXES = ("s", "ing", "ed", "er", "es", "ly", "al", "able", "ment", "ness")
TEXT = """
The card payment was declined and the cash withdrawal is still pending. Where is my new card, and when will it arrive?
I was charged an extra fee on my account statement. The exchange rate for the transfer was wrong. Please cancel the
transfer and refund the money to my bank. My top up failed, it was reverted, and the limit was reached. Can I verify my
identity before I change my pin or my passcode? The phone was lost or stolen and the app is not working. A contactless
virtual card can be used in every country that we support. Why do you verify the source of my funds? The beneficiary is
not allowed. I want to terminate the account, get a spare card, order a physical card, link a card by post and activate
it. Which currencies do you accept, and can I top up by bank transfer, by cheque or by card? The card is about to expire,
it is compromised, it was swallowed by the machine. An age limit applies to children. Direct debit payment not
recognised. Edit the personal details. A transaction was charged twice. How long does the delivery take? Get a
disposable card, a visa or a mastercard. Automatic top up, apple pay or google pay, unable to make a transfer into the
account, balance not updated after a deposit, request the refund that is not showing up, fiat currency, timing of the
estimate, acceptance, getting, receiving, working, linking, charge, exchange, cancellation, passcode forgotten, blocked.
Once upon a time there was a little girl who lived in a small house near the forest. She had a red hat, a green coat and
a big brown dog. One day the dog ran away, and the girl went to look for it under the trees. She asked the bird, the fox
and the old man at the river. The sky was blue, the sun was warm, and the water was cold. "Have you seen my dog?" said
the girl. "Yes," said the man, "it went over the hill to the market." The shop sold bread, apples, cheese, armor made of
leather, chainmail or plate, a sword, a bow and a lamp. The capital of France is Paris, of England London, of Italy Rome
and of Germany Berlin. The question is short and the answer is long. Question: what does a cat like? Answer: a cat likes
milk, cats like mice, and the category is animals. A good story has a beginning, a middle and an end; it is happy or it
is sad, it is true or it is false, it is better or it is worse. He bought a cat, a house, a car and a boat. They played
in the park with a ball and a kite. User and assistant write messages to each other; the system sets the tone. Yes or no,
positive or negative, never or always, first or last. He can skill, she can ski, we see a cloud above. One two three four
five six seven eight nine ten. Which of these words comes next? Choose the best answer from the list, then stop.
"""


def byte_characters() -> list[str]:
    """Return the printable character that represents each byte in a GPT-2 style
    vocabulary: itself, or 256 + its rank.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(256, 512))
    return [chr(byte if byte in printable else next(hidden)) for byte in range(256)]


def spell(text: str) -> str:
    """Return the text in the characters of the vocabulary."""
    characters = byte_characters()
    return "".join(characters[byte] for byte in text.encode())


@dataclass(frozen=True, slots=True)
class ByteBpe:
    """A vocabulary. tokens: spelling of each id. merges: "left right" by rank. n_real:
    ids below it are text, the rest control.
    """

    tokens: tuple[str, ...]
    merges: tuple[str, ...]
    n_real: int

    def id(self, token: str) -> int:
        """Return the id of a control token."""
        return self.tokens.index(token)


@cache
def build(n_vocabulary: int) -> ByteBpe:
    """Build a vocabulary of exactly `n_vocabulary` entries (at least 256 bytes and the
    control tokens).

    Merges are learned until every word of the text is one token. The remaining entries
    are such tokens with a few letters behind them, which text can reach like any other
    token.
    """
    n_real = n_vocabulary - len(CONTROL)
    tokens = dict.fromkeys(byte_characters())
    if n_real < len(tokens):
        raise ValueError(f"n_vocabulary={n_vocabulary}: expected at least {len(tokens) + len(CONTROL)}")
    merges: list[str] = []
    for left, right in _merges():
        if len(tokens) == n_real:
            break
        if left + right not in tokens:
            tokens[left + right] = None
            merges.append(f"{left} {right}")
    if len(tokens) < n_real:
        raise ValueError(f"n_vocabulary={n_vocabulary}: the text yields {len(tokens)} entries")
    return ByteBpe((*tokens, *CONTROL), tuple(merges), n_real)


def _merges() -> Iterator[tuple[str, str]]:
    """Yield the learned merges, then each learned token with each suffix, then with
    one and with two letters behind it.
    """
    pairs = list(_learned())
    yield from pairs
    learned = [left + right for left, right in pairs]
    known = {*learned, *byte_characters()}
    yield from ((word, suffix) for suffix in SUFFIXES if suffix in known for word in learned)
    yield from ((word, letter) for letter in ascii_lowercase for word in learned)
    yield from ((word + first, second) for first, second in product(ascii_lowercase, repeat=2) for word in learned)


def _learned() -> Iterator[tuple[str, str]]:
    """Learn byte-pair merges of the text, most frequent first, ties by spelling, until
    each word is one token.
    """
    counts = Counter(re.findall(r" ?[A-Za-z]+| ?[^\sA-Za-z]+", " ".join(TEXT.split())))
    words = [list(spell(word)) for word in counts]
    weight = list(counts.values())
    frequency: Counter[tuple[str, str]] = Counter()
    where: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for i, word in enumerate(words):
        for pair in pairwise(word):
            frequency[pair] += weight[i]
            where[pair].add(i)
    while frequency:
        best = max(frequency, key=lambda pair: (frequency[pair], pair))
        yield best
        for i in where.pop(best):
            for pair in pairwise(words[i]):
                frequency[pair] -= weight[i]
            words[i] = _merge(words[i], best)
            for pair in pairwise(words[i]):
                frequency[pair] += weight[i]
                where[pair].add(i)
        frequency = Counter({pair: n for pair, n in frequency.items() if n > 0})


def _merge(word: list[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    i = 0
    while i < len(word):
        if tuple(word[i : i + 2]) == pair:
            merged.append(word[i] + word[i + 1])
            i += 2
        else:
            merged.append(word[i])
            i += 1
    return merged
