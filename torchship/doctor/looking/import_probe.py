"""Imports packages as their users would, and tells what happened; processes.py runs it.

It runs by itself in the Python that is judged, which may be as old as 3.7. It imports only what
is built in or loaded when Python starts: a file that hides a module of the standard library is
to hide it from the packages, too.

Its arguments: the descriptor to write to, the seconds without a word after which a child is
ended, the number of children at a time, how to look ("find", "screen", "import", "after" or
"load"), and then packages, each with its extensions (see `requests`): for "after", the ones to
import before, and last the one that is meant. It writes lines of JSON, one for each import and each
extension.
"""

from __future__ import annotations

import builtins
import faulthandler
import os
import sys
import time

MODULE, LIBRARY, PLAIN = "module", "library", "plain"
MOST_TEXT = 8000
MOST_OUTPUT = 64000
MOST_FRAMES = 60
MOST_ERRORS = 10
MOST_MAPPED = 5000
#: How often the pipes of children are looked at, in seconds.
PAUSE = 0.02
TYPE_CHECKING = False
if TYPE_CHECKING:  # for type checkers alone: typing and collections may be hidden, too
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec as Spec

    Fact = dict[str, object]
    Extension = tuple[str, str]
    Request = tuple[str, list[Extension]]


def requests(words: list[str]) -> list[Request]:
    """The packages, and of each its extensions as (kind, path): `--package torch --module FILE`."""
    packages: list[Request] = []
    for option, value in zip(words[::2], words[1::2]):  # noqa: B905  # Python 3.10 has `strict`
        if option == "--package":
            packages.append((value, []))
        else:
            packages[-1][1].append((option[2:], value))
    return packages


def encoded(value: object) -> str:
    """JSON; the module json may be hidden here."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ",".join(encoded(key) + ":" + encoded(value[key]) for key in value) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(encoded, value)) + "]"
    return '"' + "".join(map(escaped, str(value))) + '"'


def escaped(character: str) -> str:
    if " " <= character <= "~" and character not in '"\\':
        return character
    number = ord(character)
    if number < 0x10000:
        return f"\\u{number:04x}"
    number -= 0x10000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"


def tell(descriptor: int, fact: Fact) -> None:
    write(descriptor, (encoded(fact) + "\n").encode("ascii"))


def write(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def text_of(error: BaseException) -> str:
    try:
        return str(error)[:MOST_TEXT]
    except BaseException:
        return ""


def frames_of(error: BaseException) -> list[Fact]:
    """The frames of an error, outermost first, without those of this program and of importlib."""
    frames = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        name = code.co_filename
        if name != "<string>" and not name.startswith("<frozen importlib"):
            frames.append(
                {"file": name, "line": traceback.tb_lineno or 0, "function": code.co_name}
            )
        traceback = traceback.tb_next
    if isinstance(error, SyntaxError) and error.filename:
        frames.append({"file": error.filename, "line": error.lineno or 0, "function": ""})
    return frames[-MOST_FRAMES:]


def errors_of(error: BaseException | None) -> list[Fact]:
    """An error, and what it was raised from, however that is hidden."""
    errors: list[Fact] = []
    known = set()
    while error is not None and id(error) not in known and len(errors) < MOST_ERRORS:
        known.add(id(error))
        kind = type(error)
        is_builtin = kind.__module__ == "builtins"
        errors.append(
            {
                "type": kind.__qualname__
                if is_builtin
                else kind.__module__ + "." + kind.__qualname__,
                "message": text_of(error),
                "name": str(getattr(error, "name", None) or ""),
                "path": str(getattr(error, "path", None) or ""),
                "frames": frames_of(error),
            }
        )
        error = error.__cause__ or error.__context__
    return errors


def mapped_files() -> list[str]:
    """The objects that this process has mapped, each once; none where the system does not tell."""
    try:
        with open("/proc/self/maps", "rb") as maps:
            lines = maps.read().split(b"\n")
    except OSError:
        return []
    names: dict[str, None] = {}
    for line in lines:
        parts = line.split(None, 5)
        if len(parts) == 6 and parts[5].startswith(b"/") and b".so" in parts[5]:
            names[os.fsdecode(parts[5])] = None
    return list(names)[:MOST_MAPPED]


def file_of(module: object) -> str:
    """Where a module was imported from; its folder if it has no file."""
    name = getattr(module, "__file__", None)
    if not name:
        name = next(iter(getattr(module, "__path__", None) or []), "")
    return str(name)


def import_as_user(name: str) -> Fact:
    """What happened when `name` was imported."""
    start = time.time()
    fact: Fact = {"what": name}
    try:
        __import__(name)
        fact["outcome"] = "worked"
        fact["file"] = file_of(sys.modules.get(name))
    except BaseException as error:
        fact["outcome"] = "raised"
        fact["errors"] = errors_of(error)
    fact["seconds"] = time.time() - start
    fact["mapped"] = mapped_files()
    fact["imports_torch"] = "torch" in sys.modules
    fact["torch_file"] = file_of(sys.modules.get("torch"))
    return fact


def dotted_name(path: str, package: str) -> str:
    """The name under which Python imports an extension of a package; "" if it has none."""
    folder, file = os.path.split(os.path.realpath(path))
    stem = file.partition(".")[0]
    for entry in sys.path:
        if os.path.realpath(entry or ".") == folder:
            return stem
    modules = [sys.modules[package]] if package in sys.modules else []
    modules += [sys.modules[name] for name in list(sys.modules) if name.startswith(package + ".")]
    for module in modules:
        for place in list(getattr(module, "__path__", None) or []):
            base = os.path.realpath(place)
            if folder == base:
                return module.__name__ + "." + stem
    for module in modules[:1]:
        for place in list(getattr(module, "__path__", None) or []):
            base = os.path.realpath(place)
            if folder.startswith(base + os.sep):
                inner = folder[len(base) + 1 :].replace(os.sep, ".")
                return f"{module.__name__}.{inner}.{stem}"
    # What another package of its name hides is to be sought as its user would.
    return name_by_path(folder, stem)


def name_by_path(folder: str, stem: str) -> str:
    """The dotted name of a module in a folder under an entry of the path; "" if it has none."""
    for entry in sys.path:
        base = os.path.realpath(entry or ".")
        if folder.startswith(base + os.sep):
            parts = [*folder[len(base) + 1 :].split(os.sep), stem]
            if all(map(str.isidentifier, parts)):
                return ".".join(parts)
    return ""


def load_extension(kind: str, path: str, package: str) -> Fact:
    """What happened when an extension was loaded into a process that has torch and its package."""
    start = time.time()
    fact: Fact = {"what": path}
    try:
        name = dotted_name(path, package) if kind == MODULE else ""
        fact["name"] = name
        if name:
            __import__(name)
            file = file_of(sys.modules.get(name))
            fact["file"] = file
            is_other = file and os.path.realpath(file) != os.path.realpath(path)
            fact["outcome"] = "hidden" if is_other else "worked"
        else:
            if kind == LIBRARY:
                sys.modules["torch"].ops.load_library(path)
            else:
                __import__("ctypes").CDLL(path)
            fact["outcome"] = "worked"
    except BaseException as error:
        fact["outcome"] = "raised"
        fact["errors"] = errors_of(error)
    fact["seconds"] = time.time() - start
    fact["mapped"] = mapped_files()
    return fact


def find_module(name: str) -> Fact | None:
    """Where Python would import a module from, without importing it; None if it has nothing.

    Of a dotted name only folders count, since the code of a package may say where its parts are.
    """
    file = behind = ""
    folders: list[str] = []
    path = None
    done = ""
    for part in name.split("."):
        done = done + "." + part if done else part
        specs = specs_of(done, path)
        if not specs:
            return None
        spec = specs[0]
        file = str(spec.origin or "") if spec.has_location else ""
        behind = str(specs[-1].origin) if specs[-1].has_location and not file else ""
        folders = [os.path.abspath(one) for one in spec.submodule_search_locations or []]
        if is_portion(file):
            entries = [entry or "." for entry in (sys.path if path is None else path)]
            others = [os.path.abspath(os.path.join(entry, part)) for entry in entries]
            folders += [one for one in others if one not in folders and os.path.isdir(one)]
        path = folders
    # As `sys.path` has it, "" is the folder in which Python runs.
    return {
        "found": name,
        "file": file and os.path.abspath(file),
        "folders": folders,
        "behind": behind,
    }


def specs_of(name: str, path: list[str] | None) -> list[Spec]:
    """What the finders have under a name, up to the first that has code. Python takes the first of
    all, which may be a folder without any."""
    specs = []
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(name, path) if find else None
        if spec is not None:
            specs.append(spec)
            if spec.has_location:
                break
    return specs


def is_portion(file: str) -> bool:
    """Whether a package adds to itself the folders of its name in all entries of the path."""
    if not file.endswith("__init__.py"):
        return False
    with open(file, "rb") as source:
        content = source.read(MOST_TEXT)
    return b"extend_path" in content or b"declare_namespace" in content


def tell_where(packages: list[Request], descriptor: int) -> None:
    for name, _ in packages:
        try:
            found = find_module(name)
        except Exception:  # hooks of editable packages may raise anything
            continue
        if found is not None:
            tell(descriptor, found)


class Child:
    """A forked process that tells facts, and whose output is kept."""

    def __init__(self, what: str, work: Callable[[int], None]) -> None:
        self.what = what
        self.output = b""
        self.told = b""
        self.heard = time.time()
        reading, writing = os.pipe()
        out_reading, out_writing = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            try:
                os.close(reading)
                os.close(out_reading)
                os.dup2(out_writing, 1)
                os.dup2(out_writing, 2)
                os.close(out_writing)
                faulthandler.enable(file=2, all_threads=False)
                work(writing)
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(0)
        os.close(writing)
        os.close(out_writing)
        self.pipes = {reading: True, out_reading: False}
        for pipe in self.pipes:
            os.set_blocking(pipe, False)

    def drain(self) -> None:
        """Take what is in the pipes."""
        for pipe in list(self.pipes):
            try:
                content = os.read(pipe, 1 << 20)
            except BlockingIOError:
                continue
            if not content:
                os.close(pipe)
                del self.pipes[pipe]
            elif self.pipes[pipe]:
                self.told += content
                self.heard = time.time()
            else:
                self.output = (self.output + content)[-MOST_OUTPUT:]

    def ended(self) -> int | None:
        """What `waitpid` says, or None for a child that runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return status if pid else None

    def lines(self) -> bytes:
        """The whole lines that it told since they were asked for."""
        lines, newline, self.told = self.told.rpartition(b"\n")
        return lines + newline


def run_children(
    works: list[tuple[str, Callable[[int], None]]], jobs: int, seconds: float, descriptor: int
) -> None:
    """Run each piece of work in a child of its own, and tell what it told, or how it ended.

    The output of a child comes with the fact on its end.
    """
    waiting = list(reversed(works))
    running: list[Child] = []
    while waiting or running:
        while waiting and len(running) < jobs:
            what, work = waiting.pop()
            running.append(Child(what, work))
        for child in list(running):
            child.drain()
            status = child.ended()
            write(descriptor, child.lines())
            is_late = status is None and time.time() - child.heard > seconds
            if is_late:
                os.kill(child.pid, 6)  # SIGABRT: faulthandler then tells where it hangs
                time.sleep(0.3)
                os.kill(child.pid, 9)
                _, status = os.waitpid(child.pid, 0)
            if status is None:
                continue
            child.drain()
            write(descriptor, child.lines())
            running.remove(child)
            output = child.output.decode("utf-8", "replace")
            end: Fact = {"ended": child.what, "status": status, "late": is_late, "output": output}
            tell(descriptor, end)
            for pipe in child.pipes:
                os.close(pipe)
        time.sleep(PAUSE)


def load_each(request: Request, seconds: float, descriptor: int) -> None:
    """Load each extension that the import of its package did not map, in a child each."""
    package, extensions = request
    mapped = set(map(os.path.realpath, mapped_files()))
    left = [one for one in extensions if os.path.realpath(one[1]) not in mapped]

    def loading(kind: str, path: str) -> Callable[[int], None]:
        def work(writing: int) -> None:
            if "torch" not in sys.modules:
                __import__("torch")
            tell(writing, load_extension(kind, path, package))

        return work

    works = [(path, loading(kind, path)) for kind, path in left]
    run_children(works, 1, seconds, descriptor)


def screening(request: Request, seconds: float) -> Callable[[int], None]:
    """The work of importing a package where torch was imported before."""
    package, extensions = request

    def work(writing: int) -> None:
        original = builtins.__import__
        early: list[list[str]] = []

        def noting(name: str, *rest: object, **named: object) -> object:
            level = rest[3] if len(rest) > 3 else named.get("level", 0)
            if not (early or level) and (name == "torch" or name.startswith("torch.")):
                mapped = set(map(os.path.realpath, mapped_files()))
                early.append([p for _, p in extensions if os.path.realpath(p) in mapped])
            return original(name, *rest, **named)  # type: ignore[arg-type]

        builtins.__import__ = noting  # type: ignore[assignment]
        fact = import_as_user(package)
        builtins.__import__ = original
        # What it loads before it imports torch may not load without it.
        fact["imports_torch"] = bool(early) and not early[0]
        tell(writing, fact)
        if fact["outcome"] == "worked":
            load_each(request, seconds, writing)

    return work


def main(arguments: list[str]) -> None:
    descriptor = int(arguments[0])
    seconds = float(arguments[1])
    jobs = int(arguments[2])
    how = arguments[3]
    packages = requests(arguments[4:])
    os.set_inheritable(descriptor, False)  # noqa: FBT003
    sys.argv[:] = ["-c"]
    faulthandler.enable(file=2, all_threads=False)
    if how == "find":
        tell_where(packages, descriptor)
        return
    if how == "screen":
        fact = import_as_user("torch")
        tell(descriptor, fact)
        if fact["outcome"] == "worked":
            works = [(request[0], screening(request, seconds)) for request in packages]
            run_children(works, jobs, seconds, descriptor)
        return
    package, extensions = packages[-1]
    for name, _ in packages[:-1]:
        import_as_user(name)
    if how in ("import", "after"):
        fact = import_as_user(package)
        tell(descriptor, fact)
        if fact["outcome"] == "worked":
            load_each(packages[-1], seconds, descriptor)
        return
    # An extension alone: a failure of its package does not keep it from being tried.
    for name in ["torch", package]:
        before = import_as_user(name)
        if before["outcome"] != "worked":
            before["what"] = "before"
            tell(descriptor, before)
    for kind, path in extensions:
        tell(descriptor, load_extension(kind, path, package))


if __name__ == "__main__":
    main(sys.argv[1:])
