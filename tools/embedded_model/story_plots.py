"""Plots of the short stories: what happens, slot by slot, each slot told in one of several ways.

A plot begins with `@name` and the kinds of hero it suits. `$x, y = a/b; c/d` draws a/b or c/d once a story: the fields {x}, {y}
(and {a_x}, {a_y} with an article). A blank line ends a slot, a line is one way to tell it. The fields of the hero, the friend, the
elder and the place come from `stories.World`.
"""

OPENINGS = """
Once upon a time there was a {trait} {k} [named|called] {n}.
Once upon a time there lived a {trait} {k} whose name was {n}.
Once upon a time, a {trait} {k} lived {home}. {his} name was {n}.
Once there was a {trait} {k} called {n}, who lived {home}.
There was once a {k} called {n}. {he} was [very|always|quite|a little] {trait}, and {he} lived {home}.
Long ago, {home}, there lived a {k} called {n}.
[Long ago|A long time ago|Many years ago] there was a {trait} {k}. {his} name was {n}, and {he} lived {home}.
{n} was a {trait} {k} who lived {home}.
{n} the {k} lived {home}. Everybody said that {he} was [very |]{trait}.
In a land far away lived a {trait} {k} called {n}.
[This is the story of|This is a story about|Let me tell you about] {n}, a {trait} {k} who lived {home}.
Everybody knew {n}, the {trait} {k}. {he} lived {home}.
Not far from here, {home}, lived {n}. {n} was a {trait} {k}.
There was a {trait} {k} named {n}. {he} lived {home}.
{home_cap} lived a {k} called {n}. {he} was [as|just as] {trait} as [anyone|anybody] could be.
Do you know {n}? {he} is a {trait} {k}, and this is what happened to {him}.
"""

DAYS = """
One [sunny|fine|bright|warm] morning,|One [cold|grey|windy|quiet] morning,|One day,|One afternoon,|On a [fine|warm|bright] spring day,
It was a [beautiful|warm|lovely] summer day.|It was [Monday|Saturday|Sunday] morning, and the sky was [blue|grey|clear].|Early one morning,
One [autumn|winter|summer] day,|The sun was shining and the birds were singing.|A [cool|soft|strong] wind was blowing that day.|
"""

PLOTS = """
@lost child animal villager robot
$o = red kite; blue ball; silver key; green hat; wooden flute; golden ring; yellow scarf; little drum; old book; brown bag; white cup; toy boat; small bell; glass marble; woollen glove; picture book

{n} had {a_o} [that {he} loved very much|which {he} took everywhere|that was a gift from {e}|and that made {him} very proud].
{his} favourite thing in the world was {a_o}. [It was a gift from {e}.|{he} never went out without it.|{he} had it with {him} every day.]
[For {his} birthday,|Last winter] {e} gave {him} {a_o}, and {n} took good care of it.

{day} {n} went {to} [with|and took] the {o}. {he} played there [for hours|for a long time|for a while] with {f}, [{his} friend|{his} best friend|who lived nearby].
{day} {n} and {his} friend {f} went {to}. {n} carried the {o}. They [ran and laughed|looked at everything|talked about many things] until they were tired.
{day} {n} took the {o} and walked {to}, where {he} met {f}. The two friends [played hide and seek|climbed and jumped|told each other stories].

But when {he} came home, the {o} was gone. {n} looked [in every corner|under the bed and behind the door|everywhere], but {he} could not find it.
On the way home, {n} stopped. "Oh no! Where is my {o}?" {he} cried. It was not in {his} bag, and it was not on the road.
In the evening {n} wanted to put the {o} in its place, but it was not there. {he} felt [very sad|so sad that {he} began to cry|sick with worry].

"I have lost my {o}," {n} [said to|told] {f}. "[Do not worry|Do not cry|Don't be sad]," said {f}. "[We will find it together|I will help you to look for it|Let us go back and look]."
{he} ran to {f} and asked for help. "Where did you see it last?" asked {f}. "{At}," said {n}. "Then [we must go|let us go] back there," said {f}.
{f} saw that {n} was sad. "What is wrong?" {fhe} asked. "My {o} is lost," said {n}. {f} took {him} by the hand. "Come, we will look for it."

First they looked [near the gate|beside the path|under a bench], but there was nothing. Then they looked [by the wall|in the tall grass|near the water], and again there was nothing.
They went back {to} and looked [everywhere|in many places]. They asked a [bird|farmer|cat], but nobody had [seen|found] the {o}.
They walked slowly and looked at the ground. {n} [wanted to give up|was tired and hungry], but {f} said, "[Only a little longer|Not yet|Let us try once more]."

At last {f} [shouted|called|cried], "[Look|Here|Come here]!" There, {spot}, lay the {o}. It was [a little wet, but not broken|dusty, but it was not broken|as good as new].
Then {n} saw something {spot}. It was the {o}! {he} [picked it up and held it tight|jumped for joy|laughed and hugged {f}].
Suddenly the sun came out, and something shone {spot}. "My {o}!" cried {n}. [It had been there all the time.|{he} picked it up with both hands.]

"Thank you, {f}," said {n}. "[You are a true friend|I could not have found it without you|Without you the {o} would still be lost]." From that day on {he} always [looked after|took better care of] the {o}.
{n} [thanked {f}|gave {f} a big hug] and went home with the {o}. That night {he} slept well, because {his} {o} was [beside {him}|back in its place|safe].
After that, {n} always [kept|carried] the {o} [close to {him}|in a safe place]. And {he} never forgot that it is easier to look for something with a friend.

@thorn child animal villager
$beast, hurt, later = little bird/had a broken wing/fly for help; small mouse/was caught in a net/bite through the rope; young fox/had a thorn in its paw/show the way; grey wolf/was caught in a trap/scare the robbers away; old donkey/was stuck in the mud/carry {him} home; bee/had fallen into the water/lead {him} to the honey; small turtle/was lying on its back/carry {him} over the water; white dove/was tangled in a string/bring a message home

{day} {n} was walking {at} when {he} heard a [small|weak|sad] voice. "[Help|Please help me]!" [it said|said the voice].
{day} {n} went {to} [to look for berries|to get some wood|because the weather was fine]. There {he} saw a {beast}.
{day} on the way {to}, {n} [found|met|came upon] a {beast}. It looked [very sad|tired and afraid|weak].

It was a {beast} that {hurt}. It [could not move|was shaking with fear|looked at {him} with big eyes].
The poor {beast} {hurt}, and nobody else was there to help.
"What is wrong?" asked {n}. The {beast} {hurt}, and it was in pain.

"[Do not be afraid|Be still], I will help you," said {n}. {he} was very careful, and soon the {beast} was free and well again.
{n} [did not think twice|felt sorry for it]. {he} knelt down and helped the {beast} [gently|with both hands]. Then {he} gave it some water.
{n} was in a hurry, but {he} stopped and helped. After a while the {beast} felt [much |]better.

"Thank you," said the {beast}. "[One day I will help you too|I will never forget this|You have a good heart]." Then it went away.
The {beast} [thanked {him}|bowed its head] and said, "If you ever need me, [call me|I will come]." {n} [smiled|laughed], for how could a {beast} help {him}?

[Some weeks later|A month later|In the winter|Not long after], {n} was {at} again. It grew dark, and {he} was lost and in [great |]danger.
[Later that year|Some time later|One evening in autumn], {n} got into trouble {at}. {he} [called and called|shouted for help], but nobody [came|heard {him}].

Then {he} heard a voice that {he} knew. It was the {beast}! It came to {later}, and soon {n} was safe.
But the {beast} had heard {him}. It remembered {n} and came [at once|quickly] to {later}.
"Now it is my turn," said somebody. The {beast} had come to {later}. {n} could hardly believe it.

"You helped me, and now I have helped you," said the {beast}. From then on the two were [good |the best of |]friends.
{n} thanked the {beast} with all {his} heart. {he} had learned that [a kind act is never wasted|even a small friend can be a great help|kindness comes back].
And so {n} learned that those who help others [will find help themselves|are never alone].

@skill child animal
$skill, skilling = swim/swimming; ride a bicycle/riding; read/reading; sing/singing; dance/dancing; paint/painting; play the piano/playing; skate on the ice/skating; climb a tree/climbing; bake a cake/baking; write {his} name/writing; whistle a song/whistling; catch a ball/catching; count to a hundred/counting

{n} [wanted to|wished {he} could|dreamed that one day {he} would] {skill}. [All {his} friends could do it, but {he} could not.|{he} thought about it every day.]
More than anything else {n} wanted to learn to {skill}. But [it was not easy|it looked very hard|{he} did not know how to begin].
{f}, {his} friend, could {skill} very well. {n} watched and thought, "I want to {skill} too."

{day} {he} tried for the first time. It went badly, and [some of the others laughed|{he} was ashamed|{he} felt like crying].
{day} {n} tried to {skill}, but [after a short time {he} had to stop|everything went wrong]. "I will never learn it," {he} said.
So {day_low} {he} began. The first time {he} failed. The second time {he} failed again.

"[Do not give up|Nobody can do it the first time|You must practise]," said {e}. "[I will show you|Try a little every day|Go slowly, step by step]."
{n} went home and told {e}. {E} smiled and said, "When I was young, I could not {skill} either. I learned it little by little."
{f} came and sat down beside {him}. "It was hard for me too," said {f}. "Shall we practise together?"

So {n} practised [every day|every morning before breakfast|after school every day]. [On Monday it was bad, on Wednesday it was better, and on Saturday it was almost good.|Sometimes {he} was tired, but {he} did not stop.]
Day after day {n} tried again. [When it rained, {he} stayed inside and thought about {skilling}.|{he} made many mistakes, but each day there were fewer.]
From then on there was no day without {skilling}. {he} [began slowly|was patient], and it became easier and easier.

Then one [day|morning|afternoon] it happened: {n} could {skill}! "[Look at me|I can do it|Look, look]!" {he} [cried|shouted|called].
After [three weeks|a month|many days], {n} showed {e} how well {he} could {skill}. Everybody clapped.
At last the day came when {n} could {skill} as well as {f}. {he} was so happy that {he} [danced|laughed|jumped into the air].

"I am proud of you," said {e}. "[You did not give up|You worked hard for it]." And {n} knew: practice makes it easier.
{n} [smiled|laughed]. "[It was hard, but now I can do it|I only had to keep trying]," {he} said.
Now, when someone says, "I cannot do it," {n} answers, "[Not yet|You cannot do it yet, but you will]."

@umbrella child villager
$o = red umbrella; big umbrella; warm coat; blue raincoat; yellow umbrella; grey cloak

{E} gave {n} {a_o}. "[It will rain today|There are dark clouds in the sky], so take it with you," {ehe} said.
In the afternoon dark clouds came over the hills. {n} took {his} {o}, because {he} did not want to get wet.
{n} had {a_o}. One morning {he} looked out of the window and saw dark clouds, so {he} took the {o} with {him}.

On the road {to} the rain began. It fell [harder and harder|on the roofs and on the trees|in big drops], but {n} stayed dry under the {o}.
{he} was walking {to} when it began to rain. The road was soon wet, and there were puddles everywhere.

Then {n} saw {f}. {f} had [no coat and no hat|nothing to keep off the rain], and {fhis} hair was wet. {fhe} was [very cold|shivering].
[Under a tree|Beside the road|At the corner] stood {f}, cold and wet. "I forgot my coat," said {f}. "I thought the sun would shine."

"Come [here|under my {o}]," said {n}. "There is [room|enough room] for two." So they walked on together under the {o}.
{n} thought for a moment. Then {he} said, "Take one side of my {o}, and I will take the other side."

They [talked and laughed|sang a song|jumped over the puddles] all the way. When they came to the house of {f}, the rain had stopped and [the sun came out|there was a rainbow in the sky].
At home, {f} made [hot tea|hot soup|warm milk] for both of them, and they sat by the fire until they were dry.

The next week it rained again, and this time {n} had left the {o} at home. But {f} was there with {a_o2}. "Now it is my turn," {fhe} said.
From that day on they [went everywhere together|were best friends]. And when it rains, two friends walk under one {o}.
"Thank you for the {o}," said {f}. {n} smiled. "[Shared rain is only half as wet|It is nicer to share]," {he} said.

@afraid child animal
$fear, sound = the dark/strange noise; thunder/loud bang; deep water/splash; the big dog next door/loud bark; high places/cry for help; spiders/scratching noise; the night/knock

There was only one thing that {n} was afraid of: {fear}. [{he} told nobody about it.|{he} did not like to speak about it.]
{n} was afraid of {fear}. When the others [laughed about it|asked {him} why], {he} [said nothing|turned red and went away].

{day} {n} was at home [alone|with {f}] when {he} heard {a_sound}. {his} heart beat [fast|very fast|like a drum].
{day} {e} was away, and {n} was alone. Then there was {a_sound} outside. {n} hid under {his} blanket.

Then somebody called, "[Help!|Help me!|Is anybody there?]" It was the voice of {f}. "{n}, I need you!"
It was {f}! {fhe} had fallen and hurt {fhis} [leg|foot|knee], and {fhe} could not get up alone.

{n} was [still afraid|shaking], but {he} thought of {his} friend. {he} took [a lamp|a long rope|a strong stick] and went out, step by step.
"I am afraid," thought {n}, "but {f} needs me." {he} took a deep breath, counted to three and ran to help.

When {he} came to {f}, {he} forgot all about {fear}. {he} helped {fhim} up, and slowly they walked home.
{n} gave {f} {his} hand and pulled with all {his} strength. Soon {f} was safe. "You saved me!" {fhe} said.

"You were very brave," said {e} [later|that evening|when {ehe} came home]. "But I was afraid," said {n}. "To be brave is to be afraid and still help," said {e}.
After that night {n} was not so afraid of {fear} any more. {he} had learned that [courage grows when we use it|we can be afraid and brave at the same time].

@vase child
$thing = blue vase; white plate; big mirror; green bowl; old clock; glass lamp; kitchen window; flower pot

{day} {n} was playing with a ball in the house, although {e} had told {him} not to.
One rainy day {n} stayed at home. {he} was bored and [ran|jumped|danced] from room to room.
{e} had gone to the market. {n} was alone in the house and [threw a ball|played with the cat|ran around the table].

[Crash!|Bang!|Then it happened.] The {thing} [fell down|fell to the floor] and broke into [many|a hundred|small] pieces.
Then {he} [hit|pushed against] the {thing}, and it fell. {n} looked at the pieces and turned [pale|white].

What should {he} do? First {he} wanted to hide the pieces [under the bed|in the garden|behind the door].
"I could say that [the cat did it|the wind did it|I know nothing]," {he} thought. But {he} did not feel good about it.

In the evening {e} came home and saw that the {thing} was gone. "Who broke the {thing}?" {ehe} asked.
Soon the door opened. "Where is the {thing}?" asked {e}. {n} looked at {his} shoes.

{n} [took a deep breath|began to cry]. "I did it," {he} said. "[I am sorry|I am so sorry|Please forgive me]."
For a moment {n} said nothing. Then {he} told [the truth|everything]. "It was me. I was playing, and the {thing} broke."

{E} [was silent for a moment|looked at {him} for a long time] and then [smiled|put an arm around {him}]. "I am sad about the {thing}, but I am glad that you told me the truth."
"Thank you for telling me the truth," said {e}. "A {thing} can be replaced, but trust is hard to get back."

Together they [picked up the pieces|swept the floor]. From then on {n} played with the ball only [outside|in the garden].
That night {n} slept well, for {he} had nothing to hide. [Honesty is not always easy, but it is always better.|And {he} never played ball in the house again.]

@gift child animal villager
$o, made = woollen scarf/knitted it; small box/made it of wood; picture/painted it in bright colours; necklace of shells/put it together with care; birthday cake/baked it early in the morning; clay pot/made it of red clay; wooden chair/cut and painted the wood; bunch of flowers/picked each flower in the meadow

The birthday of {e} was near, and {n} wanted to give {ehim} something. But {he} had [no money|only two coins|not much money].
{n} wanted to make {e} happy. "What could I give {ehim}?" {he} [thought|asked {him_self}]. "I have no money."

{day} {he} went to the market, but everything was too [expensive|dear]. {he} came home with empty hands.
First {he} looked in the shops. There were [rings|silk dresses|fine cups] and [golden clocks|sweet cakes|painted boxes], but {he} could not pay for them.

Then {f} had an idea. "[Make something yourself|You can make {a_o}]," said {f}. "A gift made by hand is the best gift."
On the way home {he} met {f} and told {fhim} about it. "Why don't you make {a_o}?" asked {f}. "I can help you."

So {n} made {a_o}. {he} {made}. It took [a whole day|two days|three evenings], and {he} was [tired but happy|very careful].
{n} [began at once|went to work]. It was to be {a_o}. {he} {made}, and {f} helped {him}.

When the day came, {n} gave {e} the {o}. "[Did you make it yourself|Is this for me]?" asked {e}. "Yes," said {n}.
On the birthday, there were many gifts on the table. The {o} of {n} was the smallest one, but {e} looked at it for the longest time.

{E} had tears of joy in {ehis} eyes. "This is the most beautiful {o} I have ever seen," {ehe} said.
"I like it more than gold," said {e} and kissed {n}. And {n} understood that a gift from the heart is worth more than money.

@road child animal villager robot
$o, use = small lantern/lit the lantern, and it was bright enough to see the path; silver whistle/blew the whistle as loud as {he} could; old map/opened the map and found the path; little bell/rang the bell again and again; ball of string/followed the string back to the road; bag of white stones/followed the white stones that {he} had dropped; compass/looked at the compass and walked to the north

{day} {n} wanted to visit {f}, who lived on the other side of the {p}. "Take this {o} with you," said {e}. "[You may need it|It may help you]."
{day} {n} set out for the house of {f}. In {his} pocket {he} had {a_o}, which {e} had given to {him}.
{n} had {a_o}. "[What is it good for|Why do I need it]?" {he} had asked. "You will see," {e} had answered. {day} {he} put it in {his} bag and went on a journey.

The way was long. At first the path was easy to see, and {n} [sang a song|counted the birds|looked at the flowers].
{he} walked and walked. {at_cap} there was so much to see that {n} [left the path|forgot the time].

But then [fog came up|it grew dark|the sun went down], and soon {n} could not see the path any more. {he} went to the left, and {he} went to the right, but everything looked the same.
After some hours {he} stood still. Where was the road? "I am lost," {he} said, and {he} felt very small.

{n} sat down [on a stone|under a tree|on the ground] and [thought|did not know what to do]. Then {he} remembered the {o}.
"What did {e} give me?" {he} thought. {he} put a hand into {his} bag and found the {o}.

{he} {use}. [It worked!|Soon {he} felt better.|"Now I know what to do," {he} said.]
Quickly {n} took the {o}. {he} {use}.

Before long {he} saw the light of a window. It was the house of {f}! "[Where have you been|I was worried about you]," said {f} and opened the door.
Somebody came with a light. It was {f}, who had been looking for {him}. Together they [went home|reached the house] and sat down by the fire.

When {he} was home again, {n} thanked {e}. "Now I know what the {o} is good for," {he} said.
From that day on {n} never went on a journey without {his} {o}, and {he} [listened to good advice|always stayed on the path].

@share animal child
$food = apples; nuts; berries; carrots; cookies; pears; cherries; cakes

{day} {n} found [a basket|a whole bag] full of {food}. "All these {food} are mine," {he} said. "I will not give any of them away."
{n} had more {food} than {he} could eat. But when {f} asked for some, {he} said, "[No, they are mine|Go and find your own {food}]."

{f} came by. "I am [so |very |]hungry," said {f}. "May I have [a few|some of your] {food}?" But {n} shook {his} head.
Then {f} came along the path. {fhe} had not eaten all day. "[Please give me some {food}|Will you share your {food} with me]?" "No," said {n}, "I need them all."

So {f} went away, hungry and sad. {n} ate and ate until {his} stomach hurt.
{n} took the {food} and hid them {spot}. But at night [the rain came|it rained and rained], and in the morning most of them were [bad|gone].

"Oh, how my stomach hurts!" {he} [cried|moaned], and nobody was there to help {him}. {he} felt [very |so |]lonely.
Now {n} sat there alone. There was nobody to [play|laugh|talk] with. "What good are {food} without friends?" {he} thought.

Then {f} came back and saw {him}. {fhe} was not angry. {fhe} brought {him} some [warm tea|water] and stayed with {him}.
In the evening somebody knocked at the door. It was {f} with [a small piece of bread|a bowl of soup]. "I have not much," said {f}, "but we can share it."

{n} was ashamed. "I am sorry," {he} said. "Take as many {food} as you like."
"You share with me, although I did not share with you," said {n}. "Forgive me." The next day {he} gave half of {his} {food} to {f}.

They sat down together and ate, and the {food} [tasted better than ever|had never tasted so good]. [What we share is twice as sweet.|Since that day {n} has always shared.]
From then on {n} never ate alone. {he} had learned that sharing makes friends.

@race animal child robot
$prize = a golden cup; a big cake; a silver medal; a new sledge; a basket of fruit

{day} there was a great race {at}. The winner would get {prize}. [Everybody wanted to win.|Many came to watch.]
Every year there was a race from the bridge to the {p}. The prize was {prize}. This year {n} wanted to run too.

"You are too slow," said {f}. "I [will win|am the fastest of all]." {n} [said nothing|only smiled] and practised every day.
{f} was the fastest runner and knew it. "Nobody can beat me," {fhe} [said|laughed]. {n} was slow, but {he} did not give up.

"One, two, three, go!" [The race began.|And off they went.] {f} ran ahead like the wind, and {n} was the last one.
The race began. At once {f} was far in front. {n} ran slowly, step by step, but {he} never stopped.

Halfway, {f} looked back and saw nobody. "I have plenty of time," {fhe} said and lay down {spot}. Soon {fhe} was asleep.
In the middle of the race {f} fell over a stone and hurt {fhis} foot. All the others ran past {fhim}.

When {n} came by, {he} saw {f} there. "[Come|Wake up], {f}!" {he} said. "We will [finish|go on] together." {f} was very surprised.
{n} could have run on. But {he} stopped, because {f} was {his} friend. "Give me your hand," {he} said.

They reached the end side by side, and everybody [clapped|cheered]. [The prize was shared between them.|Both of them got the prize.]
Together they came to the line. "You have both won," said {e}. They got {prize} and shared it.

"You could have won alone," said {f}. "[It is more fun with a friend|A friend is worth more than a prize]," said {n}.
And {f} never laughed at slow runners again. Slow and steady is a good way to travel, and kind is even better.

@seed child animal villager
$plant, grown = sunflower/taller than the house; apple tree/full of red apples; rose bush/covered with red roses; pumpkin/as big as a wheel; cherry tree/white with flowers; bean plant/as high as the roof

{day} {e} gave {n} a small seed. "[Plant it and wait|Put it into the earth and be patient]," {ehe} said. "It will become {a_plant}."
{day} {n} found a [small|brown|tiny] seed {spot}. "What will grow from it?" {he} [asked|wondered]. {he} did not know that it was the seed of {a_plant}.

{n} dug a hole [in the garden|behind the house|beside the gate], put the seed in and covered it with earth. Then {he} gave it some water.
{he} took a spade, made a little hole and planted the seed. "Grow!" {he} said.

The next day {he} ran to look, but there was nothing to see. The day after that there was [still |]nothing. "[It does not grow|It is a bad seed]," {he} said.
{n} waited one day, two days, a week. Nothing happened. "Shall I dig it up and look?" {he} asked.

"[Wait|Have patience]," said {e}. "[A seed works in the dark|Good things need time]. Give it water and let the sun shine on it."
{f} laughed. "A seed needs water, sun and time," said {f}. "You cannot make it grow by pulling."

So {n} watered it every [day|evening]. When it was hot, {he} gave it more water, and when it was cold, {he} covered it with [straw|leaves].
{he} did not forget the seed. {he} watered it, pulled out the weeds and [sang to it|talked to it].

Then one morning there was a green leaf! {n} called {f}, and both of them [knelt down to look|looked at it with wide eyes].
After three weeks something green came out of the earth. "It lives!" cried {n}. [Soon it had two leaves, then four, then eight.|It grew a little every day.]

In the end the {plant} was {grown}. Everyone who came by stopped to look at it. "[That was worth the wait|I am glad that I waited]," said {n}.
When summer came, it was {a_plant}, {grown}. And {n} had learned that [patience is as important as water|good things take time].

@new child animal robot
$game = hide and seek; football; chess; a card game; catch; marbles

{n} was new in the [village|town|street]. {he} did not know anybody, and {he} was too shy to speak to the others.
{n} and {his} family had moved to a new town. On {his} first day [at school|there], {n} sat alone in a corner.

{day} {he} watched the others, who were playing {game}. {he} wanted to play too, but {he} did not dare to ask.
At noon the others played {game}. [Nobody asked {n}.|{n} stood by the wall and looked on.]

"[Nobody likes me|I have no friends here]," {he} said to {e} in the evening. "[They do not know you yet|Say hello to one of them]," said {e}. "One word can be the beginning."
{n} missed {his} old friends. "What shall I do?" {he} asked. {E} answered, "If you want a friend, be a friend."

The next day {n} saw {f}, who [had dropped all {fhis} things|had fallen down|was alone too]. {n} took heart and went to {fhim}. "[Can I help you?|Hello, my name is {n}!]" {he} said.
The next morning {n} took a deep breath and walked up to {f}. "Hello," {he} said. "I am {n}. [What is your name?|May I sit here?]"

{f} looked up and smiled. "I am {f}," {fhe} said. "[Thank you|I am glad you came]. Do you want to play {game} with us?"
"Hello, {n}! I am {f}," said {f}. "I wanted to talk to you too, but I was too shy." They both laughed.

So they played {game} until [the sun went down|it was time to go home]. {n} [was good at it|lost every game, but {he} did not mind].
From that day on {f} and {n} played {game} [every day|together after school].

"I have a friend," said {n} at home. "{fhis_cap} name is {f}." And {e} was glad.
When another new one came some weeks later, {n} went to say hello first. {he} remembered how it felt.

@purse child villager
$o, owner = purse full of coins/old woman; golden ring/young queen; leather bag/tired traveller; silver watch/old teacher; box of jewels/rich merchant; small wallet/baker

{day} {n} was [on the way home|walking {at}|going {to}] when {he} saw something {spot}. It was {a_o}.
{day} {n} found {a_o} {spot}. {he} looked around, but there was nobody to be seen.

"With this I could buy [a new coat|a horse|many sweet things]," {he} thought. {n} was poor and had [holes in {his} shoes|not eaten since the morning].
{he} picked it up. "[Whose is it|Who has lost it]?" {he} asked. {f} said, "[Keep it|Nobody will know]." But {n} shook {his} head.

But then {he} thought of the one who had lost the {o}. "[Somebody is looking for it now|It is not mine]," {he} said. So {he} went from door to door and asked.
{he} could have kept it. But {n} was honest, so {he} [waited beside the road|asked everybody in the market] until the owner came.

At last {he} met {a_owner} who was [crying|looking at the ground|very sad]. "What have you lost?" asked {n}. "My {o}," was the answer.
In the evening there came {a_owner}. "Have you seen {a_o}?" "Yes," said {n}, "here it is."

{n} gave back the {o}. "[There are still honest people|You are an honest soul]," said the {owner}. "Take this as a reward."
The {owner} was so happy that {n} was happy too. "How can I thank you?" "[I do not need anything|I am glad that it is yours again]," said {n}.

The {owner} gave {him} [warm clothes and food|work and a place to stay|three golden coins]. {n} never regretted that {he} had been honest.
From that day on the {owner} and {n} were friends. An honest heart is worth more than {a_o}.

@build animal villager child robot
$o, why = bridge/could not cross the river; boat/could not reach the island; wooden house/had no place to sleep; tower/could not see the ships; wall/were cold when the wind blew; tree house/had no place to play

{day} {n} and {f} talked about a problem. They {why}. "We need {a_o}," said {n}.
The friends {n} and {f} {why}. {day} {n} had an idea. "[Let us|Why don't we] build {a_o}!" {he} said.

{f} laughed. "{a_o_cap}? That is too [hard|much work] for us." But {n} [began at once|had already made a plan].
"I can build it alone," said {n}. {he} worked all day. But in the night the wind came, and in the morning the {o} had fallen down.

{n} carried wood, and {f} brought [nails and a hammer|rope and stones]. {he} held the boards, and {fhe} hit the nails.
They asked everybody to help. One brought wood, one brought rope, and {e} brought [a saw|something to drink].

It was hard work. First it rained, then [the wood was too short|the rope broke]. But they [tried again|did not give up] and sang while they worked.
On the second day something went wrong, and the {o} fell to one side. "[We need stronger wood|Let us start again]," said {f}. So they began once more.

After [five days|a week|many days] the {o} was ready. It was [strong|not beautiful, but it was strong]. Everybody [clapped|was proud].
At last they stood in front of their {o}. "We did it!" cried {f}. "Together," said {n}.

In the evening they [made a fire|sat together] and looked at the {o}. What one cannot do alone, many can do together.
And the {o} still stands there today. Whoever sees it thinks of {n} and {f}.

@wish child villager animal
$wish, trouble = have everything turn to gold/{his} bread and even {his} bed were of gold, and {he} could not eat or sleep; be as big as a house/{he} could not go through {his} own door, and all {his} friends ran away; have summer all year/the rivers dried up and the flowers died; never have to work again/{he} was so bored that {he} did not know what to do with the long days; understand every animal/there was so much noise that {he} could not sleep; be able to fly/{he} flew so far that {he} could not find {his} home

{day} {n} met {a_giver} {at}. "You [gave me bread|were kind to me], so you may make one wish," said the {giver}.
{day} {n} found an old [lamp|bottle|box] {spot}. {he} opened it, and out came {a_giver}. "[I will give you one wish|What do you wish for]?" asked the {giver}.

{n} thought [for a while|hard]. "I wish to {wish}," {he} said. "[Think about it well|Are you sure]," said the {giver}. "I am sure," said {n}.
"I want to {wish}," said {n} at once. [There was a flash of light.|The {giver} clapped {ghis} hands three times.] And so it was.

At first {n} was very happy. {he} [laughed and danced|ran to show {f}]. "Now I have all I need," {he} said.
The first day was wonderful. {n} [told everyone|showed it to {f}], and everybody was amazed.

But then came the trouble: {trouble}. {n} was [unhappy|sad and tired].
Soon, however, things went wrong. {trouble}.

"I was [happy|better off] before," {he} said to {f}. "[Then go and ask for help|Tell the {giver} the truth]," said {f}.
{n} sat down and cried. Then {f} came and said, "Go back to the {giver}."

So {n} looked for the {giver}. "Please take my wish back," {he} [begged|said]. The {giver} smiled and did it.
{n} called the {giver} again. "I have learned something," {he} said. "I want to be as I was." "[That is a wise wish|So be it]," said the {giver}.

Then everything was as before, and {n} was [content|happy with what {he} had].
{n} ran home and hugged {e}. Now {he} knew that {he} already had what {he} needed.

@noise child animal
$pet, call = kitten/meow; puppy/soft bark; duckling/small quack; chick/soft peep; lamb/weak bleat

[One night|Late one evening|In the middle of the night] {n} could not sleep. The moon shone through the window. Then {he} heard something: a {call}.
It was a dark and [rainy|stormy|windy] night. {n} lay in bed and listened. There was a {call} outside.

"What can that be?" {he} [asked|whispered]. [Was it the wind? Was it a thief?|{his} heart beat faster.] {he} got up and took {his} lamp.
{he} woke {f}, who was staying with {him}. "Did you hear that?" "[It is only the wind|I heard nothing]," said {f}. But there it was again: a {call}.

{n} opened the door [slowly|a little]. The wind blew, and the rain fell. {he} held the lamp high and looked around.
They went outside, {n} in front and {f} behind. They looked [behind the barrel|under the steps], but there was nothing.

Then {he} saw a {pet}. It was sitting [under the steps|in an old box|behind a barrel], [wet and cold|small and hungry]. It looked at {him} and gave a {call}.
And there, [in a box by the wall|under a bush], sat a {pet}. It was shaking, because it was cold.

"You poor little {pet}," said {n}. {he} took it [in {his} arms|inside], dried it with a towel and gave it [some milk|something to eat].
{n} carried the {pet} into the warm room and made a bed for it [from a blanket|in a basket]. Soon the {pet} was dry and fell asleep.

In the morning {e} saw the {pet}. "May we keep it?" asked {n}. "[If you take good care of it|If nobody comes to look for it], yes," said {e}.
The next day {n} asked all the neighbours, but nobody missed a {pet}. So the {pet} stayed.

{n} called it {pn}. And {pn} [never gave a sad {call} again|followed {him} everywhere]. What had sounded so frightening became a friend.
They named it {pn}. When {n} hears a noise at night now, {he} is not afraid any more. It is only {pn}.

@sick child villager animal
$gift, thing = hot soup/the pot; honey cake/the basket; fresh milk/the bottle; fresh bread/the basket; warm tea/the bottle

{day} {n} waited for {f}, but {f} did not come. "[That is strange|Where can {fhe} be]?" thought {n}.
{n} and {f} met every day. But {day_low} {f} was not there. "{f} is sick," said {e}. "{fhe_cap} has to stay in bed."

{n} was [sad|worried]. "What can I do for {f}?" {he} asked. "{gift_cap} would be good for {fhim}," said {e}.
So {n} went to the house of {f}. {fhe_cap} was lying in bed with a red nose and a sore throat. "I feel terrible," said {f}.

{n} hurried home and got {gift}. {he} put it into {thing} and set out, although it was [snowing|cold|raining].
Then {n} had an idea. {he} took {thing}, put in {gift} and carried it all the way {to} and on to the house of {f}.

On the way {he} [fell into the snow|slipped on the ice|met a hungry dog], but {he} held {thing} tight, and nothing was lost.
The road was long and {thing} was heavy. "{f} needs it," thought {n} and walked on.

"I have brought you {gift}," said {n}. {f} sat up in bed. "[For me|How kind of you]!" {fhe} said. {fhe_cap} ate and drank, and soon {fhe} felt [better|warm again].
{f} was so glad to see {n} that {fhe} smiled for the first time that day. {n} gave {fhim} {gift} and read {fhim} a story.

A week later {f} was well again and could [play|run and jump|work]. "[Your visit was the best medicine|Thank you for the {gift}]," {fhe} said.
After some days {f} was healthy. But now {n} had a cold! So {f} came with {gift}, and {n} laughed.

@quarrel child animal villager
$o = blue boat; big drum; red wagon; wooden sword; swing; sledge; yellow ball; fishing rod

{n} and {f} were [good |the best of |]friends. They did everything together, and they had {a_o} that belonged to both of them.
{day} {n} and {f} found {a_o} {spot}. "[It is mine|I saw it first]!" said {n}. "No, it is mine!" said {f}.

But {day_low} they began to quarrel. Both wanted to have the {o} at the same time. {n} pulled on one side, and {f} pulled on the other.
"You always have the {o}," said {f}. "That is not true," said {n}. They grew louder and louder, and they pulled and pulled.

Crack! The {o} broke. "[That is your fault|Look what you have done]!" cried {f}. Both of them went home [angry|without a word].
Then the {o} broke in two. {n} turned around and ran home, and {f} ran home too.

That evening {n} sat [alone|at the window]. {he} was not angry any more, only sad. "What is {a_o} without a friend?" {he} thought.
The next day it was very quiet. {n} had nobody to play with. "You miss {f}," said {e}. "Go and say that you are sorry."

So {n} went to the house of {f}. On the way {he} met {f}, who was coming to see {him}! "I am sorry," they both said at the same time.
{n} took a deep breath and knocked at the door. "[I am sorry|It was my fault], {f}," {he} said. "No, it was mine," said {f}.

They got [glue and string|a hammer and some nails] and repaired the {o} together. It looked a little [crooked|funny], but it was better than before.
"We can repair it," said {n}. They worked all afternoon, and in the evening the {o} was whole again.

From then on they took turns. First {n} had the {o}, and then {f}. Friends may quarrel, but they make up again.
And when they wanted the same thing, they shared it. [A friend is worth more than any toy.|They never quarrelled about the {o} again.]

@machine robot
$o, does = battery/so weak that {he} could hardly move; left arm/stiff and made a loud noise; wheel/so loose that {he} went in circles; lamp/so dark that {he} could not see; voice/so low that nobody could hear {him}

{n} was made of [metal|steel|tin], and {he} worked [in a garden|in a big kitchen|in a school]. Every day {he} [swept the floor|carried boxes|watered the plants] and said, "Good morning!"
{n} could [count|clean|carry] very well, but {he} had never had a friend. "[What is a friend|How does it feel to be happy]?" {he} asked.

{day} something was wrong. The {o} of {n} was {does}. "[Help me|I need help]," {he} said.
{day} {n} noticed that {his} {o} was {does}. {he} could not do {his} work, and {he} was worried.

[People walked past and did not stop.|The others had no time.] But then {f} came, saw {n} and stopped. "What is the matter with you?" {fhe} asked.
{f} came by and heard {him}. "[You poor thing|Do not worry]," {fhe} said. "I know something about machines."

{f} looked at the {o} and got {fhis} tools. {fhe_cap} turned a screw here and a screw there. It did not help. {fhe_cap} tried again with [some oil|a new wire].
First {f} read the manual. Then {fhe} took [a small hammer|a screwdriver] and began to work on the {o}. It took [an hour|the whole afternoon].

"Try it now," said {f}. {n} tried, and it worked! {his} {o} was as good as new.
At last it was done. The lights of {n} went on, [green|blue] and bright. "I am well again!" {he} said.

"Why did you help me?" asked {n}. "Because we are friends," said {f}. {n} [thought|counted] for a second. "Now I know what a friend is," {he} said.
The next day it was {f} who needed help with {fhis} heavy bags. {n} carried them all. "That is what friends are for," {he} said.
"""
