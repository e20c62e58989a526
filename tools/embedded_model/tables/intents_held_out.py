"""Messages of customers that the training text never contains, each written by hand, and the layouts they are asked in."""

from __future__ import annotations

from typing import Final

USER, ASSISTANT, END = "<|im_start|>user\n", "<|im_start|>assistant\n", "<|im_end|>\n"
# The first four are layouts of the training text; it never uses the others.
LAYOUTS: Final = (
    "Message: <m>\nIntent:",
    "Ticket: <m>\nTopic:",
    f"{USER}What is this message about?\n<m>{END}{ASSISTANT}",
    "Customer: <m>\nWhat does the customer want?",
    "Customer message: <m>\nTopic of this message:",
    "A customer writes: <m>\nThe topic is:",
    "Read the message.\nMessage: <m>\nWhat is the intent? Answer:",
    f"{USER}A customer writes: <m>\nWhat does the customer want?{END}{ASSISTANT}",
)
DEPARTMENT_LAYOUTS: Final = (
    "Customer: <m>\nDepartment:",
    "Read the message.\nMessage: <m>\nDepartment:",
    "A customer writes: <m>\nDepartment:",
)

_TEXT: Final = """
# track order
My boots were sent ten days ago and still nobody has brought them. Where are they?
Could you look up where the parcel with my lamp is at the moment?
Has the order I placed on Monday already left your warehouse?
i am still waiting for my delivery, is it lost?
The tracking page says nothing new since Friday. Where is my parcel?
Two weeks have gone by and I see no tent. What happened to my parcel?
Can I see somewhere how far my package has come?
# cancel order
I no longer want the sofa I ordered this morning, please stop the order.
Sorry, my little son bought a camera by accident. Can the order be cancelled?
Please do not ship order 5521, I found the same watch elsewhere.
can i still cancel what i ordered yesterday
I pressed buy too fast. How do I cancel it?
I have changed my mind, so please cancel the order for the bed.
Is there still time to call off my order? I do not need the drill any more.
# change order
Could you add one more pillow to the order that I made today?
I would like my coat in blue and not in black, can you change that before it ships?
I would like to keep the coat in my order but remove the hat.
i ordered size small but need large, it is not sent yet, can you switch it
Last night I ordered a bed, now I need a bigger one. Can my order be modified?
I forgot the gloves, please put them in my order too.
Please make it three chairs and not two in my order.
# refund
When will the money for the shoes that I sent back be on my account?
I am not satisfied with the kettle and I want all my money back.
You promised me a refund three weeks ago and I have seen nothing.
i want my money back, the watch is not what i hoped for
Please pay the full price back to my card.
Only a part of the refund has come, you still owe me 20 euros.
Please give me a refund, the tent was cancelled days ago.
# return item
The jeans are too tight, how can I send them back to you?
Where do I find the label for sending back my lamp?
The jacket looks bad on me, so I want to return it.
do i have to pay when i send something back
Do your shops take back a vase that I bought on your site?
How many days do I have if I want to give the dress back?
My new boots are too big, may I send them back for another size?
# change address
We moved house last week, so please send my order to our new flat.
I typed the wrong house number when I ordered, can you correct it?
Could the driver bring the parcel to my office and not to my home?
how do i update where my parcel should go, i live in another town now
The postcode in my order is not right, it must be 40213.
You have my old street, I live at 12 Lake Road now.
Please deliver the sofa to my mother and not to my address.
# delivery time
If I buy the tent tonight, will it be here before the weekend?
How many days do I usually wait until a parcel gets to Prague?
Do your drivers also deliver on Saturday?
i need a dress by friday, can you deliver that fast
I want to buy a laptop today. On which day would it arrive?
Is there an express delivery for the next day?
How long is a bike on its way when you ship it abroad?
# shipping cost
Sending a sofa to Vienna, how much would that cost me?
Do I get free shipping when I order two books?
how expensive is the postage for one small lamp
Why do you charge so much for delivery?
From which sum on do I pay nothing for shipping?
Are there extra fees if you deliver to another country, and how much?
Is the delivery already included in the price or does it cost extra?
# missing item
There were only three plates in the box, but I paid for four.
I ordered a hat and gloves, but the gloves were not in the box.
The printer came without its cable.
i got my order but half of it is not there
One of my two books was not in the package.
The screws for the table are missing, please send them.
My parcel is not complete, the hat is missing.
# wrong item
I wanted a red coat, but the one in the parcel is green.
You sent me a book in place of the lamp that I ordered.
There is a toaster in my parcel and I never ordered one.
i ordered size 40 and got size 44
I think you mixed up the parcels, these are another person's things.
These are not the shoes I picked, you delivered another model.
The wrong camera was in the box.
# damaged item
I just unpacked my mirror and saw a crack in the glass.
When I unpacked the lamp, the glass was smashed.
One leg of the table was broken when your driver brought it.
parcel was wet and the book inside is damaged
The vase was in pieces when I opened the package.
The driver dropped my parcel and the clock inside broke.
There is a big hole in the sweater that was delivered today.
# warranty
My laptop died after ten months, is it still covered by the guarantee?
For how many years do I have a guarantee if I buy this drill?
My watch died after eight months. Do you repair that for free?
does the warranty pay for a broken screen
Where is the guarantee card of my washing machine?
In which month does the guarantee of my camera end?
I bought a kettle here a year ago, now it is dead and I want to use my guarantee.
# payment failed
Your site refused my credit card twice, although there is enough money on it.
I tried to pay for the tent, but I only get an error.
The money was taken from my bank, but my order is still marked as unpaid.
paying does not work, it always says card declined
Why was my transfer rejected when I wanted to pay?
You have charged my card two times for the same chair.
At checkout I get a payment error and cannot go on.
# payment methods
Which cards can I use in your shop?
Is it okay to pay the driver in cash?
How can somebody without a credit card pay for an order?
can i pay for the sofa in monthly parts
Do you also take cheques or only bank transfers?
Is it all right if I first get the parcel and pay later?
Tell me please how one can pay in your shop.
# invoice
I bought the printer for my company, so please send us an invoice.
I cannot find the receipt for my last purchase, please send a copy.
The name on the invoice is not right, please correct it.
where do i download the bill for order 3390
For my tax I need a proof of the purchase.
I have the shoes but no bill, can you print one for me?
Would you send the invoice again to my boss?
# discount code
I typed in my coupon, but the price stayed the same.
Your site says that my promo code is not valid.
Do students get a discount in your shop?
where can i type the code for 20 percent off
I was promised ten percent off, but I had to pay the full price.
My voucher code is rejected each time, can you give me another code?
Can new customers get a code that makes the first order cheaper?
# gift card
I am looking for a present for my sister and thought of a gift card from your shop.
How much money do I still have on my gift card?
For Christmas I was given a gift card, where do I enter its number?
gift card code cannot be read, what now
Is the gift card from last year still valid?
Do you have gift cards for 50 euros?
I have two gift cards, can I use both for one order?
# reset password
I don't know my password any more, please send me a new one.
The link to reset the password shows only an error.
How can I choose another password? I have lost the old one.
forgot my password again, help
I asked for a new password, but got no email with a link.
Please reset the password of my account, I can't remember it.
Somebody may know my password, so I need to change it.
# login problem
Since this morning I can't sign in to my account, although my password is right.
The login button does nothing when I press it.
I am locked out, the page says that my account is blocked.
cant get into my account, it always throws me out
Each time I want to log in, I see an error.
The code for signing in never arrives on my phone.
Help, the app says user not found when I try to log in.
# close account
As I never buy anything from you, you can delete my account.
Please erase my profile and all my data.
Where is the button that deletes my account?
i want to stop being a member, delete everything
I don't use my account any longer and want to have it closed.
What must I do to close the account of my father?
Could you delete the old one of my two accounts?
# newsletter
Your emails with offers fill my inbox, please take me off the list.
I signed off three weeks ago, but I still receive the newsletter.
I would like to read your newsletter, where do I sign up?
stop sending me these weekly emails please
The link to unsubscribe at the end of your email is broken.
I did not receive the newsletter this week, but I like reading it.
Please send me no more advertising by email.
# opening hours
On Friday I work until six, will the shop still be open then?
Is your shop in Berlin open on Sunday?
I want to come by tomorrow morning, from when on are you open?
is the store open between christmas and new year
Until what time can I come to the store today?
Do you close the shop at noon?
What are the hours of your store on the weekend?
# talk to a human
This bot does not help me, let me talk to somebody real.
Which number can I call to speak with your staff?
Please connect me with one of your employees.
are you a machine? i want a person
I want a call from a real person this afternoon.
Can you put the manager on the phone? I must speak to him.
I don't want automatic answers, I want to talk to a human.
# product question
Is this backpack waterproof, and what is it made of?
I like the lamp, but is there a green one?
How heavy is the small tent?
how do i wash the wool sweater
I have never used a drill. Which one do you recommend?
Does the camera come with a battery or do I need to buy one?
When do you have the blue coat in stock again?
# complaint
The man at your hotline shouted at me, that is a disgrace.
I have written five emails and nobody answers, I am really angry.
Your driver was very rude to my mother and I want to complain.
worst service ever, i will never buy here again
It is unacceptable how your staff treats customers.
To whom can I send a complaint about your shop assistant?
I waited an hour on the phone, your customer service is a joke.
# praise
The lady on the phone was so kind and helpful, please thank her.
I am delighted with my new bike, thank you so much!
Wonderful shop, all went well from the order to the delivery.
great job, fast and friendly, thanks
I only wanted to tell you how happy I am with your service.
My order came a day early and the coat is beautiful, well done!
A big compliment to your team, I will gladly order again.
"""


def _parse(text: str) -> tuple[tuple[str, str], ...]:
    """Pairs of an intent and a message."""
    pairs, name = [], ""
    for line in text.strip().split("\n"):
        if line.startswith("# "):
            name = line[2:]
        else:
            pairs.append((name, line))
    return tuple(pairs)


MESSAGES: Final = _parse(_TEXT)
