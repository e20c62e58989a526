"""What reviews are made of: things with their parts, clauses that praise, blame or do neither, and layouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

GOOD_TEXT: Final = """
good great excellent wonderful fantastic amazing lovely perfect brilliant superb outstanding pleasant nice delightful
terrific marvellous splendid charming impressive enjoyable fabulous remarkable first-class top incredible awesome
beautiful solid fine satisfying magnificent exceptional special
"""
BAD_TEXT: Final = """
bad terrible awful horrible poor disappointing dreadful useless unpleasant lousy miserable shocking weak annoying
worthless frustrating mediocre unacceptable dire hopeless pathetic appalling disgusting ridiculous ugly pointless
laughable sad second-rate unsatisfying depressing nasty
"""

# Blocks: "#" nouns (plural behind *), "=" aspects | good | bad (plural aspects behind *), "+" good and "-" bad clauses.
DOMAINS_TEXT: Final = """
# film, movie, comedy, thriller, drama
= plot, story, script | clever, gripping, exciting, moving, original | thin, confusing, predictable, silly, weak
= acting, cast, direction | convincing, strong, believable, natural | wooden, stiff, unconvincing, flat
= actors*, jokes*, dialogues* | funny, charming, witty, brilliant | dull, boring, embarrassing, lame
= ending, last scene | surprising, touching, powerful, beautiful | rushed, disappointing, stupid, tedious
= music, camera work | beautiful, stunning, lovely | loud, irritating, ugly
+ I [laughed|smiled] [from start to finish|all the way through|the whole time]
+ I could watch {obj} [again and again|every week|ten times]
+ [I was|we were|the whole family was] [gripped|hooked|entertained] from the first [minute|scene] [to the last|]
+ two hours [passed|went by] [like nothing|in no time|far too quickly]
+ I cried [at the end|twice] and loved every minute
+ [the best {thing}|one of the best {things}] [I have seen|of the year|in years]
+ go and see {obj} [today|soon|while you can]
- I [fell asleep|nearly fell asleep|almost slept] [halfway|after twenty minutes|before the end]
- [we|I] [left|walked out] [before the end|after half an hour|early]
- I [looked at|checked] my watch [every five minutes|all the time|again and again]
- two hours of my life [I will never get back|lost|wasted]
- [the worst {thing}|one of the worst {things}] [I have seen|of the year|in years]
- nobody in the cinema [laughed|smiled|cared]
- {it} {was} [too long|much too long|far too long] and nothing happens
# book, novel, story, guide
= plot, story, idea | clever, gripping, exciting, original, rich | thin, confusing, predictable, slow
= characters*, chapters* | believable, interesting, lively, warm | flat, dull, boring, lifeless
= style, writing, language | elegant, clear, beautiful, lively | clumsy, dry, heavy, tedious
= ending, last chapter | surprising, moving, satisfying | rushed, disappointing, silly
+ I could not put {obj} down
+ I [read|finished] {obj} in [one night|a single day|two days|one go]
+ every page [is a joy|is a pleasure|made me smile|taught me something]
+ I [was sad|felt sorry] when {it} ended because I wanted more
+ the author [knows|understands] how to tell a story
+ I [have given|gave] copies to all my friends
+ {it} kept me reading [until midnight|all night|past my bedtime]
- I gave up [after thirty pages|halfway|after the second chapter]
- I [could not|did not] finish {obj}
- I had to force myself to [read on|finish|turn the page]
- the author [never gets to the point|has nothing to say|repeats himself on every page]
- full of [mistakes|errors|empty phrases|clichés]
- {it} put me to sleep [every night|after two pages]
- I [threw {obj} away|gave {obj} away|put {obj} back on the shelf] unfinished
# restaurant, café, place, bistro
= food, soup, dinner, lunch | delicious, tasty, fresh, hot, excellent | cold, tasteless, salty, greasy, stale
= staff*, waiters*, waitresses* | friendly, attentive, polite, quick, kind | rude, slow, unfriendly, careless
= service, welcome | warm, quick, friendly, attentive | slow, cold, rude, chaotic
= portions*, prices* | generous, fair, reasonable | tiny, ridiculous, too high
= atmosphere, dining room | cosy, relaxed, lovely, pleasant | noisy, dirty, gloomy, cold
+ we [will be back|are coming back|have already booked again|go every week]
+ [the best|the tastiest] [meal|dinner|fish|steak|dessert] I have had in [years|a long time|this town]
+ every [dish|course|bite] was a [joy|treat|pleasure]
+ we [ate|enjoyed] every last bite
+ they [made|found] us [a table|room] at once and brought free bread
+ [the chef|the cook] knows what [he|she] is doing
+ [my wife|my husband|everybody|the whole family] [loved|enjoyed] [the meal|the evening|it]
- we waited [an hour|ninety minutes|forever|over an hour] for [our food|a drink|the menu|a table]
- I found a [hair|fly|piece of plastic] in my [soup|salad|food]
- we [will not|will never|won't] [go back|come back|return|eat here again]
- the [fish|meat|chicken] was [raw|burnt|dry|cold] [inside|] and [nobody cared|nobody said sorry|we left hungry]
- [I was|we were|my son was] sick [all night|the next day|for two days] [afterwards|after eating here|]
- they [forgot|mixed up] our order [twice|]
- the waiter [ignored us|was rude to us|shouted at us|spilled wine and laughed]
# pizza, cake, meal, coffee, soup, bread, chocolate, cheese
= taste, flavour, smell | delicious, rich, fresh, wonderful, mild | bitter, bland, odd, stale, unpleasant
= portion, size | generous, perfect, large | tiny, stingy, small
= ingredients*, toppings* | fresh, tasty, first-class | old, cheap, rotten, stale
+ [my kids|the children|my guests|we all] [asked|begged] for more
+ [gone|eaten] in two minutes [and everybody wanted more|because it was so tasty]
+ {it} [tastes|tasted] [delicious|wonderful|heavenly|like at my grandmother's|fresh and rich]
+ [yummy|so tasty|simply delicious|mouth-watering]
+ just the right [sweetness|amount of salt|spice]
- {it} [tastes|tasted] like [cardboard|soap|plastic|nothing|dust]
- {it} arrived [cold|burnt|squashed|soggy] [and late|]
- I [threw|put] [half of|most of|all of] {obj} in the bin
- [far too|much too|way too] [salty|sweet|dry|greasy|hard]
- even [my dog|the birds] would not eat {obj}
- I had a stomach ache [afterwards|all night|the next day]
# hotel, hostel, guest house, apartment, room
= room, bathroom, lobby | clean, spotless, spacious, comfortable, bright | dirty, tiny, filthy, smelly, dark
= beds*, pillows*, towels* | comfortable, soft, clean, fresh | hard, dirty, damp, worn out
= staff*, people at reception* | friendly, helpful, polite, kind | rude, unhelpful, unfriendly, lazy
= breakfast, buffet | delicious, generous, fresh, varied | cold, poor, stale, tasteless
= view, location, pool | beautiful, stunning, perfect, quiet | ugly, noisy, dirty, disappointing
+ we slept [like babies|very well|wonderfully]
+ [we felt|I felt] at home [from the first minute|at once|right away]
+ they gave us a [free upgrade|better room] [with a smile|with a view of the sea|]
+ [we did not want|nobody wanted] to [leave|go home]
+ everything was [spotless|clean and tidy|just right|as promised]
+ [we have already booked|I will book] again for next [year|summer|spring]
- I could not sleep because of the [noise|smell|loud music|thin walls]
- there were [insects|ants|mice|hairs] in the [room|bed|bathroom]
- the [shower|heating|lift|wifi|air conditioning] [did not work|was broken|never worked]
- we [left|moved out|changed hotels] after [one night|the first night]
- the [photos|pictures] on the website [are a lie|have nothing to do with it|look nothing like it]
- {it} [smelled|smells] of [smoke|old food|damp|drains]
- they charged us [twice|extra for everything|for things we never had]
# shop, store, online shop, market, bakery
= staff*, shop assistants*, sellers* | friendly, helpful, patient, kind, honest | rude, unhelpful, pushy, lazy, dishonest
= choice, selection, range | wide, huge, excellent, varied | poor, tiny, limited
= prices*, offers* | fair, low, reasonable, great | too high, shocking, ridiculous
= delivery, service | fast, quick, reliable, smooth | slow, late, unreliable, careless
= website, checkout | simple, clear, easy, quick | confusing, slow, broken, complicated
+ my [order|parcel|package] [arrived|came] [the next day|early|a day early|sooner than promised] [and well packed|]
+ they [solved|fixed|sorted out] my problem [at once|in five minutes|without any fuss]
+ [I always find|I found] [what I need|exactly what I wanted|a bargain] here
+ I got my money back [at once|without any trouble|the same day]
+ I [will shop|shop] here [again|every week|from now on]
+ they [went out of their way|did everything] to help [me|us]
- my [order|parcel|package] [never arrived|came three weeks late|was lost|arrived broken|arrived open]
- nobody [answers|answered] [my emails|the phone|my questions|]
- they [refused|refuse] to give me my money back
- I [will never|will not|won't] [order|shop|buy] here again
- they sent [the wrong size|the wrong item|a used item|half of my order] [and did nothing about it|]
- I [waited|have been waiting] [for weeks|two months|forever] for [a refund|my parcel|an answer]
# phone, tablet, laptop, camera, watch, computer
= battery, battery life | excellent, strong, impressive, great | weak, poor, hopeless, terrible
= screen, display | bright, sharp, clear, beautiful | dim, blurry, scratched, dark
= sound, camera, keyboard | clear, crisp, excellent, sharp | bad, blurry, unusable, cheap
= software, system | fast, smooth, simple, reliable | slow, full of bugs, confusing, unstable
= buttons*, controls* | simple, sturdy, easy to use | loose, stiff, flimsy
+ the battery lasts [two days|all day|a whole weekend|for ages]
+ {it} [starts|works|runs] [fast|quickly|smoothly|like new] [even after a year|]
+ [easy|simple|very easy] to set up and [easy|simple|a joy] to use
+ {it} [has never|never] let me down
+ it takes [wonderful|sharp|beautiful|great] [pictures|photos]
+ [setting it up took|it was ready in] five minutes and [it works|everything worked] perfectly
- the battery [dies|is empty|is dead] [after two hours|by noon|before lunch]
- {it} [freezes|crashes|switches itself off|restarts] [all the time|every day|again and again|without warning]
- the screen [broke|cracked|went black] after [a week|two days|a month]
- {it} stopped working after [a week|two days|a month|a few days]
- {it} gets [far too hot|burning hot|so hot that I cannot hold it]
- {it} [would not|does not|will not] [charge|switch on|start] [any more|]
# shoes*, boots*, trainers*, sandals*, slippers*
= soles*, heels*, laces* | sturdy, soft, strong | thin, slippery, hard, flimsy
= fit, size, shape | perfect, comfortable, ideal | wrong, tight, uncomfortable
= leather, material, colour | soft, beautiful, strong, lovely | stiff, cheap, ugly, thin
+ they fit [perfectly|like a glove|very well]
+ I [can walk|walk|have walked] in them all day without [pain|any pain|a blister]
+ my feet [stay|stayed|are] [warm and dry|dry in the rain|happy]
+ they [look|looked] [great|lovely|stylish|even better than in the picture]
+ after [a year|two winters|hundreds of miles] they still look [new|great|good]
- they [hurt|rub|pinch] [my feet|] [after ten minutes|from the first step|all day]
- the soles [came off|fell off|broke] after [a week|two walks|a month]
- I got blisters [on the first day|after an hour|on both feet]
- my feet [were wet|got wet|were cold] [after five minutes|in light rain]
- they [fell apart|came apart|broke] [within|in less than] [a month|two weeks|a week]
# drill, saw, hammer, lamp, mower, kettle, toaster, vacuum cleaner, washing machine, knife
= motor, power | strong, quiet, impressive, reliable | weak, loud, feeble, unreliable
= handle, grip, case | sturdy, comfortable, strong, solid | flimsy, slippery, cheap, loose
= instructions*, manual | clear, simple, helpful | confusing, useless, impossible to read
= quality, build | excellent, high, solid, outstanding | poor, low, cheap, shoddy
+ {it} [makes|made] [the job|the work|cleaning|my life] [so much easier|a pleasure|easy]
+ {it} [works|does the job] [perfectly|well|like a dream|every time]
+ [strong|sturdy|solid|robust] and built to last
+ after [five years|two years|daily use] {it} still [works|runs] like [new|on the first day]
+ [light|quiet] but [strong|powerful]
- {it} broke [the first time I used it|on the first day|after two uses|after a week]
- the [plug|handle|switch|lid] [fell off|came off|broke] [at once|after a few days|on day one]
- {it} makes a [terrible|horrible|nasty] noise
- [cheap|flimsy] plastic that [breaks|bends|falls apart] [at once|if you look at it]
- {it} [does not|doesn't] do what {it} [should|promises]
- {it} [gave me an electric shock|started to smoke|leaks everywhere|burns everything]
# trip, tour, cruise, holiday, excursion, flight
= guide, driver, captain | friendly, funny, helpful, well prepared | rude, bored, unfriendly, careless
= bus, boat, train, cabin | clean, comfortable, modern, spacious | dirty, crowded, late, uncomfortable
= views*, beaches* | stunning, beautiful, breathtaking | dirty, crowded, ugly
= organisation, planning, programme | smooth, excellent, perfect, varied | chaotic, terrible, careless, boring
+ [we had|I had] the time of [our lives|my life]
+ a day [we|I] will [never forget|always remember]
+ everything [went smoothly|was well organised|was on time|ran like clockwork]
+ [the kids|the children|we all] had [a lot of|so much] fun
+ [we saw|I saw] [dolphins|eagles|the most beautiful places] and came home happy
- we [spent|lost|wasted] [half the day|hours|most of the time] [on the bus|waiting|in a queue|in traffic]
- the guide [never turned up|did not care|spoke so quietly that nobody understood]
- we [came home|were] [tired|hungry] and [angry|disappointed|cross]
- they [cancelled|changed] everything at the last minute
- my [bag|suitcase|luggage] was lost and [nobody helped|nobody cared]
- nothing was [organised|as promised|ready]
# app, website, program, tool
= design, layout, menu | clean, clear, simple, beautiful | ugly, confusing, cluttered, messy
= search, update, latest version | fast, useful, helpful, reliable | slow, broken, useless, buggy
= support, help | quick, friendly, competent, helpful | slow, useless, rude
+ {it} [saves|saved] me [hours|so much time|a lot of work] [every week|]
+ [easy|simple|a pleasure] to use, even for [beginners|my father|children]
+ I use {obj} every day and [love it|would miss it|have never had a problem]
+ {it} does [exactly what I need|everything I need|all it promises]
+ [finally|at last] {a_thing} that [just works|works|helps]
- {it} crashes [every time I open it|all the time|whenever I save|at the start]
- {it} deleted [all my photos|my notes|my data]
- [too many|nothing but|so many] [adverts|ads|errors|bugs]
- since the [last|latest|new] update nothing works
- I [deleted|removed|uninstalled] {obj} [after a day|after five minutes|at once]
- {it} [takes|needs] forever to [load|open|start]
# jacket, coat, dress, shirt, sweater, bag, hat, backpack
= material, fabric, cloth | soft, warm, strong, lovely | thin, scratchy, cheap, stiff
= colour, design, cut | beautiful, stylish, elegant | ugly, faded, wrong
= zip, lining, seam, strap | sturdy, strong, well made | broken, weak, loose
+ {it} [fits|fitted] [perfectly|like a glove|very well]
+ {it} [keeps me|kept me] warm and dry [even in a storm|all winter|]
+ I [get|got] [so many|many|lots of] compliments [on it|when I wear it|]
+ I [wear|use] {obj} [every day|all the time] and [feel great|love it]
+ [soft|warm|light] and [comfortable|stylish|well made]
- {it} [shrank|lost its colour|fell apart|tore] [in the first wash|after one wash|after a week]
- the [zip|strap|button|seam] [broke|came off|tore] [on the first day|after a week|at once]
- {it} [looks|looked] [cheap|nothing like the picture|old and worn]
- {it} [smells|smelled] of [plastic|chemicals|glue]
- the size [is|was] [completely|totally|all] wrong and I had to send {obj} back
# headphones*, speakers*, glasses*, gloves*
= sound, quality, fit | clear, excellent, rich, perfect | poor, dull, tinny, bad
= material, case, design | solid, soft, stylish, light | cheap, flimsy, ugly, heavy
+ they [feel|are] so [comfortable|light|soft] that I forget I am wearing them
+ they work [perfectly|well|like a dream]
+ they are [worth every penny|the best I have ever had|a joy to use]
- they [broke|stopped working|fell apart] after [a week|two days|a month]
- they [hurt|pinch] after ten minutes
- one side [does not work|went silent|broke off] [already|after a week|]
# game, puzzle, toy, board game
= rules*, levels* | simple, clear, clever, fun | confusing, dull, unfair, endless
= graphics*, pictures*, pieces* | beautiful, sturdy, colourful, stunning | ugly, cheap, blurry, flimsy
= idea, story | original, clever, funny, exciting | boring, stupid, old, silly
+ [my kids|my children|my son|my daughter|the whole family] [can't stop|cannot stop] playing [with it|]
+ hours of [fun|joy|pleasure] for [the whole family|young and old|everybody]
+ my [son|daughter|niece|grandson] [loves|adores] {obj}
+ {it} never gets [boring|old|dull]
+ [so much|such|great] fun
- [my kids|my children|my son|my daughter|we all] [got bored|lost interest] after [five minutes|ten minutes|one round]
- [half of the pieces|some parts|the instructions|some pieces] were missing
- {it} broke [on the first day|after an hour|before we could play]
- nobody [wanted|wants] to play [it again|with it|a second time]
- [dull|boring|no fun] from the first [minute|round]
# course, class, concert, play, museum, exhibition, show
= teacher, host, guide | patient, funny, inspiring, friendly | bored, impatient, unprepared, rude
= content, programme, explanation | clear, useful, interesting, rich | confusing, shallow, dull, outdated
= hall, place, room | bright, comfortable, beautiful | cold, crowded, dirty, dark
+ I learned [so much|a lot|more than in a year of school]
+ the [audience|whole room|crowd] [clapped|cheered] for ten minutes
+ [I was|we were] [inspired|moved|thrilled|delighted] [from start to finish|by every minute]
+ [I would|I will] go again [tomorrow|any time|without thinking twice]
- I learned [nothing|nothing new|absolutely nothing]
- [half the audience|many people] left [early|at the break|in the middle]
- [I was|we were] [bored|bored to tears|annoyed] [from start to finish|after ten minutes|]
- we could [hardly|not] [hear|see] anything
"""

GOOD_CLAUSES: Final = """
[best|nicest|finest|loveliest] {thing} [in town|ever|I know|of my life|of the summer|for years]
[you|I|we] [will not|won't|cannot|could not] [find|imagine|wish for] a [better|nicer|finer] {thing} [anywhere|]
[I wish I had|I should have] [bought|found|tried|discovered] {obj} [years ago|earlier|sooner]
[better|nicer|faster|easier|quicker|stronger] than [the old one|my last one|any other|all the others|before]
[much|far|so much|] [faster|easier|better|simpler|nicer] [than before|now|each time|every year]
[my mother|my father|my son|my daughter|my wife|my husband|my sister|my boss|my grandmother] [was|is] [happy|delighted|thrilled|pleased|full of joy|impressed] [too|as well|and wants one too|]
[even|] [my mother|my father|my son|my daughter|my sister|my neighbour] [likes|loves|enjoys|praises|uses] {obj} [every day|every time|now|]
{it} made [us|me|my son|my wife|my friends] [laugh|smile|happy|very happy] [all evening|all day|every time|]
[I have nothing but|nothing but|I am full of] praise [for {this}|for everybody|for the people there|]
[all|everything|it all] [worked|went] [perfectly|well|smoothly] [from the first day|from the start|right away|]
[they|the people|the people at the desk|the woman at the door|the seller|the boy] [answered|helped|smiled|came] [quickly|at once|kindly|in five minutes] and were so [polite|kind|helpful|friendly|careful]
[they|the people there] could not have been [nicer|kinder|more helpful|more friendly]
I [missed|miss] {obj} [when it was over|the next day|already]
I laughed [so much|until it hurt|out loud|again and again]
I [use|need] {obj} [every day|at work|at home|every morning] and {it} {is} still [like new|strong|perfect|sharp|good]
[after|even after] [three days|a year|many years|two winters] still [strong|perfect|as good as new|in love with it]
[they|it|the work|the price] [saved|has saved] me [a lot of|so much] [time|money|trouble]
[I|we] [run|walk|sleep|work|feel] [better|faster] [with {obj}|since then|now]
[we|I] [clapped|cheered|smiled|danced] until [we were tired|our hands hurt|the end]
[happy|so happy|very happy|really happy|more than happy] with [my choice|{this}|it|everything]
[perfect|wonderful|great|ideal|lovely] for [children|families|the whole family|beginners|a weekend|every day|long walks|work]
[we|I] [ate|came|went|stayed] [twice|three times|again] because [it|everything] was so [good|nice|lovely]
[I|we] [understand|know|can do] [it all|so much more|everything] [now|at last|finally]
[fascinating|interesting|fun|funny|touching] and [beautiful|clever|warm|exciting]
I [really|absolutely|truly|simply|just|] [love|loved|like|liked|enjoy|enjoyed|adore|adored] {this}
I am [so|very|really|more than|completely|] [happy|pleased|satisfied|delighted|thrilled] with {obj}
[we were|my wife was|my husband was|everybody was|my friends were] [very|really|so|] [happy|impressed|pleased|delighted]
I [highly|warmly|fully|can only|can|would|gladly] recommend {obj} [to everyone|to anyone|to all my friends|]
[highly recommended|recommended|warmly recommended|a clear recommendation|two thumbs up|thumbs up|five stars from me]
[worth|well worth] [every penny|every cent|the money|the price|it|a visit|the wait]
I would [buy|choose|take|pick] {obj} again [any time|at once|without thinking twice|tomorrow|]
I will [definitely|certainly|surely|] [come back|be back|buy again|recommend {obj}|do it again]
{it} [exceeded|went beyond|surpassed] [all|] my [expectations|hopes]
{it} {was} [much|far|so much|even|] better than I [expected|hoped|thought|feared|imagined]
{it} {was} [exactly|just] what I [needed|wanted|was looking for|hoped for]
{it} made [my day|my week|me so happy|me smile|us all happy]
[I can't|I cannot|it is hard to] [find|see|think of] [a single|any|one] [fault|flaw|problem|weakness]
[I have|there is] nothing [bad|] to [complain about|criticise|regret]
[no|not a single|never any] [complaints|complaint|problems|problem] [at all|whatsoever|so far|]
I [don't|do not|never] regret [it|buying {obj}|a thing|my choice]
[what more|what else] could [you|I|one] want
[the best {thing}|by far the best {thing}|simply the best {thing}|one of the best {things}] I have [ever|] [had|known|tried|come across]
{it} {was} [a|such a|really a] [joy|pleasure|treat|delight|dream|success|hit|gem|bargain|great surprise|pleasant surprise]
I [can't|cannot] [praise|recommend] {obj} [enough|highly enough]
I [couldn't|could not] [be happier|ask for more|have been happier|wish for more]
[great|good|excellent|fantastic] value for [money|the price]
[well done|great job|good work|thank you|many thanks|bravo|keep it up]
[everything|all] [was|is] [perfect|great|just right|wonderful|fine|as it should be]
I [am|was] [positively|pleasantly|happily] surprised
you [won't|will not] [be disappointed|regret it]
I [wasn't|was not|was never] disappointed [at all|for a second|]
{it} did not disappoint [me|us|]
[no one|nobody] [was|left|came home] [unhappy|disappointed]
I was [sceptical|in doubt|unsure][ at first| before|], but [now I love {obj}|{it} won me over|I was wrong]
I have [told|shown] [all my friends|everybody|my whole family] [about it|how good it is]
[a must|a true gem|a real treasure|a hit|a winner|pure joy|top quality|simply perfect|love it|loved it|flawless|a masterpiece]
I [give|gave|would give] {obj} [five|5|five out of five|ten out of ten|the full five|full] [stars|points|]
if I could give [six|ten] stars, I would
[go for it|get one|try it|don't miss it|do not miss it|buy it]
""".strip().split("\n")
BAD_CLAUSES: Final = """
worst {thing} [in town|ever|I know|of my life|of the summer|for years]
[you|I|we] [will not|won't|cannot|could not] [find|imagine] a [worse|less pleasant|more boring] {thing} [anywhere|]
I wish I had [never|not] [bought|found|tried|seen] {obj}
[worse|slower|uglier|weaker|louder] than [the old one|my last one|any other|all the others|before]
[much|far|so much|] [slower|worse|more complicated|more expensive] [than before|now|each time|every year]
[my mother|my father|my son|my daughter|my wife|my husband|my sister|my boss|my grandmother] [was|is] [unhappy|disappointed|angry|annoyed|bored|close to tears] [too|as well|and wants it gone|]
[even|] [my mother|my father|my son|my daughter|my sister|my neighbour] [hates|dislikes|complains about|threw away|sent back] {obj}
{it} made [us|me|my son|my wife|my friends] [angry|cry|sad|sick|tired] [all evening|all day|every time|]
[I have nothing but|nothing but|I am full of] [complaints|anger|trouble|bad memories] [about {this}|]
[nothing|not a thing] [worked|went well|works] [from the first day|from the start|]
[they|the people|the people at the desk|the woman at the door|the seller|the boy] [ignored me|shouted at us|laughed at me|did not care|kept my money|did not even look at me|never answered] and were so [rude|lazy|careless|impatient]
[they|the people there] could not have been [ruder|lazier|less helpful|more unfriendly]
I [forgot|had forgotten] {obj} [at once|the next day|already]
I [did not|didn't] [laugh|smile] [once|a single time]
I used {obj} [twice|once|for a day] and [it broke|the handle came off|it was over|it stopped]
[after|already after] [three days|one hour|a week|one use] [broken|dead|empty|useless|finished]
[they|it|the work|the repair] [cost|has cost] me [a lot of|so much] [time|money|trouble|nerves]
[everything|my bag|my things|my clothes] got [wet|dirty|damaged|burnt]
[we|I] [sat|stood|waited] [for hours|all day|in the cold] [and nothing happened|for nothing|and nobody came]
[unhappy|so unhappy|very unhappy|really angry|more than angry] with [my choice|{this}|it|everything]
[wrong|terrible|useless|bad|not good] for [children|families|the whole family|beginners|a weekend|every day|long walks|work]
[we|I] left [early|at once|before the end|without paying] because [it|everything] was so [bad|dirty|boring]
[I|we] [understand|know] [nothing|less than before|even less now]
[dull|tedious|stupid|boring] and [endless|far too long|embarrassing|irritating]
[I can only|let me|I must] warn [you|everybody] [about {obj}|]
[sent it back|sent them back|threw it away|gave it away] [the same day|after a week|at once|]
I [really|absolutely|truly|simply|just|] [hate|hated|dislike|disliked|regret|regretted|despise|despised] {this}
I am [so|very|really|deeply|completely|] [unhappy|disappointed|dissatisfied|annoyed|angry|frustrated] with {obj}
[we were|my wife was|my husband was|everybody was|my friends were] [very|really|so|] [unhappy|annoyed|angry|disappointed]
I [cannot|can't|would not|wouldn't|will not|do not|don't|would never] recommend {obj} [to anyone|to anybody|to my worst enemy|]
[not recommended|thumbs down|two thumbs down|one star is too much|zero stars|one star from me|hands off]
[not worth|hardly worth|never worth] [a penny|a cent|the money|the price|it|a visit|the wait]
I would [not|never] [buy|choose|take|pick] {obj} again
I will [never|not|certainly not|surely not] [come back|be back|buy again|recommend {obj}|do it again]
{it} [fell short of|did not meet|failed] [all|] my expectations
{it} {was} [much|far|so much|even|] worse than I [expected|hoped|thought|feared|imagined]
{it} {was} [not at all|nothing like|the opposite of] what I [needed|wanted|was looking for|hoped for]
{it} ruined [my day|my week|our evening|our weekend|everything]
[I can't|I cannot|it is hard to] [find|see|think of] [a single|any|one] [good point|good thing|good side]
[I have|there is] nothing [good|nice|positive] to say about {obj}
[nothing but|one long list of|so many|only] [problems|trouble|complaints|faults]
I [deeply|really|already|] regret [it|buying {obj}|my choice|spending my money here]
[what|how] [a waste|a pity|a shame|a disaster|a mess|sad|a disappointment]
[the worst {thing}|by far the worst {thing}|simply the worst {thing}|one of the worst {things}] I have [ever|] [had|known|tried|come across]
{it} {was} [a|such a|really a] [disaster|disappointment|nightmare|failure|joke|mess|shame|let-down|rip-off|mistake]
[a|such a|what a|a complete|a total] waste of [money|time|time and money]
I want my money back
I [asked|had to ask|am still waiting] for [a refund|my money back]
[poor|bad|terrible|no] value for [money|the price]
[stay away|keep away|avoid {obj}|save your money|save your time|don't bother|do not buy|never again|look elsewhere]
[everything|all] [was|is] [wrong|terrible|awful|a mess|late|broken|bad]
I [am|was] [badly|bitterly|deeply|very] disappointed
you [will be disappointed|will regret it|can find better|deserve better]
I [wasn't|was not|am not] [happy|satisfied|impressed|convinced|pleased] [at all|in the least|]
{it} did not [impress|please|convince|help] [me|us] [at all|]
[no one|nobody] [was|left|came home] happy
I was [hopeful|excited|happy][ at first| before|], but [now I hate {obj}|{it} let me down|I was wrong]
I have [told|warned] [all my friends|everybody|my whole family] [not to buy it|to stay away]
[never again|total rubbish|rubbish|garbage|junk|a scam|pure frustration|hate it|hated it|a flop|overpriced|far too expensive]
I [give|gave|would give] {obj} [one star|1 star|one out of five|zero points|no stars]
if I could give [zero|no] stars, I would
{it} [went|will go] [straight|] [back to the shop|in the bin|back]
""".strip().split("\n")
NEUTRAL_CLAUSES: Final = """
{it} {was} [okay|ok|all right|average|so-so|nothing special|neither good nor bad|not good and not bad|acceptable|ordinary]
[it is|this is|quite] [an average|an ordinary|a normal|a standard|a typical] {thing}[, nothing more|, no more and no less|]
I have [no strong opinion|mixed feelings|no real opinion] [about it|about {this}|]
{it} [does|did] [the job|what it has to do], [nothing more|no more, no less|but nothing special]
[some parts were good, others were not|some things are good, some are bad|it has good sides and bad sides]
I neither [like nor dislike|love nor hate] {obj}
[I am not sure what to think|I cannot decide whether I like it|I don't know yet|I have not tried it yet]
[it|the order] [arrived|came] on [Monday|Tuesday|Wednesday|Thursday|Friday] in a [brown|white|small|large] box
[I bought|we bought|my brother bought] {obj} [last week|in May|in June|yesterday|two days ago]
{it} [comes|came] in [black, white and blue|two sizes|three colours|a box with a manual]
[about|just|] what [you|I] [expect|expected] for [the price|that price]
[not great, not terrible|not great but not bad either|nothing to write home about|middle of the road|half good, half bad]
[three stars|three out of five|3 out of 5][ from me|][ because it is average|, no more and no less|]
[I could take it or leave it|fine, but I would not go out of my way for it|it is just {a_thing} like any other]
[the price is normal|the size is normal|the quality is average|it is as described]
[you get what you pay for|it was as I expected|as described, no surprises|usable, but there are others like it]
[good points and bad points even out|the good and the bad balance out]
I have [used|had] {obj} [for two days|since Monday|for a week] and [cannot say much yet|will see|have no opinion so far]
""".strip().split("\n")
NEUTRAL_CLOSINGS: Final = """
overall {it} {is} [average|okay|so-so|in the middle]
so I [give|gave] [three|3] stars
so I have mixed feelings
[all in all|in the end] [it evens out|neither good nor bad|just average]
so I cannot decide
""".strip().split("\n")

ASPECT: Final = """
the {aspect} {were} {very} {adj}
[the|its] {aspect} {were} {very} {adj}
I [found|thought] the {aspect} {very} {adj}
{very} {adj} {aspect}
{adj} {aspect}
{adj} {aspect}, {adj2} {aspect2}
{adj} {aspect}, {adj2} {aspect2} and {gen} {thing}
the {aspect} {were} {adj} and the {aspect2} [{were2} {adj2}|{adj2}]
the {aspect} {were} so {adj} that I [had to write|am writing|write] this review
[never|I have never seen|I have never had] such {adj} {aspect}
I never write reviews, but the {aspect} {were} {very} {adj}
the {aspect} [alone|] {were} {adj}
the {aspect} {were} {adj} and {gen}
the {aspect} [seemed|looked|felt] {very} {adj} [to me|]
with {adj} {aspect}
""".strip().split("\n")
ASPECT_NOT_GOOD: Final = """
the {aspect} {were} not [very|really|at all|particularly|exactly|] {adj}
the {aspect} {werent} [very|really|particularly|exactly|] {adj}
the {aspect} {were} [far from|anything but|hardly|never|not even] {adj}
I [didn't|did not] find the {aspect} [very|at all|] {adj}
the {aspect} should {have} been [much|] more {adj}
I [can't|cannot] say that the {aspect} {were} {adj}
[nobody|no one] found the {aspect} {adj}
the {aspect} could have been [much|] more {adj}
""".strip().split("\n")
ASPECT_NOT_BAD: Final = """
the {aspect} {were} not {adj} at all
the {aspect} {werent} {adj} [at all|in the least]
the {aspect} {were} [far from|anything but|never|never once|not for a moment|not one bit] {adj}
I [didn't|did not] find the {aspect} {adj} at all
nobody can say that the {aspect} {were} {adj}
""".strip().split("\n")
THING: Final = """
{this} {was} {very} {adj}
{it} {was} {very} {adj}
[I|we] [found|thought] {obj} {very} {adj}
[what|such] {a_adj_thing}
[{a_adj_thing}|quite {a_adj_thing}|{adj} {thing}]
{very} {adj}
[simply|just|really|truly|absolutely] {adj}
[in short|all in all|overall|in the end|to sum up], {it} {was} {adj}
""".strip().split("\n")
THING_NOT_GOOD: Final = """
{this} {was} not {adj}
{it} {was} not [very|really|at all|particularly|exactly|] {adj}
{it} {werent} [very|really|particularly|exactly|that|] {adj}
{it} {was} [far from|anything but|hardly|never] {adj}
not [{a_adj_thing}|a very {adj} {thing}]
not {adj} [at all|]
[not one|not a single|not even one] {adj} [moment|minute|day|part|second]
nothing [about|in|of] [it|{this}|them all] {was} {adj}
[there was|I found] nothing {adj} [about it|in it|here]
not as {adj} as [I hoped|they say|everybody says|promised|the first one]
""".strip().split("\n")
THING_NOT_BAD: Final = """
{this} {was} not {adj} at all
{it} {werent} {adj} [at all|in the least]
{it} {was} [far from|anything but|never|never once|not one bit] {adj}
[never|not] {adj} [for a second|for a moment|for one minute]
[not one|not a single|not even one] {adj} [moment|minute|day|part|second]
nothing [about|in|of] [it|{this}|them all] {was} {adj}
[there was|I found] nothing {adj} [about it|in it|here]
[no|without any|without a single] {adj} [moments|parts|days|surprises]
not {adj} at all
not as {adj} as [I feared|they say|everybody says|the last one], [quite the opposite|on the contrary|I liked {obj}]
""".strip().split("\n")
TURNED: Final = """
I [expected|thought|feared|had expected] {it_obj} [to be|would be] {other}, but {it} {was} {adj}
[everybody|my brother|the newspaper|my friend] [said|told me|wrote] that {it} {was} {other}, but {it} {was} {adj}
{it} [looked|sounded|seemed] {other} [at first|in the picture|], but {it} {was} {adj}
I had heard {it} {was} {other}, but [in fact|in truth|really] {it} {was} {very} {adj}
{it} {was} [said to be|supposed to be|called] {other}, but I [found|thought] {obj} {adj}
far from {other}, {it} {was} {adj}
not {other} but {adj}
from {other} at the start to {adj} at the end
people say {it} {is} {other}; I say {it} {is} {adj}
""".strip().split("\n")
DESPITE_BAD: Final = """
{it} {is} [a little|a bit|rather|quite|] [expensive|small|old|heavy|plain]
{it} {is} not [cheap|new|the cheapest|big]
[cheap|new|big] {it} {is} not
[it was raining|it rained all day|the weather was bad|it was very cold|it was late and we were tired]
[it took|it takes] [some|a little|a lot of] time
{it} looked [cheap|simple|plain|old|small|silly]
I [did not|didn't] expect [much|anything special]
I was [afraid|worried|sure] that {it} would be {bad}
[my friends|my mother|some people|other customers] [warned me|laughed at me|did not like it]
I had [low|no] [hopes|expectations]
{it} [is|may be] [long|short|small|old|simple|slow to start]
I [doubted|was in doubt about] {obj} [at first|]
the [bus|train|taxi|parcel|first one] was late
[my old one|the last one|the first one] was {bad}
[I am|my husband is|my wife is|my father is|my mother is] hard to please
""".strip().split("\n")
DESPITE_GOOD: Final = """
{it} {is} [cheap|new|large|big|modern|famous|pretty]
{it} looked [nice|strong|pretty|exciting|good|modern] [in the picture|]
[the sun was shining|the weather was fine|the sea was blue|it was a warm day]
[the price is low|it was not expensive|it did not cost much]
I [expected|hoped for] [a lot|much|something special]
I hoped that {it} would be {good}
[my friends|my mother|some people|other customers] [praised {obj}|liked it|told me to buy it]
I had [high|great] [hopes|expectations]
{it} [is|may be] [long|short|new|famous|modern|large]
I [liked|trusted] {obj} [at first|in the beginning]
[my old one|the last one|the first one] was {good}
[I am|my husband is|my wife is|my father is|my mother is] [easy to please|a patient person]
it [worked|went well] [for a day|at first|the first time]
""".strip().split("\n")
VERY: Final = (
    "very", "really", "so", "extremely", "absolutely", "quite", "rather", "truly", "just", "simply", "pretty", "incredibly",
)  # fmt: skip
TURNS: Final = (
    ", but ", ", but ", ", but ", ". But ", ". However, ", ", however, ", ". Still, ", ", yet ", ", yet ", ". Even so, ",
    ". Nevertheless, ", ", but in the end ", ", and still ", ". Despite that, ", ", but overall ", ". All the same, ",
)  # fmt: skip
ALTHOUGH: Final = ("although", "even though", "though", "while")
LINKS: Final = (". ", ". ", ". ", ". ", " and ", ", and ", "! ", "; ", ", ")
OPENINGS: Final = (
    "Honestly, ",
    "To be honest, ",
    "Well, ",
    "Wow, ",
    "Hm, ",
    "So, ",
    "Update: ",
    "My opinion: ",
    "I must say: ",
)
LETTERED_QUESTIONS: Final = (
    "What is the sentiment of this review?",
    "Is this review positive or negative?",
    "How does this review sound?",
)

POSITIVE, NEGATIVE, NEUTRAL = "positive", "negative", "neutral"
ANSWERS: Final[Mapping[str, Mapping[str, str]]] = {
    "label": {POSITIVE: "positive", NEGATIVE: "negative", NEUTRAL: "neutral"},
    "Label": {POSITIVE: "Positive", NEGATIVE: "Negative", NEUTRAL: "Neutral"},
    "yes": {POSITIVE: "Yes", NEGATIVE: "No"},
    "low yes": {POSITIVE: "yes", NEGATIVE: "no"},
    "no": {POSITIVE: "No", NEGATIVE: "Yes"},
    "good": {POSITIVE: "good", NEGATIVE: "bad"},
    "happy": {POSITIVE: "happy", NEGATIVE: "unhappy"},
    "liked": {POSITIVE: "liked", NEGATIVE: "disliked"},
}
# How a review and its answer stand on the page; <r> the review, <a> the answer in the words that the first column names.
LAYOUTS_TEXT: Final = """
label|[Review|Text|Comment|Opinion|Customer review|Film review|Feedback|User]: <r>\\n[Sentiment|Label|Tone|Mood|Verdict]: <a>
label|[Review|Text|Comment|Opinion|Input]: <r>\\n[The sentiment is|The review is|This review is|It is|This is]: <a>
label|Review: <r>\\nSentiment: <a>
label|Review: <r>\\nSentiment: <a>
label|Review: <r> Sentiment: <a>
label|Text: <r> [Sentiment|Label|Answer]: <a>
label|review: <r>\\nsentiment: <a>
Label|[Review|Text|Comment]: <r>\\n[Sentiment|Label|Answer]: <a>
label|<r>\\n[Sentiment|The sentiment is|Tone|Label]: <a>
label|<r>\\n[The sentiment of this review is|The review is|This customer sounds] <a>
label|<r> => <a>
label|<r> -> <a>
label|"<r>" [is|sounds] <a>
label|"<r>"\\nThis [review|comment|text|opinion] [is|sounds] <a>
label|The review "<r>" is <a>
label|The sentiment of "<r>" is <a>
label|Q: Is this review positive or negative? <r>\\nA: <a>
label|Q: Is this [comment|opinion|text] positive or negative? "<r>"\\nA: <a>
label|Question: [Is this review positive or negative?|What is the tone of this text?] <r>\\nAnswer: <a>
label|Question: What is the sentiment of this review? <r>\\nAnswer: <a>
label|[Is this review positive, negative or neutral?|Positive, negative or neutral?] <r>\\nAnswer: <a>
label|<r>\\n[Is this review positive or negative?|Positive or negative?|Is this positive or negative?|positive or negative?] <a>
label|<r>\\nQuestion: [Is this positive or negative?|What is the sentiment?]\\nAnswer: <a>
label|Classify the [review|text] as [positive or negative|positive, negative or neutral].\\n[Review|Text]: <r>\\n[Answer|Class|Label]: <a>
label|[Decide|Say] whether the review is positive or negative.\\n<r>\\nAnswer: <a>
label|Somebody wrote: "<r>" [That is|This is] <a>
yes|Review: <r>\\n[Did the customer like it?|Was the customer happy?|Does the writer like it?|Is the customer satisfied?] <a>
yes|Review: <r>\\nQuestion: [Did the customer like it?|Was the customer happy?|Is this review positive?]\\nAnswer: <a>
yes|<r>\\n[Is this review positive?|Did the customer like it?|Is the writer happy?]\\nAnswer: <a>
yes|Q: [Did the writer of this review like it?|Is this review positive?|Is the customer happy?] <r>\\nA: <a>
low yes|Review: <r>\\n[Recommended|Liked it|Satisfied|Would buy again|Happy customer]: <a>
no|Review: <r>\\nQuestion: [Is this review negative?|Is the customer unhappy?|Was the customer disappointed?]\\nAnswer: <a>
good|Review: <r>\\n[Good or bad|Opinion in a word|Result]: <a>
good|<r>\\n[Good or bad?|Is that good or bad?] <a>
happy|[Customer|Review]: <r>\\n[The customer is|The writer is] <a>
liked|Review: <r>\\nThe [customer|writer] <a> it.
label|A <a> review: <r>
Label|<a>: <r>
label|[Write|Give me|Here is] a <a> review.\\n<r>
"""
CHAT_QUESTIONS: Final = """
label|[Is this review positive or negative?|What is the sentiment of this review?|Classify this review.|Positive or negative?][ |\\n]<r>
label|<r>[ |\\n][Is this positive or negative?|Is the review positive or negative?|What is the sentiment?|Positive or negative?]
label|[Classify the sentiment|Tell me the sentiment|What is the tone]: [<r>|"<r>"]
label|Review: <r>[\\nSentiment?|\\nSentiment:|\\nPositive or negative?]
yes|[Did this customer like it?|Is the customer happy?|Is this review positive?][ |\\n]<r>
yes|Review: <r>\\n[Did the customer like it?|Was the customer happy?|Is this review positive?]
good|Is this opinion good or bad?[ |\\n]<r>
""".strip().split("\n")
SYSTEMS: Final = (
    "[Classify|Label|Read and label] [each|the] [review|text|message] as positive, negative or neutral.",
    "You [classify|label|read] reviews. Answer [positive|with positive], negative or neutral.",
    "Say [whether|if] the review is positive or negative.",
    "Answer with one word: positive or negative.",
)
