"""Words: opposites, plurals and past tenses."""

from __future__ import annotations

import random
from collections.abc import Iterator

from embedded_model import relations
from embedded_model.phrases import Item
from embedded_model.relations import Entry, Relation, entries

# Pairs of opposites by part of speech; every word stands in one pair only, so that its opposite is plain.
OPPOSITES = {
    "adjective": """
hot/cold big/small long/short young/old ancient/modern left/right true/false heavy/light hard/soft difficult/easy rich/poor
good/bad happy/sad fast/slow early/late full/empty wet/dry clean/dirty strong/weak thick/thin wide/narrow deep/shallow
high/low loud/quiet black/white sharp/blunt smooth/rough sweet/sour cheap/expensive safe/dangerous brave/cowardly polite/rude
kind/cruel beautiful/ugly clever/stupid guilty/innocent asleep/awake alive/dead sick/healthy present/absent public/private
real/fake simple/complicated same/different single/married straight/crooked tight/loose tame/wild visible/invisible
possible/impossible maximum/minimum positive/negative male/female generous/selfish nervous/calm dark/bright near/far
correct/wrong legal/illegal first/last legible/illegible equal/unequal patient/impatient lucky/unlucky
""",
    "verb": """
open/close begin/end start/stop push/pull give/take buy/sell win/lose love/hate come/go arrive/leave enter/exit rise/fall
laugh/cry ask/answer remember/forget teach/learn increase/decrease add/subtract multiply/divide accept/refuse attack/defend
build/destroy lend/borrow freeze/melt float/sink hide/show import/export succeed/fail save/spend whisper/shout lock/unlock
appear/disappear agree/disagree connect/disconnect pack/unpack stretch/shrink praise/blame
""",
    "noun": """
day/night north/south east/west man/woman boy/girl king/queen brother/sister father/mother son/daughter husband/wife
uncle/aunt prince/princess top/bottom front/back war/peace life/death friend/enemy victory/defeat hope/despair heaven/hell
summer/winter sunrise/sunset morning/evening question/reply advantage/disadvantage strength/weakness wealth/poverty
beginning/ending giant/dwarf buyer/seller
""",
    "adverb": """
up/down in/out inside/outside above/below over/under before/after here/there always/never often/rarely more/less
many/few all/none everything/nothing yes/no with/without forwards/backwards upstairs/downstairs indoors/outdoors
everybody/nobody
""",
}
OPPOSITES_ALIKE = """
hard, loud
high, loud
heavy, thick
come, stop
impatient, nervous
man, woman, boy, girl, husband, wife
mother, father, son, daughter, husband, wife
king, queen, prince, princess
bad, wrong, cruel, ugly, false, sad, poor, weak, stupid, negative, fake, sick, rude, illegal, selfish, unlucky
good, correct, kind, beautiful, true, happy, rich, strong, clever, positive, real, healthy, polite, legal, generous, lucky, right
big, wide, high, thick, full, long, strong, deep, heavy, maximum, far
small, narrow, low, thin, empty, short, weak, shallow, light, minimum, poor
difficult, complicated, hard, heavy, rough, impossible, tight
easy, simple, soft, light, smooth, possible, loose
fast, early, first, young
slow, late, last, old
old, ancient, dead, last, late
young, modern, alive, first, early
loud, wild, nervous, rude, cruel, cowardly, impatient, rough
quiet, calm, tame, polite, asleep, patient, kind, brave, soft
safe, calm, tame, easy, soft, blunt
dangerous, wild, nervous, sharp, rough
bright, light, white, visible, clever, beautiful
dark, black, invisible, heavy, ugly
same, equal
different, unequal
legible, visible
illegible, invisible
blunt, rude, smooth, soft
sweet, kind, good
sour, bad
single, last, first
wrong, false, left, illegal, guilty
correct, true, right, legal, innocent
empty, absent
full, present
brave, generous, strong
cheap, poor, easy, bad
expensive, rich, good
straight, correct, right
begin, start, open, enter, arrive, come, appear, rise, add, increase, connect
end, stop, close, exit, leave, go, disappear, fall, subtract, decrease, disconnect
give, sell, lend, show, spend, save, teach
take, buy, borrow, hide, learn, accept
push, close, attack
pull, open, stretch
win, succeed, rise, float, appear, praise, love, build, laugh
lose, fail, fall, sink, disappear, forget, blame, hate, destroy, cry, defend, attack
add, multiply, increase, connect, rise, stretch
subtract, divide, decrease, disconnect, fall, shrink
connect, lock, add, pack, close
disconnect, unlock, divide, unpack, open
agree, accept, love, connect
disagree, refuse, hate, disconnect, divide
remember, learn, save, show
shout, cry, laugh, ask
appear, show
disappear, hide
man, boy, king, brother, father, son, husband, uncle, prince
woman, girl, queen, sister, mother, daughter, wife, aunt, princess
day, morning, sunrise, summer, life, beginning
night, evening, sunset, winter, death, ending
top, front, victory, heaven, life, peace, hope, north
bottom, back, defeat, hell, death, war, despair, south
north, south, east, west, front, back, top, bottom
friend, advantage, strength, peace, hope, wealth, victory
enemy, disadvantage, weakness, war, despair, poverty, defeat
advantage, strength, victory, wealth
beginning, front, top, sunrise, question
ending, back, bottom, sunset, reply
question, buyer
friend, brother, sister, husband, wife
up, over, above, forwards, upstairs, high, more, out
down, under, below, backwards, downstairs, less
in, inside, indoors, here, with
out, outside, outdoors, there, without
before, above, over, forwards
after, below, under, backwards
always, often, all, everything, everybody, many, more, yes, with
never, rarely, none, nothing, nobody, few, less, no, without
"""

PLURALS = """
mouse/mice goose/geese foot/feet tooth/teeth man/men woman/women child/children ox/oxen person/people sheep/sheep deer/deer
louse/lice wolf/wolves knife/knives wife/wives life/lives leaf/leaves half/halves shelf/shelves calf/calves loaf/loaves
thief/thieves elf/elves self/selves baby/babies city/cities country/countries lady/ladies party/parties story/stories
family/families berry/berries cherry/cherries fly/flies butterfly/butterflies puppy/puppies penny/pennies army/armies
body/bodies lorry/lorries enemy/enemies library/libraries box/boxes fox/foxes bus/buses glass/glasses dress/dresses
church/churches watch/watches match/matches peach/peaches beach/beaches branch/branches dish/dishes brush/brushes
wish/wishes class/classes kiss/kisses boss/bosses bench/benches witch/witches potato/potatoes tomato/tomatoes hero/heroes
echo/echoes piano/pianos photo/photos radio/radios kangaroo/kangaroos boy/boys day/days key/keys toy/toys monkey/monkeys
donkey/donkeys tray/trays cat/cats dog/dogs book/books car/cars tree/trees house/houses chair/chairs table/tables bird/birds
apple/apples orange/oranges hand/hands girl/girls horse/horses cow/cows pen/pens flower/flowers river/rivers shoe/shoes
window/windows door/doors cup/cups boat/boats cloud/clouds star/stars egg/eggs letter/letters garden/gardens roof/roofs
policeman/policemen fireman/firemen snowman/snowmen gentleman/gentlemen grandchild/grandchildren
"""
PASTS = """
go/went come/came see/saw eat/ate drink/drank sing/sang swim/swam run/ran begin/began give/gave take/took make/made say/said
tell/told think/thought bring/brought buy/bought catch/caught teach/taught find/found fly/flew know/knew grow/grew
throw/threw blow/blew draw/drew write/wrote drive/drove ride/rode rise/rose speak/spoke break/broke steal/stole
choose/chose freeze/froze wake/woke sleep/slept keep/kept feel/felt leave/left meet/met lose/lost send/sent spend/spent
build/built sit/sat stand/stood win/won hold/held fall/fell forget/forgot get/got hear/heard sell/sold shake/shook
wear/wore tear/tore bite/bit hide/hid fight/fought understand/understood ring/rang sink/sank do/did have/had
walk/walked play/played work/worked talk/talked jump/jumped look/looked help/helped open/opened close/closed call/called
ask/asked laugh/laughed cook/cooked wash/washed dance/danced love/loved live/lived like/liked smile/smiled move/moved
cry/cried try/tried carry/carried study/studied marry/married stop/stopped plan/planned
"""
ACCEPTED = {"persons", "oxes", "echos", "heros", "waked"}  # unusual, but not wrong


def pairs(text: str) -> list[tuple[str, str]]:
    """The pairs of a table."""
    return [(left, right) for left, _, right in (pair.partition("/") for pair in text.split())]


def opposites() -> tuple[Entry, ...]:
    """Every pair in both directions; wrong answers are of the same part of speech."""
    both = {kind: [*pairs(text), *((b, a) for a, b in pairs(text))] for kind, text in OPPOSITES.items()}
    kinds = {word: kind for kind, words in both.items() for word, _ in words}
    rows = [({"x": word}, other) for words in both.values() for word, other in words]
    return entries(rows, OPPOSITES_ALIKE, kinds)


def forms_of(table: str, endings: tuple[str, ...]) -> tuple[Entry, ...]:
    """Words with one form; wrong are the same form of other words and misformed ones."""
    rows = pairs(table)
    result = []
    for i, (word, right) in enumerate(rows):
        near = [rows[(i + step) % len(rows)][1] for step in (1, 2, 5, 11, 17, 23, 31)]
        misformed = (word, *(word + ending for ending in endings), right + endings[0])
        wrong = {*near, *misformed} - {right, *ACCEPTED, "people" if word.endswith("man") else ""}
        result.append(Entry({"x": word, "y": right}, right, tuple(sorted(wrong))))
    return tuple(result)


OPPOSITE = Relation(
    label="Opposite",
    head="Word",
    entries=opposites(),
    questions=(
        'What is the opposite of ["{x}"|{x}]?',
        'Which word [means|is] the opposite of ["{x}"|{x}]?',
        "[Tell me|Say|Give me|Name] the opposite of {x}.",
        "What is the contrary of {x}?",
        "Which word [is contrary to|is the contrary of|means the contrary of] {x}?",
        'What do you say if you mean the opposite of ["{x}"|{x}]?',
        "opposite of {x}?",
        "Not {x}, but the opposite: what is the word?",
        "What[ word|] has the opposite meaning of {x}?",
        "[Which|What] word has a meaning opposite to {x}?",
        "If something is not {x} but the opposite, what is it?",
        "{x} and what are opposites?",
        "Do you know the opposite of {x}?",
        "What is the reverse of {x}?",
        "[What|Which word] would you say for the opposite of {x}?",
        "Which is the word that would mean the reverse of {x}?",
        "Tell me the word that is the opposite of {x}.",
        'Which word forms a pair of opposites with "{x}"?',
    ),
    statements=(
        'The opposite of ["{x}"|{x}] is',
        "The contrary of {x} is",
        "{x} is the opposite of",
        "{x} is the contrary of",
        "The word with the opposite meaning of {x} is",
        "[Two opposites are|A pair of opposites is] {x} and",
        "If you do not mean {x} but the opposite, you say",
        "When I do not say {x} but the opposite, I say",
        "The word that stands against {x} is",
        "{x} means the opposite of",
        "{x} and its opposite, [the word|which is]",
        "Not {x}, but",
        "The reverse of {x} is",
    ),
    keys=("Opposite of {x}", "{x}, opposite", "Contrary of {x}", "{x} (opposite)"),
    whole=(
        "{x} is the opposite of {y}.",
        "{x} and {y} are [opposites|contraries|a pair of opposites].",
        "The opposite of {x} is {y}, and the opposite of {y} is {x}.",
        "{x} or {y}? [They are opposites|One is the opposite of the other].",
        "The word is not {x} but its opposite, {y}.",
        "[First|Yesterday] the word was {x}, [then|today] it was the opposite, {y}.",
        "The words {x} and {y} have opposite meanings.",
        "Some say {x}, others say the opposite, {y}.",
    ),
    about=("Its opposite is {y}.", "The opposite is {y}.", "The word with the opposite meaning is {y}."),
    polar=("Is {y} the opposite of {x}?", "Are {x} and {y} opposites?", "Does {x} mean the opposite of {y}?"),
    held=(
        "What would be the opposite of {x}?",
        "Which word do we call the opposite of {x}?",
        "What is the word that means the opposite of {x}?",
        "If I do not mean {x}, but the contrary, what do I say?",
        "The word for the opposite of {x} is",
        "We say that the opposite of {x} is",
        "Word: {x}\nWord with the opposite meaning:",
        "I know that {x} is the opposite of",
    ),
)
PLURAL = Relation(
    label="Plural",
    head="Word",
    entries=forms_of(PLURALS, ("s", "es")),
    questions=(
        'What is the plural of ["{x}"|{x}]?',
        "What is the plural[ form|] of the word {x}?",
        "[Tell me|Say|Give me|Name] the plural of {x}.",
        "One {x}, two [what|...]?",
        "What do you call more than one {x}?",
        'How do you [say|write] "{x}" in the plural?',
        "[Which|What] word [is used|do we use] for more than one {x}?",
        "plural of {x}?",
        'What does "{x}" become in the plural?',
        "If there is not one {x} but many, what do we say?",
        "How [do we form the plural of {x}|is the plural of {x} written]?",
        "[Put|Write] {x} in the plural.",
        "Do you know the plural of {x}?",
        "What would you call more than one {x}?",
        "Which is the word that stands for many, if one is {x}?",
    ),
    statements=(
        'The plural of ["{x}"|{x}] is',
        "One {x}, [two|three|four|many|ten]",
        "The plural form of the word {x} is",
        "In the plural, {x} [becomes|is|turns into]",
        "More than one {x} are called",
        "I have one {x}, but you have [two|three|many]",
        "There was one {x}, now there are [two|five|many]",
        "If there is more than one {x}, we say",
        "{x} in the plural is",
        "First I saw one {x}, then I saw some more",
    ),
    keys=("Plural of {x}", "{x}, plural", "{x} (plural)", "Plural, {x}", "one {x}, many"),
    whole=(
        "One {x}, two {y}.",
        "{y} is the plural of {x}.",
        "The word {y} means more than one {x}.",
        "[Here|There] is one {x}, [there|here] are [two|three|many] {y}.",
        "We say one {x}, but many {y}.",
        "[He|She] saw [two|three|four|some] {y}, I saw only one {x}.",
        "Many {y} [were|are] here, but no {x} is like the other.",
        "The singular of {y} is {x}.",
    ),
    about=("Its plural is {y}.", "The plural is {y}.", "In the plural we say {y}."),
    polar=("Is {y} the plural of {x}?", "Is the plural of {x} written {y}?", "Does {y} mean more than one {x}?"),
    held=(
        "What would be the plural of {x}?",
        "Which word means more than one {x}?",
        "What is {x} in the plural?",
        "The word for more than one {x} is",
        "We write that the plural of {x} is",
        "You have one {x} and I have two",
        "Word: {x}\nForm of the plural:",
    ),
)
PAST = Relation(
    label="Past tense",
    head="Verb",
    entries=forms_of(PASTS, ("ed", "d", "s")),
    questions=(
        'What is the past tense of ["{x}"|to {x}|{x}]?',
        "What is the past [form|tense] of the verb {x}?",
        "[Tell me|Say|Give me|Name] the past tense of {x}.",
        'How do you [say|write] "{x}" in the past tense?',
        "Today I {x}. What did I do yesterday?",
        "Today they {x}; yesterday they ...?",
        "past tense of {x}?",
        'What does "{x}" become in the past?',
        'Which form of "{x}" [tells of|do we use for] yesterday?',
        "[Put|Write] {x} in the past tense.",
        "Do you know the past tense of {x}?",
        "What would {x} become in the past tense?",
        "Which is the word that we use for {x} in the past?",
        "[What|Which word] is the past of {x}?",
    ),
    statements=(
        'The past tense of ["{x}"|to {x}|{x}] is',
        "Today I {x}, yesterday I",
        "Today we {x}; [last week|last year|yesterday] we",
        "The past form of the verb {x} is",
        "In the past tense, {x} [becomes|is|turns into]",
        "{x} in the past tense is",
        "Every day they {x}, and yesterday they",
        'If it was yesterday, we do not say "{x}" but',
        "Now you {x}; a year ago you",
    ),
    keys=("Past tense of {x}", "{x}, past tense", "{x} (past)", "Past, {x}"),
    whole=(
        "I {x} today as I {y} yesterday.",
        "{y} is the past tense of {x}.",
        "We say {x} for today and {y} for yesterday.",
        "They {y} [yesterday|last week|last year] and they {x} again today.",
        "To {x}: [he|she|they|we] {y}.",
        "The verb {x} has the past tense {y}.",
    ),
    about=("Its past tense is {y}.", "The past tense is {y}.", "In the past we say {y}."),
    polar=("Is {y} the past tense of {x}?", "Is the past of {x} written {y}?"),
    held=(
        "What would be the past tense of {x}?",
        "What is {x} in the past tense?",
        "Which word is the past tense of {x}?",
        "Today you {x}, yesterday you",
        "The word for the past of {x} is",
        "Verb: {x}\nForm of the past tense:",
    ),
)
RELATIONS = (OPPOSITE, PLURAL, PAST)


def documents(rng: random.Random) -> Iterator[str]:
    """Documents on the words, without end."""
    return relations.documents(RELATIONS, rng)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Questions on the words in phrasings of their own."""
    return relations.held_out("words", RELATIONS, 40, rng)
