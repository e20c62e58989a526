"""Let the model write records that parse, and see how sure it is of them.

    python examples/write_record.py [model.gguf]

The grammar `rpg-character` says what a record looks like: its keys, their order, which classes and armors there are. The
model fills it in. Beam search compares whole records, so a field is chosen for what it leads to as well. For one
field the search can be exact: there the answer is proved to be the most probable text.
"""

from __future__ import annotations

import json
import math
import sys

import selectrie
from selectrie import BeamSearchParams, Grammar, PromptParams

PROMPT = "The following is a character profile for an RPG game in JSON format.\n"
ARMORS = Grammar.from_choices(["leather", "chainmail", "plate"], name="armors")
ITEMS = Grammar.from_gbnf('root ::= word (", " word)*\nword ::= [a-z]{3,12} (" " [a-z]{3,12})?', name="items")


def main() -> None:
    with selectrie.load(*sys.argv[1:2]) as llm:
        found = llm.beam_search(
            PROMPT, Grammar.load("rpg-character"), beam=BeamSearchParams(width=3, n=2, max_tokens=200)
        )
        for text in found:
            record = json.loads(text.text)
            print(f"{record['name']}, {record['age']} ({record['race']} {record['class']}, level {record['level']})")
            print(f"  wears {record['armor']}, carries {record['weapon']} and {', '.join(record['items'])}")
            print(f"  logp {text.logp:.2f}, {text.logp / len(text.tokens):.2f} a token, {len(text.tokens)} tokens")
        print(f"masked greedy decoding would have written the first: {found.agrees_with_greedy}")

        prompting = PromptParams(delimiter=" ")
        for role in ("knight", "thief", "warrior"):
            armor = llm.select(f"Class: {role}\nArmor:", grammar=ARMORS, prompting=prompting)
            print(f"armor of a {role}: {armor.text} (p {armor.probability:.2f} of {len(armor.choices)})")

        exact = BeamSearchParams(exact=True, max_tokens=24, budget_nodes=300)
        items = llm.beam_search("Class: ranger\nItems:", ITEMS, beam=exact, prompting=prompting)
        proved = "proved to be the most probable" if items.certificate.proved else "the best found so far"
        print(f"items of a ranger: {items.text!r}, p {math.exp(items.logp):.2g}, {proved}")


if __name__ == "__main__":
    main()
