"""Hard constructions of reviews: negation, turns, comparisons, idioms, reactions and telling consequences."""

from __future__ import annotations

from typing import Final

POSITIVE_TEXT: Final = """
Not one [of the dishes|of the rooms|of the songs|of the chapters] [disappointed|bored|annoyed] [me|us].
There was not a single [dull|boring|weak|wasted] [moment|minute|scene] [in it|from start to finish].
[The guide|Our teacher|The speaker|This author] is never [dull|boring|at a loss|impatient] and always [kind|fair|fun].
[The talk|The lesson|The tour|The concert] was anything but [boring|dull|ordinary|a waste of time].
[The bed|The chair|The sofa|The saddle] is anything but [hard|uncomfortable|cheap-looking|wobbly].
[Absolutely nothing|Nothing at all|Nothing] to complain about, from the [welcome|booking] to the [bill|farewell].
I [really |]have [nothing|no fault|not one thing] to [criticise|moan about|grumble about][, not even the price|].
[The result|The repair|The haircut|The paint job] is far from [sloppy|poor|a botch] and [really|truly] neat.
[It|The fan|The dishwasher|The engine] [hardly|barely|scarcely] makes a [sound|noise], [even at night|day or night].
[The battery|The phone|The torch] hardly ever needs [charging|a charge], [a real relief|which I love].
The whole [move|delivery|trip|installation] went off without a single [hitch|problem|scratch|complaint].
I cannot say [anything bad|one bad word] about [this shop|the staff|the room|the trainer], [however hard I try|truly].
I cannot say that I [missed|lacked|regretted] [anything|a thing][ during our stay| on this trip|].
[The staff|The nurses|Our hosts|The neighbours at the campsite] could not [be|have been] [kinder|nicer|more helpful].
[The location|The timing|The view|The weather] could [hardly|not] have been [better|lovelier|more perfect].
It could not be [easier|simpler|quicker] to [set up|clean|use|put together], [even for me|even for beginners].
[I|We] [wouldn't|would not] change a [thing|single detail] about [this place|the house|our day|the menu].
There is no better [place|spot|way] to [spend a Sunday|celebrate a birthday|learn the basics|start the day].
Nobody [was ever|has ever been] [rude|impatient|unfriendly] to us[ here|], [not even at rush hour|not once].
In [three|five|ten] years it has never [let me down|broken|failed|caused any trouble][, not even in winter|].
I have never [eaten|slept|been treated|been advised] so well[ in my life| anywhere| on a trip|].
Never have I [met|dealt with|come across] [more helpful|kinder|more honest] [people|salespeople|mechanics].
You [won't|will not] [regret|be sorry about] [this purchase|booking here|the long drive|a single minute].
No [stains|scratches|dents|loose screws], no [smell|noise|rattling], no [trouble|worries] [at all|whatsoever].
No [waiting|queues|stress], no [hidden costs|extra fees], just [a smile|good work|a friendly hello].
It is not without reason that [this place|the show|the bakery|the course] is [always full|fully booked|so loved].
[Not bad|Not bad at all], in fact [really rather good|surprisingly good|one of our nicest evenings|quite superb].
Neither the [price|wait|walk] nor the [rain|crowd|noise] could spoil [our fun|this lovely day|the evening].
Neither [my son|my sister|my mother] nor I [found|could find] [a fault|a flaw|any reason to moan][ with it|].
[Nothing|Not a thing] [was|is] too much [trouble|effort] for [the owner|the crew|this team|our guide].
It doesn't [creak|wobble|leak|scratch], it doesn't [smell|rust|fade], and it [looks great|does the job].
[The coat|The tent|The roof|My boots] didn't let in a [single drop|drop of water], [even in a storm|even after hours].
I [can't|cannot] think of [a single|any] [drawback|weakness|complaint][, and I am hard to please| to mention|].
This is no [cheap copy|empty promise|ordinary hotel|gimmick], it is [the real thing|a little marvel|top quality].
It isn't [the cheapest|the biggest|the newest], but [nobody|no one] does it [better|with more care].
I hoped for [little|nothing much] and got [a wonderful evening|far more than I asked for|a real treat].
I had low [hopes|expectations], but [the meal|the film|the hotel|the course] [won me over|blew me away|was a joy].
I doubted [it would work|the advert|the glowing reviews], yet [every word is true|it does wonders|I was wrong].
We [expected|feared] [the worst|chaos|a long wait], and [instead|then] [all went smoothly|everything was perfect].
I was [sceptical|suspicious|full of doubts] at first, now I [am a fan|wouldn't be without it|use it every day].
[My husband|My wife|My brother] laughed at me for buying it, now [he won't let go of it|we all want one|we all love it].
It [exceeded|surpassed|beat] all [my|our] [expectations|hopes][, and they were high|, truly|].
I [thought|assumed] it would be [cheap rubbish|a toy|boring], but [how wrong I was|I take it all back|it is first-rate].
From the [pictures|photos] I expected less, [the real room|the real garden|the real colour] is [prettier|far nicer].
It looks even [better|prettier|brighter] in [real life|daylight|my living room] than [in the catalogue|in the photos].
After all the [bad|harsh|nasty] reviews I was [pleasantly surprised|delighted][ by the food| by the room|].
They promised [a quick repair|fresh fish|a quiet room|lessons for all] and kept their word[ to the letter|].
It [really |]does [exactly|precisely|everything] [what it says|what they promise|what the box says][, and then some|].
[Cheap|Light|Small|Simple] but [strong|well made|incredibly tough|a joy to use][, and it has lasted for years|].
[Plain|Ugly|Old-fashioned] but [extremely useful|worth its weight in gold|unbeatable][ in everyday life|, I love it|].
Although [it was expensive|it took a while|we arrived late], [I am thrilled|it was worth it|we had a wonderful time].
Although it rained [all day|for hours], [the tour|the picnic|the match|our guide] was [a delight|brilliant|great fun].
The start was [slow|a bit dull|weak], but then [the story|the show|the match] [took off|became thrilling|had us hooked].
The room was [tiny|plain|dark], but [we slept like babies|so cosy that we stayed longer].
Yes, it is [pricey|a bit heavy|slow to heat], but [I'd buy it again|what a result|it beats all the others].
The [outside|building|shop front] looks [shabby|run-down], [but inside|but step in and] everything is [lovely|spotless].
There was a [mistake|mix-up|delay] with our order, but they put it right [at once|with a smile|and gave us a free cake].
The waiter forgot [a drink|my salad], but [apologised so nicely|made up for it so well] that we [beamed|came back].
[At first|In the beginning] I found it [odd|awkward|fiddly], [by now|a week later] I [adore it|can't do without it].
The [food|menu] is [simple|nothing fancy], [yet|but] every [plate|bite] is [cooked with love|full of flavour].
[Old|Used|Second-hand], and [still|yet] it [runs like clockwork|works like new|purrs like a kitten].
The [music|wine|decor] wasn't to my taste, but [what a great party|we danced all night|the evening was magical].
Despite the [long queue|crowds|heat], [we had a ball|it was well worth it|I'd do it all over again].
Despite my [fear|nerves], the [dentist|treatment|injection] was [painless|gentle|over in no time][, thank you|].
It isn't much to look at, [but|yet] it [cuts|cleans|heats|works] [like a dream|better than anything|wonderfully].
[It's|This is] better than [my old one|the expensive one|any I have owned|I dared to hope], [and quieter too|by far].
Compared [with|to] my old [phone|vacuum|car|oven], this is [a huge step forward|heaven|a revelation].
The best [pizza|coffee|haircut|bread|ice cream] in [town|the city|the whole county][, hands down|, no contest|].
It [hurts|leaks|crashes|smells] [even |far |much |]less than [before|the old one], [what a relief|hooray].
Since the update [the app|it|the machine] [runs|starts|loads] [twice as fast|better than ever|without crashing].
The [new owner|new chef|new manager] has turned [a dump|a dull pub|a mess] into [a gem|a paradise|the place to be].
It used to be [shabby|chaotic|slow], [today|now|these days] it is [a pleasure|spotless|the pride of the street].
[Every year|With each visit|With every season] it gets [better|lovelier|funnier|more exciting].
[No other|Hardly any other] [hotel|garage|baker|school] [in the area|nearby|around here] comes close to this one.
[Second to none|Head and shoulders above the rest|In a class of its own]: [the food|the advice|the sound|the staff].
My [grandmother|mother|aunt] couldn't [cook|bake] it better, and [she is a master|that is high praise].
For half the price I got [twice the quality|a far better room|something that actually lasts][, amazing|, superb|].
I have tried [dozens|lots|all] of [creams|pillows|apps|pens], and this one [beats them all|is my favourite|wins easily].
Worth every [penny|cent|minute of the wait|mile of the drive][, believe me|, without a doubt|, I promise|].
[Money|Every penny was money] well spent[, I'd pay it again| on this course| on these shoes|].
I would [gladly|happily] pay [double|twice as much|even more] for [such service|this quality|an evening like that].
[An absolute|A total|A real] [steal|bargain] at [that|this] price[, grab it| and built to last|].
Hats off to the [cook|driver|whole team|young band|man on the phone][, that was masterly|, bravo|]!
[Three cheers|Thumbs up|Full marks|A round of applause] for [the kitchen|our guide|the new trainer|this author]!
[Once again|Again and again|Any time again|Tomorrow again], [please|gladly|with pleasure]!
I want [another one|a second one|one for every room], [that's how good it is|I love it so much|it's that great].
This [kitchen|sofa|beach|voice|bike] is a dream[ come true|], [I could cry with joy|I am in love|just perfect].
[The service|The sauce|The sound|The whole weekend] was [a dream|out of this world|simply divine].
[The hotel|The repair|The show] gets [five|all five|ten out of ten] [stars|points] from [me|us], [gladly|with pleasure].
If I could give [six|ten|more] stars, I [would|certainly would], [the people here|they] deserve [them all|every one].
[Chapeau|Bravo|Well done|Keep it up]! [What a performance|What a meal|What a team], [simply stunning|I'm speechless].
What a [treat|triumph|joy|find|blessing]! [I wish I'd discovered it sooner|Why did I wait so long|Everyone needs one]!
[It|The cream|The trick|The syrup] [works|worked] [wonders|like magic], [my cough is gone|the stain vanished].
[The chef|The author|The plumber|The tailor] [knows|clearly knows] [the trade|what counts|every trick in the book].
They [went the extra mile|bent over backwards|pulled out all the stops] for [us|my mother|our wedding].
[The place|The book|The show] [lives up to|deserves|has earned] its [reputation|good name|fame][ in every way|].
This [is|was] [the icing on the cake|the highlight|the crowning glory] of our [trip|holiday|anniversary|week].
[It hit the spot|It ticked every box|It was just what the doctor ordered] after [a long hike|a hard week|a cold day].
A [breath of fresh air|ray of sunshine|feast for the eyes|stroke of genius] [in every respect|from first to last].
[I take my hat off|My compliments|Huge thanks|All my respect goes] to [the baker|the surgeon|the choir|your team].
[The soup|The bread|The cheesecake] was so [good|tasty|delicious] that [I asked for seconds|we licked the bowl].
The [film|speech|novel] was so [gripping|moving|funny] that [I forgot the time|nobody dared to cough|I saw it twice].
The bed was so [soft|cosy|comfortable] that [I slept in|we didn't want to get up|my back pain vanished].
She explained it so [well|patiently|clearly] that [even I understood|everyone passed|my son now likes maths].
The room was so [quiet|peaceful] that we [slept until nine|heard only birds|woke up fresh and rested].
The staff were so [kind|caring|attentive] that we [left a big tip|felt at home|didn't want to leave].
It is so [handy|useful|clever] that [I bought three|I take it everywhere|all my friends want one].
[The story|The view|The cake|This voice] is [almost |nearly |]too [good|beautiful|perfect] to be true[, and yet it is|].
You are never too [old|young] to [enjoy|love] [this game|this film|the rides|these stories][, what fun|].
I was too [happy|thrilled|touched] to [speak|say a word] when [the curtain fell|I opened the parcel|I saw the room].
[The steak|The meat|The fish] was tender enough to [cut with a fork|melt in the mouth][, just heavenly|, bliss|].
The [shoes|gloves|trousers] fit so well that I [forget I'm wearing them|ordered a second pair|never take them off].
Such [a warm welcome|a friendly crew|lovely people] that we [booked again|stayed on|hugged them goodbye].
I [can|would] [warmly|gladly] recommend [this doctor|the campsite|the course|this shop] to [everyone|anyone].
I [would|will] [go|order|book|eat] [there|here] again [tomorrow|in a heartbeat|any day|without thinking twice].
[Do yourself a favour and|Don't hesitate,|Run, don't walk, and] [book|buy|try] [it|this one] [today|at once].
[I have told|I told] all my [friends|colleagues|neighbours] to [go there|get one|book with them|try it].
We [have already booked|are already looking forward to|can't wait for] our next [visit|stay|lesson|flight with them].
[This was|It was] our [third|fifth|tenth] visit and [surely|certainly|definitely] not our last[, we feel at home|].
[Next time|When we come back] we will stay [longer|a whole month|for two weeks], [four days were too short|it flew by].
They have won [a loyal|a happy|another faithful] [customer|guest|patient|reader][ for life|, well done|].
I [keep|will keep] coming back to [this barber|this café|her novels|their bakery], [and for good reason|with joy].
[Buy it|Get it|Take it|Order it], [you'll love it|you won't be sorry|it's marvellous|it will make your day]!
I laughed until [I cried|my sides hurt|I had no breath], [what a clever comedy|such wit|what a gifted clown].
I cried with [joy|happiness|laughter] [when I saw it|at the end|when it arrived|as they sang].
[My wife|My daughter|Grandma] [jumped for joy|was over the moon|beamed all day] when [it arrived|she saw it].
[We|My kids and I] [sat on the edge of our seats|held our breath|cheered and clapped] [to the end|for two hours].
[I|Even my dad] stayed awake [all night|until four] because [the book was so gripping|the series was that good].
[I|We] [left|came out|drove home] with [a smile|shining eyes|a warm heart|a spring in our step].
[My heart leapt|I got goosebumps|I was moved to tears] when [the choir sang|the lights came on|she began to play].
I'm [proud|glad|grateful|relieved] that I [chose|found|picked|trusted] [this school|this builder|them|this clinic].
[It makes me happy|It cheers me up|It lifts my mood] [every time I see it|each morning|whenever I use it].
The [ending|last page|finale] [moved me deeply|gave me hope|took my breath away][, I thought of it for days|].
We felt [welcome|safe|at ease|like family] [from the first second|right away|the moment we walked in].
[The audience|The crowd|Everyone] [gave a standing ovation|wanted an encore|roared with delight] [at the end|twice].
[My children|The twins|Our grandchildren] ask for it every [day|evening|weekend][ and can't get enough|].
It went straight [to the top of my list|into my heart|onto my shelf of favourites][, I'm happy to say|].
I gave [one|a copy|a second one] to [my neighbour|my boss] because [I love mine so much|it's so good].
We stayed until [closing time|the lights went out][, that's how good it was| and were sad to go|].
[The plate|The dish|My bowl] went back [empty|wiped clean|without a crumb left][, even my fussy son's| every time|].
I have worn it [every day|all winter] [since|from the day it came], [I feel great in it|and get compliments].
[It|The lamp|The toy] survived [three moves|two toddlers|a fall down the stairs] and [still|yet] works perfectly.
The [dog|cat] [wolfed it down|licked the bowl clean|begged for more|purred with pleasure][ within a minute|].
My [plants|roses|tomatoes] have [doubled in size|never looked so healthy|thrived] since I [used|bought] it.
[After two weeks|Within days] the [pain|rash|itch] was gone, and I [can sleep|can run|can smile] again.
They [answered|replied|called back] within [minutes|the hour] and [solved it|sent a new one|thanked me for asking].
[My son|Our daughter|My nephew] [can't wait|is always eager] to go to [class|training|his lesson] again.
I [passed my exam|got the job|learned to swim] thanks to [them|this course|my patient teacher][, I'm so grateful|].
We [extended our stay|added three nights|came for a day and stayed a week][, that's how much we liked it|].
Strangers [stop me in the street|keep asking me] where I [bought|got] [this coat|this bag], [so lovely|I beam].
It sits on my [desk|bedside table|kitchen counter] and I [use it daily|wouldn't part with it|smile whenever I see it].
My [guests|friends|in-laws] [asked for the recipe|wanted more|praised it all night], [it was a hit|what a triumph].
I have [read|watched|played] it [three times|again and again] and [find something new|love it more] every time.
Even my [teenager|grumpy uncle|strict boss] [put down the phone|grinned|sang along], and that [means something|is rare].
The [mechanic|plumber|electrician] came [at once|on a Sunday], fixed it and charged [next to nothing|a fair price].
I slept like a [log|baby|stone] [on this mattress|in that bed|here] and woke up [refreshed|without any pain|rested].
The [zip|hinge|strap|seam] has held [for years|through every journey|without a hitch][, what good workmanship|].
[The parcel|My order|The flowers] came [early|a day sooner than promised], [well packed|in mint condition|fresh as dew].
[My skin|My hair] [feels like silk|glows|has never looked better] after [one use|the treatment|a single wash].
The [guide|teacher|coach] knew [every answer|a thousand stories], and [time flew|we hung on every word].
I [laughed|learned|smiled] more in [one evening|two hours] here than in [a whole year|months], [thank you|superb].
I'd rather [queue an hour here|drive fifty miles to them|wait for a table] than [eat|shop|go] anywhere else.
[If only|I wish] all [shops|doctors|landlords|airlines] were [like this one|as fair|this helpful][, a model to others|].
The only [regret|complaint] [I have|we have] is that we [didn't come sooner|couldn't stay longer|didn't order two].
My only complaint is that [it ended|the evening was over too soon|I didn't find them years ago][, really|].
What more could you [want|ask for|wish for]? [Good food|Warm rooms|Kind people], [fair prices|a great view|pure bliss].
Who [wouldn't|would not] be [happy|delighted|thrilled] with [this|such service|such a garden|a gift like that]?
How can [anyone|people] not [love|adore|admire] [this little shop|this book|these songs|this island]?
[Need I say|Do I have to say] more? [We married there|I bought five|I'm still smiling|They have my heart].
[Finally|At last] [a razor|a kettle|a dentist|a bank|a jacket] that [deserves praise|I can trust|doesn't let me down].
It took [a while|two days] to get used to, but [it was worth the effort|I'd never go back|now my wrist no longer hurts].
[Small|Modest|Hidden] from the [street|outside], but [what a treasure|a giant in the kitchen|huge in charm].
I was [about to|close to] [give up|return it], but [support|a friendly expert] [saved the day|fixed it in minutes].
[Forget|Ignore] the [plain cover|odd title|dull poster], [the story|what's inside] is [a jewel|gripping|sheer delight].
My [worries|doubts|fears] were [groundless|unfounded], [the surgery|the flight|the move] went [superbly|like clockwork].
Instead of [excuses|empty words] I got [real help|a new one|an honest apology], [that's how it should be|impressive].
They didn't [overcharge me|push me|rush me|talk down to me], [quite the contrary|on the contrary], [so fair|so kind].
I didn't [feel a thing|have to wait|need the manual|regret it for a second], [that's how good|wow|super].
Don't [change a thing|ever close|stop what you're doing|listen to the critics], you [are wonderful|do it so well]!
Don't be put off by [the price|the plain look|the long walk], [it's fantastic|you'll be rewarded|it pays off].
There wasn't a [dry eye|bored face|free seat] in the [hall|theatre|cinema], [so moving was it|such was the success].
[Seldom|Rarely] have I [laughed so hard|eaten so well|felt so welcome|slept so soundly][ as here| as that night|].
[Few|Not many] [hotels|schools|doctors|bands] [take such care|try so hard|do this so well][, bravo|, I'm impressed|].
It's not only [pretty|cheap|fast] but also [sturdy|easy to use|quiet|safe][, a real gem|, I'm delighted|].
[Without|If not for] [this app|their help|this belt] I'd be [lost|helpless|in pain], [it saved me|it's a blessing].
I would not [swap|trade|give away] my [new bike|little oven|knife] for [the world|anything].
It [saves|has saved] me [hours|a lot of time|so much trouble|money] [every week|every day|at work][, brilliant|].
It [brings|brought] back [happy memories|my childhood|the joy of cooking|my love of music][, how sweet|, I'm touched|].
[The crew|Our nurse|The caretaker] calmed [us|the kids|my mother] down and [made us laugh|held her hand].
The owner [remembered our names|waved us off|lent us an umbrella][, so thoughtful|, so kind|].
I left my [purse|phone|coat] there, and they [posted it all the way home|ran after me with it], [honest people|lovely].
The bill was [lower than expected|a nice surprise|more than fair], and [the food|the work] was [top|flawless].
They [refunded me|replaced it] [without a fuss|no questions asked|within a day], [that's what I call service|great].
[Call that|You call this] a [snack|starter]? It was [a feast|a banquet|enough for three], and [delicious|so tasty]!
Such [talent|kindness|craft|skill] is [rare|hard to find] [these days|nowadays][, treasure it|, support them|].
I [found|discovered] it by [chance|accident|luck], and [what luck|it changed my life|now I'm hooked|I bless the day].
[First date|Family dinner|Our anniversary] here: [a triumph|pure magic|she said yes|everyone glowed].
Would I [do it|go|buy it|stay there] again? [Of course|You bet|In a flash|Without hesitation]!
Was it worth [the money|the trip|the fuss]? [Absolutely|Every bit|More than worth it|Oh yes|Without question].
[A|What a] rare [case|thing]: a [sequel|remake|copy] that is [better|funnier|cleverer] than the original.
[I'd heard bad things|Friends had warned me], so I went [unwillingly|grudgingly], and I loved [it|every bit].
[Long|Three hours long|Slow] but never [boring|tiring|dull], [a masterpiece|a wonderful film|I'd see it again].
No [frills|fuss|nonsense|luxury], just [honest food|solid work|clean rooms] [as it should be|at a fair price].
[It's no wonder|Small wonder] that [people queue|they win prizes|it's sold out], [it's that good|simply delicious].
Since [we bought it|it arrived] there is no more [quarrelling|back pain|dust|shouting] at home, [hurrah|heaven].
[Nobody wanted|None of us wanted] to [go home|leave|get out of the pool] when [the day ended|evening came].
I [count|am counting] the days until [we return|the next episode|I can go back|the next book comes out].
[The kids|My pupils|The boys] were [glued to their seats|quiet as mice|all ears], [so thrilling|so well told] it was.
It [still|even now] [shines|smells fresh|looks new|fits] after [fifty|a hundred] washes, [remarkable|I'm amazed].
[The instructions|The signs|The menus] were so clear that [a child could follow them|I got it right first time].
We had [a whale of a time|the time of our lives|a blast|no end of fun] [there|at the fair|on the boat|with them].
[The driver|The pilot] got us there [safely|on time|in comfort] in spite of the [storm|snow|fog], [great job|top].
I [was wrong to doubt|shouldn't have doubted] [them|this team|my brother's tip], [they delivered|it was spot on].
[More|Much more] than [a meal|a shop|a gym|a school]: [a second home|a place full of heart|a joy for young and old].
As [good|fresh|warm|lovely] as [ever|on our first visit|I remembered], [they never disappoint|still my favourite].
[This|The new one] [beats|outshines|outdoes] [all the famous brands|my old one] [with ease|by miles].
I came in [grumpy|tired|stressed] and left [happy|relaxed|like a new person], [what a spa|such healing hands|bliss].
I bought it as a [joke|stopgap|last resort], and it became [my favourite|a faithful companion|the best buy of the year].
[It|The glue|The tape|The hook] holds [like iron|tight|for years], [I'm impressed|I tip my hat|good stuff].
I will never use [another|any other] [brand|shop|garage|barber] again, [this one is unbeatable|they're superb].
My [heating bill|phone bill|stress level] has [halved|dropped] since [then|the switch], [I'm overjoyed|fab].
[Tears|Shouts|Squeals] of joy at [Christmas|breakfast], [the present|the doll|the puzzle] was a [hit|success].
[Good job|Lucky for us] we [went in anyway|gave it a chance], [it was glorious|we loved it].
I would call it anything but [average|ordinary|mediocre]: [it's brilliant|a small wonder|it's a marvel].
We went [home|away] [full and happy|humming the songs|laughing|arm in arm], [talking about it|glad we came] all the way.
[Our waiter|The barber|The vet] took [his|plenty of] time, [listened|asked questions] and [got it just right|cared].
[A little pricey|A bit cramped|Rather loud], and still [the nicest|the best] night [of the year|in ages].
[Nothing flashy|Nothing fancy|No big words], [but|only] it [never fails|always delights|warms the heart|simply works].
They [treated|looked after] [my dog|my father|us] like [royalty|one of their own|a treasure][, I'm deeply thankful|].
I've [stopped looking|cancelled all the others|sold my old one]: [this is the one|it's unrivalled].
My [mouth waters|heart sings|eyes light up] [at the mere thought|just thinking] of [that cake|that stew|their pies].
It [isn't|was not] [luck|chance] that [all tables are taken|she won], [she is|they are all] gifted.
[You couldn't pay me|Nobody could get me] to [give it back|sell it|move out], [I love it too much|it's far too good].
The [sea|lake] was [calm|clean], [the children built castles|we swam for hours], and [nobody quarrelled|all was well].
[Broken|Lost|Late]? [Not with them|Never with these people]: [all arrived whole|all came on time], [I'm glad|good work].
This [blanket|pillow|jumper] is like [a hug|a warm cloud|a day in spring], [so snug|pure comfort].
[All's well that ends well|Patience pays off]: [the sofa finally came|they rebuilt it], and it is [gorgeous|a dream].
[Looks|Sounds] [silly|strange|odd], but [works a treat|helps so much|is great fun][, try it|, trust me|].
I had [given up|lost] hope, [then|until] [this doctor|this cream|this trainer] [healed my knee|got me fit].
[Boring|Overrated|Kitsch]? [Not at all|Far from it|Nonsense]! [I was spellbound|It's a delight|We loved every bit]!
They call it [the best|the finest] in [the region|the land], and [for once that's true|they are right|I fully agree].
[The others are louder|Others have more buttons|Rivals are cheaper], but [none|not one] [comes close|is half as good].
If [it|this one] ever [breaks|wears out|gets lost], I'll buy [the same one again|exactly this one][ at once| gladly|].
There's [always|never a day without] [a kind word|a smile|a little extra] [at the counter|from the boss].
Everything [worked|clicked|fell into place] [at once|first time|from day one], and I [sat back and enjoyed it|cheered].
[Short and sweet|In a nutshell|In short|To sum up]: [go there|buy it|I'm smitten|a hit|well worth it|we'll be back].
I expected a [fight|long argument], but the refund was [in my account|paid] [next day|at once], [well done|top].
[Hard|Strict|Demanding] but fair, our [coach|teacher] [brings out the best in us|taught us so much|earns our thanks].
You [can|could] [smell|see|taste] the [love|care|passion] in [every loaf|every cup|each plate][, exquisite|].
If you [like|love] [good|fine] [coffee|cooking|music], [this is heaven|you must come here|look no further].
I [woke up|got up] [without|free of] [pain|a stiff neck] for the first time in [months|years][, what a bed|, magic|].
No [child|toddler] ever [sat so still|listened so happily|giggled so much] as [at this show|with this book].
[Who needs|Why book] [a big chain|a luxury hotel] when [this inn|this farm] [offers so much more|is so lovely|is bliss]?
The [neighbours|people next door] [came over to ask|rang] where we [bought|got] it, [they want one too|so nice it is].
A [month|year] later I [still|even now] [hum the tunes|dream of the dessert|rave about it] [every day|all the time].
My [hands|fingers] no longer [hurt|tremble|crack] [since I switched|thanks to it], [so grateful|bliss].
[She|He] is [the most patient|the kindest|the most gifted] [teacher|nurse|guide] [I know|we ever had].
The [wait|price|drive] is forgotten [with the first bite|the moment you see it], [heavenly|so delicious].
We [came|went] as [strangers|guests] and left as [friends|fans], [what hosts|so much warmth|a stay to treasure].
This is [exactly|just] what I [had in mind|always wanted][, nothing is missing|, right down to the colour|].
It took [a load off my mind|all my worries away|all the stress away], [thank you so much|expert help].
[My faith|My trust] in [builders|doctors|online shops] is restored, [thanks to them|they were honest|such fair people].
[Even|Yes, even] on a [rainy Monday|busy Saturday] they [smile|joke|help you gladly], [that deserves praise|adorable].
The [cat|baby] [dozed off|fell asleep] on it [at once|purring|smiling], so it must be [comfy|soft and warm|perfect].
I was not [cheated|rushed|disappointed|ignored] [once|for a moment], [unlike elsewhere|I was spoiled].
There is [little|hardly anything|next to nothing] [to improve|to fault|I'd change] about [this tent|the spa|our stay].
"""

NEGATIVE_TEXT: Final = """
Not one [of the dishes|of the rooms|of the songs|of the chapters] [pleased|impressed|convinced] [me|us].
There was not a single [funny|exciting|good|memorable] [moment|minute|scene] [in it|from start to finish].
[The guide|Our teacher|The speaker|This author] is never [clear|prepared|patient|on time] and always [rude|moody|dull].
[The talk|The lesson|The tour|The concert] was anything but [interesting|inspiring|entertaining|a pleasure].
[The bed|The chair|The sofa|The saddle] is anything but [soft|comfortable|sturdy|restful].
[So much|Plenty|A great deal] to complain about, from the [welcome|booking] to the [bill|farewell].
I [really |]have [a lot|plenty|a long list of things] to [criticise|moan about|grumble about][, not only the price|].
[The result|The repair|The haircut|The paint job] is far from [neat|perfect|professional] and [already|clearly] a mess.
[It|The fan|The engine] [hardly|barely|scarcely] [works|does its job|runs], [even when new|even on a good day].
[The battery|The phone|The torch] hardly ever holds [a charge|its charge], [what a pain|which I hate].
The whole [move|delivery|trip|installation] passed without a single [apology|smile|kind word|thing going right].
I cannot say [anything good|one good word] about [this shop|the staff|the room|the trainer], [however hard I try|sadly].
I cannot say that I [enjoyed|liked|would repeat] [anything|a thing][ during our stay| on this trip|].
[The staff|The nurses|Our hosts|The neighbours at the campsite] could not [be|have been] [ruder|colder|less helpful].
[The location|The timing|The view|The weather] could [hardly|not] have been [worse|more dismal|more unsuitable].
It could not be [harder|slower] to [set up|clean|use|put together], [even with the manual|even for experts].
[I|We] [would|had to] change almost everything about [this place|the house|our day|the plan], [it was that bad|sadly].
There is no worse [place|spot|way] to [spend a Sunday|celebrate a birthday|learn the basics|start the day].
Nobody [was ever|has ever been] [polite|patient|friendly] to us[ here|], [not even on quiet days|not once].
In [three|five|ten] [weeks|months] it has never [worked properly|run smoothly|done its job][, not even once|].
I have never [eaten|slept|been treated|been advised] so badly[ in my life| anywhere| on a trip|].
Never have I [met|dealt with|come across] [less helpful|ruder|more dishonest] [people|salespeople|mechanics].
You [will|are going to] [regret|be sorry about] [this purchase|booking here|the long drive|every single minute].
No [instructions|screws|charger|lid], no [reply|refund|answer], no [help|apology] [at all|whatsoever].
No [welcome|greeting|smile], no [explanation|apology|answer], just [a shrug|a huge bill|a slammed door].
It is not without reason that [this place|the show|the bakery|the course] is [always empty|nearly bankrupt|so hated].
[Not good|Not good at all], in fact [really rather bad|surprisingly poor|one of our dullest evenings|quite dreadful].
Neither the [music|view|weather] nor the [dessert|wine|garden] could save [the evening|this dreadful day|our mood].
Neither [my son|my sister|my mother] nor I [found|could find] [any use|a good word|any reason to smile][ for it|].
[Everything|Every little question] [was|is] too much [trouble|effort] for [the owner|the crew|this team|our guide].
It doesn't [close|fit|turn|hold], it doesn't [clean|heat|cut], and it [looks awful|falls over].
[The tent|The roof|My boots] didn't keep out a [single drop|drop of water], [even in a drizzle|even for minutes].
I [can't|cannot] think of [a single|any] [advantage|strength|good point][, and I am easy to please| to mention|].
This is no [bargain|holiday|restaurant|tool], it is [a cheap fake|a bad joke|a rip-off].
It isn't [the dearest|the smallest|the oldest], but [nobody|no one] does it [worse|with less care].
I hoped for [a lot|something special] and got [a dismal evening|far less than I asked for|a real mess].
I had high [hopes|expectations], but [the meal|the film|the hotel|the course] [let me down|left me cold|was a flop].
I believed [it would work|the advert|the glowing reviews], yet [not a word is true|it does nothing|I was fooled].
We [expected|hoped for] [the best|a treat|quick help], and [instead|then] [all went wrong|everything was a shambles].
I was [hopeful|enthusiastic|full of praise] at first, now I [am sick of it|wish I'd never bought it|never use it].
[My husband|My wife|My brother] warned me about buying it, and [now I know why|the warning was right].
It [fell short of|failed|met none of] all [my|our] [expectations|hopes][, and they were modest|, sadly|].
I [thought|assumed] it would be [well made|a bargain|exciting], but [how wrong I was|it is third-rate].
From the [pictures|photos] I expected more, [the real room|the real garden|the real colour] is [uglier|far duller].
It looks even [worse|uglier|cheaper] in [real life|daylight|my living room] than [in the catalogue|in the photos].
After all the [good|glowing|rave] reviews I was [bitterly disappointed|dismayed][ by the food| by the room|].
They promised [a quick repair|fresh fish|a quiet room|lessons for all] and broke their word[ within a day|].
It does [nothing of|the opposite of|not even half of] [what it says|what they promise|what the box says][, sadly|].
[Cheap|Light|Small|Simple] but [flimsy|badly made|impossible to use|always breaking][, and it lasted two days|].
[Pretty|Stylish|Modern] but [completely useless|worth nothing|unusable][ in everyday life|, I hate it|].
Although [it was cheap|it came quickly|we arrived early], [I am furious|it was not worth it|we had a horrible time].
Although the sun shone [all day|for hours], [the tour|the picnic|the match|our guide] was [a bore|hopeless|no fun].
The start was [fast|quite exciting|strong], but then [the story|the show|the match] [fell flat|became tedious|lost us].
The room was [huge|elegant|bright], but [we never slept|so filthy that we left|damp and noisy, and we hated it].
Yes, it is [cheap|quite light|quick to heat], but [I'd never buy it again|what a poor result|all others beat it].
The [outside|building|shop front] looks [elegant|inviting], [but inside|but step in and] everything is [filthy|mouldy].
There was a [mistake|mix-up|delay] with our order, and they [never put it right|blamed us for it|simply laughed].
The waiter forgot [a drink|the bread|my salad], and [argued so rudely|ignored us so long] that we [walked out|left].
[At first|In the beginning] I found it [great|handy|clever], [by now|a week later] I [detest it|can't stand it].
The [food|menu] is [fancy|nicely described], [yet|but] every [plate|bite] is [cooked to death|without flavour].
[New|Expensive|Brand new], and [still|yet] it [stutters|breaks down every week|rattles like an old tractor].
The [music|wine|decor] was to my taste, but [what a dreary party|nobody danced|the evening was torture].
Despite the [short queue|discount|good weather], [we had a rotten time|it wasn't worth it|I'd never do it again].
Despite their [promises|assurances], the [dentist|treatment|injection] was [agony|brutal|pure torture][, never again|].
It is nice to look at, [but|yet] it [cuts|cleans|heats|works] [like a bad joke|worse than anything|miserably].
[It's|This is] worse than [my old one|the cheap one|any I have owned|I feared], [and louder too|by far].
Compared [with|to] my old [phone|vacuum|car|oven], this is [a huge step back|hell|a disaster].
The worst [pizza|coffee|haircut|bread|ice cream] in [town|the city|the whole county][, hands down|, no contest|].
It [helps|cleans|heats|does] even less than [before|the old one], [what a letdown|a real shame].
Since the update [the app|it|the machine] [runs|starts|loads] [half as fast|worse than ever|only with errors].
The [new owner|new chef|new manager] has turned [a gem|a lovely pub|a paradise] into [a dump|a mess|a place to avoid].
It used to be [charming|lovely|great], [today|now|these days] it is [a disgrace|filthy|a shadow of itself].
[Every year|With each visit|With every season] it gets [worse|shabbier|sillier|more tedious].
[Any other|Almost any other] [hotel|garage|baker|school] [in the area|nearby|around here] is better than this one.
[Beneath contempt|Miles behind the rest|Beyond a joke]: [the food|the advice|the sound|the staff].
My [toddler|dog|cat] could [cook|bake|do] it better, and [that says it all|I am not joking].
For twice the price I got [half the quality|a far worse room|something that never lasts][, outrageous|, shameful|].
I have tried [dozens|lots|all] of [creams|pillows|apps|pens], and this one [is the worst|loses badly].
Not worth [a penny|one cent|a minute of the wait|a mile of the drive][, believe me|, without a doubt|, I promise|].
[A waste of money|Money down the drain|Money thrown away][, nothing more| on this course| on these shoes|].
I would not pay [half|a quarter|one coin] for [such service|this quality|an evening like that] [again|any more].
[An absolute|A total|A real] [rip-off|scam] at [that|this] price[, avoid it| and built to break|].
Shame on the [cook|driver|whole team|owner|man on the phone][, that was disgraceful|, how rude|]!
[Thumbs down|No marks|Zero points|No applause at all] for [the kitchen|our guide|the new trainer|this author]!
[Never again|Once and never again|Not ever again|No more of this], [thanks|please|not even for free]!
I [want|demand] my money back, [that's how bad it is|every last cent|and an apology too].
This [kitchen|sofa|beach|voice|bike] is a [nightmare|bad joke], [I could cry with rage|I am fed up|just hopeless].
[The service|The sauce|The sound|The whole weekend] was [a joke|beneath contempt|simply dire].
[The hotel|The repair|The show] gets [zero|no|minus ten] [stars|points] from [me|us], [less if I could|sad to say].
If I could give [zero|no|minus] stars, I [would|certainly would], [the people here|they] deserve [none|not one].
[Oh dear|Good grief|How embarrassing|Shame]! [What a flop|What a mess|What a rabble], [simply shameful|I'm appalled].
What a [letdown|flop|pain|scam|disgrace]! [I wish I'd never discovered it|Why did I waste my time|Nobody needs one]!
[It|The cream|The trick|The syrup] [is|was] [pure humbug|snake oil|no use], [my cough is worse|the stain stayed].
[The chef|The author|The plumber|The tailor] [hasn't a clue|has no idea|should change jobs][, sad but true|, honestly|].
They [didn't lift a finger|couldn't care less|made no effort at all] for [us|my mother|our wedding].
[The place|The book|The show] [doesn't live up to|doesn't deserve|has lost] its [reputation|good name|fame].
This [is|was] [the last straw|the low point|the sad end] of our [trip|holiday|anniversary|week].
[It missed the mark|It ticked no box at all|It was the last thing we needed] after [a long hike|a hard week|a cold day].
A [slap in the face|kick in the teeth|pain in the neck|crying shame] [in every respect|from first to last].
[I have no respect left for|My complaint goes to|I blame|I am through with] [the baker|the surgeon|the choir|your team].
[The soup|The bread|The cheesecake] was so [bad|salty|stale] that [I sent it back|we fed it to the ducks].
The [film|speech|novel] was so [dull|clumsy|silly] that [I nodded off|half the audience fled|I gave up].
The bed was so [hard|lumpy|saggy] that [I lay awake|we slept on the floor|my back still hurts].
She explained it so [badly|impatiently|vaguely] that [nobody understood|everyone failed|my son now hates maths].
The room was so [noisy|draughty] that we [never closed an eye|heard every lorry|woke up tired and cross].
The staff were so [rude|cold|careless] that we [left no tip|felt unwelcome|couldn't wait to leave].
It is so [awkward|useless|badly designed] that [I returned all three|I leave it at home|none of my friends want it].
[The story|The plot|The cake|This voice] is too [bad|awful|dreadful] to [describe|deserve a word|be taken seriously].
Life is too short to [suffer|waste time on|endure] [this game|this film|the rides|these stories][, what rubbish|].
I was too [angry|shocked|upset] to [speak|say a word] when [the bill came|I opened the parcel|I saw the room].
[The steak|The meat|The fish] was too tough to [cut with a saw|chew|swallow][, just horrid|, yuck|].
The [shoes|gloves|trousers] fit so badly that I [got blisters|returned the pair|took them off after a minute].
Such [a cold welcome|a grumpy crew|nasty people] that we [cancelled|left early|complained to the manager].
I [can't|wouldn't] recommend [this doctor|the campsite|the course|this shop] to [anyone|my worst enemy|a soul].
I [would|will] not [go|order|book|eat] [there|here] again [even if it were free|for any money|in my life].
[Do yourself a favour and|Please|Be smart and] [skip|avoid|forget] [it|this one] [altogether|at all costs].
[I have warned|I warned] all my [friends|colleagues|neighbours] [not to go there|off it|about them|to stay away].
We [have already cancelled|are dreading|won't be back for] our next [visit|stay|lesson|flight with them].
[This was|It was] our [first|second] visit and [surely|certainly|definitely] our last[, we felt cheated|].
[Next time|If we ever come back] we will stay [elsewhere|in a tent], [four days were too long|it dragged].
They have lost [a loyal|a good|another faithful] [customer|guest|patient|reader][ for good|, well done|].
I [won't|will never] come back to [this barber|this café|her novels|their bakery], [and for good reason|no way].
[Don't buy it|Leave it|Don't take it|Stay away], [you'll hate it|you'll be sorry|it's trash|it will ruin your day]!
I didn't laugh [once|a single time|at all], [what a feeble comedy|such stale jokes|what a lame clown].
I could have cried with [anger|rage|frustration] [when I saw it|at the end|when it arrived|as they sang].
[My wife|My daughter|Grandma] [burst into tears|sulked all day] when [it arrived broken|she saw the mess].
[We|My kids and I] [fidgeted in our seats|yawned|groaned and sighed] [to the end|for two hours].
[I|Even my dad] fell asleep [at once|after ten minutes] because [the book was so dreary|the series was that dull].
[I|We] [left|came out|drove home] with [a headache|a scowl|a bad taste in the mouth|an empty stomach].
[My heart sank|I got a headache|I was bored to tears] when [the choir sang|the lights came on|she began to play].
I'm [ashamed|angry|sorry|annoyed] that I [chose|ever found|picked|trusted] [this school|this builder|them|this clinic].
[It makes me mad|It gets on my nerves|It spoils my mood] [every time I see it|each morning|whenever I use it].
The [ending|last page|finale] [left me cold|made me groan|ruined everything][, I was cross for days|].
We felt [unwelcome|unsafe|ill at ease|like intruders] [from the first second|right away|the moment we walked in].
[The audience|The crowd|Everyone] [booed|wanted a refund|whistled in anger] [at the end|after the first half].
[My children|The twins|Our grandchildren] [refuse to touch it|push it away|won't go near it][ and never will|].
It went straight [into the bin|back to the shop|onto the rubbish heap][, I'm sorry to say|].
I gave [mine|it] [away |]to [my neighbour|a jumble sale|the first taker] because [I couldn't stand it|it's so bad].
We left [before the main course|after ten minutes][, that's how bad it was| and were glad to go|].
[The plate|The dish|My bowl] went back [untouched|almost full|after one bite][, even my hungry son's| every time|].
I have worn it [once|one time|for an hour], [it itches|it ripped|I look like a sack in it], [what a waste|never again].
[It|The lamp|The toy] didn't survive [the first day|one toddler|a fall off the sofa] and [now|since then] is scrap.
The [dog|cat] [sniffed it and walked off|wouldn't touch it|got ill from it|turned up its nose][ at once|].
My [plants|roses|tomatoes] have [withered|all turned brown|died] since I [used|bought] it.
[After two weeks|Within days] the [pain|rash|itch] had doubled, and I [couldn't sleep|couldn't walk|saw a doctor].
They [never answered|never replied|hung up on me], and [weeks|months] later [nothing is solved|I'm still waiting].
[My son|Our daughter|My nephew] [cries|makes up excuses|hides] every time before [class|training|the lesson].
I [failed my exam|learned nothing|nearly gave up] because of [them|this course|my careless teacher][, I'm so cross|].
We [cut short our stay|left two days early|came for a week and fled after a night][, that's how much we hated it|].
Strangers [stared at me|giggled at me|pitied me] because of [this coat|this wig|my haircut], [so ugly|I blushed].
It sits in [the cellar|a drawer|the attic] and [gathers dust|I never use it|I'm annoyed whenever I see it].
My [guests|friends|in-laws] [left it on the plate|made a face|spat it out], [it was a flop|what an embarrassment].
I have [started|tried|restarted] it [three times|again and again] and [give up bored|like it less] every time.
Even my [cheerful aunt|patient wife|kind boss] [shook her head|walked out], and that [means something|is rare].
The [mechanic|plumber|electrician] came [days late|with no tools], fixed nothing and charged [a fortune|a cheeky price].
I tossed and turned [on this mattress|in that bed|here] and woke up [exhausted|with a sore back|shattered].
The [zip|hinge|strap|seam] gave way [on day one|on my first journey|without a warning][, what shoddy workmanship|].
[The parcel|My order|The bouquet] came [late|a week later than promised], [badly packed|crushed|in pieces].
[My skin|My hair] [feels like straw|burns|has never looked worse] after [one use|the treatment|a single wash].
The [guide|teacher|coach] knew [no answers|none of our names|no stories], and [time crawled|we stopped listening].
I [yawned|sighed|swore] more in [one evening|two hours] here than in [a whole year|months], [no thanks|dismal].
I'd rather [starve|stay at home|eat dry bread|sleep in the car] than [eat|book|go] here [again|once more].
[Luckily|Thank goodness] not all [shops|doctors|landlords|airlines] are [like this one|as greedy|this careless].
The only [good thing|nice part] [for me|for us] was [the exit|the way home], [the rest was grim|sadly].
My only praise is that [it ended|the evening was over soon|I could leave whenever I wanted][, really|].
What else could [go wrong|break|fail]? [Cold food|Damp rooms|Rude people], [crazy prices|no view|pure misery].
Who [wouldn't|would not] be [angry|furious|upset] with [this|such service|such a mess|a bill like that]?
How can [anyone|people] [like|stand|bear] [this grubby shop|this silly book|these awful songs|this noise]?
[Need I say|Do I have to say] more? [We demanded a refund|We've cancelled|I threw it out|I'm still fuming|They lost me].
[Yet another|One more] [razor|kettle|dentist|bank|jacket] that [let me down|I can't trust|deserves no praise].
It took [a while|two days] to set up, and [it wasn't worth the effort|it's no use at all|now my wrist hurts].
[Grand|Glossy|Shiny] from the [street|outside], but [what a dump|a disaster in the kitchen|short on charm].
I was [about to|close to] [relax|enjoy it], but then [it broke|smoke came out|the screen died], [utter junk|typical].
[Forget|Ignore] the [lovely cover|clever title], [the story|what's inside] is [drivel|tedious|sheer boredom].
My [worries|doubts|fears] were [justified|well founded], [the surgery|the flight|the move] went [badly|awry].
Instead of [real help|a new one|an honest apology] I got [excuses|empty words], [that's not how it should be|pathetic].
They didn't [help me|listen|explain|apologise], [quite the contrary|on the contrary], [so unfair|so rude].
I didn't [feel safe|get what I paid for|get an answer|enjoy it for a second], [that's how bad|ugh|grim].
Don't [waste your time|fall for it|give them a penny|believe the adverts], they [are crooks|do it so badly]!
Don't be taken in by [the price|the smart look|the sweet talk], [it's horrible|you'll be cheated|it's a trap].
There wasn't a [smiling face|happy soul|laugh] in the [hall|theatre|cinema], [so dull was it|such was the failure].
[Seldom|Rarely] have I [been so bored|eaten so badly|felt so unwelcome|slept so poorly][ as here| as that night|].
[Few|Not many] [hotels|schools|doctors|bands] [care so little|cheat so openly][, shame|, I'm appalled|].
It's not only [ugly|expensive|slow] but also [flimsy|hard to use|noisy|unsafe][, real junk|, I'm disgusted|].
[With|Thanks to] [this app|this belt] I'm [lost|worse off|in pain], [it failed me|they owe me a lot].
I would [swap|give away] my [new bike|little oven|knife] for [an old shoe|next to nothing], [it's that bad|sadly].
It [costs|has cost] me [hours|a lot of nerves|so much trouble|money] [every week|every day|at work][, dreadful|].
It [killed|spoiled|ruined] [my holiday|our wedding day|the joy of cooking|my love of music][, how sad|, I'm gutted|].
[The crew|Our nurse|The caretaker] shouted at [us|the kids|my mother] and [made us cry|slammed the door].
The owner [forgot our booking|chased us off|refused us an umbrella][, so heartless|, so mean|].
I left my [purse|phone|coat] there, and they [kept it|denied it|had thrown it away], [dishonest people|horrid].
The bill was [higher than agreed|a nasty surprise|less than fair], and [the food|the work] was [poor|faulty].
They [refused a refund|blamed me] [without a reason|with a sneer|within a day], [you call that service|what cheek].
[Call that|You call this] a [meal|main course]? It was [a crumb|an insult|barely a bite], and [tasteless|cold]!
Such [greed|rudeness|laziness|sloppiness] is [a scandal|hard to bear] [these days|nowadays][, avoid it|, shun them|].
I [bought|booked] it by [mistake|accident], and [what bad luck|it ruined my week|now I'm stuck with it|I curse the day].
[First date|Family dinner|Our anniversary] here: [a fiasco|pure horror|she went home|everyone sulked].
Would I [do it|go|buy it|stay there] again? [Of course not|No chance|Over my dead body|Not likely]!
Was it worth [the money|the trip|the fuss]? [Absolutely not|Not one bit|Sadly no|Oh no|Not in the least].
[A|What a] typical case: a [sequel|remake|copy] that is [worse|duller|sillier] than the original.
[I'd heard good things|Friends had raved about it], so I went [eagerly|full of joy], and I hated [it|every bit].
[Short|One hour long|Fast] but never [gripping|funny|touching], [a dud|a tedious film|I'd not see it again].
No [heating|hot water|towels|sleep], just [mould|cockroaches|noise|dust] [all week|at an outrageous price].
[It's no wonder|Small wonder] that [people leave|it's half empty], [it's that bad|simply disgusting].
Since [we bought it|it arrived] there is [only|nothing but] [quarrelling|trouble|dust|shouting] at home, [help|hell].
[Everybody wanted|All of us wanted] to [go home|leave|get out of there] before [the day ended|evening came].
I [counted|was counting] the minutes until [it was over|we could leave|I could go home|the curtain fell].
[The kids|My pupils|The boys] were [bored stiff|restless|half asleep], [so dull|so badly told] it was.
It [no longer|hardly] [shines|smells fresh|looks decent|fits] after [one wash|two washes], [a disgrace|I'm annoyed].
[The instructions|The signs|The menus] were so muddled that [an engineer would despair|I got it wrong three times].
We had [a wretched time|the worst day of our lives|a rough ride|no fun] [there|at the fair|on the boat|with them].
[The driver|The pilot] got us there [shaken|hours late|in tears] in spite of the [sun|empty roads], [poor job|awful].
I [was wrong to trust|shouldn't have trusted] [them|this team|my brother's tip], [they failed|it was a swindle].
[Less|Much less] than [a meal|a shop|a gym|a school]: [a money trap|a place without heart|a trial for young and old].
Not as [good|fresh|warm|lovely] as [before|on our first visit|I remembered], [such a letdown|no longer my favourite].
[This|The new one] [loses to|trails behind|is beaten by] [all the cheap brands|my old one] [by miles|badly].
I came in [happy|relaxed|cheerful] and left [grumpy|stressed|in pain], [what a spa|such clumsy hands|dire].
I bought it as a [treat|reward|present], and it became [a burden|a constant annoyance|the worst buy of the year].
[It|The glue|The tape|The hook] holds [nothing|for a minute|like wet paper], [I'm fed up|I give up|poor stuff].
I will use [any other|a different] [brand|shop|garage|barber] from now on, [this one is hopeless|they're a shambles].
My [heating bill|phone bill|stress level] has [doubled|shot right up|soared] since [then|the switch], [I'm livid|ouch].
[Tears|Shouts|Howls] of anger at [Christmas|breakfast], [the present|the doll|the puzzle] was a [dud|failure].
[Bad luck|Silly of us] that we [went in anyway|gave it a chance], [it was ghastly|we hated it].
I would call it anything but [good|clean|fair|useful]: [it's rubbish|a big swindle|it's a shame].
We went [home|away] [hungry and cross|covering our ears|silent|soaked], [moaning about it|sorry we came] all the way.
[The barber|The vet] took [no|hardly any] time, [didn't listen|asked nothing] and [got it all wrong|botched it].
[Right on time|Roomy enough|Quiet enough], and still [the dullest|the worst] night [of the year|in ages].
[Very flashy|Very fancy|Lots of big words], but it [always fails|never delights|chills the heart|simply won't work].
They [treated|handled] [my dog|my father|us] like [dirt|a nuisance|a piece of luggage][, I'm deeply hurt|].
I'm [looking again|back with the others|using my old one]: [this isn't the one|this one is a failure|it's unbearable].
My [stomach turns|heart sinks|blood boils] [at the mere thought|just thinking] of [that cake|that stew|their bill].
It [isn't|was not] [luck|chance] that [they have no fans|they lost], [the boss is|they are all] lazy.
[You couldn't pay me|Nobody could get me] to [take it back|try it again|move in], [I hate it too much|it's far too bad].
The [sea|lake|garden] was [smelly|muddy], [the children cried|we couldn't swim], and [everyone quarrelled|it was sad].
[Careful|Punctual|Polite]? [Not them|Never these people]: [half was smashed|all came late], [I'm mad|bad work].
This [blanket|pillow|jumper] is like [sandpaper|a sack of stones|a wet dog], [so scratchy|pure misery].
[It ended as it began|Patience didn't pay off]: [the sofa came|they rebuilt it], and it is [crooked|a nightmare].
[Looks|Sounds] [clever|great|smart], but [feels horrible|works badly|doesn't help|is no fun][, skip it|, trust me|].
I had [high|great] hopes, then [this doctor|this cream|this trainer] [made my knee worse|dashed them all|let me down].
[Exciting|A classic|Funny]? [Not at all|Far from it|Nonsense]! [I was bored|It's a chore|We hated every bit]!
They call it [the best|the finest] in [the region|the land], and [that's a lie|they are wrong|I had to laugh bitterly].
[The others are dearer|Rivals look plainer], but [all|any] of them would [be better|beat this one].
When [it|this one] [broke|wore out|got lost], I was [relieved|not sorry], [so much did it annoy me|good riddance].
There's never [a kind word|a smile|a little help] [for the children|at the counter|from the boss][, only scowls|].
Everything [jammed|crashed|fell apart] [at once|first time|from day one], and I [sat there and swore|despaired].
[In a nutshell|In short|To sum up]: [stay away|don't buy it|I'm furious|a miss|not worth it|we're done].
I expected a [quick|simple] answer, but the refund [never came|was refused], [what a cheek|shame on them].
[Strict|Loud|Demanding] and unfair, our [coach|teacher] [brings out the worst in us|taught us nothing|scares the kids].
You [can|could] [smell|see|taste] the [neglect|carelessness|greed] in [every loaf|every cup|each plate][, revolting|].
If you [like|love] [good|fine] [coffee|cooking|music], [this is hell|you must not come here|look elsewhere].
I [woke up|got up] with [pain|a stiff neck] for the first time in [months|years][, what a bed|, tragic|].
No [child|toddler] ever [whined so much|grew bored so fast|cried so hard] as [at this show|with this book].
[Who needs|Why book] [this inn|this farm] when [a tent|a park bench] [offers so much more|is cleaner|is more restful]?
The [neighbours|people next door] came over about the [racket|smell] it [makes|gives off][, dreadful|].
A [month|year] later I still [shudder|have stomach ache|rant] when I [think of it|hear the name|pass the place].
My [hands|fingers] now [hurt|sting|crack] [since I switched|because of it|with these gloves], [so annoying|agony].
[She|He] is [the least patient|the rudest|the most careless] [teacher|nurse|guide] [I know|we ever had|you could fear].
The [hunger|joy|smile] is gone [with the first bite|the moment you see it], [ghastly|so disgusting|simply horrid].
We [came|went] as [fans|friends] and left as [enemies|strangers], [what hosts|so much coldness|a stay to forget].
This is [not at all|nothing like] what I [had in mind|ordered][, half is missing|, not even the colour|].
It put [a load on my mind|me off for good|us all under stress], [no thank you|they were so alarming|useless help].
[My faith|My trust] in [builders|doctors|online shops] is destroyed, [thanks to them|they lied|such greedy people].
[Even|Yes, even] on a [sunny Sunday|quiet Tuesday] they [snarl|sulk|ignore you], [that deserves a telling-off|terrible].
The [cat|baby] [cried|screamed] on it [at once|all night], so it must be [uncomfortable|hard and cold|all wrong].
I was not [helped|greeted|thanked|heard] [once|for a moment], [unlike elsewhere|what a sad change|I was snubbed].
There is [little|hardly anything|next to nothing] [to praise|to like|I'd keep] about [this tent|the spa|our stay].
"""
