"""Answers questions about states: the prompts of all of them are selected together.

There is no scoring here. Each prompt becomes one prepared selection; all run in one
task group, and the answers are made of their results (`Ask.answer`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, TypeAlias, TypeVar

from selectrie.core.model import ModelDescription
from selectrie.core.types import ROOT, IntArray
from selectrie.core.vocabulary import ChatTemplate, Vocabulary
from selectrie.decide.answers import Answer, Decision, DecisionSignature, DecisionUsage
from selectrie.decide.calibration import Calibration, question_calibration
from selectrie.decide.params import CONTENT_FREE, Ask, DecisionParams, Order, ask_of, is_calibrated
from selectrie.decide.questions import Question
from selectrie.decide.states import State, text_of_state
from selectrie.decide.templates import (
    DecisionPrompt,
    Page,
    check_shown,
    check_slots,
    digest_of,
    is_example,
    page_of,
    values_of,
)
from selectrie.engine.rendering.slot_ends import ending_of
from selectrie.engine.requests import select_grammar
from selectrie.engine.requests.constrained_prompt import max_context_tokens
from selectrie.engine.requests.select import SelectBatch
from selectrie.engine.requests.select_grammar import PreparedGrammarSelect
from selectrie.engine.requests.selection import PreparedSelect, SelectPlan, SelectRequest, planned_rows
from selectrie.engine.requests.session import Session, time_args
from selectrie.errors import (
    THE_STATE,
    ChoiceError,
    ClosedError,
    ForkedError,
    IncompatibleOptionsError,
    OptionError,
    PromptError,
    PromptTooLongError,
    RequestError,
    SelectrieError,
    TooManyRowsError,
    of_request,
    of_slot,
    remedies,
    words,
)
from selectrie.options import PromptParams, ScoringRule, SearchParams
from selectrie.results import Selection
from selectrie.results.advice import warn
from selectrie.template.analysis.template import Template
from selectrie.tokenization.canonical import reopen
from selectrie.tokenization.encoding import PromptText, encode_prompt, least_tokens
from selectrie.tokenization.prompt_frames import PromptFrame, chat_frame, page_frame
from selectrie.tokenization.prompts import Prompt, read_prompt

T = TypeVar("T")
_SHORTEN = words("shorten {}", THE_STATE)
_OPEN_THOUGHT = re.compile(r"<(\w*think\w*)>\s*\Z")
"""A block of thinking that a chat template opens at the end of the prompt."""
_MARK = "m4rk"
"""A text that stands for an answer, to find what a chat template writes before it."""
_SEARCH = SearchParams(method="exhaustive")
_LETTERS = "letters on a model without a chat template, which may answer one letter for all texts; score the texts"
_FRAMED_FROM = 2
"""Number of the state from which a prompt's frame is worth its making."""


@dataclass(frozen=True, slots=True, eq=False)
class DecisionMaker:
    """Makes the prompts of some questions about any states, on one model.

    Attributes:
        model: The model.
        asks: What is asked, by the name of the question.
        params: The options of the decision.
        template: The template of the caller, or the name of one of our pages.
        digest: Its digest.
        prompting: Options of the chat template; the text before the answer is added.
    """

    model: ModelDescription
    asks: Mapping[str, Ask]
    params: DecisionParams
    template: Template | str
    digest: str
    prompting: PromptParams
    _prompts: dict[str, tuple[PromptMaker, ...]] = field(default_factory=dict, init=False)

    @classmethod
    def of(
        cls, model: ModelDescription, questions: Mapping[str, Question], params: DecisionParams, *, fits: bool = False
    ) -> DecisionMaker:
        """Return the maker for a model.

        With `fits`, a calibration is fitted to the answers.

        Raises `RequestError` for questions that cannot be asked with these options, and
        `PromptError` if the model has no chat template but needs one.
        """
        asks: dict[str, Ask] = {}
        template, chat = params.template, model.vocabulary.chat_template
        if template == "auto":
            template = "base" if chat is None else "chat"
        if isinstance(template, Template):
            check_slots(template)
        elif template == "chat" and chat is None:
            raise PromptError(words("this model has no chat template; take `template='base'`, or 'auto'"))
        calibration, digest = params.calibration, digest_of(template)
        if calibration == "batch":
            allowed = "decide_many or a table, whose states it is fitted to; else a Calibration (`fit_calibration`)"
            raise OptionError("calibration", calibration, allowed)
        ask = partial(ask_of, params=params, n_questions=len(questions), on_page=template == "base")
        for name, question in questions.items():
            with _errors_of(None, name):
                asks[name] = ask(question, has_calibration=fits or calibration is not None)
                check_shown(question, template)
                if isinstance(calibration, Calibration) and is_calibrated(question, params):
                    bound = asks[name].bound(digest, model.identity)
                    is_plain = calibration.is_default and not calibration.holds_for(bound)
                    asks[name] = ask(question) if is_plain else asks[name].with_calibration(calibration, bound)
        if chat is None and params.scoring == "letters":
            warn(_LETTERS)
        prompting = model.vocabulary.derived(_for_answers)
        args = {**prompting.template_args, **time_args(model.vocabulary, params.time)}
        return cls(model, asks, params, template, digest, replace(prompting, template_args=args))

    def decisions(self, states: Sequence[State], *, keeps: bool, first: int | None) -> PreparedDecisions:
        """Check and tokenize all questions about some states.

        Raises `RequestError` for whatever can be found invalid without a model call,
        with the index of the state and the name of the question. With `keeps`, errors
        that belong to one state are kept instead. `first` is the index of the first
        state in errors; with None, there is one state and errors have no index.
        """
        prompts: dict[_Site, tuple[PreparedPrompt, ...]] = {}
        errors: dict[int, RequestError] = {}
        for index, state in enumerate(states):
            made = _or_error(partial(self.prepared, state, None if first is None else first + index), keeps=keeps)
            if isinstance(made, RequestError):
                errors[index] = made
            else:
                prompts |= {(index, name): one for name, one in made.items()}
        return PreparedDecisions(self, len(states), prompts, errors, keeps, first)

    def calibration(self, decisions: Sequence[Decision]) -> Calibration:
        """Return the calibration of the questions that can have one.

        Args:
            decisions: Decisions of this maker about some states, without a prior.
        """
        return Calibration(
            tuple(
                question_calibration(
                    ask.bound(self.digest, self.model.identity),
                    [list(one[name].probabilities.values()) for one in decisions],
                )
                for name, ask in self.asks.items()
                if ask.question.grammar is None
            )
        )

    def contexts(self, state: str) -> list[IntArray]:
        """Return the tokens of the prompts of all questions about a state.

        Questions whose options are the texts of a grammar are left out.
        """
        selects = [prompt.select for prompts in self.prepared(state).values() for prompt in prompts]
        return [select.encoded.context for select in selects if isinstance(select, PreparedSelect)]

    def prepared(self, state: State, request: int | None = None) -> dict[str, tuple[PreparedPrompt, ...]]:
        """Return the prompts of each question about a state, one for each order.

        `request` is the index of the state in errors.
        """
        with of_request(request):
            text = text_of_state(state)
            return {name: self._prompts_about(text, name, ask) for name, ask in self.asks.items()}

    def _prompts_about(self, state: str, name: str, ask: Ask) -> tuple[PreparedPrompt, ...]:
        with _errors_of(None, name):
            if name not in self._prompts:
                self._prompts[name] = tuple(PromptMaker(self, ask, order) for order in ask.orders)
            try:
                return tuple([one.prepared(state) for one in self._prompts[name]])
            except PromptTooLongError as error:
                unlisted = "score the options without listing them (`list_options=False`)"
                remedy = remedies(_shorten(ask, state), unlisted if _fits_unlisted(self, ask, state) else "")
                raise error.with_remedy(remedy) from error


class PromptMaker:
    """Makes the prompts of a question in one order of its options, about any states.

    What does not depend on the state is made once.

    Args:
        maker: What the prompts of all questions have in common.
        ask: What is asked.
        order: The order in which the options are listed.
    """

    def __init__(self, maker: DecisionMaker, ask: Ask, order: Order) -> None:
        grammar = ask.question.grammar
        self._maker, self._ask, self._values = maker, ask, values_of(ask, order)
        self._choices = ask.choices(order) if grammar is None else select_grammar.listed(grammar)
        self._plans: dict[tuple[object, ...], tuple[SelectRequest, SelectPlan | None]] = {}
        self._n_read = 0
        self._frame: PromptFrame | None = None

    def prepared(self, state: str) -> PreparedPrompt:
        """Return the prompt about a state, checked and tokenized."""
        if isinstance(self._maker.template, str):
            self._check_length(state)
        page = self._page(state)
        if page.kind not in self._plans:
            self._plans[page.kind] = self._plan(page)
        request, plan = self._plans[page.kind]
        if plan is None:
            return PreparedPrompt(page.prompt, self._search(page, request), request)
        return PreparedPrompt(page.prompt, plan.after(page.prompt, self._read(state, request.prompting)), request)

    def _page(self, state: str | None) -> Page:
        return page_of(self._maker.template, self._ask.question, self._values, state)

    def _plan(self, page: Page) -> tuple[SelectRequest, SelectPlan | None]:
        """Return the options of a selection after a page, and the plan of its choices.

        Pages whose answer begins and ends alike share them (`Page.kind`). A grammar
        whose texts cannot be listed has no plan.
        """
        params = self._maker.params
        terminator, following = "text" if page.following else "eog" if page.is_chat else "auto", page.following
        if params.scoring == "letters":
            terminator, following = "none", ""  # the letter alone is read
        prior, members = self._ask.prior, self._ask.option_of_text
        if members is not None:
            if terminator == "auto":
                remedy = "their probabilities add up where an answer ends; write text after the slot"
                raise IncompatibleOptionsError("texts", "a page on which answers do not end", remedy)
            prior = None if prior is None else tuple(prior[index] for index in members)
        rule = ScoringRule(self._ask.rule, content_free=CONTENT_FREE if self._ask.rule == "calibrated" else ())
        search = _SEARCH if params.top is None else SearchParams(method="best_first", k=params.top)
        prompting = PromptParams()
        if page.is_chat:
            shared = self._maker.prompting
            prompting = replace(shared, assistant_prefix=shared.assistant_prefix + page.assistant_prefix)
        request = SelectRequest(rule, terminator, following, prior, search, prompting)
        if self._choices is None:
            return request, None
        _check_endings(self._choices, following)
        states = {"pmi": (None,), "calibrated": CONTENT_FREE}.get(rule.name)
        premises = None if states is None else [self._page(state).prompt for state in states]
        return request, SelectPlan(self._maker.model, self._choices, request, premises=premises, groups=members)

    def _read(self, state: str, prompting: PromptParams) -> PromptText | None:
        """Return the prompt about a state as it is read, if its frame is known.

        From the second state on, what is around the state is rendered and encoded once.
        """
        if isinstance(self._maker.template, Template) or is_example(self._ask.question, state):
            return None
        self._n_read += 1
        if self._n_read == _FRAMED_FROM:
            self._frame = self._new_frame(prompting)
        return None if self._frame is None else self._frame.read(state)

    def _new_frame(self, prompting: PromptParams) -> PromptFrame | None:
        """Return what is around a state; None if it cannot be read apart."""
        vocabulary, page = self._maker.model.vocabulary, self._page("")
        empty = repr(page)
        mark = next(mark for n in count() if (mark := f"[st4te {n}]") not in empty)  # no end is its beginning

        def read(text: str) -> PromptText:
            return read_prompt(vocabulary, self._page(text).prompt, prompting)

        if page.is_chat:
            return chat_frame(vocabulary, lambda text: self._page(text).messages, prompting, mark, read)
        before, behind = self._page(mark).text.split(mark)
        return page_frame(vocabulary, before, behind, read)

    def _check_length(self, state: str) -> None:
        """Raise `PromptTooLongError` for a text that no prompt can hold."""
        vocabulary, limits = self._maker.model.vocabulary, self._maker.model.limits
        longest = max(state, self._ask.question.instructions, key=len)
        if len(longest) > limits.nodes:
            n_least = least_tokens(vocabulary, longest.encode("utf-8", "replace"), limit=limits.nodes)
            if n_least > limits.nodes:
                raise limits.too_long(n_least, _shorten(self._ask, state), is_least=True)

    def _search(self, page: Page, request: SelectRequest) -> PreparedGrammarSelect:
        """Return the search of a grammar after a page."""
        model, vocabulary = self._maker.model, self._maker.model.vocabulary
        grammar: Any = self._ask.question.grammar
        ending = ending_of(vocabulary, grammar, None, request.following, ends_turn=page.is_chat)
        read = read_prompt(vocabulary, page.prompt, request.prompting)
        n_left = model.limits.nodes - max_context_tokens(reopen(vocabulary, read))
        search = replace(request.search, method="auto", max_tokens=max(1, min(request.search.max_tokens, n_left)))
        asked = replace(request, terminator=ending.terminator, following="", search=search)
        searched = select_grammar.prepare_grammar_select(model, page.prompt, ending.grammar, asked)
        return replace(searched, grammar=ending.own, following=ending.text)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedPrompt:
    """One prompt of a question.

    Attributes:
        prompt: The page or the messages.
        select: The selection, checked and tokenized.
        request: The options of the selection.
    """

    prompt: Prompt
    select: PreparedSelect | PreparedGrammarSelect
    request: SelectRequest


_Site: TypeAlias = tuple[int, str]
"""The index of a state, and the name of a question about it."""


@dataclass(frozen=True, slots=True, eq=False)
class PreparedDecisions:
    """Questions about several states, checked and tokenized.

    Attributes:
        maker: What made the prompts.
        n_states: Number of states.
        prompts: The prompts of each question about each state, one for each order.
        errors: The errors of states that were kept, by the states' indices.
        keeps: Whether errors of a state are kept in its decision.
        first: Index of the first state in errors; None if there is only one.
    """

    maker: DecisionMaker
    n_states: int
    prompts: Mapping[_Site, tuple[PreparedPrompt, ...]]
    errors: Mapping[int, RequestError]
    keeps: bool
    first: int | None

    def check_rows(self, max_rows: int) -> None:
        """Raise `TooManyRowsError` if the prompts plan more rows than that.

        Searches of a grammar have limits of their own and are not counted.
        """
        selects = [prompt.select for prompts in self.prompts.values() for prompt in prompts]
        planned = planned_rows(select for select in selects if isinstance(select, PreparedSelect))
        if planned > max_rows:
            raise TooManyRowsError(planned, max_rows)

    def run(self, session: Session) -> list[Decision]:
        """Evaluate all prompts together and return the decisions in order."""
        asked = [index for index in range(self.n_states) if index not in self.errors]
        made: Sequence[Decision | RequestError]
        try:
            made = self._run(session, asked)
        except RequestError as error:
            if not self.keeps or isinstance(error, ClosedError | ForkedError):
                raise
            alone = [_or_error(partial(self._run, session, [index]), keeps=True) for index in asked]
            made = [one if isinstance(one, RequestError) else one[0] for one in alone]
        decisions: dict[int, Decision | RequestError] = {**self.errors, **dict(zip(asked, made, strict=True))}
        found = [decisions[index] for index in range(self.n_states)]
        return [Decision({}, one) if isinstance(one, RequestError) else one for one in found]

    def _run(self, session: Session, indices: Sequence[int]) -> list[Decision]:
        """Return the decisions on these states.

        With `permutations="auto"` there are several rounds: answers so far say which
        questions are asked in more orders.
        """
        asks = self.maker.asks
        made: dict[_Site, list[Selection]] = {(index, name): [] for index in indices for name in asks}
        pending = dict.fromkeys(made, 0)
        while pending := {
            site: n for site in pending if (n := asks[site[1]].n_orders_wanted(made[site])) > len(made[site])
        }:
            new = [(site, one) for site, n in pending.items() for one in self.prompts[site][len(made[site]) : n]]
            for (site, _), result in zip(new, self._selections(session, new), strict=True):
                made[site].append(result)
        return [
            Decision({name: self._answer((index, name), tuple(made[index, name])) for name in asks})
            for index in indices
        ]

    def _selections(self, session: Session, prompts: Sequence[tuple[_Site, PreparedPrompt]]) -> list[Selection]:
        """Return the selection after each prompt.

        Those with listed choices run together, then each search of a grammar.
        """
        made: dict[int, Selection] = {}
        batch = [(at, one.select) for at, (_, one) in enumerate(prompts) if isinstance(one.select, PreparedSelect)]
        try:
            results = SelectBatch([one for _, one in batch]).run(session)
            made |= zip([at for at, _ in batch], results, strict=True)
        except SelectrieError as error:
            if error.request is None and len(batch) != 1:
                raise
            at, error.request = batch[error.request or 0][0], None
            with self._errors_of(prompts[at][0]):
                raise
        for at, (site, one) in enumerate(prompts):
            if isinstance(one.select, PreparedGrammarSelect):
                with self._errors_of(site):
                    made[at] = one.select.run(session)
        return [made[at] for at in range(len(prompts))]

    def _answer(self, site: _Site, selections: tuple[Selection, ...]) -> Answer:
        vocabulary, ask = self.maker.model.vocabulary, self.maker.asks[site[1]]
        fits = [first_token_fits(vocabulary, result) for result in selections]
        n_tokens = sum(n_prompt_tokens(vocabulary, prompt) for prompt in self.prompts[site][: len(selections)])
        cost = sum((result.cost for result in selections[1:]), selections[0].cost)
        usage = DecisionUsage(len(selections), n_tokens, cost)
        maker, template = self.maker, self.maker.template
        signature = DecisionSignature(
            template=template.name if isinstance(template, Template) else f"{template}.tmpl",
            template_digest=maker.digest,
            layout=ask.layout,
            scoring=maker.params.scoring,
            rule=ask.rule,
            listed=ask.listed,
            orders=ask.n_orders,
            selection=selections[0].signature,
            calibration=ask.calibration,
        )
        return ask.answer(selections, first_token_fits=all(fits), signature=signature, usage=usage)

    def _errors_of(self, site: _Site) -> AbstractContextManager[None]:
        index, name = site
        return _errors_of(None if self.first is None else self.first + index, name)


def _or_error(call: Callable[[], T], *, keeps: bool) -> T | RequestError:
    """Return what a call returns, or the error of its request if that is kept."""
    try:
        return call()
    except RequestError as error:
        if not keeps:
            raise
        return error


def _shorten(ask: Ask, state: str) -> str:
    """Return the advice to shorten what takes most of a prompt."""
    question = ask.question
    listed = sum(len(one.scored) + len(one.description or "") for one in ask.options) if ask.listed else 0
    longest = max((len(text) for one in ask.options for text in one.spellings), default=0)
    lengths = {
        _SHORTEN: len(state),
        "shorten the instructions": len(question.instructions),
        "shorten the cue": len(question.cue or ""),
        "give shorter examples, or fewer of them": sum(len(text) + len(answer) for text, answer in question.examples),
        "give shorter options, or fewer of them": max(listed, longest),
    }
    return max(lengths, key=lengths.__getitem__)


def _fits_unlisted(maker: DecisionMaker, ask: Ask, state: str) -> bool:
    """Return whether a question that is too long fits without its list of options."""
    if not ask.listed or maker.params.scoring != "text":
        return False
    try:
        PromptMaker(maker, replace(ask, listed=False), ask.orders[0]).prepared(state)
    except RequestError:
        return False
    return True


def _check_endings(choices: Sequence[str], following: str) -> None:
    """Raise `ChoiceError` for a choice that another one, once ended, would begin.

    The shorter one would then hold the probability of the longer one too.
    """
    index_of = {text: index for index, text in enumerate(choices)}
    for index, text in enumerate(choices):
        for at, character in enumerate(text):
            if character == following[:1] and text[:at] in index_of:
                reason = (
                    f"it begins with choice {index_of[text[:at]]} and {character!r}, with which the template "
                    "ends an answer; give it another text"
                )
                raise ChoiceError(reason, index=index, choice=text)


@contextmanager
def _errors_of(index: int | None, name: str) -> Iterator[None]:
    """Attach the index of the state and the name of the question to errors."""
    with of_request(index):
        if not name:
            yield
            return
        with of_slot(f"question {name!r}"):
            yield


def prompts_of(
    model: ModelDescription, state: State, questions: Mapping[str, Question], params: DecisionParams
) -> dict[str, tuple[DecisionPrompt, ...]]:
    """Return the prompts of questions about a state; no model call is made."""
    maker = DecisionMaker.of(model, questions, params)
    return {
        name: tuple(_shown(model.vocabulary, maker.asks[name], prompt) for prompt in prompts)
        for name, prompts in maker.prepared(state).items()
    }


def _shown(vocabulary: Vocabulary, ask: Ask, one: PreparedPrompt) -> DecisionPrompt:
    grammar = ask.question.grammar
    is_listed = isinstance(one.select, PreparedSelect)
    tokens = encode_prompt(vocabulary, read_prompt(vocabulary, one.prompt, one.request.prompting)).tolist()
    return DecisionPrompt(
        prompt=one.prompt,  # type: ignore[arg-type]  # a page or messages
        choices=one.select.texts if isinstance(one.select, PreparedSelect) and grammar is None else None,
        grammar=grammar,
        terminator=one.request.terminator,
        following=one.request.following,
        prior=one.request.prior,  # type: ignore[arg-type]  # weights in order
        search=one.request.search,
        prompting=one.request.prompting,
        shown=_as_read(vocabulary, tokens),
        n_tokens=len(tokens),
        n_choice_tokens=len(one.select.encoded.tokens) if is_listed else 0,  # type: ignore[union-attr]
    )


def _as_read(vocabulary: Vocabulary, tokens: Sequence[int]) -> str:
    """Return the text of tokens, with control tokens by their spelling."""
    pieces, names = vocabulary.pieces, vocabulary.texts
    return b"".join(pieces[token] or names[token].encode() for token in tokens).decode(errors="replace")


def n_prompt_tokens(vocabulary: Vocabulary, one: PreparedPrompt) -> int:
    """Return the number of tokens of a prompt."""
    if isinstance(one.select, PreparedSelect):
        return len(one.select.encoded.prompt_tokens)
    return len(encode_prompt(vocabulary, read_prompt(vocabulary, one.prompt, one.request.prompting)))


def first_token_fits(vocabulary: Vocabulary, result: Selection) -> bool:
    """Return whether the most probable token after the context begins a choice.

    It does if it is the first token of a choice, or if its bytes begin the text of one.
    It does not if the rows that were read leave open which token it is.
    """
    if not result.top_tokens:
        return False
    table, top = result.choices, result.top_tokens[0]
    if top.id in table.trie.token[table.trie.children(ROOT)].tolist():
        return True
    texts = [result.healed + text.encode() for text in table.texts]
    return bool(top.piece) and any(
        text.startswith(top.piece) or vocabulary.begun(text).startswith(top.piece) for text in texts
    )


_SOME_TIME = "2000-01-01T00:00:00"
"""Time that a template is told where two chats are compared."""


def _for_answers(vocabulary: Vocabulary) -> PromptParams:
    """Return the options under which a chat template asks for an answer at once.

    `enable_thinking=False` is what templates of models that can do both look at. If the
    prompt still ends in an open block of thinking, the block is closed, empty. White
    space that the template writes before an answer becomes part of the prompt.
    """
    args, chat = {"enable_thinking": False}, vocabulary.chat_template
    if chat is None:
        return PromptParams()
    chat = partial(chat, **time_args(vocabulary, _SOME_TIME if vocabulary.chat_time is None else None))
    question = {"role": "user", "content": "?"}
    try:
        written = chat([question], **args)
    except PromptError:
        return PromptParams(template_args=args)
    opened = _OPEN_THOUGHT.search(written)
    if opened is None:
        return PromptParams(template_args=args, assistant_prefix=_lead(chat, question, written, args))
    gap = "\n" if opened[0].endswith("\n") else "\n\n"
    return PromptParams(template_args=args, assistant_prefix=f"{gap}</{opened[1]}>\n\n")


def _lead(chat: ChatTemplate, question: Mapping[str, str], written: str, args: Mapping[str, object]) -> str:
    """Return the white space that a chat template writes before an answer, or "".

    It is what comes between the prompt `written` for a question and the content of an
    assistant's turn after it. Other text is left out: it belongs to earlier turns only,
    or is the model's to write.
    """
    try:
        told = chat([question, {"role": "assistant", "content": _MARK}], **args, add_generation_prompt=False)
    except PromptError:
        return ""
    lead = told[len(written) :].partition(_MARK)[0] if told.startswith(written) and _MARK in told else ""
    return "" if lead.strip() else lead
