"""Common sense as yes and no: what can do what, what is a kind of what, which is bigger, what has and does what."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from embedded_model.forms import chat, question_answer
from embedded_model.phrases import Item, a, rounds
from embedded_model.phrasings import HELD_LAYOUTS, SelectRequest, cells, items, sentence, sloppy

PLURALS = dict(
    cells(
        """fish|fish sheep|sheep deer|deer mouse|mice goose|geese wolf|wolves knife|knives child|children leaf|leaves
        potato|potatoes man|men woman|women"""
    )
)

# What can it do? verb | yes | no
ABILITIES = """
fly|bird, butterfly, bee, eagle, owl, bat, duck, pigeon, mosquito, plane, parrot, swan|dog, cat, fish, horse, cow, pig, snake, frog, elephant, spider, car, worm
swim|fish, duck, frog, dolphin, whale, shark, dog, penguin, swan, crocodile, turtle, seal|stone, tree, chair, hammer, butterfly, house, bee, table, clock, flower, spoon, bicycle
bark|dog, puppy|cat, fish, cow, bird, snake, frog, horse, table
climb trees|monkey, cat, squirrel, leopard|cow, fish, horse, whale, elephant, pig, shark, sheep
lay eggs|hen, duck, goose, snake, turtle, frog, eagle, owl, crocodile, ostrich, penguin|dog, cat, cow, horse, pig, sheep, whale, lion, rabbit, dolphin, monkey, bear
give milk|cow, goat, sheep|hen, fish, snake, frog, bee, duck, spider, stone, eagle
run|dog, horse, cat, lion, wolf, deer, child, fox|stone, snake, fish, tree, house, worm, chair, flower, snail
walk|dog, cat, child, cow, horse, elephant, hen, lion|stone, fish, snake, tree, worm, whale, cup, shark, table
read|child, teacher, doctor, woman, man, student|dog, cat, fish, tree, cow, bee, horse, stone, mouse
talk|child, teacher, doctor, woman, man, nurse|stone, tree, fish, chair, cow, spoon, frog, bee, table
sing|bird, child, woman, man, singer|stone, fish, table, worm, spoon, cow, snail, shoe
write|child, teacher, student, doctor, man|cat, cow, fish, tree, bird, horse, frog, bee
see|cat, eagle, child, dog, owl, horse, man|stone, tree, spoon, table, shoe, flower, house
sleep|cat, dog, baby, bear, horse, child, mouse|stone, car, table, lamp, spoon, house, book
think|child, man, woman, teacher, doctor|stone, spoon, chair, shoe, table, box, cup
grow|tree, flower, child, puppy, baby, plant, lamb|stone, table, spoon, car, cup, hammer, chair
eat|dog, cat, child, horse, cow, lion, bird, mouse|stone, lamp, table, spoon, house, car, hammer
cut paper|knife, scissors-|spoon, cup, pillow, ball, flower, shoe, lamp, cloud
burn|candle, match, tree|stone, ice-, water-, sand-, iron-
break|glass, cup, plate, window, egg, mirror|water-, air-, smoke-, sand-
melt|ice-, snow-, butter-, chocolate-, candle|wood-, stone, paper-, sand-, tree, shirt
carry people|bus, train, car, ship, plane, horse, bicycle, boat|spoon, cup, pencil, bee, mouse, book, shoe, frog
tell the time|clock, watch|spoon, hat, shoe, apple, table, ball, sock, stone
hold water|cup, glass, bucket, bottle, bowl, pot|table, tree, shoe, knife, book, pencil, dog
give light|lamp, candle, the sun, star, fire-|stone, spoon, shoe, table, cow, chair, tree
be opened|door, window, box, book, bottle, egg|stone, cow, spoon, ball, fire-, tree
be thrown|stone, ball, shoe, spoon, apple, cup|house, mountain, castle, ship, city, the sea
cut wood|saw, axe|spoon, cup, pillow, feather, flower
sting|bee, wasp, mosquito|cow, horse, dog, sheep, duck, table, rabbit
jump|frog, cat, rabbit, child, horse, dog, kangaroo|tree, house, stone, snail, worm, table, flower
drive a car|man, woman, teacher, doctor|dog, baby, fish, cat, tree, horse, bird
live under water|fish, shark, octopus, whale|cat, hen, lion, horse, camel, butterfly, cow, goat
"""
# What does it have? thing | yes | no
PARTS = """
wings|bird, eagle, butterfly, bee, bat, duck, plane, owl, swan|dog, cat, horse, fish, snake, cow, car, frog, table
four legs|dog, cat, horse, cow, lion, elephant, sheep, table, pig, wolf|bird, fish, snake, spider, duck, hen, bee, worm, child
feathers|bird, eagle, duck, hen, owl, swan, parrot, goose|dog, fish, snake, cow, frog, horse, bee, cat, lion
fur|dog, cat, bear, rabbit, fox, wolf, mouse, lion|fish, snake, frog, hen, eagle, shark, worm, duck
wheels|car, bus, bicycle, train, truck|horse, boat, table, house, cat, ship, tree, spoon
leaves|tree, bush, plant|stone, car, dog, table, cup, house, cow, lamp
a tail|dog, cat, horse, cow, fish, lion, mouse, monkey, fox|man, child, tree, table, spider, apple, cup, car
eyes|dog, cat, child, horse, bird, cow, fish, owl|stone, tree, spoon, table, cup, house, apple, chair
a door|house, car, bus, church, school|tree, apple, cow, spoon, cat, ball, shoe, pencil
roots|tree, flower, bush, plant|dog, car, stone, house, cat, table, ship, cup
teeth|dog, shark, lion, wolf, horse, crocodile|hen, worm, bee, tree, butterfly, table, eagle
eight legs|spider, scorpion|dog, cat, bird, horse, cow, fish, bee, duck
pages|book, magazine, newspaper|cup, apple, stone, dog, shoe, tree, table, spoon
a window|house, car, bus, school, train, church|tree, dog, apple, spoon, cow, shoe, pencil
a heart|dog, cat, child, horse, cow, lion, man|stone, table, spoon, car, house, tree, cup
horns|goat, bull, ram|dog, cat, fish, duck, horse, bee, frog, pig
keys|piano, computer|drum, cup, apple, dog, ball, tree
"""
# What is it like? adjective | yes | no ("-": no article)
QUALITIES = """
hot|fire-, the sun, boiling water-, steam-, lava-|ice-, snow-, ice cream-, the moon, frost-
cold|ice-, snow-, ice cream-, frost-|fire-, the sun, boiling water-, steam-, lava-
heavy|elephant, truck, ship, rock, house, whale, piano, bear, train|feather, leaf, pencil, butterfly, coin, ant, straw, bee, button
light|feather, leaf, butterfly, straw, bee, button, ant, snowflake|elephant, truck, ship, rock, house, whale, piano, bear, train
hard|rock, stone, diamond, iron-, brick, steel-, hammer|pillow, cotton-, butter-, wool-, blanket, cream-, jelly-
soft|pillow, cotton-, butter-, wool-, blanket, cream-, jelly-|rock, stone, diamond, iron-, brick, steel-, hammer
sharp|knife, needle, thorn, sword, saw, razor|ball, pillow, spoon, egg, blanket, cloud, cup
wet|rain-, water-, the sea, river, lake|desert, fire-, dust-
dry|desert, dust-, straw-|rain-, water-, the sea, river, lake
round|ball, coin, wheel, ring, orange, the moon, the sun, plate|box, book, knife, brick, door, ladder, pencil
sweet|sugar-, honey-, candy-, chocolate-, cake, jam-, cookie|salt-, lemon, vinegar-, stone, paper-, pepper-
sour|lemon, vinegar-|sugar-, honey-, candy-, chocolate-, bread-, cookie
salty|salt-, sea water-|sugar-, honey-, apple, candy-, banana, chocolate-
alive|dog, tree, flower, child, fish, bird, cow, bee, cat|stone, table, car, spoon, house, chair, lamp, shoe, cup
loud|drum, siren, thunder-, jet plane|feather, snail, flower, pillow, butterfly, snowflake
quiet|feather, snail, flower, pillow, butterfly, snowflake|drum, siren, thunder-, jet plane
fast|plane, train, cheetah, rocket, race car|snail, turtle, worm
slow|snail, turtle, worm|plane, cheetah, rocket, race car, train
good to eat|apple, banana, bread-, cheese-, pear, carrot, egg, cake, rice-, soup-, tomato|stone, shoe, table, spoon, hammer, brick, glass, pencil, sand-, chair, coin
made to be worn|shirt, hat, coat, shoe, sock, dress, glove, scarf|spoon, apple, table, car, house, cup, hammer, tree
bright|the sun, star, lamp, fire-, candle, lightning-|dark cave, night-, shadow
dark|night-, shadow, deep cave|the sun, star, lamp, fire-, lightning-
clean|soap-, fresh snow-|mud-, dust-, dirt-
dangerous|lion, shark, fire-, crocodile, storm, wolf, tiger|pillow, cup, flower, butterfly, spoon, snail, sock, apple
"""
# What is it? kind | members; kinds of which one is part of another share a line of OVERLAPS
KINDS = """
bird|eagle, owl, duck, hen, swan, parrot, pigeon, goose, penguin, ostrich
insect|bee, ant, butterfly, fly, mosquito, wasp, beetle
fish|shark, trout, salmon, tuna
mammal|dog, cat, horse, cow, lion, tiger, elephant, whale, bear, wolf, monkey, rabbit, sheep, pig
fruit|apple, pear, banana, orange, lemon, cherry, grape, peach, plum, strawberry
vegetable|carrot, potato, onion, cabbage, radish, cucumber
tool|hammer, saw, screwdriver, axe, shovel, rake, drill
vehicle|car, bus, truck, train, bicycle, ship, boat, plane
piece of furniture|table, chair, bed, sofa, desk, shelf, wardrobe
piece of clothing|shirt, coat, sock, dress, glove, scarf, skirt, sweater
musical instrument|piano, guitar, violin, drum, flute, trumpet, harp
building|house, church, school, hospital, castle, hotel, barn
color|red-, blue-, green-, yellow-, black-, white-, brown-
metal|iron-, gold-, silver-, copper-, steel-, tin-
drink|milk-, tea-, coffee-, juice-, lemonade-
flower|rose, tulip, daisy, lily, sunflower
tree|oak, pine, birch, maple, willow
sport|football-, tennis-, hockey-, basketball-
season|winter-, spring-, summer-, autumn-
day|Monday-, Tuesday-, Friday-, Sunday-
month|January-, April-, July-, October-
job|teacher~, doctor~, baker~, nurse~, farmer~, cook~
toy|doll, teddy bear, kite, yo-yo
"""
WIDER = "animal|bird insect fish mammal;living thing|bird insect fish mammal flower tree;food|fruit vegetable;plant|flower tree"
UNCLEAR = {("plant", "fruit"), ("plant", "vegetable"), ("living thing", "fruit"), ("living thing", "vegetable")}
UNCLEAR |= {
    ("food", "drink"),
    ("food", "mammal"),
    ("food", "fish"),
    ("food", "bird"),
    ("color", "metal"),
    ("color", "fruit"),
}
UNCLEAR |= {
    ("tree", "fruit"),
    ("color", "flower"),
    ("living thing", "job"),
    ("animal", "job"),
    ("bird", "toy"),
    ("animal", "toy"),
    ("mammal", "toy"),
    ("fruit", "vegetable"),
    ("plant", "building"),
    ("toy", "musical instrument"),
}
UNCLEAR |= {
    ("toy", "vehicle"),
    ("toy", "sport"),
    ("tool", "piece of furniture"),
    ("food", "insect"),
    ("tool", "musical instrument"),
}
# From small to large, a size a line; things of one line or of neighbouring lines are not compared
SIZES = """
ant, grain of sand, snowflake
bee, coin, button, pea, ladybug
mouse, egg, spoon, key, pencil, frog
apple, cup, shoe, banana, pear, potato
cat, football, rabbit, hen, hat, duck, book
dog, chair, sheep, suitcase, goose, bucket
lion, door, table, horse, cow, bed, bear, piano
car, elephant, boat, tent, van
bus, house, truck, whale, barn
church, ship, castle, train, hospital, tower
village, airport, hill, farm
mountain, city, island, lake
country, the sea, the moon
the earth, planet
the sun, star
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that is true or not; fields for the patterns of its kind."""

    fields: dict[str, str]
    true: bool


@dataclass(frozen=True, slots=True)
class Wording:
    """How a kind of claim is asked (questions, held), said (yes, no: true sentences) and claimed (claims: true or not)."""

    questions: tuple[str, ...]
    claims: tuple[str, ...]
    yes: tuple[str, ...]
    no: tuple[str, ...]
    held: tuple[str, ...]


CAN = Wording(
    questions=(
        "Can {x} {v}?",
        "Can {x} {v}?",
        "Can {xs} {v}?",
        "Are {xs} able to {v}?",
        "Is {x} able to {v}?",
        "Is it possible for {x} to {v}?",
        "Do you think {x} can {v}?",
        "Could {x} {v}?",
        "Can you say that {x} can {v}?",
        "[Tell me|Please tell me]: can {x} {v}?",
        "{xs}: can they {v}?",
        "Is {x} something that can {v}?",
        "[Say|Tell me] if {xs} can {v}.",
    ),
    claims=(
        "{x} can {v}.",
        "{xs} can {v}.",
        "{x} is able to {v}.",
        "{xs} are able to {v}.",
        "It is possible for {x} to {v}.",
    ),
    yes=(
        "{x} can {v}.",
        "{xs} can {v}.",
        "{x} is able to {v}.",
        "Of course {x} can {v}.",
        "Yes, {xs} can {v}.",
        "Like {y}, {x} can {v}.",
    ),
    no=(
        "{x} cannot {v}.",
        "{xs} cannot {v}.",
        "{x} is not able to {v}.",
        "{x} cannot {v}, but {y} can.",
        "Unlike {y}, {x} cannot {v}.",
    ),
    held=(
        "Do you think that {xs} can {v}?",
        "Is it possible that {x} can {v}?",
        "Tell me, is {x} able to {v}?",
        "Would you say that {x} can {v}?",
        "Tell me, could {xs} {v}?",
        "{x}: can it {v}?",
    ),
)
HAS = Wording(
    questions=(
        "Does {x} have {v}?",
        "Does {x} have {v}?",
        "Do {xs} have {v}?",
        "Has {x} got {v}?",
        "Have {xs} got {v}?",
        "Do you find {v} on {x}?",
        "Is {x} something with {v}?",
        "Do you think {x} has {v}?",
        "Is it right that {x} has {v}?",
        "[Tell me|Please tell me]: does {x} have {v}?",
        "{xs}: do they have {v}?",
        "Can you say that {x} has {v}?",
        "[Say|Tell me] if {xs} have {v}.",
    ),
    claims=("{x} has {v}.", "{xs} have {v}.", "{x} is something with {v}.", "You find {v} on {x}.", "{x} has got {v}."),
    yes=(
        "{x} has {v}.",
        "{xs} have {v}.",
        "{x} is something with {v}.",
        "Of course {x} has {v}.",
        "Like {y}, {x} has {v}.",
        "Yes, {xs} have {v}.",
    ),
    no=(
        "{x} never has {v}.",
        "{x} does not have {v}.",
        "{xs} do not have {v}.",
        "{x} does not have {v}, but {y} does.",
        "Unlike {y}, {x} does not have {v}.",
    ),
    held=(
        "Do you think {xs} have {v}?",
        "Is it right that {xs} have {v}?",
        "I ask you: does {x} have {v}?",
        "Would you say that {x} has {v}?",
        "{x}: does it have {v}?",
        "Is it true that {x} has {v}?",
    ),
)
IS = Wording(
    questions=(
        "Is {x} {v}?",
        "Is {x} {v}?",
        "Is {x} usually {v}?",
        "Would you call {x} {v}?",
        "Do people call {x} {v}?",
        "Is it right that {x} is {v}?",
        "Do you think {x} is {v}?",
        "Is {x} something {v}?",
        "[Say|Tell me] if people call {x} {v}.",
        "Is {x} {v} or not?",
        "[Tell me|Please tell me]: is {x} {v}?",
        "{x}: is it {v}?",
        "Can you say that {x} is {v}?",
    ),
    claims=(
        "{x} is {v}.",
        "{x} is usually {v}.",
        "{x} is something {v}.",
        "People call {x} {v}.",
        "It is right that {x} is {v}.",
    ),
    yes=(
        "{x} is {v}.",
        "{x} is usually {v}.",
        "Of course {x} is {v}.",
        "Like {y}, {x} is {v}.",
        "Yes, {x} is {v}.",
        "{x} is something {v}.",
    ),
    no=(
        "{x} is not {v}.",
        "{x} is never {v}.",
        "No, {x} is not {v}.",
        "{x} is not {v}, but {y} is.",
        "Unlike {y}, {x} is not {v}.",
        "Nobody calls {x} {v}.",
    ),
    held=(
        "Would you say that {x} is {v}?",
        "I ask you: is {x} {v}?",
        "Do people say that {x} is {v}?",
        "Do you think that {x} is {v}?",
        "Is it true that {x} is {v}?",
        "Say if {x} is {v}.",
    ),
)
KIND = Wording(
    questions=(
        "Is {x} {v}?",
        "Is {x} {v}?",
        "Is {x} a kind of {k}?",
        "Would you call {x} {v}?",
        "Do people call {x} {v}?",
        "Is it right that {x} is {v}?",
        "Do you think {x} is {v}?",
        "Does {x} belong to the {k} group?",
        "Is {x} {v} or not?",
        "[Tell me|Please tell me]: is {x} {v}?",
        "{x}: is it {v}?",
        "Can you say that {x} is {v}?",
    ),
    claims=(
        "{x} is {v}.",
        "{x} is a kind of {k}.",
        "We call {x} {v}.",
        "People call {x} {v}.",
        "It is right that {x} is {v}.",
    ),
    yes=(
        "{x} is {v}.",
        "{x} is a kind of {k}.",
        "Of course {x} is {v}.",
        "Like {y}, {x} is {v}.",
        "Yes, {x} is {v}.",
        "One kind of {k} is {x}.",
    ),
    no=(
        "{x} is not {v}.",
        "{x} is not a kind of {k}.",
        "No, {x} is not {v}.",
        "{x} is not {v}, but {y} is.",
        "Unlike {y}, {x} is not {v}.",
        "Nobody calls {x} {v}.",
    ),
    held=(*IS.held[:5], "{x}: is that a kind of {k}?", "Is {x} one kind of {k}?"),
)
SIZE = Wording(
    questions=(
        "Is {x} {v} than {y}?",
        "Is {x} {v} than {y}?",
        "Is {x} {v} than {y}?",
        "Is {x} usually {v} than {y}?",
        "Do you think {x} is {v} than {y}?",
        "Is it right that {x} is {v} than {y}?",
        "Can you say that {x} is {v} than {y}?",
        "Compare {x} and {y}: is {x} {v}?",
        "[Say|Please say]: is {x} {v} than {y}?",
        "{x} and {y}: is {x} {v}?",
        "Next to {y}, is {x} {v}?",
        "If {x} stands next to {y}, is {x} {v}?",
        "[Say|Tell me] if {x} or {y} is {v}: is it {x}?",
    ),
    claims=(
        "{x} is {v} than {y}.",
        "{x} is usually {v} than {y}.",
        "It is right that {x} is {v} than {y}.",
        "Next to {y}, {x} is {v}.",
    ),
    yes=(
        "{x} is {v} than {y}.",
        "{y} is {u} than {x}.",
        "{x} is usually {v} than {y}.",
        "Of course {x} is {v} than {y}.",
        "{x} is {v} than {y}, and {y} is {u} than {x}.",
    ),
    no=("{x} is not {v} than {y}.", "{x} is {u} than {y}.", "{y} is {v} than {x}.", "No, {x} is {u} than {y}."),
    held=(
        "Would you say that {x} is {v} than {y}?",
        "Tell me, is {x} {v} than {y}?",
        "If you compare {x} and {y}, is {x} {v}?",
        "Is it true that {x} is {v} than {y}?",
        "Do you think that {x} is {v} than {y}?",
        "Say if {x} is {v} than {y}.",
    ),
)


def _the(noun: str) -> str:
    """A noun of the tables with its article: "a dog", "an owl", "ice" (written "ice-"), "the sun"."""
    if noun[-1] in "-~":
        return noun[:-1] if noun[-1] == "-" else f"being {a(noun[:-1])}"
    return noun if noun.startswith("the ") else a(noun)


def _many(noun: str) -> str:
    """The plural, or the noun itself where it has none."""
    if noun.endswith("-") or noun.startswith("the "):
        return _the(noun)
    if noun in PLURALS:
        return PLURALS[noun]
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeo" else f"{noun}s"


def _rows(table: str) -> list[list[list[str]]]:
    """Rows of bars and commas."""
    lines = [line for line in table.splitlines() if line]
    return [[cell.split(", ") for cell in line.split("|")] for line in lines]


def _by_table(table: str) -> Callable[[random.Random], Iterator[Claim]]:
    """Claims of a table of yes and no."""
    rows = _rows(table)

    def claims(rng: random.Random) -> Iterator[Claim]:
        weighted = [(row, true) for row in rows for true in (True, False) for _ in range(max(len(row[1]), len(row[2])))]
        streams = {(row[0][0], true): rounds(row[1] if true else row[2], rng) for row in rows for true in (True, False)}
        for row, true in rounds(weighted, rng):
            verb, noun = row[0][0], next(streams[row[0][0], true])
            fields = {"x": _the(noun), "xs": _many(noun), "v": verb}
            fields["y"] = _the(rng.choice([other for other in row[1] if other != noun]))
            yield Claim(fields, true)

    return claims


def _kinds(rng: random.Random) -> Iterator[Claim]:
    """Claims that something is of a kind: the right one, a wider one, or a wrong one."""
    members = {row[0][0]: row[1] for row in _rows(KINDS)}
    kind_of = {noun: kind for kind, nouns in members.items() for noun in nouns}
    wider = {row.split("|")[0]: row.split("|")[1].split() for row in WIDER.split(";")}
    narrow = {kind: [kind, *(wide for wide, parts in wider.items() if kind in parts)] for kind in members}
    unlike = {
        kind: sorted(k for k in {*members, *wider} - set(narrow[kind]) if (k, kind) not in UNCLEAR) for kind in members
    }
    alike = {**members, **{wide: [noun for part in parts for noun in members[part]] for wide, parts in wider.items()}}
    for noun, true in rounds([(noun, true) for noun in kind_of for true in (True, False)], rng):
        own = kind_of[noun]
        kind = rng.choice([own, *narrow[own]] if true else unlike[own])
        like = rng.choice([other for other in alike[kind] if other != noun])
        fields = {"x": _the(noun), "v": kind if kind == "food" else a(kind), "k": kind.removeprefix("piece of ")}
        yield Claim({**fields, "y": _the(like)}, true)


def _sizes(rng: random.Random) -> Iterator[Claim]:
    """Claims that one thing is bigger or smaller than another."""
    ranks = [(noun, i) for i, line in enumerate(SIZES.strip().splitlines()) for noun in line.split(", ")]
    words = (("bigger", "smaller"), ("larger", "smaller"), ("bigger", "smaller"))
    others = {rank: [entry for entry in ranks if abs(entry[1] - rank) > 1] for _, rank in ranks}
    for noun, rank in rounds(ranks, rng):
        other, its_rank = rng.choice(others[rank])
        up, down = rng.choice(words)
        bigger = rng.random() < 0.5
        v, u = (up, down) if bigger else (down, up)
        yield Claim({"x": _the(noun), "y": _the(other), "v": v, "u": u}, (rank > its_rank) == bigger)


GROUPS: tuple[tuple[float, Wording, Callable[[random.Random], Iterator[Claim]], int], ...] = (
    (26.0, CAN, _by_table(ABILITIES), 34),
    (17.0, HAS, _by_table(PARTS), 24),
    (17.0, IS, _by_table(QUALITIES), 22),
    (22.0, KIND, _kinds, 24),
    (22.0, SIZE, _sizes, 20),
)
CLAIM_LAYOUTS = (
    ("Is this right? <c>\nAnswer: ", "Yes", "No"),
    ("Is it true? <c> ", "Yes", "No"),
    ("Q: Is this true? <c>\nA: ", "Yes", "No"),
    ("Question: Is this right? <c>\nAnswer: ", "Yes", "No"),
    ("Claim: <c>\nTrue: ", "Yes", "No"),
    ("True or false: <c>\nAnswer: ", "True", "False"),
    ("Statement: <c>\nThis is ", "true", "false"),
    ("<c> True or false? ", "True", "False"),
    ("<c> Yes or no? ", "Yes", "No"),
    ("<c>\nRight or wrong? ", "Right", "Wrong"),
)


def _question(wording: Wording, claim: Claim, rng: random.Random) -> str:
    """The claim as a question."""
    return sloppy(sentence(rng.choice(wording.questions), rng, claim.fields), rng)


def _fact(wording: Wording, claim: Claim, rng: random.Random) -> str:
    """What is so: the claim, or that it is not so."""
    return sentence(rng.choice(wording.yes if claim.true else wording.no), rng, claim.fields)


def _document(wording: Wording, claims: Iterator[Claim], rng: random.Random) -> str:
    """One document of one kind of claim: asked, said, claimed, or several at once."""
    form, claim = rng.random(), next(claims)
    answer = "Yes" if claim.true else "No"
    if form < 0.32:
        return question_answer(_question(wording, claim, rng), answer, rng)
    if form < 0.38:
        reason = _fact(wording, claim, rng).removeprefix("Yes, ").removeprefix("No, ")
        return question_answer(_question(wording, claim, rng), f"{answer}, {reason[0].lower()}{reason[1:]}", rng)
    if form < 0.52:
        return " ".join(
            _fact(wording, each, rng) for each in [claim, *(next(claims) for _ in range(rng.randint(0, 3)))]
        )
    if form < 0.66:
        layout, yes, no = rng.choice(CLAIM_LAYOUTS)
        text = sentence(rng.choice(wording.claims), rng, claim.fields)
        return layout.replace("<c>", text) + (yes if claim.true else no)
    several = [claim, *(next(claims) for _ in range(rng.randint(1, 9)))]
    pairs = [(_question(wording, each, rng), "Yes" if each.true else "No") for each in several]
    if form > 0.84:
        return chat(pairs[: rng.choice((1, 1, len(pairs)))], rng)
    return _below_each_other(pairs, rng)


def _below_each_other(pairs: Sequence[tuple[str, str]], rng: random.Random) -> str:
    """Questions with their answers in one layout."""
    layout = question_answer("<q>", "<a>", rng)
    return rng.choice(("\n", "\n\n")).join(layout.replace("<q>", q).replace("<a>", answer) for q, answer in pairs)


def documents(rng: random.Random) -> Iterator[str]:
    """Training documents without end."""
    streams = [(wording, claims(rng)) for _, wording, claims, _ in GROUPS]
    weights = [weight for weight, *_ in GROUPS]
    while True:
        yield _document(*rng.choices(streams, weights)[0], rng)


def _held_of(wording: Wording, claims: Iterator[Claim], n: int, rng: random.Random) -> Iterator[SelectRequest]:
    """Ask n questions, as many with Yes as with No, over different claims."""
    wanted = {True: n // 2, False: n - n // 2}
    seen: set[tuple[str, str]] = set()
    i = 0
    while any(wanted.values()):
        claim = next(claims)
        about = (claim.fields["x"], claim.fields["v"])
        if not wanted[claim.true] or about in seen:
            continue
        seen.add(about)
        wanted[claim.true] -= 1
        text = sentence(wording.held[i % len(wording.held)], rng, claim.fields)
        layout = HELD_LAYOUTS[(i + i // len(wording.held)) % len(HELD_LAYOUTS)]
        yield SelectRequest(text, layout, *(("Yes", ("No",)) if claim.true else ("No", ("Yes",))))
        i += 1


def held_out(rng: random.Random) -> Iterator[Item]:
    """Questions in phrasings that no document uses, half of them to be answered with Yes."""
    questions: list[SelectRequest] = []
    for _, wording, claims, n in GROUPS:
        questions += _held_of(wording, claims(rng), n, rng)
    yield from _spread(questions)


def _spread(questions: Sequence[SelectRequest]) -> Iterator[Item]:
    """The items, with Yes first and No first equally often for either answer."""
    for answer in ("Yes", "No"):
        yield from items("yes or no", [question for question in questions if question.answer == answer])
