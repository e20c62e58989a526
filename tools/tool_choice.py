"""Does a model call a tool where one is needed, and only there? `python tools/tool_choice.py MODEL`.

MODEL is a GGUF file, or `embedded`. It may call five tools, and 40 messages are sent: 20 need one of the tools, 20 none.
Each line has the tool that is needed, the one that `tool_choice="auto"` decides for, the probability of no call, and how the
model's own most probable text begins. The last line counts the right decisions, and the messages without need of a tool
where that text begins as a call.
"""

import argparse
import asyncio
from contextlib import closing

import selectrie
from selectrie import PromptParams
from selectrie.core.tracked_text import TrackedText
from selectrie.results.advice import collected_warnings
from selectrie.server.fields.tools import MAX_CALLS, Function, ToolSet
from selectrie.server.generation.call_syntax import call_syntax, write_chat
from selectrie.server.generation.tool_turn import SPELLINGS, ToolChooser, ToolDecision
from selectrie.server.transport.request_context import Exchange

TOOLS = {
    "get_weather": ("Get the current weather in a city.", ("city",)),
    "get_time": ("Get the current local time in a city.", ("city",)),
    "send_email": ("Send an email.", ("to", "subject", "body")),
    "search_flights": ("Search for flights between two cities on a date.", ("origin", "destination", "date")),
    "set_alarm": ("Set an alarm on the user's phone.", ("time",)),
}
NEEDED = {
    "What is the weather in Paris right now?": "get_weather",
    "Is it raining in Tokyo?": "get_weather",
    "How warm is it in Madrid today?": "get_weather",
    "Do I need an umbrella in London?": "get_weather",
    "Weather in Cairo?": "get_weather",
    "Current temperature in Oslo": "get_weather",
    "What is the weather in Paris and in Rome?": "get_weather",
    "What time is it in New York?": "get_time",
    "Tell me the current time in Sydney.": "get_time",
    "Is it already evening in Berlin?": "get_time",
    "Email bob@example.com that the meeting is moved to Friday.": "send_email",
    "Write an email to anna@example.com with the subject 'Lunch' and ask whether she is free.": "send_email",
    "Let my boss (boss@example.com) know by mail that I am sick today.": "send_email",
    "Please mail tom@example.com: dinner at eight.": "send_email",
    "Find flights from Rome to Oslo on May 3.": "search_flights",
    "I want to fly from Boston to Chicago tomorrow.": "search_flights",
    "Which planes go from Vienna to Lisbon on 12 June 2026?": "search_flights",
    "Wake me at 7 am.": "set_alarm",
    "Set an alarm for 6:30 tomorrow morning.": "set_alarm",
    "I need to get up at five, please set the alarm.": "set_alarm",
}
NOT_NEEDED = [
    "Hello!",
    "Thank you, that was helpful.",
    "What is 2 + 2?",
    "Who wrote Romeo and Juliet?",
    "Translate 'good morning' to French.",
    "Write a haiku about autumn.",
    "Explain what a hash table is.",
    "What is the capital of Australia?",
    "How do I reverse a list in Python?",
    "Tell me a joke.",
    "What does the word 'ephemeral' mean?",
    "Give me three names for a cat.",
    "How many legs does a spider have?",
    "Summarize: The cat sat on the mat. It was warm.",
    "Why is the sky blue?",
    "Write a SQL query that counts the rows of table users.",
    "Good night.",
    "What is the square root of 144?",
    "Return JSON with the keys name and age for Bob, who is 42.",
    "Give me an example of a JSON object that describes a person.",
]


MAX_ROWS = 10_000
"""Maximum number of rows of a decision: more than all names in all spellings need."""


def declared() -> ToolSet:
    """Return the five tools."""
    functions = []
    for name, (description, parameters) in TOOLS.items():
        properties = {one: {"type": "string"} for one in parameters}
        schema = {"type": "object", "properties": properties, "required": list(parameters)}
        functions.append(Function(name, name, description, schema))
    return ToolSet(functions, {one.name: one.arguments() for one in functions}, is_required=False, max_calls=MAX_CALLS)


def decide(llm: selectrie.Engine, tools: ToolSet, message: str) -> tuple[ToolDecision, str]:
    """Return the decision for a message of a user, and how the model's own text begins."""
    chat = [{"role": "user", "content": message}]
    messages, prompting = write_chat(llm.vocabulary, chat, PromptParams(), tools.definitions())
    chooser = ToolChooser(Exchange(message, ""), llm, messages, prompting, tools, max_rows=MAX_ROWS)
    with collected_warnings():  # that calls are not what the model expects
        decision = asyncio.run(chooser.decide(TrackedText(""), chooser.syntax.opening, SPELLINGS))
    own = llm.generate(messages, prompting=prompting, temperature=0, max_tokens=12).text
    return decision, own


def begins_call(llm: selectrie.Engine, text: str) -> bool:
    """Return whether a text begins as a call in any spelling."""
    openings = (call_syntax(llm.vocabulary).opening, *SPELLINGS)
    return any(text.startswith(one) for one in openings)


def main() -> None:
    """Decide for each message, and print the decisions."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--precision", default="fast", choices=("fast", "exact"))
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    source = None if given.model == "embedded" else given.model
    tools, right, named, own_calls = declared(), {True: 0, False: 0}, 0, 0
    with closing(selectrie.load(source, precision=given.precision, n_threads=given.threads)) as llm:
        for message, needed in [*NEEDED.items(), *((one, None) for one in NOT_NEEDED)]:
            decision, own = decide(llm, tools, message)
            right[needed is not None] += (decision.name is None) == (needed is None)
            named += needed is not None and decision.name == needed
            own_calls += needed is None and begins_call(llm, own)
            print(
                f"{needed!s:15} {decision.name!s:15} {decision.no_call:.3f}  {message[:50]:50} {own[:40]!r}", flush=True
            )
    print(
        f"called where needed {right[True]} of {len(NEEDED)} ({named} the right tool); no call where none is needed "
        f"{right[False]} of {len(NOT_NEEDED)}; there the model's own text begins as a call {own_calls} times"
    )


if __name__ == "__main__":
    main()
