"""Makes the prompts of questions about states, checked and tokenized for one model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import Any, TypeAlias

from selectrie.core.model import ModelDescription
from selectrie.core.types import IntArray
from selectrie.core.vocabulary import ChatTemplate, Vocabulary
from selectrie.decide.answers import ValueShape
from selectrie.decide.asks import CONTENT_FREE, Ask, Order, ask_of, calibrated_ask
from selectrie.decide.calibration import Calibration
from selectrie.decide.params import IF_THEY_FIT, DecisionParams, check_threshold
from selectrie.decide.questions import Choice, Question
from selectrie.decide.states import State, text_of_state
from selectrie.decide.templates import (
    DecisionPrompt,
    Page,
    check_shown,
    check_slots,
    digest_of,
    is_example,
    list_questions,
    page_of,
    values_of,
)
from selectrie.decide.threshold import Threshold
from selectrie.decide.typed import Questions
from selectrie.engine.rendering.slot_ends import ending_of
from selectrie.engine.requests import select_grammar
from selectrie.engine.requests.constrained_prompt import max_context_tokens
from selectrie.engine.requests.select_grammar import PreparedGrammarSelect
from selectrie.engine.requests.selection import PreparedSelect, SelectPlan, SelectRequest
from selectrie.engine.requests.session import time_args
from selectrie.engine.thinking import OPEN_THOUGHT, SOME_TIME, Draw, Thinker
from selectrie.errors import (
    THE_STATE,
    ChoiceError,
    IncompatibleOptionsError,
    OptionError,
    PromptError,
    PromptTooLongError,
    RequestError,
    of_request,
    of_slot,
    of_value,
    remedies,
    words,
)
from selectrie.options import PromptParams, ScoringRule, SearchParams
from selectrie.results.advice import warn
from selectrie.template.analysis.template import Template
from selectrie.tokenization.canonical import reopen
from selectrie.tokenization.encoding import PromptText, encode_prompt, least_tokens
from selectrie.tokenization.prompt_frames import PromptFrame, chat_frame, page_frame
from selectrie.tokenization.prompts import Prompt, read_prompt

QuestionKey: TypeAlias = tuple[int, str]
"""The index of a state, and the name of a question about it."""
_SHORTEN_STATE = words("shorten {}", THE_STATE)
_PLACEHOLDER = "m4rk"
"""A text in place of an answer, to find what a chat template writes before it."""
_SEARCH = SearchParams(method="exhaustive")
_LETTERS_WARNING = (
    "letters on a model without a chat template, which may answer one letter for all texts; score the texts"
)
_FIRST_FRAMED = 2
"""The first state, counted from 1, for which a prompt's frame is made and used.

Making a frame for a single state does not pay.
"""


@dataclass(frozen=True, slots=True, eq=False)
class DecisionMaker:
    """Makes the prompts of several questions about any state, for one model.

    Attributes:
        model: The model.
        asks: The questions with their settings, by name.
        params: The options of the decision.
        template: A template of the caller, or "chat" or "base".
        digest: The digest of the template.
        prompting: Options of the chat template. The assistant prefix of a page is
            appended to theirs.
        conditions: The conditions under which each question is asked, by name
            (`Answer.conditions`).
        shape: The object that the values of the answers make; None for a dictionary.
        thinker: Draws the rationales before the answers; None without `think`.
        _prompts: The prompt makers of each question used so far, one for each order.
    """

    model: ModelDescription
    asks: Mapping[str, Ask]
    params: DecisionParams
    template: Template | str
    digest: str
    prompting: PromptParams
    conditions: Mapping[str, Mapping[str, object]]
    shape: ValueShape | None = None
    thinker: Thinker | None = None
    _prompts: dict[str, tuple[PromptMaker, ...]] = field(default_factory=dict, init=False)

    @classmethod
    def of(
        cls,
        model: ModelDescription,
        questions: Mapping[str, Question],
        params: DecisionParams,
        *,
        draw: Draw | None = None,
        fits_calibration: bool = False,
    ) -> DecisionMaker:
        """Check questions and options together, and return their maker for a model.

        Args:
            model: The model.
            questions: The questions by name.
            params: The options of the decision.
            draw: Prepares the request that draws rationales; None refuses `think`.
            fits_calibration: Whether a calibration will be fitted to the answers.

        Raises:
            RequestError: For questions that cannot be asked with these options.
            PromptError: If the template needs a chat template and the model has none.
        """
        check_threshold(params, questions)
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
        conditions = {}
        for name, question in questions.items():
            with attach_to_errors(None, name):
                asks[name] = ask(question, has_calibration=fits_calibration or calibration is not None)
                check_shown(question, template)
                if isinstance(calibration, Calibration):
                    plain = ask(question)
                    asks[name] = calibrated_ask(calibration, plain, asks[name], digest, model.identity)
                conditions[name] = asks[name].conditions(asks[name].bound(digest, model.identity))
                asks[name] = asks[name].with_threshold(conditions[name])
        if chat is None and params.scoring == "letters":
            warn(_LETTERS_WARNING)
        in_chat = template != "base" and chat is not None
        prompting = _answer_params(model.vocabulary, params, in_chat=in_chat)
        thinker = Thinker.of(model, params.think, draw, in_chat=in_chat)
        if thinker is not None and thinker.is_native:
            prompting = PromptParams(template_args={"enable_thinking": True, **params.template_args})
        args = {**prompting.template_args, **time_args(model.vocabulary, params.time)}
        prompting = replace(prompting, template_args=args)
        shape = questions.shape if isinstance(questions, Questions) else None
        return cls(model, asks, params, template, digest, prompting, conditions, shape, thinker)

    def context_tokens(self, state: str) -> list[IntArray]:
        """Return the token ids of each prompt about a state.

        The prompts of grammars that cannot be listed are left out.
        """
        selects = [prompt.select for prompts in self.tokenize(state).values() for prompt in prompts]
        return [select.encoded.context for select in selects if isinstance(select, PreparedSelect)]

    def tokenize(self, state: State, request: int | None = None) -> dict[str, tuple[TokenizedPrompt, ...]]:
        """Return the prompts of each question about a state, by the question's name.

        A question has one prompt for each order of its options. `request` is the index
        of the state in errors.
        """
        with of_request(request):
            text = text_of_state(state)
            return {name: self._tokenize_question(text, name, ask) for name, ask in self.asks.items()}

    def _tokenize_question(self, state: str, name: str, ask: Ask) -> tuple[TokenizedPrompt, ...]:
        """Return the prompts of one question about a state, one for each order."""
        with attach_to_errors(None, name):
            try:
                prompts = tuple([one.tokenize(state) for one in self.prompt_makers(name)])
            except PromptTooLongError as error:
                prompt = _unlisted_prompt(self, ask, state)
                is_fitted = ask.calibration or isinstance(self.params.min_confidence, Threshold)  # to the list
                if prompt is not None and self.params.list_options == IF_THEY_FIT and not is_fitted:
                    warn(f"question {of_value(name)}: the list of its options does not fit the context, so it has none")
                    return (prompt,) * len(ask.orders)
                unlisted = "" if prompt is None else "score the options without listing them (`list_options=False`)"
                remedy = remedies(_advise_shortening(ask, state), unlisted)
                raise error.with_remedy(remedy) from error
            if self.thinker is not None:
                self._check_room(prompts, self.thinker.params.max_tokens)
            return prompts

    def _check_room(self, prompts: Sequence[TokenizedPrompt], max_tokens: int) -> None:
        """Raise `PromptTooLongError` if a rationale and an option would not fit."""
        for one in prompts:
            if isinstance(one.select, PreparedSelect):
                n_tokens = len(one.select.encoded.context) + max_tokens + int(one.select.trie.depth.max())
                if n_tokens > self.model.limits.nodes:
                    remedy = "ask for shorter rationales (`Thinking.max_tokens`)"
                    raise self.model.limits.too_long(n_tokens, remedy)

    def prompt_makers(self, name: str) -> tuple[PromptMaker, ...]:
        """Return the prompt makers of a question, one for each order of its options."""
        if name not in self._prompts:
            ask = self.asks[name]
            self._prompts[name] = tuple(PromptMaker(self, ask, order) for order in ask.orders)
        return self._prompts[name]

    def shared_prompt_maker(self) -> PromptMaker:
        """Return the maker of prompts about all questions together."""
        params = replace(self.params, prior=None, list_options=False, layout="auto")
        question = Choice(list_questions(self.asks.values()), ["?"])
        ask = ask_of(question, params, len(self.asks), on_page=self.template == "base")
        return PromptMaker(self, ask, ask.orders[0])

    def prompting_of(self, page: Page) -> PromptParams:
        """Return the options of the prompt that is a page."""
        if not page.is_chat:
            return PromptParams()
        return replace(self.prompting, assistant_prefix=self.prompting.assistant_prefix + page.assistant_prefix)


class PromptMaker:
    """Makes the prompts of a question with one order of its options, about any state.

    Parts that do not depend on the state are computed once.

    Args:
        maker: The maker of all questions, with the model and the template.
        ask: The question with its settings.
        order: The order in which the options are listed.
    """

    def __init__(self, maker: DecisionMaker, ask: Ask, order: Order) -> None:
        grammar = ask.question.grammar
        self._maker, self._ask, self._values = maker, ask, values_of(ask, order)
        self._choices = ask.choices(order) if grammar is None else select_grammar.list_texts(grammar)
        self._plans: dict[tuple[object, ...], tuple[SelectRequest, SelectPlan | None]] = {}
        self._n_states = 0
        self._frame: PromptFrame | None = None

    def tokenize(self, state: str, rationale: str | None = None) -> TokenizedPrompt:
        """Return the prompt about a state, checked and tokenized.

        `rationale` is the text from the prompt to the answer, with its markers. If the
        model thinks first and it is None, the prompt has an empty rationale.
        """
        if isinstance(self._maker.template, str):
            self._check_length(state)
        page, thinker = self.write_page(state), self._maker.thinker
        if page.kind not in self._plans:
            self._plans[page.kind] = self._make_plan(page)
        request, plan = self._plans[page.kind]
        if plan is None:
            return TokenizedPrompt(page.prompt, self._prepare_search(page, request), request)
        if thinker is not None:
            page = page.with_inserted(thinker.markers.around("") if rationale is None else rationale)
            request = replace(request, prompting=self._maker.prompting_of(page))
            read = read_prompt(self._maker.model.vocabulary, page.prompt, request.prompting)
            return TokenizedPrompt(page.prompt, plan.prepare(page.prompt, read), request)
        prompt_text = self._read_prompt(state, request.prompting)
        return TokenizedPrompt(page.prompt, plan.prepare(page.prompt, prompt_text), request)

    def write_thinking_page(self, state: str, start: str) -> Page:
        """Return the page that a rationale continues."""
        return self.write_page(state).with_inserted(start, ends=True)

    def write_page(self, state: str | None) -> Page:
        """Return the page about a state, or the page without a state for None."""
        return page_of(self._maker.template, self._ask.question, self._values, state)

    def _make_plan(self, page: Page) -> tuple[SelectRequest, SelectPlan | None]:
        """Return the options of a page's selection, and the plan of its choices.

        Pages of equal `Page.kind` share both. A grammar whose texts cannot be listed
        has no plan.
        """
        params = self._maker.params
        terminator, following = "text" if page.following else "eog" if page.is_chat else "auto", page.following
        if params.scoring == "letters":
            terminator, following = "none", ""  # only the letter is scored
        prior, option_of_text = self._ask.prior, self._ask.option_of_text
        if option_of_text is not None:
            if terminator == "auto":
                # Nothing marks the end of an answer, so one text may begin another one,
                # and the sum would count the longer text twice.
                remedy = "their probabilities add up where an answer ends; write text after the slot"
                raise IncompatibleOptionsError("texts", "a page on which answers do not end", remedy)
            prior = None if prior is None else tuple(prior[index] for index in option_of_text)
        rule = ScoringRule(self._ask.rule, content_free=CONTENT_FREE if self._ask.rule == "calibrated" else ())
        search = _SEARCH if params.top is None else SearchParams(method="best_first", k=params.top)
        request = SelectRequest(rule, terminator, following, prior, search, self._maker.prompting_of(page))
        if self._choices is None:
            return request, None
        _check_endings(self._choices, following)
        # Prompts of the rule's baselines: without a state, or with content-free ones.
        states = {"pmi": (None,), "calibrated": CONTENT_FREE}.get(rule.name)
        premises = None if states is None else [self.write_page(state).prompt for state in states]
        return request, SelectPlan(self._maker.model, self._choices, request, premises=premises, groups=option_of_text)

    def _read_prompt(self, state: str, prompting: PromptParams) -> PromptText | None:
        """Return the encoded prompt about a state, or None if there is no frame.

        From the second state on, the text around the state is rendered and encoded only
        once (the frame). Templates of the caller and states of examples have no frame.
        """
        if isinstance(self._maker.template, Template) or is_example(self._ask.question, state):
            return None
        self._n_states += 1
        if self._n_states == _FIRST_FRAMED:
            self._frame = self._make_frame(prompting)
        return None if self._frame is None else self._frame.read(state)

    def _make_frame(self, prompting: PromptParams) -> PromptFrame | None:
        """Return the frame of the prompt: the encoded text around the state.

        Returns None if the prompt cannot be encoded in separate parts.
        """
        vocabulary, page = self._maker.model.vocabulary, self.write_page("")
        empty = repr(page)
        # No end of the mark is also a beginning of it, so occurrences cannot overlap.
        mark = next(mark for n in count() if (mark := f"[st4te {n}]") not in empty)

        def read(text: str) -> PromptText:
            return read_prompt(vocabulary, self.write_page(text).prompt, prompting)

        if page.is_chat:
            return chat_frame(vocabulary, lambda text: self.write_page(text).messages, prompting, mark, read)
        before, behind = self.write_page(mark).text.split(mark)
        return page_frame(vocabulary, before, behind, read)

    def _check_length(self, state: str) -> None:
        """Raise `PromptTooLongError` if state or instructions alone are too long."""
        vocabulary, limits = self._maker.model.vocabulary, self._maker.model.limits
        longest = max(state, self._ask.question.instructions, key=len)
        if len(longest) > limits.nodes:
            n_least = least_tokens(vocabulary, longest.encode("utf-8", "replace"), limit=limits.nodes)
            if n_least > limits.nodes:
                raise limits.too_long(n_least, _advise_shortening(self._ask, state), is_least=True)

    def _prepare_search(self, page: Page, request: SelectRequest) -> PreparedGrammarSelect:
        """Return the search for texts of the question's grammar after a page."""
        model, vocabulary = self._maker.model, self._maker.model.vocabulary
        grammar: Any = self._ask.question.grammar
        ending = ending_of(vocabulary, grammar, None, request.following, ends_turn=page.is_chat)
        read = read_prompt(vocabulary, page.prompt, request.prompting)
        n_left = model.limits.nodes - max_context_tokens(reopen(vocabulary, read))
        search = replace(request.search, method="auto", max_tokens=max(1, min(request.search.max_tokens, n_left)))
        request = replace(request, terminator=ending.terminator, following="", search=search)
        select = select_grammar.prepare_grammar_select(model, page.prompt, ending.grammar, request)
        return replace(select, grammar=ending.own, following=ending.text)


@dataclass(frozen=True, slots=True, eq=False)
class TokenizedPrompt:
    """A prompt of a question, with its tokenized selection.

    Attributes:
        prompt: The text of a page, or the messages of a chat.
        select: The selection of the answer, checked and tokenized but not run.
        request: The options of the selection.
        is_cut: Whether the list of options was left out because it did not fit.
    """

    prompt: Prompt
    select: PreparedSelect | PreparedGrammarSelect
    request: SelectRequest
    is_cut: bool = False


def _advise_shortening(ask: Ask, state: str) -> str:
    """Return the advice to shorten the longest part of a prompt."""
    question = ask.question
    listed = sum(len(one.scored) + len(one.description or "") for one in ask.options) if ask.listed else 0
    longest = max((len(text) for one in ask.options for text in one.spellings), default=0)
    lengths = {
        _SHORTEN_STATE: len(state),
        "shorten the instructions": len(question.instructions),
        "shorten the cue": len(question.cue or ""),
        "give shorter examples, or fewer of them": sum(len(text) + len(answer) for text, answer in question.examples),
        "give shorter options, or fewer of them": max(listed, longest),
    }
    return max(lengths, key=lengths.__getitem__)


def _unlisted_prompt(maker: DecisionMaker, ask: Ask, state: str) -> TokenizedPrompt | None:
    """Return the prompt of a question without its list of options, or None.

    None means that it does not fit either, or that there is no list to leave out.
    """
    if not ask.listed or maker.params.scoring != "text":
        return None
    try:
        prompt = PromptMaker(maker, replace(ask, listed=False), ask.orders[0]).tokenize(state)
    except RequestError:
        return None
    return replace(prompt, is_cut=True)


def _check_endings(choices: Sequence[str], following: str) -> None:
    """Raise `ChoiceError` if a choice begins with another choice and an answer's end.

    Otherwise the probability of the shorter choice would include the longer one's.
    """
    index_of = {text: index for index, text in enumerate(choices)}
    for index, text in enumerate(choices):
        for at, character in enumerate(text if following[:1] in text else ""):
            if character == following[:1] and text[:at] in index_of:
                reason = (
                    f"it begins with choice {index_of[text[:at]]} and {character!r}, with which the template "
                    "ends an answer; give it another text"
                )
                raise ChoiceError(reason, index=index, choice=text)


@contextmanager
def attach_to_errors(index: int | None, name: str) -> Iterator[None]:
    """Attach the index of the state and the name of the question to errors."""
    with of_request(index):
        if not name:
            yield
            return
        with of_slot(f"question {name!r}"):
            yield


def write_prompts(maker: DecisionMaker, state: State) -> dict[str, tuple[DecisionPrompt, ...]]:
    """Return the prompts of each question about a state, without a model call."""
    return {
        name: tuple(_describe_prompt(maker.model.vocabulary, maker.asks[name], prompt) for prompt in prompts)
        for name, prompts in maker.tokenize(state).items()
    }


def _describe_prompt(vocabulary: Vocabulary, ask: Ask, one: TokenizedPrompt) -> DecisionPrompt:
    """Return the public record of a tokenized prompt."""
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
        shown=_decode_tokens(vocabulary, tokens),
        n_tokens=len(tokens),
        n_choice_tokens=len(one.select.encoded.tokens) if is_listed else 0,  # type: ignore[union-attr]
    )


def _decode_tokens(vocabulary: Vocabulary, tokens: Sequence[int]) -> str:
    """Return the text of token ids, in which control tokens have their names."""
    pieces, names = vocabulary.pieces, vocabulary.texts
    return b"".join(pieces[token] or names[token].encode() for token in tokens).decode(errors="replace")


def _answer_params(vocabulary: Vocabulary, params: DecisionParams, *, in_chat: bool) -> PromptParams:
    """Return the chat template options of answers.

    Raises `IncompatibleOptionsError` for arguments without a chat template.
    """
    if not params.template_args:
        return vocabulary.derived(_find_answer_params)
    if not in_chat:
        raise IncompatibleOptionsError("template_args", "a page without a chat template", "leave them out")
    return _find_answer_params(vocabulary, params.template_args)


def _find_answer_params(vocabulary: Vocabulary, further: Mapping[str, Any] = MappingProxyType({})) -> PromptParams:
    """Return chat template options with which the model answers without thinking.

    The argument `enable_thinking=False` turns thinking off in templates that support
    it. If the prompt still ends in an open thinking block, the assistant prefix closes
    it. White space that the template writes before an answer also becomes a prefix.
    `further` are arguments of the caller, which come first.
    """
    args, chat = {"enable_thinking": False, **further}, vocabulary.chat_template
    if chat is None:
        return PromptParams()
    chat = partial(chat, **time_args(vocabulary, SOME_TIME if vocabulary.chat_time is None else None))
    question = {"role": "user", "content": "?"}
    try:
        written = chat([question], **args)
    except PromptError:
        return PromptParams(template_args=args)
    opened = OPEN_THOUGHT.search(written)
    if opened is None:
        return PromptParams(template_args=args, assistant_prefix=_find_leading_space(chat, question, written, args))
    gap = "\n" if opened[0].endswith("\n") else "\n\n"
    return PromptParams(template_args=args, assistant_prefix=f"{gap}</{opened[1]}>\n\n")


def _find_leading_space(
    chat: ChatTemplate, question: Mapping[str, str], prompt: str, args: Mapping[str, object]
) -> str:
    """Return the white space that a chat template writes before an answer, or "".

    `prompt` is the rendered question. The result is the text between it and the content
    of the assistant's turn, if that is only white space. Other text is not returned:
    the template writes it only in earlier turns, or the model writes it.
    """
    answer = {"role": "assistant", "content": _PLACEHOLDER}
    try:
        chat_text = chat([question, answer], **args, add_generation_prompt=False)
    except PromptError:
        return ""
    if not chat_text.startswith(prompt) or _PLACEHOLDER not in chat_text:
        return ""
    lead = chat_text[len(prompt) :].partition(_PLACEHOLDER)[0]
    return "" if lead.strip() else lead
