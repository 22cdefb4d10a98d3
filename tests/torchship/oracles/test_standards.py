"""What a requirement, a tag or a dependency means is what packaging, pip and conda say."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import pytest
from draws import differences, seeds
from made_facts import make_runtime, make_torch
from packaging import _manylinux, markers, specifiers, tags, utils, version

from torchship.doctor.environment import conda_versions, standards
from torchship.doctor.environment.built_for import minors_pinned
from torchship.doctor.environment.metadata import Core
from torchship.doctor.wheels.choose import excluded_by_name
from torchship.doctor.wheels.unpacking import WheelError, WheelName
from torchship.judge.records import Runtime
from torchship.judge.target import Target

MINORS = [(1, 13), *((2, minor) for minor in range(20)), (3, 0)]
SIGNS = ("==", "!=", ">=", "<=", "<", ">", "~=", "===")


def drawn_version(draw: random.Random) -> str:
    numbers = [str(draw.choice((1, 2, 2, 2, 3)))]
    numbers += [str(draw.randrange(14)) for _ in range(draw.choice((0, 1, 1, 2, 2)))]
    end = draw.choice(("", "", "", "", "a0", "rc1", ".post1", ".dev20260101", "+cu128", "+cpu"))
    return ".".join(numbers) + end


def drawn_specifier(draw: random.Random) -> str:
    """A set of specifiers, some of them malformed."""
    clauses = []
    for _ in range(draw.choice((1, 1, 2, 3))):
        star = draw.choice(("", "", ".*"))
        clauses.append(f"{draw.choice(SIGNS)}{draw.choice(('', ' '))}{drawn_version(draw)}{star}")
    joined = ",".join(clauses)
    return f"({joined})" if draw.random() < 0.2 else joined


def test_specifiers_admit_what_packaging_admits() -> None:
    wrong = []
    for seed in seeds(2000):
        draw = random.Random(seed)
        text, release = drawn_specifier(draw), drawn_version(draw)
        try:
            wanted = specifiers.SpecifierSet(text.strip("()"))
            expected = wanted.contains(release, prereleases=True)
        except specifiers.InvalidSpecifier:
            expected = True  # pip does not get so far
        if standards.admits(text, release) != expected:
            wrong.append(f"{text} of {release}: not {expected}")
    assert not wrong, differences(wrong)


@pytest.mark.parametrize(
    ("specifier", "release", "admitted"),
    [
        ("==2.*", "2.13.0+cpu", True),
        ("==2.*", "3.0.0", False),
        ("!=2.*", "2.13.0+cpu", False),
        ("!=2.9", "2.9.1", True),
        ("!=2.9", "2.9.0", False),
        ("~=2.9", "2.10.0", True),
        ("~=2.9", "3.0.0", False),
        ("~=2.9.0", "2.10.0", False),
        ("==2.9.0", "2.9.1", False),
        ("<2.9.1", "2.9.1", False),
        ("<2.9.1", "2.9.0", True),
    ],
)
def test_each_sign_counts_all_numbers_of_a_release(
    specifier: str, release: str, admitted: bool
) -> None:
    assert standards.admits(specifier, release) is admitted
    assert specifiers.SpecifierSet(specifier).contains(release) is admitted


def releases(minor: tuple[int, int]) -> Iterator[version.Version]:
    """Final releases of a minor version that a drawn specifier can tell from others."""
    for patch in ("", *(f".{number}" for number in range(16))):
        for end in ("", ".post0", ".post1", ".post2", "+cu128", "+cpu"):
            yield version.Version(f"{minor[0]}.{minor[1]}{patch}{end}")


def named_releases(wanted: specifiers.SpecifierSet) -> Iterator[version.Version]:
    for one in wanted:
        with suppress(version.InvalidVersion):
            yield version.Version(one.version.removesuffix(".*"))


def test_a_minor_is_admitted_if_one_of_its_releases_is() -> None:
    wrong = []
    for seed in seeds(100):
        draw = random.Random(f"minor {seed}")
        text = drawn_specifier(draw)
        try:
            wanted = specifiers.SpecifierSet(text.strip("()"))
        except specifiers.InvalidSpecifier:
            continue
        for minor in MINORS:
            named = [one for one in named_releases(wanted) if (one.major, one.minor) == minor]
            every = (*releases(minor), *named)
            expected = any(wanted.contains(one, prereleases=True) for one in every)
            if standards.admits_of_minor(text, minor) != expected:
                wrong.append(f"{text} of {minor}: not {expected}")
    assert not wrong, differences(wrong)


def drawn_marker(draw: random.Random, depth: int = 0) -> str:
    if depth < 2 and draw.random() < 0.4:
        left, right = drawn_marker(draw, depth + 1), drawn_marker(draw, depth + 1)
        joined = f"{left} {draw.choice(('and', 'or'))} {right}"
        return f"({joined})" if depth or draw.random() < 0.3 else joined
    variable, values = draw.choice(
        (
            ("python_version", ("3.8", "3.11", "3.11.0", "3.12", "4")),
            ("python_full_version", ("3.11.2", "3.11.7", "3.12.0")),
            ("sys_platform", ("linux", "darwin", "win32")),
            ("platform_system", ("Linux", "Windows")),
            ("platform_machine", ("x86_64", "aarch64", "arm64")),
            ("platform_python_implementation", ("CPython", "PyPy")),
            ("implementation_name", ("cpython", "pypy")),
            ("os_name", ("posix", "nt")),
            ("extra", ("gpu", "test")),
        )
    )
    is_name = variable not in ("python_version", "python_full_version")
    sign = draw.choice(("==", "!=") if is_name else ("==", "!=", "<", ">=", ">", "<=", "~="))
    quote = draw.choice("'\"")
    return f"{variable} {sign} {quote}{draw.choice(values)}{quote}"


def test_requirements_hold_where_packaging_says_so() -> None:
    wrong = []
    for seed in seeds(2000):
        draw = random.Random(f"marker {seed}")
        minor = draw.choice((8, 11, 12, 13))
        machine = draw.choice(("x86_64", "aarch64"))
        runtime = make_runtime(make_torch(), python=(3, minor, 7), machine=machine)
        marker = drawn_marker(draw)
        name = draw.choice(("torch", "Torch", "torch_scatter", "PyYAML"))
        need = standards.parse_need(f"{name} >=1 ; {marker}")
        assert need is not None, marker
        environment = {
            **markers.default_environment(),
            "python_version": f"3.{minor}",
            "python_full_version": f"3.{minor}.7",
            "implementation_version": f"3.{minor}.7",
            "platform_machine": machine,
            "extra": "",
        }
        try:
            expected = markers.Marker(marker).evaluate(environment)
        except markers.UndefinedComparison:
            expected = False
        if need.holds(standards.Python.of(runtime).variables) != expected:
            wrong.append(f"{marker} in 3.{minor}, {machine}: not {expected}")
        assert need.name == utils.canonicalize_name(name)
    assert not wrong, differences(wrong)


def drawn_runtime(draw: random.Random) -> Runtime:
    return make_runtime(
        make_torch(),
        python=(3, draw.choice((9, 10, 11, 12, 13, 14)), 1),
        free_threaded=draw.random() < 0.3,
        machine=draw.choice(("x86_64", "aarch64")),
        libc=("glibc", (2, draw.choice((17, 28, 31, 36, 41)))),
    )


def drawn_wheel(draw: random.Random) -> str:
    name = draw.choice(("theirs", "flash_attn"))
    release = draw.choice(("1.0", "2.8.3+cu12torch2.8cxx11abiTRUE", "1.0.post1"))
    python = draw.choice(
        ("py3", "py2.py3", "py311", "cp39", "cp311", "cp313", "cp310.cp311", "pp310")
    )
    abi = draw.choice(
        ("none", "abi3", "cp39", "cp311", "cp313", "cp313t", "cp310.cp311", "none.abi3")
    )
    platform = draw.choice(
        (
            "any",
            "linux_x86_64",
            "linux_aarch64",
            "manylinux1_x86_64",
            "manylinux2014_x86_64",
            "manylinux_2_17_x86_64.manylinux2014_x86_64",
            "manylinux_2_28_x86_64",
            "manylinux_2_34_aarch64",
            "manylinux_2_35_x86_64",
            "manylinux_1_0_x86_64",
            "manylinux_2_3_x86_64",
            "musllinux_1_2_x86_64",
            "win_amd64",
            "macosx_11_0_arm64",
        )
    )
    ending = draw.choice((".whl",) * 9 + (".zip",))
    build = draw.choice(("", "", "", "-3", "-x"))
    return f"{name}-{release}{build}-{python}-{abi}-{platform}{ending}"


@cache
def tags_by_packaging(
    python: tuple[int, ...], machine: str, libc: tuple[int, ...], *, free_threaded: bool
) -> frozenset[tags.Tag]:
    """The tags as `packaging` finds them in a process of that Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_manylinux, "_get_glibc_version", lambda: libc)
        platforms = [*_manylinux.platform_tags([machine]), f"linux_{machine}"]
    digits = f"{python[0]}{python[1]}"
    own = tags.cpython_tags(python, [f"cp{digits}{'t' if free_threaded else ''}"], platforms)
    return frozenset([*own, *tags.compatible_tags(python, f"cp{digits}", platforms)])


@pytest.mark.slow
def test_wheels_are_taken_that_pip_takes() -> None:
    wrong = []
    for seed in seeds(1500):
        draw = random.Random(f"wheel {seed}")
        runtime, file = drawn_runtime(draw), drawn_wheel(draw)
        assert runtime.libc is not None
        known = tags_by_packaging(
            runtime.python[:2],
            runtime.machine,
            runtime.libc[1],
            free_threaded=runtime.free_threaded,
        )
        try:
            expected = bool(utils.parse_wheel_filename(file)[3] & known)
        except utils.InvalidWheelFilename:
            expected = False
        try:
            found = not excluded_by_name(WheelName.parse(file), runtime._replace(torch=None))
        except WheelError:
            found = False
        if found != expected:
            wrong.append(f"{file} on {runtime.python}, {runtime.machine}, {runtime.libc}")
    assert not wrong, differences(wrong)


def test_an_installed_wheel_fits_the_pythons_whose_pip_takes_it() -> None:
    """Whatever its platform is, which its objects tell."""
    wrong = []
    for seed in seeds(1500):
        draw = random.Random(f"installed {seed}")
        runtime = drawn_runtime(draw)
        versions = ["3", "2", *(f"3{minor}" for minor in range(8, 15))]
        pythons = [f"{draw.choice(('py', 'cp', 'cp'))}{draw.choice(versions)}" for _ in range(2)]
        abis = ["none", "abi3", *(f"{python}t" for python in pythons), *pythons]
        tag = f"{'.'.join(pythons[: draw.choice((1, 1, 2))])}-{draw.choice(abis)}-linux_x86_64"
        known = tags_by_packaging(
            runtime.python[:2], "x86_64", (2, 36), free_threaded=runtime.free_threaded
        )
        expected = bool(tags.parse_tag(tag) & known)
        if standards.fits_python(tag, standards.Python.of(runtime)) != expected:
            is_free = runtime.free_threaded
            wrong.append(f"{tag} in {runtime.python}, free-threaded {is_free}: not {expected}")
    assert not wrong, differences(wrong)


def test_names_are_normalized_as_packaging_normalizes_them() -> None:
    draw = random.Random(seeds(1).start)
    for _ in seeds(500):
        name = "".join(draw.choice("aB3-_.") for _ in range(draw.randrange(1, 12)))
        assert standards.normal(name) == utils.canonicalize_name(name)


def drawn_dependency(draw: random.Random) -> str:
    """What a conda package depends on, as recipes and metadata write it."""
    number = ".".join(str(draw.randrange(1, 12)) for _ in range(draw.choice((1, 2, 2, 3))))
    one = draw.choice(("{}", "{}.*", "{}*", "={}", "=={}", ">={}", "<{}", "!={}", ">{}", "<={}.*"))
    clauses = [one.format(number)]
    if draw.random() < 0.3:
        clauses = [f">=2.{draw.randrange(9)}", f"<2.{draw.randrange(4, 14)}.0a0"]
    versions = ",".join(clauses)
    if draw.random() < 0.15:
        versions = f"2.{draw.randrange(12)}.*|2.{draw.randrange(12)}.*"
    is_short = draw.random() < 0.2 and re.fullmatch(r"=[\d.]+", versions) is not None
    if is_short:
        return f"pytorch{versions}{draw.choice(('', '=cuda*'))}"
    return f"pytorch {versions}{draw.choice(('', '', ' cuda*', ' py3.11_0'))}"


def test_dependencies_of_conda_admit_what_conda_admits() -> None:
    rattler = pytest.importorskip("rattler")
    wrong = []
    for seed in seeds(1000):
        draw = random.Random(f"conda {seed}")
        text = drawn_dependency(draw)
        release = ".".join(str(draw.randrange(1, 12)) for _ in range(3))
        parsed = conda_versions.parse(text)
        assert parsed is not None, text
        spec = rattler.MatchSpec(text).version
        expected = spec is None or rattler.VersionSpec(str(spec)).matches(rattler.Version(release))
        if conda_versions.admits_version(parsed.versions, release) != expected:
            wrong.append(f"{text} of {release}: not {expected}")
    assert not wrong, differences(wrong)


@pytest.mark.parametrize(
    ("need", "minor"),
    [
        ("pytorch =2.9", (2, 9)),
        ("pytorch =2.9.1=cuda*", (2, 9)),
        ("pytorch 2.9.* cuda*", (2, 9)),
        ("pytorch >=2.9.1,<2.10.0a0", (2, 9)),
        ("libtorch 2.9.1 cuda130*", (2, 9)),
        ("pytorch >=2.9", None),
        ("pytorch 2.9.*|2.10.*", None),
        ("numpy =2.9", None),
    ],
)
def test_a_dependency_of_conda_on_one_minor_vouches_for_it(
    need: str, minor: tuple[int, int] | None
) -> None:
    core = Core(name="theirs", version="1.0", needs=(need,))
    pinned = minors_pinned(core, standards.Python.of_target(Target()), by_conda=True)
    assert [found for found, _ in pinned] == ([minor] if minor else [])


@pytest.mark.parametrize(
    ("need", "minor"),
    [
        ("torch==2.9.1", (2, 9)),
        ("torch>=2.9,<2.10", (2, 9)),
        ("torch~=2.9.0", (2, 9)),
        ("torch>=1.13,<2", (1, 13)),  # the last of 1
        ("torch==1.13.*", (1, 13)),
        ("torch>=2.9", None),
        ("torch==2.*", None),
        ("torch!=2.9", None),
    ],
)
def test_a_requirement_of_pip_on_one_minor_vouches_for_it(
    need: str, minor: tuple[int, int] | None
) -> None:
    core = Core(name="theirs", version="1.0", needs=(need,))
    pinned = minors_pinned(core, standards.Python.of_target(Target()), by_conda=False)
    assert [found for found, _ in pinned] == ([minor] if minor else [])
