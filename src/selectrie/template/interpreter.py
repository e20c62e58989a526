"""Interprets a template as a program that yields steps.

The program handles the control flow and involves no model. The renderer asks for the
next `Step`, performs it, reports the result, and asks for the next one. A renderer
needs to know nothing else about a template.

A copy of the program that goes on with a slot's value undecided finds the text that
certainly follows the slot (`find_following`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from selectrie.errors import InternalError, TemplateError
from selectrie.options import MAX_SEGMENTS
from selectrie.template.analysis import dry_run
from selectrie.template.analysis.template import Template
from selectrie.template.syntax import ast
from selectrie.template.values.arguments import check_range, check_role, value_at, values_at
from selectrie.template.values.scope import (
    UNDECIDED,
    DeclaredNames,
    Scope,
    Undecided,
    evaluate,
    items_at,
    names_in,
    refuse_input_name,
    text_at,
    truth_at,
)
from selectrie.template.values.values import text_of, to_plain

DEFAULT_MOST = 100
"""Maximum number of items of a `geneach` that has neither `num` nor `max`."""
MAX_FOLLOWING = 400
"""Maximum number of following characters to look at.

A choice ends at the first token boundary after it, which is a few characters later.
"""
_MAX_STEPS_AHEAD = 2_000
"""Maximum number of segments that a lookahead passes."""
_AHEAD_PER_SEGMENT = 10
"""Maximum number of segments of all lookaheads for each segment of a page."""
Cut = Callable[[str], "tuple[str, bool] | None"]
"""Splits literal text at its first control token.

Returns the text before the token and whether the token ends generation; None if there
is no control token.
"""


@dataclass(frozen=True, slots=True)
class Write:
    """A step: write text to the page.

    Attributes:
        text: The text.
        is_literal: Whether the text is the template's own, rather than a value's.
        span: The span of the tag or text that writes it.
        document: The document of the span.
    """

    text: str
    is_literal: bool
    span: ast.Span
    document: ast.Document


@dataclass(frozen=True, slots=True)
class Decide:
    """A step: let the model decide a slot; its result goes to `Interpreter.name`.

    Attributes:
        slot: The tag.
        scope: The values by which its arguments are evaluated.
        document: The document that contains the tag.
    """

    slot: ast.Slot
    scope: Scope
    document: ast.Document


@dataclass(frozen=True, slots=True)
class Together:
    """A step: let the model decide several slots together.

    Their results go to `Interpreter.name`.
    """

    joint: ast.Joint
    scope: Scope
    document: ast.Document


@dataclass(frozen=True, slots=True)
class Continue:
    """A step: let the model decide whether a loop has another item.

    It decides between the loop's stop text and the text that would come next. The
    decision is passed to `Interpreter.go_on`.

    Attributes:
        loop: The tag.
        stop: The loop's stop text.
        document: The document that contains the tag.
    """

    loop: ast.GenEach
    stop: str
    document: ast.Document


@dataclass(frozen=True, slots=True)
class TurnStep:
    """A step: begin or end a turn of a chat."""

    role: str
    begins: bool
    span: ast.Span
    document: ast.Document


@dataclass(frozen=True, slots=True)
class Hide:
    """A step: begin or end hidden text, which is not part of the page."""

    begins: bool


@dataclass(frozen=True, slots=True)
class Naming:
    """A step: begin or end the text of a named block."""

    name: str
    begins: bool


Step: TypeAlias = Write | Decide | Together | Continue | TurnStep | Hide | Naming


Values: TypeAlias = "dict[str, object]"


@dataclass(slots=True)
class Environment:
    """The names that are set on the page, or in one pass of a loop.

    Attributes:
        scope: The scope in which expressions are evaluated.
        values: The values by name.
        records: For each slot by name, the result of its decision.
    """

    scope: Scope
    values: Values = field(default_factory=dict)
    records: Values = field(default_factory=dict)

    def set(self, name: str, value: object, record: object) -> None:
        """Set a slot's value and its result; `this.field` sets a field of `this`."""
        self.scope.set(name, value)
        self._set_in(self.values, name, value)
        if record is not None:
            self._set_in(self.records, name, record)

    def _set_in(self, held: Values, name: str, value: object) -> None:
        """Set a name, or a field of one, in a mapping."""
        base, _, inner = name.partition(".")
        fields = held.get(base)
        held[base] = {**(fields if isinstance(fields, dict) else {}), inner: value} if inner else value


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A running loop.

    Attributes:
        segment: The tag.
        names: Names that the loop's body declares.
        join: Text between two passes.
        items: Pairs (key or index, item) of an `each`; None for a `geneach`.
        bounds: Minimum and maximum number of passes of a `geneach`, and the stop text
            that may end it between the two.
        n_done: Number of passes that have begun.
        values: For each name, the values of the passes that have ended.
        records: For each name, the results of decisions of the passes that have ended.

    Lookaheads share `values` and `records` and add nothing to them.
    """

    segment: ast.Each | ast.GenEach
    names: DeclaredNames
    join: str
    items: Sequence[tuple[object, object]] | None = None
    bounds: tuple[int, int, str | None] = (0, 0, None)
    n_done: int = 0
    values: dict[str, list[object]] = field(default_factory=dict)
    records: dict[str, list[object]] = field(default_factory=dict)


@dataclass(slots=True)
class Frame:
    """A body of segments that is being executed.

    Attributes:
        body: The segments.
        document: The document that contains them.
        at: Index of the next segment.
        loop: The loop whose body it is, or None.
        closing: Steps that follow the end of the body.
    """

    body: ast.Body
    document: ast.Document
    at: int = 0
    loop: Loop | None = None
    closing: tuple[Step, ...] = ()


def loop_over(each: ast.Each, template: Template, scope: Scope, document: ast.Document) -> Loop:
    """Return the running form of an `each` over the items of a list or mapping.

    Raises `TemplateError` for a value without items, or with too many.
    """
    items = items_at(each.items, scope, document)
    join = dict(each.arguments).get("join")
    between = "" if join is None else text_at(join, scope, document)
    return Loop(each, names_in(each.body, template.documents), between, items=items)


def loop_of(each: ast.GenEach, template: Template, scope: Scope, document: ast.Document) -> Loop:
    """Return the running form of a `geneach`, whose items the model generates."""
    values: dict[str, Any] = {name: to_plain(one) for name, one in values_at(each, scope, document, template).items()}
    check_range(each, document, values)
    join, stop = (text_of(values[name]) if name in values else None for name in ("join", "stop"))
    min_turns = values.get("num", values.get("min", 0))
    max_turns = values.get("num", values.get("max", max(DEFAULT_MOST, min_turns)))
    return Loop(each, names_in(each.body, template.documents), join or "", bounds=(min_turns, max_turns, stop))


def path_of(name: str, loops: list[Loop]) -> str:
    """Return the path within the page's values of a name of the innermost loop.

    Examples are `food[1]` and `items[0].name`.
    """
    base, dot, inner = name.partition(".")
    if base != "this":
        return name + "".join(f"[{loop.n_done - 1}]" for loop in loops)
    while loops and isinstance(loops[-1].segment, ast.Each):
        loops = loops[:-1]
    if not loops:
        return name
    segment = loops[-1].segment
    prefix = f"{path_of(segment.name, loops[:-1])}[{loops[-1].n_done - 1}]" if isinstance(segment, ast.GenEach) else ""
    return f"{prefix}{dot}{inner}"


class Interpreter:
    """A template and its values, interpreted step by step.

    After `Decide` and `Together` the results must be passed to `name`, and after
    `Continue` the decision to `go_on`, before the next step is requested. Every error
    is a `TemplateError` at its position.
    """

    def __init__(self, template: Template, values: Mapping[str, object], max_segments: int = MAX_SEGMENTS) -> None:
        self._template = template
        self._frames = [Frame(template.document.body, template.document)]
        self._levels = [Environment(Scope(values))]
        self._queue: deque[Step] = deque()
        self._pending_loop: Loop | None = None
        self._is_ahead = False
        self._max_segments = self._n_left = max_segments
        self._ahead_left = [_AHEAD_PER_SEGMENT * max_segments]  # shared with all that look ahead

    @property
    def page(self) -> Environment:
        """Return the environment of the page: the values and results of its names."""
        return self._levels[0]

    def path_of(self, name: str) -> str:
        """Return the path within the page's values of a name of the current step.

        Examples are `armor` and, in loops, `food[1]` and `items[0].name`.
        """
        return path_of(name, [frame.loop for frame in self._frames if frame.loop is not None])

    def path_of_loop(self) -> str:
        """Return the path of the list that the loop of the last `Continue` fills."""
        loops = [frame.loop for frame in self._frames if frame.loop is not None]
        segment = loops[-1].segment
        return path_of(segment.name, loops[:-1]) if isinstance(segment, ast.GenEach) else ""

    def ahead(self, n_steps: int) -> Interpreter:
        """Return a copy of the program that looks ahead without the model.

        The copy decides no slot, and names that it sets do not affect this
        program. Values that only the model can give raise `Undecided`, and so
        does passing more than `n_steps` segments.
        """
        other = Interpreter.__new__(Interpreter)
        other._template = self._template
        other._frames = [replace(frame) for frame in self._frames]
        other._levels = []
        for level in self._levels:
            outer = other._levels[-1].scope if other._levels else None
            other._levels.append(Environment(level.scope.copy(outer)))
        other._queue = deque(self._queue)
        other._pending_loop, other._is_ahead, other._n_left = self._pending_loop, True, n_steps
        other._ahead_left = self._ahead_left
        return other

    def name(self, name: str, value: object, record: object = None) -> None:
        """Set the value of a slot that was decided.

        `record` is the result of its decision; None for a further name of a slot, such
        as that of `logprobs=`.
        """
        self._levels[-1].set(name, value, record)

    def suppose(self, *names: str) -> None:
        """Set names to `UNDECIDED`, because a lookahead skips the steps that set them.

        A value that depends on such a name is then unknown too.
        """
        for name in names:
            self._levels[-1].scope.set(name, UNDECIDED)

    def go_on(self, *, more: bool) -> None:
        """Tell the loop of the last `Continue` whether it has another pass."""
        frame = self._frames[-1]
        if frame.loop is None or self._pending_loop is not frame.loop:
            raise InternalError("no loop is waiting for its next turn")
        self._pending_loop = None
        if more:
            self._begin_pass(frame, frame.loop)
        else:
            self._end_loop(frame, frame.loop)

    def skip(self, step: Decide) -> bool:
        """Skip a hidden slot during a lookahead, because its text does not follow.

        Returns False if the slot is not hidden.
        """
        if not self._is_hidden(step.slot, step.scope, step.document):
            return False
        # Rendering will set these names before the text that is looked for.
        self.suppose(*names_in((step.slot,), self._template.documents).decided, step.slot.name)
        return True

    def leading_text(self, step: Together) -> str:
        """Return the text before the first slot of a joint block."""
        written = []
        for part in step.joint.body:
            if isinstance(part, ast.Slot):
                break
            if not isinstance(part, ast.Comment):
                write = self._execute(part, step.document)
                written.append(write.text if isinstance(write, Write) else "")
        return "".join(written)

    def step(self) -> Step | None:
        """Return the next `Step` for the renderer, or None at the end of the page.

        Segments that need no step, such as `set`, are executed on the way.
        """
        while not self._queue:
            if not self._frames:
                return None
            frame = self._frames[-1]
            if frame.at >= len(frame.body):
                self._leave(frame)
                continue
            segment = frame.body[frame.at]
            frame.at += 1
            self._count_segment(segment, frame.document)
            step = self._execute(segment, frame.document)
            if step is not None:
                return step
        return self._queue.popleft()

    def _count_segment(self, segment: ast.Segment, document: ast.Document) -> None:
        """Count a segment; raise an error beyond the maximum number."""
        self._n_left -= 1
        if self._is_ahead:
            self._ahead_left[0] -= 1
            if min(self._n_left, *self._ahead_left) < 0:
                raise Undecided
        elif self._n_left < 0:
            raise dry_run.too_long_error(document, segment, self._max_segments)

    def check_lookahead(self) -> None:
        """Raise `TemplateError` if all slots together looked too far ahead."""
        if self._ahead_left[0] < 0:
            n_most = _AHEAD_PER_SEGMENT * self._max_segments
            raise TemplateError(f"its slots look ahead past more than {n_most} segments; write text behind them")

    def _execute(self, segment: ast.Segment, document: ast.Document) -> Step | None:
        """Execute one segment.

        Returns its step, or None if it only changes the interpreter's state.
        """
        if isinstance(segment, ast.Literal):
            return Write(segment.text, is_literal=True, span=segment.span, document=document)
        if isinstance(segment, ast.Comment):
            return None
        scope = self._levels[-1].scope
        if not self._is_ahead:
            # A lookahead does not report these errors.
            own = segment.body if isinstance(segment, ast.Joint) else (segment,)
            for one in own:
                if isinstance(one, ast.Slot | ast.Block | ast.GenEach):
                    refuse_input_name(one, scope, document)
        if isinstance(segment, ast.Slot):
            return Decide(segment, scope, document)
        if isinstance(segment, ast.Joint):
            return Together(segment, scope, document)
        if isinstance(segment, ast.Output):
            text = text_at(segment.value, scope, document)
            return Write(text, is_literal=False, span=segment.span, document=document) if text else None
        return self._enter(segment, scope, document)

    def _enter(
        self,
        segment: ast.Set | ast.Include | ast.If | ast.Role | ast.Block | ast.Each | ast.GenEach,
        scope: Scope,
        document: ast.Document,
    ) -> Step | None:
        """Execute a segment that contains other segments, or a `set`.

        Its body, if any, becomes the innermost frame.
        """
        if isinstance(segment, ast.Set):
            self._assign(segment, scope, document)
        elif isinstance(segment, ast.Include):
            included = self._template.included(segment)
            self._frames.append(Frame(included.body, included))
        elif isinstance(segment, ast.If):
            body = next((body for test, body in segment.branches if truth_at(test, scope, document)), segment.otherwise)
            self._frames.append(Frame(body, document))
        elif isinstance(segment, ast.Role):
            ends = TurnStep(self._role_of(segment, scope, document), begins=False, span=segment.span, document=document)
            self._frames.append(Frame(segment.body, document, closing=(ends,)))
            return replace(ends, begins=True)
        elif isinstance(segment, ast.Block):
            self._enter_block(segment, scope, document)
        elif isinstance(segment, ast.Each):
            self._enter_loop(loop_over(segment, self._template, scope, document), document)
        else:
            self._enter_geneach(segment, scope, document)
        return None

    def _role_of(self, segment: ast.Role, scope: Scope, document: ast.Document) -> str:
        """Return the name of a chat turn's role."""
        if isinstance(segment.role, str):
            return segment.role
        return check_role(value_at(segment, ("role", segment.role), scope, document, self._template))

    def _assign(self, segment: ast.Set, scope: Scope, document: ast.Document) -> None:
        """Execute a `set`: evaluate its value, and bind its name on the page."""
        try:
            value = evaluate(segment.value, scope, document)
        except Undecided:  # in a lookahead
            value = UNDECIDED
        self._levels[0].values[segment.name] = value
        scope.assign(segment.name, value)

    def _enter_block(self, block: ast.Block, scope: Scope, document: ast.Document) -> None:
        """Enter a block, or skip it if it is hidden and this is a lookahead."""
        if self._is_hidden(block, scope, document):
            if self._skips_hidden(block.body):
                if block.name is not None:
                    self.suppose(block.name)
                return
            self._enter_hidden()
        closing: tuple[Step, ...] = ()
        if block.name is not None:
            self._queue.append(Naming(block.name, begins=True))
            closing = (Naming(block.name, begins=False),)
        self._frames.append(Frame(block.body, document, closing=closing))

    def _is_hidden(self, segment: ast.Slot | ast.Block | ast.GenEach, scope: Scope, document: ast.Document) -> bool:
        """Return whether the tag is hidden, that is, not part of the page."""
        hidden = dict(segment.arguments).get("hidden")
        if hidden is None:
            return False
        return to_plain(value_at(segment, ("hidden", hidden), scope, document, self._template)) is True

    def _skips_hidden(self, body: ast.Body) -> bool:
        """Return whether to skip a hidden body, which only a lookahead does.

        The names that the body sets are then undecided.
        """
        if self._is_ahead:
            names = names_in(body, self._template.documents)
            self.suppose(*names.decided)
            for name in names.sets:
                self._levels[0].scope.set(name, UNDECIDED)
        return self._is_ahead

    def _enter_hidden(self) -> None:
        """Hide the frame that is entered next, up to its end.

        An empty frame below it ends the hiding, as its closing step.
        """
        self._queue.append(Hide(begins=True))
        self._frames.append(Frame((), self._frames[-1].document, closing=(Hide(begins=False),)))

    def _enter_geneach(self, each: ast.GenEach, scope: Scope, document: ast.Document) -> None:
        """Enter a generated loop, or skip it if hidden in a lookahead."""
        if self._is_hidden(each, scope, document):
            if self._skips_hidden(each.body):
                self.suppose(each.name)
                return
            self._enter_hidden()
        self._enter_loop(loop_of(each, self._template, scope, document), document)

    def _enter_loop(self, loop: Loop, document: ast.Document) -> None:
        """Enter a loop and begin its first pass, if it has one."""
        frame = Frame((), document, loop=loop)
        self._frames.append(frame)
        self._next_pass(frame, loop)

    def _leave(self, frame: Frame) -> None:
        """Leave a body at its end: begin the next pass of its loop, or return."""
        if frame.loop is None:
            self._frames.pop()
            self._queue.extend(frame.closing)
            return
        loop, level = frame.loop, self._levels.pop()
        if not self._is_ahead:
            own = ("this",) if loop.items is None else ()
            for name in (*own, *loop.names.decided):
                loop.values.setdefault(name, []).append(level.values.get(name))
            for name in (*own, *loop.names.slots):
                loop.records.setdefault(name, []).append(level.records.get(name))
        self._next_pass(frame, loop)

    def _next_pass(self, frame: Frame, loop: Loop) -> None:
        """Begin another pass, end the loop, or queue a `Continue` to ask which."""
        if loop.items is not None:
            if loop.n_done < len(loop.items):
                self._begin_pass(frame, loop)
            else:
                self._end_loop(frame, loop)
            return
        min_turns, max_turns, stop = loop.bounds
        if loop.n_done < min_turns:
            self._begin_pass(frame, loop)
        elif loop.n_done >= max_turns or stop is None:
            self._end_loop(frame, loop)
        else:
            self._pending_loop = loop
            self._queue.append(Continue(loop.segment, stop, frame.document))  # type: ignore[arg-type]  # no items: it is a GenEach

    def _begin_pass(self, frame: Frame, loop: Loop) -> None:
        """Begin the next pass of a loop, with its variables."""
        at, segment = loop.n_done, loop.segment
        if not segment.body:  # an empty turn, of which no segment is counted
            self._count_segment(segment, frame.document)
        if at and loop.join:
            self._queue.append(Write(loop.join, is_literal=False, span=segment.span, document=frame.document))
        variables: Values = {"@index": at, "@first": at == 0}
        if isinstance(segment, ast.Each) and loop.items is not None:
            key, item = loop.items[at]
            variables |= {segment.variable: item, "@key": key, "@last": at == len(loop.items) - 1}
        elif loop.bounds[0] == loop.bounds[1]:
            variables["@last"] = at == loop.bounds[0] - 1
        self._levels.append(Environment(self._levels[-1].scope.child(variables)))
        frame.loop = replace(loop, n_done=at + 1)
        frame.body, frame.at = segment.body, 0

    def _end_loop(self, frame: Frame, loop: Loop) -> None:
        """End a loop and turn the values of its slots into lists."""
        self._frames.pop()
        self._queue.extend(frame.closing)
        own = (loop.segment.name,) if isinstance(loop.segment, ast.GenEach) else ()
        if self._is_ahead:
            self.suppose(*own, *loop.names.decided)
            return
        for name in loop.names.slots:
            self.name(name, loop.values.get(name, []), loop.records.get(name, []))
        for name in loop.names.texts:
            self.name(name, loop.values.get(name, []))
        for name in own:
            self.name(name, loop.values.get("this", []), loop.records.get("this", []))


@dataclass(frozen=True, slots=True)
class Following:
    """The text that certainly follows a step on the page.

    Attributes:
        text: The text, at most `MAX_FOLLOWING` characters.
        ends_role: Role of the turn that ends directly after the text, or None.
        either: Two texts of which one follows, or (): the beginning of a loop's next
            item, and the text after the loop.
        ends: Whether the control token of the template's own text that directly follows
            the text ends generation; None if there is no such token.
    """

    text: str = ""
    ends_role: str | None = None
    either: tuple[str, ...] = ()
    ends: bool | None = None


def no_cut(_literal: str) -> None:
    """Return None, as a `Cut` for text without control tokens."""


def find_following(program: Interpreter, *names: str, cut: Cut = no_cut) -> Following:
    """Return the text that certainly follows the current step on the page.

    It ends at the next decision of the model, or at a control token.

    Args:
        program: The program, which is not changed.
        names: Names that the step will set; their values count as unknown.
        cut: Finds the control tokens in literal text.
    """
    ahead = program.ahead(_MAX_STEPS_AHEAD)
    ahead.suppose(*names)
    following = _find_certain_text(ahead, cut, may_branch=True)
    program.check_lookahead()
    return following


def find_branch(program: Interpreter, *, more: bool, cut: Cut = no_cut) -> Following:
    """Return the text that follows if the pending loop goes on (`more`), or if it ends.

    It is the loop of the last `Continue`.
    """
    ahead = program.ahead(_MAX_STEPS_AHEAD)
    ahead.go_on(more=more)
    following = _find_certain_text(ahead, cut, may_branch=False)
    program.check_lookahead()
    return following


def _find_certain_text(ahead: Interpreter, cut: Cut, *, may_branch: bool) -> Following:
    """Return the text up to the next step that is not a `Write`.

    It ends earlier where the page depends on an undecided slot. `may_branch` allows
    looking past the end of one loop.
    """
    written: list[str] = []
    run = ""  # literals, which together may spell a control token
    end = Following()
    try:
        while sum(map(len, written)) < MAX_FOLLOWING:
            step = ahead.step()
            if isinstance(step, Write):
                before = "".join(written).removesuffix(run) if step.is_literal else ""
                run = run + step.text[: 2 * MAX_FOLLOWING] if step.is_literal else ""
                control = cut(run) if run else None
                if control is not None:
                    written, end = [before, control[0]], Following(ends=control[1])
                    break
                written.append(step.text)
            elif isinstance(step, Naming):  # a lookahead does not collect the text of blocks
                ahead.suppose(step.name)
            elif isinstance(step, Decide) and ahead.skip(step):
                continue
            elif isinstance(step, Continue) and may_branch:
                end = _common_beginning(*(find_branch(ahead, more=more, cut=cut) for more in (True, False)))
                break
            elif isinstance(step, Together):
                written.append(ahead.leading_text(step))
                break
            else:  # a decision, hidden text, or a turn that begins or ends
                end = Following("", step.role if isinstance(step, TurnStep) and not step.begins else None)
                break
    except (Undecided, TemplateError):
        end = Following()  # rendering raises the error if the page gets there
    text = "".join(written) + end.text
    if len(text) > MAX_FOLLOWING:
        return Following(text[:MAX_FOLLOWING])
    return Following(text, end.ends_role, () if text else end.either, end.ends)


def _common_beginning(one: Following, other: Following) -> Following:
    """Return the longest common beginning of two possible continuations.

    If the texts differ, `either` of the result has both, and theirs are dropped.
    """
    if one == other:
        return one
    pairs = enumerate(zip(one.text, other.text, strict=False))
    n_same = next((at for at, (a, b) in pairs if a != b), min(len(one.text), len(other.text)))
    return Following(one.text[:n_same], either=(one.text, other.text))
