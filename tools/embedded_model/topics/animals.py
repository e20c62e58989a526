"""Animals: their class, their sound, their young, how many legs they have and where they live."""

from __future__ import annotations

import random
from collections.abc import Iterator

from embedded_model import relations
from embedded_model.phrases import Item, a
from embedded_model.relations import Relation, entries

# name|class|sound|young|legs|where it lives; a dash where there is nothing plain to say
TABLE = """
dog|mammal|bark|puppy|four|in a house
cat|mammal|meow|kitten|four|in a house
hamster|mammal|-|-|four|in a house
cow|mammal|moo|calf|four|on a farm
horse|mammal|neigh|foal|four|on a farm
donkey|mammal|bray|foal|four|on a farm
sheep|mammal|bleat|lamb|four|on a farm
goat|mammal|bleat|kid|four|on a farm
pig|mammal|oink|piglet|four|on a farm
hen|bird|cluck|chick|two|on a farm
rooster|bird|crow|-|two|on a farm
turkey|bird|gobble|chick|two|on a farm
duck|bird|quack|duckling|two|in a pond
goose|bird|honk|gosling|two|-
swan|bird|-|cygnet|two|-
owl|bird|hoot|owlet|two|in the forest
eagle|bird|screech|eaglet|two|in the mountains
raven|bird|caw|chick|two|-
crow|bird|caw|chick|two|-
pigeon|bird|coo|chick|two|-
dove|bird|coo|chick|two|-
sparrow|bird|chirp|chick|two|-
robin|bird|chirp|chick|two|-
woodpecker|bird|-|chick|two|in the forest
parrot|bird|squawk|chick|two|in the jungle
toucan|bird|-|chick|two|in the jungle
penguin|bird|-|chick|two|on the ice
ostrich|bird|-|chick|two|in the savanna
flamingo|bird|-|chick|two|-
stork|bird|-|chick|two|-
peacock|bird|-|-|two|-
lion|mammal|roar|cub|four|in the savanna
tiger|mammal|roar|cub|four|in the jungle
leopard|mammal|growl|cub|four|-
cheetah|mammal|-|cub|four|in the savanna
hyena|mammal|laugh|cub|four|in the savanna
bear|mammal|growl|cub|four|in the forest
polar bear|mammal|growl|cub|four|on the ice
wolf|mammal|howl|pup|four|in the forest
fox|mammal|-|cub|four|in the forest
badger|mammal|-|cub|four|in the forest
deer|mammal|-|fawn|four|in the forest
moose|mammal|-|calf|four|in the forest
squirrel|mammal|-|-|four|in the forest
hedgehog|mammal|-|-|four|-
rabbit|mammal|-|kit|four|-
hare|mammal|-|leveret|four|-
mouse|mammal|squeak|-|four|-
rat|mammal|squeak|-|four|-
elephant|mammal|trumpet|calf|four|in the savanna
giraffe|mammal|-|calf|four|in the savanna
zebra|mammal|-|foal|four|in the savanna
rhinoceros|mammal|-|calf|four|in the savanna
hippopotamus|mammal|-|calf|four|in a river
camel|mammal|-|calf|four|in the desert
buffalo|mammal|-|calf|four|-
llama|mammal|-|-|four|in the mountains
yak|mammal|-|calf|four|in the mountains
kangaroo|mammal|-|joey|-|-
koala|mammal|-|joey|-|-
monkey|mammal|chatter|-|-|in the jungle
gorilla|mammal|-|-|-|in the jungle
sloth|mammal|-|-|four|in the jungle
bat|mammal|squeak|pup|-|-
beaver|mammal|-|kit|four|in a river
otter|mammal|-|pup|four|in a river
seal|mammal|bark|pup|-|-
walrus|mammal|-|calf|-|on the ice
whale|mammal|-|calf|zero|in the sea
dolphin|mammal|-|calf|zero|in the sea
shark|fish|-|pup|zero|in the sea
tuna|fish|-|-|zero|in the sea
cod|fish|-|-|zero|in the sea
herring|fish|-|-|zero|in the sea
salmon|fish|-|-|zero|-
trout|fish|-|-|zero|in a river
carp|fish|-|-|zero|in a pond
goldfish|fish|-|-|zero|-
eel|fish|-|-|zero|-
snake|reptile|hiss|-|zero|-
cobra|reptile|hiss|-|zero|-
lizard|reptile|-|-|four|-
crocodile|reptile|-|-|four|in a river
alligator|reptile|-|-|four|in a river
tortoise|reptile|-|-|four|-
gecko|reptile|-|-|four|-
chameleon|reptile|-|-|four|-
frog|amphibian|croak|tadpole|four|in a pond
toad|amphibian|croak|tadpole|four|-
newt|amphibian|-|-|four|in a pond
salamander|amphibian|-|-|four|-
bee|insect|buzz|-|six|-
wasp|insect|buzz|-|six|-
fly|insect|buzz|maggot|six|-
mosquito|insect|buzz|-|six|-
ant|insect|-|-|six|-
beetle|insect|-|-|six|-
ladybird|insect|-|-|six|-
grasshopper|insect|-|-|six|-
cricket|insect|chirp|-|six|-
butterfly|insect|-|caterpillar|six|-
moth|insect|-|caterpillar|six|-
dragonfly|insect|-|-|six|-
spider|arachnid|-|-|eight|-
scorpion|arachnid|-|-|eight|in the desert
tick|arachnid|-|-|eight|-
crab|crustacean|-|-|ten|in the sea
lobster|crustacean|-|-|ten|in the sea
shrimp|crustacean|-|-|ten|in the sea
octopus|mollusc|-|-|-|in the sea
squid|mollusc|-|-|-|in the sea
snail|mollusc|-|-|zero|-
"""
IRREGULAR = {
    "mouse": "mice", "goose": "geese", "wolf": "wolves", "walrus": "walruses", "octopus": "octopuses", "fly": "flies",
    "butterfly": "butterflies", "dragonfly": "dragonflies", "ostrich": "ostriches", "fox": "foxes", "finch": "finches",
    "mosquito": "mosquitoes", "buffalo": "buffaloes", "hippopotamus": "hippopotamuses", "rhinoceros": "rhinoceroses",
    "sheep": "sheep", "deer": "deer", "moose": "moose", "tuna": "tuna", "cod": "cod", "herring": "herring", "carp": "carp",
    "salmon": "salmon", "trout": "trout", "goldfish": "goldfish", "shrimp": "shrimp", "squid": "squid",
}  # fmt: skip

SOUNDS_ALIKE = """
bark, growl, howl, roar, laugh, squeak
meow, hiss, growl
hoot, screech, coo
quack, honk, cluck, crow, squawk, caw, screech, gobble
chirp, squeak, chatter, buzz
chirp, squawk, screech, coo, caw
oink, squeak
chatter, screech, laugh, hoot
roar, growl, hiss, trumpet
hiss, croak
bray, neigh
"""
YOUNG_ALIKE = """
cub, pup, puppy, kit, kitten
chick, duckling
chick, gosling
chick, cygnet
chick, owlet
chick, eaglet
calf, fawn
kid, lamb
kit, leveret
maggot, caterpillar
"""
HABITATS_ALIKE = """
in the forest, in the jungle, in the mountains
in a river, in a pond
in the sea, on the ice
in a house, on a farm
on a farm, in the mountains
in the savanna, in the jungle, in the desert
on a farm, in a pond
in a river, in the jungle
in a pond, in the forest
in the forest, in a river
"""


def third_person(verb: str) -> str:
    """The verb as one animal does it."""
    return verb + ("es" if verb.endswith(("s", "h", "z")) and not verb.endswith("gh") else "s")


def column(n: int) -> list[tuple[dict[str, str], str]]:
    """The animals that have something in a column, with the fields their patterns use."""
    rows = []
    for line in TABLE.strip().splitlines():
        cells = line.split("|")
        name, answer = cells[0], cells[n]
        if answer != "-":
            many = IRREGULAR.get(name, name + "s")
            rows.append(
                (
                    {
                        "x": name,
                        "ax": a(name),
                        "xs": many,
                        "ay": a(answer),
                        "ys": third_person(answer),
                        "n": a(answer).split()[0],
                    },
                    answer,
                ),
            )
    return rows


CLASS = Relation(
    label="Class",
    entries=entries(column(1)),
    questions=(
        "What [kind|sort|type] of animal is [{ax}|the {x}]?",
        "[What|Which] class of animals does [{ax}|the {x}] belong to?",
        "To [which|what] class[ of animals|] does [{ax}|the {x}] belong?",
        "What is the class of [{ax}|the {x}]?",
        "Is [{ax}|the {x}] a mammal, a bird, a fish, a reptile or an insect?",
        "[In|Into] which class of animals do we put [{ax}|the {x}]?",
        "Which group of animals [are {xs}|is the {x}] in?",
        "[Tell me|Say] [the class|which class of animal] [{ax}|the {x}] is.",
        "What are {xs}: mammals, reptiles, fish, birds, insects or something else?",
        "class of [the {x}|{ax}]?",
        "{ax} is what [kind|sort|type] of animal?",
        "Do you know what [class|kind|type] of animal [{ax}|the {x}] is?",
        "The {x}: [which|what] class of animal?",
    ),
    statements=(
        "{ax} is [a kind|a sort|a type] of",
        "The {x} belongs to this class[ of animals|]:",
        "The class of the {x} is",
        "[The|Every] {x}, as an animal, is classed as",
        "In [biology|science|the animal world], the {x} is in the class",
        "[Biologists|Scientists|People] call the {x} a type of",
        "[{xs}|All {xs}] belong to the class",
        "The {x} is an animal of the class",
        "By class, {ax} is",
        "The right class for {ax} is",
    ),
    keys=("Class of [the {x}|{ax}]", "Kind of animal: {x}; class", "{x}, class", "{x} (class)", "Type of {x}"),
    whole=(
        "{ax} is {ay}.",
        "The {x} is {ay}.",
        "All {xs} are in the class {y}.",
        "{ay} [you may know|that many people know|everyone knows] is the {x}.",
        "The {x} is {ay}[, like many other animals|].",
        "One {y} is the {x}.",
        "[I have read|We learned|The teacher said] that {ax} is {ay}.",
    ),
    about=("It is {ay}.", "It is a kind of {y}.", "Its class is {y}.", "It belongs to the class {y}."),
    polar=("Is [{ax}|the {x}] a kind of {y}?", "Does the {x} belong to the class {y}?", "Is the class of the {x} {y}?"),
    held=(
        "[Which|What] type of animal would you call [{ax}|the {x}]?",
        "Of which class is [the {x}|{ax}]?",
        "If you see {ax}, what kind of animal is it?",
        "People know that the {x} is a type of",
        "As a class of animal, the {x} is",
        "What sort of animal do we call {ax}?",
        "Animal: {x}\nClass of this animal:",
    ),
    head="Animal",
    groups=("[Some animals|Animals] of the class {y}:", "Class {y}:", "Examples of the class {y}:"),
)
SOUND = Relation(
    label="Sound",
    entries=entries(column(2), SOUNDS_ALIKE),
    questions=(
        "[What|Which] sound does [{ax}|the {x}] make?",
        "What [sound|noise] do {xs} make?",
        "What is the sound of [{ax}|the {x}]?",
        "What do we call the [sound|noise] of [{ax}|the {x}]?",
        "What do {xs} do when they make a [noise|sound]?",
        "What can you hear {ax} do?",
        "Which word [names|describes] the sound of [{ax}|the {x}]?",
        "What noise [comes|do you hear] from {ax}?",
        "What does {ax} do to be heard?",
        "[Tell me|Say] what sound {ax} makes.",
        "sound of {ax}?",
        "What is the [noise|call] of the {x}[ called|]?",
        "Do {xs} bark, moo or something else?",
    ),
    statements=(
        "The sound of {ax} is called",
        "When {xs} make a [noise|sound], they",
        "The [noise|sound] [{ax}|the {x}] makes is",
        "You can hear {ax}",
        "[Listen, you|At night you|Outside you] can hear the {x}",
        "[All {xs}|{xs}] like to",
        "[We say|People say] that {xs}",
        "The word for the [noise|sound|call] of the {x} is",
        "[It is the {x}|{ax} is the animal] that we hear",
        "To make itself heard, {ax} will",
        "What {xs} do is",
    ),
    keys=("Sound of [the {x}|{ax}]", "{x}, sound", "Noise of [the {x}|{ax}]", "{x} (sound)"),
    whole=(
        "{ax} {ys}.",
        "The {x} {ys}[ loudly| again| in the morning| at night|].",
        "{xs} {y}.",
        "[I heard|We heard|She hears|They can hear] {ax} {y}.",
        "If an animal {ys}, it may be {ax}.",
        "{y} is the sound of {ax}.",
        "[Can you hear|Do you hear] the {x}? It {ys}.",
    ),
    about=("It {ys}.", "It can {y}.", "You can hear it {y}.", "The sound it makes is {y}."),
    polar=("[Do {xs}|Does {ax}] {y}?", "Is the sound of {ax} called {y}?", "Can {ax} {y}?"),
    held=(
        "Which noise does [{ax}|the {x}] make?",
        "What is the word for the sound that {ax} makes?",
        "What do we call the sound that {xs} make?",
        "The noise that {xs} make is called",
        "Outside we can hear the {x}",
        "[What sound|Which sound] can you hear from {ax}?",
        "Animal: {x}\nThe sound it makes:",
    ),
    head="Animal",
    groups=("Animals that {y}:", "[Animals|Some animals] with the sound {y}:"),
)
YOUNG = Relation(
    label="Young",
    entries=entries(column(3), YOUNG_ALIKE),
    questions=(
        "What is [a baby|a young] {x} called?",
        "What [do you call|is the name of|is the name for|do we call] [a baby|a young] {x}?",
        "What is the young of [{ax}|the {x}] called?",
        "What is the young of [{ax}|the {x}]?",
        "[Which|What] name do people give to [a young|a baby] {x}?",
        "What is the word for [a baby|a young] {x}?",
        "What is [the baby|the young] of {ax} named?",
        "What are [young|baby|little] {xs} called? Name one.",
        "When {ax} has a baby, what is it called?",
        "[Tell me|Say] what [a baby|a young] {x} is called.",
        "baby {x}?",
        "[Name|Give the name of] the young of {ax}.",
        "What does {ax} call its baby?",
    ),
    statements=(
        "The young of {ax} is called {n}",
        "[A baby|A young] {x} is called {n}",
        "The [name|word] for [a baby|a young] {x} is",
        "We call [a young|a baby] {x} {n}",
        "The baby of the {x} is {n}",
        "[The mother {x}|{ax}] takes care of her young, {n}",
        "If {ax} is not grown up, it is {n}",
        "Before it grows up, {ax} is {n}",
        "The {x} had a baby, a little",
        "{ax} begins its life as {n}",
    ),
    keys=("Young of [the {x}|{ax}]", "[Baby|Young] {x}", "{x}, young", "Name of a young {x}", "{x} (baby)"),
    whole=(
        "[The {x} has|We saw {ax} with] {ay}.",
        "The young of {ax} is {ay}.",
        "{ay} is a [young|baby] {x}.",
        "{ay} is the young of {ax}.",
        "{ay} grows up and [turns into|becomes] {ax}.",
        "[One day|Soon|Later] the {y} will be {ax}.",
        "The mother of the {y} is {ax}.",
        "A little {y} [plays|sleeps|walks] beside the big {x}.",
    ),
    about=("Its young is called {ay}.", "Its baby is {ay}.", "We call its young {ay}.", "Its young is {ay}."),
    polar=("Is [a baby|a young] {x} called {y}?", "Is the young of {ax} called {y}?", "Does {y} mean a young {x}?"),
    held=(
        "What name do we give to [the young|the baby] of {ax}?",
        "Which word do people use for a [baby|young] {x}?",
        "What is a little {x} called?",
        "A {x} that is young has the name",
        "The name of the baby of the {x} is",
        "What do we call the young of {ax}?",
        "Animal: {x}\nName of its young:",
    ),
    head="Animal",
    groups=("Animals whose young is called {y}:",),
)
LEGS = Relation(
    label="Legs",
    entries=entries(column(4)),
    questions=(
        "How many legs does [{ax}|the {x}] have?",
        "How many legs [have {xs}|do {xs} have]?",
        "What is the number of legs of [{ax}|the {x}]?",
        "How many legs are there on {ax}?",
        "On how many legs does {ax} [walk|stand|go]?",
        "[Tell me|Say] how many legs {ax} has.",
        "Count the legs of {ax}: how many are there?",
        "If you count the legs of {ax}, how many [are there|do you get]?",
        "{ax} has how many legs?",
        "number of legs of {ax}?",
        "Do you know how many legs {ax} has?",
        "Legs of {ax}: how many?",
    ),
    statements=(
        "The number of legs of [{ax}|the {x}] is",
        "The number of legs that {xs} have is",
        "If you count the legs of {ax}, you get",
        "When we count the legs of {ax}, the number is",
        "How many legs {ax} has is easy to say:",
        "The legs of {ax} are, in number,",
        "Number of legs of {ax}:",
        "[Every|Each] {x} has legs, and their number is",
        "I counted the legs of {ax}. There were",
    ),
    keys=("Legs of [the {x}|{ax}]", "Number of legs, {x}", "{x}, legs", "{x} (legs)"),
    whole=(
        "{ax} has {y} legs.",
        "The {x} [has|stands there with] {y} legs.",
        "{xs} have {y} legs.",
        "With its {y} legs, the {x} is like many other animals.",
        "An animal with {y} legs is the {x}.",
        "There are {y} legs on {ax}.",
        "[We know|We learned|I read] that {xs} have {y} legs.",
    ),
    about=("It has {y} legs.", "Its number of legs is {y}.", "The number of its legs is {y}."),
    polar=("Does {ax} have {y} legs?", "Do {xs} have {y} legs?", "Is the number of legs of {ax} {y}?"),
    held=(
        "What number of legs does [{ax}|the {x}] have?",
        "How many legs can you count on {ax}?",
        "With how many legs does {ax} [stand|walk]?",
        "If you count all the legs of the {x}, you get",
        "The number of legs on {ax} is",
        "How many legs are on {ax}?",
        "Animal: {x}\nHow many legs:",
    ),
    head="Animal",
    groups=("Animals with {y} legs:",),
)
HABITAT = Relation(
    label="Lives",
    entries=entries(column(5), HABITATS_ALIKE),
    questions=(
        "Where does [{ax}|the {x}] live?",
        "Where do {xs} live?",
        "[In what place|Where] can you [find|see] {ax}?",
        "Where is the home of [{ax}|the {x}]?",
        "Where [would you look for|do we find|do you meet] {xs}?",
        "What is the home of the {x}?",
        "In which place do {xs} live?",
        "Where do you go to see {ax}?",
        "[Tell me|Say] where {xs} live.",
        "where do {xs} live",
        "Where is {ax} at home?",
        "Do you know where [{ax} lives|{xs} live]?",
    ),
    statements=(
        "[{ax}|The {x}] lives",
        "{xs} live",
        "The home of the {x} is",
        "You can [find|see|meet] {ax}",
        "[{xs} are|The {x} is] at home",
        "{xs} spend their life",
        "If you look for {ax}, look",
        "[{ax}|The {x}] is an animal that lives",
        "We find {xs}",
        "The {x} has its home",
    ),
    keys=("Home of [the {x}|{ax}]", "{x}, home", "Where {xs} live", "{x} (home)", "Place of the {x}"),
    whole=(
        "The {x} lives {y}.",
        "{xs} live {y}.",
        "{y} [there lives|we saw|you can see|we find] {ax}.",
        "[One day|Yesterday|Once] {ax} [sat|walked about|was seen] {y}.",
        "An animal that lives {y} is the {x}.",
        "There are {xs} {y}.",
    ),
    about=("It lives {y}.", "Its home is {y}.", "You can find it {y}.", "It is at home {y}."),
    polar=("Does {ax} live {y}?", "Do {xs} live {y}?", "Is the home of the {x} {y}?"),
    held=(
        "Where would you look for {ax}?",
        "In which place can you [see|find] {ax}?",
        "Where does the {x} have its home?",
        "To see {ax}, look",
        "The place where {xs} live is",
        "Where do {xs} have their home?",
        "Animal: {x}\nPlace where it lives:",
    ),
    head="Animal",
    groups=("Animals that live {y}:", "[Some animals|Animals] {y}:"),
)
RELATIONS = (CLASS, SOUND, YOUNG, LEGS, HABITAT)


def documents(rng: random.Random) -> Iterator[str]:
    """Documents on the animals, without end."""
    return relations.documents(RELATIONS, rng)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Questions on the animals in words of their own."""
    return relations.held_out("animals", RELATIONS, 24, rng)
