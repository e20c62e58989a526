"""Names of other libraries, and of records of options, as arguments: the error says what to write."""

from __future__ import annotations

import asyncio
import re
from contextlib import closing

import pytest

from selectrie import (
    BeamSearchParams,
    DecisionParams,
    GenerationParams,
    Grammar,
    Predicate,
    PromptParams,
    SamplingParams,
    SearchParams,
    StopParams,
)
from selectrie.errors import OptionError, UnknownArgumentError
from selectrie.options.checks import named_arguments
from tests.support.deciding import fake

RECORDS = {
    one.__name__: one
    for one in (
        *(BeamSearchParams, DecisionParams, GenerationParams, PromptParams),
        *(SamplingParams, SearchParams, StopParams),
    )
}


@pytest.fixture(scope="module")
def llm():
    """An engine on a fake."""
    with closing(fake()) as made:
        yield made


@pytest.mark.parametrize(
    ("method", "arguments", "name", "advice"),
    [
        ("generate", ("a",), "max_tokens", "give stopping=StopParams(max_tokens=…)"),
        ("generate", ("a",), "max_new_tokens", "give stopping=StopParams(max_tokens=…)"),
        ("generate", ("a",), "stop", "give stopping=StopParams(stop=…)"),
        ("generate", ("a",), "temperature", "give sampling=SamplingParams(temperature=…)"),
        ("generate", ("a",), "repetition_penalty", "give sampling=SamplingParams(repeat_penalty=…)"),
        ("generate", ("a",), "grammar", "give options=GenerationParams(grammar=…)"),
        ("generate", ("a",), "response_format", "give options=GenerationParams(grammar=Grammar.from_json_schema(…))"),
        ("decide", ("a",), "options", "give questions=Choice(…)"),
        ("decide", ("a", Predicate("b")), "stream", "it has"),
        ("beam_search", ("a", Grammar.from_regex("a")), "num_beams", "give beam=BeamSearchParams(width=…)"),
        ("select", ("a", ["b"]), "delimiter", "give prompting=PromptParams(delimiter=…)"),
        ("select", ("a", ["b"]), "system", "give prompting=PromptParams(system=…)"),
        ("select", ("a",), "labels", "give it as choices"),
        ("select", ("a",), "regex", "give grammar=Grammar.from_regex(…)"),
        ("select", (), "messages", "give prompt=the messages of a chat"),
        ("rank", ("a", ["b"]), "k", "give search=SearchParams(k=…)"),
        ("rank", ("a", ["b"]), "choises", "did you mean choices?"),
        ("decide", ("a", Predicate("b")), "permutations", "give params=DecisionParams(permutations=…)"),
        ("decide_many", (["a"], {"b": Predicate("b")}), "threshold", "give params=DecisionParams(threshold=…)"),
        ("prompt_logprobs", (["a"],), "logprobs", "it has"),
    ],
)
def test_the_error_names_what_to_write(llm, method, arguments, name, advice):
    """It is of our tree, and a `TypeError` as Python's; nothing has run."""
    calls = llm._model.calls
    with pytest.raises(UnknownArgumentError) as caught:
        getattr(llm, method)(*arguments, **{name: 1})
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, OptionError)
    assert str(caught.value).startswith(f"{method} has no argument {name!r}; {advice}")
    assert llm._model.calls == calls
    if record := re.search(r"=(\w+)\((\w+)=…\)", str(caught.value)):
        assert record[2] in RECORDS[record[1]].__dataclass_fields__


@pytest.mark.parametrize(
    ("record", "name", "advice"),
    [
        (SamplingParams, "max_tokens", "max_tokens is a field of BeamSearchParams or RenderParams or "),
        (SamplingParams, "temp", "give it as temperature"),
        (SamplingParams, "seed", "it is an argument of the call itself"),
        (StopParams, "temperature", "temperature is a field of SamplingParams"),
        (SearchParams, "kk", "did you mean k?"),
        (PromptParams, "anything", "it has boundary, delimiter"),
        (GenerationParams, "stopping", "it is an argument of the call itself"),
        (DecisionParams, "calibrate", "did you mean calibration?"),
    ],
)
def test_a_record_names_what_to_write_too(record, name, advice):
    """Under its own name."""
    with pytest.raises(UnknownArgumentError) as caught:
        record(**{name: 1})
    assert str(caught.value).startswith(f"{record.__name__} has no argument {name!r}; {advice}")


def test_other_errors_stay_as_they_are(llm):
    """A missing argument is Python's error, and so is one from within the call."""
    with pytest.raises(TypeError, match="missing 1 required positional argument") as caught:
        llm.select()
    assert not isinstance(caught.value, UnknownArgumentError)

    @named_arguments
    def broken(*, value: int) -> int:
        return len(value)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="has no len"):
        broken(value=1)


def test_awaitable_forms_say_the_same(llm):
    """The call is that of the blocking method."""
    with pytest.raises(UnknownArgumentError, match="generate has no argument 'max_tokens'"):
        asyncio.run(llm.agenerate("a", max_tokens=1))
