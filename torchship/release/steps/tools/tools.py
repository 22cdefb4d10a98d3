"""The tools of a release, pure Python distributions: which a run makes, and what they must be."""

import ast
import configparser
from collections.abc import Iterable, Iterator, Sequence
from email.message import Message
from email.parser import BytesParser

from packaging.requirements import Requirement

from ...matrix.platforms import FIRST
from ...matrix.schema import Tool
from ...matrix.settings import Settings
from ..conda.bootstrap import conda_name
from ..pack.wheels import Wheel

TAG = "py3-none-any"
CONDA_BUILD = "py_0"
# What a tool may require. It is pure Python, and the one file of a tool carries it.
CARRIED = ("packaging",)
# Selectors that do not name cells or tools, but what belongs to this machine or to the matrix.
WHOLE = {"all", "host"}


def chosen_tools(selectors: Sequence[str], shard: str | None, settings: Settings) -> list[Tool]:
    """The tools that a run makes: those that it names, or all of them.

    Their files serve every platform, so one machine makes them: of a run for all cells or for
    the host's, that for the first platform, and of its shards the first.
    """
    tools = settings.matrix.tools
    named = [tool for tool in tools if tool.name in selectors]
    if named:
        return named
    is_whole = not selectors or WHOLE & {*selectors}
    is_first = settings.platform == FIRST and not settings.is_foreign
    is_first_shard = shard is None or shard.startswith("1/")
    return list(tools) if is_whole and is_first and is_first_shard else []


def wheel_path(tool: Tool, settings: Settings) -> str:
    """Where the tool's wheel lies in `dist`."""
    index = settings.index.relative_to(settings.dist)
    return f"{index}/{tool.name}/{tool.package}-{settings.project.version}-{TAG}.whl"


def zipapp_path(tool: Tool) -> str:
    return f"{tool.name}.pyz"


def conda_paths(tool: Tool, settings: Settings) -> list[str]:
    """Where the conda packages of the tool and of its extras lie in `dist`."""
    channel = settings.channel.relative_to(settings.dist)
    names = [tool.name, *(f"{tool.name}-{extra}" for extra in tool.extras)]
    ending = f"{settings.project.version}-{CONDA_BUILD}.conda"
    return [f"{channel}/noarch/{name}-{ending}" for name in names]


def paths_of(tool: Tool, settings: Settings) -> list[str]:
    """Where the tool's files lie in `dist`."""
    zipapp = [zipapp_path(tool)] if tool.zipapp else []
    return [wheel_path(tool, settings), *zipapp, *conda_paths(tool, settings)]


def tool_wheel_problems(wheel: Wheel, tool: Tool, version: str) -> Iterator[str]:
    """Finds what keeps a wheel from serving every platform, or what an index would refuse."""
    metadata = metadata_of(wheel)
    if wheel.tag != TAG:
        yield f"its tag is {wheel.tag}, needs {TAG}"
    if b"Root-Is-Purelib: true" not in wheel.info.get("WHEEL", b""):
        yield "its WHEEL does not say `Root-Is-Purelib: true`"
    for name, value, expected in (
        ("Name", metadata["Name"], tool.name),
        ("Version", metadata["Version"], version),
    ):
        if value != expected:
            yield f"its {name} is {value}, needs {expected}"
    if not metadata["Requires-Python"]:
        yield "its METADATA names no Requires-Python; add requires-python to pyproject.toml"
    for requirement in requirements(wheel, extra=""):
        if requirement.name not in CARRIED:
            yield f"it requires {requirement}; a tool needs nothing but {' and '.join(CARRIED)}"
    if not any(name.endswith("LICENSE") for name in wheel.info):
        yield "it holds no licence; add license-files to pyproject.toml"
    yield from _problems_of_commands(wheel, tool)
    yield from _problems_of_files(wheel, tool)


def _problems_of_commands(wheel: Wheel, tool: Tool) -> Iterator[str]:
    commands = commands_of(wheel)
    if tool.name not in commands:
        yield f"it has no command {tool.name}; add it to [project.scripts]"
    for command, target in commands.items():
        path = target.partition(":")[0].replace(".", "/")
        if wheel.files.keys().isdisjoint({f"{path}.py", f"{path}/__init__.py"}):
            yield f"its command {command} calls {target}, which it lacks"


def _problems_of_files(wheel: Wheel, tool: Tool) -> Iterator[str]:
    for name, data in sorted(wheel.files.items()):
        if not name.startswith(f"{tool.package}/"):
            yield f"{name} lies outside of the package {tool.package}"
        elif data.startswith(b"\x7fELF") or name.endswith((".so", ".pyc")):
            yield f"{name} is a compiled file"
        elif name.endswith(".py") and not _is_python(data):
            yield f"{name} is not valid Python"


def _is_python(data: bytes) -> bool:
    try:
        ast.parse(data)
    except (SyntaxError, ValueError):
        return False
    return True


def metadata_of(wheel: Wheel) -> Message:
    return BytesParser().parsebytes(wheel.info["METADATA"])


def commands_of(wheel: Wheel) -> dict[str, str]:
    """The commands that a wheel installs: what each calls, as `module:function`."""
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.read_string(wheel.info.get("entry_points.txt", b"").decode())
    return dict(parser["console_scripts"]) if "console_scripts" in parser else {}


def requirements(wheel: Wheel, extra: str) -> list[Requirement]:
    """What a wheel requires: with `extra` what the extra adds, else what it always requires.

    A package for every Python cannot require what only some of them need, so a requirement of
    an extra for these is left out.
    """
    needs = map(Requirement, metadata_of(wheel).get_all("Requires-Dist", []))
    return [need for need in needs if _is_required(need, extra)]


def _is_required(need: Requirement, extra: str) -> bool:
    marker = str(need.marker or "")
    return marker == f'extra == "{extra}"' if extra else "extra ==" not in marker


def conda_requirements(needs: Iterable[Requirement]) -> list[str]:
    """The requirements as conda writes them."""
    return sorted(f"{conda_name(need.name)} {need.specifier}".strip() for need in needs)
