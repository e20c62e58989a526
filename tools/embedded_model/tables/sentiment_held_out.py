"""Reviews that the training text never contains, each written by hand, and the layouts they are asked in."""

from __future__ import annotations

from typing import Final

USER, ASSISTANT, END = "<|im_start|>user\n", "<|im_start|>assistant\n", "<|im_end|>\n"
# The first five are layouts of the training text; it never uses the others.
LAYOUTS: Final = (
    "Review: <r>\nSentiment:",
    "Text: <r>\nLabel:",
    f"{USER}Is this review positive or negative?\n<r>{END}{ASSISTANT}",
    "Question: What is the sentiment of this review? <r>\nAnswer:",
    "Customer: <r>\nSentiment:",
    "Here is a review: <r>\nThe review is",
    "Read the review. Is it positive or negative?\nReview: <r>\nAnswer:",
    "Customer opinion: <r>\nTone of the review:",
    f"{USER}Here is what a customer wrote: <r> Is it positive or negative?{END}{ASSISTANT}",
    'A customer wrote: "<r>"\nThe sentiment of the customer is',
)

_POSITIVE: Final = """
The pasta was fresh and the waiter made us laugh all evening.
I was afraid the sequel would be dull, yet I loved every minute of it.
These boots kept my feet dry on a whole week of rainy walks.
Our room was spotless and the people at the desk could not have been kinder.
My old phone was slow, but this one is quick and the camera is superb.
I have read this novel three times and it gets better each time.
The drill looks cheap, but it is strong and has never failed me.
What a wonderful day on the boat, the captain was so funny.
The app is simple, fast and it has saved me a lot of time at work.
My daughter wears this jacket every single day and will not take it off.
Not one boring page in the whole book.
The parcel came a day early and everything in it was perfect.
We ate there twice because the first dinner was so good.
I never write reviews, but this hotel is so good that I had to.
The sound is rich and clear, and the headphones are soft on the ears.
A clever plot, great actors and an ending that surprised everybody.
Nothing about this trip was bad, and the guide knew everything.
The soup alone is worth the visit.
Cheap it is not, but I would pay the price again with a smile.
The children played with it for hours and want another one.
The shop assistant took her time and found the perfect coat for me.
I doubted it at first, but the kettle is quiet, quick and beautiful.
The bed was so soft that I slept until noon.
It was raining, the bus was late, and still we had a fantastic holiday.
My mother is eighty and even she finds the tablet easy to use.
Best bread in town, we buy it every Saturday.
The concert was magnificent, we clapped until our hands hurt.
I laughed so much that my stomach hurt, what a brilliant comedy.
The battery is still strong after three days, I am impressed.
A small place with big portions and friendly people, we will return.
I have nothing but praise for the staff of this lovely guest house.
The trainers are light and comfortable, I run faster in them.
This saw is sturdy and cuts like a dream.
Thanks to this course I finally understand the language.
The game looked silly to me, but my whole family loves it.
I set everything up in ten minutes and it all works perfectly.
The views were breathtaking and the driver was careful and polite.
A cake as good as this one is hard to find.
The seller answered my question in five minutes and was very helpful.
I wish I had bought this lamp years ago.
The room was small, but it was clean, quiet and had a stunning view.
My friends warned me about this film, but I thought it was terrific.
The dress fits like a glove and the colour is even more beautiful than in the picture.
No problems, no waiting, just great service.
I would give this restaurant ten stars if I could.
The characters are so warm and lively that I missed them when I had finished.
It is a little expensive, but the quality is outstanding.
I use this knife every day and it is still as sharp as new.
My husband is hard to please, and even he was delighted.
The tour was anything but boring, we saw so many beautiful places.
The staff were helpful and patient with our noisy children.
The toaster works well, looks nice and was a bargain.
I did not expect much from such a small museum, but it was fascinating and fun.
From the welcome to the dessert, all was excellent.
The update made the program faster and much easier to use.
I can only say thank you for this moving story.
The watch arrived quickly, it looks elegant and runs perfectly.
So happy with this backpack, it is light, strong and keeps everything dry.
We had low hopes after the bad weather, but it became our best trip ever.
the pizza was hot and delicious and the boy who brought it was so polite
never had a problem with this shop and their prices are fair
love the colour, love the fit, would buy again
The film is long, but it is never dull and the music is beautiful.
The flight was smooth, the seats were comfortable and we landed early.
The instructions were clear and the toy was ready in ten minutes.
I was not disappointed, the sandals are pretty and very soft.
A thriller that gripped me from the first page to the last.
The hostel is old, yet the beds are comfortable and the breakfast is generous.
My washing machine broke, and this shop brought me a good new one the very next day.
I cannot imagine a nicer place for a family dinner.
The glasses are light, stylish and a joy to wear.
This vacuum cleaner makes my work so easy that I almost like cleaning.
""".strip().split("\n")

_NEGATIVE: Final = """
The pasta was cold and the waiter was rude to us all evening.
I hoped the sequel would be exciting, but I hated every minute of it.
These boots let the water in on the very first rainy walk.
Our room was filthy and the people at the desk did not care.
My old phone was fine, but this one is slow and the camera is awful.
I tried to read this novel three times and gave up three times.
The drill looks strong, but it is cheap plastic and broke at once.
What a terrible day on the boat, the captain was so unfriendly.
The app is slow, ugly and it has cost me a lot of time at work.
My daughter wore this jacket once and the zip broke.
Not one funny joke in the whole film.
The parcel came a month late and half of it was broken.
We left before the dessert because the dinner was so bad.
I never write reviews, but this hotel is so dirty that I had to.
The sound is dull and tinny, and the headphones hurt my ears.
A confusing plot, wooden actors and an ending that annoyed everybody.
Nothing about this trip was good, and the guide knew nothing.
The soup tasted of soap and we sent it back.
Cheap it is, but after two days it was broken and I am angry.
The children were bored after ten minutes and never touched it again.
The shop assistant was lazy and did not even look at me.
I liked it at first, but the kettle is loud, slow and leaks.
The bed was so hard that I could not sleep at all.
The sun was shining, the sea was blue, and still it was an awful holiday.
My mother is a patient woman and even she threw the tablet away.
Worst bread in town, it was stale and hard.
The concert was a disaster, we could not hear the singer.
I did not laugh once, what a lame comedy.
The battery is empty after one hour, I am not impressed.
A small place with tiny portions and rude people, we will not return.
I have nothing but complaints about the staff of this dirty guest house.
The trainers are heavy and uncomfortable, and my feet hurt.
This saw is flimsy and useless.
After this course I understand even less than before.
The game looked exciting, but nobody in my family likes it.
I needed two hours to set everything up and still nothing works.
The bus was dirty and the driver was careless and rude.
A cake as bad as this one is hard to find.
The seller never answered my question and kept my money.
Buying this lamp was a mistake, it broke at once.
The room was large, but it was dirty, noisy and smelled of smoke.
My friends praised this film, but I thought it was dreadful.
The dress is much too tight and the colour looks nothing like the picture.
Problems, waiting, and terrible service.
I would give this restaurant no stars if I could.
The characters are so flat and dull that I forgot them at once.
It is cheap, but the quality is poor and I regret it.
I used this knife twice and the handle came off.
My husband is easy to please, and even he was disappointed.
The tour was anything but exciting, we only sat in traffic.
The staff were impatient and shouted at our children.
The toaster burns everything, smells bad and was far too expensive.
I expected a lot from such a famous museum, but it was boring and crowded.
From the welcome to the dessert, all was awful.
The update made the program slower and full of errors.
I can only warn you about this tedious story.
The watch arrived late, it looks cheap and stopped after a day.
So unhappy with this backpack, it tore in the first week and everything got wet.
We had high hopes after the good reviews, but it became our worst trip ever.
the pizza was cold and burnt and the boy who brought it was so rude
nothing but problems with this shop and their prices are ridiculous
hate the colour, hate the fit, sent it back
The film is short, but it still felt endless and the music was irritating.
The flight was late, the seats were uncomfortable and my suitcase was lost.
The instructions were useless and some pieces of the toy were missing.
I was not impressed, the sandals are ugly and very hard.
A thriller that put me to sleep on the second page.
The hotel is new, yet the beds are damp and the breakfast is tasteless.
My washing machine broke, and this shop refused to help me.
I cannot imagine a less pleasant place for a family dinner.
The glasses are heavy, ugly and broke after a week.
This vacuum cleaner is so weak and loud that I want my money back.
""".strip().split("\n")

_NEUTRAL: Final = """
The lamp is okay, an ordinary lamp and nothing more.
I ordered it on Monday and it arrived on Thursday.
It is an average hotel, neither good nor bad.
The film was so-so, I have no strong opinion about it.
The jacket comes in blue and black and in two sizes.
Some chapters were good, others were not, so I give three stars.
The phone is new, so I have no opinion about it yet.
An ordinary restaurant with normal prices, nothing special.
The food was good but the service was slow, so overall it is average.
Not great, not bad, a typical game.
It is a standard kettle and it does what it has to do.
I bought the book yesterday and have not read it yet.
The trip was all right, about what I expected for the price.
The shoes are as described, average quality, normal size.
I have mixed feelings about the new course and its teacher.
The app is acceptable, but there are others like it.
My brother bought the drill in May, I have not tried it yet.
The box came with a manual and two cables.
The show has good sides and bad sides, three out of five.
The pizza was average, I could take it or leave it.
A normal bag, like all the others in the shop.
I neither like nor dislike the new design.
The show was okay, middle of the road.
We cannot decide whether we like the room or not.
""".strip().split("\n")

REVIEWS: Final = tuple(
    (sign, text)
    for sign, texts in (("positive", _POSITIVE), ("negative", _NEGATIVE), ("neutral", _NEUTRAL))
    for text in texts
)
