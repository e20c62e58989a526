"""People, orders, characters of role-playing games and events: their tables, and how one of each is drawn.

Some values follow from others, and these a model can learn: a city has a country and a language, a job a workplace, an item
a category and a colour, a class its armor and weapons. Names are mostly drawn from syllables, so that only copying gets them right.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from embedded_model.phrases import a, capital

Value = str | int | float | list[str]


@dataclass(frozen=True, slots=True)
class Entity:
    """One thing to write a record about.

    values: what a record may hold, in the usual order of keys. words: what sentences may use, each value as text
    (`a_job` with an article) and the pronouns of the subject.
    """

    kind: str
    values: dict[str, Value]
    words: dict[str, str]


def listed(words: str, mark: str | None = None) -> list[str]:
    """The words of a text."""
    return words.split(mark)


def rows(table: str) -> list[list[str]]:
    """The lines of a table, split at `|`."""
    return [line.split("|") for line in table.strip().splitlines()]


FEMALE = listed("""
Ada Agnes Alice Alma Amelia Amina Amy Andrea Angela Anna Anya Astrid Aisha Barbara Beatrice Bella Bianca Brenda Bridget Camila Carla
Carmen Carol Cecilia Celia Chloe Clara Claire Cora Daisy Dana Daria Diana Dora Edith Elena Elisa Ella Ellen Elsa Emily Emma Erica Esther
Eva Fatima Fiona Flora Frida Gemma Gina Gloria Grace Greta Hana Hanna Heidi Helen Ida Ines Ingrid Irene Iris Isabel Ivy Jane Janet Jasmin
Jenny Joan Judith Julia June Karen Kate Kira Laila Lara Laura Layla Lea Lena Leyla Lily Linda Lisa Lola Lucia Lucy Luna Lydia Maja Mara
Maria Marina Martha Mary Maya Mei Mia Mila Mina Mira Mona Nadia Naomi Nina Nora Olga Olivia Paula Petra Rita Rosa Ruth Salma Sara Selma
Sofia Sonia Stella Susan Tara Tina Vera Violet Yasmin Yuki Zara Zoe
""")
MALE = listed("""
Aaron Abel Adam Adrian Ahmed Albert Alex Ali Amir Anders Andrew Anton Arthur Axel Ben Bernard Boris Bruno Carl Carlos Charles Christian
Colin Daniel David Dennis Diego Dmitri Edgar Eduardo Edward Emil Enzo Eric Ernest Ethan Felix Finn Frank Fred Gabriel George Gustav
Hamid Hans Harry Hassan Henry Hugo Ian Ibrahim Igor Ivan Jack Jacob James Jamal Jan Jason Javier Joel John Jonas Jorge Jose Karim Karl
Kenji Kevin Khalid Lars Leo Leon Liam Louis Lucas Luis Luke Marco Mario Mark Martin Mateo Max Michael Miguel Milan Nathan Neil Nick Niklas
Noah Oleg Oliver Omar Oscar Otto Owen Pablo Patrick Paul Pedro Peter Philip Rafael Ralph Ravi Richard Robert Robin Roman Rudi Samir Samuel
Sven Simon Stefan Taro Theo Thomas Tim Tobias Tom Viktor Vincent Walter William Yusuf
""")
LAST = listed("""
Abbott Adams Ahmad Allen Alvarez Andersen Archer Bailey Baker Barnes Becker Bell Bennett Berg Bianchi Bishop Black Bloom Brandt Brooks Brown
Burns Carter Castro Chen Clark Cole Collins Cook Cooper Costa Cruz Dahl Dean Diaz Dixon Dubois Duncan Edwards Ellis Evans Farrell Fernandez
Fischer Fisher Flores Ford Foster Fox Garcia Gibson Grant Gray Green Haas Hall Hansen Harper Hayes Hill Hoffman Holt Howard Hughes Hunt
Ibarra Ito Ivanov Jansen Jensen Jones Kaya Kelly Khan Kim King Klein Kovac Kumar Lambert Lang Larsen Lee Lewis Lind Lopez Marino
Marsh Martin Mason Meyer Miller Mills Molina Moore Morgan Moreau Murphy Nagy Nakamura Nelson Nolan Novak Olsen Ortiz Osman Owens Palmer
Park Parker Patel Perez Pereira Petrov Porter Price Quinn Ramos Reed Reyes Rhodes Rivera Rossi Rowe Ruiz Santos Sato Schmidt Shah
Silva Singh Smith Stone Suzuki Tanaka Taylor Torres Turner Vega Vogel Wagner Walsh Wang Ward Weber West White Wilson Wolf Wood Yamada Young
""")
ONSETS = listed("b br c ch cr d dr f fr g gl gr h j k kr l m n p pr r s sh sk st t th tr v w y z")
NUCLEI = listed("a a e e i i o o u ae ia")
MIDDLES = listed("b d dr g k l ll ld lm ln m mb n nd nn nr r rd rg rk rl rn rr s sh ss st t th v x z")
FEMALE_ENDS = listed("a a a ia ara ela ena eth ina ira is issa ith ora wen ya")
MALE_ENDS = listed("ak an ar ard as en ek er ik im in ion ir is mar o on or os uk und us")
BYNAMES = (
    listed(
        "Stone Iron Oak Ash Storm Silver Raven Wolf Bright Dark Long Swift Black White Red Winter Thorn River Moon Sun"
    ),
    listed(
        "hand foot wood brook fall blade song field born heart shield eye cloak water wind walker mane bane root well"
    ),
)

CITIES = rows("""
Paris|France|French
Lyon|France|French
Nice|France|French
Berlin|Germany|German
Hamburg|Germany|German
Munich|Germany|German
Vienna|Austria|German
Zurich|Switzerland|German
Madrid|Spain|Spanish
Barcelona|Spain|Spanish
Seville|Spain|Spanish
Lisbon|Portugal|Portuguese
Porto|Portugal|Portuguese
Rome|Italy|Italian
Milan|Italy|Italian
Naples|Italy|Italian
Athens|Greece|Greek
London|England|English
Manchester|England|English
Edinburgh|Scotland|English
Dublin|Ireland|English
Amsterdam|Netherlands|Dutch
Rotterdam|Netherlands|Dutch
Copenhagen|Denmark|Danish
Oslo|Norway|Norwegian
Bergen|Norway|Norwegian
Stockholm|Sweden|Swedish
Helsinki|Finland|Finnish
Warsaw|Poland|Polish
Krakow|Poland|Polish
Prague|Czech Republic|Czech
Budapest|Hungary|Hungarian
Bucharest|Romania|Romanian
Moscow|Russia|Russian
Istanbul|Turkey|Turkish
Ankara|Turkey|Turkish
Cairo|Egypt|Arabic
Casablanca|Morocco|Arabic
Nairobi|Kenya|Swahili
Lagos|Nigeria|English
Delhi|India|Hindi
Mumbai|India|Hindi
Tokyo|Japan|Japanese
Osaka|Japan|Japanese
Kyoto|Japan|Japanese
Seoul|South Korea|Korean
Beijing|China|Chinese
Shanghai|China|Chinese
Bangkok|Thailand|Thai
Hanoi|Vietnam|Vietnamese
Sydney|Australia|English
Melbourne|Australia|English
Toronto|Canada|English
Chicago|United States|English
Boston|United States|English
Mexico City|Mexico|Spanish
Havana|Cuba|Spanish
Lima|Peru|Spanish
Bogota|Colombia|Spanish
Santiago|Chile|Spanish
Buenos Aires|Argentina|Spanish
Sao Paulo|Brazil|Portuguese
""")
JOBS = rows("""
baker|bakery
teacher|school
nurse|hospital
doctor|hospital
surgeon|hospital
cook|restaurant
waiter|restaurant
chef|restaurant
farmer|farm
gardener|garden
librarian|library
mechanic|garage
pilot|airport
sailor|ship
judge|court
lawyer|law office
secretary|office
accountant|office
programmer|office
scientist|laboratory
chemist|laboratory
actor|theater
dancer|theater
butcher|butcher shop
tailor|tailor shop
barber|barber shop
cashier|supermarket
firefighter|fire station
police officer|police station
postman|post office
banker|bank
carpenter|workshop
painter|studio
photographer|studio
professor|university
student|university
miner|mine
soldier|army base
receptionist|hotel
zookeeper|zoo
""")
HOBBIES = """chess|painting|reading|swimming|cooking|hiking|singing|dancing|fishing|gardening|cycling|running|football|tennis|
photography|sewing|knitting|skiing|sailing|climbing|drawing|baking|yoga|poetry|astronomy|camping|pottery|bird watching|surfing|
playing the piano|playing the guitar|board games|collecting stamps|basketball|riding horses""".replace("\n", "").split(
    "|"
)
ITEMS = rows("""
chair|furniture|brown,white,black|wood,metal
table|furniture|brown,white|wood,glass
desk|furniture|brown,white,black|wood,metal
sofa|furniture|gray,brown,blue|leather,cotton
bed|furniture|white,brown|wood,metal
lamp|furniture|white,yellow,black|metal,glass
bookshelf|furniture|brown,white|wood
wardrobe|furniture|white,brown|wood
shirt|clothing|white,blue,black|cotton,silk
dress|clothing|red,blue,green|cotton,silk
jacket|clothing|black,brown,green|leather,wool
coat|clothing|black,gray,brown|wool
sweater|clothing|red,gray,green|wool
scarf|clothing|red,blue,gray|wool,silk
hat|clothing|black,brown|wool,straw
skirt|clothing|black,red|cotton
knife|kitchen|silver,black|steel
fork|kitchen|silver|steel
plate|kitchen|white,blue|porcelain
cup|kitchen|white,blue,red|porcelain,glass
pan|kitchen|black,silver|iron,steel
pot|kitchen|silver,black|steel,iron
kettle|kitchen|silver,red|steel
bowl|kitchen|white,green|porcelain,wood
laptop|electronics|silver,black,gray|metal,plastic
phone|electronics|black,white|glass,plastic
camera|electronics|black,silver|metal,plastic
television|electronics|black|plastic
radio|electronics|black,red|plastic
keyboard|electronics|black,white|plastic
printer|electronics|white,gray|plastic
doll|toys|pink,white|plastic,cotton
puzzle|toys|blue,green|paper,wood
toy car|toys|red,yellow,blue|metal,plastic
teddy bear|toys|brown,white|cotton,wool
kite|toys|red,yellow|paper,plastic
building blocks|toys|red,yellow,green|wood,plastic
shovel|garden|green,gray|steel,wood
rake|garden|green,brown|wood,steel
flower pot|garden|red,brown|clay
watering can|garden|green,blue|metal,plastic
garden hose|garden|green,yellow|rubber
ball|sports|white,orange|rubber,leather
tennis racket|sports|red,black|metal
helmet|sports|white,red,black|plastic
bicycle|sports|red,blue,green|metal
skateboard|sports|black,blue|wood
swimming goggles|sports|blue,black|plastic
ring|jewelry|gold,silver|gold,silver
necklace|jewelry|gold,silver|gold,silver
bracelet|jewelry|gold,silver|silver,gold
earrings|jewelry|gold,silver|gold,silver
notebook|stationery|blue,black,red|paper
pencil|stationery|yellow,black|wood
pen|stationery|blue,black|plastic,metal
stapler|stationery|black,red|metal,plastic
envelope|stationery|white,brown|paper
guitar|instruments|brown,black|wood
violin|instruments|brown|wood
drum|instruments|red,white|wood
flute|instruments|silver|metal,wood
trumpet|instruments|gold|brass
piano|instruments|black,white|wood
""")
STATUS = listed("new|pending|packed|shipped|delivered|cancelled|returned|open|closed|delayed", "|")
PAYMENT = listed("card|cash|bank transfer|invoice|gift card|check", "|")

# class | armor | weapons, the usual one first | items | mantras
CLASSES = rows("""
knight|plate|sword,lance|shield,banner,helmet,horse|Honor above all.;I protect the weak.
paladin|plate|sword,mace|holy symbol,shield,prayer book,silver cross|Light guides me.;I serve the light.
guard|plate|halberd,sword|keys,lantern,shield,horn|No one shall pass.;I stand my ground.
captain|plate|sword,halberd|map,banner,horn,helmet|Follow me!;Never leave a friend behind.
crusader|plate|mace,sword|holy symbol,shield,banner,prayer book|Faith is my shield.;For the light!
champion|plate|lance,sword|shield,helmet,golden belt,horse|I never give up.;Victory is mine.
ranger|leather|bow,knife|arrows,map,cloak,rope|The forest is my home.;I walk alone.
hunter|leather|bow,knife|arrows,trap,fur cloak,rope|Patience wins the hunt.;I never miss.
archer|leather|bow,dagger|arrows,gloves,cloak,quiver|One arrow is enough.;I never miss.
scout|leather|bow,dagger|map,rope,whistle,cloak|I see you first.;Quick and quiet.
thief|leather|dagger,knife|lockpick,rope,mask,gloves|What is yours is mine.;I am a shadow.
rogue|leather|dagger,knife|lockpick,poison,gloves,dice|Trust nobody.;I am a shadow.
bard|leather|dagger,rapier|lute,flute,songbook,feather hat|Every day is a song.;Music wins the heart.
wizard|leather|staff,wand|spellbook,potion,scroll,crystal|Knowledge is power.;Magic is everywhere.
mage|leather|staff,wand|spellbook,scroll,crystal,potion|The stars guide me.;Magic is everywhere.
sorcerer|leather|wand,staff|crystal,potion,magic ring,scroll|Fire obeys me.;Power is my birthright.
witch|leather|wand,staff|potion,herbs,cauldron,broom|Nature keeps secrets.;A spell for every day.
druid|leather|staff,wand|herbs,seeds,acorn,wooden bowl|Nature is my teacher.;All life is one.
monk|leather|staff,staff|prayer beads,candle,wooden bowl,bread|Peace of mind.;Silence is gold.
soldier|chainmail|spear,axe|shield,boots,water bottle,medal|For the king!;Orders are orders.
cleric|chainmail|mace,hammer|holy symbol,bandages,prayer book,candle|Peace to all.;Faith heals.
priest|chainmail|mace,hammer|holy symbol,candle,holy water,prayer book|Faith heals.;Bless this house.
mercenary|chainmail|axe,spear|gold coins,boots,contract,water bottle|Gold first.;No coin, no fight.
fighter|chainmail|axe,hammer|shield,torch,boots,bread|I fight to the end.;Never step back.
warrior|chainmail|axe,spear|shield,horn,medal,torch|I fear nothing.;Strength and honor.
blacksmith|chainmail|hammer,axe|coal,nails,iron gloves,bread|Iron never lies.;Hit it while it is hot.
""")
CLASS = {row[0]: (row[1], row[2].split(","), row[3].split(","), row[4].split(";")) for row in CLASSES}
CASTERS = ("wizard", "mage", "sorcerer", "witch", "druid", "monk")
RACES = listed("human|elf|dwarf|halfling|gnome|orc", "|")
USUAL_RACE = {
    "fighter": "dwarf",
    "blacksmith": "dwarf",
    "ranger": "elf",
    "archer": "elf",
    "druid": "elf",
    "thief": "halfling",
}
USUAL_RACE |= {
    "rogue": "halfling",
    "knight": "human",
    "paladin": "human",
    "captain": "human",
    "mercenary": "orc",
    "wizard": "gnome",
}
TRAITS = {
    "plate": listed("brave|honest|noble|proud|strong|mighty|heroic|just", "|"),
    "chainmail": listed("tough|loyal|steady|stubborn|hardy|rough|grim|patient", "|"),
    "leather": listed("nimble|quick|silent|agile|sneaky|swift|careful|lucky", "|"),
    "caster": listed("wise|clever|curious|learned|strange|old|calm|mysterious", "|"),
}
WEAPONS = sorted({weapon for row in CLASSES for weapon in row[2].split(",")})
ARMORS = ("leather", "chainmail", "plate")

EVENTS = """concert|meeting|wedding|football match|workshop|market|lecture|picnic|book club|fair|exhibition|festival|race|
chess tournament|birthday party|dinner|conference|play|film night|dance class|reading|garden party|training|party""".replace(
    "\n", ""
)
EVENT_NAMES = EVENTS.split("|")
PLACES = """town hall|city park|library|school gym|museum|old theater|main square|community center|football stadium|hotel|
restaurant|church|university|art gallery|castle|harbor|beach|train station|concert hall|cafe|office|garden""".replace(
    "\n", ""
)
PLACE_NAMES = PLACES.split("|")
MONTHS = listed("January February March April May June July August September October November December")
DAYS = listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")


def made_name(rng: random.Random, *, female: bool) -> str:
    """A name of syllables, which hardly ever comes twice."""
    name = rng.choice(ONSETS) + rng.choice(NUCLEI) + rng.choice(MIDDLES)
    if rng.random() < 0.25:
        name += rng.choice(NUCLEI) + rng.choice(MIDDLES)
    return (name + rng.choice(FEMALE_ENDS if female else MALE_ENDS)).capitalize()


def made_word(rng: random.Random) -> str:
    """A word of syllables or a code of digits and letters: something that can only be copied."""
    form = rng.random()
    if form < 0.5:
        return made_name(rng, female=rng.random() < 0.5)
    if form < 0.7:
        return str(rng.randrange(10, 100000))
    letters = "".join(rng.choice("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(rng.randint(1, 3)))
    return f"{letters}{rng.choice(('', '-'))}{rng.randrange(10, 10000)}"


def full_name(rng: random.Random, *, female: bool) -> str:
    """A person's name: usual or made, with or without a last name."""
    first = made_name(rng, female=female) if rng.random() < 0.35 else rng.choice(FEMALE if female else MALE)
    if rng.random() < 0.4:
        return first
    last = made_name(rng, female=False) if rng.random() < 0.3 else rng.choice(LAST)
    return f"{first} {last}"


def hero_name(rng: random.Random, *, female: bool) -> str:
    """The name of a character, mostly made."""
    first = rng.choice(FEMALE if female else MALE) if rng.random() < 0.25 else made_name(rng, female=female)
    return f"{first} {rng.choice(BYNAMES[0])}{rng.choice(BYNAMES[1])}" if rng.random() < 0.2 else first


def with_article(noun: str) -> str:
    """The noun as one carries it: `a rope`, but `arrows`."""
    return noun if noun.endswith("s") and not noun.endswith(("ss", "cross")) else a(noun)


def text(value: Value) -> str:
    """A value as a sentence or a line writes it."""
    return ", ".join(value) if isinstance(value, list) else str(value)


def entity(kind: str, values: dict[str, Value], *, name: str, female: bool) -> Entity:
    """The words of the values beside them."""
    words = {key: text(value) for key, value in values.items()}
    pronouns = ("she", "her", "her") if female else ("he", "his", "him")
    words |= {"he": pronouns[0], "his": pronouns[1], "him": pronouns[2]}
    words |= {"He": pronouns[0].capitalize(), "His": pronouns[1].capitalize(), "first": name.split(" ", maxsplit=1)[0]}
    words |= {
        f"a_{key}": with_article(words[key])
        for key in ("job", "workplace", "item", "class", "race", "weapon", "event")
        if key in words
    }
    words |= {f"a_{key}": a(words[key]) for key in ("trait", "color") if key in words}
    if "a_race" in words:
        words["A_race"] = capital(words["a_race"])
    if isinstance(items := values.get("items"), list):
        words["items"] = " and ".join(", ".join(with_article(item) for item in items).rsplit(", ", 1))
    return Entity(kind, values, words)


def person(rng: random.Random) -> Entity:
    """Somebody with a home, a job and a hobby."""
    female = rng.random() < 0.5
    name = full_name(rng, female=female)
    city, country, language = rng.choice(CITIES)
    job, workplace = rng.choice(JOBS)
    values: dict[str, Value] = {"name": name, "age": rng.randint(18, 90), "city": city, "country": country}
    values |= {"language": language, "job": job, "workplace": workplace, "hobby": rng.choice(HOBBIES)}
    values["phone"] = f"{rng.randrange(100, 1000)}-{rng.randrange(1000, 10000)}"
    return entity("person", values, name=name, female=female)


def order(rng: random.Random) -> Entity:
    """An order of one item."""
    female = rng.random() < 0.5
    customer = full_name(rng, female=female)
    item, category, colors, materials = rng.choice(ITEMS)
    number = rng.choice(("{0}", "{0}", "A{0}", "ORD-{0}", "{1}{0}", "#{0}")).format(
        rng.randrange(100, 100000), rng.choice("BCDEFGHKLMNPRST")
    )
    cents = rng.choice((0, 0, 25, 49, 75, 95, 99))
    price = rng.randint(2, 400)
    values: dict[str, Value] = {"order": number, "customer": customer, "item": item, "category": category}
    values |= {"color": rng.choice(colors.split(",")), "material": rng.choice(materials.split(","))}
    values |= {"quantity": rng.randint(1, 20), "price": price + cents / 100 if cents else price}
    values |= {"status": rng.choice(STATUS), "payment": rng.choice(PAYMENT)}
    return entity("order", values, name=customer, female=female)


def character(rng: random.Random, role: str | None = None) -> Entity:
    """A hero of a game: of the given class, or of any."""
    female = rng.random() < 0.5
    name = hero_name(rng, female=female)
    role = role or rng.choice(CLASSES)[0]
    armor, weapons, items, mantras = CLASS[role]
    trait = rng.choice(TRAITS["caster" if role in CASTERS else armor])
    noun = rng.choice((role, role, "fighter" if role not in CASTERS else role, "hero", "adventurer"))
    race = USUAL_RACE[role] if role in USUAL_RACE and rng.random() < 0.5 else rng.choice(RACES)
    values: dict[str, Value] = {"name": name, "description": f"{a(trait).capitalize()} {noun}.", "race": race}
    values |= {"class": role, "age": rng.randint(16, 99), "level": rng.randint(1, 20), "armor": armor}
    values |= {
        "weapon": rng.choice((weapons[0], weapons[0], weapons[-1])),
        "items": rng.sample(items, rng.randint(1, 3)),
    }
    values |= {
        "trait": trait,
        "mantra": rng.choice(mantras),
        "strength": rng.randint(3, 20),
        "gold": rng.randint(1, 500),
    }
    return entity("character", values, name=name, female=female)


def event(rng: random.Random) -> Entity:
    """Something that takes place, and who is responsible for it."""
    female = rng.random() < 0.5
    name = full_name(rng, female=female)
    day, month = rng.randint(1, 28), rng.choice(MONTHS)
    date = rng.choice(
        (f"{day} {month}", f"{month} {day}", rng.choice(DAYS), f"{day} {month} {rng.randint(1980, 2035)}")
    )
    hour = rng.randint(1, 11)
    time = rng.choice(
        (f"{hour} {rng.choice(('am', 'pm'))}", f"{rng.randint(8, 21)}:{rng.choice(('00', '15', '30', '45'))}")
    )
    values: dict[str, Value] = {"event": rng.choice(EVENT_NAMES), "date": date, "time": time}
    values |= {"place": rng.choice(PLACE_NAMES), "city": rng.choice(CITIES)[0], "who": name}
    return entity("event", values, name=name, female=female)


MAKERS = {"person": person, "order": order, "character": character, "event": event}
