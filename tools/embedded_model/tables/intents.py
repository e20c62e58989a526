"""What customers write to a shop: messages for every intent, the words around them, and layouts."""

from __future__ import annotations

from typing import Final

# Blocks: "#" intent | department | what the customer wants; then its messages, one pattern a line.
INTENTS_TEXT: Final = """
# track order|delivery|to know where the parcel is
my {pair} [were|have been] [sent|shipped] [days|weeks] ago and [still|] [nobody brought them|they are not here|I have not seen them], where are they?
[could|can] you [look up|look|see] where my {product} is [at the moment|now|today]?
how far has my [parcel|package|order] [come|got]?
it has been [ten days|two weeks|a long time] and my {product} [has not arrived|is not here|did not come] [yet|]
I waited [all day|the whole week] and [no parcel came|nobody brought my parcel|my order did not come]
[where is|where's] my [order|parcel|package|delivery|{product}]?
[can|could] you [tell me|check|find out|see] where my [order|parcel|package|delivery|{product}] [is|is now|is right now]?
I [want|would like|need] to [track|follow|trace|locate] my [order|parcel|package|shipment|delivery]
how [can|do] I [track|follow|trace] my [order|parcel|package|shipment]?
has my [order|parcel|package|{product}] [already|] [been sent|been shipped|left the warehouse|gone out] [yet|already|]?
[what is|what's] the [status|state] of my [order|delivery|shipment|parcel]?
I [still have not|still haven't|have not yet] received my [order|parcel|package|{product}]
my [order|parcel|package|{product}] [has not|hasn't] [arrived|come|been delivered|turned up] [yet|so far|]
I have been waiting for my [order|parcel|package|{product}] [for days|for two weeks|since Monday|for a week]
my [parcel|package|delivery|{product}] should have [arrived|come|been here] [yesterday|last week|on Monday|days ago], [where is it|and it is not here|but it did not]
the tracking [number|link|page] [does not work|shows nothing|has not changed for days|says nothing]
[please send me|I need|where do I find|I have no] [the|a] tracking [number|link] [for my parcel|for my order|]
any [news|update|word] [on|about] my [order|parcel|package|delivery]?
when will my [order|parcel|package|{product}] [finally|] [arrive|come|get here|be here]? I ordered {time}
[is my|is the] [parcel|order|package] [on its way|on the way|still in the warehouse|lost|stuck somewhere]?
[nothing has arrived|nothing came|no parcel came] [yet|so far|today], [where is my order|what happened to my order|is it lost]?
the [driver|courier|postman] [never came|did not come|has not come], where is my [parcel|package|order] now?
I [ordered|bought] {a_product} {time} and it [still is not here|has not come|has not arrived]
# cancel order|orders|to stop an order
I do not want the {pair} I ordered [last night|this morning|today] any more, [stop the order|please cancel them|do not ship them]
is there [still|] [time|a chance] to [stop|cancel|call off] the order [I made this morning|I placed last night|]?
[please|] cancel my [order|purchase|last order|order from yesterday]
I [want|would like|need|wish] to cancel [my order|the order|an order|my purchase|it]
how [can|do] I cancel [my order|an order|a purchase]?
[can|could] [you|I] [still|please|] cancel [my order|the order|the {product}]?
[please stop|stop] my [order|purchase], I [changed my mind|do not want it|do not need it any more|found it elsewhere]
I [changed|have changed] my mind [and do not want|about] the {product} [any more|I ordered|]
I [don't|do not] [want|need] the {product} [any more|any longer], please [do not send it|don't ship it|cancel]
I ordered [by mistake|by accident|twice by mistake], [please cancel|can you cancel it|please stop it|do not send it]
is it [too late|still possible|possible] to cancel [my order|the order|it]?
please [do not|don't] [send|ship] my order, [I no longer need it|I want to cancel|I changed my mind]
[is there|where is] a [button|way|form] to cancel [an order|my order|what I ordered]?
I [pressed|clicked] [buy|the button|order] [by mistake|by accident|too fast], [please undo it|cancel it please|I do not want it]
cancellation of [my order|order {number}|the {product}] [please|]
my [son|child|daughter] ordered {a_product} [without asking|by accident], please [cancel it|stop the order]
[take back|undo|withdraw] my [order|purchase] [please|before it is sent|]
I [no longer want|no longer need] [what I ordered|the {product}|my order], it has not been sent yet
the order has not [been shipped|left] yet, [can I stop it|can I call it off|please cancel it]
# change order|orders|to change what was ordered
please [add|put] the {pair} [to|in] my order too, I forgot them
[can|could] you [change|switch] the [size|colour] before you [ship|send] it?
I [want|would like] to [edit|change] the [items|things] in the order I [made|placed] [today|last night|this morning]
I [want|would like|need] to change [my order|something in my order|the order]
[can|could] I [still|] change [my order|the size|the colour|the quantity] [of the {product}|before it ships|]?
please [add|put] [another|one more|a second] {product} [to|in] my order
[can|could] [you|I] add {a_product} to [my order|the order I placed|my last order]?
[please|] [remove|take] the {product} [from|out of] my order [but keep the rest|and leave the rest|]
I [ordered|chose|picked] the wrong [size|colour], can [you|I] [change|switch] it [before it is sent|]?
I [want|would like|need] [two|three|four] [instead of|not] one [in my order|of the {products}|]
[make|please make] it [two|three|four] {products} instead of one
[can|could] I [swap|switch|replace] the {product} [for|with] {a_product2} [in my order|]?
how [can|do] I [change|edit|modify|adjust] [my order|an order|the items in my order]?
I would [rather|like to] have the {product} in [red|blue|black|green|white] [instead|], I [just ordered|ordered yesterday]
change the [size|colour|quantity] [in my order|of my order|of the {product} I ordered] [please|to large|to small|to blue|]
I [forgot|forgot to add] {a_product} [in|to] my order, can [you|I] [still|] add it?
is it [possible|too late] to [change|modify|edit] my order?
[please update|please edit|please modify] my order, I [need|want] a [bigger|smaller|larger|different] [size|one]
I [made a mistake|chose wrongly] in my order, it should be [size large|the blue one|two pieces], not [small|the red one|one]
[put|combine] [my two orders|both orders] [together|into one] please
# refund|returns|to get the money back
I sent the {pair} back because they [did not fit|were broken], when do I get my money?
I [want|would like|have] to be paid back [for the {product}|] because it [is bad|does not work]
I [want|would like|demand|need] my money back [for the {product}|]
I [want|would like|am asking for|request|need] a refund [for the {product}|for my order|please|]
[when|how soon] [will I get|do I get] my [money back|refund|money]?
[where is|what about|what happened to] my refund?
I [returned|sent back] the {product} {time} [and|but] [still wait|am waiting|have not got] [for my money|for the refund|my money back]
[please|] [refund|pay back|give me back] [my money|the money|the price|the full price]
I [have not|haven't] [received|got|seen] [my refund|my money|the refund|the money] [yet|]
how [can|do] I get [a refund|my money back|my money returned]?
how long does a refund take?
you [owe me|promised me|still owe me] [a refund|my money|the money back|{amount}]
[can|could] I [get|have] [a refund|my money back|the money back] [for this|for the {product}|]?
[the refund|my refund|the money] [has not come|is not on my account|never came|has not arrived]
please [return|send|transfer|give] [the money|my money|{amount}] [back|] to my [account|card|bank]
I [cancelled|returned] [my order|it] and [the money|my money] [has not come back|is still missing|was not paid back]
[only half|only a part|not all] of [my money|the money|the refund] [was paid back|came back|was returned]
I [am not satisfied|am unhappy] with the {product} and want [a full refund|my money back|to be paid back]
[do I get|will I get] [the full price|all my money|everything] back [if I am not happy|]?
# return item|returns|to send something back
the {pair} [are too tight|are too small|do not fit|are too big], [how do I send them back|can I return them|I want to give them back]
I tried [them|it] on and [it is|they are] not my [size|taste|colour], [may|can] I [return|send back] [it|them]?
how do I send [them|it|the {pair}] back to you?
I [want|would like] to [exchange|swap] the {pair} [I got|] for a [smaller|bigger|larger] size
I [want|would like|need] to [return|send back|give back] [the {product}|an item|something|my {product}]
how [can|do] I [return|send back] [the {product}|an item|something]?
[where|to which address] do I [send|return|post] [the {product}|it|things] [back|] [to you|]?
[can|could|may] I [return|send back|bring back] the {product} [if it does not fit|]?
[please send me|I need|where is|how do I print] [a|the] return [label|form|sticker|slip]
the {product} [does not fit|is too small|is too big|is too tight], [I want to send it back|can I return it|how do I return it]?
how [long|many days] do I have to [return|send back] [an item|something|the {product}]?
[is returning|are returns] free?
do I have to pay [for a return|to send it back|the postage for a return]?
what is your return policy?
I [don't|do not] like the {product}, [can I send it back|how do I send it back|I want to return it]
[can|could] I [exchange|swap] the {product} [I received|I got|that came] for [a bigger|a smaller|another] [size|one]?
[can I|may I] [bring|take] the {product} back to [the shop|your store|a shop]?
[start|open|I want to start] a return [for the {product}|please|]
the {product} is not [what I thought|my size|my taste], I will [send it back|return it]
[where do I drop off|who picks up|can you pick up] [my return|the return parcel]?
I [opened|tried on] the {product}, can I still [return it|send it back]?
# change address|delivery|to have another address
[could|can] the driver [bring|take] [the parcel|it] to my [office|mother|father|neighbour|work] because I am not at home?
I live [in another town|in another street|at {address}] now, [how do I update it|please send it there|where do I change that]?
I [want|would like|need] to change [my|the|the delivery|my delivery|my shipping] address
[can|could] you [send|deliver|ship] [my order|it|the parcel] to [another|a different|my new|my work] address?
I [have moved|moved|am moving] [last week|to a new flat|house|to another town|], [here is my new address|please update my address|what about my order]
[please|] [update|change|correct] my [address|street|house number|postcode]
the address [on|in|of] my order is [wrong|old|not right|incorrect]
I [gave|entered|typed] [the wrong|my old|a wrong] [address|street|house number|postcode]
how [can|do] I [change|update|edit] my [address|delivery address|shipping address]?
my [new address|address now] is {address}
please [deliver|send] [it|the parcel|my order] to {address} [instead|and not to my old flat|]
there is [a mistake|a typo|an error] in my address
I [no longer|don't|do not] live [there|at that address|at the old address], [please change it|where can I change it|please send it to my new flat]
[can|could] the [parcel|package] go to my [neighbour|office|mother|work] [instead|] ?
I [want|need] [the parcel|my order] [delivered|sent] to [my office|another street|another town|a different place]
you still have my old address
[the house number|the street|the postcode] is wrong, it should be {address}
is it possible to change [the delivery address|the address|where you deliver] [after ordering|now|]?
we are moving [next week|next month|soon], [where do I enter the new address|please note our new address]
# delivery time|delivery|to know how long delivery takes
[do|will] your drivers [deliver|come] [on Saturday|on Sunday|in the evening|at night]?
how [soon|fast] would [it|{a_product}] be [here|delivered|at my home] if I [order|ordered] [it|] now?
how [long|many days] does [delivery|shipping|it] [take|usually take] [to arrive|]?
how [fast|quickly|soon] do you [deliver|ship|send]?
what [is|are] [the|your] [delivery|shipping] [time|times]?
if I order [today|now|tonight|on Friday], when will it [arrive|come|be here]?
do you [deliver|ship] [on|at] [Saturdays|Sundays|the weekend|weekends|holidays]?
[can|could] you deliver [by|before|until] [Friday|Monday|Christmas|the weekend|tomorrow]?
is [next day|same day|express|fast] [delivery|shipping] [possible|available]?
do you [offer|have] [next day|same day|express|faster] [delivery|shipping]?
I need {a_product} [by|before|until] [Friday|Saturday|the weekend|tomorrow], is that possible?
how long [will|would] it take to [get|send|ship|deliver] {a_product} to {city}?
how many days [until|before] {a_product} [arrives|would arrive|gets here]?
when would {a_product} [arrive|be delivered|be here] if I [ordered|buy] it [now|today]?
how long [do you need|does it take] to [send|ship|deliver] [things|a parcel|an order] [abroad|to another country|to {city}|]?
[what time|at what time|at which time] of day do you [deliver|usually deliver]?
[can|could] I choose [a|the] delivery [day|date|time]?
will it [arrive|be here|come] [in time for|before] [a birthday|Christmas|the weekend|the holidays] [if I order now|]?
usual delivery time [to {city}|] ?
# shipping cost|delivery|to know what delivery costs
[what do I have to|what must I] pay for the delivery of {a_product} [to {city}|]?
[are there|is there] extra [fees|costs|cost] [for|if I order] [delivery to another country|express delivery|a heavy parcel]?
how much [is|are|does] [the |][shipping|delivery|postage] [cost|]?
how much [do you charge|do I pay|must I pay] for [shipping|delivery|postage]?
what [does|do] [shipping|delivery|postage] cost [to {city}|for {a_product}|]?
is [shipping|delivery|postage] free?
[do you have|do you offer|is there] free [shipping|delivery]?
[from|above] [what|which] [amount|price|sum] is [shipping|delivery] free?
what [are|is] [the|your] [shipping|delivery|postage] [costs|cost|fees|charges|prices|fee]?
how much does it cost to [send|ship|deliver|post] {a_product} [to {city}|]?
do I [have to|need to] pay [for delivery|for shipping|postage]?
is there [a|any] [fee|charge] for [delivery|shipping|home delivery]?
why is [shipping|delivery|postage] so [expensive|high|much]?
how [expensive|high] [is|are] [delivery|shipping|the shipping costs] [abroad|to another country|to {city}|]?
does express [delivery|shipping] cost [more|extra]?
what would [shipping|delivery] to {city} cost [me|]?
the price of [delivery|shipping|postage] please
[are|is] [delivery|shipping] [costs|] included in the price?
when do I get free [delivery|shipping]?
# missing item|orders|something that was not in the parcel
I paid for [three|four|five] {products}, but there were only [two|three] [of them|] in the box
you forgot to [put|pack] the {pair} in [my parcel|the box]
the [screws|batteries|cables] for the {product} [are missing|were not there|are not in the box]
[something|one item|an item|a part|one thing] is missing [from|in] my [order|parcel|package|delivery]
the {product} [is|was] missing [from my order|in the parcel|in the box|]
I [ordered|paid for] two {products} but [only one|just one] [came|was in the box|arrived]
I [received|got] only [half|a part|one part] of [my order|what I ordered]
there [is|was] no {product} in the [box|parcel|package]
my [parcel|order|package] [is not|was not] complete
you [forgot|left out] [the {product}|one item|to pack the {product}|half of my order]
[one|two] of [my|the] [items|things|parts] [was|is|are] [missing|not there|not in the box]
the [box|parcel] [was|is] [empty|half empty|incomplete]
the {product} [came|arrived] without [the cable|the manual|the lid|the screws|its case|the charger]
the [cable|manual|lid|charger|screws] [is|was] missing
I [did not|didn't] get [everything|all|all the things] I [ordered|paid for]
my [delivery|order|parcel] is incomplete, [where is the rest|the {product} is not there|please send the rest]
[where is|when comes] the rest of my order?
I got the {product} but not the {product2} [I also ordered|]
only [one|two] of [three|four|five] [items|things] [arrived|came|were in the parcel]
the parcel came [but|and] the {product} was not [in it|inside]
# wrong item|returns|something that was not ordered
these are not the {pair} I [ordered|wanted|picked|chose]
I wanted a [red|blue|green|black] {product}, but the one [in the box|that came|you sent] is [white|brown|yellow]
these are [another person's|somebody else's] things, not mine
I [received|got] the wrong [item|product|thing|{product}|size|colour]
you [sent|have sent|delivered|gave] me the wrong [item|{product}|size|colour|order]
I ordered {a_product} [but|and] [got|received|you sent me] {a_product2} [instead|]
this is not what I ordered
[that's|it is|the parcel is] not [what|the {product}|the thing] I [ordered|asked for|paid for]
the {product} [has|is in|came in] the wrong [colour|size]
I [ordered|asked for] [size small|the blue one|a red one|the large one] [but|and] [got|received] [size large|a black one|the small one]
there [was|is] [a different|another|the wrong] [item|{product}|product] in the [box|parcel|package]
I [got|received] [someone else's|another person's|somebody else's|a stranger's] [order|parcel|things]
[instead of|in place of] the {product} [I got|there was|you sent me] {a_product2}
you mixed up [my order|two orders|the parcels|my parcel with another one]
a different {product} [came|arrived|was delivered] than the one I [chose|ordered|picked]
[my order|the parcel] contained {a_product2}, but I [ordered|wanted|bought] {a_product}
the [colour|size|model] [is not the one|is different from what|does not match what] I ordered
I never ordered {a_product}, I [ordered|wanted] {a_product2}
the item [does not match|is different from] [my order|the picture|the description]
please send [the right|the correct] [one|item|{product}], [this is the wrong one|you sent another one|I got something else]
# damaged item|returns|something that came broken
my {product} [arrived|came] [today|yesterday|this morning] and [it is|is] full of [cracks|scratches|holes]
the {pair} [were|are] [torn|broken|damaged|scratched] when they [arrived|came]
the {product} came with a [deep|big|long] [scratch|crack|hole] [and a broken leg|]
[my|the] {product} [arrived|came|was delivered] [broken|damaged|cracked|scratched|in pieces|dented]
the {product} [is|was] [broken|damaged|cracked|scratched|torn|dented] [when it arrived|when I opened the box|on arrival|]
I [received|got] a [broken|damaged|cracked|scratched|faulty] {product}
the [box|parcel|package] was [crushed|wet|open|damaged] and the {product} is [broken|damaged|scratched]
there is a [crack|hole|scratch|dent|stain] in the {product} [that came today|I received|]
[the glass|the screen|the lid|the handle] [was|is] [broken|cracked|smashed] when [it arrived|I opened the parcel|I unpacked it]
when I opened the [box|parcel|package], the {product} was [broken|damaged|in pieces|cracked]
something [broke|was broken|got damaged] [during|in] [delivery|shipping|transport|the post]
the driver [dropped|threw] the parcel and [now it is broken|the {product} is damaged|everything inside broke]
you [sent|delivered] me a [broken|damaged|faulty|scratched] {product}
my new {product} has [a crack|a hole|a big scratch|a dent|scratches] [all over|on the side|]
the {product} [does not work|was dead|did not work] [out of the box|from the start|when I unpacked it|on arrival]
[it|the {product}] [came|arrived] [in pieces|broken|damaged], [I need a new one|please send another|what now]?
what [do I do|can I do|should I do] [with|about] a [damaged|broken] {product}?
I want to report [a damaged|a broken] [item|{product}|delivery]
the [seam|zip|handle|leg] of the [new|] {product} [is torn|was broken|came off] when it arrived
[everything|half of it|the {product}] in the parcel [is|was] [broken|smashed|damaged|leaking]
# warranty|returns|the guarantee
my {product} [is|was] not even [a year|two years] old and [has stopped working|it died], will you [repair|replace] it [for free|]?
[until when|how long] is my [washing machine|{product}] [under warranty|covered]?
[is there|do I have|does it have] [a|any] [warranty|guarantee] [on|for] the {product}?
how long [is the [warranty|guarantee]|does the [warranty|guarantee] last] [on|for] the {product}?
[how many years|how long] of [warranty|guarantee] do [you give|I get|you offer]?
the {product} [broke|stopped working|died|failed] after [six months|a year|ten months|eight months], [is that covered|do I have a guarantee|is it under warranty]?
[is|would] my {product} [still|] [under warranty|covered by the guarantee|covered]?
I [want|would like|need] to [use|claim|make use of] [my|the] [warranty|guarantee]
what does the [warranty|guarantee] cover?
does the [warranty|guarantee] cover [water damage|the battery|broken parts|repairs|the screen]?
[can|could] you repair my {product} [under warranty|for free|under the guarantee]?
[I bought|we bought] the {product} [a year ago|last year|two years ago] and now it [is broken|does not work|has stopped working]
do you [repair|fix] {products} [for free|under the guarantee|that are a year old]?
my {product} is [only|less than] [one year|two years|ten months] old and [already broken|stopped working]
[can I extend|how do I extend|I want a longer] [the|] [warranty|guarantee]?
where [do I find|is] the [warranty|guarantee] [card|paper|number]?
how do I [make|start|file] a [warranty|guarantee] claim?
after [a year|eight months|two years] of use my {product} [does not start|has died|needs a repair]
when does [the|my] [warranty|guarantee] [end|run out|expire]?
# payment failed|payments|a payment that did not go through
I cannot [finish|complete] my order because [the payment fails|the payment page shows an error|my card is refused|I can't pay]
your [site|shop] [refused|refuses|rejects] my [card|credit card|payment] [each time|every time|twice|]
my [payment|card payment|transfer] [failed|did not go through|was declined|was rejected|was refused|does not work]
my [card|credit card|bank card] [was declined|was refused|is rejected|does not work|is not accepted] [at checkout|when I pay|]
I [cannot|can't|could not] [pay|complete the payment|finish paying|pay for my order]
[there is|I get|I see] an error [when I pay|when I try to pay|at the payment step|with the payment]
the payment [page|step|form] [does not load|is broken|shows an error|hangs|crashes]
I [tried|have tried] to pay [three times|twice|many times|again and again] [but it fails|without success|and it does not work]
why [was|is] my [payment|card|transfer] [declined|rejected|refused]?
why [did|does] my payment [fail|not go through|not work]?
I [was|have been] charged [twice|two times|double] [for one order|for my order|]
[you took|you charged|the shop took] the money [twice|two times|but there is no order]
the money [left|was taken from] my account [but|and] [my order is still unpaid|the order says not paid|no order came]
[payment|paying] [not working|does not work|keeps failing|impossible]
[it says|the page says|the site says] [payment failed|card declined|payment error|payment not possible]
my [bank|card] [is fine|has enough money] but [your site refuses it|the payment fails|I cannot pay]
the order [says|shows|is marked as] unpaid [although|but] I [have paid|paid]
something went wrong [when I paid|with my payment|during payment|at checkout when paying]
checkout [rejects|refuses|does not take] my [card|payment]
# payment methods|payments|to know how one can pay
I do not [own|have] a [credit card|bank card], what other ways [to pay|of paying] [are there|do you have]?
[may|can] I pay [when|after] [the parcel|it|my order] [has arrived|arrives|is here]?
[can|may] I pay the driver [in cash|by card|at the door]?
[how|in which ways] can I pay?
[what|which] [payment methods|ways to pay|cards|forms of payment] do you [accept|take|offer|have]?
do you [accept|take] [credit cards|cash|cheques|bank transfers|card payments|debit cards]?
can I pay [by|with] [card|credit card|bank transfer|cheque|cash|debit card|phone]?
can I pay [in cash|cash] [at the door|on delivery|when it arrives|in the shop]?
[can I pay|is it possible to pay] [later|in parts|in instalments|monthly|after delivery]?
is [cash|card|bank transfer|payment by invoice] [possible|accepted|okay]?
[I have no|I don't have a|without a] credit card, how [else|] can I pay?
[what are|tell me] [the|your] [payment options|ways to pay|payment methods]
do you [offer|allow] [payment in instalments|monthly payments|paying later|cash on delivery]?
is it [safe|possible|allowed] to pay [by|with] [card|bank transfer|debit card] [here|on your site|]?
I would like to pay [by|with] [card|cash|bank transfer|cheque], is that [possible|okay|all right]?
which [cards|banks|currencies] [are accepted|do you take|can I use]?
can I [split|share] the payment [between two cards|over three months|in parts]?
can I use [two cards|another card|a debit card] to pay?
do I pay [before|after] [delivery|it arrives]?
paying [by|with] [card|cash|cheque] possible?
# invoice|payments|a bill or a receipt
[my company|my boss|my father] needs [a bill|a receipt|an invoice] [for the {product}|], [could|can] you [email|send] it?
I need something that [shows|proves] what I paid [for the {pair}|]
there was no [bill|receipt] [with|for] the {pair}
[please|can you please|could you] send me [the|my] [invoice|bill|receipt] [for my order|for the {product}|]
I need [the|a copy of the|my] [invoice|receipt|bill] [for my order|for my boss|for the tax|for my company|]
where [can|do] I [find|get|download|print] [my|the] [invoice|receipt|bill]?
[there was|there is] no [invoice|receipt|bill] in the [parcel|box|package]
I [have not|haven't|never] [received|got] [the|my] [invoice|receipt|bill]
[my|the] [invoice|receipt|bill] [is wrong|has the wrong name|shows the wrong amount|has a mistake]
[can|could] you [correct|change] [the name|the address|the company name|the amount] on the [invoice|bill|receipt]?
I lost my [receipt|invoice|bill], [can you send it again|can I get a copy|I need a new one]
[can|could] I have [an invoice|a receipt|a copy of the invoice] [please|for order {number}|]?
I need [a proof of purchase|a proof of payment|proof that I paid|something in writing that I paid] [for the office|for the tax|]
[invoice|receipt|bill] for [order {number}|my last order|the {product}] please
the [invoice|bill] [you sent|] [cannot be opened|is empty|is not readable|lists things I did not buy]
please [put|print|write] [my company|our company|the tax number] on the [invoice|bill]
do you send [invoices|receipts|bills] by [email|mail|post]?
my [boss|company|accountant] [needs|wants] [the|my] [invoice|bill|receipt]
how do I [download|print|get] [a bill|an invoice|a receipt]?
resend the [invoice|bill|receipt] [please|to my email|]
# discount code|payments|a code that makes it cheaper
the price [stayed the same|is still the same|did not change] [after|when] I [typed|entered] my [coupon|code]
do [students|new customers|families|teachers] get [a discount|something off]?
I [want|would like] [a code|a coupon|a discount code] [because I am a new customer|for my next order|]
my [discount|voucher|promo|coupon] code [does not work|is not accepted|is invalid|has expired|is rejected]
the [discount|voucher|coupon|promo] code [does not work|gives an error|was refused|is not valid]
where [can|do] I [enter|use|type|put] [my|the|a] [discount|promo|coupon|voucher] code?
how do I use [a|my] [discount|coupon|promo] code?
do you have [a|any] [discount|promo|coupon] [code|codes|] [for new customers|for students|at the moment|]?
I [forgot|did not manage] to [enter|use] [my|the] [discount|coupon|promo] code
I [have|got] a code for [ten|20|fifteen] percent off [but it does not work|, where do I enter it|and cannot use it]
[is there|are there|do you offer] [a|any] [student|family|summer|birthday|new customer] discount?
[can|could] you [give|send] me [a|another|a new] [discount|coupon|discount code|promo code]?
the discount was not [applied|taken off|counted|subtracted] [from my order|]
[the site|checkout] [says|tells me] my [coupon|code|discount code] is [invalid|expired|unknown]
[can I use|can I combine] two [discount codes|coupons|codes] [at once|for one order|]?
I was promised [ten|20|fifteen] percent off [but paid full price|, where is it|]
my [coupon|promo code|discount] [has disappeared|vanished|was not counted] at checkout
how long is [my|the] [discount code|coupon|promo code] valid?
any [discounts|coupons|promo codes|special offers] [right now|this week|for me]?
the price did not [go down|change|drop] after I [entered|typed] [the|my] code
# gift card|payments|a gift card
my [aunt|mother|father|friend] gave me [a|one of your] gift [card|cards], how do I [use|redeem|spend] it?
[until when|how long] [can|must] I use [my|the] gift card?
I want to give her [a gift card|a card with money for your shop] for her birthday
[do you sell|can I buy|I want to buy|where can I buy] [a gift card|gift cards]?
how [can|do] I [use|redeem|spend] [my|a] gift card?
my gift card [does not work|is not accepted|is empty|has expired|was lost]
how much [is left|money is left|is] on my gift card?
[what is|how do I check|where do I see] the balance [of|on] my gift card?
how long is [a|my] gift card [valid|good]?
I [got|received|was given] a gift card [for my birthday|from my aunt|for Christmas] [and want to use it|, how does it work|]
can I pay [a part|with two gift cards|with a gift card and my card] [of it with a gift card|]?
I [want|would like] to [give|send] [a friend|my sister|my mother] a gift card
the [number|code] on [my|the] gift card [cannot be read|is not recognised|does not work]
I lost my gift card
can [you send|I get] [a|the] gift card by [email|mail|post]?
[is there|do you have] a gift card [for fifty|over 20|as a present|as a gift]?
which amounts [are there|can I choose] for a gift card?
a gift card [as a present|as a birthday present|for my friend], [how do I order one|is that possible]?
can I [exchange|turn] my gift card [for|into] [cash|money]?
where is the [gift card|gift card I bought|gift card I ordered]?
# reset password|account|a new password
I have lost my [old|] password [again|], how [do|can] I [choose|get|make] [another|a new] one?
I am waiting for the [email|link] to [set|make] a new password
I [forgot|have forgotten|lost|don't remember|can't remember|do not know] my password
how [can|do] I [reset|change|recover] my password?
I [want|need|would like] [to reset|to change|a new|to set a new] [my|] password
[please|can you] [reset|change] my password
[please send me|I need|can I have] [a new password|a link to reset my password|a password reset]
the [password reset|reset] [link|email|mail] [does not work|has expired|never came|does not arrive]
I [did not|didn't] [get|receive] the [email|mail|link] to reset my password
[where|how] [can|do] I [set|choose|make] a new password?
[my|the] password [is gone|is lost|has slipped my mind|no longer comes to mind]
I cannot remember [my password|which password I used|the password I chose]
[forgot|forgotten] password
what [was|is] my password?
my password has [expired|run out], how do I [get|make|choose] a new one?
I [think|fear] somebody knows my password, [I want a new one|how do I change it|please reset it]
the link for a new password [is broken|shows an error|has expired]
how do I recover [a lost|a forgotten] password?
I clicked forgot password but [nothing happens|no email came|got no mail]
# login problem|account|cannot get into the account
[each time|every time] I [press|click] the login button [nothing happens|I see an error|it throws me out]
my account [is|was] blocked [because I typed the wrong code|since this morning|], I can't sign in
I [cannot|can't|am not able to|can no longer] [log in|sign in|login|log on] [to my account|any more|]
[logging in|login|signing in] [does not work|is not possible|fails|is broken]
I [can't|cannot] [get into|access|open|enter] my account
my account is [locked|blocked|not accessible]
the [site|app|page] [does not let me in|won't let me in|throws me out|logs me out] [again and again|all the time|]
I [get|see] an error [when|every time|whenever] I [log in|sign in|try to log in]
my password is [right|correct] but I [cannot|can't] [log in|get in|sign in]
why [can't I|can I not|am I unable to] [log in|sign in|get in]?
I am locked out of my account
the [login|sign in] [page|button|form] [does not load|does nothing|is broken|shows an error]
[it says|the page says|it tells me] [unknown user|wrong user name|no such account|user not found] when I [log in|sign in]
I [do not|don't] [get|receive] the [code|text message] [to log in|to sign in|for the login]
the [login|security|sign in] code [never comes|does not arrive|is not accepted]
I forgot my [user name|username], how do I [log in|sign in|get in]?
[since the update|since yesterday|today] I can't [log in|sign in|get into my account]
[after|when] I [enter|type] my name and password [nothing happens|the page stays white|I am thrown out]
[help|please help], I cannot [get in|sign in|log in]
# close account|account|to have the account deleted
what must I do to [close|delete] [my|my mother's|my father's] account?
I [will not|won't] [shop|buy] here any more because I am moving away, please [remove|close|delete] my account
I want my account [closed|deleted|removed]
I [want|would like|wish|need] to [close|delete|remove|cancel|end] my [account|profile|customer account]
[please|] [delete|close|remove|cancel] my [account|profile|customer account]
how [can|do] I [delete|close|remove|cancel] my [account|profile]?
[can|could] you [close|delete|remove] my [account|profile] [please|for me|]?
[please delete|I want you to delete|remove|erase] [all my data|all my personal data|everything you know about me]
I [do not|don't] [want|need] [my|an|this] account [any more|any longer]
I no longer [want|need|use] my account, [please delete it|how do I close it|please remove it]
where [can|do] I [close|delete|end] my [account|profile|membership]?
I [want|would like] to [leave|end my membership|stop being a customer|quit] [and have my account deleted|]
take my [name|data|account] out of your [system|list of customers|files]
[account|profile] [deletion|removal|closure] please
what happens to my data [if|when] I [close|delete] my account?
[is it possible|how easy is it] to [delete|close] [an|my] account?
I have two accounts, please [delete|close|remove] [one|the old one]
please forget [me|all my data] and [close|delete] my account
I am leaving, please [shut down|close|delete] my account
I cannot find [the button|where] to [delete|close] my account
# newsletter|account|the newsletter by email
your [emails|offers|adverts] fill my [inbox|mailbox], [stop them|take me off the list|I do not want them]
stop [these|the|your] [weekly|daily|monthly] emails [please|]
I like reading your newsletter but [it did not come|did not receive it] this [week|month]
I [want|would like] to [unsubscribe|sign off] [from your|from the] [newsletter|mailing list|emails]
[please|] [stop|do not|don't] [sending|send] me [your newsletter|newsletters|adverts by email|advertising emails|so many emails]
how [can|do] I [unsubscribe|sign off|stop the newsletter|get rid of the newsletter]?
I [get|receive] too many [emails|newsletters|advertising emails] from you
[please|] [take|remove] me [off|from] [your|the] [mailing list|newsletter|email list]
I [want|would like] to [subscribe to|sign up for|receive|get] [your|the] newsletter
how [can|do] I [subscribe to|sign up for|get] [your|the] newsletter?
[I do not|I don't] [want|read] your [newsletter|weekly email|monthly email|emails] [any more|any longer]
the [unsubscribe|sign off] [link|button] does not work
I [unsubscribed|signed off] [already|weeks ago|twice] but still get [your newsletter|your emails|advertising]
why do I [get|receive] your [newsletter|advertising|emails]?
no more [newsletters|emails|advertising|adverts|advertising mail] please
[do you have|is there] a newsletter [with news and offers|I can get|]?
how often does [the|your] newsletter [come|appear]?
I [stopped getting|no longer get|did not get] [your|the] newsletter [but want it|this month|]
please send [your|the] newsletter to [my new email|my other email|me too]
my inbox is full of your [newsletters|adverts|offers]
# opening hours|other|when the shop is open
from when [on|] are you open [tomorrow|on Monday|in the morning]?
[I want to|can I] come [by|to the store] [tomorrow|at night|this evening|on Saturday], are you [still|] open?
[until|till] what time [can I come|are you there|is the store open] [today|tomorrow|]?
when [are you|do you|is the shop|is your store] [open|opened]?
what are your [opening hours|opening times|hours|business hours]?
[when|what time|at what time] do you [open|close] [today|on Saturday|on Sunday|tomorrow|in the morning|]?
are you open [on|at] [Sundays|Saturdays|Sunday|Christmas|the weekend|holidays|Monday]?
is [the|your] [shop|store] [open|closed] [today|now|tomorrow|on Sunday|on Saturday|on holidays]?
until when are you open [today|tonight|on Friday|]?
how late [are you|is the shop|is your store] open [today|tonight|on Fridays|]?
how long is [the|your] [shop|store] open [today|tonight|on Saturday|]?
[what time|when] does [the|your] [shop|store] [open|close] [today|on Saturday|]?
I [want|would like|plan] to [visit|come to] your [shop|store|branch in {city}], when are you open?
can I come [by|to the shop] [after six|on Sunday|in the evening|at eight]?
opening [hours|times] [on|at] [Saturday|Sunday|the weekend|Christmas] ?
do you close [for lunch|at noon|early on Friday|on holidays]?
[is anybody|is somebody|are you] [there|in the shop] [on Saturday|after five|before nine|on Sunday]?
when can I [visit|come to] [the|your] [shop|store]?
hours of [the|your] [shop|store] [in {city}|] ?
are you [still|already] open [at|after] [six|seven|eight|nine]?
# talk to a human|other|a person to speak to
[could|can] [one of your employees|someone from your team|one of your people] [call|ring] me [back|]?
[your bot|the machine|this chat] does not help me, I want to talk to [them|somebody real|your employees]
I [want|would like|need|wish] to [talk|speak] to [a human|a person|a real person|someone|somebody|an agent|a member of staff]
[can|could|may] I [talk|speak] [to|with] [a human|a real person|somebody|someone|an agent|an employee|your staff]?
[please|] [connect|put] me [through to|with|to] [a human|an agent|a real person|an employee|someone|customer service]
[give me|get me|I want] [a human|an agent|a real person|a person]
[is this|am I talking to] a [robot|machine|bot|computer]?
I [do not|don't] want to [talk|chat|speak] [to|with] a [robot|bot|machine|computer]
[please|can someone|can somebody] call me [back|] [today|on the phone|]
[is there|do you have] a [phone number|number|hotline|person] I can [call|ring|speak to]?
what is your [phone number|telephone number|number]?
how [can|do] I [reach|contact|call] [you|customer service|your team|a person] [by phone|]?
[human|agent|operator|real person] please
this [bot|robot|chat] [does not|doesn't] [understand me|help|help me], I [need|want] a [person|human]
let me [talk|speak] to [your boss|the manager|somebody|a colleague|a human]
I would [rather|like to] [speak|talk] to [a person|someone|a human] [on the phone|]
who can I [talk|speak] to [about this|about my problem|]?
can [somebody|someone|a person|an employee] [help me|call me|answer me] [in person|personally|]?
stop the automatic answers, [I want a person|give me a human|I need somebody real]
# product question|other|to know more about a product
are the {pair} [made of leather|waterproof|in stock|good for winter|washable|made of cotton]?
do you [also|] have [them|the {pair}|the {product}] in [green|blue|size 40|black]?
can I put the {product} in the washing machine?
which of [your|the] [two|three] {products} is [better|best] [for a beginner|for a child|]?
do I [need|have] to buy [a battery|a cable|batteries] [for|with] the {product}?
is the {product} [made of|made from] [leather|wood|cotton|plastic|metal|wool]?
[does|will] the {product} [fit|work] [a child|with my old one|a man|in the rain|for a big family|large feet]?
[do you have|is there|do you sell] the {product} in [red|blue|green|black|white|another colour|size large|a bigger size]?
[how big|how heavy|how long|how wide|how tall|how loud] is the {product}?
what [size|colour|material|weight] is the {product}?
[what colours|what sizes] does the {product} come in?
is the {product} [in stock|available|sold out]?
when will the {product} be [back in stock|available again|back]?
do you [sell|have|stock] {products}?
which {product} [is best|do you recommend|would you choose|is better] [for a child|for a beginner|for winter|for travelling|]?
can I wash the {product} [in the machine|by hand|at sixty degrees]?
is the {product} [waterproof|washable|suitable for children|safe for babies|good for beginners]?
what is the difference between the [two|big and the small|cheap and the expensive] {product}?
does the {product} [come with|need|have] [a battery|batteries|a cable|a charger|a case|a manual]?
[can you tell me more|I have a question|tell me more|I want to know more] about the {product} [in your shop|on your site|before I buy it|]
how do I [use|clean|set up|charge|wash] the {product}?
what is the {product} made of?
I am looking for {a_product} [for my son|for my mother|for the garden|for winter], what do you [have|recommend]?
# complaint|other|to complain about the service
[the man|the woman|your driver|your employee] [shouted at me|shouted at my mother|laughed at me|was so rude], [I want to complain|that is a disgrace|that is unacceptable]
I waited [an hour|forty minutes|for ages] on the phone [and nobody helped|because nobody answered], [what a joke|that is a disgrace|I am angry]
[worst|the worst] [service|shop|company] [ever|I know|of all]
how [can|could] your [staff|employees|drivers] treat [customers|people|me] [like that|so badly]?
I [want|would like|wish|have] to [complain|make a complaint] [about your service|about your staff|about the way I was treated|]
[your|the] [service|customer service|support] is [terrible|awful|a disgrace|very bad|the worst|a joke]
your [staff|employee|driver|colleague|people] [was|were] [so |very |][rude|unfriendly|impolite] to me
I am [very|so|really|extremely] [unhappy|angry|disappointed|annoyed] with your [service|shop|company|staff]
[this|that] is [unacceptable|a disgrace|not acceptable|outrageous], I am [very angry|losing my patience|so disappointed]
[nobody|no one] [answers|replies to|reads] my [emails|messages|calls|letters]
I have [written|called|asked] [three|four|five|ten] times and [nobody answers|nobody helps|no one cares]
how can I [make|file|send] a complaint?
where can I complain [about an employee|about your service|]?
[the driver|your driver|the courier|the man on the phone|the woman in your shop] [was|was so|was very] [rude|unfriendly|shouting at me]
I [will|am going to] never [buy|order|shop] [from you|here|with you] again
I have never [seen|had] such [bad|terrible|awful|poor] service
[what a|this is a] [terrible|bad|horrible] [shop|company|service]
[your|the] [hotline|phone line] kept me waiting for [an hour|forty minutes|ages], [that is unacceptable|what a disgrace]
you [treat|treated] [me|your customers] [badly|like dirt|without respect|very badly]
I am fed up with [you|your shop|your company|your bad service]
[bad|terrible|awful] [experience|treatment] [with your staff|in your shop|on the phone], I am [angry|disappointed|not happy]
# praise|other|to say something nice
[the lady|the man|your driver|your employee] [on the phone|in the shop|] was so [kind|helpful|nice|friendly], [thank her|thank him|please tell them|thank you]
everything [worked|went] perfectly because your [team|staff|shop] is [great|wonderful|so good]
I am so [happy|delighted|pleased] with my [new|] {pair}, they are [beautiful|perfect|wonderful]
[thank you|thanks|many thanks|thank you so much] for [your|the] [great|quick|kind|excellent|wonderful|friendly] [help|service|support|work]
I [just|only|] [want|wanted|would like] to say [thank you|thanks|how happy I am|how good you are]
[great|excellent|wonderful|fantastic|perfect] [service|job|shop|work], [thank you|thanks|well done|keep it up]
I am [very|so|really|extremely] [happy|pleased|satisfied|delighted] with [the {product}|your service|your shop|my order]
[everything|it all] [was|went] [perfect|well|very well|great|smoothly], [thank you|thanks|well done]
your [staff|team|driver|colleague|people] [was|were] [so |very |][kind|helpful|friendly|nice|polite] [to me|]
[you are|you guys are|your team is] [the best|great|wonderful|fantastic|amazing]
I [love|really love|like] [the|my new] {product} [so much|], [thank you|thanks|it is perfect]
[please|] [thank|tell] [your driver|your colleague|the lady on the phone|the man in the shop] [for me|], [she|he] was so [nice|helpful|kind]
[what a|this is a] [great|lovely|wonderful] [shop|company|service]
I will [surely|certainly|gladly|always] [buy|order|shop] [from you|here|with you] again
the {product} is [perfect|wonderful|beautiful|even better than I thought], [thank you|thanks a lot|I am so happy]
[a big|a] [compliment|thank you] to [your team|everybody|the lady on the phone|your staff]
never had such [good|great|friendly|quick] service
[the parcel|my order] came [so quickly|so fast|a day early] [and|,] [everything is perfect|I am delighted|well done]
I [want|would like] to [praise|compliment] your [team|staff|shop|service]
[keep up|keep it up with] the [good|great|excellent] work
I [recommend|will recommend] [you|your shop] to [all my friends|everybody|my family]
"""

PRODUCTS: Final = """
lamp phone jacket coat dress shirt bag backpack book chair table kettle drill watch camera laptop tablet bike tent
hat sweater toaster vase mirror sofa bed carpet pan knife puzzle game printer keyboard clock umbrella mixer speaker suitcase
"""
PAIRS: Final = "shoes boots headphones gloves trousers sandals glasses jeans"
CITIES: Final = "London Paris Rome Berlin Madrid Vienna Oslo Lisbon Dublin Athens Prague Warsaw"
STREETS: Final = "Mill Street|Park Road|Green Lane|Station Road|Church Street|River Road|Garden Street|Hill Lane"
TIMES: Final = (
    "last week|yesterday|on Monday|two weeks ago|ten days ago|a month ago|on Friday|last month|three days ago|on Sunday"
)

GREETINGS: Final = """
[Hello|Hi|Hey|Good morning|Good evening|Good afternoon|Dear team|Hello there|Hi there|Dear shop|Excuse me|Hello everyone]
[Hello|Hi|Hey], [a question|quick question|one question|I have a problem|I need help|please help me]
[Quick question|Question|Help|Please help|I need help|I have a question|Sorry to bother you|One more thing]
""".strip().split("\n")
# What may stand before any message without deciding it.
BACKGROUNDS: Final = """
I [ordered|bought] {a_product} [from you|in your shop|on your site|] {time}.
[My name is|I am|This is] {name}.
My order number is {number}.
[Order|Order number|It is about order|This is about order|Order no.] {number}.
I am [a customer|a regular customer|a new customer|new here|writing] from {city}.
[It is about|This is about|I am writing about] [my order|the {product}|my last order|my purchase].
I [placed|made] an order {time}.
I have [already|] [looked|searched] [on your site|everywhere] but found no answer.
I hope you [can help me|are well|had a nice weekend].
""".strip().split("\n")
THANKS: Final = """
[Thanks|Thank you|Thanks a lot|Many thanks|Thank you in advance|Thanks for your help].
[Please help|Please help me|Please answer|Please let me know|Please reply soon|I hope you can help].
[Best wishes|Regards|Kind regards|Best regards], {name}
[What should I do|What can I do|Can you help|Can you help me|Can somebody help]?
[My order number is|The order number is|It is order] {number}.
""".strip().split("\n")
NAMES: Final = (
    "Anna Ben Clara David Emma Frank Grace Henry Ida Jack Karen Leo Maria Nick Olivia Paul Rosa Sam Tina Victor"
)

# How a message and its label stand on the page: <m> the message, <i> its label.
LAYOUTS: Final = """
[Message|Customer|Email|Request|Customer message|Text|Ticket|User|Query]: <m>\\n[Intent|Topic|Category|Label|Subject]: <i>
Message: <m>\\nIntent: <i>
Message: <m>\\nIntent: <i>
Customer: <m>\\nTopic: <i>
Ticket: <m>\\n[Topic|Category|Label|Tag]: <i>
Message: <m> [Intent|Topic|Label]: <i>
message: <m>\\nintent: <i>
<m>\\n[Intent|Topic|Category|Label]: <i>
<m> => <i>
<m> -> <i>
"<m>" [The topic is|The intent is|This is about] <i>
"<m>"\\n[This message is about|Topic of the message:|The customer writes about|Intent of the customer:] <i>
Q: What [is this message about|is the topic of this message]? <m>\\nA: <i>
Question: What [does the customer want|is this message about|is the intent of this message]? <m>\\nAnswer: <i>
Question: What is the intent? "<m>"\\nAnswer: <i>
Customer: <m>\\n[What does the customer want?|What is this about?|What is the intent?] <i>
Classify the [message|customer's message|request].\\n[Message|Text]: <m>\\n[Intent|Class|Category|Answer|Label]: <i>
[Intent|Topic]: <i>\\n[Message|Customer]: <m>
<i>: <m>
""".strip().split("\n")
DEPARTMENT_LAYOUTS: Final = """
[Customer|Message|Ticket|Email]: <m>\\n[Department|Team|Desk|Send to|Goes to]: <i>
Customer: <m>\\nDepartment: <i>
Ticket: <m>\\nDepartment: <i>
<m>\\n[Department|Team]: <i>
<m>\\nQuestion: Which [department|team] should [answer|help|read this]?\\nAnswer: <i>
Question: Which [department|team] is this message for? <m>\\nAnswer: <i>
Message: <m>\\n[This goes to the department|This is for the department]: <i>
""".strip().split("\n")
CHAT_QUESTIONS: Final = """
What is [this message about|the intent of this message|the topic of this message]?[ |\\n]<m>
[Classify|Label] this message: <m>
[Message|Customer]: <m>[\\nIntent?|\\nIntent:|\\nTopic:]
<m>\\n[What is the intent?|What does the customer want?|What is this about?]
""".strip().split("\n")
# <l>: the labels to choose from.
SYSTEMS: Final = """
[Classify|Label] [the|each] [message|customer message] [as one of|with one of]: <l>.
You [sort|classify|label|read] [customer messages|messages to a shop|tickets]. [Labels|Intents|Topics|The labels are|The intents are]: <l>.
[Choose|Answer with] [one of these labels|one label|one of]: <l>.
Intents: <l>
[Which|What] [intent|topic] is it? <l>
""".strip().split("\n")
LIST_LAYOUTS: Final = """
[Labels|Intents|Topics|Choose from|Possible labels]: <l>\\n[Message|Customer|Text]: <m>\\n[Intent|Label|Topic|Answer]: <i>
[Classify|Label] the message as one of: <l>.\\n[Message|Customer|Text]: <m>\\n[Intent|Label|Topic|Answer]: <i>
[Message|Customer|Text]: <m>\\n[Options|Labels|Choose]: <l>\\n[Intent|Label|Topic|Answer]: <i>
What is this message about: <l>?\\n<m>\\nAnswer: <i>
""".strip().split("\n")
# Answers of a shop that say once more what was wanted.
REPLIES: Final = """
The customer wants <w>.
[This|The message|It] is about <i>. The customer wants <w>.
[I see|All right|I understand], you want <w>.
[You want|So you want] <w>. [One moment, please.|I will help you.|Let me see.]
""".strip().split("\n")
