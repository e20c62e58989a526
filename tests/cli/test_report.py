"""Reports: what a person sees at 80 columns, and what a program reads."""

from __future__ import annotations

import io
import json
import math
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import RenderableType

from selectrie.cli import show
from selectrie.cli.report import results, summaries, terminal
from selectrie.cli.report.terminal import Units
from selectrie.results import Certificate, Spellings, TokenScore
from tests.support.answers import (
    ARMOUR,
    COST,
    PROVED,
    SIGNATURE,
    ChoiceScores,
    answer,
    armour,
    plan,
    text_score,
    unlikely,
)
from tests.support.n_examples import n_examples


def shown(report: RenderableType, width: int = 80) -> str:
    """A report as it is written to a file."""
    file = io.StringIO()
    terminal.show(report, file, width=width)
    return file.getvalue()


class Tty(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_selection_at_eighty_columns():
    """The ranking with bars first: 24 cells are one. Proof and cost are explained on request."""
    ranking = """\
#  choice                                     p    logp  margin
1  ' leather'    ███████████▎              47 %  -0.916
2  ' chain'      ███████                   29 %  -1.386  -0.470
3  ' chainmail'  ██▉                       12 %  -2.303  -1.386
4  ' plate'      ██▉                       12 %  -2.303  -1.386

"""
    winner = "' leather' p 47 %, 1.6 times as likely as the next, ' chain' (0.470"
    facts = f"""\
winner    {winner}
          nats)
coverage  85 % of the model's belief is in the set
"""
    explained = f"""\
winner     {winner}
           nats)
coverage   85 % of the model's belief is in the set
greedy     agrees: masked greedy decoding picks the same
proof      every choice scored, 3 inner nodes
cost       12 rows in 2 calls, 4 padded; 5.0 times less work than one by one;
           0.250 s
scored by  joint · none · exact

"""
    assert shown(results.selection_report(armour())) == ranking + facts
    assert shown(results.selection_report(armour(), explain=True)).startswith(ranking + explained)


def test_the_trie_marks_winner_greedy_and_pruned_without_colour():
    """Shared nodes once, log-probabilities on edges, hidden choices counted."""
    selection = answer(*ARMOUR, (" z|zz", 0.01, None), (" q", 0.001), greedy_index=1)
    report = shown(results.selection_report(selection, explain=True, limit=8))
    assert (
        report[report.index("* joint") :]
        == """\
* joint winner   ~ masked greedy   × pruned   numbers: log-probabilities
*~ (prompt)
*  ├─ ' le' -0.693
*  │  └─ 'ather' -0.223  = ' leather'  p 47 %
 ~ ├─ ' chain' -1.386  = ' chain'  p 29 %
 ~ │  └─ 'mail' -0.916  = ' chainmail'  p 12 %
   ├─ ' plate' -2.303  = ' plate'  p 12 %
×  ├─ ' z' -4.605  … 1 more choice
   └─ ' q' -6.908  = ' q'  p 0.1 %
"""
    )


def test_a_tie_has_no_winner_in_the_trie():
    """Each choice that shares the first place has the same mark, which the legend explains."""
    report = shown(results.selection_report(answer((" a", 0.25), (" b", 0.25), (" c", 0.1), is_tie=True), explain=True))
    legend, _, *lines = report[report.index("= tied") :].splitlines()
    assert legend == "= tied for first   ~ masked greedy   × pruned   numbers: log-probabilities"
    assert [(line[0], line[-6:].strip()) for line in lines] == [("=", "p 42 %"), ("=", "p 42 %"), (" ", "p 17 %")]


def test_a_set_the_model_does_not_expect_is_said_plainly():
    """Low coverage shows what the model wanted instead, control tokens by name, and the usual causes."""
    wanted = (TokenScore(5, b"\n", math.log(0.6)), TokenScore(6, b"", math.log(0.08), "<|im_end|>"))
    report = " ".join(shown(results.selection_report(unlikely(top_tokens=wanted))).split())
    assert "! coverage the model expects something else than these choices." in report
    assert r"It expects '\n' 60 %, '<|im_end|>' 8.0 %." in report
    assert "leading space" not in report
    assert "thinks before it answers" in report
    assert "--chat" not in report
    assert "See --user" in shown(results.selection_report(unlikely(skips_template=True)))
    assert "! coverage" not in shown(results.selection_report(armour()))


def test_a_missing_leading_space_is_named_as_the_cause():
    """Where the model goes on with a space and no choice begins with one, that is what is said."""
    wanted = (TokenScore(5, b" mail", math.log(0.6)), TokenScore(6, b",", math.log(0.3)))
    bare, spaced = (
        answer(("le|ather", 0.005, 0.1), top_tokens=wanted),
        unlikely(top_tokens=wanted),
    )
    named = "begin without the space that the model puts there"
    assert named in " ".join(shown(results.selection_report(bare)).split())
    assert named not in " ".join(shown(results.selection_report(spaced)).split())


def test_a_lonely_winner_says_why():
    """One choice has nothing behind it; one finished choice of many says nothing about the others."""
    assert "p 100 %, no other choice\n" in shown(results.selection_report(answer((" a", 0.5))))
    open_search = answer((" a", 0.5), (" b|c", 0.25, None))
    assert "p > 99.9 %, no other choice was scored\n" in shown(results.selection_report(open_search))


def test_quoted_texts_are_not_broken_over_lines():
    """A line breaks before a quoted text that holds a space, and inside one only where it is wider than the line."""
    report = shown(Units.of("It expects ' a b' 0.5, ' c d' 0.25."), width=14)
    assert report.splitlines() == ["It expects", "' a b' 0.5,", "' c d' 0.25."]
    assert shown(Units.of("'0123456789'"), width=6).splitlines() == ["'01234", "56789'"]
    assert shown(Units.of("the model's own 'x y'"), width=12).splitlines() == ["the model's", "own 'x y'"]


def test_low_coverage_of_an_open_search_is_no_warning():
    """Where a search left mass open the coverage is a lower bound and says nothing yet."""
    open_search = replace(PROVED, method="best_first", open_mass=0.5, bound_gap=0.75)
    report = shown(results.selection_report(unlikely(certificate=open_search), explain=True))
    assert "! coverage" not in report
    assert "0.3 % to 51 % of the model" in report
    assert "proved with 3 of 3 inner nodes, the rest at least 0.750 nats behind" in " ".join(report.split())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"is_tie": True}, "! tie the first place is shared exactly; the lowest index was taken"),
        ({"greedy_index": 1}, "disagrees: masked greedy decoding picks ' chainmail' (p 12 %)"),
        ({"certificate": replace(PROVED, proved=False, bound_gap=-0.3)}, "may be ahead by 0.300 nats"),
        ({"certificate": replace(PROVED, near_margin=0.423)}, "inner nodes; a near tie is closer than 0.42 nats cost"),
        (
            {"certificate": replace(PROVED, n_rescored=2, near_margin=0.423)},
            "a near tie is closer than 0.42 nats: 2 choices scored again",
        ),
        (
            {"certificate": replace(PROVED, rescored=False)},
            "near ties not settled (it would take more rows than the request)",
        ),
        (
            {"certificate": replace(PROVED, rescored=False), "signature": replace(SIGNATURE, precision="fast")},
            "near ties not settled (in fast precision)",
        ),
        ({"healed": b" \xf0", "log_heal": -0.25, "heal_gap": 0.01}, r"' \xf0' of the prompt is encoded again"),
        ({"healed": b" ", "log_heal": -0.25, "heal_gap": 0.01}, "(logp -0.250, taken off every choice, within 0.01)"),
        ({"cost": replace(COST, rows=0, model_calls=0)}, "no row: everything was held already"),
        ({"cost": replace(COST, rows_repeated=3)}, "12 rows in 2 calls, 3 repeated, 4 padded"),
        ({"cost": replace(COST, rows=12345, model_calls=1)}, "12 345 rows in 1 call"),
    ],
    ids=str,
)
def test_what_an_answer_says_about_itself(changes: dict[str, object], expected: str):
    """Each flag of a result is one sentence of the report."""
    assert expected in " ".join(shown(results.selection_report(armour(**changes), explain=True)).split())


def test_duplicates_are_one_row_and_pruned_choices_show_their_bound():
    """Equal texts are listed once with their other indices; a rule other than joint has a score column."""
    selection = answer((" a", 0.5), (" z|zz", 0.01, None), (" a", 0.5), (" b", 0.25), rule="pmi")
    report = shown(results.selection_report(selection, top=3))
    assert (
        report[: report.index("\nwinner")]
        == """\
#  choice                                        p      logp   score  margin
1  ' a' (also 2)  ████████████████            67 %    -0.693  -0.693
2  ' b'           ████████                    33 %    -1.386  -1.386  -0.693
3  ' zzz'                                   pruned  ≤ -4.605
"""
    )
    assert "… 2 more choices" in shown(results.selection_report(selection, top=1))


def test_open_mass_shows_an_interval():
    """Where other choices may still take some of it, a probability is shown with both ends."""
    selection = armour()
    choices = replace(selection.choices, probability_low=selection.choices.probability - 0.1)
    report = shown(results.selection_report(armour(choices=choices)))
    assert "winner    ' leather' p 37 % to 48 %, 1.6 times as likely" in report
    assert "  1.7 % to 12 %  -2.303" in report


@given(
    texts=st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=6, unique=True), width=st.integers(40, 120)
)
@settings(max_examples=n_examples(60))
def test_no_text_can_break_a_report(texts: list[str], width: int):
    """Whatever the choices hold, no control character gets out and no line is wider than the terminal."""
    scored: list[ChoiceScores] = [(text.replace("|", "/").encode("utf-8", "replace").decode(), 0.5) for text in texts]
    report = shown(results.selection_report(answer(*scored), explain=True), width)
    for line in report.splitlines():
        assert cell_len(line) <= width
    assert not [c for c in report if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


def test_colour_is_for_terminals(monkeypatch: pytest.MonkeyPatch):
    """A file gets none, a terminal does, and NO_COLOR is respected."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    report = results.selection_report(armour(), explain=True)
    file, tty, plain = io.StringIO(), Tty(), Tty()
    terminal.show(report, file)
    terminal.show(report, tty)
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.show(report, plain)
    assert "\x1b" not in file.getvalue()
    assert "\x1b[1;32m" in tty.getvalue()
    assert "32m" not in plain.getvalue()


def test_a_scored_text_with_its_tokens():
    """The sum, the mean, and a row per token."""
    assert (
        shown(results.text_score_report(text_score(), per_token=True))
        == """\
text       ' blue'
logp       -2.079 nats over 2 tokens (-1.040 a token)
greedy     greedy decoding would write something else
cost       12 rows in 2 calls, 4 padded; 5.0 times less work than one by one;
           0.250 s
precision  exact

token  piece    logp
    3  ' bl'  -0.693
    4  'ue'   -1.386
"""
    )


def test_a_scored_text_with_all_its_spellings():
    """The bounds of the sum, the canonical share, and why the bounds are far apart."""
    wide = Spellings("begins", -3.0, -1.0, (0.1, 0.5), False, "the budget ended after 9 nodes", 0.0, 0.0, 9)
    close = Spellings("ends", -3.0, -2.99, (0.985, 0.996), True, "", 0.0, 0.0, 9)
    facts = dict(summaries.text_score_facts(text_score(spellings=wide)))
    assert facts["spellings"] == (
        "logp -3.000 to -1.000 nats for all tokens that begin with the text; canonical tokens have 10 % to 50 % of it"
    )
    assert (
        facts["! bounds"]
        == "the bounds of all spellings are further apart than a factor of 2: the budget ended after 9 nodes"
    )
    facts = dict(summaries.text_score_facts(text_score(spellings=close)))
    assert facts["spellings"].endswith("that spell the text and end; canonical tokens have 98 % to 99.6 % of it")
    assert "! bounds" not in facts


def test_the_proof_over_all_spellings():
    """The rows of all spellings together, or why nothing is proved."""
    proved = Certificate(True, 1.0, 0.0, 1, None, True, 0, "spellings")
    open_ = Certificate(False, -1.0, 0.5, 20, None, False, 0, "spellings", "the budget ended after 20 nodes")
    assert (
        dict(summaries.selection_facts(armour(certificate=proved), explain=True))["proof"]
        == "proved with 1 row of all spellings"
    )
    assert dict(summaries.selection_facts(armour(certificate=open_), explain=True))["proof"] == (
        "none with 20 rows of all spellings: the budget ended after 20 nodes"
    )


def test_the_plan_of_a_request():
    """Prompt, paths and trie with token ids, without any number of the model's."""
    choices = [choice.replace("|", "") for choice, *_ in ARMOUR]
    assert (
        shown(results.token_plan_report(plan(), choices, top=3))
        == """\
BOS         token 1, put first
boundary    heal
terminator  unless-continued
trie        6 nodes for 4 choices
rows        6: 3 for the context, 3 for the trie; one by one 19

prompt
'<s>':1 'He':10 ' wears':11

choice        tokens after the context  shift
' leather'    ' le':1 'ather':2
' chainmail'  ' chain':3 'mail':4
' plate'      ' plate':5
… 1 more choice

   (context)
   ├─ ' le'
   │  └─ 'ather'  = ' leather'
   ├─ ' chain'  = ' chain'
   │  └─ 'mail'  = ' chainmail'
   └─ ' plate'  = ' plate'
"""
    )


def test_tsv_escapes_what_would_break_a_row():
    """Tab, CR, LF and backslash are written out; a pruned choice has a bound and empty cells."""
    text = show.to_tsv(answer(("a\tb\r\nc\\", 0.5), ("z|zz", 0.25, None)).ranked)
    head, first, second = (line.split("\t") for line in text.split("\n"))
    assert tuple(head) == show.TSV_COLUMNS
    assert first == ["1", "0", "a\\tb\\r\\nc\\\\", "1.0", repr(math.log(0.5)), repr(math.log(0.5)), repr(math.log(0.5))]
    assert second[2:] == ["zzz", "", "", "", repr(math.log(0.25))]


def test_json_is_one_strict_line():
    """Text stays readable, and what JSON cannot hold is an error instead of a dialect."""
    line = show.to_json(armour().to_dict())
    assert "\n" not in line
    assert json.loads(line)["winner"] == 0
    assert show.to_json({"text": "é"}) == '{"text": "é"}'
    with pytest.raises(ValueError, match="JSON"):
        show.to_json({"x": math.inf})
