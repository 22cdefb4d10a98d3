"""The steps of a tool: its wheel, the same as one file and as conda packages, installed and run."""

import json
import shlex
import shutil
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distribution, distributions
from pathlib import Path

from ... import ReleaseError
from ...matrix.schema import Tool
from ...matrix.settings import Settings
from ...paths import fresh, publish, replace_wheel, replacing, write_atomically
from ...paths import tool as program
from ...plan.plan import Plan
from ...run.shell import Log, clean_env
from ...run.store import source_env
from ...run.tasks import CheckTask, Context, FileTask, Task, Tasks
from ..compile.environments import TorchEnv, make_venv
from ..conda import commands as conda_commands
from ..conda.bootstrap import link_distributions
from ..conda.packages import BaseChannel, index_package, run_worker
from ..pack.distributions import run_build
from ..pack.wheels import Wheel, read_wheel, write_zip
from ..step import File, Part, ToolStep
from .tools import (
    CARRIED,
    CONDA_BUILD,
    commands_of,
    conda_paths,
    conda_requirements,
    metadata_of,
    requirements,
    tool_wheel_problems,
    wheel_path,
    zipapp_path,
)

# Beside the recipe's folder, which is packed into the package as it is.
WHEEL_FOLDER = "wheel"
ZIPAPP_MAIN = '''\
"""Runs {command} out of this archive, which any Python of these versions can start."""

import sys

if sys.version_info < {python}:
    got = ".".join(map(str, sys.version_info[:2]))
    sys.exit("{command} needs Python {oldest} or newer, got " + got + "; start it with another")

from {module} import {function}

sys.exit({function}())
'''


@dataclass(frozen=True, eq=False, kw_only=True)
class PackTool(ToolStep[Path], FileTask):
    """Builds the wheel of a tool out of a copy of its folder, the same bytes each time."""

    kind = "pure"
    tool: Tool
    files: tuple[Path, ...]
    epoch: int

    @classmethod
    def plan(cls, tool: Tool, plan: Plan) -> "PackTool":
        folders = [plan.settings.repo / name for name in (tool.folder, *tool.packs)]
        files = tuple(p for p in plan.inputs.package if any(map(p.is_relative_to, folders)))
        step = cls(
            name=f"{cls.kind}/{tool.name}",
            tool=tool,
            files=files,
            epoch=plan.inputs.epoch,
            inputs=files,
        )
        return plan.add(step, tool)

    def part(self, made: Path, settings: Settings) -> Part:
        return Part(files=(File(made, "pure", ("pypi", "folder")),))

    def run(self, context: Context) -> Sequence[Path]:
        settings = context.settings
        work = settings.temporary / "tool" / self.tool.name
        stage = fresh(work / "source")
        for path in self.files:
            target = stage / path.relative_to(settings.repo)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
        out = fresh(work / "out")
        run_build(context, "--wheel", stage / self.tool.folder, out)
        (built,) = out.glob("*.whl")
        final = read_wheel(built).write(fresh(work / "final"), epoch=self.epoch)
        target = settings.dist / wheel_path(self.tool, settings)
        if final.name != target.name:
            raise ReleaseError(
                f"{self.tool.folder}: makes {final.name}, needs {target.name}; correct the name or "
                "the version there, or in build_matrix.yaml"
            )
        return [replace_wheel(final, target.parent, any_version=True)]


@dataclass(frozen=True, eq=False, kw_only=True)
class AuditTool(ToolStep[None], CheckTask):
    """Checks the wheel of a tool; raises ReleaseError with every problem."""

    kind = "pure-audit"
    tool: Tool
    wheel: Task[Path]

    @classmethod
    def plan(cls, tool: Tool, plan: Plan) -> "AuditTool":
        step = cls(name=f"{cls.kind}/{tool.name}", tool=tool, wheel=PackTool.plan(tool, plan))
        return plan.add(step, tool)

    @property
    def reads(self) -> Tasks:
        return (self.wheel,)

    def run(self, context: Context) -> Sequence[Path]:
        path = context.output(self.wheel)
        version = context.settings.project.version
        problems = list(tool_wheel_problems(read_wheel(path), self.tool, version))
        if problems:
            raise ReleaseError("\n".join(f"{path.name}: {problem}" for problem in problems))
        context.log.run([program("twine"), "check", "--strict", path])
        return []


def run_tool(
    log: Log, folder: Path, lines: Iterable[str], *, instead: Sequence[str | Path] = ()
) -> None:
    """Runs the command lines with the programs of an environment, in an empty folder.

    `instead`, if it is given, stands in the place of the first word.
    """
    settings = log.settings
    env = clean_env(settings.project, CUDA_VISIBLE_DEVICES="")
    env["PATH"] = f"{folder / 'bin'}:{env['PATH']}"
    empty = fresh(settings.temporary / "run" / folder.name)
    for line in lines:
        first, *arguments = shlex.split(line)
        start = list(instead) or [folder / "bin" / first]
        log.run([*start, *arguments], env=env, cwd=empty)


@dataclass(frozen=True, eq=False, kw_only=True)
class InstallTool(FileTask):
    """Installs the wheel of a tool, without an index or with an extra, and runs it.

    The output is the environment's folder.
    """

    tool: Tool
    wheel: Task[Path]
    python: str
    extra: str = ""

    @classmethod
    def plan(cls, tool: Tool, extra: str, plan: Plan) -> "InstallTool":
        step = cls(
            name=f"pure-venv/{with_extra(tool, extra)}",
            tool=tool,
            extra=extra,
            wheel=PackTool.plan(tool, plan),
            python=plan.host.python,
            after=(AuditTool.plan(tool, plan),),
        )
        return plan.add(step, tool)

    @property
    def reads(self) -> Tasks:
        return (self.wheel,)

    def run(self, context: Context) -> Sequence[Path]:
        wheel = context.output(self.wheel)
        folder = context.settings.envs / f"{with_extra(self.tool, self.extra)}-tool"
        env = TorchEnv(folder=folder, python=self.python, release="")
        if self.extra:
            make_venv(
                context.log, folder, env, [f"{self.tool.name}[{self.extra}] @ {wheel.as_uri()}"]
            )
        else:
            needs = requirements(read_wheel(wheel), extra="")
            make_venv(context.log, folder, env, [wheel] if needs else ["--no-index", wheel])
        run_tool(context.log, folder, lines_of(self.tool, self.extra))
        return [folder]


def with_extra(tool: Tool, extra: str) -> str:
    """The name of a tool, or of its extra."""
    return f"{tool.name}-{extra}" if extra else tool.name


def lines_of(tool: Tool, extra: str) -> list[str]:
    """The command lines that must succeed where a tool is installed, with an extra or without."""
    return tool.extras[extra] if extra else tool.run


@dataclass(frozen=True, eq=False, kw_only=True)
class PackZipapp(ToolStep[Path], FileTask):
    """Makes one file of a tool, which any Python can start: an archive with the wheel's files."""

    kind = "zipapp"
    tool: Tool
    wheel: Task[Path]
    epoch: int
    carried: Mapping[str, str]  # the versions of what a wheel may require, here

    @classmethod
    def plan(cls, tool: Tool, plan: Plan) -> "PackZipapp | None":
        if not tool.zipapp:
            plan.leave_out(cls.kind, tool, "build_matrix.yaml asks for no zipapp")
            return None
        step = cls(
            name=f"{cls.kind}/{tool.name}",
            tool=tool,
            wheel=PackTool.plan(tool, plan),
            epoch=plan.inputs.epoch,
            carried={name: own_versions()[name] for name in CARRIED},
            after=(AuditTool.plan(tool, plan),),
        )
        return plan.add(step, tool)

    @property
    def reads(self) -> Tasks:
        return (self.wheel,)

    def part(self, made: Path, settings: Settings) -> Part:
        return Part(files=(File(made, "zipapp"),))

    def run(self, context: Context) -> Sequence[Path]:
        wheel = read_wheel(context.output(self.wheel))
        path = context.settings.dist / zipapp_path(self.tool)
        write_zipapp(path, wheel, self.tool.name, epoch=self.epoch)
        return [path]


def carried_files(name: str) -> dict[str, bytes]:
    """The modules and the licences of a distribution in this process's environment."""
    one = distribution(name)
    kept = (".py", "py.typed")
    return {
        str(file): Path(str(file.locate())).read_bytes()
        for file in one.files or ()
        if str(file).endswith(kept) or "LICENSE" in file.name
    }


def write_zipapp(path: Path, wheel: Wheel, command: str, *, epoch: int) -> None:
    """Writes the archive that runs a command of a wheel."""
    files = dict(wheel.files)
    for need in requirements(wheel, extra=""):
        files |= carried_files(need.name)
    module, _, function = commands_of(wheel)[command].partition(":")
    oldest = str(metadata_of(wheel)["Requires-Python"]).removeprefix(">=")
    main = ZIPAPP_MAIN.format(
        command=command,
        oldest=oldest,
        python=tuple(map(int, oldest.split("."))),
        module=module,
        function=function,
    )
    with replacing(path) as part:
        with part.open("wb") as file:
            file.write(b"#!/usr/bin/env python3\n")
            write_zip(file, {**files, "__main__.py": main.encode()}, epoch=epoch)
        part.chmod(0o755)


@dataclass(frozen=True, eq=False, kw_only=True)
class RunZipapp(ToolStep[None], CheckTask):
    """Runs the one file of a tool, with a Python that has nothing installed."""

    kind = "zipapp-run"
    tool: Tool
    zipapp: Task[Path]
    python: str

    @classmethod
    def plan(cls, tool: Tool, plan: Plan) -> "RunZipapp | None":
        zipapp = PackZipapp.plan(tool, plan)
        if zipapp is None:
            return None
        step = cls(
            name=f"{cls.kind}/{tool.name}", tool=tool, zipapp=zipapp, python=plan.host.python
        )
        return plan.add(step, tool)

    @property
    def reads(self) -> Tasks:
        return (self.zipapp,)

    def run(self, context: Context) -> Sequence[Path]:
        folder = context.settings.envs / f"{self.tool.name}-zipapp"
        context.log.run([program("uv"), "venv", "--quiet", "--python", self.python, fresh(folder)])
        start = [folder / "bin" / "python", context.output(self.zipapp)]
        run_tool(context.log, folder, self.tool.run, instead=start)
        return []


@dataclass(frozen=True, eq=False, kw_only=True)
class BuildNoarch(ToolStep[tuple[Path, ...]]):
    """Builds the conda packages of a tool and of its extras, and indexes them in `dist/channel`."""

    kind = "noarch"
    tool: Tool
    wheel: Task[Path]
    channel: str

    @classmethod
    def plan(cls, tool: Tool, plan: Plan) -> "BuildNoarch":
        base = BaseChannel.plan(tool, plan)
        (url,) = base.urls
        step = cls(
            name=f"{cls.kind}/{tool.name}",
            tool=tool,
            wheel=PackTool.plan(tool, plan),
            channel=url,
            after=(*base.tasks, AuditTool.plan(tool, plan)),
        )
        return plan.add(step, tool)

    @property
    def reads(self) -> Tasks:
        return (self.wheel,)

    def made(self, paths: Sequence[Path]) -> tuple[Path, ...]:
        return tuple(paths)

    def part(self, made: tuple[Path, ...], settings: Settings) -> Part:
        files = (File(package, "noarch", ("anaconda", "folder")) for package in made)
        return Part(files=tuple(files))

    def run(self, context: Context) -> Sequence[Path]:
        settings = context.settings
        path = context.output(self.wheel)
        wheel = read_wheel(path)
        recipes = {self.tool.name: recipe(self.tool, wheel, settings)}
        for extra in self.tool.extras:
            recipes[f"{self.tool.name}-{extra}"] = extra_recipe(self.tool, wheel, extra, settings)
        for name, text in recipes.items():
            self._build(context, name, text, path)
        packages = [settings.dist / name for name in conda_paths(self.tool, settings)]
        check = conda_commands.contents(packages[0], [], path)
        run_worker(context.log, check)
        return packages

    def _build(self, context: Context, name: str, text: str, wheel: Path) -> None:
        settings = context.settings
        work = fresh(settings.temporary / "noarch" / name)
        variants = work / "variants.yaml"
        write_atomically(variants, "{}\n")
        path = work / "recipe" / "recipe.yaml"
        write_atomically(path, text)
        publish(wheel, work / WHEEL_FOLDER / wheel.name)
        out = work / "out"
        command = conda_commands.build(variants, out, channels=[self.channel], recipe=path)
        run_worker(context.log, command, source_env(settings))
        (package,) = out.glob("noarch/*.conda")
        index_package(context.log, package, settings.channel)
        shutil.rmtree(work)


def recipe(tool: Tool, wheel: Wheel, settings: Settings) -> str:
    """The recipe of a tool's conda package, which holds what the wheel holds."""
    commands = [f"{command} = {target}" for command, target in commands_of(wheel).items()]
    name = f"{wheel.name}-{wheel.version}-{wheel.tag}.whl"
    # Unpacked: pip would add its own files, and programs that name the folder of the build.
    script = f'python -m zipfile -e {name} "$SP_DIR"'
    python = f"python {metadata_of(wheel)['Requires-Python']}"
    needs = conda_requirements(requirements(wheel, extra=""))
    return json.dumps(
        {
            "schema_version": 1,
            "package": {"name": tool.name, "version": settings.project.version},
            "source": {"path": f"../{WHEEL_FOLDER}/{name}"},
            "build": {
                "noarch": "python",
                "string": CONDA_BUILD,
                "script": script,
                "python": {"entry_points": commands},
            },
            "requirements": {"host": [python], "run": [python, *needs]},
            "about": about(wheel, settings),
        },
        indent=1,
    )


def extra_recipe(tool: Tool, wheel: Wheel, extra: str, settings: Settings) -> str:
    """The recipe of a conda package without files, which requires a tool and what an extra does."""
    version = settings.project.version
    python = f"python {metadata_of(wheel)['Requires-Python']}"
    needs = conda_requirements(requirements(wheel, extra))
    return json.dumps(
        {
            "schema_version": 1,
            "package": {"name": f"{tool.name}-{extra}", "version": version},
            "build": {"noarch": "generic", "string": CONDA_BUILD},
            "requirements": {"run": [python, f"{tool.name} =={version}", *needs]},
            "about": about(wheel, settings),
        },
        indent=1,
    )


def about(wheel: Wheel, settings: Settings) -> dict[str, str]:
    metadata = metadata_of(wheel)
    return {
        "summary": str(metadata["Summary"]),
        "license": settings.matrix.project.license,
        "homepage": settings.matrix.project.url,
    }


def own_versions() -> dict[str, str]:
    """The versions of the distributions in this process's environment, by name.

    The release tool runs on these, so they are what its extra requires.
    """
    # Not those of other folders, such as what setuptools has left in a checkout.
    site = sysconfig.get_path("purelib")
    return {entry.name: entry.version for entry in distributions(path=[site])}


@dataclass(frozen=True, eq=False, kw_only=True)
class LinkExtras(FileTask):
    """Makes a channel of what extras require, which links to this process's environment.

    It stands beside a bootstrap channel, which lacks these packages. The output is its folder.
    """

    versions: Mapping[str, str]
    folder: Path
    python_minor: str

    @classmethod
    def plan(cls, tool: Tool, plan: Plan) -> "LinkExtras":
        step = cls(
            name="extras-channel",
            versions=own_versions(),
            folder=plan.settings.build / "extras-channel",
            python_minor=plan.host.python_minor,
        )
        return plan.add(step, tool)

    def run(self, context: Context) -> Sequence[Path]:
        site = Path(sysconfig.get_path("purelib"))
        subdir = context.settings.subdir
        folder = fresh(self.folder)
        link_distributions(folder, self.versions, site, self.python_minor, subdir=subdir)
        return [folder]


def channel_with_extras(tool: Tool, plan: Plan) -> BaseChannel:
    """The base channel with what tools and their extras require, if the channel is a folder.

    Only a public channel is sure to have that; the bootstrap channel of this checkout or,
    with --channel, of another one lacks it.
    """
    base = BaseChannel.plan(tool, plan)
    if not base.urls[-1].startswith("file:"):
        return base
    extras = LinkExtras.plan(tool, plan)
    return BaseChannel(urls=(extras.folder.as_uri(), *base.urls), tasks=(extras, *base.tasks))


@dataclass(frozen=True, eq=False, kw_only=True)
class InstallNoarch(FileTask):
    """Installs the conda package of a tool, or of its extra, into a new prefix, and runs it.

    The output is the prefix.
    """

    tool: Tool
    packages: Task[tuple[Path, ...]]
    channels: tuple[str, ...]
    python_minor: str
    extra: str = ""

    @classmethod
    def plan(cls, tool: Tool, extra: str, plan: Plan) -> "InstallNoarch":
        packages = BuildNoarch.plan(tool, plan)
        channel = channel_with_extras(tool, plan)
        step = cls(
            name=f"noarch-prefix/{with_extra(tool, extra)}",
            tool=tool,
            extra=extra,
            packages=packages,
            channels=channel.urls,
            python_minor=plan.host.python_minor,
            after=channel.tasks,
        )
        return plan.add(step, tool)

    @property
    def reads(self) -> Tasks:
        return (self.packages,)

    def run(self, context: Context) -> Sequence[Path]:
        settings = context.settings
        name = with_extra(self.tool, self.extra)
        folder = settings.envs / f"{name}-noarch"
        specs = [f"{name} =={settings.project.version}", f"python {self.python_minor}.*"]
        channels = [settings.channel.as_uri(), *self.channels]
        run_worker(context.log, conda_commands.install(folder, specs, channels=channels))
        run_tool(context.log, folder, lines_of(self.tool, self.extra))
        return [folder]
