"""Hand-written texts of the held-out set for extraction, with their values marked.

`<age:34>` is a value to find; `<-age:9>` is a value of the same kind that is not the right one.
"""

from __future__ import annotations

TEXTS = """
After many years abroad, <name:Wendeline Roux>, who is now <age:61>, bought a small house in <city:Porto> and grows roses there. Her son <-name:Cormac> stayed in <-city:Oslo>.
When <name:Thandi> was asked about work, the answer was short: "I am a <job:pilot>, and my home is <city:Nairobi>." Her brother is a <-job:nurse>.
We have a new colleague from <country:Norway>: <name:Ulrika Sand>. She brought her guitar, but her true love is <hobby:sailing>, not <-hobby:skiing>.
The old <job:tailor> next door turned <age:78> on Sunday; his granddaughter is only <-age:9>. Everybody in <city:Krakow> knows him.
<name:Bartek> left <-city:Warsaw> last year and has lived in <city:Lisbon> since then, where he found a job as a <job:waiter>.
Please meet <name:Oona Quist>. At <age:29> she runs a big team of 12 people in <city:Helsinki>, and <hobby:chess> is what she does at night.
Nobody in <country:Japan> had heard of <name:Fenna> before she came there as a <job:dancer> at the age of <age:23>.
The letter was from <name:Quillon Abara>, a <job:lawyer> in <city:Lagos>, and not from <-name:Jovanka Tull>, the <-job:judge>.
"I left <-country:Spain> for <country:Chile> because of my wife," says <name:Emeric>, <age:47>, who teaches children.
In <city:Dublin>, <name:Ysolde>, <age:31>, gets up at 3, for she is a <job:baker>; her friend <-name:Cormac>, a <-job:student>, goes to bed at 2.
Every Saturday <name:Ludo Finn> takes the bus to the lake, because <hobby:fishing> is better than <-hobby:reading>, he says. He is <age:55>.
Born in <-city:Athens> and raised in <-city:Rome>, <name:Kalliope> now calls <city:Toronto> her home; she is <age:38> and works as a <job:surgeon>.
Could you send <quantity:3> more of the <item:kettle> to <customer:Jovanka Tull>? She wants them in <color:red>, not in <-color:silver>.
The <item:violin> from order <order:K4471> has come back, so please set it to <status:returned>. <customer:Ysolde Finch> will get her <price:245> euros back.
<customer:Cormac Dray> called about his <item:bicycle>. The number is <order:58213>, it was <status:delivered> on Monday, but he had asked for <color:blue> and did not get it: it is <-color:green>.
Nobody has paid for <order:B9034> yet. <customer:Thandi Moyo> said that she would use <payment:bank transfer> for the <quantity:8> pieces, not <-payment:cash>.
It is a nice <color:brown> <item:sofa>, and <customer:Bartek Lis> gave <price:399> euros for it, all in <payment:cash>.
For the school we need <quantity:15> <color:yellow> pieces of <item:pencil>, said <customer:Fenna Oxley>. One costs <price:2> euros.
Our customer <customer:Oona Quist> is angry: order <order:T7720> is still <status:delayed>, and her <item:camera> should have come a week ago.
The <item:coat> was too small for <customer:Quillon Abara>, so order <order:ORD-6155> is <status:cancelled> and the <payment:gift card> is good again.
One <color:white> <item:lamp> and no <-item:table>: that is all that <customer:Ulrika Sand> asked for. The bill of <price:64> euros was paid by <payment:card>.
Deep in the forest the <race:elf> <name:Ysmerelda>, a <class:ranger>, put an arrow on her <weapon:bow>. Beside her stood the <-class:knight> <-name:Jaxobar> with his <-weapon:lance>.
"I need my <weapon:hammer>," said the <class:blacksmith>, a <race:dwarf> whom all called <name:Drubbick>. "The <-weapon:staff> is no good."
At level <level:7>, <name:Quorwyn> the <class:paladin> got new <armor:plate> armor and gave the old <-armor:leather> away.
The guards found <gold:85> gold coins and a <weapon:dagger> in the boots of <name:Wexley>, the <race:halfling> <class:thief>.
Once a <-class:soldier>, <name:Bofrick> is a <class:monk> today. He gave away his <-weapon:axe> and walks with a <weapon:staff>.
Nobody believed that <name:Thulwenna> was a <class:wizard>, as she came in <armor:leather> and held a <weapon:wand>. She had <gold:12> gold coins and was at level <level:3>.
With a <weapon:mace> in his hand and a shirt of <armor:chainmail> on his back, the <class:cleric> <name:Fyonn> entered the cave before the <-class:bard> <-name:Ophirra>.
The <race:orc> <name:Umbarello> sold the <-weapon:spear> for <gold:40> gold and bought an <weapon:axe>. He is a <class:mercenary> of level <level:11>.
The <race:gnome> looked small, but <name:Zephrine> was a <class:sorcerer> of level <level:18> and needed no armor but <armor:leather>.
Save the date! On <date:14 May> all friends of <who:Jovanka Tull> meet for a <event:picnic> at the <place:beach>, and not on <-date:15 May>.
The <event:lecture> had to move: it is no longer at <-time:4 pm> but at <time:6 pm>, and <who:Oona Quist> will speak in the <place:library>. Please bring a chair.
Because of rain the <event:garden party> moves from the <-place:city park> to the <place:museum>. It is still on <date:Friday>, says <who:Cormac Dray>.
<who:Thandi Moyo> has got the <place:town hall> for her <event:wedding> in <city:Seville> on <date:2 September>, and the music starts at <time:8 pm>.
From Prague comes good news: the <event:festival> opens on <date:Thursday> and not on <-date:Sunday>, as <who:Bartek Lis> has told us.
If you play, come to the <event:chess tournament> in the <place:hotel> at <time:10 am>. <who:Fenna Oxley> has the list for <date:7 March>.
"""
POOLS = {
    "name": "Hedwig|Osmund|Tamsin|Ignatz|Leopold|Rosalba|Gerwin|Mirabel",
    "age": "19|26|34|42|53|67|72|86",
    "city": "Paris|Madrid|Tokyo|Berlin|Cairo|Boston|Vienna|Sydney",
    "country": "France|Italy|Egypt|Peru|Canada|India|Poland",
    "job": "teacher|doctor|farmer|cook|gardener|actor|sailor",
    "hobby": "painting|swimming|cooking|tennis|dancing|hiking",
    "item": "chair|phone|ring|kite|guitar|shirt|bowl|drum",
    "customer": "Hedwig Stark|Osmund Pike|Tamsin Roe|Ignatz Maar|Leopold Vint",
    "quantity": "4|6|9|11|17|20",
    "color": "black|gray|pink|orange|gold|purple",
    "order": "A1290|37456|M8810|ORD-2304|#9921",
    "status": "new|pending|packed|shipped|open|closed",
    "price": "18|75|120|310|52",
    "payment": "invoice|check|bank transfer|cash|card",
    "class": "hunter|druid|captain|witch|champion|archer|scout",
    "race": "human|elf|dwarf|halfling|gnome|orc",
    "weapon": "sword|knife|rapier|halberd|lance|spear",
    "armor": "plate|leather|chainmail",
    "level": "2|5|9|14|20",
    "gold": "23|67|150|300|410",
    "event": "concert|meeting|market|race|exhibition|dinner|workshop",
    "date": "3 June|21 April|Monday|Wednesday|30 October|Saturday",
    "time": "9 am|3 pm|5 pm|11 am|7 pm",
    "place": "church|castle|school gym|restaurant|train station|harbor",
    "who": "Hedwig Stark|Osmund Pike|Tamsin Roe|Ignatz Maar|Leopold Vint",
}
