"""`SelectrieClassifier` on the embedded model: what scikit-learn expects of a classifier, and what `fit` uses each text for."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn", reason="needs the extra 'sklearn'")

from sklearn.base import clone  # noqa: E402 - after the check that it is there
from sklearn.exceptions import NotFittedError, SkipTestWarning  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

import selectrie  # noqa: E402
from selectrie import Choice, Option  # noqa: E402
from selectrie.sklearn import SelectrieClassifier  # noqa: E402

LABELS = ["refund", "reset password", "track order"]
TEXTS = [
    *(f"I want my money back for the {thing}." for thing in ("lamp", "coat", "chair", "book", "shoes", "phone")),
    *(f"I {verb} my password, I cannot log in." for verb in ("forgot", "lost", "mistyped", "changed", "need", "miss")),
    *(f"Where is my {thing}? It has not come." for thing in ("lamp", "coat", "chair", "book", "shoes", "phone")),
]
GOLD = [label for label in LABELS for _ in range(6)]
QUESTION = "What does the customer want?"
_NUMBERS = "it fits a table of numbers, and this classifier takes texts"
EXPECTED = {
    "check_requires_y_none": "the error names the argument in our words",
    "check_estimator_sparse_tag": "the error says that texts are expected, not that a sparse matrix is none",
    "check_estimator_sparse_array": "the same",
    "check_estimator_sparse_matrix": "the same",
    "check_positive_only_tag_during_fit": _NUMBERS,
    **{
        f"check_{name}": _NUMBERS
        for name in (
            *("fit_score_takes_y", "estimators_overwrite_params", "dont_overwrite_parameters", "readonly_memmap_input"),
            *("estimators_fit_returns_self", "n_features_in_after_fitting", "estimators_dtypes", "complex_data"),
            *("dtype_object", "estimators_empty_data_messages", "pipeline_consistency", "estimators_nan_inf"),
            *("estimators_pickle", "f_contiguous_array_estimator", "classifier_data_not_an_array", "fit2d_1feature"),
            *("classifiers_one_label", "classifiers_classes", "classifiers_train", "supervised_y_2d", "n_features_in"),
            *("methods_sample_order_invariance", "methods_subset_invariance", "fit2d_1sample", "dict_unchanged"),
            *("fit_idempotent", "fit_check_is_fitted", "fit2d_predict1d", "classifiers_regression_target"),
        )
    },
}
"""Checks that fail, with the reason."""


def test_a_prompt_is_all_that_the_model_reads():
    """The label follows it, and so does that of each example before it."""
    made = SelectrieClassifier(prompt="Message: {text}\nIntent: ", examples=3, calibration=None).fit(TEXTS, GOLD)
    shots = "".join(f"Message: {text}\nIntent: {LABELS[place]}\n\n" for text, place in made.examples_)
    with selectrie.load() as llm:
        found = [
            llm.select(f"{shots}Message: {text}\nIntent: ", LABELS, following="\n").probabilities for text in TEXTS[:3]
        ]
    wanted = [[one[label] for label in LABELS] for one in found]
    assert np.allclose(made.predict_proba(TEXTS[:3]), wanted, rtol=0, atol=1e-3)
    assert clone(made).get_params() == made.get_params()
    grid = GridSearchCV(made, {"prompt": ["{text}\nIntent: ", "{text} It is about "]}, cv=2).fit(TEXTS, GOLD)
    assert "{text}" in grid.best_params_["prompt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt": "Review:"}, "expected a text with {text} in it once"),
        ({"prompt": "{text} <<state>>"}, "without <<"),
        ({"prompt": "{text} {text}"}, "expected a text with {text} in it once"),
        ({"prompt": "{text}: {label}"}, "without {label}, since the label follows it"),
        ({"prompt": "{text}", "instructions": "Which?"}, "`prompt` cannot be combined with `instructions`"),
        ({"prompt": "{text}", "template": "base"}, "`prompt` cannot be combined with `template`"),
        ({"prompt": 5}, "prompt=5"),
    ],
)
def test_a_prompt_that_cannot_be_read_is_refused_by_fit(arguments, message):
    """As other parameters are, before a model is loaded."""
    with pytest.raises(ValueError, match=message):
        SelectrieClassifier(**arguments).fit(TEXTS, GOLD)


def texts_as(kind):
    """The texts as a list, an array, a column or a Series."""
    if kind == "series":
        return pytest.importorskip("pandas").Series(TEXTS, index=range(100, 118))
    return {"list": TEXTS, "array": np.array(TEXTS), "column": np.array(TEXTS, object)[:, None]}[kind]


@pytest.fixture(scope="module")
def fitted():
    """A classifier with two examples of each label, calibrated on the other twelve texts and no more."""
    return SelectrieClassifier(instructions=QUESTION, examples=6).fit(TEXTS, GOLD)


def test_it_is_classify(fitted):
    """The answers are those of `classify_many` with the same examples."""
    assert fitted.classes_.tolist() == LABELS
    assert fitted.calibration_ is None  # twelve texts are left, too few
    shown = [(text, LABELS[place]) for text, place in fitted.examples_]
    assert sorted(label for _, label in shown) == sorted(LABELS * 2)
    assert all((text, label) in zip(TEXTS, GOLD, strict=True) for text, label in shown)
    with selectrie.load() as llm:
        found = llm.classify_many(TEXTS, LABELS, instructions=QUESTION, examples=shown)
    assert fitted.predict(TEXTS).tolist() == found.values
    assert np.allclose(fitted.predict_proba(TEXTS), found.probabilities, rtol=0, atol=1e-3)
    assert fitted.score(TEXTS, GOLD) > 0.9


def test_a_calibration_uses_no_example():
    """It is fitted to at least 16 texts, none of which the prompt shows, and order has no influence."""
    texts, gold = TEXTS * 2, GOLD * 2
    texts = [f"{text} {'Thanks.' if at >= len(TEXTS) else ''}" for at, text in enumerate(texts)]
    made = SelectrieClassifier(examples=6).fit(texts, gold)
    shown = {text for text, _ in made.examples_}
    rest = [text for text in texts if text not in shown]
    assert (made.calibration_.questions[0].n, len(rest)) == (30, 30)
    question = Choice("", [Option(at, label) for at, label in enumerate(LABELS)], examples=made.examples_)
    with selectrie.load() as llm:
        assert llm.fit_calibration(rest, {"label": question}) == made.calibration_
    again = SelectrieClassifier(examples=6).fit(texts[::-1], gold[::-1])
    assert (again.examples_, again.calibration_) == (made.examples_, made.calibration_)
    assert SelectrieClassifier(examples=6, calibration=None).fit(texts, gold).calibration_ is None
    assert SelectrieClassifier(examples=6, rule="pmi").fit(texts, gold).calibration_ is None


@pytest.mark.parametrize("kind", ["list", "array", "column", "series"])
def test_texts_come_in_any_form(fitted, kind):
    """A list, an array, a Series and a column are the same texts."""
    found = SelectrieClassifier(instructions=QUESTION, examples=6).fit(texts_as(kind), np.array(GOLD))
    assert found.examples_ == fitted.examples_
    assert found.predict(texts_as(kind)[:3]).tolist() == fitted.predict(TEXTS[:3]).tolist()


def test_labels_alone():
    """Without texts there are no examples; other labels than texts need texts."""
    alone = SelectrieClassifier(instructions=QUESTION).fit(None, LABELS[::-1])
    assert (alone.examples_, alone.calibration_) == ((), None)
    assert alone.predict(TEXTS[:1]).tolist() == ["refund"]
    numbered = SelectrieClassifier(
        instructions=QUESTION, label_texts={0: "refund", 2: "track order", 1: "reset password"}
    )
    assert numbered.fit(None, [2, 1, 0]).predict([TEXTS[0], TEXTS[-1]]).tolist() == [0, 2]
    assert numbered.predict(TEXTS[:1]).dtype == numbered.classes_.dtype


def test_missing_labels_of_pandas_are_refused():
    """A Series of texts with pandas' NA has a label that is none."""
    labels = pytest.importorskip("pandas").Series(["a", None], dtype="string")
    with pytest.raises(selectrie.errors.OptionError, match="none of them missing"):
        SelectrieClassifier().fit(None, labels)


def test_options_of_load_may_be_of_any_type(monkeypatch):
    """Classifiers with equal options share an engine, and what `load` refuses is its error."""
    loaded = []
    monkeypatch.setattr(selectrie.sklearn, "load", lambda source, **options: loaded.append(options) or object())
    first, same, other = (SelectrieClassifier(load_options={"headers": {"x": one}})._engine() for one in "aab")
    assert first is same is not other
    assert loaded == [{"headers": {"x": "a"}}, {"headers": {"x": "b"}}]
    selectrie.sklearn._open_engine.cache_clear()
    monkeypatch.undo()
    with pytest.raises(selectrie.errors.UnknownOptionError, match="kv_overrides"):
        SelectrieClassifier(load_options={"kv_overrides": {}}).fit(None, LABELS).predict(TEXTS)


def test_a_pickle_holds_no_engine(fitted):
    """It is small, and gives the same answers."""
    data = pickle.dumps(fitted)
    assert len(data) < 4000
    assert pickle.loads(data).predict_proba(TEXTS[:2]).tolist() == fitted.predict_proba(TEXTS[:2]).tolist()  # noqa: S301
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(TEXTS)


def test_search_and_pipeline():
    """Folds, a grid over rules and steps before it are those of any classifier."""
    plain = SelectrieClassifier(instructions=QUESTION, examples=0, calibration=None)
    scores = cross_val_score(plain, TEXTS, GOLD, cv=2)
    assert scores.shape == (2,)
    assert scores.min() > 0.5
    found = GridSearchCV(plain, {"rule": ["joint", "token_mean"]}, cv=2).fit(TEXTS, GOLD)
    assert found.best_params_["rule"] in ("joint", "token_mean")
    piped = make_pipeline(FunctionTransformer(lambda texts: [text.lower() for text in texts]), plain)
    assert piped.fit(TEXTS, GOLD).predict(TEXTS[:2]).tolist() == ["refund", "refund"]


class Numbers(SelectrieClassifier):
    """The same with the tag for tables of numbers, so that scikit-learn's checks run at all."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


def test_check_estimator():
    """Of texts, scikit-learn checks nothing but `clone`. With tables of numbers every check passes that does not fit."""
    with pytest.warns(SkipTestWarning, match="Can't test estimator SelectrieClassifier"):
        results = check_estimator(SelectrieClassifier())
    assert {one["status"] for one in results} == {"passed"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(Numbers(), expected_failed_checks=EXPECTED)
    assert sum(one["status"] == "passed" for one in results) >= 15


@pytest.mark.parametrize(
    ("how", "X", "y", "message"),
    [
        ({}, TEXTS, None, "y is not given; give the label of each text"),
        ({}, TEXTS, [0, 1] * 9, "label_texts is not given; give a text for each label"),
        ({"label_texts": {0: "a"}}, TEXTS, [0, 1] * 9, "1 has none"),
        ({"label_texts": ["a"]}, TEXTS, GOLD, "a mapping from labels to texts"),
        ({}, TEXTS[:2], GOLD, "X=2: expected as many texts as labels, 18"),
        ({}, "text", GOLD, "X='text': expected several texts"),
        ({}, np.zeros((18, 2)), GOLD, "or one column of them"),
        ({}, [1.5] * 18, GOLD, r"X\[0\]=1.5: expected a text"),
        ({}, [" "] * 18, GOLD, r"X\[0\]=' ': expected"),
        ({}, TEXTS, [GOLD], "expected one label for each text"),
        ({"model": ["refund"]}, TEXTS, GOLD, r"model=\['refund'\]: expected a model, .*; labels are given to fit"),
        ({"examples": -1}, TEXTS, GOLD, "examples=-1"),
        ({"calibration": "batch"}, TEXTS, GOLD, "calibration='batch': expected 'auto', 'content_free' or None"),
        ({"label_texts": {0.5: "a", 1.5: "b"}}, TEXTS, [0.5, 1.5] * 9, "Unknown label type: continuous"),
        ({"rule": "best"}, TEXTS, GOLD, "rule='best'"),
        ({}, None, ["a", None], r"y=\['a', None\]: expected labels that can be sorted, none of them missing"),
        ({"load_options": 5}, TEXTS, GOLD, "load_options=5: expected a mapping"),
    ],
)
def test_fit_says_what_is_wrong(how, X, y, message):  # noqa: N803
    """Errors are ValueErrors, and come before the model is loaded."""
    with pytest.raises(ValueError, match=message):
        SelectrieClassifier(**how).fit(X, y)
