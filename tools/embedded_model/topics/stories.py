"""Plain English: short stories with a plot, paragraphs of everyday life, what follows from what, what one takes for what.

A story draws its world once (hero, friend, elder, place, things) and tells it throughout, so names and things come back.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from embedded_model.everyday import CAUSES, EVERYDAY, HOW_TO, PLACES, TOOLS
from embedded_model.forms import question_answer
from embedded_model.phrases import FIELD, Item, a, expand, rounds, wrong_answers
from embedded_model.story_plots import DAYS, OPENINGS, PLOTS

KIND = "stories"


def words(table: str) -> list[str]:
    """The words of a table."""
    return table.split()


GIRLS = words("""Anna Mia Lena Rosa Clara Emma Nora Lily Ella Sara Maria Julia Lucy Alice Ruth Hanna Ida Eva Nina Marta Sofia Laura
Daisy Grace Molly Amy Kate Zoe Olivia Ines Lina Tara Amina Yuki Priya Leila Fatima Mei Ada Jane Betty Carla Vera Wanda Paula Helen
Iris Judy Kim Greta Elsa Flora Dora Nadia Susan Tina Ursula Violet Zara Bella""")
BOYS = words("""Tom Ben Max Paul Peter Jack Leo Sam Tim Felix Oscar David Daniel Lukas Noah Adam Anton Carl Emil Finn George Henry Hugo
Ivan Jonas Karl Liam Martin Nick Oliver Omar Otto Philip Robert Simon Theo Victor Walter Will Bruno Ali Ravi Kenji Mateo Diego Luis
Marco Pedro Sven Erik Frank Jacob James John Mark Matt Tony Toby Ned Rudi""")
PETS = words(
    "Milo Spot Shadow Snowy Bello Coco Star Lucky Pepper Biscuit Cloud Button Sunny Ginger Patch Poppy Socks Muffin"
)
TRAITS = words("""kind brave curious shy clever lazy cheerful quiet friendly patient gentle careful honest lonely funny young small proud
stubborn polite hard-working dreamy""")
HEROES = {
    "child": (("girl", "little girl", "young girl", "schoolgirl"), ("boy", "little boy", "young boy", "schoolboy")),
    "animal": (
        tuple(words("fox rabbit mouse squirrel hedgehog duck cat bear frog turtle sparrow goose hen")),
        tuple(words("fox rabbit mouse squirrel hedgehog badger dog bear frog turtle sparrow otter donkey")),
    ),
    "villager": (
        ("farmer", "baker", "old woman", "weaver", "gardener", "princess", "shepherd girl", "seamstress"),
        ("farmer", "baker", "old man", "fisherman", "miller", "prince", "shepherd", "woodcutter", "king", "potter"),
    ),
    "robot": (("robot", "little robot", "old robot"), ("robot", "little robot", "small metal robot")),
}
HOMES = {
    "child": """in a small house near the river;in a little village;in a big city;at the edge of the forest;on a farm;in a town by the
sea;in a yellow house on a hill;in the mountains;in a quiet street""",
    "animal": """in a hole under an old oak tree;in the forest;by a small pond;in a green meadow;on a farm;under the roots of a big
tree;at the edge of a field;in a warm nest of leaves""",
    "villager": """in a small hut by the sea;in a village at the foot of the mountains;in an old stone house;beside the mill;in a
castle on a hill;at the end of a long road;near the market place""",
    "robot": "in a workshop;in a school;in a big factory;on a space station;in the house of an inventor;in a city of the future",
}
ELDERS = {
    "child": "F{his} mother;M{his} father;F{his} grandmother;M{his} grandfather;F{his} aunt;M{his} uncle",
    "animal": "F{his} mother;M{his} father;Fthe old owl;Mthe wise old raven;F{his} grandmother",
    "villager": "F{his} mother;M{his} father;Fthe old neighbour;Mthe old teacher;F{his} wise aunt",
    "robot": "Mthe old inventor;Fthe clockmaker;Mthe engineer;Fthe teacher",
}
EXTRAS = """
{his} best friend was {f}, {a_fk}.
{he} had a good friend called {f}.
{f}, {a_fk}, was {his} [best |]friend.
{he} [often|always] played with {f}, {a_fk} who lived [next door|not far away|on the other side of the road].
"""
# The name of a place, how one goes there, where one is then, and where a thing may lie there.
GROUNDS = """
forest|into the forest|in the forest|under a bush;behind a tree;between the roots of an oak
beach|to the beach|on the beach|under a stone;between two rocks;in the sand
park|to the park|in the park|under a bench;behind a tree;in the grass
garden|into the garden|in the garden|under the roses;behind the wall;between the flowers
meadow|to the meadow|in the meadow|in the tall grass;between the flowers;under a leaf
river|down to the river|by the river|between the stones;under a bridge;in the reeds
market|to the market|at the market|under a table;behind a barrel;between two baskets
hill|up the hill|on the hill|behind a rock;in the grass;under a thorn bush
lake|to the lake|at the lake|in the reeds;under an old boat;beside a stone
field|into the field|in the field|in the corn;beside the fence;under a hedge
barn|to the barn|in the barn|in the hay;behind a sack;under a ladder
mountain|up the mountain|on the mountain|behind a rock;in a small cave;under a stone
"""
GIVERS = words("Ffairy Mwizard Mdwarf Fwitch Mgiant Mmagician Felf")
PRONOUNS = {"F": ("she", "her", "her", "herself"), "M": ("he", "him", "his", "himself")}
THINGS = """red kite;blue ball;silver key;green hat;wooden flute;golden ring;yellow scarf;drum;old map;brown bag;white cup;lantern;bell;
umbrella;basket;bottle;rope;blanket;book;camera;candle;violin;box;stone;doll;letter;coin;hammer;pencil;mirror;shell;feather;apple;coat;
bucket;spoon;knife;lamp;necklace;watch;boot;glove;pear;cake;loaf of bread;jar of honey;toy car;teddy bear;paper boat;bunch of flowers"""
REFER = """
{n} had {a_o}. {he} took the {o} [{to}|everywhere]. [When {he} came home|In the evening], {he} put the {o} [on the table|under the bed|on a shelf].
{n} found {a_o} {spot}. "Whose {o} is this?" {he} asked. "It is my {o}," said {f}. So {n} gave the {o} to {f}.
{f} had lost {fhis} {o}. {n} helped to look for it. {at_cap}, {spot}, {n} found the {o} and brought it to {f}. {f} [was happy|smiled] and took the {o} home.
{n} bought {a_o} for {f}. {f} liked the {o} very much. The next day {fhe} [showed|took] the {o} to {fhis} [friends|sister|brother].
{n} and {f} went {to}. {n} carried {a_o}, and {f} carried {a_x}. Later {f} put down the {x}, and {n} put down the {o}.
"Where is my {o}?" asked {n}. "I saw the {o} {at}," said {f}. So {n} went {to} and found the {o} there.
{n} is a [friend|neighbour|cousin] of {f}. {f} has {a_o}. One day {n} asked, "May I have the {o} for a day?" "Yes," said {f}. Now {n} has the {o}.
There were two things on the table, {a_o} and {a_x}. {n} took the {o}, and {f} took the {x}. {n} liked the {o}, and {f} liked the {x}.
{n} wrote a letter to {f}. "Dear {f}, thank you for the {o}. It is beautiful. I take the {o} with me every day. Your friend, {n}"
{n} has {a_o} and {f} has {a_x}. [Who has the {o}? {n} has the {o}.|Who has the {x}? {f} has the {x}.|What does {n} have? {n} has {a_o}.|What does {f} have? {f} has {a_x}.]
{n} gave {f} {a_o}. [Who got the {o}? {f} got the {o}.|Who gave the {o} away? {n} did.|What did {f} get? {f} got {a_o}.]
{n} went {to} with {a_o}. [Where did {n} go? {n} went {to}.|What did {n} take along? {n} took {a_o}.|Who went {to}? {n} went {to}.]
"""
CAUSE_FORMS = """
{e} because {c}.
Because {c}, {e}.
{c}, so {e}.
{c}, and so {e}.
{c}. [That is why|For this reason|Therefore] {e}.
[Since|As] {c}, {e}.
{e}. Why? Because {c}.
{c}. What happened [then|next]? {e}.
{c}. So {e}.
Cause: {c}. Effect: {e}.
{c}. [As a result|In the end] {e}.
"""
PLACE_FORMS = """
{n} wanted to {w}, so {he} went to the {p}.
{n} wants to {w}, so {he} goes to the {p}.
{n} [goes|went] to the {p} to {w}.
[If|When] you want to {wy}, [go to the {p}|you go to the {p}].
[They|We] went to the {p} to {wo}.
{In} the {p}, {n} [was able to|could] {w}.
The {p} is [a|the] place where you can {wy}.
{In} the {p} there are {there}.
Where can you {wy}? {In} the {p}.
Where do you go to {wy}? To the {p}.
You find {there} {in} the {p}.
"I would like to {wm}," said {n}. "Then let us go to the {p}," said {f}.
{n} went to the {p}, because {he} wanted to {w}.
"Where are you going?" asked {f}. "To the {p}," said {n}. "I want to {wm}."
In the morning {n} went to the {p}. There {he} saw {there}.
"""
TOOL_FORMS = """
{n} [needs|needed] {a_t} to {w}.
{n} [takes|took] {a_t} to {w}.
{n} wanted to {w}, so {he} took {a_t}.
{n} wants to {w}, so {he} takes {a_t}.
[If|When] you want to {wy}, [you need|take|use] {a_t}.
{a_t} is [good|used|made] for this: to {wo}.
With {a_t} you can {wy}.
[What do you use|What do you need|What does one use] to {wy}? {a_t_cap}.
"Give me the {t}, please," said {n}. "I want to {wm}."
"I cannot {wm} without {a_t}," said {n}.
{n} used the {t} to {w}. Then {he} put the {t} away.
{f} had no {t}, so {fhe} could not {wf}.
"""
DESCRIBE = """
The [old|big|small|black|white|lazy|brown] [cat|dog] [sleeps|slept|is lying|was lying] [under the table|in front of the fire|on the sofa|in the sun].
The [red|yellow|little|wooden] [boat|ship] [sails|sailed] [across the lake|down the river|over the sea|past the island].
[Two|Three|Some|Many] [birds|sparrows|crows] [sit|sat|were sitting] [on the roof|on the fence|in the tree|on the wire] and [sing|sang|watched the street].
The [moon|sun] [stood|was] [high in the sky|behind the clouds|above the hills], and [nobody was in the street|it was very quiet|the sea was calm].
[The room|The kitchen|The hall] was [warm|cold|dark|bright] and [smelled of bread|full of people|almost empty|very quiet].
On the table [there was|stood|there stood] [a bowl of fruit|a vase with flowers|a glass of water|a burning candle] and [a plate with cheese|an old book|a cup of tea].
An old [man|woman] with [grey|white] hair [sat|was sitting] [on a bench|by the window] and [read a book|fed the birds|smiled at the children].
The [house|cottage|tower] has [a red roof|thick walls|green doors|small windows] and stands [on a hill|near the church|at the end of the road].
[In front of|Behind|Next to] the [house|school|shop] there is [a tall tree|a small garden|a wooden bench|a well].
The [river|stream] runs [through the valley|past the mill|under the bridge] and [into the sea|down to the lake].
She [wore|was wearing] a [blue|green|white] [dress|coat] and a [straw|red] hat, and she carried [a basket|a bag full of apples|a black umbrella].
He [opened|closed] the [door|window|book] and [looked at me|sat down|said nothing|smiled].
{n} [kept|owned|had] [many things|old letters|a few coins] in a drawer [under the stairs|in the hall|of the desk].
{n} was [poor|rich|famous|lonely], but {he} was [kind|happy|never sad|content]. {he} [sat on the stairs|called {his} friends] and [sang|laughed].
The [rose|tree|fish|king] was dead, and [everybody was sad|nobody knew why]. It [happened|was] [a month ago|since Sunday].
There [is|was] nothing [better|nicer] than [a cup of tea on a cold day|a good book|a long sleep|a walk in the sun].
I [like|love] [the smell of rain|warm bread|to sit by the fire|quiet mornings], but I do not like [noise|cold soup|to get up early].
Yesterday [we|they|I] went [home|to the sea|to bed] [early|late], because [it was cold|there was nothing to do|we were tired].
[Tomorrow|Next week|Soon] [we|they|I] will [go to the lake|visit some friends|clean the house|begin again], if [the weather is good|there is time].
"[Can|Could] you [help me|open the door|pass me the salt], please?" "[Of course|Yes, with pleasure|Sure]," [he|she] said. "[Here you are|Just a moment]."
"What time is it?" "It is [almost |]{hour} o'clock." "[Then we must go|Oh, so late|Good, there is enough time]."
[Would you like|Do you want] [some tea|a piece of cake|an apple]? "[Yes, please|No, thank you]," said [the girl|the boy|the guest].
"""
HOURS = words("one two three four five six seven eight nine ten eleven twelve")
HELD_REFER = """
{n} kept {a_o} in a drawer. On Sunday {he} opened the drawer, and there was the|o
One evening {f} knocked at the door of {n} and asked for {a_o}. So {n} went to the shelf and gave {f} the|o
{n} carried {a_o} home from the market. {he} was so tired that {he} dropped the|o
When {n} was a child, {he} owned {a_o}. Years later {he} still had the|o
Two friends, {n} and {f}, shared {a_o}. On Monday it was the turn of {n} to use the|o
{n} packed {a_o} for the journey, but at the station {he} could not find the|o
{n} sat alone on the stairs. Somebody came and sat down beside {him}. "Tell me what is wrong, |n
The teacher called {n} to the board. "Very good," the teacher said. "Sit down, |n
"I am looking for somebody called {n}," said the old man. "I am the one," was the answer. "My name is |n
{n} lived alone in a tower. Every night the people looked up at the tower and talked about |n
"Who made this soup?" asked the king. "It was {n}," said the cook. So the king sent for |n
A letter came for {n}. On the envelope stood the name |n
"""
HELD_PLACES = """
{n} put on {his} shoes because {he} had to {w}. {he} walked quickly to the
Today {n} is going to {w}. {he} is already on the way to the
"I have to {wm} today," said {n} and left for the
Nobody knew where {n} was. {he} had gone out to {w}, and they found {him} at the
"""
HELD_TOOLS = """
{n} had to {w}, and for that {he} looked everywhere for the
Before {n} could {w}, {he} had to find the
"How shall I {wm}?" asked {n}. "It is easy," said {f}. "Use the
{n} could not {w}, until {f} came and brought the
"""
HELD_CAUSES = """
Nobody had given the roses water for a month, so the roses were|dead|loud|proud|early
{n} had walked all day without a break, and in the evening {he} was very|tired|sour|empty|frozen
The soup had just come off the fire, so it was still|hot|asleep|frozen|young
The baby was sleeping, so everyone had to be|quiet|loud|wet|rich
{n} left the butter in the sun, and the butter|melted|laughed|froze|barked
Snow had fallen all night. In the morning the fields were|white|black|hot|angry
{n} dropped the plate on the stone floor, and the plate|broke|slept|grew|sang
There was no light in the room. It was completely|dark|hungry|sweet|kind
{n} had eaten nothing since yesterday, so {he} was very|hungry|wooden|green|empty-handed
{n} put five spoons of sugar into the tea. The tea was too|sweet|tired|dark|lonely
It was freezing outside, so {n} put on a warm|coat|cake|river|cloud
The lion ran towards them. {n} was so|afraid|sweet|bitter|cheap
After weeks without rain the ground was completely|dry|wet|loud|kind
{n} fell into the lake, and when {he} came out, all {his} clothes were|wet|hungry|brave|bitter
The joke was so funny that everybody|laughed|cried|froze|melted
When the cat came into the room, the mouse|ran away|sang a song|read a book|cooked dinner
{n} was very thirsty, so {he} drank some|water|bread|sand|wood
The window was open, and suddenly a bird|flew in|drove in|wrote a letter|boiled over
The night was clear. High in the sky one could see the|stars|fish|shoes|spoons
{n} had lost all {his} money, so {he} was very|poor|tall|sweet|round
The stone was so heavy that {n} could not|lift it|eat it|hear it|read it
{n} had won the race. {he} was very|happy|sad|sour|frozen
The dog had not been fed, so it wanted to|eat|read|drive|sing
The lake was frozen, so the children could|skate on it|sleep in it|drink it all|plant trees in it
{n} was ill, so the doctor gave {him} some|medicine|snow|wood|sand
The sun went down behind the hills, and soon it was|night|noon|morning|breakfast
"""
# What also serves a purpose and is therefore no wrong answer.
ALIKE = {
    "kitchen": ("restaurant", "bakery"), "bedroom": ("hotel", "hospital"), "bathroom": ("swimming pool", "barber", "hotel"),
    "bakery": ("market", "kitchen", "restaurant"), "market": ("farm", "bakery"), "farm": ("zoo", "market"), "zoo": ("farm",),
    "station": ("bus stop", "airport"), "airport": ("station",), "bus stop": ("station",), "swimming pool": ("beach", "school"),
    "forest": ("park", "mountain"), "park": ("farm", "forest"), "beach": ("playground", "harbour"), "hospital": ("dentist", "bedroom", "hotel"),
    "cinema": ("theatre",), "theatre": ("cinema",), "school": ("library",), "library": ("school",), "museum": ("castle",),
    "mountain": ("castle", "forest"), "castle": ("theatre", "museum"), "hotel": ("castle", "bedroom"), "pharmacy": ("hospital",), "restaurant": ("hotel", "castle"),
    "stadium": ("cinema",), "dentist": ("hospital",), "harbour": ("beach", "museum"), "playground": ("park", "school"),
    "scissors": ("knife", "axe", "saw"), "knife": ("saw", "scissors", "axe"), "saw": ("axe", "knife"), "axe": ("saw", "knife"),
    "spoon": ("fork",), "fork": ("spoon",), "key": ("hammer", "axe", "screwdriver"), "umbrella": ("coat",), "pen": ("brush",),
    "broom": ("rake", "brush"), "rake": ("broom", "basket"), "blanket": ("coat", "pillow"), "coat": ("blanket",), "pillow": ("blanket",),
    "lantern": ("match", "camera"), "match": ("lantern",), "boat": ("rope",), "bucket": ("watering can", "kettle"), "watering can": ("bucket",),
    "map": ("lantern", "telephone"), "glasses": ("telescope", "mirror", "lantern"), "telescope": ("glasses", "camera"),
    "ladder": ("rope",), "basket": ("bucket", "net", "bicycle"), "mirror": ("camera", "telescope"), "comb": ("brush", "mirror"),
    "camera": ("telephone", "telescope"), "towel": ("iron", "blanket"), "soap": ("brush", "towel", "bucket", "watering can"), "oven": ("match",),
    "spade": ("bucket",), "bell": ("telephone",), "net": ("basket", "bucket"), "rope": ("net",), "ruler": ("pen",),
    "eraser": ("pen",), "glue": ("plaster",), "plaster": ("towel", "glue"), "kettle": ("match", "oven"), "fridge": ("bucket",),
    "hammer": ("axe", "screwdriver"), "bicycle": ("map",), "needle": ("scissors",),
}  # fmt: skip
CAPITALS = re.compile(r'(^|[.?!] "?|[.]" |: ")([a-z])')
ARTICLES = re.compile(r"\b([Aa]) (?=[aeiou]|honest|hour)")
SPACES = re.compile(r" {2,}")
TOP_BAR = re.compile(r"\|(?![^\[]*\])")


def lines(table: str) -> list[str]:
    """The lines of a table that hold something."""
    return [line.strip() for line in table.strip().split("\n") if line.strip()]


def flat(table: str) -> list[str]:
    """The entries of a list between semicolons."""
    return [entry.strip() for entry in table.replace("\n", " ").split(";") if entry.strip()]


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot: the heroes it suits, the fields it draws, and its slots, each with the ways to tell it."""

    name: str
    suits: tuple[str, ...]
    drawn: tuple[tuple[tuple[str, ...], tuple[tuple[str, ...], ...]], ...]
    slots: tuple[tuple[str, ...], ...]


def plots(text: str) -> list[Plot]:
    """The plots of a text in the notation of `story_plots`."""
    found = []
    for block in text.strip().split("\n@"):
        head, _, body = block.lstrip("@").partition("\n")
        name, *suits = head.split()
        drawn = []
        slots = []
        for slot in body.strip().split("\n\n"):
            ways = []
            for line in lines(slot):
                if line.startswith("$"):
                    names, _, values = line[1:].partition(" = ")
                    rows = tuple(tuple(value.strip() for value in row.split("/")) for row in values.split(";"))
                    drawn.append((tuple(names.split(", ")), rows))
                else:
                    ways.append(line)
            if ways:
                slots.append(tuple(ways))
        found.append(Plot(name, tuple(suits), tuple(drawn), tuple(slots)))
    return found


STORY_PLOTS, EVERYDAY_PLOTS = plots(PLOTS), plots(EVERYDAY)
DAY_LIST = [day for line in lines(DAYS) for day in TOP_BAR.split(line)]
GROUND_LIST = [line.split("|") for line in lines(GROUNDS)]
OPENING_LIST, EXTRA_LIST, REFER_LIST, DESCRIBE_LIST = lines(OPENINGS), lines(EXTRAS), lines(REFER), lines(DESCRIBE)
THING_LIST = flat(THINGS)
HOW_TO_LIST = [(line.split("|")[0], line.split("|")[1].split(";")) for line in lines(HOW_TO)]
CAUSE_LIST = [(line.split("|")[0], line.split("|")[1].split(";")) for line in lines(CAUSES)]
PLACE_LIST = [(p, w.split(";"), there) for p, w, there in (line.split("|") for line in lines(PLACES))]
TOOL_LIST = [(t, w.split(";")) for t, w in (line.split("|") for line in lines(TOOLS))]


def tidy(text: str) -> str:
    """Single spaces, and a capital where a sentence begins."""
    text = ARTICLES.sub(r"\1n ", SPACES.sub(" ", text).strip())
    return "\n".join(
        CAPITALS.sub(lambda match: match[1] + match[2].upper(), line) for line in map(str.strip, text.split("\n"))
    )


def with_article(fields: dict[str, str], *names: str) -> None:
    """Adds `a_x` for each field x."""
    for name in names:
        fields[f"a_{name}"] = a(fields[name])


def world(rng: random.Random, kind: str) -> dict[str, str]:
    """The fields of a story: hero, friend, elder, place and things, drawn once."""
    sex, fsex = rng.choice("FM"), rng.choice("FM")
    name = rng.choice(GIRLS if sex == "F" else BOYS)
    friend = rng.choice([other for other in (GIRLS if fsex == "F" else BOYS) if other != name])
    others = HEROES["robot" if kind == "robot" and rng.random() < 0.3 else "child" if kind == "robot" else kind]
    elder = rng.choice(flat(ELDERS[kind]))
    place, to, at, spots = rng.choice(GROUND_LIST)
    giver = rng.choice(GIVERS)
    fields = {"n": name, "f": friend, "p": place, "to": to, "at": at, "spot": rng.choice(spots.split(";"))}
    fields |= zip(("he", "him", "his", "him_self"), PRONOUNS[sex], strict=True)
    fields |= zip(("fhe", "fhim", "fhis"), PRONOUNS[fsex], strict=False)
    fields |= zip(("ehe", "ehim", "ehis"), PRONOUNS[elder[0]], strict=False)
    fields |= {"giver": giver[1:], "ghis": PRONOUNS[giver[0]][2], "pn": rng.choice(PETS), "hour": rng.choice(HOURS)}
    fields |= {"k": rng.choice(HEROES[kind][sex == "M"]), "fk": rng.choice(others[fsex == "M"])}
    aged = any(word in fields["k"] for word in ("old", "young", "little", "small"))
    traits = [trait for trait in TRAITS if not aged or trait not in ("young", "small")]
    fields |= {"trait": rng.choice(traits), "home": rng.choice(flat(HOMES[kind]))}
    fields["e"] = elder[1:].replace("{his}", fields["his"])
    fields["o"], fields["x"] = rng.sample(THING_LIST, 2)
    fields["a_o2"] = "a big umbrella"
    with_article(fields, "o", "x", "giver", "fk")
    capital(fields)
    return fields


def capital(fields: dict[str, str]) -> None:
    """Adds the forms that begin a sentence behind a quotation."""
    fields["E"] = fields["e"][0].upper() + fields["e"][1:]
    fields["At"] = fields["at"][0].upper() + fields["at"][1:]
    for name in ("home", "at", "fhis", "fhe", "a_o"):
        fields[f"{name}_cap"] = fields[name][0].upper() + fields[name][1:]


def drawn(plot: Plot, fields: dict[str, str], rng: random.Random) -> dict[str, str]:
    """The world with the fields that the plot draws."""
    fields = dict(fields)
    for names, rows in plot.drawn:
        for name, value in zip(names, rng.choice(rows), strict=True):
            fields[name] = FIELD.sub(lambda match: fields[match[1]], value)
            with_article(fields, name)
    if "gift" in fields:
        fields["gift_cap"] = fields["gift"].capitalize()
    fields["day_low"] = rng.choice(("one day", "one morning", "that day"))
    capital(fields)
    return fields


def sentence(pattern: str, fields: dict[str, str], rng: random.Random) -> str:
    """A pattern told in a world; `{day}` is told afresh."""
    if "{day}" in pattern:
        pattern = pattern.replace("{day}", rng.choice(DAY_LIST))
    return expand(pattern, rng, fields)


def story(rng: random.Random, plot: Plot | None = None, kind: str | None = None) -> str:
    """A short story of a plot."""
    plot = plot or rng.choice([p for p in STORY_PLOTS if kind is None or kind in p.suits])
    fields = drawn(plot, world(rng, kind or rng.choice(plot.suits)), rng)
    parts = [sentence(rng.choice(OPENING_LIST), fields, rng)]
    if rng.random() < 0.5:
        parts.append(sentence(rng.choice(EXTRA_LIST), fields, rng))
    parts += [sentence(rng.choice(slot), fields, rng) for slot in plot.slots]
    ending = rng.random()
    if ending < 0.12:
        parts.append(
            rng.choice(("The end.", "And they lived happily ever after.", "And that is the end of the story."))
        )
    return tidy(("\n\n" if rng.random() < 0.12 else " ").join(parts))


def tiny_story(rng: random.Random) -> str:
    """Two or three sentences in which a thing and a name come back."""
    return tidy(sentence(rng.choice(REFER_LIST), world(rng, rng.choice(("child", "villager"))), rng))


def paragraph(rng: random.Random, plot: Plot) -> str:
    """A paragraph of everyday life."""
    fields = drawn(plot, world(rng, rng.choice(("child", "villager"))), rng)
    return tidy(" ".join(sentence(rng.choice(slot), fields, rng) for slot in plot.slots))


def steps(name: str, todo: list[str], rng: random.Random) -> str:
    """How to do something, in steps."""
    form = rng.random()
    if form < 0.35:
        head = expand(
            rng.choice(("How to {n}:", "How [do you|can I|do I] {n}?", "This is how [you|to] {n}:")), rng, {"n": name}
        )
        mark = rng.choice(("{}. ", "{}) ", "Step {}: ", "- "))
        return tidy(
            head + "\n" + "\n".join(mark.format(i + 1) + step.capitalize() + "." for i, step in enumerate(todo))
        )
    return tidy(expand(rng.choice(("To {n}, ", "[If|When] you want to {n}, ")), rng, {"n": name}) + advice(todo, rng))


def advice(todo: list[str], rng: random.Random) -> str:
    """The steps in one or more sentences, the first in small letters."""
    joints = [rng.choice((". Then ", ". After that, ", ". Next, ", ", then ", " and ")) for _ in todo[2:]]
    text = rng.choice(("first ", "")) + todo[0] + "".join(j + s for j, s in zip(joints, todo[1:-1], strict=True))
    return text + rng.choice((". Finally, ", ". At the end, ", ". Then ")) + todo[-1] + "."


def cause(row: tuple[str, list[str]], rng: random.Random) -> str:
    """A cause and an effect of it."""
    girl = rng.random() < 0.5
    name, he = (rng.choice(GIRLS), "she ") if girl else (rng.choice(BOYS), "he ")
    pattern = rng.choice(CAUSE_LINES)
    c, e = row[0], rng.choice(row[1])
    if c.startswith("{n} ") and e.startswith("{n} ") and rng.random() < 0.8:
        if pattern.index("{c}") < pattern.index("{e}"):
            e = he + e[4:]
        else:
            c = he + c[4:]
    return tidy(expand(pattern, rng, {"c": c.replace("{n}", name), "e": e.replace("{n}", name)}))


def purpose(thing: str, wish: str, forms: list[str], rng: random.Random, there: str = "") -> str:
    """A place or a tool and what it is for."""
    fields = world(rng, "child") | {"p": thing, "t": thing, "there": there, "w": wish}
    fields["in"] = "in" if thing in INSIDE else "at"
    fields["In"] = fields["in"].capitalize()
    for key, his in (("w", fields["his"]), ("wy", "your"), ("wo", "their"), ("wm", "my"), ("wf", fields["fhis"])):
        fields[key] = wish.replace("{his}", his)
    fields["a_t"] = thing if thing in PLAIN else a(thing)
    fields["a_t_cap"] = fields["a_t"][0].upper() + fields["a_t"][1:]
    return tidy(expand(rng.choice(forms), rng, fields))


CAUSE_LINES, PLACE_LINES, TOOL_LINES = lines(CAUSE_FORMS), lines(PLACE_FORMS), lines(TOOL_FORMS)
INSIDE = ("kitchen", "bedroom", "bathroom", "forest", "library", "garage", "hotel", "castle")
PLAIN = ("scissors", "soap", "glasses", "glue")
TOOL_LINES_PLAIN = [line for line in TOOL_LINES if "{a_t} is" not in line]


def asked(tool: str, wish: str, rng: random.Random) -> str:
    """A purpose as a question and answer."""
    question = rng.choice(("What do you need to {}?", "What do you use to {}?", "which thing do you take to {}"))
    return question_answer(question.format(wish.replace("{his}", "your")), tool, rng)


def documents(rng: random.Random) -> Iterator[str]:
    """Stories for the most part, with everyday paragraphs, small scenes and single sentences in between."""
    tales, days, todo = rounds(STORY_PLOTS, rng), rounds(EVERYDAY_PLOTS, rng), rounds(HOW_TO_LIST, rng)
    causes, places, tools = rounds(CAUSE_LIST, rng), rounds(PLACE_LIST, rng), rounds(TOOL_LIST, rng)
    while True:
        form = rng.random()
        if form < 0.20:
            yield story(rng, next(tales))
        elif form < 0.28:
            yield paragraph(rng, next(days))
        elif form < 0.32:
            yield steps(*next(todo), rng)
        elif form < 0.48:
            yield tiny_story(rng)
        elif form < 0.64:
            yield cause(next(causes), rng)
        elif form < 0.77:
            place, wishes, there = next(places)
            yield purpose(place, rng.choice(wishes), PLACE_LINES, rng, there)
        elif form < 0.90:
            tool, wishes = next(tools)
            if rng.random() < 0.15:
                yield asked(tool, rng.choice(wishes), rng)
            else:
                yield purpose(tool, rng.choice(wishes), TOOL_LINES_PLAIN if tool in PLAIN else TOOL_LINES, rng)
        else:
            fields = world(rng, "child")
            yield tidy(" ".join(expand(p, rng, fields) for p in rng.sample(DESCRIBE_LIST, rng.randint(1, 3))))


def held_item(prompt: str, answer: str, wrong: tuple[str, ...] | list[str], place: int, rng: random.Random) -> Item:
    """A prompt with its right continuation at a position of the choices."""
    choices = rng.sample(list(wrong), 3)
    choices.insert(place % 4, answer)
    return Item(KIND, prompt, tuple(f" {choice}" for choice in choices), place % 4, prompt)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Beginnings of stories and sentences; one of four continuations refers to the right name or thing, or makes sense."""
    made = 0
    for line in lines(HELD_REFER) * 4:
        pattern, _, key = line.rpartition("|")
        fields = world(rng, rng.choice(("child", "villager")))
        pool = THING_LIST if key == "o" else [name for name in GIRLS + BOYS if name != fields["f"]]
        pool = [thing for thing in pool if thing.split()[-1] != fields[key].split()[-1]]
        yield held_item(
            tidy(expand(pattern, rng, fields)), fields[key], wrong_answers(fields[key], pool, rng), made, rng
        )
        made += 1
    for table, forms in (
        ([(place, wishes) for place, wishes, _ in PLACE_LIST], lines(HELD_PLACES)),
        (TOOL_LIST, lines(HELD_TOOLS)),
    ):
        pool = [name for name, _ in table]
        for thing, wishes in rng.sample(table, 24):
            wrong = wrong_answers(thing, [name for name in pool if name not in ALIKE.get(thing, ())], rng)
            yield held_item(purpose(thing, wishes[0], [forms[made % len(forms)]], rng), thing, wrong, made, rng)
            made += 1
    for line in lines(HELD_CAUSES):
        prompt, answer, *others = line.split("|")
        yield held_item(tidy(expand(prompt, rng, world(rng, "child"))), answer, others, made, rng)
        made += 1
