"""Hand-written reviews of things people buy and of shops and deliveries, as patterns with alternatives."""

from __future__ import annotations

from typing import Final

POSITIVE_TEXT: Final = """
The battery [easily |]lasts [two full days|a whole weekend], [even when I film a lot|just as they said].
My [old|previous] phone was slow, [but|whereas] this one [flies|is lightning fast|reacts at once].
The screen is so [bright|clear|sharp] that I can read it [in full sun|without my glasses|from across the room].
I would [buy|order|choose] [it|this one|the same one] again [tomorrow|any time|without thinking twice].
Worth every [penny|cent], [and then some|I use it daily|my husband agrees].
After [a year|two winters], the [jacket|coat|jumper] still looks [new|as good as new|like on day one].
The colour stayed [bright|fresh] [even after|after] [many|dozens of] washes.
[These|The] [shoes|boots|sandals] fit like a glove, and I walked [all day|for hours] without [a blister|any pain].
No [squeaking|rubbing|pinching], no [blisters|sore heels|aches]: these are the [boots|trainers] I was looking for.
The sole [held|has held] [through|for] three years of [hiking|daily wear|rain and mud].
The [sofa|armchair|mattress] is so [comfy|cosy|soft] that [nobody wants to get up|I fell asleep in seconds].
We put the [wardrobe|shelf|desk] together in [half an hour|twenty minutes], [and every part fitted|with no trouble].
All the screws were [there|in the bag], and the instructions [were easy to follow|made sense|left no questions].
The table stands [rock solid|firm], and [hot pans|red wine|the kids' crayons] left no mark on it.
The knife [glides|goes] through [tomatoes|bread|meat] like butter.
Nothing sticks to this [pan|pot], [not even eggs|not even rice|not even pancakes], and it cleans with one wipe.
The kettle boils [in a minute|in no time] and [is so quiet|hardly makes a sound|never drips].
This blender [crushes ice|chops nuts|purees anything] [without effort|with ease|in seconds].
My [coffee|espresso] has never [tasted|been] [better|so good|so rich] since I [got|bought] this machine.
The vacuum cleaner [picks up|swallows] [everything|every crumb], [even in corners|and it is light to carry].
It does [exactly|just] what it [should|promises|says on the box], [no more worries|every single time|day after day].
The drill [went|goes] through concrete [like cheese|without complaint|as if it were nothing].
[A|Finally, a|At last a] [hammer|saw|wrench] that [feels right in the hand|will outlive me|makes work a pleasure].
The kids [have played with it|fought over it|would not let go of it] [every day since|from morning to night].
My daughter's face [lit up|glowed] when she [opened|unwrapped] it, and [she still loves it|it goes everywhere with her].
A [toy|game|puzzle] that survives [drops|toddlers|rough hands], [at last|we are thrilled|bravo].
The bike [rides|runs] [smoothly|like a dream] and the brakes [grip at once|bite when I need them|never let me down].
The gears [change|shift] [without a sound|like clockwork|as smooth as silk], [even uphill|even under load].
[I|Honestly, I|I must say, I] could not put this book down and [read until three|missed my stop twice].
The ending [took my breath away|made me cry|was worth the wait], [what a writer|I want more|I was sorry it was over].
The characters [feel|seem] so [real|alive] that I [miss|still think of] them.
[The|Well, the|Yes, the] game [hooked me|pulled me in] from the first minute, and the levels get better and better.
No [crashes|bugs|ads], no [tricks|hidden costs], just [a great game|pure fun|hours of joy].
The app [opens in a blink|has never crashed|saves me an hour a day] and [is a joy to use|anybody can use it].
Since the [update|new version], everything runs [smoother|faster|better] than [before|ever].
[The|This] cream left my skin [soft|smooth|silky], and the [redness|itching|dry patches] [went away|vanished].
The lipstick stays on [all evening|through dinner|until bedtime] and [does not smudge|never dries my lips].
The perfume smells [divine|heavenly|of summer], and [everyone asks what it is|a drop lasts all day].
My hair [shines|feels silky|has never been softer] since I [use|switched to] this shampoo.
The biscuits are so [crunchy|buttery|tasty] that [the packet was empty in minutes|I hid them from the kids].
The soup tastes [homemade|like my grandmother's|fresh], [not at all of the packet|you would never guess it is instant].
The parcel [arrived|came|was here] [a day early|the next morning|before I expected it], [well packed|safe and sound].
The [driver|courier] [carried it up to the third floor|waited for me kindly|even helped me unpack it].
[Customer|Well, customer|Yes, customer] service [answered within minutes|picked up at once] and sorted it out.
I got my money back [the same day|without any fuss|no questions asked], [hats off|that is how to do it].
The assistant in the shop [took her time|listened|knew everything] and found me [just the thing|the perfect size].
It looks even [better|nicer|prettier] in real life than [in the photo|on the website|in the catalogue].
I was [sceptical|doubtful] at first, but it [won me over|proved me wrong|turned out a gem].
I expected [little|nothing] for that price and got [a gem|real quality|a little treasure].
Cheap, but [not|never] [nasty|flimsy]: it [has never failed me|does its job every day|still goes strong].
Expensive, [yes|true], but [you get what you pay for|I regret nothing|the best money I ever spent].
Don't [hesitate|think twice], [buy it|get one|just order it], [you will thank me|you won't be sorry].
Save yourself the [search|comparing] and [take this one|get this one], [I tried five others|none comes close].
[My|Honestly, my|I must say, my] only regret is [not buying it sooner|that I waited so long|that I did not get two].
[I cannot|I could not] [praise|recommend] [it|this] [enough|highly enough].
[I have|I've] told [all my friends|everyone at work] to [get one|buy it], and they [love theirs|thank me].
The headphones [block out|shut out] [the whole train|all the noise], and the sound is [rich|crisp|warm].
[Set-up|Installing it] was [child's play|a piece of cake], [even for my mother|even for a beginner like me].
The laptop [starts up|wakes] in seconds and stays [cool|silent|cool and quiet] [on my lap|even under load].
The camera takes [stunning|razor-sharp|gorgeous] pictures, [even at night|even of my restless dog].
The printer [just works|has never jammed|found my network at once], [who would have thought|what a relief].
The charger [fills|charges] my phone in [half an hour|no time] and [stays cool|never slips out].
[The|Honestly, the|I must say, the] remote control [lies well in the hand|responds at once|has buttons that make sense].
The television's picture is [breathtaking|crystal clear|so lifelike], [we feel like in the cinema|we stay home now].
The watch [counts every step|has kept perfect time|survived the pool], [I would be lost without it|and it looks smart].
[The|Well, the|Yes, the] dress [hugs me in all the right places|falls beautifully], and I got compliments all night.
True to size, [soft on the skin|warm but light|well sewn]: [two more are on the way|I want it in every colour].
The trousers [sit perfectly|stretch where they should|keep their shape] and have [deep pockets|strong seams].
The zip runs [smoothly|like a charm] and the seams [hold|are straight|do not budge].
This raincoat kept me [dry|bone dry] in [a downpour|a storm|the worst weather], [money well spent|I am impressed].
The gloves keep my fingers [warm|toasty] [even at minus ten|in deep snow|on the coldest mornings].
The wool is [wonderfully soft|so cuddly] and [does not itch|keeps its shape|never pills].
The bag holds [everything I need|my whole office], and the straps [are strong|do not cut in|still look new].
My [suitcase|backpack] [survived|came through] [three flights|a rough trip] without a [scratch|dent].
[The|Honestly, the] chair [supports my back|made my back pain vanish], [even after ten hours of work|at last].
I sleep [like a baby|through the night|better than in years] [since I got|on|thanks to] this mattress.
The drawers [slide|glide] [like new|without a sound], the wood is [solid|real oak|beautifully grained].
The lamp gives [a warm|a cosy|a soft] light that makes the room [inviting|feel like home].
The curtains [keep the light out|hang beautifully|were the right length] and [cost next to nothing|wash well].
The oven bakes [evenly|perfectly]: my [cakes|loaves|pizzas] come out [golden|just right] every time.
The fridge [purrs quietly|uses little power|keeps lettuce crisp for a week], [could not be happier|a sound choice].
[The|Honestly, the] washing machine gets [every stain|even grass and wine] out and [hums so softly|is gentle on wool].
[The|Honestly, the] dishwasher leaves [the glasses sparkling|no streaks], [and I get my evenings back|and the pots too].
The toaster [browns both sides evenly|never burns anything|is easy to clean][|, a good start to the day].
The lid [closes tightly|seals well] and [not a drop|nothing] [leaked|spilled|came out] in my bag.
The flask keeps tea [hot|piping hot] [until the evening|for twelve hours], [as promised|I tested it].
The scissors [stay sharp|cut anything|feel well balanced] and [my mother wants a pair|I got two more].
[The|Honestly, the|I must say, the] lawn mower [starts on the first pull|cuts like a dream|is light as a feather].
The ladder stands [firm|safely] on [any floor|uneven ground], and I [feel safe|trust it] [on the top step|up there].
The glue [holds|sticks] [like iron|for good|better than the original], [the vase is whole again|my shoe is saved].
The paint covers [in one coat|everything at once], [hardly smells|dries fast] and [looks splendid|washes clean].
[The|Well, the|Yes, the] screwdriver set has [every size I need|bits of real steel] and a case that closes well.
The doll is [lovingly made|so pretty|soft and cuddly], [my niece takes her to bed|a present that hit the mark].
The building blocks [click together|hold firmly|spark ideas], and [even we parents join in|the fun never ends].
[The|Honestly, the] board game [brought us together|made us roar with laughter], [rules clear in five minutes|loved it].
The kite [took off|flew] [at once|on the first try] and [my son squealed with joy|stayed up for an hour].
[The|Honestly, the] saddle is [comfortable|soft enough] [even on long rides|for fifty miles], and the frame is light.
My e-bike [climbs every hill|pulls like a horse|goes sixty miles on a charge], [I sold my car|I grin all the way].
The helmet [fits snugly|weighs nothing|saved my head in a fall], [and it looks good too|thank you to the makers].
The lock [opens with one turn|stopped a thief|has never rusted], [peace of mind|good buy].
[A|Honestly, a] cookbook I [actually use|reach for every day]: [clear steps|simple recipes] and results that wow guests.
The story [grips|moves|surprises] [from the first line|on every page], and [the language sings|time flew].
[The|Well, the|Yes, the] translation reads [smoothly|beautifully], a pleasure, and the print is large.
This guide [taught me more than any course|answered all my questions|saved our holiday][|, bravo].
[The|Honestly, the] graphics are [gorgeous|breathtaking], the controls [responsive|intuitive], and I lost track of time.
You can play [for free|without paying a cent], and [nothing nags you|it stays fair], [a rare find|kudos].
The app [found my bus|got me home|keeps my passwords] [reliably|without a hitch|every time], [five stars|indispensable].
The new design is [clear|tidy|easy on the eyes], and I find [everything at once|what I need right away].
Logging in is [quick|simple], [no endless forms|no fuss], and my data [is safe|comes along from the old phone].
The serum [did wonders for|calmed|cleared up] my skin [in a week|overnight], [I glow|people notice].
The mascara [does not clump|survives tears|opens my eyes] and [comes off with warm water|costs little].
The sunscreen [sinks in fast|does not sting|leaves no white film], and [nobody got burnt|the whole family uses it].
The soap [lathers well|smells of lavender|lasts for months] and [my dry hands have healed|leaves skin soft].
The razor [gives a close shave|glides], no [cuts|burns|nicks], [my cheeks are smooth as silk|my skin is grateful].
The chocolate [melts on the tongue|is heavenly|has real depth], [not too sweet|I could eat a whole box].
The crisps [crunch|taste] [as they should|wonderfully], and the bag is [full to the top|generous].
[The|Well, the|Yes, the] frozen pizza [beats|is better than] many a restaurant's, with lots of cheese.
The tea has a [fine|lovely|full] flavour and [wakes me up gently|smells like a meadow].
[The|Well, the|Yes, the] muesli is [full of nuts|packed with fruit], not too sweet, and keeps me full till noon.
Ordered [on Monday|in the evening], [here on Tuesday|delivered next day], [perfectly packed|all complete]: great shop.
The shop [kept me informed|kept its word|replied to every mail], and [the parcel came on time|nothing went wrong].
One [part|cup|plate] was broken, but [a new one came the next day|they replaced it at once], [great service|so kind].
Returning it was [easy|painless|free], [they even sent a label|the money came in two days].
[The|Well, the|Yes, the] box was [neatly packed|well padded], nothing was broken, and a sweet note lay inside.
I got [exactly|just] what I ordered, [in the right size|in the right colour], [no complaints|happy customer].
[The|Well, the|Yes, the] hotline [was friendly|took me seriously], and the problem was solved in five minutes.
The website is [easy to use|well arranged], paying was [simple|quick], and [the prices are fair|it all went smoothly].
They [charged me less|threw in a gift|gave me a discount] [without my asking|as a thank-you], [how kind|I will be back].
The owner [knows her stuff|loves what she sells|advises honestly], [I always leave happy|a shop with a heart].
The queue was [short|quick], the staff [cheerful|helpful|polite], and [I found a bargain|parking was easy].
[You|Honestly, you|I must say, you] can tell that [somebody cared|it was made with love|a clever mind designed this].
It [feels|looks] [sturdy|solid], [not like the usual plastic|made for life], and [I trust it|it weighs little].
[Three|Five|Ten] years of daily use, and it [still works|runs like new|has not missed a beat].
It [makes|has made] my [life|day|work] so much [easier|nicer], [I want to hug the inventor|how did I live without it].
What a [bargain|find|treat|stroke of luck], [I still cannot believe the price|I am over the moon]!
[Wow|Hurrah|Finally], [something that works|a product that keeps its word|quality you can feel]!
Two thumbs [up|way up] for [the build|the price|this little helper], [my favourite buy this year|keep it up].
Five stars [are not enough|well earned|from the whole family], [simply superb|nothing to fault|I love it].
There is nothing [to criticise|I would change|to moan about], [and believe me, I looked|and I am picky].
I [adore|treasure|cherish] [it|this thing], and [nobody may borrow it|it goes with me everywhere].
The [fabric|material|leather] feels [luxurious|expensive|pleasant], [far better than I hoped|like silk].
It was a [gift|present] for my [dad|boss|aunt], and [it was a hit|I got a big hug|it brought tears of joy].
My [cat|dog] [loves|adores|sleeps all day in] the new [basket|bed|blanket], [best purchase ever|so sweet].
The manual is [short|clear|in plain English], and [everything worked first time|I needed no help].
Compared with [my old one|the one from the other shop], this is [a huge step up|heaven|a different league].
My [expectations|hopes] were [exceeded|surpassed|met in full], [chapeau|well done|I am thrilled].
Not [a single|one] [problem|fault|complaint] in [six months|two years], [and we use it hard|touch wood].
I have [never|hardly ever] had a [better|finer|smarter] [pen|umbrella|pillow|tent|radio].
The tent [was up in five minutes|kept us dry all night|stood firm in the storm], [we slept soundly|no regrets].
The umbrella [defied|stood up to|survived] [the storm|strong wind|every gust], [I am amazed|sturdy little thing].
The pillow [cured my stiff neck|is a cloud|keeps its shape], and [I look forward to bed|mornings are a joy].
The alarm clock [never fails|wakes me gently|is easy to read], [I have not been late since|lovely thing].
The speaker is small but [mighty|powerful|full of sound], [the party was saved|the neighbours came to dance].
The keyboard is [a joy to type on|quiet and precise|kind to my wrists], [my typos are gone|love at first touch].
The connection [is stable|never drops|holds through two walls], and [films run without a hitch|calls are clear].
The [heater|fan] [warms|cools] the room [quickly|in no time] and [is whisper quiet|does not cost much to run].
[I|Well, I|Yes, I] wanted to [return|complain about] it at first, but now I would not give it back for anything.
The [reviews|ads] did not lie: it [really is|truly is] [that good|as tough as they say|a marvel].
Believe the [hype|praise]: [it delivers|it lives up to it|it is as good as people say].
[Had I known|If I had known] how [good|useful|comfy] it is, I would have bought it [years ago|much sooner].
It is not [cheap|small|pretty], but it is [excellent|the best I have owned], and I [love it|would not swap it].
Nothing [broke|came loose|rusted], [although we are rough with it|and it lives outdoors], [so well made|impressive].
No [smell|noise|mess], no [fuss|stress], [clean and simple|as it should be|perfect].
I [need|want] no other [brand|pan|bag|shampoo] any more, [this is the one|I have found my favourite].
The pan heats [fast|evenly], the handle [stays cool|sits tight], and [it feels like a professional's|it looks smart].
[The|Well, the|Yes, the] mixer [kneads heavy dough|whips cream in seconds], my cakes have never risen so well.
The scales are [precise|accurate|exact], the display is [clear|bright], a small thing that pleases me daily.
The bottle [seals perfectly|fits in every bag|keeps water fresh], and [I drink more now|it is easy to wash].
I [use|wear|need] it [daily|all the time|every morning] and [would be lost without it|still enjoy it|never tire of it].
It [saved|has saved] me [so much time|a lot of money|hours of work].
My [wife|husband|sister] [is in love with|swears by|raves about] [it|hers|the new one].
If you [want|need] a [lamp|bag|clock|grill] that [lasts|works], [look no further|here it is].
You will [love|enjoy|treasure] this [coat|gadget|cup], [I promise|trust me|mark my words].
[A|An absolute] must for [every kitchen|anyone with children|all who like to read].
[Sadly|Unfortunately] there is only one in the shop, I would [gladly|happily] have [bought|taken] [two|three|five].
The price is [fair|more than fair|a steal] for what you [get|are given].
I paid [little|a few coins|half the usual price] and [got a lot|am very pleased|could not be happier].
The [size|length|fit] is [right|spot on|ideal] and the [colour|pattern] [suits me|is lovely].
I was [delighted|thrilled|overjoyed] when I [opened the box|unpacked it|tried it on].
Even after [a fall|rain|heavy use] it [works|looks fine|runs] [without a problem|as before].
[Tough|Light|Handy] and [clever|practical|good-looking], [a tool|a thing] I [value|like] more every day.
The mobile signal is [strong|perfect] and [calls|voices] sound [clear|as if you stood beside me].
They [repaired|fixed|replaced] it [for free|within a day|although the guarantee had run out].
The seller was [honest|courteous|quick to reply] and the [goods|item] [flawless|as described|spotless].
[Second-hand|Used], but [spotless|like new|in top shape], [what luck|I am so glad|full marks to the seller].
The pens [write smoothly|never smear|have lovely colours] and [last|lasted] [for months|all term].
My tea stays [warm|hot], my hands stay [cool|safe]: a [clever|well thought-out] [cup|mug].
The towels are [fluffy|thick|soft] and [soak up|drink up] [everything|water like a sponge].
The socks [stay up|keep their shape|never slip], and [there is no hole yet|my feet stay dry].
The ring [sparkles|shines] [beautifully|like a star], and she [said yes|was touched|wears it proudly].
The plant came [healthy|strong|in full bloom] and [is thriving|has doubled in size|brightens the room].
The candles [burn evenly|smell of honey|glow for hours] and [do not smoke|make evenings magical].
The [pasta sauce|jam|honey] is [delicious|full of flavour|simply yummy], [I lick the spoon|we eat it by the jar].
The instant noodles [hit the spot|taste great], [spicy and rich|not salty at all], [my new favourite|more, please].
The vegetables in the box were [crisp|fresh|ripe], and [it came on the dot|I cooked happily all week].
The groceries came [within the hour|on time|still cold], [nothing forgotten|all fresh], [a real help|ideal].
I [found|got] what I was looking for [straight away|in two clicks], [and cheaper than elsewhere|well sorted shop].
The chat assistant [understood me|helped] [right away|at once], [friendly and to the point|I was impressed].
My order was [complete|correct|beautifully wrapped] and [the ribbon was a sweet touch|delivered with a smile].
They [keep|kept] [every promise|their word], [a shop you can trust|I remain a loyal customer].
I have been [buying|ordering] here for [years|ages] and was [never|not once] [disappointed|let down].
I [did not regret|have not regretted] it for a [second|minute|day], [on the contrary|it is that good].
It [is not|isn't] [bad|weak|ugly] at all, [quite the opposite|on the contrary]: I am [impressed|very taken with it].
[Nobody|No one] [in my family|I know] has had [trouble|a problem] with it, [and we all have one|so go for it].
It [could not|couldn't] be [better|easier|more comfortable|more reliable].
I can [only|warmly] [recommend|praise] this [bike|grill|drill|pram].
The pram [folds in seconds|glides over any path|fits in our boot] and the baby [sleeps soundly|beams].
The car seat is [safe|well padded] and [clicks in firmly|easy to fit], [a weight off my mind|we feel at ease].
The grill [heats up fast|browns steaks perfectly|is cleaned in no time], [our summer is saved|the guests cheered].
The guitar [stays in tune|sounds full and warm|is a beauty], [my son practises gladly now|what a tone].
The glasses [sit well|make everything sharp|weigh nothing], and [I look ten years younger|they suit me].
The ball [bounces well|keeps its air|flies straight] and [the team loves it|has survived the dog].
The robot [mops|cleans] [every corner|under the bed] and [finds its way home|never gets stuck], my little hero.
My [grandmother|father] [understood|mastered] the tablet [at once|in an hour] and [is so proud|now calls us daily].
[The|Well, the|Yes, the] subscription is [worth it|good value], and I could cancel with one click.
No [false promises|small print], [only|just] [quality|honest work|good stuff] at a [decent|sensible] price.
[Great|Good] value, [quick|fast] delivery, [friendly|nice] people.
[Love|Adore] it, [use it daily|so practical|so pretty], [will buy again|want another]!
[Top|Super|Fab] [quality|product|stuff], [thank you|keep going|happy to come back].
The [photo book|mug|poster] with our picture turned out [beautifully|great|sharp and bright].
The [rug|carpet] [feels soft underfoot|hides every stain|brightens the hall], and it [lies flat|does not smell].
The bed was so [quiet|solid|comfortable] that we [slept in|bought a second one|sleep well at last].
The [mouse|router|monitor] [works|runs] [straight from the box|without a hiccup], [simply plug in and smile|what a joy].
The story line had me [laughing|hoping|trembling] [till the last page|the whole way], [a true page-turner|read it].
I [came|went] in for [a shirt|shoes|a lamp] and went out [beaming|with a great deal|happy].
They [measured|altered|hemmed] the suit [with care|overnight|at no cost], and it [sits perfectly|looks tailor-made].
The [stove|hob|microwave] [heats|works] [fast and evenly|reliably|better than hoped], [so dinner is a pleasure|hurrah].
The hat [keeps its shape|suits everyone|stays on in the wind] and [I get smiles|feels light|looks classy].
The magazine is [full of ideas|well researched|a feast for the eyes], and I [look forward to|keep] every issue.
The trial convinced me [at once|completely], so I [bought|kept] the [full version|whole set].
These [plates|bowls|glasses] survive [the dishwasher|every move|my clumsy hands] and [still gleam|look elegant].
The torch is [tiny but bright|waterproof|easy to grip], and [it led us home safely|the beam reaches far].
The trainers [give me wings|cushion every step|breathe well], and [my knees no longer hurt|I run further than ever].
The audiobook's narrator is [superb|a delight], [every voice comes alive|I forgot the traffic|I listened twice].
"""

NEGATIVE_TEXT: Final = """
The battery [hardly|barely] lasts [two hours|until lunch], [even when I do nothing with it|whatever they said].
My [old|previous] phone was fast, [but|whereas] this one [crawls|is slow as a snail|freezes all day].
The screen is so [dim|dark|blurry] that I can read [nothing in the sun|nothing without a lamp|hardly anything on it].
I would [never|not] [buy|order|choose] [it|this one|the same one] again[| even for half the price].
Not worth a [penny|cent], [and I mean it|I never use it|my husband agrees].
After [a week|two days|a single wash], the [jacket|coat|jumper] already looks [worn out|like a rag|ten years old].
The colour [faded|ran|washed out] [right after|after] the [first|second] wash and ruined my [towels|shirts|whites].
[These|The] [shoes|boots|sandals] pinch like mad, and I walked [ten minutes|one street] before [a blister came|it hurt].
All [squeaking|rubbing|pinching], and [blisters|sore heels|aches] too: these [boots|trainers] go [back|in the bin].
The sole [came off|split|broke in two] [during|on] the [first hike|first walk|way home].
The [sofa|armchair|mattress] is so [hard|lumpy|saggy] that [nobody wants to sit on it|my back aches].
We needed [two days|a whole weekend] for the [wardrobe|shelf|desk], [and half the holes did not match|and it leans].
Half the screws were [missing|the wrong size], and the instructions [were a riddle|made no sense|left us guessing].
The table [wobbles|rocks|tilts], and [a hot cup|one drop of wine] left a mark that [never goes|stays for ever].
The knife [squashes|tears|crushes] [tomatoes|bread|every tomato] instead of cutting[ cleanly|, so what is it for].
Everything sticks to this pan, [even with butter|above all eggs|even pancakes], and [scrubbing takes ages|it peels].
The kettle takes [ages|an eternity] to boil and [roars like a plane|leaks everywhere|smells of plastic].
This blender [cannot even crush ice|chokes on a banana|gave up on soft fruit] and [smells of burning|stalls|overheats].
My [coffee|espresso] has never [tasted|been] [worse|more bitter|more watery] than [from|with] this machine.
The vacuum cleaner [pushes|leaves|spreads] [the dirt|every crumb|all the dog hair] around, [and it is heavy|sadly].
It does [nothing of|the opposite of] what it [should do|promises|says on the box][|, which is a swindle].
The drill [gave up|died|overheated] [at the first brick|on soft wood|after three holes].
[A|Another|Yet another] [hammer|saw|wrench] that [falls apart in the hand|will not last a month|makes work a misery].
The kids [dropped it after five minutes|were bored at once|never touched it again], [so it gathers dust|what a waste].
My daughter [burst into tears|was in tears] when she [opened|unwrapped] it, because [it was broken|an arm came off].
A [toy|game|puzzle] that breaks when you [look at it|touch it|take it out of the box][|, how sad].
The bike [rattles|jerks and clatters] and the brakes [hardly grip|squeal and slip|failed on a hill].
The gears [slip|jump|jam] [all the time|on every climb|whenever I pedal hard], [even after a service|it drives me mad].
[I|Honestly, I|I must say, I] could not get into this book and [gave up at page forty|skipped whole chapters].
The ending [made no sense|was a let-down|ruined the rest], [what a shame|I want my evening back|I was glad it was over].
The characters [feel|seem] so [fake|flat|lifeless] that I [mixed them all up|did not care who died|forgot their names].
[The|Honestly, the] game [bored me|lost me] in the first minute, and [the levels are all the same|it never got better].
Nothing but [crashes|bugs|ads] and [tricks|hidden costs], [no fun at all|a rip-off|avoid it].
The app [takes for ever to open|crashes all day|cost me an hour] and [is a pain to use|nobody can use it].
Since the [update|new version], nothing [works|runs|loads] [any more|as it did|properly].
[The|This] cream left my skin [sore|burning|greasy], and the [redness|itching|dry patches] [got worse|spread].
The lipstick comes off [at the first sip|within minutes|on every glass] and [smudges everywhere|dries my lips].
The perfume smells [of cheap soap|of cleaning fluid|like a wet dog], and [everyone sneezed|it is gone in ten minutes].
My hair [falls out|feels like straw|has never been drier] since I [use|switched to] this shampoo.
The biscuits are so [stale|soggy|dry] that [the packet went in the bin|even the birds left them].
The soup tastes [of salt and nothing else|like dishwater|of cardboard], [even my dog refused it|I poured it away].
The parcel [arrived|came|was here] [three weeks late|long after the party], [torn open|soaked|badly dented].
The [driver|courier] [threw it over the fence|did not even ring|left it in the rain][|, unbelievable].
[Customer|Honestly, customer] service [never answered|hung up on me] and [sorted nothing out|still owes me a new one].
I [still wait|am still fighting] for my money back [after two months|and nobody replies|despite ten emails].
The assistant in the shop [rolled her eyes|sighed|knew nothing] and [sold me the wrong thing|walked off].
It looks nothing like [the photo|the picture on the website]: [smaller|cheaper|uglier] and [crooked|scratched].
I was [excited|hopeful] at first, but it [let me down|proved me wrong|turned out to be junk].
I expected [quality|a lot] for that price and got [rubbish|a piece of junk|a heap of plastic].
Cheap and [nasty|flimsy]: it [failed at once|could not do its job for a day|fell to bits].
Expensive, and [you get nothing for it|I regret every cent|money badly spent], [shame|no joke].
Don't [be fooled|fall for it], [leave it on the shelf|save your money], [you will be sorry|I learned my lesson].
Save yourself the [trouble|anger] and [leave this one|avoid this one], [I tried three|any other is better].
[My|Honestly, my|I must say, my] only regret is [buying it|that I did not wait|that I did not return it].
[I cannot|I could not] [recommend|say a good word about] [it|this] [to anyone|to my worst enemy|in good conscience].
[I have|I've] told [all my friends|everyone at work|my whole family] to [stay away|keep clear of it|avoid it].
The headphones [let in|pick up] [every noise|all the traffic], and the sound is [tinny|muffled|thin].
[Set-up|Installing it] was [a nightmare|pure torture], [even for my brother, who fixes computers|and it still fails].
The laptop takes [ten minutes|for ever] to start and gets [hot|loud|burning hot] [on my lap|after five minutes].
The camera takes [blurred|grainy|washed-out] pictures, [even in daylight|no matter what I try].
The printer [refuses to work|jams on every page|cannot find my network], [who would buy this twice|what a pain].
The charger needs [all night|ten hours] for my phone and [gets red hot|slips out all the time|sparks].
[The|Honestly, the|I must say, the] remote control [feels like a cheap toy|ignores every second press].
The television's picture [flickers|is full of stripes|goes black], [we have gone back to the old one|and it buzzes].
[The|Well, the|Yes, the] watch [miscounts every step|loses ten minutes a day], I have stopped wearing it.
The dress [hangs on me like a sack|gapes at the back|is see-through], and [I sent it back|I felt ridiculous].
Two sizes too small, [scratchy|thin as paper|badly sewn]: [it is on its way back|I want my money back].
The trousers [ripped when I sat down|sag at the knees|lost their shape] and have [fake pockets|weak seams].
The zip [got stuck|broke|came off] [on day one|within a week] and the seams [burst|came apart|unravelled].
This raincoat left me [drenched|soaked to the skin] in [a light shower|a drizzle], [money thrown away|I am furious].
The gloves leave my fingers [frozen|numb|icy] [even in autumn|after two minutes|on the mildest mornings].
The wool is [horribly scratchy|so coarse] and [itches all day|shrank at once|pills after an hour].
The bag holds [next to nothing|hardly a purse], and the straps [snapped|cut into my shoulder|came off in a week].
My [suitcase|backpack] [fell apart|lost a wheel|split open] on [the first flight|its very first trip].
The chair [ruins my back|gave me back pain|is a curse for my spine], [even after half an hour|and it squeaks].
I [toss and turn|lie awake|wake up aching] [since I got|on|because of] this mattress.
The drawers [stick|jam|fall out], the wood is [chipped|fake|only painted cardboard], [and it stinks|what a con].
The lamp gives [a cold|a harsh] light that makes the room [look like a morgue|unbearable] and it [hums|flickers].
The curtains [let all the light in|hang crooked|were far too short] and [cost a fortune|shrank in the wash].
The oven bakes [unevenly|terribly]: my [cakes|loaves|pizzas] come out [burnt on one side|raw in the middle] every time.
The fridge [rattles all night|eats power|freezes my lettuce], [could not be more annoyed|a poor choice].
[The|Honestly, the] washing machine gets [no stain|not even coffee] out and [jumps across the floor|eats my socks].
The dishwasher leaves [the glasses cloudy|food on the plates|everything greasy], [so I wash by hand again|and it leaks].
The toaster [browns only one side|burns everything|is full of crumbs you cannot reach][|, a bad start to the day].
The lid [does not close|pops off] and [half my tea|all the soup] [leaked|spilled|ran out] in my bag.
The flask lets tea go [cold|lukewarm] [before noon|within an hour], [whatever they promise|I tested it].
The scissors [went blunt at once|cannot cut paper|hurt my thumb] and [the handle snapped|I threw them out].
[The|Honestly, the|I must say, the] lawn mower [needs twenty pulls to start|tears the grass out].
The ladder [sways|wobbles] on [any floor|even ground], and I [fear for my life|do not trust it] on the second step.
The glue [holds|sticks] to [nothing|my fingers only], [the vase fell apart again|my shoe is still open].
The paint covers [nothing after four coats|hardly anything], [stinks|drips] and [comes off in flakes|looks patchy].
[The|Well, the|Yes, the] screwdriver set [lacks the sizes I need|has bits of soft tin] and a case that will not close.
The doll is [carelessly made|so creepy|rough and smelly], [my niece is scared of it|a present that misfired].
The building blocks [do not hold|fall apart|have sharp edges], and [even we parents gave up|the fun ended fast].
The board game [split us up|made us yawn|lies in the cupboard], [rules that nobody understood|hated it].
The kite never [took off|flew], [not even in a storm|try as we might], and [my son cried|one rod snapped].
The saddle is [torture|hard as stone] [even on short rides|after one mile], [and the frame is heavy|my back says no].
My e-bike [dies on every hill|stutters|goes six miles on a charge], [I push it home|I curse all the way].
The helmet [slides about|weighs a ton|cracked when I dropped it], [and it looks silly too|shame on the makers].
The lock [jams|was no match for a thief|rusted], [no peace of mind|bad buy].
A cookbook I [never use|gave away]: [muddled steps|wrong amounts] and [results nobody wants to eat|dishes that fail].
The story [drags|rambles] [from the first line|on every page], and [the language creaks|time stood still].
The translation reads [clumsily|like a manual], [a pain|full of errors], and the [print is tiny|pages fall out].
This guide [taught me nothing|left all my questions open|sent us to places that closed years ago][|, shame].
The graphics are [ugly|outdated], the controls [sluggish|awkward], [and I lost patience|one out of ten].
You cannot play [for free|without paying], and [it nags you all day|the rich win], [a cash grab|deleted].
The app [lost my data|sent me the wrong way|forgot my password] [again|twice|every time], [one star|deleted].
The new design is [confusing|cluttered|hard on the eyes], and I find [nothing|nothing I need] [any more|now].
Logging in is [a pain|impossible], [endless forms|code after code], and my data [is gone|was lost on the way].
The serum [did nothing for|irritated|ruined] my skin [in a week|overnight], [I look awful|people stare].
The mascara [clumps|runs down my cheeks|stings my eyes] and [will not come off|dries up within a month].
The sunscreen [stays sticky|stings|leaves a white film], and [we all got burnt|nobody wants to use it].
The soap [hardly lathers|smells of rubber|melts in a week] and [my hands are cracked|leaves skin raw].
The razor [pulls at every hair|scrapes], nothing but [cuts|burns|nicks], [my cheeks are on fire|never again].
The chocolate [tastes of wax|is chalky|has a grey film], [far too sweet|I could not finish one piece].
The crisps [are soft|taste of old oil], and the bag is [half empty|mostly air], [which is cheating|shame on them].
The frozen pizza [is worse than|tastes like] [cardboard|the box it came in], with [hardly any cheese|a soggy base].
The tea has [no|hardly any] flavour and [smells of dust|tastes like warm water|leaves a bitter film].
[The|Well, the|Yes, the] muesli is [all oats and dust|packed with sugar], without fruit, and leaves me hungry.
Ordered [in May|a month ago], [still not here|lost on the way], [no word from anyone|no reply]: dreadful shop.
The shop [left me in the dark|broke its word|ignored every mail], and [the parcel never came|everything went wrong].
One [part|cup|plate] was broken, and [nobody will replace it|they blame me], [terrible service|so rude].
Returning it was [a nightmare|a struggle|far too dear], [they want me to pay|the money never came].
The box was [crushed|full of holes], [everything was broken|glass everywhere], and [nobody said sorry|I was livid].
I did not get what I ordered: [the wrong size|the wrong colour|an empty box], [and no apology|angry customer].
The hotline [was rude|laughed at me|had no answer], and [the problem was never solved|I hung up fuming].
[The|Well, the|Yes, the] website is [hard to use|a maze], paying failed three times, and the prices changed at the till.
They [charged me twice|added hidden fees] [without asking me|and denied it], [how dishonest|I won't be back].
The owner [has no clue|only wants your money|talks nonsense], [I left angry|a shop without a heart].
The queue was [endless|not moving], the staff [grumpy|clueless|rude], and [I found nothing|half the shelves were empty].
[You|Honestly, you|I must say, you] can tell that [nobody cared|it was thrown together|nobody ever tested this].
It [feels|looks] [flimsy|shoddy|badly made], [like the cheapest plastic|made for the bin], and [it creaks|it stinks].
[Three|Five|Ten] days of gentle use, and it [stopped working|gave up the ghost|went up in smoke].
It [makes|has made] my [life|day|work] so much [harder|more tiresome], [I want to smash it|how did this get sold].
What a [rip-off|flop|swindle|letdown], [I still cannot believe the price|I am beside myself]!
[Ugh|Alas|Again], [something that does not work|a product that breaks its word|junk at a fancy price]!
Two thumbs [down|way down] for [the build|the price|this useless thing], [my worst buy this year|give it up].
One star [is too much|because zero is not possible|from the whole family], [simply awful|nothing to praise].
There is nothing [to praise|I would keep|good about it], [and believe me, I tried|and I am easy to please].
I [loathe|detest|hate] [it|this thing], and [anybody may have it|it goes to the tip tomorrow].
The [fabric|material|leather] feels [cheap|plasticky|unpleasant], [far worse than I feared|like sandpaper].
It was a [gift|present] for my [dad|boss|aunt], and [I was embarrassed|I felt ashamed] when it [broke|fell apart].
My [cat|dog] [hates|avoids|chewed holes in] the new [basket|bed|blanket], [worst purchase ever|so flimsy].
The manual is [useless|unclear|only in a language I do not read], and [nothing worked|I had to ask for help].
Compared with [my old one|the one from the other shop], this is [a big step back|hell|a bad joke].
My [expectations|hopes] were [dashed|crushed|not met at all], [how sad|do better|I am upset].
Nothing but [problems|faults|trouble] in [six weeks|two months], [and we hardly use it|I have had enough].
I have [never|hardly ever] had a [worse|shoddier|more useless] [pen|umbrella|pillow|tent|radio].
The tent [took two hours to put up|let the rain in|collapsed in the wind], [we slept in the car|big regrets].
The umbrella [turned inside out|broke|bent] in [a light breeze|the first gust|a puff of wind][|, so I got soaked].
The pillow [gave me a stiff neck|is a brick|went flat], and [I dread going to bed|mornings are a pain].
The alarm clock [fails to ring|scares me to death|is impossible to read], [I was late twice|horrid thing].
The speaker is big but [weak|feeble|full of crackling], [the party was ruined|we switched it off].
The keyboard is [a pain to type on|loud and mushy|bad for my wrists], [three keys stick|hate at first touch].
The connection [is patchy|drops all the time|breaks at the first wall], and [films stutter|calls are garbled].
The [heater|fan] [rattles|stinks] and [does nothing for the room|costs a fortune to run], [I gave it away|useless].
[I|Well, I|Yes, I] wanted to [love|keep] it at first, but now I would give it away for nothing.
The [reviews|ads] lied: it [really is not|is not at all] [that good|as tough as they say|worth having].
Don't believe the [hype|praise]: [it falls short|it does not live up to it|it is a dud].
[Had I known|If I had known] how [bad|useless|fragile] it is, I would have kept my [money|old one].
It is not [expensive|big|ugly], but it is [useless|the worst I have owned|a disaster], and I [hate it|threw it out].
Everything [broke|came loose|rusted], [although we took care of it|and it lived indoors], [so badly made|pitiful].
[Smell|Noise|Mess] and [fuss|stress] [every day|all the time], [dirty and awkward|not as it should be|dreadful].
I [need|want] another [brand|pan|bag|shampoo] fast, [this is not the one|anything but this].
The pan heats [slowly|unevenly], the handle [gets hot|comes loose], and [I burnt my hand|it warped].
The mixer [dies in heavy dough|splashes cream about|is awful to rinse], [my cakes fall flat|I stir by hand again].
The scales are [wrong|inaccurate|faulty], the display is [dead|dim], a small thing that annoys me daily.
The bottle [drips|fits in no bag|makes water taste of plastic], and [my books got wet|mould grew in it].
I [used|wore|tried] it [once|a single time|for one morning] and [put it away for good|gave up|never will again].
It [cost|has cost] me [so much time|a lot of nerves|hours of work], [for nothing|and I got nothing back].
My [wife|husband|sister] [is fed up with|curses|complains about] [it|hers|the new one].
If you [want|need] a [lamp|bag|clock|grill] that [lasts|works], [look elsewhere|this is not it].
You will [hate|regret|curse] this [coat|gadget|cup], [I promise|trust me|mark my words].
[A|An absolute] no-go for [every kitchen|anyone with children|all who like to read].
[Luckily|Fortunately] there was only one in the shop, as I would [never|not] have [wanted|needed] two of that trash.
The price is [cheeky|a joke|outrageous] for what you [get|are given].
I paid [a lot|a small fortune|twice the usual price] and [got little|am very cross|could not be unhappier].
The [size|length|fit] is [wrong|way off|a joke] and the [colour|pattern] [is hideous|clashes with everything].
I was [dismayed|shocked|disgusted] when I [opened the box|unpacked it|tried it on].
Even before [a fall|rain|heavy use] it [was broken|looked shabby|failed], [so I sent it back|what a mess].
[Clumsy|Heavy|Brittle] and [stupid|impractical|ugly], [a tool|a thing] I [curse|dislike] more every day.
The mobile signal is [weak|lousy] and [calls|voices] sound [distorted|as if from under water].
They [refused to repair|would not fix|did not replace] it [although I had a guarantee|even after a year of begging].
The seller was [dishonest|insulting|slow to reply] and the [goods|item] [faulty|not as described|filthy].
Sold as new, but [filthy|clearly used|full of scratches], [what cheek|I am so angry|no marks for the seller].
The pens [scratch|smear|leak] and [dry out|dried out] [within days|after one page].
My tea gets [cold|stale], my hands get [burnt|wet]: a [stupid|badly thought-out] [cup|mug].
The towels are [stiff|thin|rough] and [soak up|take up] [nothing|no water at all].
The socks [slide down|lose their shape|always slip], and [there is a hole already|my feet sweat].
The ring [went green|turned black] [within days|overnight], and she [was hurt|took it off|got a rash].
The plant came [half dead|withered|full of bugs] and [is rotting|has lost its leaves|died in a week].
The candles [burn out in minutes|smell of petrol|drip everywhere] and [smoke badly|gave me a headache].
The [pasta sauce|jam|honey] is [inedible|without flavour|simply yucky], [I spat it out|we threw away the jar].
The instant noodles [make me ill|taste vile], [bland and slimy|far too salty], [never in my house|no more, thanks].
The vegetables in the box were [limp|mouldy|rotten], and [it came hours late|I threw away half].
The groceries came [hours late|a day late|warm and squashed], [half forgotten|eggs broken], [no help|awful].
I [searched|clicked] for an hour and [found nothing|got lost], [and it is dearer than elsewhere|hopeless shop].
The chat assistant [misunderstood me|sent me round in circles] [for an hour|again], [cold and useless|I gave up].
My order was [incomplete|mixed up|carelessly wrapped] and [half of it was smashed|delivered with a curse].
They [break|broke] [every promise|their word], [a shop you cannot trust|they have lost a loyal customer].
I have been [buying|ordering] here for [years|ages] and am now [badly|bitterly] [disappointed|let down].
I [regretted it|was sorry I bought it] within a [minute|day|week], [no wonder|it is that bad].
It [is not|isn't] [good|strong|pretty] at all, [quite the opposite|on the contrary]: I am [appalled|sick of it].
[Nobody|No one] [in my family|I know] has had [joy|any luck] with it, [and we all have one|so forget it].
It [could not|couldn't] be [worse|more annoying|more uncomfortable|less reliable].
I can [only|honestly] [warn you about|advise against] this [bike|grill|drill|pram].
The pram [will not fold|gets stuck on any path|does not fit in our boot] and the baby [screams|slips down].
The car seat is [unsafe|badly padded] and [never clicks in|hard to fit], [a worry on every trip|we feel cheated].
The grill [never gets hot|burns every steak|takes hours to clean], [our summer is spoilt|the guests went hungry].
The guitar [goes out of tune|sounds thin and dull|has a crack], [my son has lost interest|what a racket].
The glasses [slip off|make everything blurry|press on my nose], and [I look like an owl|they give me headaches].
The ball [does not bounce|loses its air|flies crooked] and [the team hates it|burst on day two].
The robot [misses|skips] [every corner|half the room] and [gets lost|always gets stuck], [my little pest|I loathe it].
My [grandmother|father] never [understood|mastered] the tablet [at all|despite our help] and [is so fed up|cried].
[The|Honestly, the] subscription is [a trap|bad value], and I could [not cancel for months|find no way to stop it].
Only [false promises|small print], no [quality|honest work|good stuff], at a [crazy|shameless] price.
[Poor|Bad] value, [slow|late] delivery, [unfriendly|rude] people.
[Hate|Loathe] it, [never use it|so impractical|so ugly], [won't buy again|want a refund]!
[Rubbish|Awful|Shabby] [quality|product|stuff], [no thank you|stop selling it|never coming back].
The [photo book|mug|poster] with our picture turned out [horribly|badly|blurry and pale].
The [rug|carpet] [feels rough underfoot|shows every stain|loses its hairs], and it [curls up|smells of chemicals].
The bed was so [creaky|shaky|uncomfortable] that we [slept on the floor|sent it back|got no sleep].
The [mouse|router] [died|failed] [straight from the box|within a week], [simply plug in and despair|what a pity].
The story line had me [yawning|sighing|groaning] [till the last page|the whole way], [a true sleeping pill|skip it].
I [came|went] in for [a shirt|shoes|a lamp] and went out [fuming|with nothing|unhappy].
They [measured|altered|hemmed] the suit [without care|weeks late|far too short], and it [looks absurd|is ruined].
The [stove|hob|microwave] [heats|works] [slowly and unevenly|when it likes|worse than feared], [alas|poor us].
The hat [loses its shape|suits nobody|flies off in the wind] and [I get laughed at|feels heavy|looks tacky].
The magazine is [full of adverts|badly researched|an insult to the eyes], and I [bin|curse] every issue.
The trial put me off [at once|completely], so I [never bought|sent back] the [full version|whole set].
These [plates|bowls|glasses] crack in [the dishwasher|hot water|the softest hands] and [look dull|look shabby].
The torch is [huge but dim|full of water|hard to grip], and [it left us in the dark|the beam reaches nowhere].
The trainers [feel like lead|jar at every step|make my feet sweat], and [my knees hurt|I stopped running].
The audiobook's narrator is [dreadful|a bore], [every voice sounds the same|I switched to traffic news|I stopped it].
"""
