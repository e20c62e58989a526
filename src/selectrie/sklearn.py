"""A classifier of texts for scikit-learn (extra `sklearn`).

>>> from selectrie.sklearn import SelectrieClassifier  # doctest: +SKIP
>>> SelectrieClassifier().fit(texts, labels).predict(["Where is it?"])  # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from selectrie.core.types import FloatArray
from selectrie.decide.calibration import N_LEAST, N_SAMPLED, Calibration
from selectrie.decide.classification import label_questions
from selectrie.decide.params import DecisionParams
from selectrie.decide.questions import Option, balanced
from selectrie.decide.states import text_of_state
from selectrie.engine.load import load
from selectrie.engine.sources import EMBEDDED
from selectrie.errors import IncompatibleOptionsError, MissingExtraError, OptionError, OptionRef
from selectrie.options import BASELINE_RULES, at_least
from selectrie.options.arguments import named_arguments
from selectrie.options.checks import text
from selectrie.template.analysis.template import Template

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted
except ModuleNotFoundError as error:
    raise MissingExtraError("a classifier of scikit-learn", "sklearn") from error

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from selectrie.decide.classification import Classification
    from selectrie.engine.engine import Engine

    Labels = np.ndarray[Any, Any]

_N_ENGINES = 2


class SelectrieClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # untyped bases
    """A classifier that asks a language model which label a text has.

    The model is not trained. `fit` chooses the examples that the prompt shows, and fits
    a calibration to other texts. `fit(None, labels)` shows none. X is a list, an array
    or a Series of texts, or a column of them.

    Engines are loaded when they are needed, shared by all classifiers of a process
    with the same model and options, and not pickled.

    Attributes:
        classes_: The labels, sorted.
        examples_: The text and the label of each example in the prompt.
        calibration_: The calibration that `fit` made, or None.
    """

    @named_arguments
    def __init__(  # noqa: PLR0913 - the parameters of an estimator
        self,
        model: str = EMBEDDED,
        *,
        instructions: str = "",
        cue: str | None = None,
        label_texts: Mapping[Any, str] | None = None,
        examples: int = 8,
        calibration: str | None = "auto",
        rule: str = "joint",
        permutations: int | str | None = None,
        template: str = "auto",
        prompt: str | None = None,
        load_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep the parameters; they are checked by `fit`.

        Args:
            model: A source of `selectrie.load`, such as a GGUF file, or "embedded".
            instructions: The question, as in `Engine.classify`.
            cue: A text before the answer in place of a question; best on base models.
            label_texts: The text by which the model knows each label. None for labels
                that are texts themselves; other labels need it.
            examples: Largest number of examples in the prompt. Each label has the same
                number, so there are none if there are more labels than this.
            calibration: "auto" fits one to texts of X that are no examples, up to 64
                and about equally many of each label, if there are at least 16; it
                supposes that the labels are about equally frequent in what is
                predicted. "content_free" and None are those of `DecisionParams`.
            rule: The rule of `DecisionParams`.
            permutations: Number of orders of the labels, as in `DecisionParams`.
            template: "auto", "chat" or "base", as in `DecisionParams`.
            prompt: In place of template, question and cue, the text that the model
                reads, in which `{text}` is the text, such as "{text} It is about".
                The label follows it; examples come before it in the same form.
            load_options: Further arguments of `selectrie.load`.
        """
        self.model = model
        self.instructions = instructions
        self.cue = cue
        self.label_texts = label_texts
        self.examples = examples
        self.calibration = calibration
        self.rule = rule
        self.permutations = permutations
        self.template = template
        self.prompt = prompt
        self.load_options = load_options

    def fit(self, X: Any, y: Any) -> SelectrieClassifier:  # noqa: N803 - scikit-learn's name
        """Choose the examples and fit the calibration; return self.

        Args:
            X: The texts, or None for labels without texts.
            y: The label of each text; without texts, the labels.

        Raises:
            OptionError: For texts that are blank, labels without a text, and parameters
                that are not allowed. It is a `ValueError`.
        """
        if y is None:
            raise OptionError("y", None, "the label of each text, or the labels alone with X=None")
        labels = np.asarray(y)
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels.ravel()
        if labels.ndim != 1 or not len(labels):
            raise OptionError("y", labels.shape, "one label for each text")
        try:
            check_classification_targets(labels)
            self.classes_, self.calibration_ = np.unique(labels), None
        except TypeError as error:
            raise OptionError("y", y, f"labels that can be sorted, none of them missing ({error})") from error
        self._check_parameters()
        texts = [] if X is None else _texts_of(X)
        if X is not None and len(texts) != len(labels):
            raise OptionError("X", len(texts), f"as many texts as labels, {len(labels)}")
        places = np.searchsorted(self.classes_, labels).tolist()
        pairs = list(zip(texts, places, strict=True)) if texts else []
        n_each = self.examples // len(self.classes_)
        self.examples_ = tuple(balanced(pairs, n_each)) if n_each else ()
        if self.calibration == "auto" and self.rule not in BASELINE_RULES:
            self.calibration_ = self._fitted_calibration(pairs)
        return self

    def predict(self, X: Any) -> Labels:  # noqa: N803
        """Return the label of each text."""
        places = self._classify(X).values
        found: Labels = self.classes_[np.array(places, int)]
        return found

    def predict_proba(self, X: Any) -> FloatArray:  # noqa: N803
        """Return the probability of each label: float64 [texts, `classes_`]."""
        return self._classify(X).probabilities

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags

    def _check_parameters(self) -> None:
        """Raise `OptionError` for parameters that are not allowed."""
        if not isinstance(self.model, Hashable):
            raise OptionError("model", self.model, "a model, such as a GGUF file; labels are given to fit(X, y)")
        at_least("examples", self.examples, 0, optional=False)
        if not isinstance(self.load_options, Mapping | None):
            raise OptionError("load_options", self.load_options, "a mapping from names to arguments of `load`")
        if self.calibration not in ("auto", "content_free", None):
            raise OptionError("calibration", self.calibration, "'auto', 'content_free' or None")
        self._params()
        self._options()

    def _params(self) -> DecisionParams:
        """Return the options of a decision, with the calibration that was fitted."""
        calibration = self.calibration_ if self.calibration == "auto" else self.calibration
        template = self.template if self.prompt is None else self._page_of_prompt()
        return DecisionParams(
            rule=self.rule, permutations=self.permutations, template=template, calibration=calibration
        )

    def _page_of_prompt(self) -> Template:
        """Return the page of the parameter `prompt`, with the label behind it."""
        for name, value, default in (
            ("instructions", self.instructions, ""),
            ("cue", self.cue, None),
            ("template", self.template, "auto"),
        ):
            if value != default:
                raise IncompatibleOptionsError("prompt", OptionRef(name), "a prompt is all that the model reads")
        text("prompt", self.prompt)
        before, place, after = str(self.prompt).partition("{text}")
        if not place or "{text}" in after or "<<" in before + after:
            raise OptionError("prompt", self.prompt, "a text with {text} in it once, and without <<")
        if "{label}" in before + after:
            raise OptionError("prompt", self.prompt, "a text without {label}, since the label follows it")
        shown = f"{before}<<one.state>>{after}<<one.answer>>\n\n"
        asked = f"{before}<<state>>{after}<<select 'answer' options=answers>>\n"
        return Template(f"<<#each examples as one>>{shown}<</each>>{asked}")

    def _options(self) -> list[Option[int]]:
        """Return an option for each label; its value is the label's index."""
        texts = self.label_texts
        if texts is not None and not isinstance(texts, Mapping):
            raise OptionError("label_texts", texts, "a mapping from labels to texts")
        options = []
        for index, label in enumerate(self.classes_.tolist()):
            if texts is None and not isinstance(label, str):
                allowed = f"a text for each label, as {{{label!r}: 'refund', …}}: {label!r} says nothing to a model"
                raise OptionError("label_texts", None, allowed)
            if texts is not None and label not in texts:
                raise OptionError("label_texts", dict(texts), f"a text for each label; {label!r} has none")
            options.append(Option(index, label if texts is None else texts[label]))
        return options

    def _how(self) -> dict[str, Any]:
        """Return the arguments of `Engine.classify_many` besides the texts."""
        labels, examples = self._options(), self.examples_
        return {"labels": labels, "instructions": self.instructions, "cue": self.cue, "examples": examples}

    def _fitted_calibration(self, pairs: Sequence[tuple[str, int]]) -> Calibration | None:
        """Return a calibration fitted to texts that are no examples; None for few."""
        shown = {text.strip() for text, _ in self.examples_}
        others = [(text, place) for text, place in pairs if text.strip() not in shown]
        chosen = {text for text, _ in balanced(others, max(1, N_SAMPLED // len(self.classes_)))}
        if len(chosen) < N_LEAST:
            return None
        questions = label_questions(**self._how()).questions
        return self._engine().fit_calibration(sorted(chosen), questions, params=self._params())

    def _classify(self, X: Any) -> Classification:  # noqa: N803
        """Return the labels of texts, as indices into `classes_`."""
        check_is_fitted(self)
        return self._engine().classify_many(_texts_of(X), params=self._params(), **self._how())

    def _engine(self) -> Engine:
        """Return the engine of the model, which other classifiers may use too."""
        return _open_engine(os.getpid(), self.model, _LoadOptions(deepcopy(dict(self.load_options or {}))))


class _LoadOptions(dict[str, Any]):
    """Arguments of `load` as a key of a cache; their values need no hash."""

    def __hash__(self) -> int:  # type: ignore[override]  # a dict has none
        return hash(frozenset(self))


@lru_cache(_N_ENGINES)
def _open_engine(_process: int, model: str, options: _LoadOptions) -> Engine:
    """Return the engine of a model; each process has its own."""
    return load(model, **options)


def _texts_of(given: Any) -> list[str]:
    """Return the texts of X: several texts, or one column of them.

    Raises `OptionError` for one text, for several columns, and for blank texts.
    """
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise OptionError("X", given, "several texts, such as a list")
    shape = getattr(given, "shape", None)
    if shape is not None and len(shape) != 1:
        if len(shape) != 2 or shape[1] != 1:
            raise OptionError("X", tuple(shape), "texts, or one column of them")
        given = np.asarray(given, object).ravel()
    return [text_of_state(one, f"X[{index}]") for index, one in enumerate(given)]
