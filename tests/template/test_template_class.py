from __future__ import annotations

import copy
import os
import pickle

import pytest

from selectrie.errors import InputFileError, OptionError, TemplateError
from selectrie.grammar import Grammar
from selectrie.template.analysis.template import Template

SHEET = """A character.
Name: <<name>>
Class: <<#select 'class'>>ranger<<or>>wizard<</select>>
Armor: <<select 'armor' options=armors logprobs='armor_lp'>>
<<#if class == 'ranger'>><<select 'bow' options=bows>><<else>><<staff>><</if>>
<<#joint>>"<<select 'a' options=virtues>> and <<select 'b' options=virtues>>"<</joint>>
Items:<<#geneach 'items' num=3 join=','>> <<gen 'this' max_tokens=6>><</geneach>>
<<#each items as item>><<item>><<@index>><</each>><<armor>><<armor_lp[armor]>>
"""


@pytest.fixture
def folder(tmp_path):
    """A search path within a folder that holds something else."""
    inner = tmp_path / "pages"
    inner.mkdir()
    (tmp_path / "secret.tmpl").write_text("secret")
    return inner


def write(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.tmpl").write_text(text)


def test_names_of_a_template():
    """Slots in the order of the page, and the names that values must give; loops and slots are no needs."""
    sheet = Template(SHEET)
    assert sheet.slots == ("class", "armor", "bow", "a", "b", "items")
    assert sheet.needs == ("name", "armors", "bows", "staff", "virtues")
    assert repr(sheet) == "<Template <template>: slots class, armor, bow, a, b, items>"
    assert sheet.documents == {}
    sheet.check()


def test_what_is_never_read():
    """Given names that nothing reads are listed; a slot's own name is read only where the slot may be passed by."""
    sheet = Template("<<#if x>><<gen 'a'>><</if>><<a>><<gen 'b'>><<b>><<y.z>>")
    assert sheet.unused({"z": 1, "a": 1, "b": 1, "y": 1, "x": 1}) == ("z", "b")
    either = Template("<<#if x>><<gen 'a'>><<set b=1>><<else>><<gen 'a'>><</if>><<a>><<b>>")
    assert either.unused({"a": 1, "b": 1}) == ("a",)
    loop = Template("<<#each xs>><<set a=this>><<gen 'b'>><</each>><<a>><<b[0]>>")
    assert loop.unused({"a": 1, "b": 1}) == ("b",)


def test_templates_are_values():
    """Equal sources are equal and hash alike; copies are the same object; pickled ones are equal."""
    sheet = Template(SHEET, name="sheet")
    assert sheet == Template(SHEET)
    assert hash(sheet) == hash(Template(SHEET))
    assert sheet != Template(SHEET + " ")
    assert sheet != SHEET
    assert copy.copy(sheet) is sheet is copy.deepcopy(sheet)
    restored = pickle.loads(pickle.dumps(sheet))  # noqa: S301 - our own
    assert restored == sheet
    assert (restored.name, restored.slots, restored.document) == (sheet.name, sheet.slots, sheet.document)


def test_templates_cannot_be_changed():
    """Neither their attributes nor the mapping of their documents."""
    sheet = Template(SHEET)
    with pytest.raises(AttributeError, match="immutable"):
        sheet.source = "x"
    with pytest.raises(AttributeError, match="immutable"):
        del sheet.document
    with pytest.raises(TypeError):
        sheet.documents["a"] = sheet.document


def test_what_it_read_goes_with_it(folder):
    """A pickled template needs none of its files, and has what they were."""
    write(folder, part="Hello <<gen 'x' grammar='g.gbnf'>>")
    (folder / "g.gbnf").write_text('root ::= "a" | "b"')
    sheet = Template("<<include 'part.tmpl'>>", search_path=folder)
    data = pickle.dumps(sheet)
    for path in folder.iterdir():
        path.unlink()
    restored = pickle.loads(data)  # noqa: S301 - our own
    assert restored == sheet
    assert restored.slots == ("x",)
    assert restored.read_grammar("g.gbnf").accepts("b")


def test_files_belong_to_equality(folder):
    """Two templates of one source differ where a file that they read differs."""
    one, two = "<<include 'part.tmpl'>>", "<<gen 'x' grammar='g.gbnf'>>"
    write(folder, part="a")
    (folder / "g.gbnf").write_text('root ::= "a"')
    before = [Template(text, search_path=folder) for text in (one, two)]
    assert before == [Template(text, search_path=str(folder)) for text in (one, two)]
    write(folder, part="b")
    (folder / "g.gbnf").write_text('root ::= "b"')
    after = [Template(text, search_path=folder) for text in (one, two)]
    assert before[0] != after[0]
    assert before[1] != after[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": b"x"}, "text="),
        ({"text": "x", "name": 3}, "name="),
        ({"text": "x", "dialect": "jinja"}, "dialect='jinja'"),
        ({"text": "x", "search_path": "/no/such/folder"}, "search_path='/no/such/folder'"),
        ({"text": "x", "search_path": 3}, "search_path=3"),
        ({"text": "x", "search_path": __file__}, "a folder that exists"),
        ({"text": "x", "search_path": "a\0b"}, "a folder that exists"),
    ],
)
def test_wrong_arguments(arguments, message):
    """What is no text, no dialect or no folder is an `OptionError`."""
    with pytest.raises(OptionError, match=message):
        Template(**arguments)


def test_values_are_a_mapping_of_names():
    """Anything else is an `OptionError`."""
    for values in ([("a", 1)], {1: 2}, "a"):
        with pytest.raises(OptionError, match="values"):
            Template("x").check(values)
        with pytest.raises(OptionError, match="values"):
            Template("x").unused(values)


def test_a_file(folder):
    """Its name stands in errors, its folder is searched, line ends are LF."""
    (folder / "page.tmpl").write_bytes(b"a\r\n<<include 'part.tmpl'>>\r")
    write(folder, part="<<x>>")
    page = Template.from_file(folder / "page.tmpl")
    assert page.source == "a\n<<include 'part.tmpl'>>\n"
    assert page.name == str(folder / "page.tmpl")
    assert page.needs == ("x",)
    with pytest.raises(TemplateError, match=r"page.tmpl:2:1: the file 'part.tmpl' cannot be read: no such file"):
        Template.from_file(str(folder / "page.tmpl"), search_path=folder.parent)


def test_the_ending_says_the_dialect(folder):
    """`.hbs` and `.handlebars` are read as such, also where they are included; `dialect=` overrides it for the file itself."""
    (folder / "page.hbs").write_text("{{x}}<<y>>")
    (folder / "part.HANDLEBARS").write_text("{{z}}")
    assert Template.from_file(folder / "page.hbs").needs == ("x",)
    assert Template.from_file(folder / "page.hbs", dialect="selectrie").needs == ("y",)
    both = Template("<<include 'page.hbs'>><<include 'part.HANDLEBARS'>><<w>>", search_path=folder)
    assert both.needs == ("x", "z", "w")
    write(folder, plain="{{x}}<<y>>")
    assert Template("{{>plain.tmpl}}", search_path=folder, dialect="handlebars").needs == ("x",)


@pytest.mark.parametrize(
    ("data", "line", "reason"),
    [
        (b"a\nb\xff", 2, "byte 0xff is not UTF-8"),
        (b"x" * (1 << 20) + b"x", None, "longer than 1048576 bytes"),
    ],
)
def test_files_that_cannot_be_read(folder, data, line, reason):
    """Bad UTF-8 and a file too long name the path, and the line where there is one."""
    path = folder / "page.tmpl"
    path.write_bytes(data)
    with pytest.raises(InputFileError, match=reason) as caught:
        Template.from_file(path)
    assert (caught.value.path, caught.value.line) == (str(path), line)
    with pytest.raises(TemplateError, match=reason) as inner:
        Template("a <<include 'page.tmpl'>>", search_path=folder)
    assert (inner.value.line, inner.value.column) == (1, 3)


@pytest.mark.parametrize(
    ("name", "reason"), [("none.tmpl", "no such file"), ("", "is a folder"), ("a\0b", "no such file")]
)
def test_files_that_are_not_there(folder, name, reason):
    """A missing file, a folder and no path at all."""
    with pytest.raises(InputFileError, match=reason):
        Template.from_file(f"{folder}/{name}")
    with pytest.raises(OptionError, match="path"):
        Template.from_file(3)


def test_a_text_too_long():
    """A template is as long as a file may be."""
    Template("x" * (1 << 20))
    too_long = (
        ("é" * ((1 << 19) + 1), 1, (1 << 19) + 1),
        ("ab\n" * (1 << 19), 349526, 2),
        ("x" * (1 << 20) + "y", 1, 1048577),
    )
    for text, line, column in (*too_long, ("\ud800" * (1 << 19), 1, 349526)):
        with pytest.raises(TemplateError, match="longer than 1048576 bytes") as caught:
            Template(text, name="page")
        assert (caught.value.name, caught.value.line, caught.value.column) == ("page", line, column)


def test_a_pipe_is_no_file(folder):
    """What would wait for a writer is refused."""
    os.mkfifo(folder / "pipe.tmpl")
    with pytest.raises(TemplateError, match="is not a file"):
        Template("<<include 'pipe.tmpl'>>", search_path=folder)


def test_includes_are_read_once(folder):
    """Documents by the path as written, each in its place, names of all of them in one scope."""
    write(folder, head="<<title>><<include './foot.tmpl'>>", foot="<<#each xs>><<this>><</each>>")
    page = Template("<<gen 'title'>><<include 'head.tmpl'>><<include 'foot.tmpl'>>", search_path=folder)
    assert list(page.documents) == ["head.tmpl", "./foot.tmpl", "foot.tmpl"]
    assert [page.included(segment).name for segment in page.document.body[1:]] == ["head.tmpl", "foot.tmpl"]
    assert page.needs == ("xs",)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/etc/passwd", "an absolute path"),
        ("C:/secret.tmpl", "an absolute path"),
        ("../secret.tmpl", r"'\.\.', which may lead out"),
        ("a/../part.tmpl", r"'\.\.', which may lead out"),
        ("a\\\\part.tmpl", "a backslash"),
        ("out.tmpl", "a link that leads out"),
        ("outside/secret.tmpl", "a link that leads out"),
        ("loop.tmpl", "cannot be read"),
        ("sub", "is a folder"),
        (".", "is not a file name"),
        ("none.tmpl", "no such file"),
        ("page.tmpl/x", "cannot be read"),
        ("x" * 5000, "cannot be read"),
        ("nul\\u0000", "is not a file name"),
    ],
)
@pytest.mark.parametrize("tag", ["<<include '{0}'>>", "<<gen 'x' grammar='{0}.gbnf'>>"])
def test_nothing_outside_the_search_path_is_read(folder, path, reason, tag):
    """Absolute paths, steps up, links that lead out, folders and missing files: each an error at its tag."""
    (folder / "sub").mkdir()
    write(folder, page="x")
    (folder / "out.tmpl").symlink_to(folder.parent / "secret.tmpl")
    (folder / "outside").symlink_to(folder.parent)
    (folder / "loop.tmpl").symlink_to(folder / "loop.tmpl")
    is_grammar = "grammar" in tag
    with pytest.raises(TemplateError, match=None if is_grammar else reason) as caught:
        Template("ab\n" + tag.format(path), search_path=folder)
    assert (caught.value.line, caught.value.column) == (2, 19 if is_grammar else 1)


def test_links_within_the_search_path_are_followed(folder):
    """So is a search path that is itself one."""
    write(folder, part="<<x>>")
    (folder / "again.tmpl").symlink_to("part.tmpl")
    (folder.parent / "link").symlink_to(folder)
    assert Template("<<include 'again.tmpl'>>", search_path=folder.parent / "link").needs == ("x",)


def test_includes_need_a_search_path():
    """Without one nothing is read, whatever the current folder holds."""
    with pytest.raises(TemplateError, match=r"'README\.md' cannot be read, since this template has no folder"):
        Template("<<include 'README.md'>>")


def test_a_circle_of_includes(folder):
    """It is shown as a chain, where it closes."""
    write(folder, a="x<<include 'b.tmpl'>>", b="<<#if y>>\n<<include 'a.tmpl'>><</if>>")
    with pytest.raises(TemplateError, match=r"page -> a.tmpl -> b.tmpl -> a.tmpl; remove one") as caught:
        Template("<<include 'a.tmpl'>>", name="page", search_path=folder)
    assert (caught.value.name, caught.value.line, caught.value.column) == ("b.tmpl", 2, 1)


def chain(folder, n, text="<<include 'f{0}.tmpl'>>"):
    for at in range(n):
        write(folder, **{f"f{at}": text.format(at + 1)})
    write(folder, **{f"f{n}": "end"})


def test_includes_are_bounded_in_depth(folder):
    """Sixteen files one within the other are read, one more is refused, whichever way it is come to."""
    chain(folder, 16)
    assert len(Template("<<include 'f1.tmpl'>>", search_path=folder).documents) == 16
    for text in ("<<include 'f0.tmpl'>>", "<<include 'f1.tmpl'>><<include 'f0.tmpl'>>"):
        with pytest.raises(TemplateError, match="more than 16 files include one another"):
            Template(text, search_path=folder)


def test_includes_are_bounded_in_size(folder):
    """A file that doubles again and again is refused before it is expanded."""
    chain(folder, 15, "<<include 'f{0}.tmpl'>>" * 8)
    with pytest.raises(TemplateError, match="more than 4194304 bytes in all"):
        Template("<<include 'f0.tmpl'>>", search_path=folder)


def test_includes_are_bounded_in_blocks(folder):
    """Blocks in blocks count through files."""
    chain(folder, 10, "<<#if x>>" * 10 + "<<include 'f{0}.tmpl'>>" + "<</if>>" * 10)
    with pytest.raises(TemplateError, match="more than 64 blocks are nested in each other"):
        Template("<<include 'f0.tmpl'>>", search_path=folder)
    assert Template("<<include 'f4.tmpl'>>", search_path=folder).needs == ("x",)


def test_errors_of_a_file_stand_in_it(folder):
    """What cannot be parsed, and what is wrong otherwise, is told with the file's own line."""
    write(folder, bad="\n<<#if x>>", twice="ab <<gen 'x'>>", use="-<<x>>")
    for text, start in [
        ("<<include 'bad.tmpl'>>", "bad.tmpl:2:1: "),
        ("<<gen 'x'>><<include 'twice.tmpl'>>", "twice.tmpl:1:4: a gen is called 'x', like a gen at page:1:1"),
        ("<<include 'use.tmpl'>><<gen 'x'>>", "use.tmpl:1:4: 'x' is used here"),
    ]:
        with pytest.raises(TemplateError) as caught:
            Template(text, name="page", search_path=folder)
        assert str(caught.value).startswith(start)
    with pytest.raises(TemplateError, match=r"use\.tmpl:1:4: no value is called 'x'"):
        Template("<<include 'use.tmpl'>>", search_path=folder).check({})


def test_a_turn_included_in_a_turn(folder):
    """Turns do not stand inside of each other, through files neither."""
    write(folder, turn="<<#user>>hi<</user>>")
    Template("<<#block>><<include 'turn.tmpl'>><</block>>", search_path=folder)
    with pytest.raises(TemplateError, match=r"turn\.tmpl:1:1: a turn cannot be inside another one"):
        Template("<<#system>><<include 'turn.tmpl'>><</system>>", search_path=folder)


def test_a_slot_included_twice(folder):
    """The second include is the place of the error; in two branches it is none."""
    write(folder, part="<<gen 'x'>>")
    with pytest.raises(
        TemplateError, match=r"page:2:1: 'x' is named at part\.tmpl:1:1, and that file is included twice"
    ):
        Template("<<include 'part.tmpl'>>\n<<include 'part.tmpl'>>", name="page", search_path=folder)
    text = "<<#if y>><<include 'part.tmpl'>><<else>><<include 'part.tmpl'>><</if>>"
    assert Template(text, search_path=folder).slots == ("x",)


def test_grammars(folder):
    """A file of the search path or an installed one, the same object each time."""
    (folder / "yes.gbnf").write_text('root ::= "yes"')
    page = Template("<<gen 'x' grammar='yes.gbnf'>>", search_path=folder)
    grammar = page.read_grammar("yes.gbnf")
    assert isinstance(grammar, Grammar)
    assert grammar.accepts("yes")
    assert page.read_grammar("yes.gbnf") is grammar
    assert page.read_grammar("json").accepts("{}")
    assert page.read_regex("a+") is page.read_regex("a+")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("grammar='bad.gbnf'", "the grammar 'bad.gbnf' cannot be read at line 2, column"),
        ("grammar='empty.gbnf'", "the grammar 'empty.gbnf' cannot be read at line 1, column 1: no text matches 'root'"),
        ("grammar='jason'", "no grammar is called 'jason': .* did you mean 'json'?"),
        ("grammar='gone.gbnf'", "the file 'gone.gbnf' cannot be read: no such file"),
        ("grammar='latin.gbnf'", "the file 'latin.gbnf' cannot be read, line 1: byte 0xe9"),
        ("grammar=''", "no grammar is called ''"),
        ("regex='(a'", r"the regular expression '\(a' cannot be read at line 1"),
        ("grammar=3", "grammar=3: expected a Grammar"),
    ],
)
def test_grammars_that_cannot_be_read(folder, argument, message):
    """Told at the argument, with the place in the grammar, as soon as the template is made."""
    (folder / "bad.gbnf").write_text('root ::= "a"\nx ::= (')
    (folder / "empty.gbnf").write_text('root ::= root "a"')
    (folder / "latin.gbnf").write_bytes(b'root ::= "\xe9"')
    with pytest.raises(TemplateError, match=message) as caught:
        Template(f"<<gen 'x' {argument}>>", search_path=folder)
    assert caught.value.column == len("<<gen 'x' ") + argument.index("=") + 2
