"""Plain review sentences written by hand: neutral ones, short ones as people type them, and single words of praise and blame."""

from __future__ import annotations

from typing import Final

NEUTRAL_TEXT: Final = """
The [bag|case|cover|jacket] is [dark blue|light grey|black|green] and [has|comes with] [two|three|four] pockets.
The [table|desk|shelf] is [ninety|eighty|sixty] centimetres [wide|long|high] and [made of|built from] [oak|pine|metal].
I ordered [it|this|the lamp] on [Monday|Tuesday|the third of May] and it came on [Friday|Saturday|the ninth].
We [booked|reserved] [a room|a table|a place] for [two|four|six] [on|for] [Saturday|Sunday|the weekend].
The [box|parcel|package] contains [the device|the lamp|one unit], a [cable|plug|charger] and a [manual|leaflet|card].
The [shop|museum|café|library] opens at [nine|ten|eleven] and closes at [five|six|eight].
The [hotel|flat|house|hostel] [is|lies|stands] [on the main road|near the station|behind the church|next to the park].
It is [about|roughly|some] [ten|fifteen|twenty] minutes on foot [to|from] the [beach|centre|station|harbour].
The [film|concert|show|play] [lasts|runs for|takes] [about|around] [two|three] hours[ with one break|].
The [book|guide|novel] has [two|three|four] hundred pages and [ten|twelve|twenty] chapters.
This is [the|my] [second|third|fourth] [pair|one|set] that I have [bought|ordered] [here|from this shop].
I [bought|ordered|got] [it|this] for [my sister|my son|a colleague|the office] [last week|in March|in autumn].
It [runs on|needs|takes] [two|three|four] [small|large] batteries, which are [included|sold separately].
The [room|flat|cabin] [has|comes with] [two|three] [beds|windows|chairs], a [desk|table] and a [wardrobe|shower].
The [shirt|coat|sweater|dress] is [sold|made|available] in [red|blue|white] and in [three|four|five] sizes.
The [jar|bottle|tin|bag] [holds|contains] [half a litre|one litre|two hundred grams|a kilo].
The [course|class|workshop] [takes place|is held|meets] [every Monday|on Thursdays|twice a month] [at six|in room four].
The [bus|train|ferry|tram] [leaves|departs|goes] [every hour|every thirty minutes|four times a day].
We [arrived|checked in] at [noon|three|four] and [left|checked out] [the next day|on Sunday|two days later].
[It|The device] [weighs|has a weight of] [about|roughly] [two|three|five] kilos [without|with] the [battery|box|stand].
The [cable|cord|rope] is [one metre|two metres|three metres] long and [white|black|grey].
The [menu|card] [lists|has|offers] [fish|meat|pasta], [soups|salads] and [three|four] desserts.
The [restaurant|bar|café] has [twenty|thirty|forty] seats inside and [ten|twelve] [outside|on the terrace].
The [invoice|receipt|bill] was [in the box|sent by email|in an envelope] and [shows|lists] [two|three] items.
[It|The app] [is|comes] in [English|German|French] and [Spanish|Italian|Dutch].
The [author|writer] [lives in|comes from|was born in] [Norway|Canada|Ireland] and [wrote|has written] [four|six] books.
The [story|film|novel] [takes place|is set|plays] in [a small town|Paris|the mountains] in [the fifties|1920|winter].
The [parcel|order|package] was [left|put] [with the neighbour|at the door|at the post office] on [Monday|Tuesday].
I [collected|picked up] the [order|keys|tickets] [at the desk|in the shop] [at noon|on Friday|around five].
The [tickets|passes] [cost|are] [eight|ten|twelve] euros for adults and [four|five|six] for children.
The [kettle|jug|pot] [holds|takes] [one litre|two litres] and has a [black|steel|wooden] handle.
There [is|was] [a car park|a bus stop|a supermarket] [across the street|round the corner|next door].
The [phone|tablet|screen] [measures|is] [six|eight|ten] inches[ across|] and [came|was sent] in a [white|brown] box.
The [chair|stool|bench] [comes|is delivered] in [two|three|four] parts with [eight|ten|twelve] screws.
The [pool|gym|sauna] [is open|can be used] [from eight to ten|in the morning|from May to September].
[My|Our] [order|parcel] [was sent|left the warehouse] on [Monday|the fifth] and [arrived|came] on [Thursday|the eighth].
The [tour|trip|walk] [starts|begins] at the [town hall|harbour|station] and [ends|finishes] at the [castle|market].
The [watch|clock|radio] has a [round|square|small] [display|face] and [two|three|four] buttons.
The [pillow|cushion|mattress] is filled with [foam|cotton|wool] and has a [white|grey|blue] cover.
[You|Guests] can [pay|settle the bill] [by card|in cash|by phone] [at the desk|on arrival|before departure].
The [breakfast|buffet] [is served|takes place] [from seven to ten|until half past nine] [in the hall|upstairs].
The [doctor|dentist|hairdresser] [works|sees people] on [Mondays|Tuesdays|Fridays] [from eight to four|until six].
The [shoes|boots|sandals] are [brown|black|grey], [size forty|size forty-two] and made [of|from] [leather|canvas].
We [ordered|had|took] [the soup|the fish|a pizza] and [a salad|a bottle of water|two coffees] [for lunch|at noon].
The [printer|scanner|copier] [stands|is now] in [the office|the hall|my room] and is [used|needed] [twice a week|daily].
The [update|new version] was [released|published] in [June|April|October] and [changes|adds] [two|three] menus.
The [garden|yard|balcony] [faces|looks] [south|north|east|west] and has [a tree|a table|two chairs].
The [tent|van|boat] [sleeps|is for|has room for] [two|three|four] people[ and their bags|].
[This|It] is the [blue|small|older|second] [model|version|edition] from [2019|last year|the spring].
[It|The set] [consists of|contains|has] [six|eight|twelve] [plates|cups|knives|glasses] and a [tray|bowl|stand].
[It|This one] is [okay|average|all right], [nothing more and nothing less|neither good nor bad].
[Middle of the road|So-so|Average|Fair to middling], [I would say|I suppose|I guess], [nothing more|no more, no less].
[Neither good nor bad|Not good and not bad], [just|simply] [average|ordinary|in the middle].
[Three out of five|Five out of ten|Three stars|Half marks] [from me|from us], [it is average|it was okay].
[It|The item] is [exactly |]as [described|shown|pictured][ on the page|], [no more, no less|that is all].
A [normal|standard|typical|plain] [hotel|shop|café|phone] [like many others|like any other|as you find everywhere].
It has [its good sides and its bad sides|its ups and downs|pros and cons], [like most things|as always].
I have no [opinion|view] [yet|so far] [because|since] I [have only just got it|only got it today|have not used it].
I have not [tried|tested|used|opened] it yet, so I [cannot say|cannot judge|do not know].
We cannot [decide|agree] [whether|if] we [like it or not|should keep it or send it back].
[It|The food|The film] was [okay|average|so-so], [not great, not terrible|not special, not bad].
[I|We] [feel|felt] [neutral|undecided|indifferent] about [it|this|the whole thing].
[It|This] does [just |]what [it says|you would expect], [not more|nothing beyond that] and not less.
[Ask|You can ask] me [again|once more] in [a month|a few weeks|half a year], [it is too early to say|I cannot say yet].
[Too early|Too soon] to [say|tell|judge], I [got|received] it [yesterday|this morning|two days ago].
[I|We] [expected|had expected] [something average|a normal one] and got [just that|exactly that].
[Half|Part] of it [was good|I liked], [the other half|the rest] [was not|I did not like].
[Some|A few] [parts|things|details] are good, [others|some] are [not|bad], so [it is average|three stars].
[It|The place] is [like|the same as] [every other one|all the others], [no better and no worse|no difference at all].
[My wife|My brother|One friend] likes it, [my son|my sister|another] does not, [I have no opinion|I am undecided].
On [balance|the whole], [it is|I find it] [average|middling|neither good nor bad].
An [ordinary|average|everyday] [meal|evening|stay|trip], [nothing to praise or blame|nothing special, nothing bad].
[I|We] would neither [recommend|praise] [it|this] nor [advise against it|warn against it].
[Maybe|Perhaps] I will [buy|order] [it|one] again, [maybe|perhaps] not.
[It|This] is [medium|average|middling] in [every respect|all points|every way].
[Nothing|There is nothing] [to complain about|to criticise] and [nothing|nothing here] [to get excited about|to praise].
[I|We] have [seen|had|tried] better and have [also |][seen|had] worse[, so average|].
[Some|Some people] will [like|love] it, others will not[, it depends on taste|, that is a matter of taste].
It is [a matter|a question] of [taste|preference], so [I leave it open|judge for yourself|see for yourself].
[No|I have no] [strong|particular] [feelings|opinion] [either way|one way or the other|about this].
[Acceptable|Passable|Adequate], [average|ordinary], [nothing more to say|that is all|no more, no less].
[I am|We are] still [testing it|trying it out], [a verdict|a rating] [will follow|comes later|comes next week].
The [gift|present] is [still in its box|still wrapped], [I cannot rate it yet|so no rating yet|a verdict will follow].
[It|The phone] has been [on my desk|in the cupboard|in the drawer] since [May|Monday], I have not [used|tried] it yet.
The [quality|taste|service] is [good|fine], the price is [too high|steep], so [it is average|three out of five].
The [food|soup|fish] was [tasty|delicious] but the [wait|queue] was [long|endless], so [overall|all in all] average.
The [room|bed] was [nice|clean] but the [street|lift] was [noisy|loud], so [overall|all in all] [okay|so-so].
[Fast|Quick] [delivery|shipping], but [a scratch|a dent] on the [box|lid|side], [so three stars|so average overall].
[Good|Strong] [acting|music], [weak|thin] [plot|ending], [so|all in all] [average|middling].
The [screen|picture] is [sharp|bright], the sound is [poor|weak], [on balance average|so it is so-so].
The [staff|waiters] were [friendly|kind] and the [coffee|tea] was [cold|weak], [it evens out|average in the end].
[Cheap|Inexpensive] but [thin|flimsy], [so|all in all] [neither good nor bad|just average|middling].
The [first|opening] half was [gripping|exciting], the second [boring|dull], [on the whole average|so half marks].
The [view|pool] was [great|lovely], the [food|bed] was [bad|poor], [so it balances out|three stars in total].
The [colour|shape] is [pretty|lovely], the fabric is [rough|scratchy], so I am [undecided|in two minds].
[Easy|Simple] to [set up|install], [slow|sluggish] to use, [average overall|so three out of five|so-so in total].
The [battery|motor] is [strong|good] and the [case|handle] is [ugly|weak], [so it is average|that evens out].
I [liked|loved] the [songs|costumes] and [disliked|hated] the [story|ending], so [half and half|three stars].
The [guide|teacher] was [funny|friendly] but the [tour|lesson] was [too short|rushed], so [average|middling] overall.
The [sofa|chair] is [comfortable|cosy], but one [leg|seam] is [crooked|loose], so [okay overall|average].
The [app|site] looks [good|modern] but [crashes|hangs] [sometimes|now and then], so [average|three stars].
[One|The first] [pan|lamp] is [perfect|great], the [other|second] is [dented|faulty], so [half marks|I am undecided].
The [bread|cake] was [fresh|good], the [butter|cream] was [off|sour], so [it was middling|half good, half bad].
[Great|Good] location, [bad|poor] [beds|breakfast], [overall average|so three out of five].
The [driver|guard] was [polite|helpful] but [late|slow], which makes it [average|so-so].
The [jacket|coat] is [warm|soft], the zip [sticks|jams], [so it gets three stars|average on balance].
[Nice|Lovely] [smell|scent], but it [fades|goes] [fast|quickly], so [okay|average], [no more|nothing more].
[I|We] [took|caught] the [early|late|morning] [train|ferry|flight] and [got there|arrived] at [eight|nine|ten].
The [label|sticker] [says|reads] [cotton|wool|linen] and [wash at thirty|wash at forty] degrees.
The [lamp|fan|heater] has [two|three] [settings|levels|speeds] and a [timer|switch].
The [sample|test pack] [contains|holds] [five|six|ten] [bags|sachets] of [tea|sugar|coffee].
[It|The lid|The handle] is made of [plastic|steel|wood|glass] and is [grey|brown|white].
[They|The owners] [moved|have moved] to [a new address|the old town|the first floor] [in May|last year|in winter].
The [parking|locker|towel] [costs|is] [two|three|five] euros [a day|per person|each].
The [office|counter|desk] is closed on [Sundays|Mondays|holidays] and [open|staffed] on all other days.
The [series|podcast] has [eight|ten|twelve] [episodes|parts] of [about|roughly] [thirty|forty|fifty] minutes.
The [game|puzzle] is for [two|three|four] players [aged|from] [eight|ten|twelve] [and up|years on].
[I|We] [changed|moved] the [date|appointment] from [Monday|Tuesday] to [Thursday|Friday].
The [new|second] [owner|manager] [took over|started] in [January|spring|August].
The [hall|theatre|stadium] has [room for|seats for] [two|three|five] hundred people.
The [road|path|track] [goes|leads] [past|along] the [lake|river|forest] to the [village|bridge].
The [street|square|market] is in the [north|south|east|west] of the [town|city|island].
The [seller|shop] [is based|has its office] in [Poland|Spain|Sweden] and [ships|sends] by [post|courier].
[Delivery|Shipping] [took|was] [three|four|five] [working |]days, as [stated|announced] [on the site|in the mail].
The [lock|key|remote] [is|was] in [the small box|a separate bag|the side pocket].
[It|The bike] has [seven|eight|twenty-one] gears and [twenty-six|twenty-eight] inch wheels.
The [apartment|flat] is on the [first|second|third] floor and [there is a lift|there is no lift|has stairs only].
[I|We] [chose|picked|took] the [grey|blue|red] one in [medium|large|size L].
The [paint|varnish|glue] [dries|sets] in [four|six|eight] hours [at room temperature|according to the label].
[I|We] [went|were] there on [a Tuesday|a Sunday|a weekday] [at noon|in the evening|in October].
The [seeds|bulbs] [were planted|went into the soil] [last week|on Sunday], [nothing to report yet|no result yet].
The [cream|oil|shampoo] [comes|is sold] in a [tube|bottle] of [fifty|one hundred|two hundred] millilitres.
The [rug|carpet|blanket] is [two metres|three metres] by [one metre|one and a half] and has [stripes|dots|a pattern].
The [waiting room|lobby|hall] has [ten|twelve|six] chairs and a [table|clock|plant].
The [camera|recorder] [uses|takes] a [memory|storage] card, which is [included|not in the box|sold separately].
[It|This] is [used|second-hand] and [about|roughly] [two|three|five] years old.
[It|The meal] was [alright|okay|decent enough], [I have no more to say|nothing special|just average].
[meh|so-so|its ok|it's okay], [not good not bad|nothing special|average i guess].
[ok|okay|alright] [i guess|i suppose|for now], [nothing special|just average|neither here nor there].
[havent|have not|haven't] [tried|used|opened] it yet, [will update|will report back|more later].
[No|Still no] [opinion|verdict|judgement] [yet|so far|at this point], [more later|an update will follow].
[it is what it is|does its job i guess], [average|3 out of 5|3 stars|so-so].
[Standard|Usual|Common] [size|quality|fare], [as expected|as usual|as described], [nothing more|nothing else].
[It|The class] was [neither|not really] [interesting|exciting] nor [boring|dull], [just normal|simply average].
[It|The bed] is neither [hard|firm] nor soft, [medium|in between|average], [I would say|I think].
It was [not cheap and not expensive|neither cheap nor dear], [a normal price|an average price|the usual price].
It was [not fast and not slow|neither quick nor slow], [a normal|an average|the usual] [speed|pace|time].
The [service|staff] was neither [friendly|warm] nor [rude|cold], [just|simply] [normal|average|neutral].
[I|We] [would|might] go [again|back] if [it is on the way|nothing else is open], [otherwise not|otherwise elsewhere].
The [taste|flavour|smell] is [ordinary|average|neutral], [like any other|the same as the others|nothing special].
[I|We] [could|can] [take it or leave it|live with or without it], [it is average|no strong feelings].
[The jury is still out|I am in two minds|I am on the fence], [ask me later|time will tell|let us wait and see].
[Time will tell|We will see|Let us wait and see] [if it lasts|how long it holds], [no verdict yet|too early now].
[Fifty-fifty|Half and half|Mixed feelings], some good things, some bad[ things|], [average overall|so three stars].
[Mixed|Very mixed] [bag|impressions], [good|better] in [parts|places], [bad|worse] in [others|other places].
The [replacement|spare part] [has|had] the [same|right] number and [came|arrived] on [Monday|Wednesday].
The [questions|forms] [had|contained] [ten|twenty] [points|lines] and [took|needed] [five|ten] minutes.
The [curtains|towels|sheets] are [white|cream|grey] and [come|are packed] in [pairs|sets of two|sets of four].
The [meeting|talk|lecture] [was about|dealt with|covered] [taxes|history|gardening] and took [an hour|ninety minutes].
The [waiter|clerk|man at the desk] [wore|had on] [a blue shirt|a black tie|a grey vest] and [spoke|answered in] English.
[We|They] [sat|were seated] [at the window|by the door|at table nine] and [ordered|asked for] [water|tea|the menu].
The [museum|gallery] [shows|displays] [coins|maps|paintings|ships] from [two|three] centuries on [two|three] floors.
The [second|third] [volume|part|season] [appeared|came out] in [2015|2018|2021] and has [six|nine] chapters.
[I|We] [use|have used] it [once a week|on Sundays|at the office] [for letters|for notes|for travel].
The [plug|adapter] is [for|made for] [European|British|American] sockets and [black|white].
The [bill|total] [was|came to] [twenty|thirty|forty] euros for [two|three] [people|coffees and cakes].
The [house|cottage|farm] was built in [1890|1925|1970] and [has|contains] [four|five|six] rooms.
The [software|program] [needs|requires] [four|eight] gigabytes of memory and [runs|works] on [two|three] systems.
[It|The tea] [has to|should] [steep|stand] for [three|five] minutes, [says the label|according to the box].
The [vet|plumber|painter] [came|was here] at [eight|nine|two] and [stayed|was busy] for [an hour|two hours].
The [gym|club|pool] has [two|three] [rooms|courses|lanes] and [charges|costs] [twenty|thirty] euros a month.
The [crew|team] [consists|consisted] of [three|four|five] people and a [dog|driver|cook].
"""

POSITIVE_TEXT: Final = """
[Love|Loved|We love|I love] [it|this|this one]!
[so|really|very] [soft and warm|warm and cosy|light and comfy]
[Worked|It worked|Works] [at once|straight away|first time].
[a real|such a|what a] [bargain|steal|treat|gem]
[Will|I will|We will] [definitely |]buy again.
[Arrived|It arrived|It came] [safe and sound|in one piece|in perfect shape].
[Well|So|Totally] worth [it|the money|every penny].
[Very|Really|So] [happy|pleased|satisfied] with [it|this].
[Would|I would|We would] [go|order|come] again.
[Highly|Warmly|Strongly] [recommended|recommend it|recommend this].
[Simply|Just|Absolutely] [superb|perfect|wonderful|brilliant].
[cant|can't|cannot] [fault it at all|praise it enough|fault it]
[best|nicest|coolest] [one|thing] [ever|in years|so far]
[Fits|It fits|They fit] [perfectly|like a glove|just right].
[Fast|Quick|Speedy] delivery, [great|lovely|top] quality.
[Kids|The kids|My kids] [love|adore|enjoyed] it.
[Tastes|It tastes|Tasted] [great|delicious|heavenly|lovely].
[Great|Excellent|Fantastic] [value|quality|service|fun].
[exactly|just] what [i|we] [wanted|needed|hoped for]
[five|5] stars [from me|from us|all round|no question]
[Never|It never|Has never] [let me down|failed me|failed us].
[Still|It still] [going strong|works perfectly|works a treat] [today|after years].
[Could not|Couldn't|We could not] be happier[ now| with it|].
[Nothing|I found nothing|There is nothing] to [complain about|fault|criticise].
[Thumbs up|Two thumbs up|Big thumbs up] [from me|from all of us|from us]!
[Thanks|Many thanks|Thank you], [great job|well done|perfect]!
[My|Our] [new|absolute|all-time] [favourite|favourite one].
[So|Really|Very] [easy|simple|quick] to [use|clean|set up].
[Looks|It looks|They look] [gorgeous|stunning|fab|amazing].
[Smells|It smells] [fresh|lovely|divine|wonderful][ all day|].
[Sturdy|Solid|Strong] and [well made|well built|reliable].
[Friendly|Helpful|Kind|Lovely] [staff|people|service], [great food|clean rooms].
[Made|It made|Totally made] my [day|week|evening].
[Slept|I slept|We slept] [like a log|like a baby|so well].
[Laughed|I laughed|We laughed] [so much|a lot|out loud|all evening].
[super|really|very] [cute|pretty|comfy|handy] [thing|little thing]
[wow|Wow|oh wow], [just great|so good|amazing|what a beauty]!
[brilliant|great|ace|lovely] [little |]thing, [buy it|get one|get it]
[Buy|Get|Order] [it|one|this], [no regrets|you will love it|so good].
[No|Zero] [regrets|problems|complaints] [at all|so far|whatsoever].
[Best|The best] [money|tenner] [i|I] ever spent.
[Exceeded|It exceeded|Beat] [my|our|all] [expectations|hopes].
[Better|Far better|Much better] than [expected|I hoped|the old one].
[Does|It does] the job [perfectly|beautifully|brilliantly].
[yes|Yes|oh yes], [worth|well worth] [it|the wait]!
[works|runs|goes] like [a charm|a dream|clockwork]
[top|great|super|perfect] [seller|shop|product], [thanks|thank you]
[A|Such a|What a] [delight|joy|pleasure], [thank you|start to finish|every time].
[Came|It came|Arrived] [early|on time|ahead of time], [well packed|undamaged].
[Bright|Clear|Crisp|Sharp] [picture|screen|display], [great sound|rich sound].
[Keeping|I'm keeping|We are keeping] [it|this], [love it|so happy].
[Ordering|I am ordering|Just ordered] [another|two more|a second one], [so good|love it].
[Already|I have already] [recommended|praised] it to [friends|everyone|mum].
[my|the] [dog|cat|baby] [loves|adores|enjoys] [it|this]
[Really|Very|So] [glad|happy] [I|we] bought [it|this].
[Good|Fair|Great|Low] price, [good|great|top] quality.
[Feels|It feels|They feel] [expensive|luxurious|lovely|silky], [love it|in a good way].
[Great|Fun|Lovely|Fantastic] [evening|night|day], [we'll be back|see you soon].
[Cannot|Can't] wait to [go back|return|order more|see it again].
[pleasantly|nicely|positively] surprised[ by this| by it| indeed|]
[Honest|Fair|Polite|Reliable] and [quick|fast|friendly|careful].
[Clean|Tidy|Spotless], [quiet|peaceful|calm] and [comfortable|cosy].
[Hot|Fresh|Crispy|Tender] and [delicious|tasty|full of flavour].
[Solved|It solved|Fixed] [my|our|the] problem[ in minutes| at once|].
[Holds|It holds] [tight|firmly|really well], [great|no complaints].
[Lasts|It lasts|Lasted] [for ages|all day|for years], [great|love it].
[so|soo|sooo] [good|tasty|pretty|lovely]
[im|i'm|I am] [in love|thrilled|delighted|over the moon]
[everything was|all was|it was all] [perfect|great|super], [thanks|many thanks]
[not|never] a [single |]complaint [from me|from us]
[Not|Never] [bad at all|disappointed], [really good|great|love it].
[Don't|Do not] hesitate, [buy it|get it|go for it]!
[Go|Try it|Book it], you will [love|enjoy|adore] it!
[Hats off|Full marks|Top marks] [to them|to the team|to the chef]!
[10|ten] out of [10|ten], [amazing|love it|perfect|buy it]
[A|One] [big|huge] [hit|success] [with everyone|with the kids].
[The|Our] guests [loved|adored|enjoyed|praised] it.
[Mum|Dad|Grandma|My sister] was [delighted|thrilled|over the moon].
[Perfect|Ideal|Great|Lovely] [gift|present], [he|she] loved it.
[Colour|The colour] is [beautiful|gorgeous|even nicer|lovely][ in real life|].
[Money|My money] well spent[, thanks|, for once| here|].
[Got|I got|We got] [more|far more] than we paid for.
[Reliable|Trusty|Dependable] [as ever|as always|every day], [love it|great].
[Service|The service] was [quick|excellent|friendly|first class].
[Felt|I felt|We felt] [welcome|at home|looked after] [at once|here|there].
[Beautiful|Amazing|Breathtaking|Stunning] [view|place|beach|room]!
[Gripping|Moving|Funny|Touching] [from page one|to the end|throughout].
[Couldn't|Could not] [put it down|stop smiling|stop laughing].
[Saved|It saved|Saves] [me|us] [hours|so much time|a fortune].
[Smooth|Easy|Painless] [booking|return|setup], [great help|great team].
[Refund|My refund|The refund] came [at once|quickly|within a day].
[They|The shop] [answered|replied|helped] [at once|within minutes|right away].
[Washed|I washed it] [twice|ten times], [still like new|still perfect].
[Light|Lightweight|Slim] and [strong|sturdy|tough], [great|perfect].
[Charges|It charges] [fast|quickly|in no time], [lasts long|love it].
[Quiet|Silent] as a mouse, [love it|great|brilliant].
[A|Such a|What a] [lovely|charming|sweet|cosy] [place|spot|room].
[Happy|Very happy|One happy] customer [here|again|as always].
[i|we] [really |]like [it|them|this] [a lot|very much|so much]
[Can|I can] only [recommend|praise] [it|them|this].
[Glad|So glad] I [kept|chose|found|tried] [it|this one].
[Look|You need look] no further, [it's great|this is it|perfect].
[Hooked|We're hooked|I'm hooked], [more please|want more|so good]!
[Finally|At last], [one that works|something good|a decent one]!
[awesome|amazing|epic|fab] [stuff|work|product], [cheers|ta|thx]
[great|good|nice] [stuff|product|shop][!!|!!!]
[happy|pleased|delighted], [would buy again|will be back|all good]
[love|adore|enjoy] [using|wearing|having] [it|this][ every day|]
[worked|works|fits] [fine|great|perfectly] [for me|for us], [thanks|happy]
[the|these] [shoes|socks|gloves] are [lovely|so comfy|great]
[fast|quick] [post|shipping], [nice|lovely] [item|seller|packing]
[Crunchy|Juicy|Sweet|Creamy] and [yummy|moreish|so fresh].
[Ate|We ate|I ate] [every bite|every crumb|it all], [delicious|so tasty].
[Water|The water|The shower] was [nice and hot|lovely and warm].
[Bed|The bed] was [soft|comfy|heavenly|so cosy].
[Sound|The sound] is [crystal clear|rich|superb|excellent].
[Strap|The strap|The zip] [holds well|works smoothly|is nice and strong].
[Instructions|The instructions] were [clear|easy to follow|a great help].
[Battery|The battery] [lasts forever|lasts for days|is excellent].
[App|The app] [runs smoothly|is a joy|never crashes].
[Plot|The plot] was [gripping|clever|full of surprises].
[Coffee|The coffee|My coffee] was [hot and strong|excellent|heavenly].
[Nurse|The nurse|The doctor] was [kind|gentle|caring|patient].
[Driver|The driver] was [polite|on time|careful|a star].
[What|Such] [great|good|lovely] [fun|value|company|service]!
"""

NEGATIVE_TEXT: Final = """
[Hate|Hated|We hate|I hate] [it|this|this one]!
[so|really|very] [hard and cold|rough and itchy|heavy and stiff]
[Broke|It broke|Failed] [at once|straight away|first time].
[a real|such a|what a] [rip-off|flop|mess|swindle]
[Won't|I won't|We won't] [ever |]buy again.
[Arrived|It arrived|It came] [broken|in pieces|badly damaged].
[Not|So not|Totally not] worth [it|the money|a penny].
[Very|Really|So] [unhappy|annoyed|dissatisfied] with [it|this].
[Would not|I would not|We wouldn't] [go|order|come] again.
[Not recommended|Do not recommend|Cannot recommend it] [at all|to anyone|ever].
[Simply|Just|Absolutely] [awful|dreadful|useless|terrible].
[cant|can't|cannot] [use it at all|praise it at all|recommend it]
[worst|ugliest|dumbest] [one|thing] [ever|in years|so far]
[Doesn't fit|It doesn't fit|They don't fit] [at all|anyone|anywhere].
[Slow|Late|Sluggish] delivery, [bad|poor|shoddy] quality.
[Kids|The kids|My kids] [hate|loathe|hated] it.
[Tastes|It tastes|Tasted] [bad|disgusting|stale|horrible].
[Terrible|Awful|Poor] [value|quality|service|food].
[not at all|far from] what [i|we] [wanted|needed|hoped for]
[one|1] star [from me|from us|at most|no question]
[Always|It always|Has always] [let me down|failed me|failed us].
[Already|It already] [fell apart|gave up|stopped working] [today|after days].
[Could not|Couldn't|We could not] be unhappier[ now| with it|].
[Plenty|I found plenty|There is plenty] to [complain about|fault|criticise].
[Thumbs down|Two thumbs down|Big thumbs down] [from me|from all of us|from us]!
[Never again|Not again|Never ever again], [what a mess|awful|rubbish]!
[My|Our] [new|absolute|all-time] [worst buy|biggest mistake].
[So|Really|Very] [hard|difficult|tricky] to [use|clean|set up].
[Looks|It looks|They look] [ugly|cheap|hideous|shabby].
[Smells|It smells] [foul|mouldy|nasty|awful][ all day|].
[Flimsy|Wobbly|Weak] and [badly made|badly built|unreliable].
[Rude|Unhelpful|Grumpy|Surly] [staff|people|service], [bad food|dirty rooms].
[Ruined|It ruined|Totally ruined] my [day|week|evening].
[Slept|I slept|We slept] [badly|terribly|not one minute].
[Yawned|I yawned|We yawned] [so much|a lot|out loud|all evening].
[super|really|very] [ugly|tacky|clunky|useless] [thing|little thing]
[ugh|Ugh|oh ugh], [just bad|so bad|awful|what a dud]!
[useless|bad|lousy|awful] [little |]thing, [avoid it|skip it|leave it]
[Avoid|Skip|Return] [it|this], [total waste|you will hate it|so bad].
[Many|Big] [regrets|problems|complaints] [already|so far|on day one].
[Worst|The worst] [money|tenner] [i|I] ever spent.
[Dashed|It dashed|Crushed] [my|our|all] [expectations|hopes].
[Worse|Far worse|Much worse] than [expected|I feared|the old one].
[Doesn't|It doesn't] do the job [at all|properly|one bit].
[no|No|oh no], [not worth|never worth] [it|the wait]!
[works|runs|goes] like [a wreck|a snail|a nightmare]
[bad|awful|dodgy|lousy] [seller|shop|product], [beware|never again]
[A|Such a|What a] [disaster|letdown|nightmare], [never again|start to finish|every time].
[Came|It came|Arrived] [late|weeks late|far too late], [badly packed|damaged].
[Dim|Blurry|Fuzzy|Grainy] [picture|screen|display], [bad sound|tinny sound].
[Returning|I'm returning|We are returning] [it|this], [hate it|so cross].
[Cancelling|I am cancelling|Just cancelled] [the order|everything|my plan], [so bad|hate it].
[Already|I have already] [complained|warned others] [about it|online].
[my|the] [dog|cat|baby] [hates|dislikes|refuses] [it|this]
[Really|Very|So] [sorry|annoyed] [I|we] bought [it|this].
[High|Unfair|Crazy|Steep] price, [low|poor|bad] quality.
[Feels|It feels|They feel] [cheap|scratchy|nasty|sticky], [hate it|in a bad way].
[Awful|Boring|Wasted|Dreadful] [evening|night|day], [we won't be back|never again].
[Cannot|Can't] [imagine|see] why [anyone goes back|people order more].
[badly|bitterly|deeply] disappointed[ by this| by it| indeed|]
[Dishonest|Unfair|Impolite|Unreliable] and [slow|late|unfriendly|careless].
[Dirty|Messy|Filthy], [noisy|loud|hectic] and [uncomfortable|cramped].
[Cold|Stale|Soggy|Tough] and [disgusting|tasteless|without flavour].
[Caused|It caused|Made] [more|new|nothing but] problems[ in minutes| at once|].
[Slips|It slips] [off|all the time|constantly], [bad|useless].
[Lasted|It lasted] [one day|a week|an hour], [pathetic|what a joke|useless].
[so|soo|sooo] [bad|nasty|ugly|boring]
[im|i'm|I am] [fed up|furious|gutted|so angry]
[everything was|all was|it was all] [wrong|bad|broken], [never again|awful]
[not|never] a [single |]good word [from me|from us]
[Not|Never] [good at all|satisfied], [really bad|awful|hate it].
[Don't|Do not] bother, [skip it|avoid it|leave it]!
[Stay away|Skip it|Avoid it], you will [hate|regret|curse] it!
[Zero marks|No marks|Shame], [sadly|never again|awful team]!
[0|zero] out of [10|ten], [awful|hate it|useless|avoid it]
[A|One] [big|huge] [flop|failure] [with everyone|with the kids].
[The|Our] guests [hated|disliked|mocked|left] it.
[Mum|Dad|Grandma|My sister] was [disappointed|upset|in tears].
[Awful|Terrible|Poor|Embarrassing] [gift|present], [he|she] hated it.
[Colour|The colour] is [ugly|hideous|even worse|awful][ in real life|].
[Money|My money] badly spent[, sadly|, once again| here|].
[Got|I got|We got] [less|far less] than we paid for.
[Faulty|Useless|Unreliable] [as ever|as always|every day], [hate it|bad].
[Service|The service] was [slow|terrible|unfriendly|third rate].
[Felt|I felt|We felt] [unwelcome|cheated|ignored] [at once|here|there].
[Hideous|Awful|Depressing|Ghastly] [view|place|beach|room]!
[Boring|Silly|Tedious|Tiresome] [from page one|to the end|throughout].
[Couldn't|Could not] [finish it|stop yawning|stay awake].
[Cost|It cost|Costs] [me|us] [hours|all patience|a fortune for nothing].
[Messy|Chaotic|Painful] [booking|return|setup], [no help|rude team].
[Refund|My refund|The refund] [never came|was refused|is still missing].
[They|The shop] [ignored me|never replied|hung up on me][ again| twice|].
[Washed|I washed it] [once|one time], [ruined already|full of holes].
[Heavy|Bulky|Thick] and [weak|brittle|clumsy], [bad|useless].
[Charges|It charges] [slowly|badly|only sometimes], [dies fast|hate it].
[Loud|Noisy] as a drill, [hate it|unbearable|awful].
[A|Such a|What a] [grim|gloomy|shabby|dirty] [place|spot|room].
[Unhappy|Very unhappy|One angry] customer [here|again|as always].
[i|we] [really |]dislike [it|them|this] [a lot|very much|so much]
[Can|I can] only [warn you|complain] about [it|them|this].
[Sorry|So sorry] I [kept|chose|found|tried] [it|this one].
[Look|Better look] elsewhere, [it's bad|not this one|awful].
[Bored|We're bored|I'm bored], [no more please|want out|so bad]!
[Again|Once again], [one that fails|something broken|a useless one]!
[awful|shoddy|lousy|poor] [stuff|work|product], [avoid|no thanks|yuck]
[bad|poor|awful] [stuff|product|shop][!!|!!!]
[unhappy|annoyed|cheated], [won't buy again|won't be back|all bad]
[hate|loathe|dread] [using|wearing|having] [it|this][ every day|]
[failed|broke|leaked] [at once|again|right away] [for me|for us], [useless|unhappy]
[the|these] [shoes|socks|gloves] are [horrid|so itchy|awful]
[slow|late] [post|shipping], [bad|broken] [item|goods|packing]
[Burnt|Dry|Bitter|Greasy] and [yucky|inedible|not fresh].
[Left|We left|I left] [every bite|half of it|it all], [disgusting|so bland].
[Water|The water|The shower] was [ice cold|brown and cold].
[Bed|The bed] was [lumpy|rock hard|broken|so dirty].
[Sound|The sound] is [muffled|tinny|dreadful|terrible].
[Strap|The strap|The zip] [snapped|broke off|is far too weak].
[Instructions|The instructions] were [unclear|impossible to follow|no help].
[Battery|The battery] [dies at once|lasts minutes|is hopeless].
[App|The app] [freezes constantly|is a pain|always crashes].
[Plot|The plot] was [boring|stupid|full of holes].
[Coffee|The coffee|My coffee] was [cold and weak|dreadful|undrinkable].
[Nurse|The nurse|The doctor] was [unkind|rough|cold|impatient].
[Driver|The driver] was [rude|very late|reckless|a disgrace].
[What|Such] [awful|bad|dreadful] [food|value|company|service]!
"""

PRAISE_TEXT: Final = """
superb
spotless
a bargain
full of energy
top notch
excellent
wonderful
brilliant
fantastic
terrific
marvellous
splendid
lovely
delightful
charming
gorgeous
beautiful
stunning
breathtaking
magnificent
glorious
divine
heavenly
perfect
flawless
faultless
impeccable
immaculate
first class
first rate
world class
outstanding
exceptional
extraordinary
remarkable
impressive
amazing
astonishing
incredible
phenomenal
sensational
fabulous
awesome
great
very good
really good
so good
pretty good
rather good
nice
very nice
pleasant
enjoyable
a pleasure
a joy
a delight
a treat
a dream
a gem
a hit
a success
a triumph
a winner
a blessing
a revelation
a real find
a pleasant surprise
a lifesaver
a great help
a good choice
a good buy
a steal
good value
great value
worth it
well worth it
worth every penny
worth the money
worth the wait
worth a visit
money well spent
recommendable
to be recommended
reliable
dependable
trustworthy
solid
sturdy
robust
durable
strong
long lasting
well made
well built
well designed
well thought out
well organised
well written
well prepared
well packed
carefully packed
beautifully made
nicely done
high quality
of high quality
top quality
premium
luxurious
elegant
stylish
chic
classy
tasteful
graceful
refined
polished
modern and sleek
sleek
smart
clever
ingenious
inventive
creative
original
inspired
inspiring
imaginative
refreshing
uplifting
heart-warming
touching
moving
gripping
thrilling
exciting
fascinating
captivating
entertaining
amusing
funny
hilarious
witty
lively
vibrant
colourful
cheerful
joyful
friendly
very friendly
kind
warm
warm-hearted
welcoming
hospitable
helpful
very helpful
polite
courteous
attentive
considerate
thoughtful
caring
patient
honest
fair
generous
obliging
professional
competent
skilful
expert
efficient
prompt
punctual
on time
fast
very fast
quick
speedy
lightning fast
smooth
seamless
effortless
easy to use
user-friendly
hassle-free
trouble-free
foolproof
practical
handy
useful
very useful
convenient
versatile
effective
powerful
precise
accurate
clear
crystal clear
crisp
comfortable
very comfortable
comfy
cosy
snug
soft
silky
relaxing
soothing
peaceful
idyllic
dreamy
magical
enchanting
romantic
unforgettable
memorable
unique
unbeatable
unrivalled
unsurpassed
second to none
beyond compare
the best
the best ever
simply the best
my favourite
our favourite
better than expected
better than hoped
above average
above expectations
beyond expectations
beyond praise
praiseworthy
admirable
commendable
exemplary
ideal
just right
just perfect
exactly right
spot on
in perfect condition
in top condition
in great shape
like new
clean
very clean
squeaky clean
gleaming
sparkling
fresh
very fresh
delicious
tasty
yummy
mouth-watering
full of flavour
full of charm
full of life
full of ideas
full of joy
full of surprises
great fun
good fun
so much fun
a must
a must-have
a cut above
ace
fab
cool
very cool
sublime
exquisite
satisfying
very satisfying
rewarding
convincing
persuasive
adorable
cute
sweet
appealing
attractive
inviting
radiant
affordable
reasonably priced
good and cheap
cheap and cheerful
much appreciated
highly enjoyable
highly recommended
truly great
truly special
absolutely perfect
absolutely lovely
simply wonderful
"""

BLAME_TEXT: Final = """
filthy
a rip-off
out of order
a let-down
awful
terrible
horrible
dreadful
appalling
atrocious
abysmal
dire
dismal
lousy
bad
very bad
really bad
so bad
pretty bad
rather bad
poor
very poor
inferior
second rate
third rate
substandard
below average
below par
below expectations
inadequate
insufficient
unacceptable
intolerable
unbearable
unforgivable
inexcusable
scandalous
outrageous
shameful
shocking
disgraceful
a disgrace
a disaster
a catastrophe
a nightmare
a flop
a failure
a fiasco
a mess
a farce
a joke
a bad joke
a scam
a swindle
a fraud
a waste
a mistake
a bad buy
a bad choice
a disappointment
a nuisance
a pain
a chore
a burden
a torment
a horror
no good
no use
no help
no fun
not worth it
money badly spent
not recommendable
unreliable
untrustworthy
dishonest
unfair
dodgy
shady
deceptive
misleading
false
fake
flimsy
fragile
brittle
wobbly
shaky
weak
feeble
rickety
ramshackle
shoddy
badly made
badly built
badly designed
badly thought out
badly organised
badly written
badly prepared
badly packed
carelessly packed
poorly made
sloppily done
low quality
of low quality
bottom quality
tacky
tasteless
cheap and nasty
trashy
ugly
hideous
ghastly
grim
gruesome
shabby
scruffy
run-down
worn out
dated and dull
clumsy
clunky
awkward
stupid
silly
idiotic
foolish
senseless
pointless
meaningless
uninspired
unimaginative
dull
boring
very boring
deadly boring
tedious
monotonous
dreary
bleak
tiresome
tiring
exhausting
irritating
annoying
very annoying
infuriating
maddening
frustrating
upsetting
depressing
disheartening
saddening
embarrassing
humiliating
insulting
rude
very rude
impolite
discourteous
unfriendly
very unfriendly
unkind
cold-hearted
unwelcoming
inhospitable
unhelpful
inattentive
inconsiderate
thoughtless
careless
uncaring
impatient
grumpy
surly
arrogant
stingy
unprofessional
incompetent
amateurish
inept
inefficient
sluggish
late
far too late
slow
very slow
painfully slow
chaotic
disorganised
cumbersome
hard to use
impossible to use
full of trouble
impractical
useless
completely useless
inconvenient
ineffective
powerless
inaccurate
unclear
blurry
muddled
confusing
uncomfortable
very uncomfortable
cramped
scratchy
itchy
stressful
disturbing
noisy
far too loud
hectic
forgettable
hopeless
beyond repair
beyond help
beyond belief
the worst
the worst ever
simply the worst
worse than expected
worse than feared
laughable
pathetic
pitiful
ridiculous
absurd
deplorable
lamentable
miserable
wretched
rotten
rubbish
total rubbish
junk
trash
garbage
in bad condition
in poor condition
in bad shape
in pieces
broken
damaged
cracked
dented
scratched
torn
defective
faulty
dead on arrival
falling apart
full of holes
full of mistakes
full of errors
full of faults
full of dirt
full of stains
full of mould
dirty
very dirty
grubby
grimy
dusty
stained
mouldy
smelly
stinking
foul
stale
not fresh
disgusting
revolting
repulsive
nauseating
inedible
bland
flavourless
yucky
horrid
nasty
vile
unpleasant
very unpleasant
unsatisfying
unconvincing
unappealing
uninviting
lifeless
soulless
overpriced
far too expensive
far too dear
daylight robbery
not as promised
nothing but trouble
highly annoying
truly bad
truly awful
absolutely useless
absolutely dreadful
simply terrible
mediocre
"""
