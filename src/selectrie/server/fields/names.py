"""Finds the field of a request that an unknown name stands for."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from selectrie.options.arguments import SAME

_STAND_INS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("choices", "labels"), ("structured_outputs", "guided_choice", "questions")),
    **dict.fromkeys(("regex", "pattern"), ("structured_outputs", "guided_regex")),
    **dict.fromkeys(("grammar", "gbnf"), ("structured_outputs", "guided_grammar")),
    **dict.fromkeys(("json_schema", "response_model"), ("response_format", "schema")),
}
"""Fields that do what an argument of the Python API does; the first one is named."""
_DECIDING = (
    *("calibration", "delimiter", "following", "layout", "min_confidence", "min_label_mass", "multi_label"),
    *("permutations", "prior", "rule", "scoring", "terminator", "threshold"),
)
"""Arguments of the Python API that change answers, and that no other API has."""
_OF_OTHERS = frozenset({"models"})
"""Fields of other servers that resemble a field here and mean something else."""
_LEAST_RATIO = 0.9
"""Similarity from which a name is taken as a mistake for another one.

"temprature" and "temperature" have 0.95, "return_tokens" and "return_token_ids" 0.9.
"""
_MAX_LENGTH = 40
_MAX_COMPARED = 100
"""Maximum number of names that are compared with all fields."""


def advice_on_names(names: Collection[str], known: Collection[str]) -> tuple[str, str] | None:
    """Return the first unknown name that stands for a field, and what to write.

    Such a name differs from a field by a letter or two or by its way of writing, is
    what another library calls the field, or is an argument of the Python API that
    changes answers. None means that all names may be ignored.
    """
    plain = {_plain(field): field for field in known}
    for index, name in enumerate(names):
        if len(name) > _MAX_LENGTH or name in _OF_OTHERS:
            continue
        meant = plain.get(_plain(name)) or SAME.get(name)
        if meant not in known and index < _MAX_COMPARED:
            meant = next((one for one in get_close_matches(name, known, 1, _LEAST_RATIO) if one[0] == name[0]), None)
        if meant in known:
            return name, f"did you mean {meant}?"
        stand_in = next((one for one in _STAND_INS.get(name, ()) if one in known), None)
        if stand_in is not None:
            return name, f"give {stand_in} in its place"
        if name in _DECIDING:
            return name, "it is an argument of the Python API that this endpoint does not have; leave it out"
    return None


def _plain(name: str) -> str:
    """Return a name without the ways of writing it: "topP" and "top-p" are "top_p"."""
    return name.replace("_", "").replace("-", "").lower()
