"""The tables of the corpus: their format, and errors that name file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedded_model import tables
from embedded_model.tables import cells, patterns, read
from embedded_model.topics import stories

FOLDER = Path(tables.__file__).parent
TABLE = r"""# What the file is about.

== fruits
# name|colours
apple|[red|green]
plum|blue

pear|green or\nyellow
== words
one two
three
"""


def table(folder: Path, text: str) -> dict[str, tables.Section]:
    """The sections of a file `t.txt` with the text."""
    (folder / "t.txt").write_text(text, encoding="utf-8")
    read.cache_clear()
    return read("t", folder)


def test_a_file_is_sections_of_entries(tmp_path):
    """Comments and blank lines are left out; a blank line divides blocks; backslash and n are a line break."""
    sections = table(tmp_path, TABLE)
    assert sections == {
        "fruits": ["apple|[red|green]", "plum|blue", "pear|green or\nyellow"],
        "words": ["one two", "three"],
    }
    assert sections["fruits"].blocks == [["apple|[red|green]", "plum|blue"], ["pear|green or\nyellow"]]
    assert sections["fruits"].rows(2) == [["apple", "[red|green]"], ["plum", "blue"], ["pear", "green or\nyellow"]]
    assert sections["words"].words() == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("a", ["a"]),
        ("a|b", ["a", "b"]),
        ("a||", ["a", "", ""]),
        ("[a|b] c|d", ["[a|b] c", "d"]),
        ("[a|b [c|d]|e]|f[|g]", ["[a|b [c|d]|e]", "f[|g]"]),
    ],
)
def test_cells_end_at_bars_outside_brackets(entry, expected):
    """The bars inside brackets separate alternatives, however deep."""
    assert cells(entry) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nan entry\n", "t.txt:2: write a line `== title` before the first entry"),
        ("== a\nx\n== a\ny\n", "t.txt:3: there is a section 'a' already"),
        ("== a\nx\n== b\n# y\n", "t.txt:3: the section has no entry"),
        ("== a\nx \n", "t.txt:2: remove the blank at the beginning or the end of the line"),
        ("== a\n[x|y\n", "t.txt:2: a bracket is not closed or not opened: [x|y"),
    ],
)
def test_an_error_names_file_and_line(tmp_path, text, message):
    """So that an editor can go there."""
    with pytest.raises(ValueError) as caught:
        table(tmp_path, text)
    assert str(caught.value) == message


def test_a_row_of_another_length_is_named(tmp_path):
    """With the cells found and the cells expected."""
    section = table(tmp_path, "== a\nx|y\n# z\n[x|y]\n")["a"]
    with pytest.raises(ValueError, match=r"^t.txt:4: found 1 cells between bars, expected 2$"):
        section.rows(2)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_every_table_is_read_by_the_module_that_its_head_names(path):
    """A file begins with what it holds and who reads it, and that module names it."""
    head = path.read_text(encoding="utf-8").partition("\n\n")[0]
    readers = [word.strip("`.,") for word in head.split() if ".py" in word]
    assert readers
    assert all(f'"{path.stem}"' in (FOLDER.parent / reader).read_text(encoding="utf-8") for reader in readers)


def test_the_patterns_of_a_relation_are_its_sections_by_field():
    """Of all sections of the file, those that begin with its name."""
    found = patterns("numbers", "add")
    assert list(found) == ["questions", "statements", "keys", "reverse", "held_questions", "held_statements"]
    assert all(isinstance(entries, tuple) for entries in found.values())
    assert patterns("numbers", "none") == {}


def test_a_plot_is_a_section_and_a_slot_is_a_block():
    """The first plot by hand: what it suits, what it draws, how often it goes on."""
    plot = stories.plots("story_plots")[0]
    assert (plot.name, plot.suits) == ("lost", ("child", "animal", "villager", "robot"))
    assert [names for names, _ in plot.drawn] == [("o",)]
    assert all(len(ways) > 1 for ways in plot.slots)
