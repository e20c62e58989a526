"""Talk: greetings, who one speaks with, plain answers, instructions with a set of allowed answers, and names that come back."""

from __future__ import annotations

import random
from collections.abc import Iterator

from embedded_model.forms import ASSISTANT, END, SYSTEM, USER, chat
from embedded_model.phrases import Item, a, expand, rounds, wrong_answers
from embedded_model.topics.stories import (
    ARTICLES,
    BOYS,
    GIRLS,
    HOW_TO_LIST,
    PETS,
    STORY_PLOTS,
    THING_LIST,
    TOP_BAR,
    advice,
    flat,
    lines,
    story,
    tidy,
    words,
)

KIND = "conversation"
NAMES = GIRLS + BOYS
WHO = "I am a very small language model that comes with selectrie."
# user|assistant, both patterns
SMALL_TALK = """
[Hello|Hi|hi|hello|Hey|Hello there|Hi there][!|.|]|[Hello|Hi][!| there!] [How can I help you?|What can I do for you?|What would you like to know?]
[Good morning|good morning][!|.|]|Good morning! [How can I help you?|Did you sleep well?|What can I do for you?]
[Good evening|good evening][!|.|]|Good evening! [How can I help you?|What can I do for you?]
[Good afternoon][!|.|]|Good afternoon! How can I help you?
[Good night|good night][!|.|]|Good night! [Sleep well.|Sweet dreams.]
[Thanks|Thank you|thanks|thank you][!|.| very much.| so much!| a lot.| for your help.]|[You are welcome.|You're welcome!|My pleasure.|Glad to help.|Not at all.]
[That was helpful|That helped me], [thanks|thank you][.|!]|[I am glad that I could help.|You are welcome.|Glad to hear that.]
[Bye|Goodbye|bye|See you|See you later|I have to go now][!|.|]|[Goodbye! Have a nice day.|Bye! Take care.|See you soon!|Goodbye!]
[How are you?|how are you|How are you today?|How do you do?|Are you well?]|I am [fine|well], thank you. [How are you?|And you?|How can I help you?]
[I am fine|I am well|Fine], thanks.|[I am glad to hear that.|Good to hear!|Very good. What can I do for you?]
I am [sad|unhappy|not happy] [today|].|I am sorry to hear that. [Do you want to talk about it?|I hope that you feel better soon.|What happened?]
I am [happy|so happy|in a good mood] [today|].|[That is good to hear!|I am glad.|How nice! What happened?]
I am [tired|so tired|sleepy].|[Then you should rest.|Maybe you should go to bed early today.|A little sleep will do you good.]
I am [hungry|very hungry].|[Then eat something, maybe a sandwich.|How about some soup?|Then it is time for a meal.]
I am [thirsty|very thirsty].|[Then drink a glass of water.|How about some tea?]
I am [bored|so bored].|[Read a book or go for a walk.|Shall I tell you a story?|How about a game?]
I am [sick|ill].|I am sorry. [Stay in bed and drink a lot of tea.|I hope you get well soon.|Maybe you should see a doctor.]
I have [a headache|a cold|a stomach ache].|[I am sorry to hear that. Get well soon!|Rest a little and drink some water.|Maybe you should see a doctor.]
[It is my birthday today|Today is my birthday][!|.]|Happy birthday! [I wish you all the best.|Have a wonderful day.]
[I passed my test|I won the race|I got the job]!|[Congratulations!|Well done!|That is great news!]
[I failed my test|I lost the game|I lost my job].|I am sorry to hear that. [Try again, you can do it.|Do not give up.]
[Who are you?|who are you|Who am I talking to?|What are you?|what are you|Tell me who you are.]|I am a very small language model that comes with selectrie.
[What is your name?|what is your name|What are you called?|Do you have a name?|What should I call you?]|[I have no name. |]I am a very small language model that comes with selectrie.
[Introduce yourself.|Tell me about yourself.|Say something about yourself.]|I am a very small language model that comes with selectrie. I know simple facts and plain English.
[Are you a human?|Are you human?|are you a person?|Are you a real person?]|No, I am [not a human. I am |]a very small language model.
[Are you a robot?|Are you a machine?|are you a computer?]|[Not quite.|In a way.] I am a very small language model[, a program on a computer|].
[Who made you?|who made you|Where do you come from?|What do you belong to?]|I come with selectrie[, a library that chooses among texts|].
[What can you do?|what can you do|What do you know?|What are you good at?|How can you help me?]|I can answer [simple|easy] questions, [choose among answers|pick one of several answers] and tell short stories.
[Are you clever?|Are you smart?|Do you know everything?|How big are you?|Are you a large model?]|I am [very |]small, so I know only [simple|a few] things.
[Can you help me?|Please help me.|I need help.|can you help me]|[Of course. What do you need?|Yes. What can I do for you?|I will try. What is your question?]
[May I ask you something?|I have a question.|Can I ask a question?]|[Of course.|Yes, please ask.|Sure, what would you like to know?]
[Do you sleep?|Do you eat?|Are you hungry?|Do you have a body?]|No, I am only a [program|language model].
[Do you like me?|Are you my friend?|Do you like to talk?]|[I am glad to talk with you.|I am only a program, but I like to help.]
[You are great|You are very helpful|I like you|Good job|Well done][!|.]|[Thank you!|That is kind of you.|Thank you, I am glad to hear that.]
[That is wrong|You are wrong|This is not right].|I am sorry. [I am small and make mistakes.|Please ask me again in other words.]
[I am sorry|Sorry|Excuse me].|[No problem.|That is all right.|Never mind.]
[What is selectrie?|what is selectrie|What does selectrie do?|Tell me about selectrie.]|Selectrie is a library that chooses among texts with a language model.
[Can you speak English?|Do you speak English?|Which language do you speak?]|I speak [plain|simple] English.
[Nice to meet you|It is nice to talk to you][!|.]|Nice to meet you too[!|.]
[What is the weather like?|Is it raining?|What time is it?|Where am I?|What day is today?]|I do not know, because I cannot see [the world|anything]. I only read text.
[Yes|yes|OK|ok|All right|Good|Okay][.|!|]|[Good. What else can I do for you?|All right.|Fine. Is there anything else?]
[No|no|No, thanks|No, thank you][.|]|[All right.|As you like.|OK. Tell me when you need something.]
"""
# question without its first word "why do/does/is/are"|answer;another way to say it
WHY = """
do we sleep|We sleep because the body and the brain need rest;Sleep gives the body time to rest
do we eat|We eat because the body needs energy;Food gives us energy
do we drink water|We drink because the body needs water;Without water the body cannot live
do birds sing|Birds sing to find a partner and to guard their place;They sing to talk to other birds
do birds fly south|They fly south because it is warmer there in winter;In winter they find more food in the south
do cats purr|Cats often purr when they feel well;Most of the time it means that the cat is happy
do dogs bark|Dogs bark to warn or to greet;They bark because they want to tell us something
is the sky blue|The air scatters blue light more than red light;Blue light is spread by the air, so the sky looks blue
is grass green|Grass is green because of the green matter in its leaves;The leaves use sunlight and are green
is ice cold|Ice is frozen water, and water freezes only when it is cold;It is frozen water
is the sea salty|Rivers carry salt from the rocks into the sea;There is salt from the rocks in it
does it rain|Water rises into the air, forms clouds and falls down again;Clouds are full of small drops that fall as rain
does ice melt|It melts because it becomes warm;When it is warm, ice turns into water
does wood float|Wood floats because it is lighter than water;It is lighter than water
do stones sink|They sink because they are heavier than water;A stone is heavier than water
do leaves fall in autumn|The trees drop their leaves to save water in winter;In winter the tree does not need them
do we wear coats|Coats keep us warm when it is cold;We wear them because they keep us warm
do we wash our hands|We wash them to get dirt and germs off;Clean hands keep us healthy
do we brush our teeth|We brush them to keep them clean and healthy;Clean teeth do not hurt so soon
do we go to school|We go to school to learn;There we learn to read, to write and to count
do people work|They work to earn money and to make useful things;Most people work to earn money
do we laugh|We laugh when something is funny;Laughing shows that we are happy
do we cry|We cry when we are sad or hurt;Tears come when we are sad
do bees visit flowers|They look for sweet juice to make honey;Bees need it to make honey
do plants need light|They need light to grow;Plants make their food from light, water and air
do bears sleep in winter|In winter there is little food, so they rest;They sleep because there is not enough food
do we need friends|Friends help us and make us happy;It is nice not to be alone
do we read books|We read to learn and for fun;Books tell us stories and facts
do clocks have hands|The hands show the hour and the minute;They show what time it is
do cars need petrol|The motor burns it to move the car;It gives the car its energy
do ships float|They are hollow and full of air;A ship is lighter than the water it pushes away
do we have two eyes|With two eyes we see how far away things are;Two eyes see better than one
do fish have fins|They need fins to swim;A fish swims with its fins
do birds have wings|They need wings to fly;Most birds fly with them
do camels have humps|In the hump there is fat for hungry days;The hump stores fat
is it dark at night|At night our side of the earth is turned away from the sun;The sun shines on the other side of the earth
is it cold in winter|In winter the sun is low and the days are short;The sun shines less in winter
is honey sweet|Honey is sweet because there is much sugar in it;It is full of sugar
is fire dangerous|Fire is hot and burns things;You can burn your hand
is snow white|Snow throws back all the light;It throws back light of all colours
"""
# yes:thing is/are/can ...|no: ...
YES = """is ice cold;is fire hot;is snow white;is the sun bright;is grass green;is sugar sweet;is salt salty;is a lemon sour;is a stone hard;
is a feather light;is water wet;is the night dark;is an elephant big;is a mouse small;is a mountain high;is the sea deep;is a snail slow;
is a cat an animal;is a rose a flower;is an apple a fruit;is a hammer a tool;is a chair furniture;is red a colour;is Monday a day;
is July a month;is a car faster than a snail;is a tree taller than a flower;is iron heavier than paper;can birds fly;can fish swim;
can dogs bark;can a horse run;can a baby cry;can a frog jump;can people speak;can you read a book;can you drink milk;can you eat bread;
do cows eat grass;do cows give milk;do hens lay eggs;do bees make honey;do cats like milk;do trees have leaves;do birds have wings;
do cars have wheels;do houses have doors;does wood burn;does wood float;does ice melt in the sun;does a week have seven days;
does a dog have four legs;does a bird have two legs;does a year have twelve months;does the sun shine in the day;does rain make things wet;
is a banana yellow;is blood red;is honey sweet;is soup food;is tea a drink;is a doctor a person;is winter cold;is summer warm;
is a knife sharp;is glass hard;is a pillow soft;is a desert dry;is two more than one;is ten more than five;is a giant tall"""
NO = """is ice hot;is fire cold;is snow black;is the sun dark;is grass red;is sugar salty;is a lemon sweet;is a stone soft;is a feather heavy;
is water dry;is the night bright;is an elephant small;is a mouse big;is the sea dry;is a snail fast;is a cat a plant;is a rose an animal;
is an apple a tool;is a hammer a fruit;is a chair an animal;is red a number;is Monday a month;is July a day;is a snail faster than a car;
is a flower taller than a tree;is paper heavier than iron;can stones fly;can a fish walk;can a chair speak;can a table run;can a tree swim;
can a book read;can cows fly;can pigs fly;can a house jump;can you eat a stone;can you drink sand;do cows eat meat;do dogs lay eggs;
do hens give milk;do fish have legs;do trees have wings;do cats bark;do horses have wheels;do snakes have legs;does a stone float;
does water burn;does ice melt in the freezer;does a week have nine days;does a dog have six legs;does a year have two months;
does the sun shine at night;is a banana blue;is blood green;is honey sour;is soup a tool;is a doctor a tool;is winter hot;
is a pillow hard;is a desert wet;is one more than two;is five more than ten;is a giant short;is the moon square;is a ball square"""
# category, plural|members
KINDS = """
fruit, fruits|apple pear banana cherry plum orange lemon grape peach melon
vegetable, vegetables|carrot onion potato cabbage pea bean cucumber spinach leek
animal, animals|dog cat horse cow lion fox bear mouse sheep goat elephant
bird, birds|eagle owl sparrow duck crow swan parrot pigeon hen
tool, tools|hammer saw axe screwdriver drill rake spade shovel
drink, drinks|tea coffee milk juice lemonade cocoa water
colour, colours|red blue green yellow white black brown pink purple
number, numbers|one two three four seven nine ten twelve twenty
day, days|Monday Tuesday Wednesday Thursday Friday Saturday Sunday
month, months|January February April June July August October December
vehicle, vehicles|car bus train bicycle lorry tram van ship
instrument, instruments|piano violin flute drum guitar trumpet harp
piece of clothing, pieces of clothing|coat shirt hat trousers sock scarf dress glove
piece of furniture, pieces of furniture|chair table bed sofa desk shelf cupboard
body part, body parts|hand foot nose ear arm leg head knee
flower, flowers|rose tulip daisy lily sunflower violet
tree, trees|oak birch pine maple willow beech
insect, insects|bee ant fly wasp beetle butterfly moth
metal, metals|iron gold silver copper lead tin
sport, sports|football tennis hockey swimming boxing running
profession, professions|doctor teacher baker farmer pilot nurse cook judge
building, buildings|house church school tower castle hotel
season, seasons|spring summer autumn winter
kind of weather, kinds of weather|rain snow fog wind storm hail
"""
# question|answer|other;other;other (all wrong)
ONE_OF = """
What colour is grass?|green|red;blue;pink
What colour is the sky on a clear day?|blue|red;green;brown
What colour is snow?|white|black;red;green
What colour is a ripe banana?|yellow|blue;black;purple
What colour is blood?|red|blue;green;white
What colour is coal?|black|white;yellow;pink
What colour is milk?|white|red;black;green
What colour is a carrot?|orange|blue;green;black
What is bigger than a horse?|elephant|mouse;cat;ant
What is smaller than a cat?|mouse|horse;elephant;whale
What is very slow?|snail|horse;plane;train
What is very fast?|plane|snail;turtle;stone
What can fly?|bird|dog;stone;table
What can swim?|fish|chair;tree;house
What barks?|dog|cat;cow;duck
What gives milk?|cow|hen;dog;fish
What lays eggs?|hen|cow;horse;cat
What makes honey?|bee|ant;cow;mouse
What do we drink?|water|sand;bread;stone
What do we eat?|bread|wood;paper;glass
What do we read?|book|spoon;chair;apple
What do we wear on the head?|hat|shoe;glove;sock
What do we wear on the feet?|shoes|hat;gloves;scarf
What do we wear on the hands?|gloves|shoes;hat;socks
What cuts paper?|scissors|spoon;pillow;soap
What opens a door?|key|spoon;cup;bread
What tells the time?|clock|table;bread;shoe
What is hot?|fire|ice;snow;frost
What is cold?|ice|fire;sun;steam
What is sweet?|honey|salt;lemon;vinegar
What is sour?|lemon|honey;sugar;bread
What is soft?|pillow|stone;brick;iron
What is hard?|stone|pillow;butter;wool
What is heavy?|rock|feather;leaf;paper
What is light?|feather|rock;iron;car
What is wet?|rain|sand;dust;ash
What shines at night?|moon|tree;grass;stone
What shines in the day?|sun|tree;cellar;grass
When is it cold?|winter|summer;July;noon
When is it warm?|summer|winter;January;midnight
When do we sleep?|night|noon;day;morning
When do we eat breakfast?|morning|evening;night;midnight
Who teaches children?|teacher|baker;pilot;farmer
Who bakes bread?|baker|pilot;judge;teacher
Who flies a plane?|pilot|baker;farmer;nurse
Who helps the sick?|doctor|pilot;baker;painter
Who grows corn?|farmer|pilot;nurse;judge
Where do fish live?|water|trees;houses;sand
Where do we sleep?|bed|oven;table;bath
Where do we cook?|kitchen|bedroom;garage;garden
How many legs does a dog have?|four|two;six;eight
How many legs does a bird have?|two|four;six;eight
How many legs does an insect have?|six|two;four;nine
How many days does a week have?|seven|five;ten;twelve
How many months does a year have?|twelve|seven;ten;five
How many eyes do you have?|two|three;five;seven
How many fingers does one hand have?|five|two;seven;nine
How many wheels does a bicycle have?|two|four;six;eight
How many wheels does a car have?|four|one;seven;nine
What is the opposite of big?|small|high;green;old
What is the opposite of hot?|cold|fast;soft;red
What is the opposite of day?|night|week;hour;noon
What is the opposite of old?|young|tall;wet;round
What is the opposite of up?|down|left;over;out
What is the opposite of full?|empty|heavy;sweet;loud
What is the opposite of happy?|sad|funny;big;late
"""
CHOOSE = """
Choose one: {s}. {q}
Choose one of these: {s}. {q}
{q} [Choose|Pick|Take] one: {s}.
{q} [Options|Choices|Possible answers]: {c}.
{q} [Options|Choices]: {c}
[Pick|Take|Select] one[ word| answer|]: {s}. {q}
Answer with one of [these words|these]: {c}. {q}
[Answer|Reply] with {s}: {q}
{q} {s_cap}?
{q} [Is it|Say] {s}[?|.]
[Which is right|Which one is right], {s}? {q}
"""
WHICH = """
Which [one|word|of these] is a {k}: {s}?
Which [one|of these|of these words] belongs to the {ks}: {s}?
Choose the {k}: {c}.
[Find|Pick|Choose|Name] the {k}[ in this list|]: {c}.
{s_cap}: which one is a {k}?
[Choose one|Pick one]: {s}. Which is a {k}?
I need a {k}. [Choose one|Which one do I take]: {s}?
What is a {k}, {s}?
which is a {k}, {s}
"""
ODD = """
Which [one|word|of these] is not a {k}: {s}?
Which [word|one] does not belong: {s}?
[Find|Choose|Pick] the odd one out: {c}.
[Choose|Pick] the word that is not a {k}: {c}.
Three of these are {ks}. Which one is not? {c}.
"""
YES_NO = """
Answer with yes or no: {q}?
Answer yes or no: {q}?
Yes or no: {q}?
{q_cap}? [Answer|Reply|Say] [with |]yes or no.
{q_cap}? [Yes or no?|yes or no]
[Say|Reply] yes or no. {q_cap}?
Please answer with yes or no. {q_cap}?
Choose one: yes or no. {q_cap}?
{q_cap}?
{q}
"""
# What the user says of himself|the answer|the question later|the answer (long, short): {v} is the value
MEMORY = """
[My name is|I am|I'm|Hello, I am|Hi, my name is|Hello! My name is|they call me] {name}.|[Hello|Hi|Nice to meet you], {name}[!|.] [How can I help you?|]|[What is my name?|what is my name|Do you know my name?|What am I called?|Can you tell me my name?|Do you remember my name?|Who am I?]|Your name is {name}.|{name}
[I have a|This is my] {animal} [called|named] {pet}.|[What a nice name!|{pet} is a nice name.|How nice!]|[What is my {animal} called?|What is the name of my {animal}?|what is my {animal} called|Do you know the name of my {animal}?]|Your {animal} is called {pet}.|{pet}
My [favourite colour is|best colour is] {colour}.|[{colour} is a nice colour.|That is a nice colour.]|[What is my favourite colour?|Which colour do I like best?|what colour do I like]|Your favourite colour is {colour}.|{colour}
I [like|love] {food} [very much|best|].|[{food} sounds good.|That sounds good.|Good choice.]|[What do I like?|What do I like to eat?|which food do I like]|You like {food}.|{food}
My [friend|teacher|neighbour|cousin] is called {name}.|[That is a nice name.|{name} is a nice name.]|[What is the name I told you?|Which name did I say?|Who did I talk about?]|{name}.|{name}
I am {age} years old.|[I see.|That is a good age.]|[How old am I?|how old am I|What is my age?]|You are {age} years old.|{age}
[People call me|Everyone calls me|This is|It is|You are talking to|Call me] {name}.|[Hello|Hi], {name}[!|.]|[Say my name.|And my name is?|My name is what?|Now tell me what I am called.]|Your name is {name}.|{name}
[Here is my friend|I am with my friend|I met] {name}.|[Hello, {name}!|How nice!|I see.]|[Who is my friend?|Who is with me?|Whom did I meet?]|{name}.|{name}
[We have|At home there is|I bought|There is] a {animal} [that is called|with the name|and its name is] {pet}.|[How nice!|I see.|What a nice name!]|[What is the {animal} called?|Tell me the name of the {animal}.|Say the name of the {animal}.]|The {animal} is called {pet}.|{pet}
[I wear only|My house is|I painted the door|All my things are|My new coat is] {colour}.|[I see.|How nice!]|[Which colour did I say?|What colour is it?|Tell me the colour.]|It is {colour}.|{colour}
[For dinner we had|On Monday we ate|We eat|There is|I want to cook] {food} [today|at home|with friends].|[That sounds good.|I see.|Enjoy your meal!]|[What was the food?|What did we eat?|Which food was it?|What do we eat?]|It was {food}.|{food}
[The password is|The word is|My word is|The secret is] {thing}.|[All right.|I see.|OK.]|[What is the password?|Tell me the word.|Now say it.|Which word did I say?]|{thing}|{thing}
[My brother is|My sister will be|Tomorrow I will be|My friend is] {age} years old.|[How nice!|I see.]|[Which number did I say?|How many years did I say?|Tell me the age.]|{age}|{age}
I live in a {home}.|[That sounds nice.|I see.]|[Where do I live?|What do I live in?]|You live in a {home}.|a {home}
I [bought|found|have] {a_thing} [today|yesterday|].|[How nice!|That sounds good.|What will you do with it?]|[What did I tell you about?|Which thing did I talk about?|What do I have now?]|You have {a_thing}.|{thing}
Remember the word {thing}.|[OK, I will remember it.|All right.|The word is {thing}.]|[What is the word?|Which word was it?|Say the word.|What was the word?]|The word is {thing}.|{thing}
"""
SAY = """
[Say|Repeat|Write|say] [the word |]{w}.|{w}
[Say|Repeat] "{w}".|{w}
[Repeat after me|Say after me]: {w}|{w}
[Say|Write] {w} and nothing else.|{w}
Say {w} twice.|{w} {w}
Which word comes first: {w} and {x}?|{w}
Which word comes last: {x} and {w}?|{w}
[Spell|Copy] this [word|]: {w}|{w}
[Answer|Reply] with the word {w}.|{w}
"""
SCENES = """
{n} has {a_o} and {f} has {a_x}.|Who has the {o}?;who has the {o};Which of them has the {o}?|{n}
{n} has {a_o} and {f} has {a_x}.|What does {n} have?;what does {n} have;Which thing belongs to {n}?|{o}
{n} gave {f} {a_o}.|Who got the {o}?;Who has the {o} now?|{f}
{n} gave {f} {a_o}.|What did {n} give away?;What did {f} get?|{o}
{n} bought {a_o}, and {f} bought {a_x}.|Who bought the {o}?;who bought the {o}|{n}
{n} is older than {f}.|Who is older?;who is older|{n}
{n} is taller than {f}.|Who is taller?;who is the tall one|{n}
{n} is in the kitchen. {f} is in the garden.|Who is in the kitchen?;who is in the kitchen|{n}
{n} is asleep. {f} is awake.|Who is asleep?;Who sleeps?|{n}
{n} won the game against {f}.|Who won?;Who won the game?|{n}
{n} called {f}.|Who was called?;Whom did {n} call?|{f}
"""
UNCOUNTED = ("drink", "colour", "number", "day", "month", "metal", "sport", "season", "kind of weather")
REMEMBERED = ("{name}", "{pet}", "{colour}", "{food}", "{age}", "{home}", "thing}")
ANIMALS = ("dog", "cat", "rabbit", "horse", "parrot", "hamster", "goat", "donkey")
COLOURS = ("red", "blue", "green", "yellow", "white", "black", "brown", "pink", "orange", "purple", "grey")
FOODS = (
    "soup",
    "bread",
    "cake",
    "rice",
    "fish",
    "cheese",
    "pasta",
    "apples",
    "pears",
    "salad",
    "pancakes",
    "chocolate",
    "honey",
)
AGES = words("six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty sixty")
DWELLINGS = ("small house", "big house", "village", "city", "castle", "tower", "tent", "hut", "town by the sea", "boat")
# Instructions that suit long answers; those of `forms` ask for short ones.
LONG_SYSTEM = (
    "You are a helpful assistant.",
    "You are a friendly assistant.",
    "Answer in plain [English|words|sentences].",
    "You [answer questions and tell stories|help people|are kind and polite].",
)
CHOICE_SYSTEM = (
    "Answer with one of the given words.",
    "[Give|Say] only the answer.",
    "You are a helpful assistant.",
    "Choose one of the answers.",
    "Answer in one word.",
)
# Pairs of kinds that share members, so that one is no wrong answer for the other.
OVERLAP = {
    frozenset(pair.split("/"))
    for pair in flat("""animal/bird;animal/insect;fruit/vegetable;fruit/tree;flower/colour;metal/colour;metal/tool;fruit/colour;
tree/flower;season/kind of weather;month/season;sport/profession;drink/kind of weather""")
}
STORY_TOPICS = {
    "lost": "something that was lost", "thorn": "helping an animal", "skill": "learning something new", "umbrella": "the rain",
    "afraid": "being brave", "vase": "telling the truth", "gift": "a gift", "road": "a journey", "share": "sharing",
    "race": "a race", "seed": "a seed", "new": "a new friend", "purse": "an honest finder", "build": "building something",
    "wish": "a wish", "noise": "a noise in the night", "sick": "a sick friend", "quarrel": "a quarrel", "machine": "a robot",
}  # fmt: skip
HERO_TOPICS = {"child": "a child", "animal": "an animal", "villager": "a village", "robot": "a robot"}
ASK_STORY = """
[Tell|Tell me|tell me|Please tell me] a [|short |little |nice ]story[ about {t}| about {t}| about {t}|][.||, please.]
[Can you|Could you|Will you] tell [me|us] a [short |]story[ about {t}|][?|, please?]
[I want to hear|I would like to hear|I want] a [short |]story[ about {t}|].
[Write|Make up] a [short |]story[ about {t}|][.|]
[Do you know a story about {t}?|A story about {t}, please.]
"""
ASK_HOW = """
[How do I|How do you|How can I|how do i|how do you|How does one] {t}[?|?|]
[Tell me|Explain|Explain to me|Please tell me] how to {t}[.|]
[I want to|I would like to] {t}. [How does it work?|What do I do?|What must I do?|How?]
[What do I have to do to|What are the steps to] {t}?
"""
ASK_WHY = """
[Why|why|Why] {t}[?|?|]
[I have a question:|My child asks:|One more question:] [why|Why] {t}?
"""

HELD_CHOOSE = (
    "{q} You may only say {s}.",
    "{q} Take your answer from this list: {c}.",
    "Here are the words you may say: {c}. {q}",
    "Look at these words: {c}. {q}",
    "{q} Only one of these is right: {s}.",
    "Tell me which is right: {s}. {q}",
)
HELD_WHICH = (
    "Tell me which of these I should call a {k}: {s}.",
    "Here are four words: {c}. Only one is a {k}. Which?",
    "I am looking for a {k}. There are {c}.",
    "Look at {c} and name the {k}.",
    "There is only one {k} here: {s}.",
)
HELD_YES_NO = (
    "Tell me yes or no, please: {q}?",
    "I only want to hear yes or no. So {q}?",
    "My question is: {q}? You may say yes or no.",
    "Just yes or no, please, {q}?",
)
# What the user says, the reply, the later question, and the field that answers it.
HELD_MEMORY = (
    ("You can call me {name}, like everyone here.", "Hello {name}!", "So what is my name?", "name"),
    ("Good morning! Everybody knows me as {name}.", "Good morning, {name}!", "Tell me my name.", "name"),
    ("It is me, {name}, and I need your help.", "What can I do for you?", "Do you still know my name? Say it.", "name"),
    ("We have a new {animal} at home, and it is named {pet}.", "How nice!", "What is our {animal} called?", "pet"),
    ("All my clothes are {colour}, because I love {colour}.", "I see.", "Which colour do I love?", "colour"),
    ("Every Sunday we eat {food} at home.", "That sounds good.", "What do we eat on Sunday?", "food"),
    ("The secret word of today is {thing}.", "All right.", "Now say the secret word.", "thing"),
    ("Next week I will be {age} years old.", "How nice!", "How old will I be?", "age"),
)


def rows(table: str, n: int = 2) -> list[list[str]]:
    """The lines of a table, split at the bars outside brackets."""
    split = [TOP_BAR.split(line) for line in lines(table)]
    if any(len(row) != n for row in split):
        raise ValueError(next(row for row in split if len(row) != n))
    return split


TALK, WHY_ROWS, SAY_ROWS = rows(SMALL_TALK), [line.split("|") for line in lines(WHY)], rows(SAY)
MEMORY_ROWS, SCENE_ROWS, ONE_OF_ROWS = rows(MEMORY, 5), rows(SCENES, 3), rows(ONE_OF, 3)
YES_NO_ROWS = [(q, "yes") for q in flat(YES)] + [(q, "no") for q in flat(NO)]
KIND_ROWS = [
    (*head.partition(", ")[::2], words(body)) for head, _, body in (line.partition("|") for line in lines(KINDS))
]
CHOOSE_LINES, WHICH_LINES, ODD_LINES, YES_NO_LINES = lines(CHOOSE), lines(WHICH), lines(ODD), lines(YES_NO)
STORY_LINES, HOW_LINES, WHY_LINES = lines(ASK_STORY), lines(ASK_HOW), lines(ASK_WHY)


def dialogue(turns: list[tuple[str, str]], rng: random.Random, systems: tuple[str, ...] = LONG_SYSTEM) -> str:
    """Turns in ChatML, or now and then as a script, some behind a system message that suits the answers."""
    if rng.random() < 0.12:
        you, me = rng.choice((("User", "Assistant"), ("You", "Me"), ("A", "B"), ("Question", "Answer")))
        return "\n".join(f"{you}: {user}\n{me}: {answer}" for user, answer in turns)
    system = f"{SYSTEM}{expand(rng.choice(systems), rng)}{END}" if rng.random() < 0.4 else ""
    return (system + "".join(f"{USER}{user}{END}{ASSISTANT}{answer}{END}" for user, answer in turns)).rstrip("\n")


def listed(options: list[str], last: str = "or") -> str:
    """`red, green or blue`."""
    return f"{', '.join(options[:-1])} {last} {options[-1]}"


def with_options(pattern: str, fields: dict[str, str], options: list[str], rng: random.Random) -> str:
    """A pattern that names the allowed answers."""
    s = listed(options)
    fields = fields | {"s": s, "s_cap": s[0].upper() + s[1:], "c": ", ".join(options)}
    text = expand(pattern, rng, fields)
    return ARTICLES.sub(r"\1n ", text) if text[:1].islower() else tidy(text)


def small_talk(rng: random.Random, row: list[str]) -> tuple[str, str]:
    """A turn of small talk."""
    return closed(expand(row[0], rng)), expand(row[1], rng)


def closed(text: str) -> str:
    """A text without the space that an empty alternative leaves before a full stop."""
    return text.replace(" .", ".").replace(" ?", "?").replace("  ", " ")


def choose_one(rng: random.Random, row: list[str]) -> tuple[str, str]:
    """A question with its allowed answers."""
    question, answer, wrong = row
    options = [answer, *rng.sample(wrong.split(";"), rng.randint(1, 3))]
    rng.shuffle(options)
    return with_options(rng.choice(CHOOSE_LINES), {"q": question}, options, rng), answer


def strangers(kind: str) -> list[tuple[str, str, list[str]]]:
    """The kinds that share nothing with a kind."""
    return [row for row in KIND_ROWS if row[0] != kind and frozenset((row[0], kind)) not in OVERLAP]


def which_kind(rng: random.Random, row: tuple[str, str, list[str]], patterns: list[str]) -> tuple[str, str, list[str]]:
    """Which of some words is of a kind: the request, the answer and the options."""
    answer = rng.choice(row[2])
    options = [answer] + [rng.choice(other[2]) for other in rng.sample(strangers(row[0]), rng.randint(2, 3))]
    rng.shuffle(options)
    return with_options(rng.choice(patterns), {"k": row[0], "ks": row[1]}, options, rng), answer, options


def odd_one(rng: random.Random, row: tuple[str, str, list[str]]) -> tuple[str, str]:
    """Which of some words is not of a kind."""
    answer = rng.choice(rng.choice(strangers(row[0]))[2])
    options = [answer, *rng.sample(row[2], 3)]
    rng.shuffle(options)
    return with_options(rng.choice(ODD_LINES), {"k": row[0], "ks": row[1]}, options, rng), answer


def yes_no(rng: random.Random, row: tuple[str, str]) -> tuple[str, str]:
    """A question to be answered with yes or no."""
    pattern = rng.choice(YES_NO_LINES)
    answer = row[1].capitalize() if "Yes or no" in pattern or "yes" not in pattern else row[1]
    return expand(pattern, rng, {"q": row[0], "q_cap": row[0][0].upper() + row[0][1:]}), answer


def member(rng: random.Random, row: tuple[str, str, list[str]]) -> tuple[str, str]:
    """Whether something is of a kind, and whether that is so."""
    true = rng.random() < 0.5
    kind, _, members = row if true else rng.choice(strangers(row[0]))
    thing = rng.choice(members)
    return f"is {thing if kind in UNCOUNTED else a(thing)} {a(row[0])}", "yes" if true else "no"


def remembered(rng: random.Random) -> dict[str, str]:
    """What a user may say of himself."""
    thing = rng.choice(THING_LIST)
    return {
        "name": rng.choice(NAMES),
        "pet": rng.choice(PETS),
        "animal": rng.choice(ANIMALS),
        "colour": rng.choice(COLOURS),
        "food": rng.choice(FOODS),
        "age": rng.choice(AGES),
        "home": rng.choice(DWELLINGS),
        "thing": thing,
        "a_thing": a(thing),
    }


def memory(rng: random.Random, told: list[list[str]]) -> list[tuple[str, str]]:
    """One or two things told, some talk in between, and a question for each that the first turns answer."""
    fields = remembered(rng)
    turns, later = [], []
    for said, reply, question, full, short in told:
        turns.append((closed(tidy(expand(said, rng, fields))), tidy(expand(reply, rng, fields))))
        answer = tidy(expand(full, rng, fields)) if rng.random() < 0.6 else expand(short, rng, fields)
        later.append((expand(question, rng, fields), answer))
    turns += [small_talk(rng, rng.choice(TALK)) for _ in range(rng.choice((0, 0, 1, 2)))]
    return turns + rng.sample(later, len(later))


def scene(rng: random.Random, row: list[str]) -> tuple[str, str]:
    """A sentence or two and a question about them."""
    n, f = rng.sample(NAMES, 2)
    o, x = rng.sample(THING_LIST, 2)
    fields = {"n": n, "f": f, "o": o, "a_o": a(o), "a_x": a(x)}
    text, question, answer = (part.format(**fields) for part in (row[0], rng.choice(row[1].split(";")), row[2]))
    sentences = text.split(". ")
    if len(sentences) == 2 and rng.random() < 0.5:
        text = f"{sentences[1].rstrip('.')}. {sentences[0]}."
    choice = f" {listed(rng.sample([n, f], 2)).replace(',', '')}?" if answer in (n, f) and rng.random() < 0.3 else ""
    return f"{text} {question}{choice}", answer


def say(rng: random.Random, row: list[str]) -> tuple[str, str]:
    """A word to repeat."""
    w, x = rng.sample([*THING_LIST, *COLOURS, *ANIMALS, *NAMES], 2)
    return expand(row[0], rng, {"w": w, "x": x}), row[1].format(w=w)


def told_story(rng: random.Random) -> tuple[str, str]:
    """A request for a story, and a story about what was asked for."""
    plot = rng.choice(STORY_PLOTS)
    kind = rng.choice(plot.suits)
    topic = rng.choice((STORY_TOPICS[plot.name], HERO_TOPICS[kind]))
    return expand(rng.choice(STORY_LINES), rng, {"t": topic}), story(rng, plot, kind)


def why_asked(rng: random.Random, row: list[str]) -> tuple[str, str]:
    """A question why, direct, or as a part of a sentence where the verb allows it."""
    pattern = rng.choice(WHY_LINES)
    if row[0].startswith("do ") and rng.random() < 0.25:
        question = f"{rng.choice(('Tell me', 'Explain', 'Can you explain', 'Do you know'))} why {row[0][3:]}"
        question += "?" if "you" in question[:15] else "."
    else:
        question = expand(pattern, rng, {"t": row[0]})
    return question, rng.choice(row[1].split(";")) + "."


def free_talk(rng: random.Random) -> Iterator[str]:
    """Conversations whose answers are sentences: small talk, reasons, advice, stories."""
    talk, why, how = rounds(TALK, rng), rounds(WHY_ROWS, rng), rounds(HOW_TO_LIST, rng)
    while True:
        form = rng.random()
        if form < 0.50:
            yield dialogue([small_talk(rng, next(talk)) for _ in range(rng.choice((1, 1, 2, 3)))], rng)
        elif form < 0.73:
            yield dialogue([why_asked(rng, next(why))], rng)
        elif form < 0.90:
            name, todo = next(how)
            yield dialogue([(expand(rng.choice(HOW_LINES), rng, {"t": name}), tidy(advice(todo, rng)))], rng)
        else:
            yield dialogue([told_story(rng)], rng)


def choices_asked(rng: random.Random) -> Iterator[str]:
    """Conversations whose answers are one of some words that the request names or implies."""
    polar, one_of, kinds = rounds(YES_NO_ROWS, rng), rounds(ONE_OF_ROWS, rng), rounds(KIND_ROWS, rng)
    while True:
        form = rng.random()
        if form < 0.26:
            claims = [
                next(polar) if rng.random() < 0.6 else member(rng, next(kinds)) for _ in range(rng.choice((1, 1, 2, 4)))
            ]
            yield dialogue([yes_no(rng, claim) for claim in claims], rng, CHOICE_SYSTEM[1:3])
        elif form < 0.67:
            yield dialogue([choose_one(rng, next(one_of)) for _ in range(rng.choice((1, 1, 1, 2)))], rng, CHOICE_SYSTEM)
        else:
            row = next(kinds)
            turn = odd_one(rng, row) if rng.random() < 0.2 else which_kind(rng, row, WHICH_LINES)[:2]
            yield dialogue([turn], rng, CHOICE_SYSTEM)


def said_before(rng: random.Random) -> Iterator[str]:
    """Conversations whose answers repeat what the user said."""
    told, scenes, says = rounds(MEMORY_ROWS, rng), rounds(SCENE_ROWS, rng), rounds(SAY_ROWS, rng)
    while True:
        form = rng.random()
        if form < 0.56:
            first = next(told)
            other = rng.choice(MEMORY_ROWS)
            distinct = not any(field in first[0] and field in other[0] for field in REMEMBERED)
            yield dialogue(memory(rng, [first, other] if distinct and rng.random() < 0.5 else [first]), rng)
        elif form < 0.82:
            yield chat([scene(rng, next(scenes)) for _ in range(rng.choice((1, 1, 2)))], rng).rstrip("\n")
        else:
            yield chat([say(rng, next(says))], rng).rstrip("\n")


def documents(rng: random.Random) -> Iterator[str]:
    """Conversations: most of them ask for one of some answers or for something said before."""
    sources = (free_talk(rng), choices_asked(rng), said_before(rng))
    while True:
        yield next(rng.choices(sources, (0.30, 0.42, 0.28))[0])


def chat_item(turns: list[tuple[str, str]], request: str, choices: tuple[str, ...], phrase: str, place: int) -> Item:
    """An item in ChatML; choices come with the right one first, which goes to a position."""
    past = "".join(f"{USER}{user}{END}{ASSISTANT}{answer}{END}" for user, answer in turns)
    place %= len(choices)
    ordered = (*choices[1 : place + 1], choices[0], *choices[place + 1 :])
    return Item(KIND, f"{past}{USER}{request}{END}{ASSISTANT}", ordered, place, phrase)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Requests with allowed answers, and questions about what was said before, in words that `documents` does not combine."""
    made = 0
    for question, answer, others in rng.sample(ONE_OF_ROWS, 24):
        wrong = others.split(";")
        options = rng.sample([answer, *wrong], 4)
        request = with_options(HELD_CHOOSE[made % len(HELD_CHOOSE)], {"q": question}, options, rng)
        yield chat_item([], request, (answer, *wrong), request, made)
        made += 1
    for row in rng.sample(KIND_ROWS, 16):
        answer = rng.choice(row[2])
        wrong = [rng.choice(other[2]) for other in rng.sample(strangers(row[0]), 3)]
        options = rng.sample([answer, *wrong], 4)
        request = with_options(HELD_WHICH[made % len(HELD_WHICH)], {"k": row[0], "ks": row[1]}, options, rng)
        yield chat_item([], request, (answer, *wrong), request, made)
        made += 1
    for i, (question, answer) in enumerate([*rng.sample(YES_NO_ROWS[:70], 6), *rng.sample(YES_NO_ROWS[-50:], 6)]):
        request = HELD_YES_NO[i % len(HELD_YES_NO)].format(q=question)
        yield chat_item([], request, (answer, "no" if answer == "yes" else "yes"), request, i // 3)
    for said, reply, asked, key in HELD_MEMORY * 3:
        fields = remembered(rng)
        pool = {"name": NAMES, "pet": PETS, "colour": COLOURS, "food": FOODS, "thing": THING_LIST, "age": AGES}[key]
        pool = [entry for entry in pool if entry.split()[-1] != fields[key].split()[-1]]
        choices = (fields[key], *wrong_answers(fields[key], pool, rng))
        first = tidy(said.format(**fields))
        yield chat_item([(first, tidy(reply.format(**fields)))], asked.format(**fields), choices, first, made)
        made += 1
