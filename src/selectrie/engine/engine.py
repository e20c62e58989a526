"""The public façade.

An `Engine` owns one model. All model work runs on a single background thread; methods
may be called from any thread and are batched together. Most methods have an awaitable
form.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, TypeVar

from selectrie.core.model import Model, ModelDescription
from selectrie.core.types import Limits, ModelIdentity, SelfCheck
from selectrie.core.vocabulary import Vocabulary
from selectrie.engine.aio import async_stream, awaitable
from selectrie.engine.decision_methods import DecisionMethods
from selectrie.engine.precision_check import assumed
from selectrie.engine.prompt_methods import PromptMethods
from selectrie.engine.requests import select as select_requests
from selectrie.engine.requests import selection
from selectrie.engine.requests.generation_params import DEFAULT_GENERATING, GenerationParams
from selectrie.engine.requests.selection import Choices, CustomRule, SelectRequest
from selectrie.engine.requests.session import Prepared, Session
from selectrie.engine.runtimes import LocalRuntime, Runtime
from selectrie.engine.scheduler.observer import Observer
from selectrie.engine.scheduler.scheduler import Load
from selectrie.engine.scheduler.task_group import TaskGroup, note_prepared, task_group
from selectrie.engine.score_methods import ScoreMethods
from selectrie.engine.tokenizer_methods import TokenizerMethods
from selectrie.errors import IncompatibleOptionsError, OptionError, OptionRef
from selectrie.options import (
    DEFAULT_BEAM,
    DEFAULT_PROMPTING,
    DEFAULT_RENDERING,
    DEFAULT_SAMPLING,
    DEFAULT_SEARCH,
    DEFAULT_STOPPING,
    TOKENIZATIONS,
    BeamSearchParams,
    PromptParams,
    RenderParams,
    SamplingParams,
    ScoringRule,
    SearchParams,
    StopParams,
    at_least,
    one_of,
)
from selectrie.options.argument_names import named_arguments
from selectrie.results.advice import tell
from selectrie.tokenization.prompts import Prompt

if TYPE_CHECKING:  # the modules of requests are imported on first use: a `select` needs few of them
    from selectrie.decoding.sampling.task import Drafter
    from selectrie.engine.decision_scorer import ScoresDecisions
    from selectrie.engine.decisions import DecisionMaker
    from selectrie.engine.rendering.page_requests import PageStream
    from selectrie.engine.rendering.renderer import PageRequest
    from selectrie.engine.requests.generate import Prompts, Stream
    from selectrie.engine.requests.loglikelihood import ScoresSequences
    from selectrie.grammar import Grammar
    from selectrie.results import BeamResult, Event, Generation, Page, Samples, Selection, TokenPlan
    from selectrie.template.analysis.template import Template

R = TypeVar("R")

NO_VALUES: Mapping[str, object] = MappingProxyType({})


class Engine(DecisionMethods, PromptMethods, ScoreMethods, TokenizerMethods):
    """Scores sets of texts on one model. Made by `selectrie.load`; a context manager.

    Methods may be called from any thread. The engine goes on working after an error,
    Ctrl-C included.
    """

    def __init__(
        self,
        model: Model | Runtime,
        *,
        check: SelfCheck | None = None,
        on_check: Callable[[SelfCheck], None] | None = None,
        max_waiting: int | None = None,
    ) -> None:
        """Start the model's thread.

        Args:
            model: The model to run, or what else the engine is to run on; the other
                arguments are for a model.
            check: The result of an earlier self-check of this model, build and
                processor. If it is None, one is assumed by the type of the weights.
            on_check: Called with the result of the self-check. If it is given and
                `check` is not, the check is made after the first answer, for later
                engines.
            max_waiting: Maximum number of tasks that wait to begin; a request beyond
                that is refused with `QueueFullError`. None for no limit.
        """
        if not isinstance(model, Runtime):
            model = LocalRuntime(model, check=check, on_check=on_check, max_waiting=max_waiting)
        self._runtime, self._model, self._model_thread = model, model.model, model.thread
        self._finalizer = weakref.finalize(self, self._model_thread.close)

    def __enter__(self) -> Engine:  # noqa: PYI034 - Self is not in typing before Python 3.11, and the class is final
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        identity = self._model.identity
        state = ", closed" if self._model_thread.closed else ""
        return f"Engine({identity.name!r}, precision={identity.precision!r}{state})"

    def close(self) -> None:
        """Free the model; running work ends with `ClosedError`. May be called twice."""
        self._model_thread.close()
        self._finalizer.detach()

    @property
    def closed(self) -> bool:
        """Return whether the engine was closed."""
        return self._model_thread.closed

    @property
    def vocabulary(self) -> Vocabulary:
        """Return the model's vocabulary."""
        return self._model.vocabulary

    @property
    def limits(self) -> Limits:
        """Return the numbers of nodes, branches and rows that the model can hold."""
        return self._model.limits

    @property
    def identity(self) -> ModelIdentity:
        """Return the model, back end and build, with which results are signed."""
        return self._model.identity

    @property
    def load(self) -> Load:
        """Return how busy the model is, as of its last call."""
        return self._model_thread.load()

    def after_call(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the model call that is running, if any, has ended.

        It is called on the model's thread, or here if the engine was closed.
        """
        self._model_thread.after_step(callback)

    @property
    def tolerance(self) -> float | None:
        """Return the tolerance of one row in nats, or None in `fast` precision.

        Two choices are a near tie, and are scored again, if their scores differ by less
        than this times the root of the number of rows that both are read from.
        """
        check = self.self_check
        return None if check is None else check.tolerance

    @property
    def self_check(self) -> SelfCheck | None:
        """Return the self-check in force, or None in `fast` precision.

        It is assumed (`n_rows` is 0) unless an earlier engine has measured it.
        """
        with self._model_thread.using():
            return self._runtime.check

    def _session(self, group: TaskGroup) -> Session:
        """Return the `Session` of a task group."""
        return self._runtime.session(group, self._model)

    def _run(
        self,
        prepare: Callable[[ModelDescription], Prepared[R]],
        *,
        priority: int = 0,
        deadline_s: float | None = None,
        keep_cached: bool = False,
    ) -> R:
        """Prepare a request and run it in a task group.

        An error that `prepare` raises comes before any model call.
        """
        with task_group(self._model_thread, priority=priority, deadline_s=deadline_s, keep_cached=keep_cached) as group:
            prepared = prepare(self._model)
            note_prepared()
            result = prepared.run(self._session(group))
        tell(result)
        return result

    def _observe(self, model: Model, observer: Observer | None) -> None:
        """Prepare later requests on `model`, and have their tasks watched.

        `model` is the engine's own, perhaps with another vocabulary object.
        """
        self._model, self._model_thread.observer = model, observer

    def _prepare_only(self, prepare: Callable[[ModelDescription], R]) -> R:
        """Return what `prepare` makes of the model, without running it."""
        with self._model_thread.using():
            return prepare(self._model)

    def trim(self) -> None:
        """Drop every cached prompt and row."""
        self._model_thread.call(self._model_thread.scheduler.forget_all)

    @named_arguments
    def select(  # noqa: PLR0913 - choices or a grammar
        self,
        prompt: Prompt,
        choices: Choices | None = None,
        *,
        grammar: Grammar | None = None,
        rule: str | ScoringRule | CustomRule = "joint",
        terminator: str = "auto",
        following: str = "",
        prior: Mapping[str, float] | Sequence[float] | None = None,
        tokenizations: str = "canonical",
        search: SearchParams = DEFAULT_SEARCH,
        prompting: PromptParams = DEFAULT_PROMPTING,
    ) -> Selection:
        """Decide which of the choices, or of a grammar's texts, continues the prompt.

        The decision is by joint log-probability, unless `rule` says otherwise.

        Args:
            prompt: Text, token ids, or chat messages.
            choices: Texts, taken as they are, or a mapping from values to texts
                (`Selection.value`). Mind leading spaces; `prompting.delimiter` adds
                one.
            grammar: A grammar in place of choices. All its texts are the choices if it
                is a list of texts, however long, or has at most 100 000 texts
                (`Grammar.listed`). Otherwise the best texts are searched for, with
                proof. The texts found are then the choices, best first, and
                `Selection.grammar` holds more about the search.
            rule: The name of a rule, a `ScoringRule`, or a callable from `ChoiceScore`
                to a number.
            terminator: The event that ends a choice: "none", "eog", "text" or
                "unless-continued". "auto" decides by `following`, by whether the prompt
                is a chat, and by whether one choice continues another.
            following: The text after the choice.
            prior: Weight of each choice.
            tokenizations: "canonical" to compare the choices by the tokenizer's own
                encoding, or "all" by the sum over all token sequences that spell them
                (`Selection.spellings`), for choices of at most 16 tokens.
            search: Options of the search, with the number of best choices that must be
                certain.
            prompting: Options for boundary, delimiter, chat and truncation.

        Raises:
            RequestError: If the request is invalid, before any model call.
            NothingFoundError: If a search finished no text.
            ModelError: If the model fails.
        """
        one_of("tokenizations", tokenizations, TOKENIZATIONS)
        options = SelectRequest(rule, terminator, following, prior, search, prompting)
        if grammar is None:
            if choices is None:
                raise OptionError("choices", None, "a list of texts, or a grammar")
            if tokenizations == "all":
                from selectrie.engine.requests import spellings

                return self._run(lambda model: spellings.prepare_select(model, prompt, choices, options))
            return self._select([(prompt, choices)], options)[0]
        if choices is not None:
            raise IncompatibleOptionsError("choices", "a grammar", "give one of the two")
        if tokenizations == "all":
            raise IncompatibleOptionsError(OptionRef("tokenizations", "all"), "a grammar", "give its texts as choices")
        from selectrie.engine.requests import select_grammar

        texts = select_grammar.listed(grammar)
        if texts is not None:
            return self._select([(prompt, texts)], options)[0]
        return self._run(lambda model: select_grammar.prepare(model, prompt, grammar, options))

    @named_arguments
    def sample(
        self,
        prompt: Prompt,
        grammar: Grammar,
        *,
        n: int = 1,
        seed: int | None = None,
        exact: bool = True,
        terminator: str = "auto",
        search: SearchParams = DEFAULT_SEARCH,
        prompting: PromptParams = DEFAULT_PROMPTING,
    ) -> Samples:
        """Draw n texts of a grammar by their probability among all its texts.

        Args:
            prompt: Text, token ids, or chat messages.
            grammar: The grammar.
            n: Number of texts.
            seed: Text i has seed + i and is the text that this seed draws alone, except
                for draws that `Samples.close_steps` names. None takes one from the
                system.
            exact: If false, each token is drawn from the row renormalised over the
                tokens that the grammar allows, as `generate` does. This is cheaper, but
                gives another distribution.
            terminator: As in `select`.
            search: Only `max_tokens`, `canonical_only` and `budget_nodes` are used.
            prompting: As in `select`.

        Raises:
            RequestError: If the request is invalid.
            NothingFoundError: If the n texts could not be drawn within the limits of
                `search`.
        """
        from selectrie.engine.requests import sample

        self._runtime.require_whole_rows("`sample`")
        options = SelectRequest(terminator=terminator, search=search, prompting=prompting)
        return self._run(lambda model: sample.prepare(model, prompt, grammar, options, n=n, seed=seed, exact=exact))

    @named_arguments
    def rank(
        self,
        prompt: Prompt,
        choices: Choices,
        *,
        rule: str | ScoringRule | CustomRule = "joint",
        terminator: str = "auto",
        following: str = "",
        prior: Mapping[str, float] | Sequence[float] | None = None,
        search: SearchParams | None = None,
        prompting: PromptParams = DEFAULT_PROMPTING,
    ) -> Selection:
        """Decide as `select` does, with more of the best choices certain.

        The order of all choices is certain, or of the first `search.k` if `search` is
        given. Read it from `Selection.ranked` or `Selection.top(k)`.
        """
        search = SearchParams(stop="all") if search is None else search
        options = SelectRequest(rule, terminator, following, prior, search, prompting)
        return self._select([(prompt, choices)], options)[0]

    @named_arguments
    def select_many(
        self,
        requests: Iterable[tuple[Prompt, Choices]],
        *,
        rule: str | ScoringRule | CustomRule = "joint",
        terminator: str = "auto",
        following: str = "",
        prior: Mapping[str, float] | Sequence[float] | None = None,
        search: SearchParams = DEFAULT_SEARCH,
        prompting: PromptParams = DEFAULT_PROMPTING,
    ) -> list[Selection]:
        """Decide many (prompt, choices) pairs at once, as `select` does.

        The results are in the order of the requests. The requests share model calls and
        prefixes. `search.on_progress` is called with (requests evaluated, number of
        requests) in this thread, once for each request. If any request is invalid, none
        runs; the error's `request` is the index of the first invalid one.
        """
        if not isinstance(requests, Iterable):
            raise OptionError("requests", requests, "pairs of prompt and choices")
        options = SelectRequest(rule, terminator, following, prior, search, prompting)
        return self._select(list(requests), options, search.on_progress)

    @named_arguments
    def tokens(
        self,
        prompt: Prompt,
        choices: Choices,
        *,
        terminator: str = "auto",
        following: str = "",
        prompting: PromptParams = DEFAULT_PROMPTING,
    ) -> TokenPlan:
        """Return how a request is tokenized and which rows would be evaluated.

        No model call is made.
        """
        options = SelectRequest(terminator=terminator, following=following, prompting=prompting)
        with self._model_thread.using():
            return select_requests.token_plan(selection.prepare(self._model, prompt, choices, options))

    def loglikelihood_scorer(self, nodes: int) -> ScoresSequences:
        """Return a scorer of the log-likelihoods of many token sequences.

        It evaluates one unit of sequences at a time, from an empty memory of its own
        and in a fixed layout. It is a context manager that frees this memory.

        Args:
            nodes: Number of tokens of the longest sequence.

        Raises:
            CapacityError: If the model has no room for `nodes` tokens.
        """
        at_least("nodes", nodes, 1, optional=False)
        return self._runtime.sequences_scorer(self.self_check, nodes, keep=self)

    def _decision_scorer(self, maker: DecisionMaker) -> ScoresDecisions:
        check = self.self_check
        if check is not None and check.n_rows:  # a process that goes on with a run may not know what was measured
            check = assumed(self.identity, self.limits)
        return self._runtime.decision_scorer(check, maker, keep=self)

    @named_arguments
    def generate(
        self,
        prompts: Prompts,
        *,
        n: int = 1,
        seed: int | None = None,
        sampling: SamplingParams = DEFAULT_SAMPLING,
        stopping: StopParams = DEFAULT_STOPPING,
        draft: Engine | Drafter | None = None,
        prompting: PromptParams = DEFAULT_PROMPTING,
        options: GenerationParams = DEFAULT_GENERATING,
    ) -> Generation:
        """Draw n sequences after each prompt, all side by side.

        Args:
            prompts: One prompt (text, token ids, or chat messages) or a list of
                prompts.
            n: Number of sequences after each prompt.
            seed: Sequence i of every prompt has seed + i, and is the same alone and
                among others, except for draws in `Completion.close_steps`. None takes
                one from the system.
            sampling: Options for drawing a token.
            stopping: Limits and stop texts that end a sequence.
            draft: A second engine, or another `Drafter`, that guesses the next tokens.
                The text stays the same and takes fewer model calls.
            prompting: Options for chat and truncation.
            options: `best_of`, choices or grammar, alternatives, priority and deadline.

        On an engine of `connect`, the server draws. It is sent the options that differ
        from their defaults and that OpenAI's API has; `Generation.sampled_by` names
        them, and everything else is the server's own. Any other option that differs
        from its default is refused (`ServerOptionError`). What is not told is None.

        Raises:
            RequestError: If the request is invalid, before any model call.
            ModelError: If the model fails.
        """
        from selectrie.engine.requests.generate import GenerateRequest

        request = GenerateRequest(n, seed, sampling, stopping, _drafter(draft), prompting, options)
        return self._run(
            lambda model: self._runtime.prepare_generate(model, prompts, request),
            priority=options.priority,
            deadline_s=options.deadline_s,
        )

    @named_arguments
    def stream(
        self,
        prompts: Prompts,
        *,
        n: int = 1,
        seed: int | None = None,
        sampling: SamplingParams = DEFAULT_SAMPLING,
        stopping: StopParams = DEFAULT_STOPPING,
        draft: Engine | Drafter | None = None,
        prompting: PromptParams = DEFAULT_PROMPTING,
        options: GenerationParams = DEFAULT_GENERATING,
    ) -> Stream:
        """Return an iterator over the chunks of sequences, as they are drawn.

        Takes the arguments of `generate`. Work begins at once; leaving the stream as a
        context manager cancels the sequences that still run. `options.best_of` is
        refused, because the best sequences are known only at the end.
        """
        from selectrie.engine.requests import generate

        self._runtime.require_whole_rows("`stream`", instead="`generate`")
        request = generate.GenerateRequest(n, seed, sampling, stopping, _drafter(draft), prompting, options)
        if options.best_of is not None:
            raise IncompatibleOptionsError("best_of", "streaming", "which are the best is known only at the end")
        return self._run(
            lambda model: generate.PreparedStream(generate.prepare(model, prompts, request), keep=self),
            priority=options.priority,
            deadline_s=options.deadline_s,
        )

    @named_arguments
    def beam_search(
        self,
        prompt: Prompt,
        grammar: Grammar,
        *,
        beam: BeamSearchParams = DEFAULT_BEAM,
        prompting: PromptParams = DEFAULT_PROMPTING,
    ) -> BeamResult:
        """Search the most probable texts of a grammar with a beam of paths.

        With `beam.exact` the search is exact.

        Args:
            prompt: Text, token ids, or chat messages.
            grammar: The grammar of the texts that may follow the prompt. Mind leading
                spaces; `prompting.delimiter` is inserted before it.
            beam: Options of the search: width, number of texts, length, penalties,
                groups and terminator.
            prompting: As in `select`.

        Raises:
            RequestError: If the request is invalid, before any model call.
            NothingFoundError: If not even the beginning of a text was found.
            ModelError: If the model fails.
        """
        from selectrie.engine.requests import beam_search

        return self._run(lambda model: beam_search.prepare(model, prompt, grammar, beam, prompting))

    @named_arguments
    def render(
        self,
        template: Template,
        values: Mapping[str, object] = NO_VALUES,
        /,
        *,
        rendering: RenderParams = DEFAULT_RENDERING,
        **named: object,
    ) -> Page:
        """Render a template: decide its slots in order, each after the page so far.

        Args:
            template: The template.
            values: Values that the template reads; others are ignored.
            rendering: Options for the seed, limits and the writing of chat turns.
            **named: More values, by name.

        Raises:
            TemplateError: If the template or its values are invalid, nearly always
                before any model call.
            SelectrieError: If a slot fails; `SelectrieError.slot` names it.
        """
        from selectrie.engine.rendering import page_requests

        return self._make_page(page_requests.request_of(template, values, named, rendering))

    @named_arguments
    def render_many(
        self,
        template: Template,
        rows: Iterable[Mapping[str, object]],
        *,
        rendering: RenderParams = DEFAULT_RENDERING,
    ) -> list[Page]:
        """Render a template for each row of values; return the pages in order.

        The pages share model calls and prefixes; each is as it would be alone. Up to 64
        are rendered at once. If a row is invalid or its page fails, its error is
        raised, with the index of the row as `request`. Errors that can be found without
        the model are raised before any model call.
        """
        from selectrie.engine.rendering import page_requests

        return page_requests.make_many(self._make_page, page_requests.requests_of(template, rows, rendering))

    @named_arguments
    def stream_render(
        self,
        template: Template,
        values: Mapping[str, object] = NO_VALUES,
        /,
        *,
        rendering: RenderParams = DEFAULT_RENDERING,
        **named: object,
    ) -> PageStream:
        """Return an iterator over the events of a page, as it is rendered.

        Takes the arguments of `render`. Work begins at once; leaving the stream as a
        context manager cancels the page.
        """
        from selectrie.engine.rendering import page_requests

        with self._model_thread.using():
            request = page_requests.request_of(template, values, named, rendering)
            return page_requests.PageStream(self._make_page, request, self._model_thread.check_process)

    def _make_page(self, request: PageRequest, on_event: Callable[[Event], None] | None = None) -> Page:
        from selectrie.engine.rendering import needed_rows, renderer

        if not self._runtime.has_whole_rows:
            needed_rows.refuse_whole_rows(request.template, self._runtime.require_whole_rows)
        how = request.rendering
        with task_group(
            self._model_thread, priority=how.priority, deadline_s=how.deadline_s, keep_cached=True
        ) as group:
            page = renderer.render_page(self._session(group), request, on_event)
        tell(page)
        return page

    aselect = awaitable(select)
    asample = awaitable(sample)
    arank = awaitable(rank)
    aselect_many = awaitable(select_many)
    agenerate = awaitable(generate)
    abeam_search = awaitable(beam_search)
    astream = async_stream(stream)
    arender = awaitable(render)
    arender_many = awaitable(render_many)
    astream_render = async_stream(stream_render)

    def _select(
        self,
        requests: Sequence[tuple[Prompt, Choices]],
        options: SelectRequest,
        on_evaluated: select_requests.Progress | None = None,
    ) -> list[Selection]:
        """Decide all requests together."""
        return self._run(lambda model: select_requests.prepare(model, requests, options, on_evaluated))


def _drafter(draft: Engine | Drafter | None) -> Drafter | None:
    if draft is None:
        return None
    from selectrie.engine.requests.speculative import EngineDrafter

    drafter = EngineDrafter(draft) if isinstance(draft, Engine) else draft
    if isinstance(drafter, EngineDrafter) and isinstance(drafter.engine, Engine):
        drafter.engine._runtime.require_whole_rows("`draft`")
    return drafter
