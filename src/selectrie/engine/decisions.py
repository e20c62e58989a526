"""Answers questions about states: the prompts of all of them are selected together.

There is no scoring here. Each prompt becomes one prepared selection; all run in one
task group, and the answers are made of their results (`decide.asks`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from selectrie.core.model import ModelDescription
from selectrie.core.types import ROOT, IntArray
from selectrie.core.vocabulary import ChatTemplate, Vocabulary
from selectrie.decide.answers import Answer, Decision, DecisionSignature, DecisionUsage
from selectrie.decide.asks import (
    CONTENT_FREE,
    Ask,
    Evidence,
    Order,
    answer_of,
    ask_of,
    bound_of,
    choices_of,
    is_calibrated,
    is_same_text,
    n_orders_wanted,
    probabilities_of,
    values_of,
    with_calibration,
)
from selectrie.decide.params import Calibration, DecisionParams, question_calibration
from selectrie.decide.questions import Choice, Question
from selectrie.decide.states import State, text_of_state
from selectrie.decide.templates import (
    DecisionPrompt,
    Page,
    StateFrame,
    check_shown,
    check_slots,
    digest_of,
    render,
    shipped,
)
from selectrie.engine.rendering.slot_ends import Ending, ending_of
from selectrie.engine.requests import select_grammar, selection
from selectrie.engine.requests.constrained_prompt import max_context_tokens
from selectrie.engine.requests.select import SelectBatch
from selectrie.engine.requests.select_grammar import PreparedGrammarSelect
from selectrie.engine.requests.selection import PreparedSelect, SelectRequest, planned_rows
from selectrie.engine.requests.session import Session, time_args
from selectrie.errors import (
    THE_STATE,
    ChoiceError,
    ClosedError,
    ForkedError,
    IncompatibleOptionsError,
    InternalError,
    OptionError,
    PromptError,
    PromptTooLongError,
    RequestError,
    SelectrieError,
    TooManyRowsError,
    of_request,
    of_slot,
    ways,
    words,
)
from selectrie.grammar import Grammar
from selectrie.options import PromptParams, ScoringRule, SearchParams
from selectrie.results import Selection
from selectrie.results.advice import warn
from selectrie.template.analysis.template import Template
from selectrie.tokenization.canonical import reopen
from selectrie.tokenization.encoding import PromptText, encode_prompt, least_tokens
from selectrie.tokenization.prompt_frames import PromptFrame, chat_frame, page_frame
from selectrie.tokenization.prompts import Prompt, read_prompt

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
        template: The template.
        prompting: Options of the chat template; the text before the answer is added.
    """

    model: ModelDescription
    asks: Mapping[str, Ask]
    params: DecisionParams
    template: Template
    prompting: PromptParams
    _prompts: dict[str, tuple[PromptMaker, ...]] = field(default_factory=dict, init=False)
    _digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_digest", digest_of(self.template))

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
        on_page = template == "base" or (template == "auto" and chat is None)
        ask = partial(ask_of, params=params, n_questions=len(questions), on_page=on_page)
        for name, question in questions.items():
            with _errors_of(None, name):
                asks[name] = ask(question, is_compared=fits or params.calibration is not None)
                check_shown(question, template)
        if isinstance(template, Template):
            check_slots(template)
        else:
            if template == "chat" and chat is None:
                raise PromptError(words("this model has no chat template; take `template='base'`, or 'auto'"))
            template = shipped(("base" if chat is None else "chat") if template == "auto" else template)
        if chat is None and params.scoring == "letters":
            warn(_LETTERS)
        calibration = params.calibration
        if calibration == "batch":
            allowed = "decide_many or a table, whose states it is fitted to; else a Calibration (`fit_calibration`)"
            raise OptionError("calibration", calibration, allowed)
        if isinstance(calibration, Calibration):
            digest = digest_of(template)
            for name, one in asks.items():
                if not is_calibrated(one.question, params):
                    continue
                bound = bound_of(one, params, digest, model.identity)
                is_plain = calibration.is_default and not calibration.holds_for(bound)
                with _errors_of(None, name):
                    asks[name] = ask(one.question) if is_plain else with_calibration(one, calibration, bound)
        prompting = model.vocabulary.derived(_for_answers)
        args = {**prompting.template_args, **time_args(model.vocabulary, params.time)}
        return cls(model, asks, params, template, replace(prompting, template_args=args))

    def decisions(self, states: Sequence[State], *, keeps: bool, first: int | None) -> PreparedDecisions:
        """Check and tokenize all questions about some states.

        Raises `RequestError` for whatever can be found invalid without a model call,
        with the index of the state and the name of the question. With `keeps`, errors
        that belong to one state are kept instead. `first` is the index of the first
        state in errors; with None, there is one state and errors have no index.
        """
        prepared: list[_PreparedState | RequestError] = []
        for index, state in enumerate(states):
            request = None if first is None else first + index
            prepared.append(_prepared_state(self, state, request, keeps=keeps))
        return PreparedDecisions(self, prepared, keeps, first)

    def calibration(self, decisions: Sequence[Decision]) -> Calibration:
        """Return the calibration of the questions that can have one.

        Args:
            decisions: Decisions of this maker about some states, without a prior.
        """
        return Calibration(
            tuple(
                question_calibration(bound_of(ask, self.params, self._digest, self.model.identity), samples)
                for name, ask in self.asks.items()
                if (samples := [probabilities_of(ask.question, one[name]) for one in decisions]) and not ask.has_grammar
            )
        )

    def contexts(self, state: str) -> list[IntArray]:
        """Return the tokens of the prompts of all questions about a state.

        Questions whose options are the texts of a grammar are left out.
        """
        selects = [prompt.select for name in self.asks for prompt in _prepared(self, name, state)]
        return [select.encoded.context for select in selects if isinstance(select, PreparedSelect)]

    def prompts(self, name: str) -> tuple[PromptMaker, ...]:
        """Return what makes the prompts of a question, one for each order."""
        if name not in self._prompts:
            ask = self.asks[name]
            self._prompts[name] = tuple(PromptMaker(self, ask, order) for order in ask.orders)
        return self._prompts[name]

    def signature(self, ask: Ask, first: Selection) -> DecisionSignature:
        """Return what the answer to a question depends on."""
        params = self.params
        return DecisionSignature(
            template=self.template.name,
            template_digest=self._digest,
            layout=ask.layout,
            scoring=params.scoring,
            rule=ask.rule,
            listed=ask.listed,
            orders=ask.n_orders(params),
            selection=first.signature,
            calibration=ask.calibration,
        )


class PromptMaker:
    """Makes the prompts of a question in one order of its options, about any states.

    What does not depend on the state is made once.

    Args:
        maker: What the prompts of all questions have in common.
        ask: What is asked.
        order: The order in which the options are listed.
    """

    def __init__(self, maker: DecisionMaker, ask: Ask, order: Order) -> None:
        self._maker, self._ask, self._order = maker, ask, order
        self._choices = choices_of(ask, order, maker.params)
        self._frame: StateFrame | None = None
        self._n_read = 0
        self._prompt_frame: PromptFrame | None = None
        self._requests: dict[tuple[object, ...], SelectRequest] = {}
        self._plans: dict[tuple[object, ...], selection.SelectPlan] = {}

    def prepared(self, state: str) -> PreparedPrompt:
        """Return the prompt about a state, checked and tokenized."""
        page, question = self._page(state), self._ask.question
        prompt, request = page.prompt, self._request(page)
        if isinstance(question, Choice) and question.grammar is not None:
            return self._grammar(question.grammar, prompt, page, request)
        plan, read = self._plan(self._choices, page, request), self._read(state, request.prompting)
        return PreparedPrompt(prompt, plan.after(prompt, read), request, None)

    def _request(self, page: Page) -> SelectRequest:
        """Return the options of a selection after a page.

        Pages of a kind (`Page.kind`) share them.
        """
        if page.kind not in self._requests:
            params = self._maker.params
            terminator, following = "text" if page.following else "eog" if page.is_chat else "auto", page.following
            if params.scoring == "letters":
                terminator, following = "none", ""  # the letter alone is read
            prior, members = self._ask.prior, self._ask.members
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
            self._requests[page.kind] = SelectRequest(rule, terminator, following, prior, search, prompting)
        return self._requests[page.kind]

    def _read(self, state: str, prompting: PromptParams) -> PromptText | None:
        """Return the prompt about a state as it is read, if its frame is known.

        From the second state on, what is around the state is rendered and encoded once.
        """
        frame, vocabulary = self._frame, self._maker.model.vocabulary
        if frame is None or self._is_example(state):
            return None
        self._n_read += 1
        if self._n_read == _FRAMED_FROM and len(frame.around) == 2:
            before, behind = frame.around
            self._prompt_frame = page_frame(
                vocabulary, before, behind, lambda text: read_prompt(vocabulary, text.join(frame.around), prompting)
            )
        elif self._n_read == _FRAMED_FROM and frame.messages(""):
            self._prompt_frame = chat_frame(
                vocabulary,
                frame.messages,
                prompting,
                frame.mark,
                lambda text: read_prompt(vocabulary, frame.messages(text), prompting),
            )
        return None if self._prompt_frame is None else self._prompt_frame.read(state)

    def _page(self, state: str | None) -> Page:
        """Return the page about a state."""
        template = self._maker.template
        is_shipped = any(template is shipped(name) for name in ("chat", "base"))
        if state is None or not is_shipped or self._is_example(state):
            return self._rendered(state)
        self._check_length(state)
        self._frame = self._frame or StateFrame(self._rendered)
        return self._frame.page(state)

    def _check_length(self, state: str) -> None:
        """Raise `PromptTooLongError` for a text that no prompt can hold."""
        vocabulary, limits = self._maker.model.vocabulary, self._maker.model.limits
        longest = max(state, self._ask.question.instructions, key=len)
        if len(longest) > limits.nodes:
            n_least = least_tokens(vocabulary, longest.encode("utf-8", "replace"), limit=limits.nodes)
            if n_least > limits.nodes:
                raise limits.too_long(n_least, _shorten(self._ask, state), is_least=True)

    def _is_example(self, state: str) -> bool:
        """Return whether a state is an example, which its own prompt leaves out."""
        return any(is_same_text(text, state) for text, _ in self._ask.question.examples)

    def _rendered(self, state: str | None) -> Page:
        maker = self._maker
        return render(maker.template, values_of(self._ask, self._order, maker.params, state))

    def _plan(self, choices: Sequence[str], page: Page, request: SelectRequest) -> selection.SelectPlan:
        """Return the plan of all pages whose answer ends alike."""
        if page.kind not in self._plans:
            _check_endings(choices, request.following)
            states = {"pmi": (None,), "calibrated": CONTENT_FREE}.get(self._ask.rule)
            premises = None if states is None else [self._page(state).prompt for state in states]
            model, groups = self._maker.model, self._ask.members
            self._plans[page.kind] = selection.SelectPlan(model, choices, request, premises=premises, groups=groups)
        return self._plans[page.kind]

    def _grammar(self, grammar: Grammar, prompt: Prompt, page: Page, request: SelectRequest) -> PreparedPrompt:
        """Return a prompt whose choices are the texts of a grammar."""
        model = self._maker.model
        texts = select_grammar.listed(grammar)
        if texts is not None:
            return PreparedPrompt(prompt, self._plan(texts, page, request).after(prompt), request, None)
        vocabulary = model.vocabulary
        ending = ending_of(vocabulary, grammar, None, request.following, ends_turn=page.is_chat)
        n_left = model.limits.nodes - max_context_tokens(
            reopen(vocabulary, read_prompt(vocabulary, prompt, request.prompting))
        )
        search = replace(request.search, method="auto", max_tokens=max(1, min(request.search.max_tokens, n_left)))
        asked = replace(request, terminator=ending.terminator, following="", search=search)
        searched = select_grammar.prepare_grammar_select(model, prompt, ending.grammar, asked)
        return PreparedPrompt(prompt, searched, request, ending)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedPrompt:
    """One prompt of a question.

    Attributes:
        prompt: The page or the messages.
        select: The selection, checked and tokenized.
        request: The options of the selection.
        ending: How the texts of a grammar end, if they cannot be listed.
    """

    prompt: Prompt
    select: PreparedSelect | PreparedGrammarSelect
    request: SelectRequest
    ending: Ending | None


_PreparedState: TypeAlias = Mapping[str, tuple[PreparedPrompt, ...]]
"""The prompts about one state by the name of the question, one for each order."""
_Site: TypeAlias = tuple[int, str]
"""The index of a state, and the name of a question about it."""


@dataclass(frozen=True, slots=True, eq=False)
class PreparedDecisions:
    """Questions about several states, checked and tokenized.

    Attributes:
        maker: What made the prompts.
        states: The prompts about each state, or its error if that was kept.
        keeps: Whether errors of a state are kept in its decision.
        first: Index of the first state in errors; None if there is only one.
    """

    maker: DecisionMaker
    states: Sequence[_PreparedState | RequestError]
    keeps: bool
    first: int | None

    def check_rows(self, max_rows: int) -> None:
        """Raise `TooManyRowsError` if the prompts plan more rows than that.

        Searches of a grammar have limits of their own and are not counted.
        """
        asked = [one for state in self.states if not isinstance(state, RequestError) for one in state.values()]
        selects = [prompt.select for prompts in asked for prompt in prompts]
        planned = planned_rows(select for select in selects if isinstance(select, PreparedSelect))
        if planned > max_rows:
            raise TooManyRowsError(planned, max_rows)

    def run(self, session: Session) -> list[Decision]:
        """Evaluate all prompts together and return the decisions in order."""
        asked = [index for index, one in enumerate(self.states) if not isinstance(one, RequestError)]
        decisions = {i: Decision({}, one) for i, one in enumerate(self.states) if isinstance(one, RequestError)}
        try:
            made = self._run(session, asked)
        except RequestError as error:
            if not self.keeps or isinstance(error, ClosedError | ForkedError):
                raise
            made = [self._kept(session, index) for index in asked]
        decisions |= zip(asked, made, strict=True)
        return [decisions[index] for index in range(len(self.states))]

    def _kept(self, session: Session, index: int) -> Decision:
        """Decide on one state alone; its error becomes its decision."""
        try:
            return self._run(session, [index])[0]
        except RequestError as error:
            return Decision({}, error)

    def _run(self, session: Session, indices: Sequence[int]) -> list[Decision]:
        """Return the decisions on these states.

        With `permutations="auto"` there are several rounds: answers so far say which
        questions are asked in more orders.
        """
        asks, params = self.maker.asks, self.maker.params
        made: dict[_Site, list[Selection]] = {(index, name): [] for index in indices for name in asks}
        pending = dict.fromkeys(made, 0)
        while pending := {
            site: n for site in pending if (n := n_orders_wanted(asks[site[1]], made[site], params)) > len(made[site])
        }:
            new = [(site, one) for site, n in pending.items() for one in self._prompts(site)[len(made[site]) : n]]
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
                    result = one.select.run(session)
                    made[at] = result if one.ending is None else one.ending.of_selection(result)
        return [made[at] for at in range(len(prompts))]

    def _answer(self, site: _Site, selections: tuple[Selection, ...]) -> Answer:
        vocabulary, ask = self.maker.model.vocabulary, self.maker.asks[site[1]]
        fits = [first_token_fits(vocabulary, result) for result in selections]
        n_tokens = sum(n_prompt_tokens(vocabulary, prompt) for prompt in self._prompts(site)[: len(selections)])
        cost = sum((result.cost for result in selections[1:]), selections[0].cost)
        usage = DecisionUsage(len(selections), n_tokens, cost)
        evidence = Evidence(selections, all(fits), self.maker.signature(ask, selections[0]), usage)
        return answer_of(ask, evidence, self.maker.params)

    def _prompts(self, site: _Site) -> tuple[PreparedPrompt, ...]:
        """Return the prompts of a question about a state, one for each order."""
        state = self.states[site[0]]
        if isinstance(state, RequestError):
            raise InternalError("a state that cannot be asked is not evaluated")
        return state[site[1]]

    @contextmanager
    def _errors_of(self, site: _Site) -> Iterator[None]:
        index, name = site
        with _errors_of(None if self.first is None else self.first + index, name):
            yield


def _prepared_state(
    maker: DecisionMaker, state: State, request: int | None, *, keeps: bool
) -> _PreparedState | RequestError:
    """Return the prompts about one state, or its error if that is kept.

    `request` is the index of the state in errors.
    """
    try:
        try:
            text = text_of_state(state)
            return {name: _prepared(maker, name, text) for name in maker.asks}
        except SelectrieError:  # entering a context for every state would take longer
            with of_request(request):
                raise
    except RequestError as error:
        if not keeps:
            raise
        return error


def _prepared(maker: DecisionMaker, name: str, state: str) -> tuple[PreparedPrompt, ...]:
    """Return the prompts of a question about a state, one for each order."""
    try:
        return tuple([one.prepared(state) for one in maker.prompts(name)])
    except PromptTooLongError as error:
        ask = maker.asks[name]
        unlisted = "score the options without listing them (`list_options=False`)"
        remedy = ways(_shorten(ask, state), unlisted if _fits_unlisted(maker, ask, state) else "")
        with _errors_of(None, name):
            raise error.with_remedy(remedy) from error
    except SelectrieError:
        with _errors_of(None, name):
            raise


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
    maker, text = DecisionMaker.of(model, questions, params), text_of_state(state)
    return {
        name: tuple(_shown(model.vocabulary, ask, prompt) for prompt in _prepared(maker, name, text))
        for name, ask in maker.asks.items()
    }


def _shown(vocabulary: Vocabulary, ask: Ask, one: PreparedPrompt) -> DecisionPrompt:
    grammar = ask.question.grammar if isinstance(ask.question, Choice) else None
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
