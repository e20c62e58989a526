"""Options of `selectrie serve` from flags, environment variables and a file, and its models."""

from __future__ import annotations

import itertools
import json
from dataclasses import fields
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from selectrie.cli import app as cli
from selectrie.cli.arguments import command, flags_of, variable
from selectrie.cli.groups import ConfigGroup, ModelGroup, hints_of
from selectrie.cli.serve import AddressGroup, ModelsGroup, ServingGroup, _loader, _parse_size
from selectrie.engine.load import load
from selectrie.engine.pool import ModelPool
from selectrie.engine.sources import embedded_file
from selectrie.errors import IncompatibleOptionsError, ModelFileError, OptionError

ROOT = Path(__file__).resolve().parents[2]
GROUPS = {
    "config": ConfigGroup,
    "model": ModelGroup,
    "several": ModelsGroup,
    "address": AddressGroup,
    "serving": ServingGroup,
}
FLAGS = {
    name: flag.partition("/")[0] for name, flag in flags_of(GROUPS).items() if flag.startswith("-") and name != "config"
}


@pytest.fixture
def run():
    """A command with the options of `selectrie serve`, which records their values."""
    app, values = typer.Typer(), {}
    app.callback()(lambda: None)

    def serve(
        config: ConfigGroup, model: ModelGroup, several: ModelsGroup, address: AddressGroup, serving: ServingGroup
    ) -> int:
        for group in (config, model, several, address, serving):
            values.update({field.name: getattr(group, field.name) for field in fields(group)})
        return 0

    serve.__annotations__ = GROUPS | {"return": int}
    command(app)(serve)

    def given(*arguments, env=None):
        values.clear()
        done = CliRunner().invoke(app, ["serve", *arguments], env=env)
        assert (done.exit_code == 0) == bool(values), done.output
        return dict(values) if values else done.stderr

    return given


def value_of(name):
    """A value of an option that is not its default, by the type of its field."""
    (hint,) = (hints_of(group)[name].__origin__ for group in GROUPS.values() if name in hints_of(group))
    kinds = {"bool": True, "int": 7, "float": 7.5, "list[str]": ["one", "two"], "str": "some"}
    return next(value for kind, value in kinds.items() if kind in str(hint))


def toml(value):
    """A value as TOML, of which JSON has the same form here."""
    return json.dumps(value)


def test_each_flag_has_a_variable_and_a_key(run, tmp_path):
    """All three set the same value, and only that one; variables have words in place of a list."""
    defaults = run()
    for name, flag in FLAGS.items():
        value = value_of(name)
        parts = [] if value is True else value if isinstance(value, list) else [value]
        by_flag = run(*([flag] if value is True else [word for part in parts for word in (flag, str(part))]))
        by_variable = run(env={variable("serve", flag): "true" if value is True else " ".join(map(str, parts))})
        file = tmp_path / f"{name}.toml"
        file.write_text(f"{flag.lstrip('-')} = {toml(value)}\n")
        by_file = run("--config", str(file))
        expected = tuple(value) if isinstance(value, list) else value
        assert by_flag == by_variable == by_file | {"config": None} == defaults | {name: expected}, name


@pytest.mark.parametrize(
    "given", [one for n in range(4) for one in itertools.combinations(("flag", "variable", "file"), n)]
)
def test_a_flag_goes_before_the_environment_and_that_before_the_file(run, tmp_path, given):
    """Of the ways in which a value is given the first one counts, else the default."""
    (tmp_path / "c.toml").write_text("port = 3\nmax_n = 5\n")
    arguments = [
        *(["--port", "1"] if "flag" in given else []),
        *(["--config", str(tmp_path / "c.toml")] if "file" in given else []),
    ]
    found = run(*arguments, env={"SELECTRIE_SERVE_PORT": "2"} if "variable" in given else {})
    assert found["port"] == {"flag": 1, "variable": 2, "file": 3, None: 8080}[next(iter(given), None)]
    assert found["max_n"] == (5 if "file" in given else 128)


def test_variables_of_all_commands_hold_too(run, tmp_path):
    """`SELECTRIE_THREADS` is for all commands; that of `serve` goes first, and the file is in the environment too."""
    (tmp_path / "c.toml").write_text("threads = 3\nlog-prompts = true\nprecision = 'fast'\n")
    env = {"SELECTRIE_THREADS": "1", "SELECTRIE_SERVE_CONFIG": str(tmp_path / "c.toml")}
    found = run(env=env)
    assert (found["threads"], found["log_prompts"], found["precision"]) == (1, True, "fast")
    assert run(env=env | {"SELECTRIE_SERVE_THREADS": "2"})["threads"] == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max-request = 3", "c.toml: max-request is no option; did you mean max-requests?"),
        ("config = 'd.toml'", "c.toml: config is no option"),
        ("max-n = 1\nmax_n = 2", "c.toml: max_n is given twice"),
        ("port = '80'", "c.toml: port: expected a whole number, not '80'"),
        ("port = true", "c.toml: port: expected a whole number, not True"),
        ("port = 80.5", "c.toml: port: expected a whole number, not 80.5"),
        ("deadline = [1]", "c.toml: deadline: expected a number, not [1]"),
        ("log-prompts = 1", "c.toml: log-prompts: expected true or false, not 1"),
        ("model-name = 'a'", "c.toml: model-name: expected a list of texts, not 'a'"),
        ("model-name = ['a', 1]", "c.toml: model-name: expected a list of texts, not ['a', 1]"),
        ("models = 'a.gguf'", "c.toml: models: expected tables, [models.NAME]"),
        ("[models]\na = 'a.gguf'", 'c.toml: models: expected tables, [models.a] with model = "a.gguf"'),
        ("[models.a]\npath = 'a.gguf'", "c.toml: models.a.path is no option; did you mean model?"),
        ("[models.a]\nmodl = 'a.gguf'", "c.toml: models.a.modl is no option; did you mean model?"),
        ("[models.a]\nn-ctx = 'many'", "c.toml: models.a.n-ctx: expected a whole number, not 'many'"),
        ("[models.a]\nport = 1", "c.toml: models.a.port is no option"),
        ("port = ", "c.toml: not TOML"),
    ],
)
def test_mistakes_in_the_file_are_named(run, tmp_path, text, said):
    """By the key and the value, with the key that is meant."""
    (tmp_path / "c.toml").write_text(text)
    found = run("--config", str(tmp_path / "c.toml"))
    assert found.startswith("error[input_file]: ")
    assert said in found


def test_mistakes_in_the_environment_are_named(run):
    """A variable of no flag is refused without its value, which may be a secret; one of a wrong type by its name."""
    for name in ("SELECTRIE_SERVE_API_KEY", "SELECTRIE_API_KEY", "SELECTRIE_API_KEYS", "SELECTRIE_API_KEY_FILE"):
        found = run(env={name: "secret"})
        assert f"no argument '{name}'" in found
        assert "such as SELECTRIE_SERVE_API_KEY_FILE" in found
        assert "secret" not in found
    found = run(env={"SELECTRIE_SERVE_PORT": "tcp://10.0.0.1:80"})
    assert "'SELECTRIE_SERVE_PORT'" in found
    assert "['SELECTRIE_SERVE_PORT'" not in found


@pytest.mark.parametrize("way", ["flag", "variable", "file"])
def test_verbose_shows_tracebacks(tmp_path, way):
    """However it is set, errors of the command have a traceback before their line; without it they have none."""
    file = tmp_path / "serve.toml"
    file.write_text(f'{"verbose = true" * (way == "file")}\napi-key-file = "{tmp_path / "gone"}"')
    given, env = ["serve", "--config", str(file)], {}
    given += ["--verbose"] if way == "flag" else []
    env |= {variable("serve", "--verbose"): "true"} if way == "variable" else {}
    done = CliRunner().invoke(cli, given, env=env)
    assert (done.exit_code, "Traceback" in done.stderr) == (2, True)
    file.write_text(f'api-key-file = "{tmp_path / "gone"}"')
    assert CliRunner().invoke(cli, given[:3]).stderr.count("\n") == 1


def test_tables_of_models_are_read(run, tmp_path):
    """A table has the options of one model; those of the command are for all others."""
    (tmp_path / "c.toml").write_text(
        "memory = '2G'\nn-ctx = 64\n[models.a]\nmodel = 'a.gguf'\n[models.'b.c']\nn_ctx = 32\nthreads = 1\n"
    )
    found = run("--config", str(tmp_path / "c.toml"))
    assert found["models"] == {"a": {"model": "a.gguf"}, "b.c": {"n_ctx": 32, "threads": 1}}
    assert (found["memory"], found["n_ctx"]) == ("2G", 64)
    assert run("--config", str(tmp_path / "c.toml"), "x=y.gguf")["models"] == ("x=y.gguf",)


def pool_of(model=None, **several) -> ModelPool:
    return _loader(model or ModelGroup(), ModelsGroup(**several), ServingGroup())()


def test_models_of_the_command_line_are_a_pool(any_model):
    """Each has the name before `=`, else that of its file, the options of the command, and its own from a table."""
    embedded = str(embedded_file())
    with pool_of(ModelGroup(n_ctx=64, precision="fast"), models=(f"a-1={any_model}", embedded), memory="1G") as pool:
        assert list(pool) == ["a-1", "embedded"]
        assert pool.budget_bytes == 1 << 30
        assert pool["embedded"].source == embedded
        with pool.use("a-1") as llm:
            assert (llm.limits.nodes, llm.identity.precision) == (64, "fast")
    tables = {"one": {"n_ctx": 32, "backend": "llama.cpp"}, "two": {"model": str(any_model)}}
    with pool_of(ModelGroup(n_ctx=64), models=tables) as pool:
        sizes = []
        for name in pool:
            with pool.use(name) as llm:
                sizes.append(llm.limits.nodes)
    assert sizes == [32, 64]


def test_models_are_looked_for_before_the_server_is_ready(tmp_path, any_model):
    """A file that is missing, and a model that never fits, end the command."""
    with pytest.raises(ModelFileError, match=r"no\.gguf"):
        pool_of(models=(str(any_model), str(tmp_path / "no.gguf")))
    with pytest.raises(Exception, match="budget"):
        pool_of(models=(str(any_model),), memory="1K")


@pytest.mark.parametrize(
    ("model", "several", "serving", "said"),
    [
        ({}, {"models": ("a.gguf", "b/a.gguf")}, {}, "'a' is given twice: NAME=b/a.gguf"),
        ({"model": "c.gguf"}, {"models": ("a.gguf",)}, {}, "`model` cannot be combined with several models"),
        ({}, {"models": ("a.gguf",)}, {"model_name": ("x",)}, "`model_name` cannot be combined with several models"),
        ({}, {"alias": ("x=a",)}, {}, "`alias` cannot be combined with one model; give its names with `model_name`"),
        ({}, {"models": ("a.gguf",), "alias": ("x=b",)}, {}, "alias[x]='b': expected one of the models: 'a'"),
        ({}, {"models": ("a.gguf",), "alias": ("x",)}, {}, "alias='x': expected ALIAS=NAME"),
        ({}, {"models": ("a.gguf",), "alias": ("x=a", "x=a")}, {}, "each alias once"),
        ({}, {"cascade": ("x=a,b",)}, {}, "`cascade` cannot be combined with one model; give models as arguments"),
        (
            {},
            {"models": ("a.gguf",), "cascade": ("x=a,b",)},
            {},
            "cascade[x]='a,b': expected two or more different models: 'a'",
        ),
        ({}, {"models": ("a.gguf",), "cascade": ("x",)}, {}, "cascade='x': expected NAME=A,B,…"),
        ({}, {"models": ("a.gguf",), "cascade_confidence": "0.5"}, {}, "the models of --cascade-confidence"),
        ({}, {"memory": "8G"}, {}, "`memory` cannot be combined with one model"),
        ({}, {"models": ("a.gguf",), "memory": "8"}, {}, "a size with its unit"),
    ],
)
def test_options_of_one_model_and_of_several(model, several, serving, said):
    """What is for the other kind is refused before a model is looked for."""
    with pytest.raises((OptionError, IncompatibleOptionsError)) as caught:
        _loader(ModelGroup(**model), ModelsGroup(**several), ServingGroup(**serving))
    assert said in str(caught.value)


def test_the_default_of_all_commands_is_no_model_beside_several(monkeypatch, any_model):
    """`SELECTRIE_MODEL` names one model for every command; models that are named go before it."""
    monkeypatch.setenv("SELECTRIE_MODEL", "default.gguf")
    with pool_of(ModelGroup(model="default.gguf"), models=(str(any_model),)) as pool:
        assert len(pool) == 1


def test_sizes():
    """A number with a unit, in powers of 1024; without a unit it could be bytes or gigabytes."""
    assert [_parse_size("memory", text) for text in ("8G", "1.5g", "500M", "3 KiB".replace(" ", ""), "1T")] == [
        8 << 30,
        3 << 29,
        500 << 20,
        3 << 10,
        1 << 40,
    ]
    for text in ("", "8", "G", "-1G", "1e3G", "8GB", "0G", "nanG", "9" * 12 + "G"):
        with pytest.raises(OptionError, match="memory"):
            _parse_size("memory", text)


def test_options_of_single_models_replace_those_of_all(any_model):
    """A model of a pool is loaded as `load` would with both; names that are not there are refused."""
    with ModelPool({"a": any_model, "b": any_model}, n_ctx=64, n_threads=1, model_options={"b": {"n_ctx": 32}}) as pool:
        for name, n in (("a", 64), ("b", 32)):
            with pool.use(name) as llm, load(any_model, n_ctx=n, n_threads=1) as alone:
                assert llm.limits == alone.limits
    with pytest.raises(OptionError, match="model_options='c'"):
        ModelPool({"a": any_model}, model_options={"c": {}})
    with pytest.raises(OptionError, match="n_ctxt"):
        ModelPool({"a": any_model}, model_options={"a": {"n_ctxt": 1}})
    for wrong, where in ((5, "model_options=5"), ({"a": 5}, r"model_options\['a'\]=5")):
        with pytest.raises(OptionError, match=where):
            ModelPool({"a": any_model}, model_options=wrong)


def test_the_example_of_a_file_is_read(run):
    """Each line of it is an option."""
    found = run("--config", str(ROOT / "examples" / "serving" / "serve.toml"))
    assert list(found["models"]) == ["small", "large"]
    assert found["models"]["large"] == {"model": "/models/large.gguf", "n_ctx": 4096, "precision": "fast"}
