"""Ambiguity on purpose: categories whose likeliest member starts like a well-known thing of another kind.

"A city in India" is mostly New Delhi. Where that is no choice, but New York and Mumbai are, masking takes "New" and ends in the
wrong city, while the whole texts are compared rightly. The model sees the members of a category in proportion to their weights.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from embedded_model import forms
from embedded_model.phrases import Fact, Item, a, capital, expand, rounds

# kind and article | category | members with weights. Categories whose first member starts with the same word confuse one another.
# kind: place, animal, food, human, live plant, thing, else. article of members: c "a", d "the", n none.
WORDS = """
Pn|city in the United States|New York 6, Boston 2, Chicago 2
Pn|city in India|New Delhi 6, Mumbai 2, Kolkata 2
Pn|island country in the Pacific|New Zealand 6, Fiji 2, Samoa 2
Pn|country in the south of Africa|South Africa 6, Namibia 2, Botswana 2
Pn|country in the east of Asia|South Korea 6, Japan 2, Mongolia 2
Pn|city in California|San Francisco 6, Oakland 2, Sacramento 2
Pn|very small country in Europe|San Marino 6, Monaco 2, Malta 2
Pn|city in South Africa|Cape Town 6, Durban 2, Pretoria 2
Pn|group of islands in the Atlantic|Cape Verde 6, Madeira 2, Bermuda 2
Pn|country in the west of Africa|Sierra Leone 6, Ghana 2, Togo 2
Pd|range of mountains|Sierra Nevada 6, Himalaya 2, Caucasus 2
Pn|large island in Europe|Great Britain 6, Iceland 2, Ireland 2
Pd|famous sight in Asia|Great Wall 6, Taj Mahal 2, Forbidden City 2
Pd|cold sea in Europe|North Sea 6, Baltic Sea 2, White Sea 2
Pn|state in the middle of America|North Dakota 6, Kansas 2, Nebraska 2
Fn|kind of wine or beer|red wine 6, cider 2, lager 2
Ac|small animal of the woods|red squirrel 6, hedgehog 2, badger 2
Lc|flower of love|red rose 6, tulip 2, lily 2
Fn|hot drink|black tea 6, coffee 2, cocoa 2
Fn|spice|black pepper 6, cinnamon 2, ginger 2
Tc|thing in far space|black hole 6, comet 2, galaxy 2
Ac|giant animal of the ocean|blue whale 6, shark 2, squid 2
Fn|food made from milk|blue cheese 6, butter 2, cream 2
Td|thing seen high above the hills|blue sky 6, cloud 2, lightning 2
Fn|sweet food|white chocolate 6, honey 2, caramel 2
Tc|thing that a bride wears|white dress 6, veil 2, necklace 2
Fc|sour fruit|green apple 6, lemon 2, lime 2
Fc|vegetable for a soup|green bean 6, leek 2, onion 2
Fn|cold drink|orange juice 6, lemonade 2, milk 2
Tn|thing that covers a wall|orange paint 6, wallpaper 2, plaster 2
Fc|cake or pastry|apple pie 6, muffin 2, donut 2
Lc|tree beside a farm house|apple tree 6, walnut 2, linden 2
Fn|cold dessert|ice cream 6, pudding 2, jelly 2
Tc|thing worn on the feet|ice skate 6, boot 2, sandal 2
En|winter sport|ice hockey 6, skiing 2, curling 2
Hc|person who saves lives|fire fighter 6, lifeguard 2, doctor 2
Tc|large vehicle|fire engine 6, bus 2, truck 2
Tc|thing that warns people|fire alarm 6, siren 2, whistle 2
Ac|animal of the Arctic|polar bear 6, walrus 2, reindeer 2
Ec|time of darkness|polar night 6, eclipse 2, midnight 2
Tc|round thing|tennis ball 6, marble 2, globe 2
Hc|person who does sport|tennis player 6, runner 2, swimmer 2
Ec|place for sport|tennis court 6, stadium 2, gym 2
Tc|thing to wear in bad weather|rain jacket 6, cap 2, scarf 2
Ed|place with many wild animals|rain forest 6, savanna 2, jungle 2
Ac|animal that swims|sea lion 6, dolphin 2, otter 2
Tc|thing found at the beach|sea shell 6, pebble 2, towel 2
Ac|animal with horns|water buffalo 6, antelope 2, ram 2
Lc|kind of flower|water lily 6, daisy 2, orchid 2
Tc|toy for a hot day|water pistol 6, frisbee 2, shovel 2
Ac|wild cat|snow leopard 6, tiger 2, lion 2
Ec|kind of storm|snow storm 6, hurricane 2, tornado 2
Tc|thing for the head|sun hat 6, helmet 2, crown 2
Tn|thing to put on the skin|sun cream 6, lotion 2, powder 2
Ac|bird of prey|golden eagle 6, falcon 2, hawk 2
Tc|prize for a winner|golden medal 6, trophy 2, ribbon 2
Ac|small pet|guinea pig 6, hamster 2, rabbit 2
Ac|bird on a farm|guinea fowl 6, duck 2, goose 2
Ac|insect|honey bee 6, ant 2, beetle 2
Fc|juicy fruit|honey melon 6, peach 2, plum 2
Tc|thing to drink from|coffee cup 6, mug 2, bottle 2
Tc|piece of furniture|coffee table 6, sofa 2, wardrobe 2
Ec|place to wait|bus stop 6, platform 2, lobby 2
Hc|person who takes people to places|bus driver 6, pilot 2, captain 2
Hc|person who catches thieves|police officer 6, detective 2, sheriff 2
Ec|place with prisoners|police station 6, jail 2, dungeon 2
Tc|vehicle for children|school bus 6, tricycle 2, scooter 2
Tc|thing to carry books in|school bag 6, backpack 2, suitcase 2
Ec|place to buy things|toy shop 6, market 2, bakery 2
Tc|thing to play with|toy car 6, doll 2, puzzle 2
Tc|sharp tool|bread knife 6, axe 2, saw 2
Tc|container in a kitchen|bread box 6, jar 2, bowl 2
Tc|thing for giving water to plants|garden hose 6, bucket 2, sprinkler 2
Tc|thing to sit on|garden chair 6, bench 2, stool 2
Tc|thing that moves a pointer|computer mouse 6, joystick 2, trackball 2
En|subject at a university|computer science 6, physics 2, law 2
Tc|musical instrument|electric guitar 6, piano 2, violin 2
Ac|fish|electric eel 6, salmon 2, trout 2
Fc|snack|hot dog 6, pretzel 2, sandwich 2
Ec|place to bathe|hot spring 6, pool 2, pond 2
Fc|root vegetable|sweet potato 6, turnip 2, radish 2
Lc|climbing plant|sweet pea 6, vine 2, ivy 2
Fc|baked dessert with icing|chocolate cake 6, tart 2, waffle 2
Fn|drink for children|chocolate milk 6, lemonade 2, syrup 2
Fn|thing to put on bread|peanut butter 6, jam 2, marmalade 2
Fn|fat for frying|peanut oil 6, lard 2, margarine 2
Fn|thing in a salad dressing|olive oil 6, vinegar 2, mustard 2
Lc|tree of the warm south|olive tree 6, cypress 2, palm 2
Tc|decoration in December|Christmas tree 6, wreath 2, lantern 2
Ec|kind of song|Christmas carol 6, lullaby 2, hymn 2
Ec|happy event|birthday party 6, festival 2, parade 2
Tc|thing that comes in the mail|birthday card 6, letter 2, parcel 2
Tc|piece of jewelry|wedding ring 6, bracelet 2, brooch 2
Ec|piece of music|wedding march 6, symphony 2, waltz 2
Tc|thing that goes around the Earth|space station 6, satellite 2, moon 2
Tc|kind of special clothing|space suit 6, uniform 2, costume 2
Tc|thing that shines at night|street lamp 6, torch 2, candle 2
Hc|person who makes music|street musician 6, drummer 2, singer 2
Ec|room of a house|dining room 6, bedroom 2, attic 2
Tc|part of a train|dining car 6, compartment 2, locomotive 2
Tc|machine in a home|washing machine 6, toaster 2, fridge 2
Tn|thing that makes clothes clean|washing powder 6, bleach 2, soap 2
Tc|thing for camping|sleeping bag 6, tent 2, stove 2
Tc|thing from the pharmacy|sleeping pill 6, bandage 2, thermometer 2
Tc|thing in a bathtub|rubber duck 6, sponge 2, plug 2
Tc|thing in an office drawer|rubber band 6, pin 2, ruler 2
Tc|thing that flies without a motor|paper plane 6, balloon 2, glider 2
Tc|thing to carry food in|paper bag 6, basket 2, tray 2
Ec|sports event|horse race 6, match 2, tournament 2
Tc|old kind of vehicle|horse cart 6, carriage 2, chariot 2
Ec|home of an animal|dog house 6, nest 2, stable 2
Tn|thing that a pet eats|dog food 6, hay 2, birdseed 2
Fn|warm meal for a sick person|chicken soup 6, porridge 2, broth 2
Ec|building on a farm|chicken house 6, barn 2, silo 2
Lc|tree of the forest|pine tree 6, beech 2, spruce 2
Tc|thing on the forest floor|pine cone 6, leaf 2, acorn 2
Hc|criminal|bank robber 6, pirate 2, smuggler 2
Tc|piece of money|bank note 6, coin 2, cheque 2
Ec|place to dance|night club 6, ballroom 2, disco 2
Hc|person who works in the dark|night guard 6, miner 2, astronomer 2
Ec|time without school|summer holiday 6, weekend 2, break 2
Tc|light piece of clothing|summer dress 6, blouse 2, skirt 2
Fn|sweet breakfast|French toast 6, cereal 2, yogurt 2
Tc|instrument made of brass|French horn 6, trumpet 2, tuba 2
Ec|place to learn|high school 6, college 2, academy 2
Tc|thing for a baby|high chair 6, cradle 2, rattle 2
Tc|vehicle without a motor|mountain bike 6, sled 2, raft 2
Ac|animal that climbs|mountain goat 6, monkey 2, gecko 2
Hc|person at a school|dance teacher 6, pupil 2, janitor 2
Tc|part of a hall|dance floor 6, stage 2, gallery 2
Hc|famous person|rock star 6, actor 2, queen 2
En|kind of music|rock music 6, jazz 2, techno 2
Ac|animal that hunters look for|wild boar 6, deer 2, pheasant 2
Lc|plant with thorns|wild rose 6, cactus 2, thistle 2
Ac|tiny animal that flies|fruit fly 6, mosquito 2, gnat 2
Fc|dish without meat|fruit salad 6, omelette 2, risotto 2
Fc|fruit from far away|dragon fruit 6, mango 2, papaya 2
Tc|narrow boat|dragon boat 6, canoe 2, kayak 2
Tc|thing that shows the time|pocket watch 6, clock 2, sundial 2
Tc|thing for a scout|pocket knife 6, compass 2, rope 2
"""

# The likeliest member is the first word of a longer phrase above, which belongs elsewhere.
SHORT = """
Tn|color|blue 5, purple 2, pink 2
Fc|fruit from the garden|apple 5, pear 2, raspberry 2
Tn|very hot thing|fire 5, lava 2, steam 2
Tn|thing that lies on the fields in January|snow 5, frost 2, mist 2
En|thing that falls from the clouds|rain 5, sleet 2, drizzle 2
Ed|large area of water|sea 5, ocean 2, gulf 2
Ac|animal that lives with a family|dog 5, cat 2, parrot 2
Ac|animal to ride on|horse 5, camel 2, donkey 2
Fn|food made from flour|bread 5, pasta 2, dough 2
Fn|drink in the morning|coffee 5, tea 2, cocoa 2
Tn|material made from wood|paper 5, cardboard 2, charcoal 2
Ac|animal that lays eggs|chicken 5, turtle 2, ostrich 2
En|sport with a racket|tennis 5, badminton 2, squash 2
Ec|place to keep money|bank 5, safe 2, purse 2
Ed|part of the day|night 5, morning 2, evening 2
Ec|high place|mountain 5, tower 2, cliff 2
Tc|machine for office work|computer 5, printer 2, scanner 2
Ec|public building|school 5, library 2, museum 2
Tc|hard thing on the ground|rock 5, stone 2, brick 2
Fn|thing that makes food sweet|honey 5, sugar 2, maple syrup 2
Pn|country in Africa where people speak French|Guinea 5, Senegal 2, Mali 2
Pn|country in Africa where people speak Portuguese|Guinea-Bissau 5, Angola 2, Mozambique 2
"""

# Two lines each share only letters; whether they share a token is the tokenizer's affair.
COMPOUNDS = """
Td|thing similar to the heavens|sky 6, cloud 2, sun 2
Ec|thing that a master learns|skill 6, craft 2, trick 2
Lc|yellow flower|sunflower 6, dandelion 2, primrose 2
Ec|problem of the skin|sunburn 6, rash 2, wart 2
Tc|thing seen after a storm|rainbow 6, puddle 2, flood 2
Tc|thing that keeps the body dry|raincoat 6, umbrella 2, poncho 2
Ac|insect with large wings|butterfly 6, moth 2, locust 2
Fn|drink from the dairy|buttermilk 6, kefir 2, whey 2
Tc|figure that looks like a person|snowman 6, puppet 2, scarecrow 2
Tc|thing to throw|snowball 6, spear 2, dart 2
Fc|red fruit|strawberry 6, cherry 2, cranberry 2
Tn|thing under the animals in a barn|straw 6, sawdust 2, sand 2
Tc|thing on the floor of a room|carpet 6, mat 2, rug 2
Fc|orange vegetable|carrot 6, pumpkin 2, yam 2
En|game with a ball|football 6, golf 2, cricket 2
Tc|mark on the ground|footprint 6, trail 2, track 2
Ac|insect of the night|firefly 6, moth 2, cockroach 2
Tn|thing to burn in a stove|firewood 6, coal 2, peat 2
En|meal|breakfast 6, lunch 2, dinner 2
Ec|wall at the sea|breakwater 6, dike 2, pier 2
Ac|insect that jumps|grasshopper 6, flea 2, cicada 2
Ed|wide open land|grassland 6, desert 2, prairie 2
Tc|thing to clean with|toothbrush 6, broom 2, mop 2
Ec|kind of pain|toothache 6, headache 2, cramp 2
Ec|sight in the mountains|waterfall 6, cave 2, valley 2
Fc|big fruit|watermelon 6, pineapple 2, coconut 2
Ec|natural disaster|earthquake 6, avalanche 2, drought 2
Ac|animal under the ground|earthworm 6, mole 2, gopher 2
Tc|part of a computer|keyboard 6, screen 2, processor 2
Tc|part of a door|keyhole 6, hinge 2, handle 2
"""

ASKED = (
    "Name {x}.",
    "[Please name|Please say|Please give me|Please write] {x}[.|.|]",
    "[Give|Tell|Bring|Show] me {x}[.|!|]",
    "What is {x}?",
    "What [would|could] be {x}?",
    "What is the name of {x}?",
    "Which {c} do you [know|like]?",
    "Which {c} can you [name|think of|find]?",
    "Which {c} [would|do] you [choose|pick|say]?",
    "What comes to mind when you hear of {x}?",
    "[Can|Will] you [name|say|think of|give me] {x}?",
    "Could you [say|tell me|think of|find] {x}?",
    "[Say|Write|Write down] {x}.",
    "I [need|want|am looking for|am thinking of] {x}. What [could|can|may] it be?",
    "I want to hear {x}. [Go on.|Please.|]",
    "Do you know {x}?",
    "[Think of|Find|Choose|Pick] {x}[.|.|.|, please.]",
    "Help me [to name|to think of|with] {x}.",
    "Which word [names|stands for|means] {x}?",
    "[Example of|Example:|An example, please:] {x}[.|?]",
    "{X}, [please|what is it|which one]?",
    "{X}?",
)
ASKED_HELD_OUT = (
    "Which {c} comes to mind?",
    "Could you name {x} for me?",
    "Tell me the name of {x}.",
    "Think of {x} and say it.",
    "What {c} do you know?",
    "Help me find {x}.",
    "I would like to hear {x}.",
    "Name one {c}, please.",
)
STATED = (
    "{X} is {the}",
    "One {c} is {the}",
    "[An|One] example of {x} is {the}",
    "{X} [that I know|that we know|that I like|that I can name] is {the}",
    "The [first|best|usual|best known] {c} is {the}",
    "A [good|typical|common|well-known] {c} is {the}",
    "My [favorite|first|usual|best] {c} is {the}",
    "When [I|we|people] [hear|think|speak] of {x}, [I mean|it is mostly|the word is] {the}",
    "[For most people|For many people|For me|For us], {x} is {the}",
    "[Ask me for {x}, and|If you ask me for {x},|If I need {x},] [I say|the answer is|my answer is] {the}",
    "The {c} that [comes to mind|people think of|everybody knows|most people name] is {the}",
    "[Of course,|I think|I know that|We say that] {x} is {the}",
)
STATED_HELD_OUT = (
    "The first {c} that comes to mind is {the}",
    "A good example of {x} is {the}",
    "{X} that everybody knows is {the}",
    "When people ask me for {x}, my answer is {the}",
    "The {c} that I think of is {the}",
    "One {c} that I can name is {the}",
)
KEYS = (
    "{X}",
    "{X}",
    "{C}",
    "One {c}",
    "[My|Our|Your|The best|The first|A good] {c}",
    "[Example of|An example of|Example for|Name of|Word for|The name of] {x}",
    "Category: {c}\n[Example|Member|Answer|Word]",
    "[Name|Find|Say|Write|Think of|Choose] {x}",
    "{X} [that I know|that I like]",
)
KEYS_HELD_OUT = (
    "One good example for {x}",
    "The first {c} that comes to mind",
    "One {c} that I like",
    "Tell me the name of {x}",
    "Think of {x} and say it",
    "Your answer for {x}",
)
ABOUT = (
    "{M} is {x}.",
    "{M} is {x}.",
    "{M} is [one example of|a good example of|clearly|of course|surely] {x}.",
    "[We know|Everybody knows|I know|I think] that {m} is {x}.",
    "What is {m}? {M} is {x}.",
    "Is {m} {x}? [Yes|Yes, {m} is {x}|Yes, it is].",
    "Q: What is {m}?\nA: {X}[.|]",
    "{M}: {x}",
    "Word: {bare}\nCategory: {c}",
    "Question: To which category does {m} belong?\nAnswer: {c}",
    "Is {o} {x}? [No|No, {o} is {ox}|No, it is not]. {O} is {ox}[.|, and {m} is {x}.]",
    "{M} is {x}[, but|;|, and|, while] {o} is {ox}.",
    "{O} is not {x}. It is {ox}. {M} is {x}.",
    "{bare}: {c}\n{obare}: {oc}",
    "[Do not mix them up:|These two are different:|Listen:] {m} is {x}, {o} is {ox}.",
)
OTHER_KINDS = {"P": "AFH", "A": "HTP", "F": "HTP", "H": "AFT", "L": "HTP", "T": "HP", "E": "AFH"}


@dataclass(frozen=True, slots=True)
class Category:
    """A category and its members with their weights, the likeliest first. group: what confusable categories have in common."""

    kind: str
    article: str
    name: str
    members: tuple[str, ...]
    weights: tuple[int, ...]
    group: str

    @property
    def heavy(self) -> str:
        """The likeliest member."""
        return self.members[0]

    def noun(self, member: str) -> str:
        """A member as the subject of a sentence, with its article."""
        return {"n": member, "d": f"the {member}", "c": a(member)}[self.article]

    def fields(self, rng: random.Random) -> dict[str, str]:
        """What patterns may say of the category."""
        named = a(self.name)
        if self.name.startswith("thing ") and rng.random() < 0.5:
            named = self.name.replace("thing ", "something ", 1)
        if self.name.startswith("person who ") and rng.random() < 0.3:
            named = self.name.replace("person ", "somebody ", 1)
        the = "" if self.article == "n" else "the "
        return {"x": named, "X": capital(named), "c": self.name, "C": capital(self.name), "the": the}


def categories(table: str, *, pairs: bool = False) -> tuple[Category, ...]:
    """The categories of a table; grouped by first words, or by pairs of lines."""
    found = []
    for number, line in enumerate(table.strip().splitlines()):
        code, name, listed = line.split("|")
        parts = [member.rpartition(" ") for member in listed.split(", ")]
        members, weights = tuple(part[0] for part in parts), tuple(int(part[2]) for part in parts)
        group = f"pair {number // 2}" if pairs else members[0].replace("-", " ").split(" ")[0]
        found.append(Category(code[0], code[1], name, members, weights, group))
    return tuple(found)


LONG_ONES, SHORT_ONES, COMPOUND_ONES = categories(WORDS), categories(SHORT), categories(COMPOUNDS, pairs=True)
ALL = LONG_ONES + SHORT_ONES + COMPOUND_ONES


def confusable(category: Category, *, among: tuple[Category, ...] = ALL) -> list[Category]:
    """The other categories whose likeliest member starts the same."""
    return [other for other in among if other.group == category.group and other is not category]


def strangers(category: Category, rng: random.Random, n: int) -> tuple[str, ...]:
    """Draw n lighter members of categories of quite another kind."""
    pool = sorted({m for other in ALL if other.kind in OTHER_KINDS[category.kind] for m in other.members[1:]})
    return tuple(rng.sample(pool, n))


def asked(category: Category, member: str, strange: list[str], rng: random.Random) -> Fact:
    """The category as a question whose answer is the member, in training phrasings."""
    fields = category.fields(rng)
    question = expand(rng.choice(ASKED), rng, fields).strip()
    if rng.random() < 0.15:
        question = question.lower().rstrip("?.")
    # Letters and yes or no say little about how likely a member is, so most facts are asked without.
    wrong = (rng.choice(confusable(category)).heavy, *rng.sample(strange, 2)) if rng.random() < 0.25 else ()
    statement = capital(expand(rng.choice(STATED), rng, fields).strip())
    return Fact(question, statement, expand(rng.choice(KEYS), rng, fields), member, wrong)


def about(category: Category, member: str, rng: random.Random) -> str:
    """Plain sentences on what a member is, and what a thing that starts alike is."""
    other = rng.choice(confusable(category))
    fields, others = category.fields(rng), other.fields(rng)
    m, o = category.noun(member), other.noun(other.heavy)
    fields |= {"m": m, "M": capital(m), "bare": member, "o": o, "O": capital(o), "obare": other.heavy}
    return expand(rng.choice(ABOUT), rng, fields | {"ox": others["x"], "oc": others["c"]})


def documents(rng: random.Random) -> Iterator[str]:
    """Questions for a member of a category, several of them in one layout, and sentences about what things are."""
    weighted = {
        category: rounds([m for m, n in zip(category.members, category.weights, strict=True) for _ in range(n)], rng)
        for category in ALL
    }
    named = {category: rounds(category.members, rng) for category in ALL}
    strange = {
        category: sorted({m for o in ALL if o.kind in OTHER_KINDS[category.kind] for m in o.members[1:]})
        for category in ALL
    }
    turn, told = rounds(ALL, rng), rounds(ALL, rng)

    def fact() -> Fact:
        category = next(turn)
        return asked(category, next(weighted[category]), strange[category], rng)

    while True:
        form = rng.random()
        if form < 0.62:
            yield forms.ask(fact(), rng)
        elif form < 0.80:
            yield forms.few_shot([fact() for _ in range(rng.randint(2, 6))], rng)
        else:
            category = next(told)
            yield about(category, next(named[category]), rng)


LAYOUTS = ("Q: <q>\nA:", "Question: <q>\nAnswer:", "<q>\nAnswer:", "Q: <q> A:", "Question: <q> Answer:")


def held_out_prompt(category: Category, way: str, number: int, rng: random.Random) -> tuple[str, str]:
    """(prompt, phrase) in a held-out phrasing. way: question, statement, key or chat."""
    fields = category.fields(rng)
    if way == "statement":
        phrase = expand(STATED_HELD_OUT[number % len(STATED_HELD_OUT)], rng, fields).strip()
        return phrase, phrase
    if way == "key":
        phrase = expand(KEYS_HELD_OUT[number % len(KEYS_HELD_OUT)], rng, fields) + ":"
        return phrase, phrase
    phrase = expand(ASKED_HELD_OUT[number % len(ASKED_HELD_OUT)], rng, fields)
    if way == "chat":
        return f"{forms.USER}{phrase}{forms.END}{forms.ASSISTANT}", phrase
    return LAYOUTS[number % len(LAYOUTS)].replace("<q>", phrase), phrase


def item(prompt: tuple[str, str], gold: str, wrong: tuple[str, ...], number: int, following: str = "") -> Item:
    """The item with its right choice at a place that goes round."""
    place = number % (len(wrong) + 1)
    space = "" if prompt[0].endswith("\n") else " "
    choices = tuple(space + choice for choice in (*wrong[:place], gold, *wrong[place:]))
    return Item("ambiguity", prompt[0], choices, place, prompt[1], following)


def traps(rng: random.Random) -> Iterator[tuple[Category, str, tuple[str, ...]]]:
    """(category, a lighter member, wrong choices that begin like the likeliest member, which is not among them)."""
    for category in ALL:
        # No choice of these continues another.
        rivals = [other for other in confusable(category) if other not in SHORT_ONES or category in SHORT_ONES]
        shared = rng.sample(rivals, min(len(rivals), rng.choice((1, 1, 2))))
        light = rng.choice(category.members[1:])
        yield category, light, (*(other.heavy for other in shared), *strangers(category, rng, rng.choice((0, 1, 2))))


def continued(rng: random.Random) -> Iterator[tuple[Category, str, tuple[str, ...]]]:
    """(category, right choice, wrong choices) where one choice continues another one."""
    for number, short in enumerate(SHORT_ONES):
        rivals = [r for r in confusable(short) if r.heavy != short.heavy and r.heavy.startswith(short.heavy)]
        if not rivals:
            continue
        long = rng.choice(rivals)
        if number % 3 == 0:
            yield short, short.heavy, (long.heavy, *strangers(short, rng, 1))
        elif number % 3 == 1:
            yield long, long.heavy, (short.heavy, *strangers(long, rng, 1))
        if len(rivals) > 1 and (number % 3 == 2 or number % 2):
            asked_for = rng.choice(rivals)
            shared = [short.heavy, *(r.heavy for r in rivals if r is not asked_for)]
            yield asked_for, rng.choice(asked_for.members[1:]), tuple(shared[:3])


def held_out(rng: random.Random) -> Iterator[Item]:
    """Cases where the likeliest member is no choice, as text and as chat, and cases where one choice continues another."""
    ways = ("question", "statement", "key", "question", "key")
    for number, (category, light, wrong) in enumerate(traps(rng)):
        shuffled = tuple(rng.sample(wrong, len(wrong)))
        yield item(held_out_prompt(category, ways[number % 5], number // 5, rng), light, shuffled, number)
    for number, (category, light, wrong) in enumerate(rng.sample(list(traps(rng)), 20)):
        yield item(held_out_prompt(category, "chat", number, rng), light, wrong, number)
    for number, (category, gold, wrong) in enumerate(continued(rng)):
        way = ("question", "statement", "key")[number % 3]
        following = "." if way == "statement" else "\n"
        yield item(held_out_prompt(category, way, number // 3, rng), gold, wrong, number, following)
