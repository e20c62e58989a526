"""Single changes of Python source that a test ought to notice: a comparison turned
round, a constant moved by one, a statement left out.

Sites are found in the syntax tree and replaced by their exact range in the source, so
the rest of a file does not change. Only the bodies of functions are changed: every test
reaches what runs once at import, and none tests it in particular. Texts, docstrings,
annotations, decorators, defaults, logging, and the arguments of `raise` are not
changed.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

Change = tuple[str, ast.expr | ast.stmt, str]
"""The kind of a change, the node whose range is replaced, and the text that replaces
it.
"""

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_PAIRS = (("min", "max"), ("any", "all"), ("minimum", "maximum"), ("argmin", "argmax"))
_TWINS = dict([*_PAIRS, *((right, left) for left, right in _PAIRS)])
_ABOUT_TYPES = frozenset({"isinstance", "issubclass", "cast"})
_UNORDERED = _ABOUT_TYPES | {"min", "max", "union", "intersection", "minimum", "maximum", "logaddexp"}
"""Functions whose arguments are not swapped, because that means nothing or changes
nothing.
"""
_LOGGERS = frozenset({"log", "_log", "logger", "_logger", "logging", "warnings"})


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of a file.

    path: below the folder of sources. start, end: bytes of the file that `text`
    replaces. line, statement: where the changed node begins, and the statement it
    belongs to. name: differs from that of every other mutant, whatever lines are above
    it.
    """

    path: str
    line: int
    statement: int
    start: int
    end: int
    kind: str
    before: str
    after: str
    text: str
    name: str

    def applied(self, source: bytes) -> bytes:
        """Return the file with the change."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def is_sound(self, source: bytes) -> bool:
        """Tell whether the changed file is Python."""
        try:
            ast.parse(self.applied(source))
        except SyntaxError:
            return False
        return True


def drawn(sources: Path, without: Iterable[str], count: int, seed: int, only: str = "") -> list[Mutant]:
    """Draw `count` mutants of the files whose path below a folder begins with `only`,
    by file and line.

    These are the mutants with the smallest digests of seed and mutant, so a change of
    one file does not move mutants of other files into the draw or out of it, except for
    the last few.
    """
    left_out = tuple(without)
    files = {
        relative: path.read_bytes()
        for path in sorted(sources.rglob("*.py"))
        if (relative := path.relative_to(sources).as_posix()).startswith(only) and not relative.startswith(left_out)
    }
    every = [mutant for path, source in files.items() for mutant in mutants_of(path, source)]
    every.sort(key=lambda mutant: blake2b(f"{seed} {mutant.name}".encode()).digest())
    chosen: list[Mutant] = []
    for mutant in every:
        if len(chosen) == count:
            break
        if mutant.is_sound(files[mutant.path]):
            chosen.append(mutant)
    return sorted(chosen, key=lambda mutant: (mutant.path, mutant.start, mutant.text))


def mutants_of(path: str, source: bytes) -> Iterator[Mutant]:
    """Yield every mutant of a file, in the order of the syntax tree."""
    starts = [0]
    for line in source.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    seen: Counter[str] = Counter()
    for function, statement, (kind, node, text) in _changes(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        before, after = (" ".join(said.split()) for said in (source[start:end].decode(), text))
        name = f"{path} {function} {kind}: {before} -> {after}"
        seen[name] += 1
        yield Mutant(
            path, node.lineno, statement.lineno, start, end, kind, before, after, text, f"{name} #{seen[name]}"
        )


def _changes(tree: ast.AST, within: str = "") -> Iterator[tuple[str, ast.stmt, Change]]:
    """Yield the name, the statement and the change for every function that is not
    inside another one.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                yield from ((within + node.name, *found) for found in _below(statement, statement))
        elif isinstance(node, ast.ClassDef):
            yield from _changes(node, f"{within}{node.name}.")


def _below(node: ast.AST, statement: ast.stmt) -> Iterator[tuple[ast.stmt, Change]]:
    statement = node if isinstance(node, ast.stmt) else statement
    if _is_logging(node):
        return
    for kind, where, text in (*_of_statement(node), *_of_expression(node)):
        yield statement, (kind, where, text)
    for child in _children(node):
        yield from _below(child, statement)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below a node that may be changed."""
    match node:
        case ast.JoinedStr() | ast.Raise() | ast.Assert():
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from node.body
        case ast.Lambda():
            yield node.body
        case ast.AnnAssign():
            yield from (part for part in (node.target, node.value) if part is not None)
        case ast.match_case():
            yield from (*([node.guard] if node.guard else []), *node.body)
        case ast.ExceptHandler():
            yield from node.body
        case ast.Call() if _called(node) in _ABOUT_TYPES:
            yield from node.args[1:] if _called(node) == "cast" else node.args[:1]
        case ast.Call():
            yield from (node.func, *node.args, *(word.value for word in node.keywords if word.arg != "strict"))
        case _:
            yield from ast.iter_child_nodes(node)


def _of_statement(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Delete() | ast.Raise():
            yield "left out", node, "pass"
        case ast.Assign(targets=targets) if all(isinstance(to, ast.Attribute | ast.Subscript) for to in targets):
            yield "left out", node, "pass"
        case ast.AugAssign(target=target, op=op, value=value):
            yield "left out", node, "pass"
            yield "operator", node, ast.unparse(ast.AugAssign(target, _OPERATORS.get(type(op), ast.Add)(), value))
        case ast.Break():
            yield "loop", node, "continue"
        case ast.Continue():
            yield "loop", node, "break"
            yield "loop", node, "pass"
        case ast.Return(value=ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()) as value):
            yield "returned", value, _negated(value)
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield "returned", value, "None"
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield "condition", test, _negated(test)
        case ast.comprehension(ifs=tests):
            yield from (("condition", test, _negated(test)) for test in tests)


def _of_expression(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            changed = [[*ops[:i], new(), *ops[i + 1 :]] for i, op in enumerate(ops) for new in _COMPARISONS[type(op)]]
            yield from (("comparison", node, f"({ast.unparse(ast.Compare(left, one, others))})") for one in changed)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS and not _is_text(left, right):
            yield "operator", node, f"({ast.unparse(ast.BinOp(left, _OPERATORS[type(op)](), right))})"
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            rests = ([*values[:i], *values[i + 1 :]] for i in range(len(values)))
            changed = [
                ast.BoolOp(other, values),
                *(rest[0] if len(rest) == 1 else ast.BoolOp(op, rest) for rest in rests),
            ]
            yield from (("and/or", node, f"({ast.unparse(one)})") for one in changed)
        case ast.UnaryOp(operand=operand):
            yield "sign", node, f"({ast.unparse(operand)})"
        case ast.Constant(value=value) if isinstance(value, int | float):
            others = [not value] if isinstance(value, bool) else [value + 1, value - 1]
            yield from (("constant", node, f"({other!r})") for other in others)
        case ast.Call():
            yield from _of_call(node)
        case ast.Slice():
            yield from _of_slice(node)


def _of_call(node: ast.Call) -> Iterator[Change]:
    """Yield the call with the opposite function, and with two neighbouring arguments
    swapped.
    """
    function = node.func
    if twin := _TWINS.get(_called(node)):
        owner = f"({ast.unparse(function.value)})." if isinstance(function, ast.Attribute) else ""
        yield "least/most", function, owner + twin
    if _called(node) in _UNORDERED or any(isinstance(one, ast.Starred) for one in node.args):
        return
    for i, (left, right) in enumerate(zip(node.args, node.args[1:], strict=False)):
        if ast.dump(left) != ast.dump(right):
            swapped = [*node.args[:i], right, left, *node.args[i + 2 :]]
            yield "arguments", node, ast.unparse(ast.Call(function, swapped, node.keywords))


def _of_slice(node: ast.Slice) -> Iterator[Change]:
    """Yield the slice without its first element, and without its last."""
    if node.step is not None:
        return
    lower, upper = (None if bound is None else ast.unparse(bound) for bound in (node.lower, node.upper))
    yield "slice", node, f"{'1' if lower is None else f'({lower}) + 1'}:{upper or ''}"
    yield "slice", node, f"{lower or ''}:{'-1' if upper is None else f'({upper}) - 1'}"


def _negated(node: ast.expr) -> str:
    return f"(not ({ast.unparse(node)}))"


def _called(node: ast.Call) -> str:
    """Return the last name of what is called, or an empty string if it has none."""
    function = node.func
    return getattr(function, "id", getattr(function, "attr", ""))


def _is_text(*nodes: ast.expr) -> bool:
    return any(
        isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
        for node in nodes
    )


def _is_logging(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in _LOGGERS
    return False
