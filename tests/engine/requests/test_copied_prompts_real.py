"""Near ties behind long prompts on real weights: the prompt is evaluated once, and the scores are those of a new engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

import selectrie
from tests.support.real_data import REAL_FILES, real_model

PROMPT = (
    "Review: The plot never moves, and the jokes are older than the cast.\nSentiment: negative\n\n"
    "Review: A small film with a large heart, and the best ending of the year.\nSentiment: positive\n\n"
    "Review: Two hours of noise. I left before the second hour began.\nSentiment: negative\n\n"
    "Review: She plays three sisters, and you would swear that there are three of her.\nSentiment: positive\n\n"
    "Review: The book was better, the play was better, and so was the trailer.\nSentiment: negative\n\n"
    "Review: My children have watched it every day since, and so have I.\nSentiment: positive\n\n"
    "Review: {}\nSentiment:"
)
REVIEWS = ("Neither as bad as they say nor as good as the first one, but the music stays with you for days.", "Fine.")
LABELS = ([" positive", " negative"], [" good", " bad"], [" mixed", " neutral"])


@pytest.mark.parametrize("file", REAL_FILES)
def test_near_ties_behind_a_long_prompt(file):
    """Every request is made a near tie. After the first, none takes a chunk of the prompt, in any order of prompts; and
    each has the bits that it has as the first request of an engine."""
    prompts = [PROMPT.format(review) for review in REVIEWS]
    requests = [(prompt, labels) for labels in LABELS for prompt in prompts]
    with selectrie.load(real_model(file), n_threads=1, n_ctx=1024, untrusted=False) as llm:
        llm._runtime.check = replace(llm._runtime.check, tolerance=50.0)
        assert llm._model.limits.copies_paths
        n_tokens = len(llm.encode(prompts[0]))
        assert n_tokens > 130
        found = [llm.select(*request) for request in requests]
        assert all(answer.certificate.n_rescored == 2 for answer in found)
        assert found[0].cost.rows < n_tokens + 90
        assert max(answer.cost.rows for answer in found[2:]) < 90
    with selectrie.load(real_model(file), n_threads=1, n_ctx=1024, untrusted=False) as llm:
        llm._runtime.check = replace(llm._runtime.check, tolerance=50.0)
        alone = llm.select(*requests[-1])
    assert alone.choices.logp.tobytes() == found[-1].choices.logp.tobytes()
