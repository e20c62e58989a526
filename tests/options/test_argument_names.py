"""Names of other libraries, and of records of options, as arguments: the error says what to write."""

from __future__ import annotations

import asyncio
import re
from contextlib import closing

import pytest

from selectrie import (
    BeamSearchParams,
    Calibration,
    Cascade,
    Choice,
    DecisionParams,
    GenerationParams,
    Grammar,
    Json,
    ModelPool,
    Option,
    Predicate,
    PromptParams,
    SamplingParams,
    Score,
    SearchParams,
    StopParams,
    Thinking,
    Threshold,
    cascade,
    connect,
    evaluate,
    load,
)
from selectrie.errors import OptionError, UnknownArgumentError
from selectrie.options.arguments import named_arguments
from selectrie.sklearn import SelectrieClassifier
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
        ("generate", ("a",), "max_new_tokens", "give it as max_tokens"),
        ("generate", ("a",), "repetition_penalty", "give sampling=SamplingParams(repeat_penalty=…)"),
        ("generate", ("a",), "response_format", "give grammar=…, a JSON Schema or a class such as a pydantic model"),
        ("generate", ("a",), "stream", "call stream(…)"),
        ("classify", ("a", ["b", "c"]), "column", 'call classify_many(df["text"], …)'),
        ("extract", ("a", dict), "schema", "give it as kind"),
        ("generate", ("a",), "do_sample", "give sampling=SamplingParams.GREEDY"),
        ("generate", ("a",), "ignore_eos", "give stopping=StopParams(ignore_eog=…)"),
        ("decide", ("a",), "options", "give questions=Choice(…)"),
        ("decide", ("a", Predicate("b")), "stream", "it has"),
        ("beam_search", ("a", Grammar.from_regex("a")), "num_beams", "give it as width"),
        (
            "beam_search",
            ("a", Grammar.from_regex("a")),
            "length_penalty",
            "give beam=BeamSearchParams(length_penalty=…)",
        ),
        ("select", ("a", ["b"]), "boundary", "give prompting=PromptParams(boundary=…)"),
        ("select", ("a", ["b"]), "system_prompt", "give it as system"),
        ("select", ("a",), "labels", "give it as choices"),
        ("select", ("a",), "json_schema", "give grammar=…, a JSON Schema or a class such as a pydantic model"),
        ("rank", ("a", ["b"]), "top_k", "give it as k"),
        ("rank", ("a", ["b"]), "choises", "did you mean choices?"),
        ("decide", ("a", Predicate("b")), "permutation", "did you mean permutations?"),
        ("generate", ("a",), "temprature", "did you mean temperature?"),
        ("select", ("a", ["b"]), "temprature", "it has"),
        ("select", ("a", ["b"]), "completions", "it has"),
        ("select_many", (["a"], ["b"]), "prompts", "it has"),
        ("extract", ("a", dict), "template", "give params=DecisionParams(template=…)"),
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


def test_texts_as_options_of_generate_are_its_choices(llm):
    """`options` is a record there."""
    with pytest.raises(OptionError, match="a GenerationParams record; give the texts as `choices`"):
        llm.generate("a", options=["b", "c"])


@pytest.mark.parametrize(
    ("record", "name", "advice"),
    [
        (SamplingParams, "max_tokens", "max_tokens is a field of BeamSearchParams or RenderParams or "),
        (SamplingParams, "temp", "give it as temperature"),
        (SamplingParams, "seed", "it is an argument of the call itself"),
        (StopParams, "temperature", "temperature is a field of SamplingParams"),
        (SearchParams, "budget_node", "did you mean budget_nodes?"),
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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cascade([], thresholds=0.9), "cascade has no argument 'thresholds'; did you mean threshold?"),
        (
            lambda: cascade([], threshold=0.9, min_confidence=0.7),
            "`threshold` cannot be combined with `min_confidence`",
        ),
        (cascade, "cascade lacks its argument engines"),
        (Cascade, "Cascade lacks its argument engines"),
        (lambda: Cascade("ab"), "engines[0]='a': expected an engine of `load` or `connect`"),
        (
            lambda: Threshold(0.9),
            "questions=0.9: expected thresholds that `Threshold.fit(answers, gold)` finds; a number",
        ),
        (
            lambda: Calibration(5),
            "questions=5: expected calibrations that `Calibration.fit(answers, gold)` or `llm.fit_",
        ),
        (lambda: Threshold.fit([], [], precision=0.9, error=0.1), "`precision` cannot be combined with `error`"),
        (lambda: Threshold.fit([], [], errors=0.1), "Threshold.fit has no argument 'errors'; did you mean error?"),
        (lambda: Threshold.fit([]), "Threshold.fit lacks its argument gold"),
        (lambda: Calibration.fit([], [], methods="bias"), "Calibration.fit has no argument 'methods'; did you mean"),
        (lambda: Calibration.fit([], [], lam=1), "it has answers, gold, method, ridge"),
        (
            lambda: SelectrieClassifier(prompts="q"),
            "SelectrieClassifier has no argument 'prompts'; did you mean prompt?",
        ),
        (lambda: SelectrieClassifier(permutation=2), "SelectrieClassifier has no argument 'permutation'; did you mean"),
        (lambda: Thinking(max_token=3), "Thinking has no argument 'max_token'; did you mean max_tokens?"),
        (lambda: connect("http://x", keys="y"), "connect has no argument 'keys'"),
        (lambda: load(n_ctxt=5), "did you mean `n_ctx`?"),
        (Option, "Option lacks its argument value"),
        (Json, "Json lacks its argument value"),
        (ModelPool, "ModelPool lacks its argument sources"),
        (lambda: evaluate("model", []), "llm='model': expected an engine of `load` or `connect`"),
        (lambda: Choice(question="Which?"), "Choice has no argument 'question'; give it as instructions"),
        (lambda: Predicate(question="Is it?"), "Predicate has no argument 'question'; give it as statement"),
        (lambda: Score(min=1, max=5), "Score has no argument 'min'; give it as low"),
        (
            lambda: Score("How?", (1, 5)),
            "expected low=1, high=5 for the numbers between them too, or {1: text, 5: text}",
        ),
    ],
)
def test_no_call_ends_in_an_error_of_python(call, message):
    """Functions, class methods, questions and estimators say what to write."""
    with pytest.raises(OptionError, match=re.escape(message)):
        call()


def test_errors_from_within_a_call_stay_as_they_are():
    """A `TypeError` of the body is not one about arguments."""

    @named_arguments
    def broken(*, value: int) -> int:
        return len(value)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="has no len"):
        broken(value=1)


def test_awaitable_forms_say_the_same(llm):
    """The call is that of the blocking method."""
    with pytest.raises(UnknownArgumentError, match="generate has no argument 'max_length'"):
        asyncio.run(llm.agenerate("a", max_length=1))
