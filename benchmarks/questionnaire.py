"""A page of 12 selects over about 600 tokens, as a template, and as pieces of text for
filling it by hand.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Question:
    """A slot: the text between the slot before it and this one, its name and its
    options. The text after it belongs to the next slot.
    """

    text: str
    name: str
    options: tuple[str, ...]


_ANSWERED = (
    ("What is the capital of Portugal?", "Lisbon"),
    ("What is the opposite of hot?", "cold"),
    ("What colour is the sky on a clear day?", "blue"),
    ("How many legs does a spider have?", "eight"),
    ("Which animal barks?", "a dog"),
    ("Which continent is Egypt in?", "Africa"),
    ("What is the plural of child?", "children"),
    ("What does a baker make?", "bread"),
    ("Which day comes after Monday?", "Tuesday"),
    ("What is the capital of Greece?", "Athens"),
    ("What is the opposite of early?", "late"),
    ("Which animal gives us wool?", "a sheep"),
    ("What colour is a ripe banana?", "yellow"),
    ("How many months are in a year?", "twelve"),
    ("Which language do people speak in Brazil?", "Portuguese"),
    ("What is the capital of Norway?", "Oslo"),
    ("What do you call a young cat?", "a kitten"),
    ("What is two plus three?", "five"),
    ("Which month comes before June?", "May"),
    ("Where does a fish live?", "in water"),
    ("What is the opposite of empty?", "full"),
    ("What is the capital of Egypt?", "Cairo"),
    ("Which animal lays eggs?", "a hen"),
    ("What do you use to cut paper?", "scissors"),
)
_OPEN = (
    ("What is the capital of France?", "capital", "Paris|London|Rome|Madrid|Berlin"),
    ("What is the opposite of big?", "opposite", "small|tall|old|hot|not big at all"),
    ("What colour is grass?", "colour", "green|red|blue|white|black"),
    ("Which animal says meow?", "animal", "a cat|a cow|a duck|a dog|a dog or a cow"),
    ("Which continent is Japan in?", "continent", "Asia|Africa|Europe|North America|South America"),
    ("How many days are in a week?", "days", "seven|five|six|ten|twelve"),
    ("Which day comes after Friday?", "day", "Saturday|Sunday|Monday|Thursday|Wednesday"),
    ("What do bees make?", "bees", "honey|milk|bread|wool|bread and butter"),
    ("What is the capital of Italy?", "city", "Rome|Paris|Vienna|Athens|Lisbon"),
    ("What is the past tense of go?", "tense", "went|goed|gone|going|has been going"),
    ("What do you call a young dog?", "young", "a puppy|a kitten|a calf|a lamb|a foal"),
    ("Is snow hot or cold?", "snow", "cold|hot|cold and dry|hot and wet"),
)

_HEAD = """\
This sheet was written for a school. It holds questions about countries, animals, words and numbers, and one short answer to each of
them. Whoever fills it in writes one line after every question, and nothing else.

"""


def _questions() -> tuple[Question, ...]:
    """Return two answered questions before each open one."""
    text, made = _HEAD, []
    for number, (asked, name, options) in enumerate(_OPEN):
        answered = "".join(
            f"Q: {question}\nA: {answer}\n" for question, answer in _ANSWERED[2 * number : 2 * number + 2]
        )
        made.append(Question(f"{text}{answered}Q: {asked}\nA:", name, tuple(f" {one}" for one in options.split("|"))))
        text = "\n"
    return tuple(made)


QUESTIONS = _questions()
END = "\n"


def template() -> str:
    """Return the page in the language of templates."""
    slots = [f"{question.text}<<select '{question.name}' options={question.name}_options>>" for question in QUESTIONS]
    return "".join(slots) + END


def values() -> dict[str, list[str]]:
    """Return what the template is rendered with."""
    return {f"{question.name}_options": list(question.options) for question in QUESTIONS}


def following(number: int) -> str:
    """Return the text after a slot, up to the next one."""
    return QUESTIONS[number + 1].text if number + 1 < len(QUESTIONS) else END
