"""Choose a tool and its arguments: one template with a branch for each tool.

    python examples/route_tools.py [model.gguf]

The options of the first slot are pairs: the label that the model reads, and the name of the tool that the program gets. Chat
turns before the message show it an example of each label, without which small models choose the first label too often. The
template (`templates/tools.tmpl`) then asks for the arguments that this tool needs, and for no others.
"""

from __future__ import annotations

import sys
from pathlib import Path

import selectrie

ROUTER = selectrie.Template.from_file(Path(__file__).parent / "templates" / "tools.tmpl")
TOOLS = [
    ("track order", "orders.track"),
    ("cancel order", "orders.cancel"),
    ("opening hours", "shop.hours"),
    ("talk to a human", "desk.call"),
]
EXAMPLES = [
    ("Where is my order?", "track order"),
    ("I want to cancel.", "cancel order"),
    ("When do you open?", "opening hours"),
    ("Let me talk to somebody.", "talk to a human"),
]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MESSAGES = [
    "My parcel has not come yet. Where is it? The order number is 70421.",
    "Please cancel my order, I changed my mind. The order number is A2096.",
    "Are you open on Sunday?",
    "Can I speak to a real person please?",
]


def main() -> None:
    with selectrie.load(*sys.argv[1:2]) as llm:
        for message in MESSAGES:
            page = llm.render(ROUTER, message=message, tools=TOOLS, examples=EXAMPLES, days=DAYS)
            arguments = ", ".join(f"{name}={page[name]!r}" for name in ("order", "day") if name in page.values)
            print(f"{message}\n  {page['tool']}({arguments})")


if __name__ == "__main__":
    main()
