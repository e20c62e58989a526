"""The public façade.

An `Engine` owns one model. All model work runs on a single background thread; methods
may be called from any thread and are batched together. Most methods have an awaitable
form.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from operator import index
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from selectrie.core.model import Model, ModelDescription
from selectrie.core.types import IntArray, Limits, ModelIdentity, SelfCheck
from selectrie.core.vocabulary import Vocabulary
from selectrie.engine.aio import WindowItems, async_iterator, async_stream, awaitable, by_windows, counted_from
from selectrie.engine.deciding import WINDOW, DecisionMethods
from selectrie.engine.requests import select as select_requests
from selectrie.engine.requests import selection
from selectrie.engine.requests.generation_params import DEFAULT_GENERATING, GenerationParams
from selectrie.engine.requests.selection import Choices, CustomRule, SelectRequest
from selectrie.engine.requests.session import Prepared, Session, fix_time
from selectrie.engine.runtimes import LocalRuntime, Runtime
from selectrie.engine.scheduler.job import Observer
from selectrie.engine.scheduler.scheduler import Load
from selectrie.engine.scheduler.task_group import TaskGroup, note_prepared, task_group
from selectrie.errors import IncompatibleOptionsError, OptionError, OptionRef, UnsupportedModelError
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
    SpellingParams,
    StopParams,
    at_least,
    one_of,
)
from selectrie.options.arguments import missing_attribute, named_arguments
from selectrie.options.checks import record
from selectrie.results.advice import warn_of_advice
from selectrie.tokenization.encoding import encode_prompt
from selectrie.tokenization.prompts import Prompt, read_prompt

if TYPE_CHECKING:  # the modules of requests are imported on first use: a `select` needs few of them
    from typing_extensions import Unpack

    from selectrie.decide.states import State
    from selectrie.decoding.sampling.task import Drafter
    from selectrie.engine.rendering.renderer import PageRequest, PageStream
    from selectrie.engine.requests.generate import Prompts, Stream
    from selectrie.engine.requests.loglikelihood import SequenceScorer
    from selectrie.grammar.grammar import GrammarLike
    from selectrie.options import keywords
    from selectrie.results import (
        BeamResult,
        Event,
        Generation,
        Page,
        PromptLogprobs,
        Samples,
        Selection,
        TextScore,
        TokenPlan,
    )
    from selectrie.template.analysis.template import Template

    States: TypeAlias = Iterable[State]


R = TypeVar("R")

NO_VALUES: Mapping[str, Any] = MappingProxyType({})
NOT_GIVEN: Any = None
"""Default of an argument that may be left out only if a keyword takes its place."""


class OneProcess:
    """A context manager that cannot be copied or given to another process."""

    def __reduce__(self) -> str:
        """Refuse `pickle` and `copy`, since a loaded model belongs to its process."""
        reason = "it cannot be copied or pickled; share it between threads, and load it in each process"
        raise UnsupportedModelError(type(self).__name__, reason)

    if not TYPE_CHECKING:

        async def __aenter__(self) -> None:
            raise UnsupportedModelError(
                type(self).__name__, "it has no `async with`; write `with`, and await its calls"
            )

        async def __aexit__(self, *exception: object) -> None:
            pass


class Engine(OneProcess, DecisionMethods):
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
        stored_sampling: Mapping[str, float] = NO_VALUES,
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
            stored_sampling: The sampling options that are stored with the model.
        """
        if not isinstance(model, Runtime):
            model = LocalRuntime(model, check=check, on_check=on_check, max_waiting=max_waiting)
        self._runtime, self._model, self._model_thread = model, model.model, model.thread
        self._stored_sampling = MappingProxyType(dict(stored_sampling))
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

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            raise missing_attribute(self, name)

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
    def stored_sampling(self) -> Mapping[str, float]:
        """Return the sampling options that are stored with the model, by name.

        They are what its publisher recommends, from `generation_config.json` or the
        keys `general.sampling.…` of a GGUF file. `generate` uses them only where they
        are given: `generate(prompt, sampling=llm.stored_sampling)`.
        """
        return self._stored_sampling

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
        warn_of_advice(result)
        return result

    def _observe(self, model: ModelDescription, observer: Observer | None) -> None:
        """Prepare later requests on `model`, and have their tasks watched.

        `model` describes the engine's own, perhaps with another vocabulary object.
        """
        self._model, self._model_thread.observer = model, observer

    def _prepare_only(self, prepare: Callable[[ModelDescription], R]) -> R:
        """Return what `prepare` makes of the model, without running it."""
        with self._model_thread.using():
            return prepare(self._model)

    def trim(self) -> None:
        """Drop every cached prompt and row, and what is kept to settle near ties."""
        self._model_thread.call(self._runtime.forget_all)

    @named_arguments
    def select(  # noqa: PLR0913 - choices or a grammar
        self,
        prompt: Prompt = NOT_GIVEN,
        choices: Choices | None = None,
        *,
        grammar: GrammarLike | None = None,
        rule: keywords.RuleName | ScoringRule | CustomRule = "joint",
        terminator: keywords.Terminator = "auto",
        following: str = "",
        prior: Mapping[str, float] | Sequence[float] | None = None,
        tokenizations: keywords.Tokenizations = "canonical",
        search: SearchParams = DEFAULT_SEARCH,
        prompting: PromptParams = DEFAULT_PROMPTING,
        **_keywords: Unpack[keywords.SelectKeywords],
    ) -> Selection:
        """Decide which of the choices, or of a grammar's texts, continues the prompt.

        The decision is by joint log-probability, unless `rule` says otherwise.

        Args:
            prompt: Text, token ids, or chat messages.
            choices: Any iterable of texts in an order, taken as they are; of other
                values that have a text (int, bool, Enum members); an Enum class, a
                `Literal` or `bool`; or a mapping from values to texts.
                `Selection.value` is the winner's value as it was given. Mind leading
                spaces; `delimiter=" "` adds one.
            grammar: A grammar, a type or the dict of a JSON Schema in place of choices;
                or a regular expression as `regex`. All its texts are the choices if it
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

        Fields of `search` and `prompting` may be given as keywords: `k`, `max_tokens`,
        `delimiter`, `system`. `user` is the message of a user in place of the prompt,
        which the model's chat template writes, and `messages` a whole chat.

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

                return self._run(lambda model: spellings.prepare_spelling_select(model, prompt, choices, options))
            return self._select([(prompt, choices)], options)[0]
        if choices is not None:
            raise IncompatibleOptionsError("choices", "a grammar", "give one of the two")
        if tokenizations == "all":
            raise IncompatibleOptionsError(OptionRef("tokenizations", "all"), "a grammar", "give its texts as choices")
        from selectrie.engine.requests import select_grammar
        from selectrie.grammar import read_grammar

        read = read_grammar(grammar)
        texts = select_grammar.list_texts(read)
        if texts is not None:
            return self._select([(prompt, texts)], options)[0]
        return self._run(lambda model: select_grammar.prepare_grammar_select(model, prompt, read, options))

    @named_arguments
    def sample(
        self,
        prompt: Prompt = NOT_GIVEN,
        grammar: GrammarLike = NOT_GIVEN,
        *,
        n: int = 1,
        seed: int | None = None,
        exact: bool = True,
        terminator: keywords.GrammarTerminator = "auto",
        search: SearchParams = DEFAULT_SEARCH,
        prompting: PromptParams = DEFAULT_PROMPTING,
        **_keywords: Unpack[keywords.SampleKeywords],
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
        from selectrie.engine.requests import select_grammar

        self._runtime.require_whole_rows("`sample`")
        options = SelectRequest(terminator=terminator, search=search, prompting=prompting)
        return self._run(
            lambda model: select_grammar.prepare_sample(model, prompt, grammar, options, n=n, seed=seed, exact=exact)
        )

    @named_arguments
    def rank(
        self,
        prompt: Prompt = NOT_GIVEN,
        choices: Choices = NOT_GIVEN,
        *,
        rule: keywords.RuleName | ScoringRule | CustomRule = "joint",
        terminator: keywords.Terminator = "auto",
        following: str = "",
        prior: Mapping[str, float] | Sequence[float] | None = None,
        search: SearchParams | None = None,
        prompting: PromptParams = DEFAULT_PROMPTING,
        **_keywords: Unpack[keywords.RankKeywords],
    ) -> Selection:
        """Decide as `select` does, with more of the best choices certain.

        The order of all choices is certain, or of the first `k` if `k` or `search` is
        given. The selection iterates over these; `Selection.ranked` has all.
        """
        search = SearchParams(stop="all") if search is None else search
        options = SelectRequest(rule, terminator, following, prior, search, prompting)
        found = self._select([(prompt, choices)], options)[0]
        return found if search.stop == "all" else replace(found, n_ranked=search.k)

    @named_arguments
    def select_many(
        self,
        requests: Iterable[tuple[Prompt, Choices]] | Iterable[Prompt],
        choices: Choices | None = None,
        *,
        rule: keywords.RuleName | ScoringRule | CustomRule = "joint",
        terminator: keywords.Terminator = "auto",
        following: str = "",
        prior: Mapping[str, float] | Sequence[float] | None = None,
        search: SearchParams = DEFAULT_SEARCH,
        prompting: PromptParams = DEFAULT_PROMPTING,
        **_keywords: Unpack[keywords.ManyKeywords],
    ) -> list[Selection]:
        """Decide many (prompt, choices) pairs at once, as `select` does.

        With `choices`, the requests are prompts, and these are the choices of each. The
        results are in the order of the requests. The requests share model calls and
        prefixes. `search.on_progress` is called with (requests evaluated, number of
        requests) in this thread, once for each request. If any request is invalid, none
        runs; the error's `request` is the index of the first invalid one.
        """
        options = SelectRequest(rule, terminator, following, prior, search, prompting)
        return self._select(list(selection.pairs_of(requests, choices)), options, search.on_progress)

    @named_arguments
    def select_iter(
        self,
        requests: Iterable[tuple[Prompt, Choices]] | Iterable[Prompt],
        choices: Choices | None = None,
        *,
        rule: keywords.RuleName | ScoringRule | CustomRule = "joint",
        terminator: keywords.Terminator = "auto",
        following: str = "",
        prior: Mapping[str, float] | Sequence[float] | None = None,
        search: SearchParams = DEFAULT_SEARCH,
        prompting: PromptParams = DEFAULT_PROMPTING,
        **_keywords: Unpack[keywords.ManyKeywords],
    ) -> Iterator[Selection]:
        """Decide requests that are read as they are needed, as `select_many` does.

        Selections come in the order of the requests, which are decided in windows of
        `WINDOW`, so memory does not grow with their number. The iterator ends with the
        error of the first invalid request of a window. `search.on_progress` is called
        with (requests evaluated, requests in all; 0 if their number is not known).
        """
        options = SelectRequest(rule, terminator, following, prior, search, prompting)
        if options.named_rule().name == "batch":
            remedy = "its baseline is a mean over all requests; use `select_many`"
            raise IncompatibleOptionsError(OptionRef("rule", "batch"), "an iterator", remedy)
        total, tell = len(requests) if isinstance(requests, Sized) else 0, search.on_progress

        def run(window: list[tuple[Prompt, Choices]], first: int) -> list[Selection]:
            with counted_from(first):
                return self._select(window, options, tell and (lambda done, _: tell(first + done, total)))

        return WindowItems(by_windows(selection.pairs_of(requests, choices), WINDOW, run))

    @named_arguments
    def tokens(
        self,
        prompt: Prompt = NOT_GIVEN,
        choices: Choices = NOT_GIVEN,
        *,
        terminator: keywords.Terminator = "auto",
        following: str = "",
        prompting: PromptParams = DEFAULT_PROMPTING,
        **_keywords: Unpack[keywords.PromptKeywords],
    ) -> TokenPlan:
        """Return how a request is tokenized and which rows would be evaluated.

        No model call is made.
        """
        options = SelectRequest(terminator=terminator, following=following, prompting=prompting)
        with self._model_thread.using():
            return select_requests.token_plan(selection.prepare_selection(self._model, prompt, choices, options))

    @named_arguments
    def score(
        self,
        prompt: Prompt = NOT_GIVEN,
        text: str = NOT_GIVEN,
        *,
        following: str = "",
        tokenizations: keywords.Tokenizations = "canonical",
        event: keywords.SpellingEvent = "auto",
        budget_nodes: int | None = None,
        prompting: PromptParams = DEFAULT_PROMPTING,
        **_keywords: Unpack[keywords.PromptKeywords],
    ) -> TextScore:
        """Return the log-probability of one text after a prompt, token by token.

        With `tokenizations="all"`, `TextScore.spellings` also bounds the probability of
        the text, summed over all token sequences that spell it.

        Args:
            prompt: Text, token ids, or chat messages.
            text: The text to score.
            following: The text after it. Its first tokens, up to a boundary, are scored
                too (terminator "text").
            tokenizations: "canonical" for the tokenizer's own encoding, or "all".
            event: What "all" counts. "ends": the text, and then the end of generation.
                "begins": whatever begins with the text. "auto" is "ends" if the model
                has an end-of-generation token.
            budget_nodes: Maximum number of rows that "all" reads for its bounds
                (`SpellingParams`).
            prompting: As in `select`.

        Raises:
            RequestError: If the request is invalid, before any model call.
            ModelError: If the model fails.
        """
        if not text or not isinstance(text, str):
            raise OptionError("text", text, "one text to score; `rank` scores several")
        params = SpellingParams(tokenizations, event, budget_nodes)
        options = SelectRequest(terminator="text" if following else "none", following=following, prompting=prompting)
        if params.tokenizations == "canonical":
            return self._run(lambda model: select_requests.prepare_score(model, prompt, text, options))
        from selectrie.engine.requests import spellings  # imported on first use

        return self._run(lambda model: spellings.prepare_spelling_score(model, prompt, text, options, params))

    @named_arguments
    def prompt_logprobs(
        self,
        prompts: Iterable[Prompt],
        *,
        top: int = 0,
        named: Sequence[int] = (),
        first: int = 1,
        prompting: PromptParams = DEFAULT_PROMPTING,
        priority: int = 0,
        deadline_s: float | None = None,
    ) -> list[PromptLogprobs]:
        """Return the log-probability of every token of each prompt.

        The prompts of one call share their prefixes, and what is cached is evaluated
        again only where its rows are read. Of a row nothing is kept but the values
        asked for.

        Args:
            prompts: Texts, token ids or chats. Ids are evaluated exactly as they are
                given: no BOS is added. A text or chat gets BOS if the model adds one,
                unless `prompting` says otherwise.
            top: Number of most probable tokens to return in place of each token.
            named: Ids of tokens whose log-probabilities to return in place of each
                token.
            first: Index of the first token whose row is read; at least 1, because
                nothing predicts the token 0. A prompt of no more tokens has no rows.
            prompting: Options for chats, control tokens and BOS.
            priority: Requests with a higher priority go first.
            deadline_s: Seconds from now after which the request ends with
                `DeadlineError`; None for no deadline.

        Returns:
            One result for each prompt, in their order.

        Raises:
            RequestError: If an option or a prompt is invalid or a prompt does not fit,
                before any model call. `SelectrieError.request` is its index.
            DeadlineError: If the deadline passes.
            ModelError: If the model fails.
        """
        from selectrie.engine.requests import loglikelihood as requests  # imported on first use

        request = requests.PromptLogprobsRequest(top, named, first, prompting, priority, deadline_s)
        return self._run(
            lambda model: requests.prepare_prompt_logprobs(model, prompts, request),
            priority=priority,
            deadline_s=deadline_s,
            keep_cached=True,  # what goes on from a prompt comes next
        )

    @named_arguments
    def encode(
        self,
        prompt: Prompt = NOT_GIVEN,
        *,
        prompting: PromptParams = DEFAULT_PROMPTING,
        **_keywords: Unpack[keywords.ChatKeywords],
    ) -> IntArray:
        """Return the tokens of a prompt as the other methods read it, int32[].

        BOS comes first if the model adds one. Control tokens are recognised in text
        with `prompting.parse_special`, and in what a chat template writes. `decode`
        turns tokens into text again.

        Args:
            prompt: Text, token ids, or chat messages.
            prompting: Options for chat and control tokens; the others have no effect.

        Raises:
            RequestError: If the prompt is invalid or empty.
        """
        record("prompting", prompting, PromptParams)
        return self._prepare_only(lambda model: _encoded(model.vocabulary, prompt, prompting))

    @named_arguments
    def decode(self, tokens: Sequence[int] | IntArray) -> str:
        """Return the text of tokens, with control tokens by their names.

        A space that the tokenizer adds before text is left out, so `encode` with
        `parse_special` gives back tokens that it made. Bytes that are no UTF-8 become
        U+FFFD.

        Raises:
            OptionError: For anything but token ids.
            TokenRangeError: For a token that does not exist.
        """
        from selectrie.tokenization.encoding import spell_tokens  # imported on first use

        try:
            tokens = [index(one) for one in tokens]
        except TypeError:
            raise OptionError("tokens", tokens, "a list of token ids, as `encode` returns them") from None
        return self._prepare_only(lambda model: spell_tokens(model.vocabulary, model.vocabulary.check_tokens(tokens)))

    def loglikelihood_scorer(self, nodes: int) -> SequenceScorer:
        """Return a scorer of the log-likelihoods of many token sequences.

        It evaluates one unit of sequences at a time, from an empty memory of its own
        and in a fixed layout. It is a context manager that frees this memory.

        Args:
            nodes: Number of tokens of the longest sequence.

        Raises:
            CapacityError: If the model has no room for `nodes` tokens.
        """
        at_least("nodes", nodes, 1, optional=False)
        return self._runtime.sequences_scorer(nodes, keep=self)

    @named_arguments
    def generate(
        self,
        prompts: Prompts = NOT_GIVEN,
        *,
        n: int = 1,
        seed: int | None = None,
        sampling: SamplingParams = DEFAULT_SAMPLING,
        stopping: StopParams = DEFAULT_STOPPING,
        draft: Engine | Drafter | None = None,
        prompting: PromptParams = DEFAULT_PROMPTING,
        options: GenerationParams = DEFAULT_GENERATING,
        **_keywords: Unpack[keywords.GenerateKeywords],
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

        Fields of these records may be given as keywords: `max_tokens`, `stop`,
        `temperature`, `top_k`, `top_p`, `min_p`, `choices`, `grammar`, `system` and
        `delimiter`. `user`, `messages` and `regex` are those of `select`.

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
        prompts: Prompts = NOT_GIVEN,
        *,
        n: int = 1,
        seed: int | None = None,
        sampling: SamplingParams = DEFAULT_SAMPLING,
        stopping: StopParams = DEFAULT_STOPPING,
        draft: Engine | Drafter | None = None,
        prompting: PromptParams = DEFAULT_PROMPTING,
        options: GenerationParams = DEFAULT_GENERATING,
        **_keywords: Unpack[keywords.GenerateKeywords],
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
            lambda model: generate.PreparedStream(generate.prepare_generate(model, prompts, request), keep=self),
            priority=options.priority,
            deadline_s=options.deadline_s,
        )

    @named_arguments
    def beam_search(
        self,
        prompt: Prompt = NOT_GIVEN,
        grammar: GrammarLike = NOT_GIVEN,
        *,
        beam: BeamSearchParams = DEFAULT_BEAM,
        prompting: PromptParams = DEFAULT_PROMPTING,
        **_keywords: Unpack[keywords.BeamKeywords],
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

        return self._run(lambda model: beam_search.prepare_beam_search(model, prompt, grammar, beam, prompting))

    @named_arguments
    def render(
        self,
        template: Template | str,
        values: Mapping[str, object] = NO_VALUES,
        /,
        *,
        rendering: RenderParams = DEFAULT_RENDERING,
        **named: object,
    ) -> Page:
        """Render a template: decide its slots in order, each after the page so far.

        Args:
            template: The template, or its text.
            values: Values that the template reads; others are ignored.
            rendering: Options for the seed, limits and the writing of chat turns.
            **named: More values, by name.

        Raises:
            TemplateError: If the template or its values are invalid, nearly always
                before any model call.
            SelectrieError: If a slot fails; `SelectrieError.slot` names it.
        """
        from selectrie.engine.rendering import renderer

        return self._make_page(renderer.request_of(template, values, named, rendering))

    @named_arguments
    def render_many(
        self,
        template: Template | str,
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
        from selectrie.engine.rendering import renderer

        return renderer.make_many(self._make_page, renderer.requests_of(template, rows, rendering))

    @named_arguments
    def render_iter(
        self,
        template: Template | str,
        rows: Iterable[Mapping[str, object]],
        *,
        rendering: RenderParams = DEFAULT_RENDERING,
    ) -> Iterator[Page]:
        """Render a template for rows that are read as they are needed.

        Pages come in the order of the rows, which are rendered in windows of `WINDOW`
        as `render_many` does, so memory does not grow with their number. The iterator
        ends with the error of the first row that fails.
        """
        from selectrie.engine.rendering import renderer

        def run(window: list[Mapping[str, object]], first: int) -> list[Page]:
            with counted_from(first):
                return renderer.make_many(self._make_page, renderer.requests_of(template, window, rendering))

        return WindowItems(by_windows(renderer.iterate_rows(rows), WINDOW, run))

    @named_arguments
    def stream_render(
        self,
        template: Template | str,
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
        from selectrie.engine.rendering import renderer

        with self._model_thread.using():
            request = renderer.request_of(template, values, named, rendering)
            return renderer.PageStream(self._make_page, request, self._model_thread.check_process)

    def _make_page(self, request: PageRequest, on_event: Callable[[Event], None] | None = None) -> Page:
        from selectrie.engine.rendering import renderer

        if not self._runtime.has_whole_rows:
            renderer.refuse_whole_rows(request.template, self._runtime.require_whole_rows)
        how = request.rendering
        with task_group(
            self._model_thread, priority=how.priority, deadline_s=how.deadline_s, keep_cached=True
        ) as group:
            page = renderer.render_page(self._session(group), request, on_event)
        warn_of_advice(page)
        return page

    adecode = awaitable(decode)
    aencode = awaitable(encode)
    aprompt_logprobs = awaitable(prompt_logprobs)
    ascore = awaitable(score)
    aselect = awaitable(select)
    asample = awaitable(sample)
    arank = awaitable(rank)
    aselect_many = awaitable(select_many)
    aselect_iter = async_iterator(select_iter)
    agenerate = awaitable(generate)
    abeam_search = awaitable(beam_search)
    astream = async_stream(stream)
    arender = awaitable(render)
    arender_many = awaitable(render_many)
    arender_iter = async_iterator(render_iter)
    astream_render = async_stream(stream_render)

    def _select(
        self,
        requests: Sequence[tuple[Prompt, Choices]],
        options: SelectRequest,
        on_evaluated: select_requests.Progress | None = None,
    ) -> list[Selection]:
        """Decide all requests together."""
        return self._run(lambda model: select_requests.prepare_selections(model, requests, options, on_evaluated))


def _drafter(draft: Engine | Drafter | None) -> Drafter | None:
    if draft is None:
        return None
    from selectrie.engine.requests.speculative import EngineDrafter

    drafter = EngineDrafter(draft) if isinstance(draft, Engine) else draft
    if isinstance(drafter, EngineDrafter) and isinstance(drafter.engine, Engine):
        drafter.engine._runtime.require_whole_rows("`draft`")
    return drafter


def _encoded(vocabulary: Vocabulary, prompt: Prompt, prompting: PromptParams) -> IntArray:
    read = read_prompt(vocabulary, prompt, fix_time(vocabulary, prompting, prompt))
    return encode_prompt(vocabulary, read)
