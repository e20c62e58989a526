"""Compiles rules to a program for a machine, and finds what holds for all texts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from selectrie.errors import GrammarError
from selectrie.grammar.machine.nfa import (
    DEFAULT_LIMITS,
    GrammarLimits,
    Nfa,
    Resolved,
    RuleAutomaton,
    Work,
    call_label,
    called_rule,
    leftmost_calls,
    remove_empty_text,
    remove_left_recursion,
    simplify,
    terminal_label,
)
from selectrie.grammar.machine.program import NO_RETURN, Plans, Program, link_rules
from selectrie.grammar.rules import (
    Characters,
    Concatenation,
    Expression,
    LiteralText,
    Reference,
    Repeat,
    RuleSet,
    TokenTerminal,
    parts_of,
)
from selectrie.grammar.source_positions import GrammarSource

Node = TypeVar("Node", bound=Hashable)


def rings(graph: Mapping[Node, Sequence[Node]]) -> list[list[Node]]:
    """Return the strongly connected components of a graph, called rings.

    Each comes after all rings that it leads to. The graph maps nodes to successors;
    successors that are not nodes are ignored. A ring of one node may or may not
    lead to itself. Uses Tarjan's algorithm (1972) with an explicit stack.
    """
    index: dict[Node, int] = {}  # the order in which a node was met
    low: dict[Node, int] = {}  # index of the first node met that the node's subtree leads back to
    path: dict[Node, None] = {}
    components: list[list[Node]] = []
    work: list[tuple[Node, Iterator[Node]]] = []

    def enter(node: Node) -> None:
        index[node] = low[node] = len(index)
        path[node] = None
        work.append((node, iter(graph[node])))

    for root in graph:
        if root not in index:
            enter(root)
        while work:
            node, successors = work[-1]
            for after in successors:
                if after in path:
                    low[node] = min(low[node], index[after])
                elif after in graph and after not in index:
                    enter(after)
                    break
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == index[node]:
                    components.append(_pop_ring(path, node))
    return components


def _pop_ring(path: dict[Node, None], node: Node) -> list[Node]:
    """Remove the nodes from `node` to the end of a path, and return them in order."""
    ring = [path.popitem()[0]]
    while ring[-1] != node:
        ring.append(path.popitem()[0])
    return ring[::-1]


NEVER = 1 << 60


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about the rules reachable from the root.

    Attributes:
        names: Names in the order of discovery, the root first.
        references: References of each rule, in the order of its text.
        productive: Rules that match some text.
        nullable: Rules that match the empty text.
        substantial: Rules that match some text other than the empty one.
    """

    names: tuple[str, ...]
    references: Mapping[str, tuple[Reference, ...]]
    productive: frozenset[str]
    nullable: frozenset[str]
    substantial: frozenset[str]


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and all expressions inside it, using an explicit stack."""
    work = [expression]
    while work:
        part = work.pop()
        yield part
        work.extend(reversed(parts_of(part)))


def find_facts(rules: Mapping[str, Expression], root: str) -> Facts:
    """Return the facts about the rules reachable from the root.

    A name without a rule counts as a rule without texts; the caller raises an error for
    it.
    """
    references: dict[str, tuple[Reference, ...]] = {}
    flat = _Flat()
    work = [root]
    for name in work:
        if name in references or name not in rules:
            continue
        references[name] = tuple(part for part in walk(rules[name]) if isinstance(part, Reference))
        work.extend(reference.name for reference in references[name])
        flat.add(name, rules[name])
    productive = flat.holds(_needs_for_a_text)
    whole = [missing <= 0 for missing in productive]
    return Facts(
        tuple(references),
        references,
        flat.names(productive),
        flat.names(flat.holds(_needs_for_empty)),
        flat.names(flat.holds(_needs_for_another, whole)),
    )


def _needs_for_a_text(part: Expression) -> int:
    """Return how many of an expression's parts must have a text for it to have one."""
    if isinstance(part, LiteralText):
        return 0
    if isinstance(part, Characters):
        return 0 if part.ranges else NEVER
    if isinstance(part, TokenTerminal):
        return 0 if part.negated or part.tokens else NEVER
    if isinstance(part, Repeat):
        return 0 if part.min_count == 0 or part.max_count == 0 else 1
    return len(part.items) if isinstance(part, Concatenation) else 1


def _needs_for_empty(part: Expression) -> int:
    """Return how many parts must match the empty text for an expression to match it."""
    if isinstance(part, LiteralText):
        return NEVER if part.value else 0
    return NEVER if isinstance(part, Characters | TokenTerminal) else _needs_for_a_text(part)


def _needs_for_another(part: Expression) -> int:
    """Return how many parts must match characters for an expression to match some."""
    if isinstance(part, LiteralText):
        return 0 if part.value else NEVER
    if isinstance(part, Concatenation | Repeat):
        return NEVER if isinstance(part, Repeat) and part.max_count == 0 else 1
    return _needs_for_a_text(part)


@dataclass(slots=True)
class _Flat:
    """All parts of all rules, in one list, for the computation of facts.

    Attributes:
        parent: For each part, the part that contains it; -1 at the top of a rule.
    """

    parts: list[Expression] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    top: dict[int, str] = field(default_factory=dict)
    users: dict[str, list[int]] = field(default_factory=dict)

    def add(self, name: str, expression: Expression) -> None:
        """Append all parts of a rule's expression."""
        self.top[len(self.parts)] = name
        work = [(expression, -1)]
        while work:
            part, above = work.pop()
            own = len(self.parts)
            self.parts.append(part)
            self.parent.append(above)
            if isinstance(part, Reference):
                self.users.setdefault(part.name, []).append(own)
            work += [(inner, own) for inner in parts_of(part)]

    def holds(self, needs: Callable[[Expression], int], whole: list[bool] | None = None) -> list[int]:
        """Return how many of its parts each part still needs; it holds if that is <= 0.

        A part holds if enough of its own parts do, and the least solution is computed.
        Each part that begins to hold is counted once at the part that contains it
        (Dowling and Gallier, Journal of Logic Programming 1, 1984).

        Args:
            needs: Returns how many of a part's parts must hold; for a reference, the
                only part is the rule.
            whole: For each part, whether it may hold at all.
        """
        missing = [needs(part) for part in self.parts]
        if whole is not None:
            missing = [count if possible else NEVER for count, possible in zip(missing, whole, strict=True)]
        ready = [node for node, count in enumerate(missing) if count == 0]
        while ready:
            node = ready.pop()
            name = self.top.get(node)
            for above in (self.parent[node],) if name is None else self.users.get(name, ()):
                missing[above] -= 1
                if missing[above] == 0:
                    ready.append(above)
        return missing

    def names(self, missing: list[int]) -> frozenset[str]:
        """Return the names of the rules whose whole expression holds."""
        return frozenset(name for node, name in self.top.items() if missing[node] <= 0)


INLINED_STATES = 32
"""A rule of at most this many states replaces its calls."""
ONCE_STATES = 4096
"""So does a rule of at most this many states that is called only once."""
RING_EDGE = 8
"""Cost of an edge of a left-recursive rule, relative to other edges.

The automaton of such a rule is built again for each rule called.
"""
SPELLED_STATES = 14
"""A character set with a larger automaton becomes a separate rule.

For instance, `\\w` has more than a hundred nodes.
"""


def compile_rules(rules: RuleSet, limits: GrammarLimits = DEFAULT_LIMITS) -> Program:
    """Return the program that a `Machine` runs.

    It holds the states, edges and calls of all rules reachable from the root. Raises
    `GrammarError` if the root or a referenced rule does not exist, if no text matches
    the root, or if a limit is exceeded.
    """
    known = find_facts(rules.rules, rules.root)
    _check_names(rules, known)
    if len(known.names) > limits.max_rules:
        raise GrammarError(f"{rules.root!r} uses {len(known.names)} rules; the maximum is {limits.max_rules}")
    if rules.root not in known.productive:
        raise error_in_rules(
            f"no text matches {rules.root!r}: each of its alternatives leads to itself or nowhere", rules
        )
    work = _Compiler(rules, limits, known, Work.of(limits))
    for ring in rings(_calls_of(known)):
        work.add(ring)
    return link_rules(_remove_left_recursion(work), work.number[rules.root], tuple(work.token_sets))


def error_in_rules(reason: str, rules: RuleSet, start: int | None = None) -> GrammarError:
    """Return a `GrammarError` that points to an offset of the rules' source.

    The default is the definition of the root.
    """
    if start is None and rules.root in rules.spans:
        start = rules.spans[rules.root].start
    if start is None or not rules.text:
        return GrammarError(reason)
    return GrammarSource(rules.text).error_at(start, reason)


def _check_names(rules: RuleSet, known: Facts) -> None:
    """Raise `GrammarError` if the root or a referenced rule is not defined."""
    if rules.root not in rules.rules:
        names = ", ".join(sorted(rules.rules)[:10]) or "none"
        raise GrammarError(f"there is no rule {rules.root!r}; rules: {names}")
    for name, references in known.references.items():
        for reference in references:
            if reference.name not in rules.rules:
                start = reference.span.start if reference.span else None
                raise error_in_rules(f"rule {name!r} uses {reference.name!r}, which is not defined", rules, start)


def _calls_of(known: Facts) -> dict[str, list[str]]:
    """Map each productive rule to the rules in it that may match characters."""
    return {
        name: [one.name for one in known.references[name] if one.name in known.substantial]
        for name in known.names
        if name in known.productive
    }


@dataclass(slots=True)
class _Compiler:
    """Builds the automata of rules.

    Rules have numbers, and so have character sets that became rules of their own.
    """

    rules: RuleSet
    limits: GrammarLimits
    known: Facts
    work: Work
    number: dict[str, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    automata: dict[int, RuleAutomaton] = field(default_factory=dict)
    inlined: dict[int, RuleAutomaton] = field(default_factory=dict)
    sets: dict[Characters, Resolved] = field(default_factory=dict)
    sets_met: dict[int, Resolved] = field(default_factory=dict)
    token_sets: dict[TokenTerminal, int] = field(default_factory=dict)
    n_uses: dict[str, int] = field(default_factory=dict)
    n_states: int = 0
    n_copied: int = 0

    def __post_init__(self) -> None:
        """Assign numbers to the rules and count their uses."""
        for name in self.known.names:
            self._add_name(name)
            for reference in self.known.references[name]:
                self.n_uses[reference.name] = self.n_uses.get(reference.name, 0) + 1

    def add(self, ring: Iterable[str]) -> None:
        """Add the rules of a ring: rules that call each other, or a single rule.

        All other rules that they call must have been added before.
        """
        members = list(ring)
        for name in members:
            automaton = self._build_automaton(self.rules.rules[name], f"rule {name!r}")
            self.automata[self.number[name]] = automaton
            recursive = len(members) > 1 or name in {one.name for one in self.known.references[name]}
            size = len(automaton.edges)
            if not recursive and (size <= INLINED_STATES or (size <= ONCE_STATES and self.n_uses.get(name) == 1)):
                self.inlined[self.number[name]] = automaton

    def _add_name(self, name: str) -> int:
        """Give a rule the next number, and return it."""
        self.number[name] = len(self.names)
        self.names.append(name)
        return self.number[name]

    def _build_automaton(self, expression: Expression, what: str) -> RuleAutomaton:
        """Return the automaton of an expression; `what` names it in errors."""
        nfa = Nfa(self.limits.max_states - self.n_states, what)
        nfa.build(expression, self._resolve)
        automaton = simplify(nfa, self.work)
        self.n_states += len(automaton.edges)
        return automaton

    def _resolve(self, part: Characters | TokenTerminal | Reference) -> Resolved:
        """Return the automaton or label that stands for a leaf of an expression."""
        if isinstance(part, Characters):
            if id(part) not in self.sets_met:  # by identity first: a set may have thousands of ranges to hash
                if part not in self.sets:
                    self.sets[part] = self._resolve_set(part)
                self.sets_met[id(part)] = self.sets[part]
            return self.sets_met[id(part)]
        if isinstance(part, Reference):
            return self._rule(part.name)
        if part.tokens or part.negated:
            return terminal_label(self.token_sets.setdefault(part, len(self.token_sets))), False
        return None

    def _rule(self, name: str) -> Resolved:
        """Return the automaton to insert for a rule, or the label that calls it."""
        # The rule has no text, or only the empty one.
        if name not in self.known.substantial:
            return NOTHING if name in self.known.productive else None
        number = self.number[name]
        automaton = self.inlined.get(number)
        if automaton is None or self.n_copied + len(automaton.edges) > self.limits.max_inlined:
            return call_label(number), name in self.known.nullable
        self.n_copied += len(automaton.edges)
        return automaton

    def _resolve_set(self, part: Characters) -> Resolved:
        """Return the label of a character set, or the automaton to insert for it.

        If the automaton is large, it becomes a new rule, and the label calls that rule.
        """
        if not part.ranges:
            return None
        nfa = Nfa(self.limits.max_states - self.n_states, "a set of characters")
        nfa.add_characters(part)
        automaton = simplify(nfa, self.work)
        # A set of single bytes needs one label only.
        if len(automaton.edges) == 2 and len(automaton.edges[0]) == 1:
            return automaton.edges[0][0][0], False
        if len(automaton.edges) <= SPELLED_STATES:
            return automaton
        number = self._add_name(f"set {len(self.names)}")
        self.automata[number] = automaton
        self.n_states += len(automaton.edges)
        return call_label(number), False


NOTHING = RuleAutomaton([[]], [True], deterministic=True)
"""The automaton of the empty text."""


def _remove_left_recursion(work: _Compiler) -> dict[int, tuple[RuleAutomaton, bool]]:
    """Return the root and the rules it calls once left recursion has been removed.

    Each rule is an automaton without the empty text, and whether the rule also matches
    that. Only the root's flag is used, because a caller of a rule that may be empty has
    an edge that skips the call.
    """
    root = work.number[work.rules.root]
    nullable = {number: automaton.final[0] for number, automaton in work.automata.items()}
    plain = {number: remove_empty_text(automaton) for number, automaton in work.automata.items()}
    leftmost = {number: leftmost_calls(automaton) for number, automaton in plain.items()}
    ring_of = {
        number: ring for ring in rings(leftmost) for number in ring if len(ring) > 1 or number in leftmost[number]
    }
    done: dict[int, tuple[RuleAutomaton, bool]] = {}
    waiting = [root]
    n_states = 0
    for number in waiting:
        if number in done:
            continue
        automaton = plain[number]
        if number in ring_of:
            automaton = _rewrite_rule(work, ring_of[number], number, plain)
        n_states += len(automaton.edges)
        if n_states > work.limits.max_states:
            raise GrammarError(f"the rules have more than {work.limits.max_states} states; split the grammar")
        done[number] = automaton, nullable[number]
        waiting += {called_rule(label) for edges in automaton.edges for label, _ in edges if label < 0}
    return done


def _rewrite_rule(work: _Compiler, ring: list[int], number: int, plain: dict[int, RuleAutomaton]) -> RuleAutomaton:
    """Return a rule's automaton without the left recursion of its ring.

    Args:
        work: The automata of all rules.
        ring: The numbers of the rules that begin with each other.
        number: The rule's number.
        plain: The automata of the rules of the ring, without the empty text.
    """
    names = [repr(work.names[one]) for one in ring]
    what = f"the left recursion of {' -> '.join([*names[:7], *(['...'] if len(names) > 7 else []), names[0]])}"
    work.work.edges -= RING_EDGE * sum(len(edges) for one in ring for edges in plain[one].edges)
    if work.work.edges < 0:
        raise GrammarError(f"{what} is too large to rewrite; reduce the number of rules that begin with each other")
    return remove_left_recursion(ring, number, plain, Nfa(work.limits.max_states, what), work.work)


END = -1
"""Marks the bottom of a stack: no rule is open below."""
MAX_SETS = 2_000
MAX_ITEMS = 60_000
MAX_DEPTH = 12

Item = tuple[int, tuple[int, ...]]
"""A state and its return states, the next one first.

Return states below what all items have in common are left out.
"""


def is_finite(program: Program) -> bool:
    """Return whether there are finitely many texts.

    That is so if no state leads to itself by reading or by calling, because every state
    can be reached and left, and every rule reads at least one byte.
    """
    after = {state: _successors(program, state) for state in range(len(program.edges))}
    return all(len(ring) == 1 and ring[0] not in after[ring[0]] for ring in rings(after))


def is_prefix_free(program: Program) -> bool:
    """Return whether no text is a prefix of another; False if that is unknown.

    The search follows sets of items as the machine would. An item is a state with the
    upper part of its stack, above the part that all items of the set share. Where a set
    leaves the shared part, every possible return from its rule is tried. If one of them
    ends the text, no item may be able to continue. The result is right because more
    stacks are tried than exist. The search ends because it gives up beyond a number of
    sets.
    """
    start = program.starts[0]
    if program.token_sets:
        return False
    if len(program.starts) > 1:
        return not _successors(program, start)
    search = _Search(program)
    sets: list[frozenset[Item]] = [frozenset([(start, ())])]
    seen = set(sets)
    n_items = 0
    for items in sets:
        n_items += len(items)
        after = search.after(items)
        if after is None or len(seen) > MAX_SETS or n_items > MAX_ITEMS:
            return False
        for successor in after:
            if successor not in seen:
                seen.add(successor)
                sets.append(successor)
    return True


def _successors(program: Program, state: int) -> list[int]:
    """Return all states that a state leads to, by reading or by calling a rule."""
    called_rule = [one for callee, back in program.calls[state] for one in (callee, back) if one != NO_RETURN]
    return [*(to for _, to in program.edges[state]), *called_rule, *(to for _, to in program.tokens[state])]


class _Search:
    """Follows sets of items, to find a text that continues where another one ends."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._plans = Plans(program)
        self._firsts = sorted({program.starts[0], *(callee for calls in program.calls for callee, _ in calls)})
        self._returns = self._find_returns()

    def after(self, items: frozenset[Item]) -> list[frozenset[Item]] | None:
        """Return the sets of items after one more byte, or after a return to a caller.

        Returns None if some text continues another, or if the stacks get too deep to
        tell.
        """
        final = self._program.final
        closed = set(items)
        work = list(items)
        for state, stack in work:
            if final[state] and stack and (stack[0], stack[1:]) not in closed:
                closed.add((stack[0], stack[1:]))
                work.append((stack[0], stack[1:]))
        if any(final[state] and not stack for state, stack in closed):
            backs = self._returns[self._rule(min(closed, key=lambda item: len(item[1]))[0])]
            if END in backs and any(_successors(self._program, state) for state, _ in closed):
                return None
            deeper = [frozenset((state, (*stack, back)) for state, stack in closed) for back in backs if back != END]
            return None if any(len(stack) > MAX_DEPTH for _, stack in closed) else deeper
        successors = [
            self._drop_common_bottom(read)
            for kind in range(self._program.n_classes)
            if (read := self._read_byte(closed, kind))
        ]
        return None if any(len(stack) > MAX_DEPTH for one in successors for _, stack in one) else successors

    def _read_byte(self, closed: set[Item], kind: int) -> set[Item]:
        """Return the items after a byte of the class `kind`.

        Beyond `MAX_SETS` stacks, an item is added whose stack is too deep, so
        that the caller gives up.
        """
        items: set[Item] = set()
        for state, stack in closed:
            plan = self._plans.plan(state, kind)
            items.update((target, stack) for target in plan.targets)
            opened: list[set[tuple[int, ...]]] = [{stack}]
            for callers, targets in plan.steps:
                own = {
                    above if back == NO_RETURN else (back, *above)
                    for caller, back in callers
                    for above in opened[caller]
                }
                opened.append(own)
                items.update((target, above) for target in targets for above in own)
                if len(own) > MAX_SETS:
                    # Too many stacks: one that is too deep makes the caller give up.
                    return items | {(state, (state,) * (MAX_DEPTH + 1))}
        return items

    def _drop_common_bottom(self, items: set[Item]) -> frozenset[Item]:
        """Return the items without the part at the bottom that all stacks share.

        The states below must have been called in one rule.
        """
        while len({stack[-1:] for _, stack in items}) == 1 and next(iter(items))[1]:
            if len({self._rule(stack[-2] if len(stack) > 1 else state) for state, stack in items}) > 1:
                break
            items = {(state, stack[:-1]) for state, stack in items}
        return frozenset(items)

    def _rule(self, state: int) -> int:
        """Return the first state of the rule that contains a state."""
        return self._firsts[bisect_right(self._firsts, state) - 1]

    def _find_returns(self) -> dict[int, set[int]]:
        """Return, for each rule, the states to which it may return.

        A rule is known by its first state. `END` is included for the rule that
        the text begins with.
        """
        returns: dict[int, set[int]] = {first: set() for first in self._firsts}
        returns[self._program.starts[0]].add(END)
        heirs: dict[int, set[int]] = {first: set() for first in self._firsts}
        for caller, calls in enumerate(self._program.calls):
            for callee, back in calls:
                if back == NO_RETURN:
                    # A call at a rule's end returns where the calling rule does.
                    heirs[self._rule(caller)].add(callee)
                else:
                    returns[callee].add(back)
        work = list(returns)
        while work:
            rule = work.pop()
            for heir in heirs[rule]:
                if not returns[rule] <= returns[heir]:
                    returns[heir] |= returns[rule]
                    work.append(heir)
        return returns
