"""Tables of the topic of countries: the countries themselves, and the words in which one asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from embedded_model import forms

CONTINENTS = ("Europe", "Asia", "Africa", "North America", "South America", "Oceania")

# continent -> country|capital|language|adjective; what is disputed or would mislead is left empty. Behind a plus sign: also
# said of the country by many, hence never offered as a wrong answer.
TABLE = {
    "Europe": """
    Albania|Tirana|Albanian|Albanian; Austria|Vienna|German|Austrian; Belarus|Minsk||; Belgium|Brussels||Belgian
    Bulgaria|Sofia|Bulgarian+Turkish|Bulgarian; Croatia|Zagreb|Croatian+Serbian+Bosnian|Croatian
    the Czech Republic|Prague|Czech+Slovak|Czech; Denmark|Copenhagen|Danish|Danish
    Estonia|Tallinn|Estonian+Russian|Estonian; Finland|Helsinki|Finnish+Swedish|Finnish; France|Paris|French|French
    Germany|Berlin|German|German; Greece|Athens|Greek|Greek; Hungary|Budapest|Hungarian|Hungarian
    Iceland|Reykjavik|Icelandic|Icelandic; Ireland|Dublin|English|Irish; Italy|Rome|Italian|Italian
    Latvia|Riga|Latvian+Russian|Latvian; Lithuania|Vilnius|Lithuanian+Russian|Lithuanian
    Malta|Valletta|Maltese+English+Italian|Maltese; Moldova|Chisinau|Romanian+Russian|Moldovan
    the Netherlands|Amsterdam|Dutch|Dutch; North Macedonia|Skopje|Macedonian+Albanian+Bulgarian|
    Norway|Oslo|Norwegian|Norwegian; Poland|Warsaw|Polish|Polish; Portugal|Lisbon|Portuguese|Portuguese
    Romania|Bucharest|Romanian+Hungarian|Romanian; Serbia|Belgrade|Serbian+Croatian+Bosnian|Serbian
    Slovakia|Bratislava|Slovak+Czech+Hungarian|Slovak; Slovenia|Ljubljana|Slovenian|Slovenian
    Spain|Madrid|Spanish+Catalan|Spanish; Sweden|Stockholm|Swedish+Finnish|Swedish; Switzerland|Bern||Swiss
    Ukraine|Kyiv|Ukrainian+Russian|Ukrainian; the United Kingdom|London|English|British
    """,
    "Europe+Asia": "Russia|Moscow|Russian|Russian",
    "Asia+Europe": "Turkey|Ankara|Turkish|Turkish; Kazakhstan|Astana|Kazakh+Russian|Kazakh",
    "": """
    Armenia|Yerevan|Armenian+Russian|Armenian; Azerbaijan|Baku|Azerbaijani+Turkish+Russian|
    Cyprus|Nicosia|Greek+Turkish+English|; Georgia|Tbilisi|Georgian+Russian|Georgian
    """,
    "Asia": """
    Afghanistan|Kabul||Afghan; Bahrain|Manama|Arabic+English|; Bangladesh|Dhaka|Bengali+English+Hindi+Urdu|
    Cambodia|Phnom Penh|Khmer|Cambodian; China|Beijing|Chinese|Chinese
    India|New Delhi|Hindi+English+Bengali+Urdu|Indian; Iran|Tehran|Persian|Iranian; Iraq|Baghdad|Arabic|Iraqi
    Israel||Hebrew+Arabic+Russian|; Japan|Tokyo|Japanese|Japanese; Jordan|Amman|Arabic+English|Jordanian
    Kuwait|Kuwait City|Arabic+English|; Kyrgyzstan|Bishkek|Kyrgyz+Russian|Kyrgyz; Laos|Vientiane|Lao+Thai|
    Lebanon|Beirut|Arabic+French+English+Armenian|Lebanese
    Malaysia|Kuala Lumpur|Malay+English+Chinese+Indonesian|Malaysian; Mongolia|Ulaanbaatar|Mongolian|Mongolian
    Myanmar|Naypyidaw|Burmese|; Nepal|Kathmandu|Nepali+Hindi|; North Korea|Pyongyang|Korean|
    Oman|Muscat|Arabic+English|Omani; Pakistan|Islamabad|Urdu+English+Hindi|Pakistani
    the Philippines|Manila|Filipino+English|Filipino; Qatar|Doha|Arabic+English|; Saudi Arabia|Riyadh|Arabic|Saudi
    Singapore|||; South Korea|Seoul|Korean|; Sri Lanka||Sinhala+English|Sri Lankan; Syria|Damascus|Arabic|Syrian
    Tajikistan|Dushanbe|Tajik+Persian+Russian+Uzbek|Tajik; Thailand|Bangkok|Thai+Lao|Thai
    Turkmenistan|Ashgabat|Turkmen+Russian|; the United Arab Emirates|Abu Dhabi|Arabic+English+Hindi+Urdu|
    Uzbekistan|Tashkent|Uzbek+Russian+Tajik|Uzbek; Vietnam|Hanoi|Vietnamese|Vietnamese; Yemen|Sanaa|Arabic|Yemeni
    """,
    "Asia+Oceania": "Indonesia|Jakarta|Indonesian+Malay|Indonesian",
    "Africa+Asia": "Egypt|Cairo|Arabic|Egyptian",
    "Africa": """
    Algeria|Algiers|Arabic+French|Algerian; Angola|Luanda|Portuguese|Angolan
    Burundi|Gitega|Kirundi+French+English+Swahili+Kinyarwanda|; Cameroon|Yaounde||; Chad|N'Djamena||
    DR Congo|Kinshasa||; Ethiopia|Addis Ababa|Amharic+Somali+English+Tigrinya|Ethiopian; Gabon|Libreville|French|
    Ghana|Accra|English|Ghanaian; the Ivory Coast|Yamoussoukro|French|; Kenya|Nairobi|Swahili+English+Somali|Kenyan
    Liberia|Monrovia|English|Liberian; Libya|Tripoli|Arabic|Libyan; Madagascar|Antananarivo|Malagasy+French|
    Mali|Bamako||Malian; Mauritania|Nouakchott|Arabic+French|; Morocco|Rabat|Arabic+French+Spanish|Moroccan
    Mozambique|Maputo|Portuguese+Swahili|; Niger|Niamey||; Nigeria|Abuja|English|Nigerian
    Rwanda|Kigali|Kinyarwanda+English+French+Swahili+Kirundi|Rwandan; Senegal|Dakar||Senegalese
    Somalia|Mogadishu|Somali+Arabic|Somali; South Africa|Pretoria||South African
    Sudan|Khartoum|Arabic+English|Sudanese; Tanzania|Dodoma|Swahili+English|Tanzanian
    Tunisia|Tunis|Arabic+French|Tunisian; Uganda|Kampala||Ugandan; Zambia|Lusaka||Zambian; Zimbabwe|Harare||
    """,
    "North America": """
    the Bahamas|Nassau|English|; Barbados|Bridgetown|English|; Canada|Ottawa|English+French|Canadian
    Costa Rica|San Jose|Spanish|Costa Rican; Cuba|Havana|Spanish|Cuban; the Dominican Republic|Santo Domingo|Spanish|
    El Salvador|San Salvador|Spanish|; Guatemala|Guatemala City|Spanish|; Haiti|Port-au-Prince||Haitian
    Honduras|Tegucigalpa|Spanish|; Jamaica|Kingston|English|Jamaican; Mexico|Mexico City|Spanish|Mexican
    Nicaragua|Managua|Spanish|; Trinidad and Tobago|Port of Spain|English+Spanish+Hindi|
    the United States|Washington|English+Spanish|American
    """,
    "North America+South America": "Panama|Panama City|Spanish|",
    "South America": """
    Argentina|Buenos Aires|Spanish+Italian|Argentine; Bolivia||Spanish|Bolivian; Brazil|Brasilia|Portuguese|Brazilian
    Chile|Santiago|Spanish|Chilean; Colombia|Bogota|Spanish|Colombian; Ecuador|Quito|Spanish|
    Guyana|Georgetown|English+Hindi|; Paraguay|Asuncion||; Peru|Lima|Spanish|Peruvian; Suriname|Paramaribo|Dutch+English+Hindi|
    Uruguay|Montevideo|Spanish|; Venezuela|Caracas|Spanish|
    """,
    "Oceania": """
    Australia|Canberra|English|Australian; Fiji|Suva||; New Zealand|Wellington|English|
    Papua New Guinea|Port Moresby||; Samoa|Apia|Samoan+English|Samoan; Tonga|Nuku'alofa|Tongan+English|Tongan
    """,
}


@dataclass(frozen=True, slots=True, eq=False)
class Country:
    """A row of the table; `also`: further languages and continents that many would accept."""

    name: str
    capital: str
    continent: str
    language: str
    adjective: str
    also: frozenset[str]


def _rows() -> Iterator[Country]:
    for continents, text in TABLE.items():
        continent, *beside = continents.split("+")
        for row in text.strip().replace("\n", ";").split(";"):
            name, capital, languages, adjective = (cell.strip() for cell in row.split("|"))
            language, *others = languages.split("+")
            yield Country(name, capital, continent, language, adjective, frozenset([*beside, *others]))


COUNTRIES = tuple(_rows())


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """What one can ask of a country. c: the country, C: the same to begin a sentence, p and P: possessive, k: the capital,
    d: the adjective."""

    questions: tuple[str, ...]
    statements: tuple[str, ...]
    keys: tuple[str, ...]


# "I am going to ...", said before a question.
TRIP = "[I am|I'm|We are] [going|travelling|flying|moving] to {c}[| soon| tomorrow| next week| next year| in summer]."
NATION = "[country|country|nation]"

CAPITAL = Relation(
    questions=(
        "What is the capital of {c}?",
        "What is the [capital|capital city] of {c}?",
        "What's the [capital|capital city] of {c}?",
        "[Which|What] city is the capital of {c}?",
        "[Can|Could] you [tell me|name|say|give me] the [capital|capital city] of {c}?",
        "[Please tell|Tell|Please give|Give] me the [capital|name of the capital] of {c}.",
        "[Name|Please name|Say] the [capital|capital city] of {c}.",
        "I [want|would like] to [know|visit] the capital city of {c}. What is [it|its name|it called]?",
        "[Do you know|Please tell me|Please say] [the capital of {c}|what the capital of {c} is|what the capital of {c} is called]?",
        "What is {p} [capital|capital city]?",
        "What is {p} capital called?",
        "[Capital|Capital city] of {c}?",
        "[Which|What] city serves as the capital of {c}?",
        "What is the {d} capital?",
        "[Which|What] city is the {d} capital?",
        "In {c}, [which|what] city is the capital?",
        "The capital of {c} is [what|which|what city|which city]?",
        "The capital of {c} is called what?",
        "[Which|What] is the capital [city |]of the [country|nation] {c}?",
        "What is the name of the [capital|capital city] of {c}?",
        TRIP + " What is the [capital|capital city] there?",
        TRIP + " [Which|What] city is the capital?",
        "I [forgot|need|want to know] the capital of {c}. [What is it|What is it called|Which city is it]?",
        "Which capital [city |]does {c} have?",
        "What does {c} have as its capital[ city|]?",
        "{C}: what is the capital?",
        "We want to visit the capital of {c}. [What is it called|Which city is that]?",
    ),
    statements=(
        "The [capital|capital city] of {c} is",
        "The [capital|capital city] of {c} is",
        "{P} [capital|capital city] is",
        "The capital of {c} is [called|the city of]",
        "{C} has a capital [called|city called|named|with the name]",
        "{C} has as its capital the city of",
        "In {c}, the [capital|capital city] is",
        "The {d} capital is",
        "As everyone [there |]knows, the capital of {c} is",
        "The city that is the capital of {c} is",
        "The name of the capital of {c} is",
        "I went to {c} and visited the capital,",
        "She lives in the capital of {c}, [in|which is|that is, in]",
        "We [flew|went|travelled] to {c} and stayed in the capital,",
        "When you visit {c}, go to the capital,",
        "We are in the capital of {c}, [so we are in|in]",
    ),
    keys=(
        "Capital of {c}",
        "Capital of {c}",
        "Capital city of {c}",
        "{P} capital",
        "{C} - capital",
        "{C}, capital city",
    ),
)
COUNTRY = Relation(
    questions=(
        "[Which|What] " + NATION + " has {k} as its [capital|capital city]?",
        "[What|Which] " + NATION + " is {k} the [capital|capital city] of?",
        "{k} is the [capital|capital city] of [which|what] country?",
        "{k} is the capital of [which|what] [country|nation]?",
        "Of [which|what] " + NATION + " is {k} the capital?",
        "[Which|What] [country's|nation's] capital is {k}?",
        "[Name|Tell me|Please name|Give me] the " + NATION + " whose capital is {k}.",
        "The capital of [which|what] " + NATION + " is {k}?",
        "In [which|what] country is [the capital |the city of |]{k}?",
        "[Which|What] country is {k} in?",
        "{k} is a capital city. Of [which|what] country?",
        "[Which|What] country has the capital [city |]{k}?",
        "[Which|What] country has a capital [called|named|with the name] {k}?",
        "I live in {k}, the capital. [Which|What] country [is that|do I live in]?",
        "[Can|Could] you tell me which country {k} is the capital of?",
        "[Do you know|I would like to know|I want to know|Say] [which|what] country {k} is the capital of[?|.]",
        "The [capital|capital city] is {k}. [What|Which] is the country?",
        "If the capital is {k}, [what|which] is the country?",
        "I [was|am] in {k}, a capital city. [Which|What] country [was|is] that?",
        "{k}: capital of [which|what] country?",
        "Capital {k}: [which|what] country?",
        "[In which country does the city of {k} lie|To which country does the city of {k} belong]?",
    ),
    statements=(
        "{k} is the [capital|capital city] of",
        "{k} is the [capital|capital city] of",
        "The city of {k} is the capital of",
        "The [country|nation] whose capital is {k} is",
        "The [country|nation] with {k} as its capital is",
        "The capital city {k} [lies|is] in",
        "{k} is [a city|the capital city|the main city] in",
        "{k} serves as the capital of",
        "If you are in {k}, you are in the capital of",
        "Someone who lives in {k} lives in the capital of",
        "I know the city of {k}. It is the capital of",
        "We visited {k}, [the capital of|which is the capital of]",
        "[She|He|I] was in {k} last [week|month|year|summer], [in|and that is] the capital of",
        "The country that has the capital {k} is",
        "People who live in {k} live in the capital of",
        "The country with a capital [called|named] {k} is",
    ),
    keys=(
        "{k} is the capital of",
        "Country of {k}",
        "Country whose capital is {k}",
        "{k}, capital of",
        "Country with the capital {k}",
    ),
)
CONTINENT = Relation(
    questions=(
        "[What|Which] continent is {c} [in|on|part of|located in]?",
        "[What|Which] continent is {c} [in|on]?",
        "[On|In] [which|what] continent [is|lies] {c}?",
        "[On|In] [which|what] continent is {c} located?",
        "[Which|What] part of the world is {c} in?",
        "In [which|what] part of the world is {c}?",
        "[Continent|The continent] of {c}?",
        "[Name|Tell me|Please name|Give me] the continent of {c}.",
        "[Tell me|Please tell me|Say|I would like to know] [which|what] continent {c} [is in|is on|lies in].",
        "To [which|what] continent does {c} belong?",
        "[Which|What] continent does {c} belong to?",
        "{C} is [in|on] [which|what] continent?",
        "{C} [belongs to|lies on|is part of] [which|what] continent?",
        "What is {p} continent?",
        "What is the continent of {c}?",
        "[On|In] [which|what] continent [can|do|would] you find {c}?",
        TRIP + " [Which|What] continent is that?",
        TRIP + " On [which|what] continent is [it|that country]?",
        "{C} is a country on which continent?",
        "[Can|Could] you tell me on which continent {c} is?",
        "{C}: which continent?",
        "Where does {c} lie, on [which|what] continent?",
        "Do you know [the|which] continent {c} [belongs to|lies on|is part of]?",
        "On the map of the world, [which|what] continent is {c} in?",
        "[Which|What] continent has {c} as one of its countries?",
        "I am looking for {c} on [a map|the map]. Which continent [is it on|is it in]?",
        "Where can {c} be found, on [which|what] continent?",
    ),
    statements=(
        "{C} is [a country |a nation |]in",
        "{C} is [a country |located |]in",
        "{C} lies [in|on the continent of]",
        "{C} is on the continent [of|called]",
        "{C} is [a country on|part of] the continent of",
        "{C} belongs to the continent of",
        "The continent of {c} is",
        "{P} continent is",
        "The country {c} [lies in|is in|is part of|can be found in]",
        "You [find|will find|can find] {c} [on a map of|in]",
        "The continent that {c} [is on|is part of|belongs to] is",
        "Look for {c} on the map of",
        "A trip to {c} is a trip to",
        "Someone who lives in {c} lives [on the continent of|in]",
        "If you fly to {c}, you fly to",
        "On [the map|a map|the map of the world], {c} is in",
        "In the world, {c} is one of the countries of",
        "{C} is one of the [countries|nations] [in|of]",
    ),
    keys=("Continent of {c}", "Continent of {c}", "{P} continent", "{C} - continent", "{C}, continent"),
)
LANGUAGE = Relation(
    questions=(
        "[What|Which] language [do people|do they|do most people] speak in {c}?",
        "[What|Which] language is spoken in {c}?",
        "[What|Which] language [do you|will you|would you|do I] hear on the streets of {c}?",
        "What is the [main|official|main|most common] language [of|in] {c}?",
        "What's the [main |]language [of|in] {c}?",
        "[Language|Main language] [of|in] {c}?",
        "What do people in {c} speak?",
        "In {c}, [which|what] language do [people|they|most people] speak?",
        "[Tell me|Name|Please name|Give me] the [main |]language [of|spoken in|in] {c}.",
        "What is {p} [main |official |]language?",
        "[Which|What] language should I learn for {c}?",
        TRIP + " [Which|What] language [should I learn|do people speak there|is spoken there]?",
        "[What|Which] language does [a person|someone|a child|a teacher] from {c} speak?",
        "If I travel to {c}, [which|what] language will I hear?",
        "The main language of {c} is [which one|which language|what]?",
        "[Which|What] language do people who live in {c} speak?",
        "People [in|from] {c} speak [which|what] language?",
        "I [am going to visit|live in|want to live in] {c}. [Which|What] language [should I learn|should I speak|will I hear]?",
        "[Do you know|Can you tell me] which language people speak in {c}?",
        "[I would like|I want] to know the language of {c}. [What is it|Which one is it]?",
        "[Which|What] is the language of the people [in|of] {c}?",
        "{C}: [which|what] language?",
        "[What|Which] language do children in {c} learn [first|to speak]?",
        "How do people talk to each other in {c}, in [which|what] language?",
        "In [which|what] language do people [talk|write|talk to each other] in {c}?",
    ),
    statements=(
        "[Most people|People|The people] in {c} speak",
        "[Most people|People] [who live in|from] {c} speak",
        "The [main|official|main|most common] language [of|in] {c} is",
        "The [main|official] language [of|in] {c} is",
        "In {c}, [most people|people|they] speak",
        "The language [of|spoken in|that people speak in] {c} is",
        "{C} is a country where [people|most people] speak",
        "{P} [main |official |]language is",
        "To talk to people in {c}, you [should learn|should speak|need]",
        "[Children|Most children] in {c} [learn to speak|speak|grow up with]",
        "[A teacher|A doctor|A farmer|Someone] [in|from] {c} speaks",
        "The people of {c} talk to each other in",
        "When I was in {c}, everyone spoke",
        "[On the streets|In the shops|On the streets] of {c}[,|] you [hear|will hear]",
        "When you [are in|go to|visit] {c}, [you hear|people speak|learn|speak]",
        "If you go to live in {c}, learn",
        "Books and newspapers in {c} are [often |mostly |]in",
        "The language you hear in {c} is",
    ),
    keys=(
        "Language of {c}",
        "Main language of {c}",
        "Language spoken in {c}",
        "{P} language",
        "{C} - language",
        "{C}, main language",
    ),
)
RELATIONS = (CAPITAL, COUNTRY, CONTINENT, LANGUAGE)
SHARES = (34, 28, 19, 19)

PROSE = (
    "{C} is a "
    + NATION
    + " in {t}. Its capital is {k}[, and people there speak|. People there speak|. The main language is] {l}.",
    "{k} is the [capital|capital city] of {c}[, a country in| in] {t}. The [main |official |]language is {l}.",
    "In {c}[, which is in {t},|] people speak {l}. The capital of {c} is {k}. {C} is in {t}.",
    "[Most people|People] in {c} speak {l}. The country is in {t}[ and its capital is| and has the capital|. Its capital is called] {k}.",
    "I [would like|want] to visit {c}. It is a country in {t}, and [its|the] capital is {k}. I am learning {l}, because people there speak {l}.",
    "My [friend|sister|brother|teacher|uncle|aunt] lives in {k}, the capital of {c}. {C} is [a country |]in {t}. [He|She] speaks {l} [there|every day].",
    "We went to {k} last [summer|year|winter|month]. {k} is the capital of {c}, in {t}. [We heard {l} on the streets|Everyone spoke {l}].",
    "[Where is {c}?|Which continent is {c} in?] It is in {t}. [What is its capital?|And the capital?] It is {k}. [What do people speak?|And the language?] {l}.",
    "{C} is on the continent of {t}. {P} capital is {k}, and its [main |]language is {l}.",
    "On the map of {t} you can find {c} with its capital {k}. The people [there |of {c} ]speak {l}.",
)
LABELS = (("country", "c"), ("capital", "k"), ("continent", "t"), ("language", "l"))
FOLLOW_UPS = {
    "k": ("[And what|What] is [its|the] capital?", "And [the|its] capital?", "[Which|What] city is the capital there?"),
    "t": (
        "[And which|Which] continent is it [in|on]?",
        "And the continent?",
        "Where is it, on [which|what] continent?",
    ),
    "l": (
        "[And what|What|Which] language do people speak there?",
        "And the [main |]language?",
        "What do they speak there?",
    ),
}

# Said of countries that share a continent or a language: <r> and <l> are their names, <s> is what they share.
SHARED = {
    CONTINENT: (
        "<R> and <l> are [all |]countries in <s>.",
        "<R> and <l> are [in|on the continent of] <s>.",
        "[Some countries|Countries] in <s>[ are|:] <r> and <l>.",
        "To <s> belong <r> and <l>.",
    ),
    LANGUAGE: (
        "[People|Most people] in <r> and <l> speak <s>.",
        "<s> is [spoken|the main language] in <r> and <l>.",
        "[Some countries|Countries] where people speak <s>[ are|:] <r> and <l>.",
        "[In|Both in] <r> and in <l>, people speak <s>.",
    ),
}

# (layout, question or beginning of a sentence), never used by documents.
QA, LONG, LINE, PLAIN = "Q: <p>\nA:", "Question: <p>\nAnswer:", "<p>\nAnswer:", "<p>"
CHAT = f"{forms.USER}<p>{forms.END}{forms.ASSISTANT}"
HELD_OUT: dict[str, tuple[int, tuple[tuple[str, str], ...]]] = {
    "capital": (
        104,
        (
            (QA, "Which city does {c} have as its capital?"),
            (LONG, "Please say what the capital city of {c} is called."),
            (PLAIN, "If you visit the capital of {c}, you are in"),
            (CHAT, "I would like to know the capital of {c}."),
            (LINE, "Which city is the capital of the country called {c}?"),
            (PLAIN, "The city that {c} has as its capital is"),
            (QA, "do you know which city is {p} capital"),
        ),
    ),
    "country": (
        84,
        (
            (QA, "The city {k} is the capital of what country?"),
            (LONG, "Name the country that has {k} as its capital city."),
            (PLAIN, "Last summer I was in {k}, and {k} is the capital of"),
            (CHAT, "I would like to know which country has {k} as its capital."),
            (LINE, "Which is the country whose capital city is {k}?"),
            (PLAIN, "The name of the country with the capital city {k} is"),
            (QA, "what country is the city of {k} the capital of"),
        ),
    ),
    "continent": (
        72,
        (
            (QA, "Which continent does {c} lie on?"),
            (LONG, "{C} can be found on what continent?"),
            (PLAIN, "On a map of the world, you find the country {c} in"),
            (CHAT, "I want to know the continent that {c} belongs to."),
            (LINE, "What is the name of the continent that {c} is part of?"),
            (PLAIN, "The continent where {c} lies is"),
            (QA, "what's the continent that {c} is on"),
        ),
    ),
    "language": (
        72,
        (
            (QA, "People who live in {c} speak which language?"),
            (LONG, "Which language is the main one in {c}?"),
            (PLAIN, "When you are in {c}, you hear people speak"),
            (CHAT, "I am going to live in {c}. What language should I learn to speak?"),
            (LINE, "What is the language that most people speak in {c}?"),
            (PLAIN, "On the streets of {c}, people talk to each other in"),
            (QA, "which is the language they speak in {c}"),
        ),
    ),
}
OF_RELATION = {"capital": CAPITAL, "country": COUNTRY, "continent": CONTINENT, "language": LANGUAGE}
