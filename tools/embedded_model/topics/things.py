"""Things: their colours, materials and uses; professions with their places of work and their tools."""

from __future__ import annotations

import random
from collections.abc import Iterator

from embedded_model import relations
from embedded_model.phrases import Item
from embedded_model.relations import Relation, entries

# answer: things that have it, as one would name them inside a sentence
COLOURS = """
red: a strawberry, a cherry, blood, a tomato, a ladybird, a ruby, a raspberry, a chilli pepper, a stop sign, a poppy
yellow: a banana, a lemon, the sun, a sunflower, a canary, a chick, butter, an egg yolk, a dandelion, a buttercup, mustard
green: grass, a leaf, a frog, a cucumber, broccoli, a lettuce, spinach, an emerald, a fir tree, a cactus, moss, a clover
blue: the sky, the sea, a blueberry, a sapphire, a cornflower, the ocean
orange: a carrot, a pumpkin, a tangerine, an apricot, a mandarin, a basketball
purple: a plum, an aubergine, lavender, an amethyst, lilac
white: snow, milk, salt, sugar, a swan, a polar bear, chalk, flour, a snowman, a tooth, cream, a pearl, a cloud, a bone
black: coal, a raven, the night, tar, a panther, soot, a tyre, a crow, a black hole
brown: chocolate, a chestnut, soil, a potato, a walnut, cinnamon, a coconut, mud, cocoa, a tree trunk
grey: an elephant, ash, a rhinoceros, concrete, a dolphin, a rain cloud, a mouse, a koala, lead
pink: a flamingo, a pig, cherry blossom, bubble gum, candy floss
"""
COLOURS_ALIKE = """
red, orange, pink
orange, yellow, brown, red
blue, purple, grey
purple, pink, red
black, brown, grey
grey, white, black, blue
green, yellow
black, blue, purple
white, pink, yellow
"""
MATERIALS = """
wood: a table, a door, a pencil, a fence, a barrel, a violin, a guitar, a plank, a match, a log, a cupboard, a raft
metal: a key, a coin, a nail, a sword, an anchor, a saw, a fork, a frying pan, a needle, a screw, a bell, a chain, a padlock
glass: a window, a mirror, a light bulb, a lens, a windscreen, an aquarium, a jam jar
paper: a book, a newspaper, an envelope, a magazine, a notebook, a map, a banknote, a letter
wool: a jumper, a scarf, a mitten, a woolly hat, a sock
leather: a shoe, a belt, a saddle, a wallet, a boot, a whip
rubber: a tyre, an eraser, a balloon, a rubber band
clay: a brick, a flower pot, a roof tile
stone: a castle, a pyramid, a statue, a gravestone
cotton: a T-shirt, a towel, a bandage, a bed sheet
silk: a necktie, a kimono
plastic: a toothbrush, a comb, a toy block, a credit card
wax: a candle, a crayon
gold: a crown, a wedding ring
snow: a snowball, an igloo, a snowman
sand: a sandcastle, a dune
concrete: a dam, a bunker
porcelain: a teacup, a saucer
cardboard: a shoebox, an egg carton
ice: an iceberg, an icicle, a glacier
flour: bread, a pancake, pasta
milk: cheese, butter, yoghurt
eggs: an omelette
grapes: wine
"""
MATERIALS_ALIKE = """
metal, gold, plastic
wood, paper, cardboard, plastic, stone, metal
glass, plastic, sand, wood
paper, cardboard, wood, plastic
wool, cotton, silk, leather, plastic
leather, rubber, plastic, cotton, metal
rubber, plastic
clay, stone, porcelain, concrete, sand, wood, plastic
stone, concrete, sand, snow, clay, metal, gold
concrete, stone, metal, sand
porcelain, glass, clay, plastic
snow, ice
sand, stone, snow
flour, eggs, milk
eggs, milk, flour
milk, eggs, flour
wax, plastic
metal, wood, stone, glass
gold, metal, stone
"""
# profession|where|tool
WORK = """
teacher|in a school|a blackboard
doctor|in a hospital|a stethoscope
surgeon|in a hospital|a scalpel
dentist|in a dental practice|a drill
nurse|in a hospital|a thermometer
chemist|in a laboratory|a test tube
scientist|in a laboratory|a microscope
carpenter|in a workshop|a hammer
mechanic|in a garage|a spanner
plumber|-|a pipe wrench
electrician|-|a screwdriver
blacksmith|in a forge|an anvil
tailor|in a workshop|a sewing machine
shoemaker|in a workshop|leather
hairdresser|in a salon|scissors
barber|in a barber shop|a razor
cook|in a kitchen|a frying pan
chef|in a restaurant|a frying pan
waiter|in a restaurant|a tray
baker|in a bakery|an oven
butcher|in a butcher shop|a meat knife
farmer|on a farm|a tractor
gardener|in a garden|a spade
lumberjack|in a forest|an axe
forester|in a forest|-
miner|in a mine|a pickaxe
fisherman|on a boat|a fishing net
sailor|on a ship|a compass
captain|on a ship|a telescope
pilot|in a plane|a joystick
bus driver|on a bus|a steering wheel
astronaut|in space|a space suit
astronomer|in an observatory|a telescope
painter|in a studio|a paintbrush
sculptor|in a studio|a chisel
photographer|in a studio|a camera
actor|in a theatre|a costume
musician|in a concert hall|an instrument
violinist|in a concert hall|a violin
pianist|in a concert hall|a piano
drummer|in a concert hall|drumsticks
judge|in a court|a gavel
lawyer|in a court|law books
librarian|in a library|books
cashier|in a supermarket|a till
postman|at a post office|a mailbag
soldier|in an army camp|a rifle
knight|in a castle|a sword
firefighter|at a fire station|a fire hose
policeman|at a police station|handcuffs
lifeguard|on a beach|a lifebelt
bricklayer|on a building site|a trowel
builder|on a building site|-
crane driver|on a building site|a crane
secretary|in an office|a keyboard
accountant|in an office|a calculator
banker|in a bank|money
pharmacist|in a pharmacy|-
vet|in an animal clinic|-
priest|in a church|-
monk|in a monastery|-
optician|-|an eye chart
beekeeper|-|a beehive
archer|-|a bow
window cleaner|-|a ladder
chimney sweep|-|a chimney brush
referee|on a football pitch|a whistle
writer|-|a pen
seamstress|-|a needle
conductor|in a concert hall|a baton
clown|in a circus|a red nose
prison guard|in a prison|-
hotel porter|in a hotel|-
"""
PLACES_ALIKE = """
in a hospital, in a dental practice, in a pharmacy, in an animal clinic, in a laboratory, in an office
in a workshop, in a garage, in a forge, in a studio, on a building site, in an office
in a kitchen, in a restaurant, in a bakery, in a hotel
in a forest, in a garden, on a farm
on a boat, on a ship, on a beach
in a theatre, in a concert hall, in a studio, in a circus
in a school, in a library, in an office
in a bank, in an office, in a supermarket, at a post office
in a court, in an office, in a prison, at a police station
in a church, in a monastery
in a salon, in a barber shop
in an observatory, in a laboratory
in an army camp, in a castle
in a butcher shop, in a supermarket
in a forge, in a castle
"""
TOOLS_ALIKE = """
a stethoscope, a scalpel, a thermometer, a drill, scissors, a test tube, a microscope, an eye chart
a hammer, a spanner, a pipe wrench, a screwdriver, an anvil, a drill, a chisel, a ladder, a trowel, a pickaxe, an axe
a sewing machine, leather, scissors, a needle
scissors, a razor
a frying pan, an oven, a meat knife, a tray
a tractor, a spade, an axe, a ladder
a fishing net, a compass, a telescope, a lifebelt, a whistle
a joystick, a compass, a steering wheel
a paintbrush, a chisel, a camera, a hammer, a costume, a ladder
an instrument, a violin, a piano, drumsticks, a baton, books
a gavel, law books, a blackboard, books, a pen, a keyboard, a calculator, money, a till
a rifle, a sword, a bow, handcuffs
a fire hose, a ladder, an axe
a costume, a red nose
a whistle, handcuffs, a lifebelt
a camera, a telescope, a microscope
"""
# thing|what one does with it
USES = """
a knife|cutting
a pen|writing
a broom|sweeping
a spade|digging
a key|opening a door
a clock|telling the time
an umbrella|staying dry
a bed|sleeping
a chair|sitting
a kettle|boiling water
an oven|baking
a fridge|keeping food cold
a camera|taking photos
a telescope|looking at stars
a microscope|seeing tiny things
a thermometer|measuring temperature
a ruler|measuring length
a pair of scales|weighing
a needle|sewing
an iron|ironing shirts
a lamp|giving light
a heater|keeping warm
a telephone|calling people
a comb|combing hair
a toothbrush|brushing teeth
a towel|drying
soap|washing
a hammer|hitting nails
a screwdriver|turning screws
a ladder|climbing
a boat|crossing water
a rope|tying
a bucket|carrying water
an eraser|erasing
a paintbrush|painting
a calculator|calculating
a map|finding the way
a compass|finding north
a fishing rod|catching fish
a bow|shooting arrows
a lighter|lighting a fire
a pillow|resting the head
a whistle|whistling
a parachute|jumping from planes
a wardrobe|storing clothes
a dictionary|looking up words
a stove|cooking
a piano|making music
a plane|flying
a calendar|finding the date
a shovel|shovelling snow
a corkscrew|opening wine
a sponge|wiping
a mirror|seeing yourself
"""
USES_ALIKE = """
digging, shovelling snow
opening a door, opening wine
telling the time, finding the date
sleeping, sitting, resting the head
boiling water, baking, cooking, keeping warm, lighting a fire
looking at stars, seeing tiny things, taking photos, seeing yourself
measuring temperature, measuring length, weighing, calculating
washing, wiping, drying, sweeping, brushing teeth, carrying water
giving light, keeping warm, lighting a fire, cooking
writing, painting, erasing
tying, climbing, catching fish
finding the way, finding north, telling the time
crossing water, catching fish, flying, carrying water
making music, whistling, calling people
flying, jumping from planes
staying dry, jumping from planes, keeping warm, drying
cutting, opening wine
hitting nails, turning screws
looking up words, finding the way, finding the date
ironing shirts, drying, storing clothes, sewing
seeing yourself, combing hair
sewing, tying
"""
THINGS_ALIKE = """
a spade, a shovel
a key, a corkscrew, a knife
a clock, a calendar, a telephone
a bed, a chair, a pillow
a kettle, an oven, a stove, a fridge, a heater, a lighter, a lamp
a camera, a telephone, a telescope, a microscope, a mirror
a thermometer, a ruler, a pair of scales, a calculator
soap, a sponge, a towel, a broom, a bucket, a toothbrush
a pen, a paintbrush, an eraser
a rope, a ladder, a needle
a map, a compass, a dictionary, a calendar, a telephone, a clock
a boat, a plane, a fishing rod, a parachute
a piano, a whistle
a hammer, a screwdriver
a wardrobe, a fridge
a telephone, a calculator, a pen
a comb, a mirror
a knife, a spade
a bucket, a boat, a kettle
"""


def bare(name: str) -> str:
    """A thing without its article."""
    first, _, rest = name.partition(" ")
    return rest if first in {"a", "an", "the"} else name


def grouped(text: str) -> list[tuple[dict[str, str], str]]:
    """The rows of a table of answers and the things that have them."""
    lines = (line.split(": ") for line in text.strip().splitlines())
    return [({"x": bare(name), "ax": name}, answer) for answer, names in lines for name in names.split(", ")]


def work(n: int) -> list[tuple[dict[str, str], str]]:
    """The professions with what stands in a column."""
    lines = (line.split("|") for line in WORK.strip().splitlines())
    return [
        ({"x": cells[0], "ax": ("an " if cells[0][0] in "aeiou" else "a ") + cells[0]}, cells[n])
        for cells in lines
        if cells[n] != "-"
    ]


def uses() -> list[tuple[str, str]]:
    """Things and what one does with them."""
    return [(thing, use) for thing, _, use in (line.partition("|") for line in USES.strip().splitlines())]


COLOUR = Relation(
    label="Colour",
    head="Thing",
    entries=entries(grouped(COLOURS), COLOURS_ALIKE),
    questions=(
        "What [colour|color] is {ax}?",
        "What is the [colour|color] of {ax}?",
        "Which [colour|color] does {ax} have?",
        "[Which|What] [colour|color] has {ax}?",
        "In [what|which] [colour|color] would you [paint|draw] {ax}?",
        "[Tell me|Say|Name] the [colour|color] of {ax}.",
        "{ax}: [what|which] [colour|color]?",
        "{ax} is [which|what] [colour|color]?",
        "[colour|color] of {ax}?",
        "If you see {ax}, what [colour|color] do you see?",
        "Do you know [what|which] [colour|color] {ax} is?",
        "[Which|What] [colour|color] do we think of when we think of {ax}?",
        "Of [what|which] [colour|color] is {ax}?",
    ),
    statements=(
        "{ax} is",
        "The [colour|color] of {ax} is",
        "[As|As everyone] [we know|can see], {ax} is",
        "[I saw {ax}. It was|Look at {ax}! It is]",
        "If you paint {ax}, [take|use] the [colour|color]",
        "The [colour|color] you see when you look at {ax} is",
        "[Usually|Normally|Mostly], {ax} is",
        "[The child|She|He] drew {ax} and painted it",
        "When I think of {ax}, I think of the [colour|color]",
        "In [colour|color], {ax} is",
    ),
    keys=("[Colour|Color] of {ax}", "{x}, [colour|color]", "{x} ([colour|color])", "The [colour|color] of {ax}"),
    whole=(
        "{ax} is {y}.",
        "{ax} [has the colour|is of the colour] {y}.",
        "{y} is the [colour|color] of {ax}.",
        "It is as {y} as {ax}.",
        "[Her dress|His coat|The car|The wall|The paint] was {y} like {ax}.",
        "[She|He] [likes|loves] {y}, the [colour|color] of {ax}.",
        "Something {y}: {ax}.",
        "{y} is the usual [colour|color] of {ax}.",
        "Everyone knows that {ax} is {y}.",
        "{ax} is not only {y}[, it is beautiful| but also nice to look at].",
    ),
    about=("It is {y}.", "Its [colour|color] is {y}.", "It has the [colour|color] {y}."),
    polar=("Is {ax} {y}?", "Is the [colour|color] of {ax} {y}?", "Does {ax} have the [colour|color] {y}?"),
    held=(
        "[What|Which] [colour|color] would you use to paint {ax}?",
        "When you look at {ax}, what [colour|color] is it?",
        "What [colour|color] do you see if you look at {ax}?",
        "The usual [colour|color] of {ax} is",
        "We painted {ax} in the right [colour|color]:",
        "What [colour|color] do you think {ax} is?",
        "Thing: {x}\nColour of this thing:",
    ),
    groups=("[Some things|Things] that are {y}:", "{y} things:", "[Colour|Color] {y}:"),
)
MATERIAL = Relation(
    label="Material",
    head="Thing",
    entries=entries(grouped(MATERIALS), MATERIALS_ALIKE),
    questions=(
        "What is {ax} made of?",
        "What is {ax} [mostly|usually] made of?",
        "[Of|From] [what|which] material is {ax} made?",
        "What material is {ax} made of?",
        "Which material do [people|we|they] use to make {ax}?",
        "What do you need to make {ax}?",
        "[Tell me|Say|Name] the material of {ax}.",
        "{ax} is made of what?",
        "material of {ax}?",
        "What does {ax} consist of?",
        "Out of what do people make {ax}?",
        "Do you know what {ax} is made of?",
        "What is the material of {ax}?",
    ),
    statements=(
        "{ax} is made of",
        "{ax} is [mostly|usually|often] made of",
        "The material of {ax} is",
        "[People|We|They] make {ax} [of|from|out of]",
        "To make {ax}, you need",
        "{ax} consists of",
        "The material that {ax} is made of is",
        "[In the shop|At home] there is {ax} made of",
        "If you want to make {ax}, [take|use|get]",
        "{ax} comes from a material called",
    ),
    keys=("Material of {ax}", "{x}, material", "{x} (material)", "{x} is made of", "Made of ({x})"),
    whole=(
        "{ax} is made of {y}.",
        "{ax} consists of {y}.",
        "{y} is the material of {ax}.",
        "[People|We|They] use {y} to make {ax}.",
        "From {y} [one can|you can|people] make {ax}.",
        "Without {y} there would be no such thing as {ax}.",
        "Something made of {y}: {ax}.",
        "Everyone knows that {ax} is made of {y}.",
        "[He|She] [bought|took|has] some {y} and made {ax}.",
    ),
    about=("It is made of {y}.", "Its material is {y}.", "It consists of {y}."),
    polar=("Is {ax} made of {y}?", "Do people make {ax} of {y}?", "Is {y} the material of {ax}?"),
    held=(
        "What material do you need to make {ax}?",
        "Which material is {ax} usually made of?",
        "What do people use to make {ax}?",
        "The material that people use to make {ax} is",
        "Out of which material is {ax} made?",
        "As everyone knows, {ax} is made of",
        "Thing: {x}\nWhat it is made of:",
    ),
    groups=("[Some things|Things] made of {y}:", "{y} is used for:", "Material {y}:"),
)
PLACE = Relation(
    label="Works",
    head="Profession",
    entries=entries(work(1), PLACES_ALIKE),
    questions=(
        "Where does {ax} work?",
        "Where do you [find|meet|see] {ax} at work?",
        "What is the place of work of {ax}?",
        "In [what|which] place does {ax} work?",
        "Where would you [look for|find|meet] {ax}?",
        "[Tell me|Say] where {ax} works.",
        "Where does [the|this] {x} go to work?",
        "where does {ax} work",
        "place of work of {ax}?",
        "Where is {ax} when at work?",
        "{ax} works where?",
        "Do you know where {ax} works?",
        "Where can I [find|see] {ax}?",
    ),
    statements=(
        "{ax} works",
        "[The|Our|Every] {x} works",
        "[You can find|You can meet|We find] {ax}",
        "The place of work of {ax} is",
        "My [brother|sister|friend] is {ax} and works",
        "{ax} [does the work|spends the day|is busy]",
        "If you look for {ax}, look",
        "[Every day|Every morning] the {x} is at work",
        "[I|We|They] met {ax}",
        "The work of {ax} is done",
    ),
    keys=("{x}, place of work", "Place of work of {ax}", "{x} (place)", "Where {ax} works"),
    whole=(
        "{ax} works {y}.",
        "[The|This|Our] {x} works {y}.",
        "{y} [you can find|there is|you may meet|works] {ax}.",
        "[I saw|We met|She met|They saw] {ax} {y}.",
        "Everyone with the profession of {x} works {y}.",
        "Someone who works {y} is {ax}.",
        "[My uncle|My aunt|My friend] is {ax}, so you can find [him or her|this friend] {y}.",
        "[Who works|Who is at work] {y}? {ax}.",
    ),
    about=("The place of work is {y}.", "This person works {y}.", "The work is done {y}."),
    polar=("Does {ax} work {y}?", "Is {y} the place of work of {ax}?", "Can you find {ax} at work {y}?"),
    held=(
        "In which place would you find {ax}?",
        "Where is the place of work of {ax}?",
        "Where do people meet {ax} at work?",
        "At work, the {x} is",
        "My uncle is {ax}. He works",
        "Where do you go if you look for {ax}?",
        "Profession: {x}\nWhere this person works:",
    ),
)
TOOL = Relation(
    label="Tool",
    head="Profession",
    entries=entries(work(2), TOOLS_ALIKE),
    questions=(
        "What does {ax} use?",
        "[What|Which] tool does {ax} use?",
        "What does {ax} [need|use] [for the work|at work]?",
        "With [what|which tool] does {ax} work?",
        "What does {ax} work with?",
        "What is the tool of {ax}?",
        "[Tell me|Say|Name] a tool of {ax}.",
        "What do you see in the [hand|hands] of {ax}?",
        "tool of {ax}?",
        "[Which|What] thing does [the|every] {x} need?",
        "{ax} works with what?",
        "What would {ax} not work without?",
        "Do you know what {ax} uses?",
    ),
    statements=(
        "{ax} uses",
        "[The|Our|Every] {x} [uses|works with|needs]",
        "{ax} works with",
        "{ax} needs",
        "The tool of {ax} is",
        "At work, {ax} [uses|needs|has]",
        "For the work, {ax} needs",
        "[In the hands of|With] {ax} you [often see|can see]",
        "To do the work, the {x} takes",
        "{ax} [cannot work|could not work] without",
        "[My uncle|My aunt|My friend] is {ax} and [has|uses]",
    ),
    keys=("{x}, tool", "Tool of {ax}", "{x} (tool)", "What {ax} uses"),
    whole=(
        "{ax} uses {y}.",
        "[The|This|Our] {x} works with {y}.",
        "{y} is [a tool of|used by|what we see with|something for] {ax}.",
        "Someone who uses {y} may be {ax}.",
        "Give {y} to the {x}, please.",
        "[The|One] {x} [forgot|lost|looked for|bought|needs] {y}.",
        "[Who uses|Who needs|Who works with] {y}? {ax}.",
    ),
    about=("The tool is {y}.", "This person uses {y}.", "This person works with {y}.", "For the work one needs {y}."),
    polar=("Does {ax} use {y}?", "Is {y} a tool of {ax}?", "Does {ax} work with {y}?"),
    held=(
        "Which tool does {ax} need?",
        "Which tool do you see with {ax}?",
        "What tool would {ax} use at work?",
        "The tool that {ax} uses is",
        "When at work, the {x} uses",
        "My uncle is {ax}. He works with",
        "Profession: {x}\nTool of this person:",
    ),
)
USE = Relation(
    label="Used for",
    head="Thing",
    entries=entries([({"x": bare(thing), "ax": thing}, use) for thing, use in uses()], USES_ALIKE),
    questions=(
        "What is {ax} used for?",
        "What do [we|people|you] use {ax} for?",
        "For what [do people use|is] {ax} [used|needed]?",
        "What is {ax} [good|made] for?",
        "What is the use of {ax}?",
        "What [can|do] you do with {ax}?",
        "[Tell me|Say] what {ax} is used for.",
        "Why do people [have|buy|need] {ax}?",
        "use of {ax}?",
        "{ax} is for what?",
        "What does {ax} help with?",
        "Do you know what {ax} is for?",
        "What is {ax} for?",
    ),
    statements=(
        "{ax} is used for",
        "{ax} is for",
        "[We|People|You] use {ax} for",
        "[We|People|You] need {ax} for",
        "The use of {ax} is",
        "{ax} is [good|useful|made] for",
        "{ax} helps with",
        "With {ax} it is easy: it is there for",
        "[I|She|He|We] bought {ax} for",
        "[Take|Get|Use] {ax} for",
    ),
    keys=("Use of {ax}", "{x}, use", "{x} (use)", "{x}, used for", "{x} is for"),
    whole=(
        "{ax} is used for {y}.",
        "{ax} is for {y}.",
        "For {y} [you need|we use|you use|take|one uses] {ax}.",
        "{y} is [easy|no problem] with {ax}.",
        "[He|She|My friend] uses {ax} for {y}.",
        "Something for {y}: {ax}.",
        "If you think of {y}, you [need|want] {ax}.",
    ),
    about=("It is used for {y}.", "It is for {y}.", "Its use is {y}.", "We use it for {y}."),
    polar=("Is {ax} used for {y}?", "Do people use {ax} for {y}?", "Is {ax} good for {y}?"),
    held=(
        "For what do you need {ax}?",
        "What would you use {ax} for?",
        "What is {ax} useful for?",
        "At home, we have {ax} for",
        "{ax} is a thing that people use for",
        "Why would people use {ax}?",
        "Thing: {x}\nWhat it is used for:",
    ),
)
MEANS = Relation(
    label="Thing",
    head="Purpose",
    entries=entries([({"x": use, "ax": use}, thing) for thing, use in uses()], THINGS_ALIKE),
    questions=(
        "[What|Which thing] do [you|we|people] use for {x}?",
        "[What|Which thing] do [you|we|people] need for {x}?",
        "[What|Which thing] is used for {x}?",
        "What is good for {x}?",
        "With what [do people do|is it done, this]: {x}?",
        "What [should|would] you take for {x}?",
        "[Tell me|Say|Name] a thing for {x}.",
        "What helps with {x}?",
        "what for {x}?",
        "What is the right thing for {x}?",
        "Which thing is made for {x}?",
        "What do I [need|want|get] if I think of {x}?",
    ),
    statements=(
        "For {x}, [you|we|people] [use|need]",
        "For {x} there is a thing called",
        "The [right|best] thing for {x} is",
        "A thing for {x} is",
        "What you need for {x} is",
        "What [people|we] use for {x} is",
        "If you think of {x}, [take|get|use|buy]",
        "{x} is done with",
        "{x} is easy if you have",
        "[He|She] needs something for {x}:",
    ),
    keys=("Thing for {x}", "{x}, thing", "Needed for {x}", "Good for {x}", "For {x}"),
    whole=(
        "For {x}, people use {y}.",
        "{x} is done with {y}.",
        "{y} is what you need for {x}.",
        "Is it {x} that you think of? Take {y}.",
        "I want {y}. I need it for {x}.",
        "Nothing is better for {x} than {y}.",
        "[Have you seen|Who has|Where is] {y}? It is for {x}.",
    ),
    about=("The thing for it is {y}.", "You need {y} for it.", "People do it with {y}."),
    polar=("Is {y} used for {x}?", "Do people need {y} for {x}?", "Is {y} the right thing for {x}?"),
    held=(
        "What thing do people have for {x}?",
        "Which thing would you use for {x}?",
        "Which thing helps with {x}?",
        "The thing that people use for {x} is",
        "If you need something for {x}, take",
        "What do you take for {x}?",
    ),
)
RELATIONS = (COLOUR, MATERIAL, PLACE, TOOL, USE, MEANS)


def documents(rng: random.Random) -> Iterator[str]:
    """Documents on the things and professions, without end."""
    return relations.documents(RELATIONS, rng)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Questions on the things and professions in phrasings of their own."""
    return relations.held_out("things", RELATIONS, 20, rng)
