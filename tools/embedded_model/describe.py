"""Entities in words and in records: sentences about them, questions on them, JSON, lines of keys and values."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence

from embedded_model.entities import Entity, Value, text
from embedded_model.phrases import FIELD, expand

# Patterns of a kind, one a line, `key: pattern`. {S} is the subject: the name, or the pronoun.
OPENINGS = {
    "person": """
{name} is {age} years old and [lives in|comes from|is from|has a home in] {city}.
{name} is {age} and [lives in|works in] {city}.
{name}, {age}, [lives|works|has a flat] in {city}.
{name} ({age}) is {a_job} from {city}.
{name} is {a_job} [from|in] {city}.
{name} is {a_job} [and lives|who lives] in {city}, {country}.
{name} works as {a_job} in {city}.
[Meet|This is|Let me introduce|Here is] {name}, {a_job} from {city}.
[Meet|This is] {name}, {age}, {a_job} [from|in] {city}.
My [friend|neighbor|cousin|colleague|boss] {name} is {age} [years old |]and works as {a_job}.
At {age}, {name} [still|already|now] works as {a_job} in {city}.
{name} lives in {country} and [speaks|talks|writes in] {language}.
{name} is {a_job} of {age} [years |]and [likes|loves|enjoys] {hobby}.
{name} [likes|loves|enjoys] {hobby} and lives in {city}.
The {job} {name} [lives in|comes from|moved to] {city}.
In {city} [there lives|lives] {a_job} [called|named] {name}[, {age}|].
[Hello|Hi], my name is {name}, I am {age} [years old |]and I live in {city}.
[Hi|Hello], I am {name}. I am {a_job} and I live in {city}.
My name is {name}. I am {age} years old and I work as {a_job}.
[The |]{age}-year-old {name} [works as|is] {a_job} in {city}.
""",
    "order": """
Order {order} [is|was] for {quantity} {color} {item}[, bought by {customer}|].
{customer} [ordered|bought] {quantity} x {item} in {color}[, order {order}|].
{customer} [ordered|bought|wants|asked for] {a_item} in {color}.
{customer} [ordered|bought|paid for] {a_item} for {price} [euros|dollars].
{customer} ordered {a_item} (order [number |]{order}).
Order {order} was [placed|made|sent] by {customer}: {quantity} x {item}.
In order {order}, {customer} [asks|asked] for {quantity} x {item}[, color {color}|].
We [got|received] order {order} from {customer}: {quantity} x {item} at {price} [dollars|euros] each.
The {item} in order {order} is {color} and made of {material}.
[Hello|Hi], I am {customer}. I [ordered|bought] {a_item}, order {order}.
[Hello|Hi], my order {order} for {a_item} is {status}. My name is {customer}.
{customer} paid {price} [euros|dollars] for {a_item} by {payment}.
""",
    "character": """
{name} is {a_class}.
{name} is {a_class} of level {level}.
{name} is {a_race} {class}[ of level {level}|].
{name} is {a_trait} {class}[ who carries {a_weapon}|].
{name} the {class} [wears|has] {armor} armor and [carries|fights with|uses] {a_weapon}.
{name}, {a_race}, is {a_class} [with|who carries] {a_weapon}.
{name}, {a_class}, [is {age} years old|carries {items}|fights with {a_weapon}].
[Meet|This is|Here is|Here comes] {name}, {a_trait} {race} {class}.
[Meet|This is] {name}, {a_class} in {armor} armor.
The {class} {name} [carries|fights with|holds] {a_weapon}[ and wears {armor} armor|].
[I am|My name is] {name}, {a_class}[ of {age} years|]. I [carry|fight with] {a_weapon}.
Our hero is {name}, {a_race} {class}[ in {armor} armor|].
{A_race} {class} [called|named] {name} [came to the village|joined us|entered the inn].
""",
    "event": """
The {event} [is|takes place|starts|will be] on {date} at {time} in the {place}.
The {event} [is|takes place|will be held] on {date} in {city}.
{who} [invites you|invites us|invites everyone] to {a_event} on {date}.
{who} [plans|organizes|hosts|gives] {a_event} [on {date}|in {city}|at the {place}].
On {date}, {who} [plans|hosts|gives] {a_event} at the {place}.
There [is|will be] {a_event} [in|at] the {place} on {date}.
There [is|will be] {a_event} in {city} on {date}, [organized by|hosted by|led by|with] {who}.
Join {who} for {a_event} at {time} [in|at] the {place}.
[Come|Please come] to the {event} at the {place} on {date} at {time}.
Our {event} [is|starts] at {time} on {date}. The place is the {place}[ in {city}|].
At {time} on {date} the {event} starts [in|at] the {place}.
""",
}
STATEMENTS = {
    "person": """
name: [The name is|The person is called|This is] {name}.
age: {S} is {age} [years old|years of age].
age: {His} age is {age}.
city: {S} [lives in|comes from|has a home in] {city}.
city: {His} home [town |city |]is {city}.
country: {S} [lives in|comes from] {country}.
country: {His} country is {country}.
language: {S} speaks {language}.
language: {His} language is {language}.
job: {S} [is|works as] {a_job}.
job: {His} job is {job}.
workplace: {S} works [at|in] {a_workplace}.
hobby: {S} [likes|loves|enjoys] {hobby}.
hobby: {His} hobby is {hobby}.
hobby: In {his} free time {he} enjoys {hobby}.
phone: {His} phone number is {phone}.
phone: You can call {him} at {phone}.
""",
    "order": """
order: The order number is {order}.
order: This is order {order}.
customer: The customer is [called |]{customer}.
customer: It was ordered by {customer}.
item: The item is {a_item}.
item: {S} ordered {a_item}.
category: The category is {category}.
category: It belongs to {category}.
color: The color is {color}.
color: It is {color}.
material: It is made of {material}.
material: The material is {material}.
quantity: The quantity is {quantity}.
quantity: The number of pieces is {quantity}.
price: The [unit price|price] is {price}.
price: It costs {price} [euros|dollars|each].
status: The order is {status}.
status: The status is {status}.
payment: The payment is by {payment}.
payment: {S} [pays|paid] by {payment}.
""",
    "character": """
name: [The name is|The hero is called|This is] {name}.
race: {S} is {a_race}.
race: {His} race is {race}.
class: {S} is {a_class}.
class: {His} class is {class}.
age: {S} is {age} years old.
level: {S} is at level {level}.
level: {His} level is {level}.
armor: {S} wears {armor} armor.
armor: {S} is dressed in {armor}.
armor: {His} armor is {armor}.
weapon: {S} [carries|fights with|uses|holds] {a_weapon}.
weapon: {His} weapon is {a_weapon}.
items: {S} [carries|has|owns] {items}.
items: In {his} bag {he} has {items}.
trait: {S} is {trait}.
mantra: {His} mantra is "{mantra}"
mantra: {S} says: "{mantra}"
strength: {S} has strength {strength}.
strength: {His} strength is {strength}.
gold: {S} [has|owns] {gold} gold [pieces|coins].
""",
    "event": """
event: It is {a_event}.
event: The event is {a_event}.
date: [It|The event] is on {date}.
date: The date is {date}.
time: It [starts|begins] at {time}.
time: The time is {time}.
place: It [is|takes place] [in|at] the {place}.
place: The place is the {place}.
city: It is in {city}.
city: The city is {city}.
who: {who} [organizes it|hosts it|invites everyone|is responsible].
who: The host is {who}.
""",
}
QUESTIONS = {
    "person": """
name: [Who is this?|What is the name?|What is the person called?|Which person is this?|Who is it about?|who is this]
age: How old is {who}?
age: What [is {who}'s age|age is {who}|age does {who} have]?
age: how old is {who}[?|]
city: Where does {who} live?
city: [In which city|In what city] does {who} live?
city: Which city [is {who} from|does {who} come from|is {who}'s home]?
country: [In which country|In what country] does {who} live?
country: What country does {who} come from?
language: [Which|What] language does {who} speak?
language: What does {who} speak?
job: What is {who}'s [job|occupation|profession|work]?
job: What does {who} [do|work as|do for a living]?
workplace: Where does {who} work?
workplace: [At|In] what [place|kind of place] does {who} work?
hobby: What does {who} [like|love|enjoy|do in free time]?
hobby: What is {who}'s [hobby|favorite hobby]?
phone: What is {who}'s [phone number|number|telephone number]?
phone: [How|At what number] can I call {who}?
""",
    "order": """
order: What is the [order number|number of the order]?
order: [Which order is it|Which order number does it have|what is the order number]?
customer: Who [ordered|bought] the {item}?
customer: Who is the customer?
customer: [What is the name of the customer|Who made the order|Who placed the order]?
item: What did {who} [order|buy]?
item: [Which|What] item [was ordered|was bought|is in the order]?
category: What [category is the {item}|is the category|category does the {item} belong to]?
color: What color is [the {item}|it]?
color: [Which|What] color [was ordered|did {who} want|does the {item} have]?
material: What is [the {item}|it] made of?
material: Which material is [the {item}|it]?
quantity: How many [did {who} order|were ordered|pieces are there|pieces were ordered]?
quantity: What is the quantity?
price: How much [does the {item} cost|does it cost|is the {item}|is it|did {who} pay]?
price: What is the [price|unit price|cost][ of the {item}|]?
status: What is the status[ of the order| of order {order}|]?
status: What happened to [the order|order {order}]?
payment: How [does|did] {who} pay?
payment: What is the [payment|way of payment]?
""",
    "character": """
name: [Who is this?|What is the name?|What is the hero called?|Who is the character?|what is the character called]
race: What race is {who}?
race: What is {who}'s race?
class: What class is {who}?
class: What is {who}'s class?
class: What [kind of hero|kind of character] is {who}?
age: How old is {who}?
age: What is {who}'s age?
level: What level is {who}?
level: [Which|What] level [has {who}|does {who} have]?
armor: What armor does {who} [wear|have|use]?
armor: [What kind of|Which] armor [does {who} wear|does {who} have|is {who} wearing]?
armor: What is {who}'s armor?
weapon: What weapon does {who} [carry|use|have|fight with]?
weapon: What does {who} [fight with|hold|use in a fight]?
weapon: [What is {who}'s weapon|Which weapon does {who} carry]?
items: What [items|things] does {who} [have|carry|own]?
items: What is in {who}'s bag?
trait: What is {who} like?
trait: Which trait does {who} have?
mantra: What [is {who}'s mantra|does {who} say|mantra does {who} have]?
strength: [How strong is {who}|What is {who}'s strength]?
gold: How much gold does {who} [have|own]?
""",
    "event": """
event: What [is planned|takes place|is it|kind of event is it]?
event: Which event [is it|takes place]?
date: When is [it|the {event}]?
date: [On which day|On what day|On which date] is [it|the {event}]?
date: What is the date[ of the {event}|]?
time: [At what time|What time|When] does [it|the {event}] start?
time: What is the time of the [event|{event}]?
place: Where is [it|the {event}]?
place: [Where|At what place|In which place] does [it|the {event}] take place?
place: What is the place of the [event|{event}]?
city: [In which city|In what city|Which city] is [it|the {event}] in?
city: What city is it?
who: Who [organizes|hosts|invites people to|is responsible for|gives] [it|the {event}]?
who: Who is the host?
""",
}
ANY_QUESTION = (
    "What is the {label}?",
    "What is the {label} of {who}?",
    "What {label} is given?",
    "Which {label} [does it say|does the message give|is named|is written there|is in the text|is meant]?",
    "[Tell me|Give me|Name|Find|Write|Copy] the {label}.",
    "[Tell me|Give me|Find] the {label} of {who}.",
    "{label}[?|]",
    "[what is the|tell me the|give the] {label}[?|]",
)
LABELS = {"order": "order number", "who": "host", "phone": "phone number", "class": "class", "price": "price"}

# Spellings of the keys that have several, the usual ones more often.
SPELLINGS = {
    "name": "name name name name full_name",
    "job": "job job occupation profession",
    "city": "city city city town home",
    "hobby": "hobby hobby likes",
    "language": "language language speaks",
    "phone": "phone phone_number telephone",
    "workplace": "workplace works_at place_of_work",
    "order": "order order_number order_id number id",
    "customer": "customer customer buyer customer_name",
    "item": "item item product article",
    "category": "category category type",
    "color": "color color colour",
    "quantity": "quantity quantity amount count",
    "price": "price price unit_price cost",
    "payment": "payment payment paid_by payment_method",
    "status": "status status status order_status",
    "class": "class class class class role character_class",
    "armor": "armor armor armor armor armor armour",
    "weapon": "weapon weapon weapon weapon main_weapon",
    "items": "items items inventory bag",
    "mantra": "mantra mantra motto",
    "trait": "trait trait character",
    "event": "event event title what",
    "date": "date date day when",
    "time": "time time start",
    "place": "place place location where",
    "who": "who who host organizer",
}
SPELLING = {key: value.split() for key, value in SPELLINGS.items()}


def keyed(table: str) -> dict[str, list[str]]:
    """Lines of `key: pattern`, grouped by key."""
    found: dict[str, list[str]] = {}
    for line in table.strip().splitlines():
        key, pattern = line.split(": ", 1)
        found.setdefault(key, []).append(pattern)
    return found


OPENING = {kind: table.strip().splitlines() for kind, table in OPENINGS.items()}
STATEMENT = {kind: keyed(table) for kind, table in STATEMENTS.items()}
QUESTION = {kind: keyed(table) for kind, table in QUESTIONS.items()}
SUBJECT = {"person": "name", "order": "customer", "character": "name", "event": "who"}
FIRST_PERSON = ("Hello", "Hi,", "My name", "I am")
PLAIN_KEY = {f"a_{key}": key for key in ("job", "item", "class", "race", "weapon", "event", "trait", "color")}


def statement(thing: Entity, key: str, rng: random.Random, subject: str) -> str:
    """A sentence that states one value."""
    words = {**thing.words, "S": subject}
    if subject == thing.words[SUBJECT[thing.kind]]:
        words["His"] = f"{subject}'s"
    return expand(rng.choice(STATEMENT[thing.kind][key]), rng, words)


def opening(thing: Entity, rng: random.Random) -> tuple[str, list[str]]:
    """A first sentence, and the keys whose values it gives, in its order."""
    braces = {key: f"{{{key}}}" for key in thing.words}
    pattern = expand(rng.choice(OPENING[thing.kind]), rng, braces)
    keys = [PLAIN_KEY.get(key, key) for key in FIELD.findall(pattern)]
    return FIELD.sub(lambda match: thing.words[match[1]], pattern), keys


def prose(thing: Entity, rng: random.Random, more: int = 2) -> tuple[str, list[str]]:
    """One to `more` + 1 sentences about the thing, and the keys that they mention, in their order."""
    sentences, keys = [], []
    first, keys = opening(thing, rng)
    sentences.append(first)
    others = [key for key in STATEMENT[thing.kind] if key not in keys]
    if first.startswith(FIRST_PERSON):
        more = 0
    for key in rng.sample(others, min(rng.randint(0, more), len(others))):
        subject = thing.words["He"] if thing.kind in {"person", "character"} else thing.words[SUBJECT[thing.kind]]
        sentences.append(statement(thing, key, rng, subject))
        keys.append(key)
    return " ".join(sentences), keys


def describe(thing: Entity, keys: Sequence[str], rng: random.Random) -> str:
    """A sentence for every key: the record in prose."""
    name = thing.words[SUBJECT[thing.kind]]
    sentences, named = [], False
    for key in keys:
        if key == SUBJECT[thing.kind] and len(keys) > 1 and thing.kind in {"person", "character"}:
            continue
        subject = thing.words["He"] if named and thing.kind != "order" else name
        sentence = statement(thing, key, rng, subject)
        named = named or name in sentence
        sentences.append(sentence)
    if not named and SUBJECT[thing.kind] in keys:
        sentences.insert(0, statement(thing, SUBJECT[thing.kind], rng, name))
    return " ".join(sentences)


def question(thing: Entity, key: str, rng: random.Random) -> str:
    """A question that the value of the key answers."""
    subject = thing.words[SUBJECT[thing.kind]]
    words = {**thing.words, "who": rng.choice((subject, thing.words["first"])), "label": LABELS.get(key, key)}
    generic = (rng.random() < 0.25 and key != "items") or key not in QUESTION[thing.kind]
    if key == SUBJECT[thing.kind] and generic:
        return expand("[What is the {label}?|Which {label} is it?|Give the {label}.|Tell me the {label}.]", rng, words)
    if generic and thing.kind in {"order", "event"}:
        return expand(rng.choice((ANY_QUESTION[0], *ANY_QUESTION[2:5], *ANY_QUESTION[6:])), rng, words)
    return expand(rng.choice(ANY_QUESTION if generic else QUESTION[thing.kind][key]), rng, words)


def answer(thing: Entity, key: str, rng: random.Random, sentences: float = 0.15) -> str:
    """The value asked for, now and then as a sentence."""
    if rng.random() < sentences and key in STATEMENT[thing.kind]:
        subject = rng.choice((thing.words[SUBJECT[thing.kind]], thing.words["He"]))
        return statement(thing, key, rng, subject)
    if key in {"weapon", "items"} and rng.random() < 0.3:
        return thing.words["a_weapon" if key == "weapon" else "items"]
    return text(thing.values[key])


def spelled(keys: Iterable[str], rng: random.Random, style: str) -> dict[str, str]:
    """How each key is written, in one style: snake, title, camel, upper or words."""
    names = {}
    for key in keys:
        name = rng.choice(SPELLING.get(key, [key]))
        parts = name.split("_")
        names[key] = {
            "snake": name,
            "title": " ".join(parts).capitalize(),
            "camel": parts[0] + "".join(part.capitalize() for part in parts[1:]),
            "upper": name.upper().replace("_", " "),
            "words": " ".join(parts),
        }[style]
    # Two keys of one record never share a spelling (`type`, `id`).
    return names if len(set(names.values())) == len(names) else {key: key for key in names}


def dump(record: object, rng: random.Random) -> str:
    """JSON: on one line, compact or indented."""
    form = rng.random()
    if form < 0.5:
        return json.dumps(record)
    if form < 0.9:
        return json.dumps(record, indent=rng.choice((2, 2, 4)))
    return json.dumps(record, separators=(",", ":"))


def as_json(thing: Entity, keys: Sequence[str], rng: random.Random, *, plain: bool = False) -> str:
    """The values of the keys as a JSON object; plain: with the keys as they are."""
    style = rng.choice(("snake", "snake", "snake", "snake", "camel", "title"))
    names = {key: key for key in keys} if plain else spelled(keys, rng, style)
    record: dict[str, Value] = {names[key]: thing.values[key] for key in keys}
    return dump(record, rng)


def as_lines(thing: Entity, keys: Sequence[str], rng: random.Random, *, plain: bool = False) -> str:
    """The values of the keys, one a line (or all on one), each behind its key."""
    style = rng.choice(("title", "title", "title", "words", "snake", "upper"))
    names = {key: key for key in keys} if plain else spelled(keys, rng, style)
    layout = rng.choice(("{0}: {1}",) * 6 + ("- {0}: {1}", "* {0}: {1}", "{0} = {1}", "{0} - {1}", "{0}={1}"))
    joint = rng.choice(("\n", "\n", "\n", "\n", "; ", " | ")) if layout[0] == "{" else "\n"
    return joint.join(layout.format(names[key], text(thing.values[key])) for key in keys)
