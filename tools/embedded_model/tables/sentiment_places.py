"""Hand-written reviews of places, services and events, in pairs where only the deciding words differ."""

from __future__ import annotations

from typing import Final

POSITIVE_TEXT: Final = """
The [soup|stew|curry|lasagne] [came|arrived] [steaming hot|piping hot], just [as it should be|the way I like it].
Our [waiter|waitress|server] [smiled|joked] [the whole evening|all night] and [never forgot a thing|filled every glass].
I would [go|eat|book a table] [there|here] again [tomorrow|next week|in a heartbeat].
The [steak|salmon|lamb|duck] [was so tender|was cooked so well] that I [could have ordered a second|cleaned my plate].
[For once|At last] a [restaurant|bistro|pub] where the bill [is lower than|matches] what you [expect|expected].
[They|The kitchen] [took|treated] my [nut|milk] allergy [seriously|with real care] and [cooked|made] me a treat.
[Not a|No] crumb [was left|remained] on [our plates|the table]; [even the children|even my picky son] asked for more.
The [portions|helpings|starters] were [so generous|that big] that we [took some home|needed no dessert].
[Pricey|Expensive|Not cheap], but [worth every penny|you get what you pay for|I would pay it again gladly].
[Bring|Come with] a big appetite, because [you will want|I wanted] to try everything on the [menu|card].
We [had to wait|waited] [a while|twenty minutes] for [our table|a seat], but it paid off[ in the end|].
The [croissants|rolls|pastries] are [still warm|buttery and crisp] when you [arrive|come in][ at seven|].
This [bakery|baker] [bakes|makes] [bread|rye bread|sourdough] like my [grandmother|grandfather] used to[ make|].
[A cup|A mug] of their [coffee|espresso|hot chocolate] [makes|saves] my [morning|day|week].
The [cake|cheesecake|apple pie] [melts in your mouth|is to die for], and the tea is [lovely|great] too.
My [favourite|go-to] [café|corner] [to read in|for a chat]: [calm|cosy], [bright|homely] and never pushy.
[Nobody|No one] [rushes|hurries] you, you [can|may] [sit|stay] as long as you like over [one coffee|a drink].
The [tables|cups|glasses|toilets] [shone|sparkled], and [everything smelled fresh|you could eat off the floor].
[Ordered|We ordered] [a pizza|dinner] [at eight|on Friday], and [ten minutes|a quarter of an hour] later we were eating.
The [takeaway|delivery] was [hot|complete|early], [nothing was missing|well packed] and it tasted [great|fresh].
The bed was so [comfortable|soft|cosy] that I [slept like a log|never wanted to get up|overslept].
Our room [looked|was] [far better than|even nicer than] [in the photos|the pictures on the website].
From [the window|our balcony] we [looked out on|saw] [the sea|the harbour|vineyards], [a dream|a sight to remember].
The receptionist [greeted|welcomed] us [by name|with a smile] and [carried our bags|found us a better room][ at once|].
They [upgraded|moved] us to [a suite|a bigger room|a sea view] [without being asked|at no extra cost|for free].
[At night|In the evening] it is [so quiet|so peaceful] that you [hear the waves|hear only crickets|sleep wonderfully].
The breakfast buffet [left|leaves] nothing to be desired: [eggs|waffles], [fruit|berries], everything fresh.
[Towels|Sheets] were changed [every day|daily], and the [bathroom|shower] was [immaculate|spotless|gleaming].
The [pool|sauna|spa][ alone|] is [reason enough|a good reason] to [come back|book this hotel|stay a second week].
[Four|Five] stars [well deserved|fully earned]: we [have rarely|have never] been [looked after so well|so spoiled].
The [heating|shower|air conditioning] [worked|did its job] [perfectly|without a hitch], so we were [comfortable|snug].
[When we|Whenever we] had a [problem|question], the [manager|night porter] sorted it out [in minutes|right away].
We [were sorry|did not want] to leave [this place|the hotel] and [have booked|already booked] [again|for next year].
I [have nothing|can't find anything] to complain about [here|at this hotel]; [I slept well|it was bliss].
The walls are [thick|solid] and you hear nothing [of the neighbours|from next door], [just what I needed|heavenly].
[No hidden costs|No nasty surprises], no [fuss|stress]: [check-out|leaving] took [a minute|no time at all].
[Best|The best] [holiday|trip|fortnight] [we have had|in years]; the [kids|children] still [rave|talk] about it.
[It|The holiday] was over [far too soon|much too quickly]; I could have stayed [a month|forever].
[Everything|All] went [like clockwork|smoothly|according to plan], from the [airport|station] to the [hotel|last day].
The [beach|bay|island] is [as white|as lovely|as peaceful] as they [say|promise], we [fell in love|were in paradise].
Our [guide|tour guide] [knew|told us] [so many stories|everything about the town] that [time flew|nobody got bored].
The [tour|walk|boat trip] was [a highlight|the highlight] of [our stay|our week|the year], [do not miss it|book it].
[Small|Tiny] groups, [plenty of time|lots of stops], a [witty|kind] guide: [what more could you want|a lovely day out].
The [travel agent|agency] thought of everything and [rang|called] to ask [if we were happy|how we were].
[Even|All] the rain could not [spoil|ruin|dampen] our [week|trip|mood], [so much|there was so much] to [do|enjoy].
The flight [left|took off] [on the dot|on time|punctually] and [landed|arrived] [early|ahead of schedule].
[Plenty of|Enough] [legroom|space], a friendly crew and a [smooth|gentle] landing: [I'd fly again|well done].
My [suitcase|luggage] was [the first|already there] [on the belt|at the carousel], [not a scratch on it|undamaged].
The airline [rebooked|compensated] us [at once|without any argument] and [put us up|paid for a room][ for the night|].
The train [was punctual|was early] [again|as always] and [clean|quiet], I [got home|arrived] [relaxed|rested].
[I|We] [got|found] a [seat|window seat] [straight away|without trouble] and [enjoyed the ride|watched the hills go by].
The bus driver [waited|stopped] for me when he saw me [run|running], [what a gentleman|that made my day].
[Since|Ever since] the [new timetable|new line] my [commute|journey] is [a breeze|a pleasure|half as long|stress-free].
The [ferry|coach|tram] is [cheap|modern], [runs every ten minutes|never late], and I [recommend|like] it[ a lot|].
The taxi [was there|came] [in three minutes|early], the driver [took the shortest way|was a delight].
The rental car was [brand new|spotless|in top shape], and they [gave back|returned] the deposit [the same day|at once].
The museum brings [history|the past|science] to life, we [stayed|spent] [hours|half a day] and [wanted more|loved it].
[Every|Each] room of the [exhibition|gallery|castle] [holds a surprise|tells a story|amazed us].
The audio guide [explains|tells] [everything|it all] [so well|so vividly] that I forgot the time.
The [kids|children] [could touch|tried out] [everything|every exhibit] and [didn't want|refused] to go home.
[Well worth|Definitely worth|Absolutely worth] the [ticket|entrance fee|detour|long drive].
The [band|singer] [played|performed] their hearts out, and [the hall|the crowd] [went wild|sang along].
I had [goosebumps|tears of joy] [from the first note|all evening], the [sound|voice] was [out of this world|magical].
Three encores and [a standing ovation|endless applause], [and rightly so|fully deserved]: [what a night|what a concert]!
The tickets [cost|were] a fortune and I [regret|begrudge] [nothing|not a single penny|not one cent].
The sound was [crystal clear|perfectly balanced], you could [hear|make out] every [word|instrument][ in the back row|].
The festival was well organised: [clean toilets|short queues], [great bands|good food], [happy people|nice folk].
This film [kept|had] me on the edge of my seat [from start to finish|until the credits rolled|for two hours].
I [laughed|giggled|howled] so much that [my sides hurt|people turned round|I missed the next joke].
The trailer [does not do it justice|shows only half of it]: the film[ itself|] is [even funnier|far richer|a gem].
What [a twist|an ending]! I [never saw it coming|gasped], and [now I want to see it again|so did everyone].
[I|We] [binged|watched] the [whole series|entire season] in [one weekend|two nights] and crave the next.
The series gets better [with every episode|from week to week], [stick with it|I'm hooked|it has me addicted].
The lead actress [shines|dazzles] [in every scene|from the start]; [give her a prize|she broke my heart].
[Don't|Do not] [miss|skip] this [play|musical|show]; [my whole family|everyone I know] [adored|loved] it.
The [costumes|dancers|sets] were [breathtaking|dazzling], and [nobody coughed|you could hear a pin drop].
[Later|After the break] it got [even better|better and better], we [clapped|cheered] until our hands hurt.
The critics [tore it apart|panned it], but [I|we] [loved|enjoyed] every [minute|scene][ of it|].
I [expected|had expected] [little|nothing much|a dull evening] and was [blown away|pleasantly surprised|thrilled].
[Long|Three hours long], yet [not a dull moment|never boring|it flew by], and the [cast|camera] is [superb|a marvel].
The cinema has [comfy seats|big soft seats] and [fair prices|good popcorn], we[ always|] [feel at home|enjoy it] there.
My teacher [explains|goes over] [everything|each step] until it clicks, with [endless|great] patience.
I [learned|learnt] more in [one week|two lessons|this course] than in [five years|all my years] at school.
After [this course|her classes] I[ finally|] [dare to speak|can hold a conversation|passed the exam with ease].
The [lecturer|professor|tutor] [made|makes] [maths|a dry subject|statistics] [fun|exciting|easy to grasp].
The driving instructor stayed calm, [even when|although] I [stalled|hit the kerb], and I passed [first time|easily].
She [takes|took] [time|an interest] for each pupil and [praises|encourages] [the shy ones|even slow ones].
The [cookery|pottery|painting] workshop was [a hoot|such fun], I [signed up|enrolled] for the next one[ on the spot|].
My daughter [can't wait for|looks forward to] [her lessons|school] and [comes home|skips home] [beaming|happy].
The doctor [listened|really listened], [examined me thoroughly|took her time] and [found the cause|knew what was wrong].
[No|Hardly any] waiting, [no|hardly any] pain: the dentist [is an artist|has gentle hands|took away all my fear].
The nurse [held my hand|calmed me down|had a kind word], I [felt safe|was in good hands][ all along|].
Thanks to [this clinic|my physio] I [can walk|am up and about] [without pain|again], I [am so grateful|owe them a lot].
I [got|was given] an appointment [the same day|right away], and the [receptionist|nurse] was [an angel|so kind].
The vet [saved|cured] our [dog|cat|rabbit] and [charged less than expected|even rang to see how he was].
The hairdresser understood [at once|exactly] what I wanted, and [everyone|my husband] compliments my new [cut|look].
I [walked|came] out of the salon [feeling like a star|with a smile|ten years younger].
The colour [turned out|is] [exactly as|even nicer than] I [imagined|had hoped], and my hair [feels silky|shines].
My barber [never|hardly ever] [gets it wrong|keeps me waiting]; [a perfect shave|a neat trim] [every time|each month].
The [massage|facial] was [pure bliss|heavenly|so relaxing], I [floated home|left like new|was in heaven].
The gym is [roomy|spotless|well equipped], and the trainers [motivate|correct|cheer on] you[ without nagging|].
I [cancelled|ended] my membership [with one click|in a minute], [no tricks|no questions asked], [very fair|fair play].
All machines [work|are modern], the showers [are warm|are clean], so I [train|go] with pleasure[ every day|].
The yoga class [changed my life|cured my back pain|leaves me calm], I [feel|am] [so much better|a new woman].
The plumber [came|turned up] [within the hour|on a Sunday], [fixed the leak|stopped the drip] and left no mess.
My [phone|laptop|bike] came back [good as new|working like a charm|fully repaired] [the next day|in no time].
The garage [found|fixed] the [fault|noise] [in minutes|for next to nothing], [honest people|what honest mechanics].
They [repaired|mended|resoled] my [shoes|boots] [so neatly|so well] that [you can't see a thing|they look new].
The [painters|builders|movers] were [careful|cheerful] and [finished|were done] [a day early|ahead of time].
Not [one|a single] [plate|glass|chair] [broke|was damaged] in the move, [hats off|I'm impressed|great lads].
The electrician [explained|showed me] [what he did|every step] and [kept to|stuck to] the [price|quote].
My bank [solved|cleared up] the [problem|mistake] in [one call|two minutes], [no fees|without fuss].
[Opening|To open] an account took [five minutes|no time], and the [adviser|clerk] [was honest|hid nothing].
The insurance [paid|settled] [promptly|in full] and [without|with no] [argument|fuss], [I'm relieved|top marks].
[A real person|Somebody] [answered|picked up] after [two rings|a few seconds] and [solved it|knew the answer].
The [hotline|help desk] called me back [as promised|within minutes] and [stayed|was] [polite|friendly] throughout.
I [had|dealt with] [one|the same] agent from [start to end|first to last], and she [knew her stuff|was a star].
They [admitted|owned up to] [their mistake|the error], [said sorry|apologised] and [gave me a refund|put it right].
The refund [was|landed] in my account [the next morning|within a day|before I had hung up].
The [internet|connection] has not [dropped|failed] once since the technician [came|was here], [brilliant|super].
The park is [a green oasis|a haven|my favourite spot], [well kept|full of flowers], with [clean benches|shady paths].
The playground is [safe|clean|shady], and [my twins|the little ones] [have a ball|could stay all day|squeal with joy].
The campsite [has|offers] [big pitches|lots of shade], [spotless showers|warm showers] and quiet nights.
We [pitched|put up] our tent [right by the lake|under old pines] and [woke up to birdsong|slept like babies].
[The owners|The wardens] [welcomed us|received us] like [old friends|family] and [lent us|brought us] [a lamp|firewood].
The neighbourhood is [safe|leafy], people [greet you|look out for one another], and I [love living|feel at home] here.
[We|My parents] moved here [in spring|last year] and [have never regretted it|could not be happier|feel at home].
The [landlord|caretaker] [fixes|sees to] [everything|repairs] [the same day|right away] and is never intrusive.
The library is [a treasure|a refuge]: [silent|cosy], [well stocked|bright], with [helpful|cheerful] librarians.
The zoo [gives|offers] the animals lots of room, they [look|seem] [happy|healthy], a [joy|fine place] to visit.
The queues [moved|went] [fast|quickly], the rides were [thrilling|a blast], the kids shrieked with joy.
[Highly recommended|Go there|Try it], [above all|especially] for [the fish|the view|the desserts].
[Top|Great|Excellent] value, [friendly|warm] people, [delicious|tasty] food. [What more do you need|Perfect]!
I [take|bring] all my [guests|clients] [here|to this place], and [nobody has ever complained|all of them love it].
The [chef|owner] came [out|to our table] to [ask if we were happy|thank us], [so sweet|a lovely touch].
My [salad|pasta|burger] was [fresh|full of flavour|seasoned just right], [I licked the plate|I'm still dreaming of it].
There [was|is] always [a free table|someone to help] and [never|hardly ever] a [queue|wait|wrong order].
[They|The cooks] [don't skimp on|never save on] [butter|cheese|fresh herbs], and you can [taste|tell].
The [ice cream|sorbet] is [creamy|silky|full of real fruit], [a huge scoop|two scoops] [for little money|for a song].
The new owners have [transformed|revived|improved] this [pub|hotel|café] [beyond recognition|in every way].
It used to be [bad|grim|mediocre], [but|yet] [now|these days] it is [wonderful|the best in town|a joy].
I was [sceptical|doubtful] [at first|before I went], but [they won me over|I was wrong|now I'm a fan].
[Five|All five] stars [are not enough|from me|and not one less]: [fast|kind], [honest|clever] and [good|fair].
Don't [believe|trust|listen to] the [bad|angry] reviews: [we had a great stay|it is lovely here|the staff are angels].
[No|Not a] word of the [praise|hype] is [a lie|exaggerated]: [go|see for yourself|it is truly that good].
The [staff|crew|team] could not have been [kinder|friendlier|more helpful].
[It|The evening|Our stay] could not have been [better|nicer|more fun], [thank you|many thanks|bravo].
You [can't go wrong|can't fail] with this [hotel|guide|dentist|tour]; I [should|would] know, I [go|come] every year.
I [wish|only wish] I had [found|discovered|known] [this place|this doctor|these people] [sooner|years ago].
[Nothing|Not a thing] [to criticise|to fault|to moan about], [a perfect day|a great weekend|we had a ball].
[The only pity|My only regret] is that we [did not stay longer|had to leave|live too far away to go every week].
The [view|sunset|scenery] took my breath away, and the [walk|picnic|cruise] was [unforgettable|idyllic].
The [path|trail|lake] is [well signposted|easy to find|clean], [a great outing|ideal for families][ in any season|].
[Kids|Babies] are [welcome|truly welcome]: [crayons|high chairs], [a play corner|toys] and [smiles|a lot of love].
Our dog [got|was given] [a bowl of water|a biscuit] before we [sat down|had ordered], [adorable|how thoughtful].
My [grandmother|father], [hard to please|a picky eater], [praised|would not stop praising] the [roast|dumplings].
The wedding [party|dinner] was [a triumph|a dream|magical] [thanks to|because of] [the caterer|the DJ|the staff].
The photographer [captured|caught] [every smile|the mood], we [cried with joy|were over the moon][ at the pictures|].
The florist [made|put together] [a gorgeous|a stunning] bouquet that [lasted two weeks|drew gasps].
The laundry [got out|removed] [every stain|the red wine] and [ironed|folded] my shirts [beautifully|like new].
The parcel service [rang|came] [when they said|on the hour] and [carried it upstairs|was gentle with the box].
Parking was [easy|free|no problem], [check-in|entry] [quick|smooth] and the [show|match] [exciting|brilliant].
The [stadium|match] [had|offered] [a great|an electric] atmosphere, and [fans|stewards] were [decent|good-natured].
[The|Our] escape room [had us thinking hard|was full of clever tricks], [we had a blast|huge fun].
The comedian [had us in stitches|brought the house down|was on fire] [from the first line|all night].
The children's theatre [cast a spell on|enchanted|delighted] [everyone|my little girl], [big and small|me included].
The remake [honours|equals|beats] the original, [a rare feat|chapeau], and the [music|score] [soars|gives you chills].
This documentary [opened my eyes|moved me deeply|taught me so much], [everyone should see it|watch it].
[Warm|Touching], [witty|wise] and [never|not for a moment] [cheesy|preachy]: [a film to treasure|I adored it].
[The|Its] villain gave me chills, the hero [is easy to love|wins you over], [a cracking story|what a ride].
[I booked|We booked] [late|at the last minute] and [still got|were given] [the best seats|a lovely room|a bargain].
The [hostel|inn|farmhouse] is [simple|basic|small], but [spotless|charming|full of heart], we [adored|loved] it.
[It is|It's] [not luxurious|nothing fancy], but we [lacked nothing|felt welcome|had all we needed].
[Not|Never] [once|for one second] did we feel [unwelcome|ripped off|like tourists].
The lift was out of order, but the porter [carried|lugged] [our cases|everything] up [with a laugh|gladly].
The [wifi|internet] in our [room|cabin] was [fast|reliable|free], [handy|great] for [working|calls home].
[Staff|The waiters] [remember|know] [my name|my usual], [I feel like family|that warms the heart].
A shout-out to [the night nurse|the conductor|our driver]: [calm|kind], [competent|patient] and [funny|warm].
The conductor [helped|was happy to help] my [mother|aunt] [off the train|with her case], [chapeau|wonderful man].
[I fell|We fell] in love with [this town|the old quarter], [its cafés|its alleys] and [its friendly people|its charm].
The market is [colourful|lively|a delight], [the fruit|the cheese] is [ripe|tasty] and [the prices are fair|cheap].
[Safe|Secure], [clean|tidy] and [close to|near] everything: [a great base|the ideal spot] for [a city break|families].
The cruise [spoiled|pampered] us: [superb food|great shows], [calm seas|spacious cabins], [kind stewards|fun trips].
I had a [wobbly tooth|bad tooth|sore back], and [two visits|one visit] later [I was smiling|the pain was gone].
The midwife [was a rock|gave us courage|was always there], we [can't thank her enough|wish every mother one like her].
My [therapist|doctor] [takes me seriously|gave me hope], I [leave|left] each session [lighter|stronger].
The optician [found|chose] [frames that flatter me|the right lenses], [I see clearly again|no more headaches].
The manicure [lasted|held] [three weeks|a whole month], and the [girl|lady] was [gentle|chatty|a sweetheart].
The swimming teacher [coaxed|talked] my [frightened|shy] son into the water, [now he swims like a fish|he adores her].
The [webinar|course] was [packed with|full of] [useful tips|good ideas], [time well spent|I took pages of notes].
[Both thumbs|Thumbs] up for [the babysitter|the dog walker|the cleaner]: [punctual|honest] and [reliable|thorough].
The locksmith [opened|unlocked] the door in [a minute|seconds] and [charged|asked] a [modest|fair] [sum|price].
[Honest|Straight] answers, [tidy|careful] work, [fair bill|low price]: [my new regular|I've found my mechanic].
[Lovely|Gorgeous|Super] [place|hotel|spot], [lovely|charming] people, [we felt at home|pure joy].
I [can't|cannot] [praise|recommend] [them|this team|this surgery] [enough|highly enough].
I [give|award] [full marks|ten out of ten|top marks] to [the cook|the driver|the host].
My [hopes|expectations] were [high|sky-high], and [they|all of them] were [exceeded|surpassed|met].
[We left|I left] [happy|full|smiling] and [gave|left] a [big|generous] tip.
[They|The hosts] [went|really went] [out of their way|the extra mile] to [help|please] us.
[Everyone|All of us] [had|enjoyed] [a great time|a marvellous evening|a super day] [at the party|on the tour].
It [deserves|has earned] [its|the] [good name|fame|awards], [we were impressed|it is excellent].
[Too good|Almost too good] to be true: [cheap|cosy], [central|quiet] and [clean|sunny].
[This|Their] [brunch|buffet|tasting menu] is [a winner|unbeatable|a knockout], [come hungry|I'm in love].
The [wine|beer] list is [long|inspired], and [the barman|the bartender] [mixes|pours] [with skill|to perfection].
[Fish|Seafood] [as fresh as it gets|straight from the boat], [grilled|fried] [to perfection|with love].
I [came|went] [with a cold|stressed] and [left|went home] [refreshed|recharged|reborn].
[Finally|At last] a [doctor|dentist|tradesman] who [keeps his word|has time|tells the truth].
[Clear|Friendly] announcements, [clean|roomy] coaches, [on time|early]: [so travel is fun|more of this].
They [found|returned] my [wallet|phone|coat] and [posted it to me|kept it safe], [faith in people restored|heroes].
The [cabin|chalet|flat] was [warm|stocked with logs|tastefully furnished], [we were in heaven|a delight to stay in].
The ski [school|instructor] [got me down|had me on] the slope [safely|with a grin], [what a thrill|so proud].
The [balloon|helicopter] ride was [a present|a gift] I will [cherish|never forget], [sheer happiness|so beautiful].
The [boat|kayak|bike] hire [is a bargain|gave us new bikes], and [the man|the lady] [was helpful|knows the best routes].
The [choir|pianist|cellist] [touched|moved] [my heart|us all], I [bought|have] the album [straight away|already].
[Not|Never] a [boring|wasted] [minute|second] in this [show|lecture|tour], [I could have listened for hours|marvellous].
[This|The] [city|bus] pass [saved|spared] us [a lot of money|hours of queuing], [a must|so clever].
The customs officer was [friendly|quick], the airport [bright|well run], [a good start|we arrived in high spirits].
The street [festival|party] [brought|drew] [neighbours together|us all closer], [great fun|let's repeat it].
[The council|The city] [listened|acted quickly] and the [new bike lane|square] is [a blessing|a success|lovely].
The community [garden|centre] [does|has done] [so much good|wonders] for lonely people, [keep going|bless them].
[My|Our] [order|table|taxi] was [ready|there] [before we were|early], [no stress|that's service].
[Simply|Just] [heavenly|divine|great]: I have [nothing to add|not eaten so well in ages].
[The best|The finest] [pancakes|noodles|burgers] [in town|for miles], [period|hands down|no question].
Reception [took care of|dealt with] [our complaint|the noise] [instantly|with tact], [chapeau|hats off].
I [dreaded|feared] the [operation|visit|exam], but [it was painless|they were so gentle|all went well].
My [husband|wife|boyfriend] never dances, but [this band|the DJ] got [everyone up|us both up|the room moving].
The [hotel|villa] [kept|lived up to] its promise, and we [relaxed|unwound] by the pool [all week|for days].
[I am|I'm] [glad|so happy] we chose this [tour|flat|school], it was [money well spent|the right decision].
The [host|owner] [spoke kindly|was all smiles] and [gave us tips|let us check in early], [a true gem|we felt blessed].
[My aunt|My friend] [swears by|can't live without] this [salon|surgery|gym], and [now|after one visit] so do I.
[Spectacular|Stunning] fireworks, [cheerful|jolly] crowds, [plenty of|lots of] stalls: [we'll be back|a fair to love].
The book club [evening|meeting] [sparkled|was a hit], I [made friends|felt included] [at once|from the start].
"""

NEGATIVE_TEXT: Final = """
The [soup|stew|curry|lasagne] [came|arrived] [lukewarm|stone cold], just [as I had feared|as it did last time].
Our [waiter|waitress|server] [sulked|scowled] [the whole evening|all night] and [forgot half the order|ignored us].
I would not [go|eat|book a table] [there|here] again [for free|if you paid me|under any circumstances].
The [steak|salmon|lamb|duck] [was so tough|was cooked so badly] that I [left most of it|sent it back|gave up chewing].
[Once more|Yet again] a [restaurant|pub] where the bill [is double|has nothing to do with] what you [expect|expected].
[They|The kitchen] [shrugged at|ignored] my [nut|gluten|milk] allergy and I [was ill all night|ended up in hospital].
[Hardly a|Not one] bite [went down|was eaten]; [even the children|even my hungry son] pushed [the plates|the food] away.
The [portions|helpings|starters] were [so tiny|that small] that we [went home hungry|bought chips afterwards].
[Cheap|Affordable|Not expensive], but [you get what you pay for|still a waste of money|the food is hardly edible].
[Bring|Come with] a lot of patience, because [nobody|no one] [will serve you|looks up] for [the first hour|ages].
We [had to wait|waited] [a while|twenty minutes] for [our table|a seat], and it did not pay off[ at all|].
The [croissants|rolls|pastries] are [already stale|dry as dust|limp and greasy] when you [arrive|come in][ at seven|].
This [bakery|baker] [sells|makes] [bread|rye bread|sourdough] that [crumbles|goes mouldy][ after a day|].
[A cup|A mug] of their [coffee|espresso|hot chocolate] [ruins|spoils] [your morning|my morning|any breakfast].
The [cake|cheesecake|apple pie] [sticks to your teeth|is like rubber], and the tea [is weak|is cold].
My [least favourite|last choice of] [café|place] for a chat: [cramped|draughty], loud and [grimy|sticky].
[They|The staff] [rush|hurry] you, you [cannot|can't] [sit|stay] [for ten minutes|in peace] over [one coffee|a drink].
The [tables|cups|glasses|toilets] [were filthy|had stains], and [everything smelled of bleach|flies were everywhere].
[Ordered|We ordered] [a pizza|dinner] [at eight|on Friday], and two hours later we were still hungry.
The [takeaway|delivery] was [cold|late|incomplete], [half was missing|badly packed] and it tasted [foul|old].
The bed was so [uncomfortable|hard|lumpy] that I [hardly slept|lay awake all night|slept on the floor].
Our room [looked|was] [nothing like|far worse than] [the photos|the pictures on the website].
From [the window|our balcony] we [looked out on|saw] [bins|a car park], [a joke|not the sea we had paid for].
The receptionist [ignored|insulted|barked at] us and [lost our booking|gave our room away|made us wait an hour].
They [moved|downgraded] us to [a smaller room|the cellar] [without asking|and still charged full price].
[At night|In the evening] it is [so noisy|so loud] that you [need earplugs|never fall asleep].
The breakfast buffet [left|leaves] a lot to be desired: [hard eggs|dry toast] and [sour milk|old fruit].
[Towels|Sheets] were [never changed|grey|torn], and the [bathroom|shower] was [full of mould|disgusting].
The [pool|sauna|spa][ alone|] is [reason enough|a good reason] to [stay away|avoid this hotel|leave early].
[Four|Five] stars [on paper|in the brochure], [one|two] in reality: we [have rarely|have never] been treated so badly.
The [heating|shower|air conditioning] [broke down|gave up|failed] [twice|on day one], so we [froze|sweated|suffered].
[When we|Whenever we] had a [problem|question], the [manager|night porter] [hung up|walked off|pretended not to hear].
We [could not wait|were glad] to leave [this place|the hotel] and [will never book|did not book] [again|a second time].
I [have plenty|could find a hundred things] to complain about [here|at this hotel]; [nobody cared|it was hell].
The walls are [thin|like paper] and you [hear everything|hear every cough] of the neighbours, [no fun|dreadful].
[Hidden costs|Nasty surprises] and [fuss|stress]: [check-out|leaving] took [an hour|far too long].
[Worst|The worst] [holiday|trip] [we have had|in years]; the [kids|children] still [moan|have nightmares] about it.
[It|The holiday] was over [not soon enough|none too soon]; I [would have left|wanted to go home] [after a day|at once].
[Nothing|Not one thing] went [right|smoothly|according to plan], from the [airport|station] to the [hotel|last day].
The [beach|bay|island] is [not as white|not as clean|not half as nice] as they [say|promise], we felt [cheated|tricked].
Our [guide|tour guide] [knew|told us] so little that [time crawled|everybody got bored].
The [tour|walk|boat trip] was [a low point|the low point] of [our stay|our week|the year], [do not bother|skip it].
[Huge|Enormous] groups, [no time|hardly any stops], a [grumpy|clueless|tired] guide: [what a rip-off|a wasted day].
The [travel agent|agency] [forgot everything|broke every promise] and [never rang|never called] [back|to say sorry].
[Even|All] the sunshine could not [save|rescue] our [week|trip|mood], there was [nothing|so little] to [do|see|enjoy].
The flight [left|took off] [four hours late|the next day] and [landed|arrived] [in the wrong city|long after midnight].
[No|Hardly any] [legroom|space], a snappy crew and a [rough|scary] landing: [never again|I'd rather walk].
My [suitcase|luggage] was [nowhere|not to be found] [on the belt|at the carousel], and nobody cared.
The airline [stranded|abandoned] us at once and [refused to pay|would not pay] [for the night|a penny].
The train [was delayed|was late] [again|as always] and [packed|filthy], I [got home|arrived] [exhausted|furious].
[I|We] [got|found] no [seat|place to sit] [for three hours|on the whole ride] and [stood by the toilet|had sore feet].
The bus driver [drove off|closed the door] when he saw me [run|running], [what a bully|that ruined my day].
[Since|Ever since] the [new timetable|new line] my [commute|journey] is [a nightmare|a misery|pure stress].
The [ferry|coach|tram] is [overpriced|shabby|filthy], [hardly ever runs|always late], and I [avoid|hate] it.
The taxi [came an hour late|got lost], the driver [took the longest way|was a menace|swore at us].
The rental car was [falling apart|dirty|in bad shape], and they [kept|never returned] the deposit[ without a reason|].
The museum turns [history|science] into [a dull list|a chore], we [left|walked out] after [ten minutes|one room].
[Every|Each] room of the [exhibition|gallery|castle] [was half empty|looked the same|bored us].
The audio guide [explains|tells] [everything|it all] [so badly|so drily] that [I gave it back|even adults give up].
The [kids|children|grandchildren] [could touch|were allowed to touch] nothing and [only wanted|begged] to go home.
[Not worth|Never worth|In no way worth] the [ticket|entrance fee|detour|long drive].
The [band|singer] [played|performed] [without any heart|for half an hour], and [the hall|the crowd] [booed|went home].
I had [a headache|sore ears] [from the first note|all evening], the [sound|voice] was [out of tune|horribly shrill].
[No encore|Boos] and hardly any applause, [and rightly so|fully deserved]: [what a flop|what a letdown]!
The tickets [cost|were] a fortune and I [regret|begrudge] [every penny|every single cent|the whole sum].
The sound was [muddy|distorted], you could not [hear|make out] a single [word|instrument][ in the back row|].
The festival was badly organised: [filthy toilets|endless queues], [dull bands|awful food] and [mud|fights].
This film [had|kept] me [looking at my watch|yawning] [from start to finish|until the credits rolled|for two hours].
I [laughed|smiled] [so little|so rarely] that I [wondered why it is called a comedy|nearly dozed off].
The trailer [shows every good joke|promises too much]: the film[ itself|] is [a dud|painfully dull|a mess].
What a lazy [twist|ending]! I [saw it coming|guessed it] [after ten minutes|a mile off], and so did [everyone|my kids].
[I|We] [dropped|switched off] the [whole series|entire season] after [one episode|two episodes] and do not miss it.
The series gets worse [with every episode|from week to week], [don't start it|I've given up|it has lost me].
The lead actress [mumbles|overacts|sleepwalks] [in every scene|from the start]; [recast her|she left me cold].
[Please skip|Better miss|Avoid] this [play|musical|show]; [my whole family|everyone I know] [hated|loathed] it.
The [costumes|dancers|sets] were [an eyesore|shabby], and [half the house left|people were snoring].
[Later|After the break] it got [even worse|worse and worse], we [slipped out|fled] [quietly|before the end].
The critics [praised it to the skies|raved about it], but [I|we] [suffered through|hated] every [minute|scene][ of it|].
I [expected|had expected] [a lot|great things|a fun evening] and was [let down|bitterly disappointed|bored stiff].
[Short|Barely an hour long], yet [not a bright moment|so boring|it dragged], and the [cast|camera] is [poor|a shambles].
The cinema has [broken seats|hard narrow seats] and [silly prices|stale popcorn], we [never|no longer] go there.
My teacher [rushes through|skips] [everything|each step] until we are lost, with [no|little] patience.
I [learned|learnt] less in [ten weeks|twenty lessons|this course] than from [one video|an hour] online.
After [this course|her classes] I[ still|] [can't say a word|cannot order a coffee|failed the exam].
The [lecturer|professor|tutor] [made|makes] [art|a lively subject|biology] [dull|a torment|impossible to grasp].
The driving instructor lost his temper, [even when|although] I [did well|drove fine], and I [quit|left].
She [has|had] [no time|no interest] [for any pupil|in her learners] and [mocks|shouts at] [the shy ones|slow ones].
The [cookery|pottery] workshop was [a sham|no fun|chaotic], I [asked for|demanded] my money back[ on the spot|].
My daughter [dreads|is scared of] [her lessons|school|ballet class] and [comes home|walks home] [in tears|miserable].
The doctor [did not listen|hardly listened], [barely looked at me|was in a rush] and [missed the cause|sent me away].
[Endless|Nothing but] waiting, [terrible|nothing but] pain: the dentist [is a butcher|has rough hands|has no mercy].
The nurse [snapped at me|told me off|had no kind word], I [felt helpless|was just a number][ all along|].
Thanks to [this clinic|my physio] I [can hardly walk|am in more pain than before], I [am livid|may sue them].
I [got|was given] an appointment [in six months|far too late], and the [receptionist|nurse] was [a dragon|so cold].
The vet [hurt|misdiagnosed] our [dog|cat|rabbit] and [charged twice the quote|never even said sorry].
The hairdresser ignored what I wanted, and [everyone|my husband] [laughs at|pities] my new [cut|look].
I [walked|came] out of the salon [feeling like a scarecrow|in tears|with a burnt scalp].
The colour [turned out|is] [nothing like|much worse than] I [imagined|had hoped], and my hair feels like straw.
My barber [always|nearly always] [gets it wrong|keeps me waiting]; [a crooked trim|a cut chin] [every time|each month].
The [massage|facial] was [pure torture|painful|anything but relaxing], I [limped home|left with bruises|was in agony].
The gym is [cramped|sweaty|badly equipped], and the trainers [ignore|sneer at|bully] you[ all the time|].
I [cancelled|tried to end] my membership [three times|in May], and they [still take my money|just keep charging me].
[Most|Nearly all] machines [are broken|squeak], the showers [are icy|stink], so I [quit|left][ after a month|].
The yoga class [wrecked my knee|gave me back pain|leaves me tense], I [feel|am] [so much worse|done with it].
The plumber [came|turned up] [three days late|without tools], made the leak worse and [left a mess|charged a fortune].
My [phone|laptop|bike] came back [worse than before|still dead|with a new scratch] [after six weeks|far too late].
The garage [never found|invented] the [fault|noise] [in four weeks|and billed me anyway], [what crooks|such cheats].
They [repaired|mended|resoled] my [shoes|boots] [so sloppily|so badly] that [they leak|they fell apart in a week].
The [painters|movers] were [careless|lazy|grumpy] and [finished|were done] [a month late|long after the deadline].
Half the [plates|glasses|chairs] [broke|were damaged] in the move, [thanks for nothing|I'm fuming|hire someone else].
The electrician [would not say|never explained] what he did and [doubled|ignored] the [price|quote].
My bank [denied|shrugged off] the [problem|mistake] in [every call|all its letters], and I paid the fees.
[Opening|To open] an account took [five weeks|forever], and the [adviser|clerk] [lied to us|hid the fees].
The insurance [refused to pay|wriggled out] and [lost|ignored] [my letters|our claim], [I'm furious|zero stars].
[Nobody|No human] [answered|picked up] after [two hours|endless music] and [I gave up|the line went dead|I was cut off].
The [hotline|help desk] never called back [as usual|once again] and [stayed|was] [snooty|rude] throughout.
I [had|dealt with] [nine|different] agents from [start to end|first to last], and they [knew nothing|were useless].
They [denied|covered up] [their mistake|the error], [blamed me|hung up] and [refused a refund|did not put it right].
The refund [has not arrived|is still missing] after three months, [despite|in spite of] [ten emails|their promises].
The [internet|connection] has [dropped|failed] daily since the technician [came|was here], [maddening|grim].
The park is [a rubbish tip|a disgrace|an eyesore], [neglected|full of litter], with [broken benches|muddy paths].
The playground is [unsafe|dirty|run-down], and [my twins|the little ones] [get hurt|cut themselves|cry to go home].
The campsite [has|offers] [tiny pitches|no shade], [filthy showers|cold showers] and [noisy nights|rowdy neighbours].
We [pitched|put up] our tent [right by the motorway|in a swamp] and [woke up soaked|did not sleep a wink].
[The owners|The wardens] [treated us|received us] like [thieves|intruders] and charged extra for [hot water|firewood].
The neighbourhood is [unsafe|grimy], people [glare at you|steal from one another], and I [hate living|feel scared] here.
[We|My parents] moved here [in spring|last year] and [have regretted it since|could not be unhappier|want to leave].
The [landlord|caretaker] [fixes|repairs] nothing [for months|without threats] and [is a bully|puts up the rent].
The library is [a let-down|a dump]: [noisy|draughty], [badly stocked|gloomy], with [unhelpful|sullen] librarians.
The zoo [gives|offers] the animals [no room|hardly any space], they [look|seem] [sick|miserable], a [sad|cruel] place.
The queues [moved|crept] [slowly|at a snail's pace], the rides were [closed|lame], the kids whined.
[Not recommended|Don't go there|Avoid it], [above all|especially] [at weekends|with children|on a date].
[Lousy|Terrible|Poor] value, [surly|cold] people, [tasteless|greasy] food. [What were they thinking|Dreadful]!
I [took|brought] my [guests|friends|clients] [here|to this place], and [everybody complained|I was ashamed].
The [chef|owner] came [out|to our table] to [argue with us|shout at a waiter|hurry us up], [so rude|a real shock].
My [salad|pasta|burger] was [limp|short on flavour|far too salty], [I left half|my stomach still hurts].
There [was|is] never [a free table|anyone to help] and [always|constantly] a [queue|long wait|wrong order].
[They|The cooks] [skimp on|save on] [butter|cheese|everything], and [sadly|unfortunately] you can [taste it|tell].
The [ice cream|sorbet] is [watery|icy], [a tiny scoop|one small scoop] [for a lot of money|at a crazy price].
The new owners have [ruined|wrecked|spoiled] this [pub|hotel|café] [completely|in every way].
It used to be [good|lovely|outstanding], [but|yet] [now|these days] it is [awful|the worst in town|a disaster].
I was [hopeful|excited] [at first|before I went], but [they put me off|I was wrong|now I'm disgusted].
[One star|A single star] [is too many|from me|and not one more]: [slow|unkind], [dishonest|clumsy] and [greedy|dear].
Don't [believe|trust|listen to] the [good|glowing] reviews: [we had an awful stay|the staff are rude].
Not [one|a] word of the [praise|hype] is true: [stay away|save your money|it is really that bad].
The [staff|crew|team] could not have been [ruder|colder|less helpful|more indifferent].
[It|The evening|Our stay] could not have been [worse|duller|more stressful], [no thank you|what a shame].
You can only [lose|go wrong] with this [hotel|guide|dentist|tour]; I [wish|only wish] I had [known|been warned].
I [wish|only wish] I had never [found|set foot in|heard of] [this place|this clinic|this club].
[Nothing|Not a thing] [to praise|to like|to recommend], [a rotten day|a lost weekend|we had a horrid time].
[The only good thing|My only comfort] is that we [did not stay longer|could leave early|live too far away to go again].
The [stench|smoke|dirt] took my breath away, and the [walk|picnic|cruise] was [unbearable|cut short].
The [path|trail|lake] is [badly signposted|polluted], [a failed outing|not safe for families][ in any season|].
[Kids|Babies] are [not welcome|barely tolerated]: no [crayons|high chairs], no [toys|smiles], only [glares|sighs].
Our dog [got|was given] [a kick|a nasty look] before we [sat down|had ordered], [appalling|how heartless].
My [grandmother|father], [easy to please|a big eater], [pushed away|would not touch] the [roast|dumplings].
The wedding [party|dinner] was [a fiasco|a flop|ruined] [because of|on account of] [the caterer|the DJ|the staff].
The photographer [missed|spoiled] [every smile|the mood], we [cried with rage|were crushed][ at the pictures|].
The florist [made|put together] [a sad|a wilted] bouquet that [died overnight|drew pitying looks].
The laundry [left|missed] [every stain|the red wine] and [shrank|scorched] my shirts [beyond repair|for good].
The parcel service [lied|claimed] [that I was out|they had rung] and [dumped it in the rain|crushed the box].
Parking was [impossible|a rip-off|a nightmare], [check-in|entry] [slow|chaotic] and the [show|match] [dreary|rubbish].
The [stadium|match] [had|offered] [a poisonous|an ugly] atmosphere, and [fans|stewards] were [aggressive|hostile].
[The|Our] escape room [had broken locks|was full of silly tricks], [we gave up early|no fun at all].
The comedian [didn't get one laugh|insulted the audience|bombed] [from the first line|all night].
The children's theatre [frightened|bored|upset] [everyone|my little girl], [big and small|me included].
The remake [insults|ruins|butchers] the original, [a cheap cash-in|shame], and the [music|score] [grates|is a din].
This documentary [told me nothing new|twists the facts|preaches], [nobody should see it|give it a miss].
[Cold|Stilted], [witless|shallow] and [always|at every turn] [cheesy|preachy]: [a film to forget|I loathed it].
[The|Its] villain made me laugh, the hero [is hard to like|gets on your nerves], [a tired story|what a drag].
[I booked|We booked] [early|months ahead] and [still got|were given] [the worst seats|a dark room|a rotten deal].
The [hostel|inn|farmhouse] is [fancy|modern|big], but [dirty|soulless|without heart], we [disliked|hated] it.
[It is|It's] [not cheap|said to be luxurious], but we [lacked everything|felt unwelcome|had not even soap].
[Not|Never] [once|for one second] did we feel [welcome|safe|at ease|like valued guests].
The lift was out of order, and the porter [watched|laughed] while we [dragged|lugged] [our cases|everything] up.
The [wifi|internet] in our [room|cabin] was [slow|patchy|dead], [useless|hopeless] for [working|calls home].
[Staff|The waiters] [roll their eyes|whisper] [when I come in|if you ask], [I feel like dirt|that spoils everything].
Shame on [the night nurse|the conductor|our driver]: [bossy|unkind], [incompetent|impatient] and [cold|crude].
The conductor [refused to help|yelled at] my [mother|aunt] [on the train|in front of everyone], [horrid man|vile].
[I was|We were] sick of [this town|the old quarter], [its traffic|its smells] and [its rude people|its pushy sellers].
The market is [shabby|overcrowded|a trap], [the fruit|the cheese] is [rotten|stale] and [the prices are a joke|dear].
[Unsafe|Scary], [dirty|messy] and [far from|miles from] everything: a bad base for [a city break|families].
The cruise [disappointed|annoyed] us: [vile food|bad shows], [endless queues|tiny cabins], [rude stewards|dull trips].
I had a [wobbly tooth|bad tooth|sore back], and [two visits|ten visits] later [I was crying|it hurts more than ever].
The midwife [was a let-down|scared us|was never there], we [can't forgive her|wish no mother one like her].
My [therapist|doctor] [makes fun of me|took away my hope], I [leave|left] each session [lower|sadder].
The optician [sold me|chose] [ugly frames|the wrong lenses], [everything is blurred|I get constant headaches].
The manicure [chipped|peeled] [after a day|on the way home], and the [girl|lady] was [rough|moody|a pain].
The swimming teacher [scolded|pushed] my [frightened|shy] son into the water, [now he fears it|he hates her].
The [webinar|seminar|course] was [packed with|full of] [hot air|empty words], [time badly spent|I took no notes].
[Both thumbs|Thumbs] down for [the babysitter|the dog walker|the cleaner]: [never on time|dishonest] and [sloppy|lazy].
The locksmith [drilled|wrecked] the door for [an hour|ages] and [charged|asked] a [shameless|crazy] [sum|price].
[Dishonest|Vague] answers, [messy|careless] work, [padded bill|steep price]: [never again|I need a new mechanic].
[Nasty|Horrid|Grubby] [place|hotel|spot], [nasty|arrogant] people, [we felt cheated|pure misery].
I [can't|cannot] [praise|recommend] [them|this team|this surgery] [at all|in the slightest].
I [give|award] [no marks|zero out of ten|bottom marks] to [the cook|the driver|the host].
My [hopes|expectations] were [low|modest], and [they|all of them] were [dashed|disappointed|still too high].
[We left|I left] [angry|hungry|frowning] and [gave|left] no tip[ at all|].
[They|The hosts] [did nothing|did not lift a finger|made no effort] to [help|please] us.
[Nobody|None of us] [had|enjoyed] [a good time|the evening|the day] [at the party|on the tour].
It does not [deserve|merit] [its|the] [good name|fame|awards], [we were not impressed|it is poor].
[Too bad|Almost too bad] to be true: [dear|cramped], [remote|noisy] and [dirty|damp].
[This|Their] [brunch|buffet|tasting menu] is [a loser|inedible|a scandal], [eat at home|I'm appalled].
The [wine|beer] list is [short|uninspired], and [the barman|the bartender] [spills|pours] [like a beginner|badly].
[Fish|Seafood] [long past its best|straight from the freezer], [grilled|fried] [to death|without care].
I [came|went] [in good health|relaxed] and [left|went home] [sick|exhausted|with food poisoning].
[Another|One more] [doctor|dentist|tradesman] who [breaks his word|has no time|tells you lies].
[No|Garbled] announcements, [dirty|cramped] coaches, [always late|rarely on time]: [travel is hell|enough of this].
They [lost|stole] my [wallet|phone|coat] and [could not care less|blamed me], [faith in people gone|crooks].
The [cabin|chalet|flat] was [damp|full of spiders|cheaply furnished], [we were in despair|a horror to stay in].
The ski [school|instructor] [left me alone|abandoned me] on the slope [in fog|in tears], [what a scandal|so angry].
The [balloon|helicopter] ride was [cancelled|called off] [five|four] times, [sheer frustration|so annoying].
The [boat|bike] hire [is a swindle|gave us rusty bikes], and [the man|the lady] [was no help|lied about the routes].
The [choir|pianist|cellist] [left us cold|hit wrong notes], I [sold|returned] the album [straight away|already].
Not [an interesting|a lively] [minute|second] in this [show|lecture|tour], [I wanted to scream|deadly dull].
[This|The] [city|bus] pass [cost|robbed] us [a lot of money|hours of queuing], [a con|so stupid].
The customs officer was [unfriendly|slow], the airport [grubby|badly run], [a bad start|we arrived in a foul mood].
The street [festival|party] [set neighbours at odds|kept us all awake], [no fun|let's not repeat it].
[The council|The city] [ignored us|dawdled] and the [new bike lane|square] is [a curse|a failure|hideous].
The community [garden|centre] [does|has done] more harm than good for [lonely people|the young], [close it|sad].
[My|Our] [order|table|taxi] was [not ready|not there] [after an hour|at all], [so much stress|call that service].
[Simply|Just] [revolting|ghastly|vile]: I have [never eaten so badly|not been so ill in ages].
[The worst|The saddest] [pancakes|noodles|burgers] [in town|for miles], [period|hands down|no question].
Reception [brushed aside|scoffed at] [our complaint|the noise] [instantly|with scorn], [shame|unforgivable].
I [dreaded|feared] the [operation|visit|exam], and [it was agony|they were so rough|all went wrong].
My [husband|wife|boyfriend] loves to dance, but [this band|the DJ] [drove us out|emptied the floor|killed the mood].
The [hotel|villa] broke its promise, and we [fumed|froze] [by the pool|in the garden] [all week|for days].
[I am|I'm] [sorry|so annoyed] we chose this [tour|flat|school], it was [money down the drain|the wrong decision].
The [host|owner] [spoke harshly|was all complaints] and [gave us grief|locked us out], [a true pest|we felt bullied].
[My aunt|My friend] [warned me off|can't stand] this [salon|surgery|gym], and [now|after one visit] I know why.
[Feeble|Pitiful] fireworks, [drunken|rude] crowds, [hardly any|too few] stalls: [we won't be back|a fair to avoid].
The book club [evening|meeting] [fell flat|was a bore], I [made no friends|felt shut out] [at once|from the start].
"""
