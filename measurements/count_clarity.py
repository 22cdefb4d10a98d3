"""Counts what makes Python hard to read at first sight, by folder.

    python measurements/count_clarity.py                         the current folder
    python measurements/count_clarity.py ROOT --rev REV          a commit of the checkout ROOT
    python measurements/count_clarity.py --list names PATH       the places, as PATH:LINE: WHAT

The rules:

lines       Lines of code: neither blank nor a comment alone. The base of "per 1,000 lines".
tuples      Unrelated tuple assignments: a tuple of targets takes a tuple of values in one
            statement. They are related if the values are all literal constants, a permutation of
            the targets (a swap), or attributes of one object. One unpacked value is no tuple.
long        Lines of 95 characters or more, comments and texts among them.
any         Parameters and results annotated with `Any` itself, or with a union that holds it.
            `dict[str, Any]` does not count, nor does a lambda, which has no annotations.
positional  Calls that pass six or more arguments by position. `*values` counts as one.
torn        Error texts in two pieces: a `raise` whose text takes in, as `{name}`, a string that the
            statement before it assigns.
names       Vague names: names that a scope binds and that stand in VAGUE_NAMES. A scope is a
            module, a class, a function or a lambda; a name counts once in each. Bound are targets
            of assignments, loops, `with`, `except`, `match`, `:=` and comprehensions, parameters,
            fields, and attributes that a method gives `self`. The base is 100 functions.

Every `*.py` counts that git tracks or would track; where git knows none, every one beneath ROOT.
The row "source" is everything but tests, examples and docs.
"""

from __future__ import annotations

import argparse
import ast
import io
import itertools
import json
import subprocess
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

LONG_LINE = 95
MANY_POSITIONAL = 6
NOT_SOURCE = ("tests", "examples", "docs")

# Names that say nothing of what they hold, by the reason; after each, a reader still asks "what?".
# Words that name a relation or a role stay out (`other`, `rest`, `missing`, `old`, `why`), and so
# do participles that name a state of the thing (`built`, `packed`, `installed`).
VAGUE_NAMES_BY_REASON = {
    "what somebody perceived or said, not what it is": (
        "asked found heard known looked said seen shown told"
    ),
    "what was done with it, or that it is wished for, not what it is": (
        "done given got had held kept made needed taken wanted"
    ),
    "true of any string, any value or any collection": (
        "every stuff text texts thing things words"
    ),
    "a verb, a pronoun or an adverb in the place of a noun": (
        "about has have having here there these those"
    ),
}
VAGUE_NAMES = {name for names in VAGUE_NAMES_BY_REASON.values() for name in names.split()}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Callee = Function | ast.Lambda
Scope = ast.Module | ast.ClassDef | Callee


@dataclass(frozen=True)
class Place:
    """One spot that a rule counts: the line, and what stands there."""

    line: int
    what: str


@dataclass
class Counts:
    """The figures of one folder."""

    lines: int = 0
    functions: int = 0
    tuples: int = 0
    long: int = 0
    any: int = 0
    positional: int = 0
    torn: int = 0
    names: int = 0

    def add(self, other: Counts) -> None:
        for field, number in asdict(other).items():
            setattr(self, field, getattr(self, field) + number)

    def per_1000_lines(self, number: int) -> float:
        return 1000 * number / max(1, self.lines)

    def per_100_functions(self, number: int) -> float:
        return 100 * number / max(1, self.functions)


@dataclass(frozen=True)
class Source:
    """A parsed file: its name relative to the root, its lines and its tree."""

    name: str
    lines: list[str]
    tree: ast.Module

    @classmethod
    def parse(cls, name: str, content: str) -> Source:
        return cls(name=name, lines=content.splitlines(), tree=ast.parse(content, filename=name))


def is_constant(value: ast.expr) -> bool:
    """Whether it is a literal: a number, a string, or a container of such."""
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def is_swap(targets: list[ast.expr], values: list[ast.expr]) -> bool:
    return sorted(map(ast.unparse, targets)) == sorted(map(ast.unparse, values))


def are_attributes_of_one_object(values: list[ast.expr]) -> bool:
    owners = [ast.unparse(value.value) for value in values if isinstance(value, ast.Attribute)]
    return len(owners) == len(values) and len(set(owners)) == 1


def is_unrelated(targets: list[ast.expr], values: list[ast.expr]) -> bool:
    return not (
        all(map(is_constant, values))
        or is_swap(targets, values)
        or are_attributes_of_one_object(values)
    )


def unrelated_tuples(source: Source) -> Iterator[Place]:
    sequences = (ast.Tuple, ast.List)
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, sequences):
            continue
        for target in node.targets:
            if isinstance(target, sequences) and is_unrelated(target.elts, node.value.elts):
                yield Place(node.lineno, source.lines[node.lineno - 1].strip())


def long_lines(source: Source) -> Iterator[Place]:
    for number, line in enumerate(source.lines, start=1):
        if len(line) >= LONG_LINE:
            yield Place(number, f"{len(line)} characters: {line.strip()}")


def functions(source: Source) -> Iterator[Function]:
    for node in ast.walk(source.tree):
        if isinstance(node, Function):
            yield node


def parameters(function: Callee) -> list[ast.arg]:
    signature = function.args
    variadic = [parameter for parameter in (signature.vararg, signature.kwarg) if parameter]
    return [*signature.posonlyargs, *signature.args, *signature.kwonlyargs, *variadic]


def is_any(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return is_any(annotation.left) or is_any(annotation.right)
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return is_any(ast.parse(annotation.value, mode="eval").body)
    return annotation is not None and ast.unparse(annotation) in ("Any", "typing.Any")


def any_in_signatures(source: Source) -> Iterator[Place]:
    for function in functions(source):
        for parameter in parameters(function):
            if is_any(parameter.annotation):
                yield Place(parameter.lineno, f"{function.name}({parameter.arg}: Any)")
        if function.returns is not None and is_any(function.returns):
            yield Place(function.returns.lineno, f"{function.name}(...) -> Any")


def positional_calls(source: Source) -> Iterator[Place]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and len(node.args) >= MANY_POSITIONAL:
            yield Place(node.lineno, f"{ast.unparse(node.func)}: {len(node.args)} by position")


def assigned_string(statement: ast.stmt) -> str | None:
    """The name to which a statement assigns a string that stands there."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return None
    value = statement.value
    is_string = isinstance(value, ast.JoinedStr) or (
        isinstance(value, ast.Constant) and isinstance(value.value, str)
    )
    return statement.targets[0].id if is_string else None


def takes_in(statement: ast.stmt, name: str) -> bool:
    """Whether a string of the statement has `{name}`."""
    return any(
        isinstance(node, ast.FormattedValue)
        and isinstance(node.value, ast.Name)
        and node.value.id == name
        for node in ast.walk(statement)
    )


def torn_texts(source: Source) -> Iterator[Place]:
    blocks = [
        getattr(node, field, None)
        for node in ast.walk(source.tree)
        for field in ("body", "orelse", "finalbody")
    ]
    for block in blocks:
        if not isinstance(block, list):
            continue
        for before, statement in itertools.pairwise(block):
            name = assigned_string(before)
            if name and isinstance(statement, ast.Raise) and takes_in(statement, name):
                yield Place(statement.lineno, source.lines[statement.lineno - 1].strip())


def is_own_attribute(node: ast.AST) -> bool:
    """Whether it is `self.name`, as a target."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def bound_name(node: ast.AST) -> str | None:
    """The name that this very node binds, parameters aside."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.Attribute) and is_own_attribute(node):
        return node.attr
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        return node.name
    if isinstance(node, ast.MatchMapping):
        return node.rest
    return None


def bindings(scope: Scope) -> Iterator[tuple[str, int]]:
    """Each name that a scope binds, with its line; what scopes inside it bind is theirs."""
    if isinstance(scope, Callee):
        for parameter in parameters(scope):
            yield parameter.arg, parameter.lineno
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        name = bound_name(node)
        if name is not None and isinstance(node, ast.expr | ast.pattern | ast.excepthandler):
            yield name, node.lineno
        if not isinstance(node, Scope):
            waiting.extend(ast.iter_child_nodes(node))


def vague_names(source: Source) -> Iterator[Place]:
    for scope in ast.walk(source.tree):
        if not isinstance(scope, Scope):
            continue
        first_lines: dict[str, int] = {}
        for name, line in bindings(scope):
            if name in VAGUE_NAMES:
                first_lines[name] = min(line, first_lines.get(name, line))
        for name, line in first_lines.items():
            yield Place(line, name)


RULES: dict[str, Callable[[Source], Iterator[Place]]] = {
    "tuples": unrelated_tuples,
    "long": long_lines,
    "any": any_in_signatures,
    "positional": positional_calls,
    "torn": torn_texts,
    "names": vague_names,
}


def is_code(line: str) -> bool:
    stripped = line.strip()
    return bool(stripped) and not stripped.startswith("#")


def count(source: Source) -> Counts:
    numbers = {rule: sum(1 for _ in places(source)) for rule, places in RULES.items()}
    return Counts(
        lines=sum(map(is_code, source.lines)),
        functions=sum(1 for _ in functions(source)),
        **numbers,
    )


def run_git(root: Path, *arguments: str) -> bytes | None:
    """What git answers, or None where it refuses or is not installed."""
    try:
        process = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return process.stdout if process.returncode == 0 else None


def read_commit(root: Path, revision: str) -> Iterator[Source]:
    archive = run_git(root, "archive", "--format=tar", revision)
    if archive is None:
        raise SystemExit(
            f"git archive {revision} fails in {root}; name a commit that git has there"
        )
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.name.endswith(".py") else None
            if content is not None:
                yield Source.parse(member.name, content.read().decode())


def read_folder(root: Path) -> Iterator[Source]:
    options = ["-z", "--cached", "--others", "--exclude-standard"]
    listing = run_git(root, "ls-files", *options, "--", "*.py")
    if not listing:
        names = [str(path.relative_to(root)) for path in root.rglob("*.py")]
    else:
        names = [name for name in listing.decode().split("\0") if name]
    for name in sorted(set(names)):
        path = root / name
        if path.is_file():
            yield Source.parse(name, path.read_text(encoding="utf-8"))


def read_sources(root: Path, revision: str | None) -> Iterable[Source]:
    if root.is_file():
        return [Source.parse(str(root), root.read_text(encoding="utf-8"))]
    if not root.is_dir():
        raise SystemExit(f"{root} is neither a folder nor a file; name one that holds Python")
    return read_folder(root) if revision is None else read_commit(root, revision)


def folder_of(name: str, depth: int) -> str:
    """The first folders of a file's path; the file itself where it lies in none."""
    folders = Path(name).parts[:-1]
    return "/".join(folders[:depth]) or name


def count_by_folder(sources: Iterable[Source], depth: int = 1) -> dict[str, Counts]:
    """The counts of each folder, and the sums "source" and "all"."""
    by_folder: dict[str, Counts] = defaultdict(Counts)
    source_sum = Counts()
    total = Counts()
    for source in sources:
        counts = count(source)
        by_folder[folder_of(source.name, depth)].add(counts)
        total.add(counts)
        if source.name.split("/")[0] not in NOT_SOURCE:
            source_sum.add(counts)
    return {**dict(sorted(by_folder.items())), "source": source_sum, "all": total}


def render_table(by_folder: dict[str, Counts]) -> str:
    width = max(len(folder) for folder in by_folder)
    heading = (
        f"{'':{width}}   lines  functions  tuples  per 1,000 lines"
        f"  lines >= {LONG_LINE}  per 1,000 lines"
        f"  Any  calls with >= {MANY_POSITIONAL}  torn texts  vague names  per 100 functions"
    )
    rows = [
        f"{folder:{width}}  {counts.lines:6}  {counts.functions:9}"
        f"  {counts.tuples:6}  {counts.per_1000_lines(counts.tuples):15.1f}"
        f"  {counts.long:11}  {counts.per_1000_lines(counts.long):15.1f}"
        f"  {counts.any:3}  {counts.positional:15}  {counts.torn:10}"
        f"  {counts.names:11}  {counts.per_100_functions(counts.names):17.1f}"
        for folder, counts in by_folder.items()
    ]
    return "\n".join([heading, *rows])


def render_places(sources: Iterable[Source], rule: str, root: Path) -> Iterator[str]:
    """A line for each place; none where the rule counts nothing."""
    for source in sources:
        path = source.name if root.is_file() else root / source.name
        places = sorted(RULES[rule](source), key=lambda place: place.line)
        for place in places:
            yield f"{path}:{place.line}: {place.what}"


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    description, _, rules = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=description, epilog=rules, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("root", nargs="?", type=Path, default=Path(), metavar="ROOT")
    parser.add_argument("--rev", metavar="REV", help="a commit of ROOT, not its files")
    parser.add_argument("--depth", type=int, default=1, help="how many folders name a row")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="the counts as JSON")
    output.add_argument("--list", choices=RULES, help="the places that a rule counts")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    arguments = parse_arguments(argv)
    sources = read_sources(arguments.root, arguments.rev)
    if arguments.list:
        for line in render_places(sources, arguments.list, arguments.root):
            print(line)
        return
    by_folder = count_by_folder(sources, arguments.depth)
    if arguments.json:
        print(json.dumps({name: asdict(counts) for name, counts in by_folder.items()}, indent=1))
    else:
        print(render_table(by_folder))


if __name__ == "__main__":
    main()
