"""Tables of everyday life: how things are done, what follows from what, where one goes and what one takes for a purpose."""

# What to do: name|step;step;step
HOW_TO = """
make tea|boil some water;put a tea bag into a cup;pour the hot water into the cup;wait for three minutes;take the tea bag out
make a sandwich|take two slices of bread;put butter on them;lay cheese and tomato on one slice;put the other slice on top
boil an egg|fill a small pot with water;heat the water until it boils;put the egg in carefully;wait for six minutes;cool the egg in cold water
wash your hands|turn on the tap;make your hands wet;rub them with soap;rinse the soap off with water;dry them with a towel
brush your teeth|put toothpaste on the brush;brush the front teeth;brush the back teeth;spit out the foam;rinse your mouth with water
plant a seed|fill a pot with earth;make a small hole;put the seed into the hole;cover it with earth;give it some water
make the bed|shake the pillow;pull the sheet flat;lay the blanket over the bed;put the pillow at the top
send a letter|write the letter;put it into an envelope;write the address on the envelope;put a stamp on it;take it to the post office
make soup|wash the vegetables;cut them into small pieces;put them into a pot with water;add some salt;cook them for half an hour
bake a cake|mix flour, sugar and butter;add three eggs and some milk;pour everything into a form;bake it in the oven for an hour;let it cool
wash the dishes|fill the sink with warm water;add a little soap;clean the plates with a sponge;rinse them with clear water;dry them with a towel
cross the road|stop at the side of the road;look to the left;look to the right;wait until no car is coming;walk to the other side
wrap a gift|put the gift on the paper;fold the paper around it;fix the paper with tape;tie a ribbon around it
paint a wall|cover the floor with paper;stir the paint;dip the brush into the paint;paint from the top to the bottom;wait until the wall is dry
clean a room|pick up the things from the floor;put them in their places;wipe the table;sweep the floor;open the window
make a fire|look for dry wood;put small sticks on the ground;lay bigger sticks on top;light the small sticks;add more wood slowly
make pancakes|mix flour, eggs and milk;heat some butter in a pan;pour a little of the mix into the pan;turn the pancake after a minute;eat it with honey
cook rice|wash the rice;put it into a pot with water;add some salt;cook it for fifteen minutes;let it stand for a while
cook pasta|boil water in a big pot;add some salt;put the pasta into the water;cook it for ten minutes;pour the water away
make a salad|wash the lettuce;cut the tomatoes and the cucumber;put everything into a bowl;add oil and salt;mix it well
build a snowman|roll a big ball of snow;roll a smaller ball and put it on top;roll a small ball for the head;use a carrot for the nose;put an old hat on its head
take a bath|fill the bath with warm water;take off your clothes;sit down in the water;wash yourself with soap;dry yourself with a towel
borrow a book|go to the library;look for the book on the shelf;take the book to the desk;show your card;bring the book back in time
water the flowers|fill the watering can;pour water on the earth, not on the leaves;wait until the water is gone;pour a little more if the earth is dry
make coffee|boil some water;put coffee into a filter;pour the hot water over it slowly;wait until it has run through;add milk if you like
get ready for bed|put your toys away;wash your face;brush your teeth;put on your pyjamas;turn off the light
go shopping|look into the fridge;write a list;take a bag with you;put the things into the basket;pay for them
sew on a button|choose a thread of the right colour;put the thread through the needle;go through the cloth and the button a few times;make a knot;cut the thread
catch a fish|put a worm on the hook;throw the line into the water;sit still and wait;pull when the line moves
draw a house|draw a square;draw a triangle on top of it for the roof;draw a door;draw two windows;colour everything
feed a cat|take the bowl of the cat;wash it;put some food into it;put fresh water beside it
pack a suitcase|make a list of the things you need;fold your clothes;put the heavy things at the bottom;put the shirts on top;close the suitcase
make lemonade|press three lemons;add some sugar;pour in cold water;stir it well;add some ice
fix a flat tyre|take the wheel off;pull out the tube;find the hole;glue a patch on the hole;put the wheel back on
"""

# What follows from what: cause|effect;effect  (either a clause that stands alone)
CAUSES = """
it rained all night|the streets were wet in the morning;the garden was full of puddles;the river was high the next day
it was raining|{n} took an umbrella;{n} stayed at home;the children played inside;the picnic was called off
the sun was very hot|the ice cream melted;the snowman melted;{n} sat down in the shade;the butter became soft
it did not rain for weeks|the grass turned brown;the flowers died;the river was almost dry
it was very cold|{n} put on a warm coat;the lake froze;{n} wore gloves and a hat;the water turned to ice
it snowed all day|the children built a snowman;the roads were white;the car could not get up the hill
the wind was strong|the hat of {n} flew away;the kite flew high;the old tree fell down;the leaves flew through the air
{n} forgot the umbrella|{n} got wet in the rain
{n} did not sleep well|{n} was tired the next day;{n} fell asleep at work
{n} went to bed late|{n} was tired in the morning;{n} got up late
{n} got up late|{n} missed the bus;{n} came late to school;{n} had no time for breakfast
{n} was hungry|{n} ate a sandwich;{n} went to the kitchen;{n} cooked some pasta
{n} was thirsty|{n} drank a glass of water;{n} asked for something to drink
{n} was tired|{n} went to bed;{n} lay down on the sofa;{n} wanted to sleep
{n} was sick|{n} stayed in bed;{n} went to the doctor;{n} could not go to school
{n} ate too much cake|{n} had a stomach ache
{n} had a toothache|{n} went to the dentist
{n} lost the key|{n} could not open the door;{n} had to wait outside
{n} studied hard|{n} passed the test;{n} got a good mark
{n} did not study|{n} failed the test;{n} did not know the answers
{n} practised every day|{n} became better and better;{n} won the race
the room was dark|{n} turned on the light;{n} could not see anything;{n} lit a candle
the room was too warm|{n} opened the window;{n} took off the sweater
the music was too loud|{n} could not sleep;the neighbours were angry;nobody could hear a word
the cup fell to the floor|the cup broke;there was coffee on the floor
the glass fell off the table|the glass broke into many pieces
the ball hit the window|the window broke
the milk was old|the milk tasted sour;{n} threw the milk away
nobody watered the plant|the plant died;the leaves of the plant fell off
{n} watered the plant every day|the plant grew tall;the plant had many flowers
the cat saw a mouse|the cat ran after it;the mouse ran away
the dog heard a noise|the dog began to bark;the dog ran to the door
the baby was hungry|the baby cried
the baby was asleep|{n} spoke in a low voice;everybody was quiet
the shop was closed|{n} could not buy bread;{n} went home with an empty bag
{n} had no money|{n} could not pay;{n} could not buy the shoes
the shoes were too small|the feet of {n} hurt;{n} bought bigger shoes
the bag was too heavy|{n} could not lift it;{n} asked for help
the lamp was broken|the room was dark;{n} bought a new lamp
the fire went out|the room grew cold
the traffic light was red|the cars stopped;{n} waited at the corner
the traffic light turned green|the cars drove on;{n} walked across the street
the floor was wet|{n} slipped and fell
{n} fell off the bicycle|{n} hurt a knee
{n} touched the hot stove|{n} burned a finger
{n} was afraid|{n} hid under the blanket;{n} ran away
{n} heard a funny joke|{n} laughed
{n} heard the sad news|{n} cried
it was the birthday of {n}|{n} got many gifts;there was a cake with candles
{n} told a lie|nobody believed {n} any more
{n} was kind to everyone|everyone liked {n}
the bread stayed in the oven too long|the bread was black;the kitchen was full of smoke
the water was boiling|{n} made tea;there was steam in the kitchen
the hands of {n} were dirty|{n} washed them with soap
the shirt was dirty|{n} put it into the washing machine
the train was late|{n} had to wait at the station;{n} came home late
the car had no petrol|the car stopped on the road
the bridge was broken|nobody could cross the river
the soup was too hot|{n} waited before eating;{n} burned the tongue
the tea was bitter|{n} put some sugar into it
there was no salt in the soup|the soup had no taste
the window was open|a bird flew into the room;the papers flew off the table
the door was locked|{n} could not go in;{n} knocked and waited
the phone rang|{n} answered it;the baby woke up
the battery was empty|the radio was silent;{n} could not call anybody
the sun went down|it became dark;the stars came out
the sun came up|it became light;the birds began to sing
{n} had lost all the money|{n} was poor;{n} could not pay for the room
{n} won the prize|{n} was happy;{n} jumped for joy
the lion roared|the sheep were afraid;everybody ran away
nobody gave the flowers water|the flowers were dead after a week;the flowers became dry
{n} carried stones all day|{n} was very tired in the evening;the back of {n} hurt
{n} put too much sugar into the tea|the tea was too sweet
{n} put too much salt into the soup|the soup was too salty
{n} fell into the river|{n} was wet;the clothes of {n} were wet
the tea had just been made|the tea was still hot;{n} waited before drinking
the stone was too heavy|nobody could lift it;{n} could not move it
the pond was frozen|the ducks walked on the ice;the children went skating
the sky was clear at night|one could see the moon and the stars
spring came|the snow melted;the trees had new leaves
autumn came|the leaves turned yellow and red;the birds flew to the south
winter came|it grew cold;the bear went to sleep
"""

# Where one goes for what: place|purpose;purpose|what is there
PLACES = """
library|borrow a book;read a book in silence;bring the books back|many books
bakery|buy fresh bread;get some rolls;buy a birthday cake|the smell of fresh bread
school|learn to read and write;meet the teacher;have a lesson|teachers and pupils
beach|build a sand castle;look for shells;lie in the sand|sand and waves
zoo|see the lions;watch the monkeys;see an elephant|many animals from far away
station|catch the train;wait for the train;buy a train ticket|trains and travellers
airport|catch a plane;watch the planes|planes and pilots
hospital|visit a sick friend;have a broken leg treated|nurses and doctors
kitchen|cook dinner;make some soup;wash the dishes|pots and pans
bedroom|go to sleep;lie down in bed;make the bed|a bed and a pillow
bathroom|take a bath;have a shower;brush {his} teeth|a mirror and a bath
farm|feed the cows;see the pigs;collect the eggs of the hens|cows, pigs and hens
post office|send a letter;buy some stamps;send a parcel|stamps and letters
bank|get some money;open an account|a lot of money
market|buy vegetables;buy apples and pears;sell the potatoes|fruit and vegetables
cinema|watch a film;see a new film|a big screen
museum|look at old paintings;see very old things|old and rare things
park|feed the ducks;sit on a bench;walk the dog|paths, trees and benches
swimming pool|learn to swim;dive into the water|clear blue water
barber|get a haircut;have {his} hair cut|scissors and mirrors
pharmacy|buy some medicine;get pills against the cough|medicine
theatre|watch a play;see the actors|a stage and actors
toy shop|buy a doll;look at the toy trains|dolls and toy cars
shoe shop|buy a pair of boots;get new shoes|boots and shoes
restaurant|eat out with friends;order a meal|waiters and tables
hotel|stay for the night;rent a room|many rooms for guests
forest|pick mushrooms;listen to the birds in the trees;look for wild berries|tall trees and deer
harbour|see the ships;wait for the boat|ships and sailors
garage|repair the car;park the car|cars and tools
stadium|watch a football game;cheer for the team|players and many people who cheer
dentist|have a bad tooth pulled;have {his} teeth checked|a big chair and a bright lamp
flower shop|buy some roses;get a bunch of tulips|roses and tulips
playground|play on the swing;go down the slide|a swing and a slide
mountain|climb to the top;ski down in the snow|rocks, snow and cold air
castle|see the king;meet the queen|thick walls and a king
bus stop|catch the bus;wait for the bus|people who wait for the bus
"""

# What one takes for what: tool|purpose;purpose
TOOLS = """
scissors|cut the paper;cut the string
key|open the lock;unlock the door
umbrella|keep off the rain;stay dry in the rain
hammer|hit the nail;drive a nail into the wall
broom|sweep the floor;sweep the leaves away
needle|sew on a button;mend the hole in the shirt
spoon|eat the soup;stir the tea
fork|eat the pasta;pick up a potato
knife|cut the bread;slice the cheese
towel|dry {his} hands;dry {his} hair
soap|wash {his} hands;get the dirt off
brush|paint the wall;paint the fence
ladder|reach the roof;climb up to the roof;pick the apples high in the tree
lantern|see in the dark;light the way at night
map|find the way;look for the right road
bucket|carry water;fetch water from the well
spade|dig a hole;dig in the garden
watering can|water the flowers;give the plants water
pen|write a letter;write {his} name
pillow|rest {his} head on
blanket|keep warm in bed;cover the sleeping child
coat|keep warm outside in winter
glasses|see better;read the small letters
telescope|look at the stars;see the rings of a planet
net|catch the butterfly;catch fish
rope|tie the boat to the shore;tie up the horse
saw|cut the board;cut the thick branch
comb|tidy {his} hair
oven|bake the cake;bake the bread
kettle|boil the water
fridge|keep the milk cold;keep the butter cool
camera|take a picture;take photos of the birds
basket|carry the apples;carry the eggs
clock|see what time it is
thermometer|measure the temperature;see if it was cold
match|light the candle;light the fire
ruler|measure the line;draw a straight line
eraser|rub out the mistake
bell|call everybody to dinner
plaster|cover the cut on {his} finger
boat|cross the lake;row to the island
bicycle|ride to school
telephone|call a friend;call {his} mother
glue|stick the paper to the wood;stick the pieces together
calculator|add up the numbers
screwdriver|turn the screw
axe|chop the wood
rake|gather the dry leaves
iron|press the shirt
mirror|see {his} own face
"""

# Paragraphs, told like the plots: a blank line ends a slot, a line is one way to tell it, `$` draws fields, `@` begins another.
EVERYDAY = """
@rainy
[It rained|The rain fell] [all day|from morning until night|the whole morning]. The sky was [grey|dark], and the streets were [wet|empty].
It is raining [again|today]. [Big|Small] drops run down the window, and there are puddles [on the road|everywhere].
Dark clouds came up [in the afternoon|after lunch], and soon it began to rain.

{n} stayed [at home|inside] and [read a book|played cards with {f}|baked a cake|wrote letters].
[We|They] stayed inside, [drank tea|made hot chocolate] and [looked out of the window|listened to the rain].
{n} had to go out, so {he} put on {his} boots and took an umbrella.

In the evening the rain stopped, and [the air was fresh and cool|the moon came out].
Later the sun came out, and there was a rainbow over the [hills|town|trees].
After the rain the garden [was green and fresh|smelled of wet earth].

@winter
It was winter. [Snow lay on the roofs|The fields were white|Everything was covered with snow], and the [lake|river|pond] was frozen.
In the night it had snowed. When {n} looked out of the window, everything was white.

The children took their sledges and went to the hill. They [built a snowman|threw snowballs] until their hands were cold.
{n} put on a warm coat, a hat and gloves. {he} and {f} built a snowman with a carrot for a nose.

Afterwards they went home and drank [hot chocolate|hot tea with honey] by the fire.
When it grew dark, they went inside, because it was too cold.

@summer
It was a hot day in [June|July|August]. There was not a cloud in the sky.
The summer was [long and hot|warm and dry]. Nobody wanted to work, because it was too hot.

{n} and {f} went to the [lake|sea|river] to swim. The water was [cool and clear|not very deep].
People sat in the shade and ate ice cream. Even the [dog|cat] did not want to move.

In the evening it became cooler, and they [sat in the garden|had a picnic|walked home slowly].
At night there was a storm with thunder and lightning, and the next day the air was cool again.

@morning
{n} gets up at [six|seven|eight] o'clock [every morning|on weekdays]. First {he} [washes {his} face|takes a shower], and then {he} gets dressed.
In the morning {n} wakes up [early|late]. {he} gets out of bed, opens the window and [stretches|takes a deep breath].
At [six|seven|half past six] {n} gets up. {he} washes, gets dressed and goes down to the kitchen.

For breakfast there is [bread with butter and honey|an egg and a slice of bread|warm milk with oats], and a cup of [tea|coffee|cocoa].
Breakfast is ready on the table: [bread, cheese and jam|eggs and toast|fruit and yoghurt].

Then {n} takes {his} bag and goes to [school|work]. [The way is not long.|The bus is often full.|On the way {he} meets {f}.]
After breakfast it is time to go. {n} closes the door and walks to the bus stop.

@school
The first lesson [today|on Monday] is [history|music|English|art]. The teacher [writes a word on the board|tells a story|asks many questions], and the pupils listen.
{n} goes to a small school in the village. There are [twenty|fifteen|eighteen] children in {his} class, and {he} sits beside {f}.

At ten o'clock there is a break. The children run out into the yard and [play|eat their sandwiches|talk].
{n} likes [reading|drawing|numbers] best. {f} likes [sport|music] more.

In the afternoon {n} [does {his} homework|goes home by bus|meets {his} friends].
When the bell rings, school is over, and everybody [goes home|runs out of the room].

@work
{n} works in [a shop|an office|a bakery|a garden|a hospital|a school]. {he} starts at [eight|nine] and goes home at [four|five].
{n} has worked in [an office|a small shop|a big kitchen] for two years. In the morning {he} [answers letters|talks to people|cleans the tables].

The work is [hard, but {he} likes it|not easy, but it is never boring]. At noon {he} eats lunch with {f}.
There is always much to do. At noon everybody takes a break and [eats together|goes for a walk].

In the evening {n} is tired, but [happy|content]. {he} [cooks dinner|reads the newspaper] and goes to bed early.
After work {he} goes [shopping|home|for a walk] and [rests|meets {f}].

@shopping
{n} needed [bread, milk and eggs|apples, cheese and butter|rice, onions and oil], so {he} took a bag and went to the shop.
On Saturday {n} and {f} went to the market. They had a list: [potatoes, carrots and fish|bread, cheese and grapes].

The shop was [full of people|almost empty]. {n} put the things in the basket and looked for the [milk|eggs|bread].
At the market there were [red apples|green pears|fresh carrots], and the farmers called out their prices.

{he} paid [five|ten|eight] coins, said thank you and carried everything home.
At home {n} noticed that {he} had forgotten the [salt|butter|sugar]. So {he} had to go back.

@garden
$veg = tomatoes; beans; carrots; potatoes; onions; peas; cucumbers
{n} has a small garden behind the house. There are [roses|tulips|apple trees] and rows of {veg}.
In spring {n} dug the earth and planted {veg}. {he} watered them every evening.

When it does not rain, the {veg} need water. [Bees|Butterflies] fly from flower to flower.
It was warm and it rained often, so the {veg} grew well. {n} pulled out the weeds.

In [August|September|autumn] the {veg} were ripe. {n} gave some of them to {f} and [cooked soup from the rest|kept the rest].
[A snail|A rabbit] ate some of the leaves, but there were enough {veg} for everyone.

@cooking
$food, with = potato soup/potatoes, onions and cream; tomato soup/tomatoes, onions and salt; an apple cake/apples, flour, eggs and sugar; pancakes/flour, eggs and milk; a salad/lettuce, tomatoes and oil; rice with vegetables/rice, carrots and peas; fish with potatoes/fish, potatoes and lemon; pasta with cheese/pasta, cheese and butter
{n} wanted to make {food}. For this {he} needed {with}.
For dinner there was {food}. {n} had bought {with}.
Yesterday we made {food}. We needed {with}.

First {n} washed {his} hands and put everything on the table. Then {he} [began|started to cook].
{he} [cut|washed] everything, put it in a [pan|bowl] and stirred with a big spoon. Soon the kitchen smelled good.

"It needs more [salt|time]," said {f}. After a while {n} tried it again, and it was good.
When everything was ready, {f} came to the table. They ate until [the plates were empty|nothing was left].

@walk
{n} and {f} went for a walk [in the forest|along the river|through the fields|over the hills]. The weather was [fine|mild|cool].
On Sundays we go for a walk [in the park|along the river]. [We walk slowly, because grandmother is old.|The dog runs ahead of us.]

They saw a [deer|fox|heron|squirrel] and stood still so that it would not run away.
The path was [narrow|steep|soft], and on both sides there were [old trees|wild flowers|high rocks].

After an hour they sat down on a bench, ate [an apple|some bread] and looked at the [view|clouds|water].
When the sun went down, they went back. They were tired, but [it had been a good day|they were happy].

@town
The town lies [on a river|near the sea|between two hills]. It has [narrow streets|old houses|a big market place] and a [tall tower|stone bridge].
In the middle of the town there is a [market place|park|fountain]. Around it are [shops|old houses|cafes].

In the morning it is quiet, but at noon the streets are full of people. Cars, buses and bicycles go by.
People sit in front of the cafes and drink coffee. Children play, and pigeons look for bread.

At night the lamps are lit, and [one can hear the bells|the windows shine yellow].
{n} has lived here for [ten|twenty|five] years, and {he} would not like to live anywhere else.

@pet
$pet, likes = dog/running after a ball; cat/sleeping in the sun; rabbit/carrots; parrot/nuts; pony/apples; hamster/running in its wheel; goat/eating grass
{n} has a {pet} called {pn}. {pn} is [two|three|five] years old and [brown|white|black|grey].
My {pet} is called {pn}. It has [soft fur|big eyes|small ears] and it likes {likes}.

Every morning {n} gives {pn} [food|something to eat] and fresh water. {pn} likes {likes} best of all.
A {pet} needs food, water and time. {n} takes good care of {pn}.

[Once|One day] {pn} ran away. {n} looked for the {pet} everywhere and found it [behind the house|in the garden|at the home of {f}].
When {n} comes home, {pn} is already waiting at the [door|gate|window].

@trip
$where, what = sea/shells; mountains/snow and rocks; lake/boats; city/tall houses; desert/sand; island/palm trees; countryside/cows and sheep
Last [summer|year|week] {n} and {his} family went to the {where}. They travelled by [train|bus|car].
{n} had never been to the {where} before. {he} packed {his} bag and took the [train|bus] in the morning.

The journey was long. {n} looked out of the window, [ate a sandwich|read a book] and fell asleep.
When they came to the {where}, there were {what} as far as the eye could see.

They stayed for [three days|a week] and [took many pictures|walked a lot]. {n} liked the {what} most of all.
On the last day {n} was sad to leave the {where}. "[We will come back|Let us come again next year]," said {his} mother.
"""
