"""`project:` of a matrix and `[project]` of pyproject.toml, from what a distribution says."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement

from ..builder.client import package_folder, package_places
from ..builder.sources import CUDA_SUFFIXES, HEADER_SUFFIXES, HOST_SUFFIXES
from .build_section import BuildSection
from .carried import WITH_ALONE, WITHOUT_ALONE, Fate, Report
from .licenses import NONE, is_of_family, license_files, spdx_name
from .people import Person, people, people_toml
from .render import AUTHOR, names_of
from .seen import Both, SeenMetadata
from .torch_range import allowed_minors, is_torch

MATRIX = "build_matrix.yaml"
PYPROJECT = "pyproject.toml"
_SUMMARY = "Operators for PyTorch"
#: What a build by torchship brings itself, or does not need.
_BUILD_TOOLS = re.compile(
    r"(setuptools|wheel|torch|ninja|pybind11|cmake|scikit[-_]build([-_]core)?|packaging|build)"
    r"\b(?![-_])"
)
_REQUIREMENT = re.compile(r"[\w.-]+ *([<>=!~][^;@#\"']*)?")
#: Why a value of setup() has no place.
_NEEDLESS = {
    "zip_safe": "a wheel is installed as files",
    "setup_requires": "pyproject.toml names what a build needs",
    "tests_require": "pip does not read it",
    "dependency_links": "pip does not read it",
    "test_suite": "setuptools runs no tests any more",
    "platforms": "the tag of a wheel says it",
    "include_package_data": "the data files are named one by one",
    "cmake_install_dir": "torchship installs what it builds",
    "cmake_source_dir": "torchship builds without CMake",
    "cmake_args": "torchship builds without CMake",
    "ext_package": "torch.ops takes the place of modules",
    "use_scm_version": "the version is that of _version.py, which you write from now on",
    "environment variable TORCH_CUDA_ARCH_LIST": (
        "the matrix has its own architectures, under `kernels:`, in `archs:`; change them there"
    ),
    "environment variable MAX_JOBS": (
        "how many files are compiled at a time does not depend on the code"
    ),
}
#: The commands that make a wheel or a source distribution; pip runs no other.
_BUILDING = {
    *("build", "build_clib", "build_ext", "build_py", "build_scripts", "bdist_wheel", "dist_info"),
    *("develop", "editable_wheel", "egg_info", "install", "install_data", "install_egg_info"),
    *("install_headers", "install_lib", "install_scripts", "sdist"),
}
_REPLACED = {"long_description": "the readme stands in its place"}
_REPOSITORY = ("repository", "source", "source code", "github", "homepage", "code")
_OLDEST_PYTHON = (3, 10)


@dataclass
class Metadata:
    """The values that follow for both files."""

    distribution: str
    package: str
    version: str
    summary: str
    license: str
    url: str
    authors: list[Person]
    requires_python: str
    license_files: list[str] = field(default_factory=list)
    readme: str = ""
    keywords: list[str] = field(default_factory=list)
    classifiers: list[str] = field(default_factory=list)
    urls: dict[str, str] = field(default_factory=dict)
    extras: dict[str, list[str]] = field(default_factory=dict)
    entry_points: dict[str, dict[str, str]] = field(default_factory=dict)
    build_requires: list[str] = field(default_factory=list)
    maintainers: list[Person] = field(default_factory=list)
    torches: list[str] = field(default_factory=list)  #: the minors that the requirement allows


def make_metadata(
    root: Path,
    name: str,
    both: Both,
    *,
    build: BuildSection,
    torches: Sequence[str],
    report: Report,
) -> Metadata:
    """The values, with a line for each; the requirements and data go into the build's section.

    `torches` are the minors that the matrix has.
    """

    sources = build.sources

    def make(said: SeenMetadata, build: BuildSection) -> tuple[Metadata, Report]:
        maker = _Maker(root, name, said, both.seen.place, build=build, torches=torches)
        maker.sources = sources
        return maker.make(), maker.report

    meta, joined = make(both.metadata, build)
    if both.without.error or both.with_cuda.error:
        report.lines += joined.lines
        return meta
    _, without = make(both.without.metadata, BuildSection())
    _, with_cuda = make(both.with_cuda.metadata, BuildSection())
    ends = {(True, False): f", {WITHOUT_ALONE}", (False, True): f", {WITH_ALONE}"}
    for line in joined.lines:
        end = ends.get((without.names(line.what), with_cuda.names(line.what)), "")
        report.add(replace(line, source=line.source + end))
    for line in without.lines:
        if line.fate is Fate.CARRIED and not joined.names(line.what):
            why = "what a machine with CUDA says was taken"
            report.left(line.what, f"{line.source}, {WITHOUT_ALONE}", why)
    return meta


class _Maker:
    def __init__(
        self,
        root: Path,
        name: str,
        said: SeenMetadata,
        place: str,
        *,
        build: BuildSection,
        torches: Sequence[str],
    ) -> None:
        self.report = Report()
        self.sources: Sequence[str] = ()
        self._torches = torches
        self._root = root
        self._name = name
        self._said = said
        self._place = place
        self._build = build

    def make(self) -> Metadata:
        said = self._said
        names = names_of(self._name)
        package = self._package() or names.package
        url = self._url(names.distribution)
        meta = Metadata(
            distribution=names.distribution,
            package=package,
            version=self._version(package),
            summary=self._summary(),
            license=self._license(),
            url=url,
            authors=people(said.author, said.author_email) or [Person(AUTHOR)],
            requires_python=self._requires_python(),
            license_files=license_files(self._root),
            readme=self._readme(),
            keywords=[word for words in said.keywords for word in words.split(",") if word],
            classifiers=self._classifiers(),
            urls=self._urls(url),
            extras={key: list(words) for key, words in said.extras.items()},
            entry_points=self._entry_points(package),
            build_requires=self._build_requires(),
            maintainers=people(said.maintainer, said.maintainer_email),
        )
        self._note(f"name {said.name}", f"{MATRIX}: project: distribution", said.name)
        if not said.name:
            why = f"nothing that was run says it; {names.distribution} stands for it"
            self.report.left("name", self._place, why)
        self._people(meta)
        for word in meta.keywords:
            self._note(f"keyword {word}", f"{PYPROJECT}: keywords")
        for extra, words in meta.extras.items():
            for word in words:
                self._note(
                    f"requirement {word} of the extra {extra}",
                    f"{PYPROJECT}: optional-dependencies",
                )
        meta.torches = self._allowed_torches()
        self._requirements()
        self._others()
        self._data(package)
        self._commands()
        return meta

    def _people(self, meta: Metadata) -> None:
        for person in meta.authors:
            if person.name == AUTHOR:
                self.report.left("author", self._place, f"nobody is named; {AUTHOR} stands for it")
            else:
                self._note(f"author {person}", f"{PYPROJECT}: authors")
        for person in meta.maintainers:
            self._note(f"maintainer {person}", f"{PYPROJECT}: maintainers")
        for addresses in (self._said.author_email, self._said.maintainer_email):
            if addresses and "@" not in addresses:
                self.report.left(f"address {addresses}", self._place, "it has no @")

    def _note(self, what: str, target: str, value: str = "x", why: str = "") -> None:
        if value:
            self.report.carried(what, self._place, target, why)

    def _package(self) -> str:
        tops = {name: folder for name, folder in self._said.packages.items() if "." not in name}
        if not tops:
            places = package_places(self._root)
            files = (file for place in places for file in sorted(place.glob("*/__init__.py")))
            tops = {file.parent.name: str(file.parent.relative_to(self._root)) for file in files}
        own = {name: folder for name, folder in tops.items() if name not in ("test", "tests")}
        wanted = names_of(self._name).package
        chosen = wanted if wanted in own else self._with_sources(own)
        for name, folder in tops.items():
            what = f"package {name} in {folder}"
            if name == chosen:
                self._note(what, f"{MATRIX}: project: package")
            else:
                self.report.left(what, self._place, "a wheel of torchship has one package")
        return chosen

    def _with_sources(self, packages: Mapping[str, str]) -> str:
        """The package in whose folder the first source lies; the first of all if there is none."""
        for name, folder in packages.items():
            if any(source.startswith(f"{folder}/") for source in self.sources):
                return name
        return next(iter(packages), "")

    def _version(self, package: str) -> str:
        version = self._said.version
        if version in ("", "0.0.0"):
            content = _text(package_folder(self._root, package) / "__init__.py")
            match = re.search(r"(?m)^__version__\s*=\s*[\"']([^\"']+)[\"']", content)
            if match is None:
                why = "nothing that was run says it; 0.1.0 stands in pyproject.toml"
                self.report.left("version", self._place, why)
                return "0.1.0"
            version = match[1]
        # Such as `+g0123abc` of the commit, or `+cu128` of the torch that was there.
        public, mark, _ = version.partition("+")
        why = "what follows the + says where it was built, and PyPI takes none" if mark else ""
        self._note(f"version {version}", f"{PYPROJECT}: version: {public}", why=why)
        return public

    def _summary(self) -> str:
        summary = self._said.summary
        if not summary:
            self.report.left("summary", self._place, f"there is none; {_SUMMARY!r} stands for it")
            return _SUMMARY
        plain = re.sub(r"\s+", " ", summary.replace('"', "'").replace("#", "")).strip()
        self._note(f"summary {summary!r}", f"{MATRIX}: project: summary")
        return plain

    def _license(self) -> str:
        said = self._said.license
        spdx = spdx_name(said, self._said.classifiers, self._root)
        short = said if len(said) <= 100 else f"text of {len(said)} characters"
        if spdx == NONE:
            why = f"the repository names none; write yours in place of {NONE}"
            self.report.left("license", self._place, why)
        elif spdx.startswith("LicenseRef-"):
            why = f"it has no SPDX name that is known here; {spdx} stands for it"
            self.report.left(f"license {short}", self._place, why)
        elif short and not is_of_family(short, spdx):
            why = f"the text of LICENSE is that of {spdx}, which stands in {MATRIX}"
            self.report.left(f"license {short}", self._place, why)
        else:
            self._note(
                f"license {short or 'of a classifier or LICENSE'}",
                f"{MATRIX}: project: license: {spdx}",
            )
        return spdx

    def _url(self, distribution: str) -> str:
        urls = {key.lower(): value for key, value in self._said.project_urls.items()}
        known = [urls[key] for key in _REPOSITORY if key in urls]
        said = next(filter(None, [*known, self._said.url]), "")
        url = said.rstrip("/").replace("http://", "https://")
        if not url and (origin := _origin(self._root)):
            self.report.carried(f"url {origin}", "git's origin", f"{MATRIX}: project: url")
            return origin
        if not re.fullmatch(r"https://[^\s/]+(/[^\s/]+)*", url):
            why = "it is not an https address" if url else "there is none"
            what = f"url {url}".strip()
            self.report.left(what, self._place, f"{why}; write that of the repository")
            return f"https://example.org/{distribution}"
        self._note(f"url {url}", f"{MATRIX}: project: url")
        return url

    def _urls(self, url: str) -> dict[str, str]:
        said = self._said.project_urls
        urls = {key: value for key, value in said.items() if key.lower() != "repository"}
        if self._said.url and self._said.url != url:
            urls.setdefault("Homepage", self._said.url)
        for key, value in urls.items():
            self._note(f"url {key} {value}", f"{PYPROJECT}: urls")
        return urls

    def _requires_python(self) -> str:
        said = self._said.requires_python
        floor = re.search(r"(?:>|[>~=]=)\s*(\d+)\.(\d+)", said)
        if floor and (int(floor[1]), int(floor[2])) >= _OLDEST_PYTHON:
            self._note(f"requires-python {said}", f"{PYPROJECT}: requires-python")
            return said
        rest = [part.strip() for part in said.split(",") if part.strip().startswith(("<", "!"))]
        range_ = ",".join([">=3.10", *rest])
        if said:
            why = "torch of the matrix, and torchship, need 3.10"
            target = f"{PYPROJECT}: requires-python: {range_}"
            self._note(f"requires-python {said}", target, why=why)
        return range_

    def _readme(self) -> str:
        names = sorted(p.name for p in self._root.iterdir() if p.name.lower().startswith("readme."))
        kept = [name for name in names if name.lower().endswith((".md", ".rst", ".txt"))]
        if kept:
            self.report.carried(f"readme {kept[0]}", "the repository", f"{PYPROJECT}: readme")
        return kept[0] if kept else ""

    def _classifiers(self) -> list[str]:
        kept = []
        for classifier in self._said.classifiers:
            if classifier.startswith("License ::"):
                why = "the SPDX name says it, and setuptools takes one of both"
                self.report.needless(f"classifier {classifier}", self._place, why)
            elif _is_too_old(classifier):
                why = "requires-python leaves this Python out"
                self.report.needless(f"classifier {classifier}", self._place, why)
            else:
                self._note(f"classifier {classifier}", f"{PYPROJECT}: classifiers")
                kept.append(classifier)
        return kept

    def _entry_points(self, package: str) -> dict[str, dict[str, str]]:
        groups: dict[str, dict[str, str]] = {}
        for group, lines in self._said.entry_points.items():
            for line in lines:
                name, _, target = (part.strip() for part in line.partition("="))
                what = f"entry point {name} of {group}"
                top = re.split(r"[.:\s]", target)[0]
                if top != package and top in self._said.packages:
                    why = f"it is in {top}, and a wheel of torchship has one package"
                    self.report.left(what, self._place, why)
                    continue
                groups.setdefault(group, {})[name] = target
                self._note(what, f"{PYPROJECT}: entry points")
        return groups

    def _build_requires(self) -> list[str]:
        kept = []
        backend = self._said.build_backend
        if " in " in backend:
            why = "what this backend of yours does while it builds was not seen"
            self.report.left(f"build backend {backend}", PYPROJECT, why)
        elif backend:
            why = "vendor/backend.py takes its place"
            self.report.needless(f"build backend {backend}", PYPROJECT, why)
        for word in self._said.build_requires:
            if _is_for_no_python(word):
                why = "its marker leaves out every Python of requires-python"
                self.report.needless(f"build requirement {word}", PYPROJECT, why)
            elif _BUILD_TOOLS.match(word):
                self.report.needless(f"build requirement {word}", PYPROJECT, "torchship builds")
            elif re.match(r"(setuptools|hatch|versioningit)[-_]", word):
                why = "torchship takes the version from _version.py"
                self.report.left(f"build requirement {word}", PYPROJECT, why)
            else:
                kept.append(word)
                self.report.carried(
                    f"build requirement {word}", PYPROJECT, f"{PYPROJECT}: build-system: requires"
                )
        return kept

    def _requirements(self) -> None:
        for word in self._said.requires:
            if is_torch(word):
                pass  # the torches of the matrix say it
            elif _is_for_no_python(word):
                why = "its marker leaves out every Python of requires-python"
                self.report.needless(f"requirement {word}", self._place, why)
            elif re.match(r"ninja\b", word):
                self.report.needless(f"requirement {word}", self._place, "it is for the build")
            elif _REQUIREMENT.fullmatch(word):
                self._build.requires.append(word)
                self._note(f"requirement {word}", f"{MATRIX}: build: requires")
            else:
                why = "with extras, markers or a URL it needs a name for conda: {pip:, conda:}"
                self.report.left(f"requirement {word}", self._place, why)

    def _allowed_torches(self) -> list[str]:
        """The minors of the matrix; without those that the requirement of torch leaves out."""
        words = [word for word in self._said.requires if is_torch(word)]
        for word in [word for word in words if self._is_computed(word)]:
            why = "it names the torch that is installed here; a wheel requires those that it serves"
            self.report.needless(f"requirement {word}", self._place, why)
            words.remove(word)
        allowed = allowed_minors(words, self._torches)
        for word in words:
            if not allowed:
                why = f"no torch from {self._torches[0]} to {self._torches[-1]} is in this range"
                self.report.left(f"requirement {word}", self._place, why)
            elif len(allowed) == len(self._torches):
                why = "the torches of the matrix say it"
                self.report.needless(f"requirement {word}", self._place, why)
            else:
                target = f"{MATRIX}: torch: {', '.join(allowed)}"
                self.report.carried(f"requirement {word}", self._place, target)
        return allowed or list(self._torches)

    def _is_computed(self, requirement: str) -> bool:
        """Whether a pin of torch follows from the torch that is installed where setup.py ran."""
        pin = re.fullmatch(r"torch *===? *(\d[\d.]*?)(\.\*)?(\+\w+)?", requirement)
        if pin is None or not f"{self._said.torch}.".startswith(f"{pin[1]}."):
            return False
        files = [*self._root.glob("*.py"), *self._root.glob("*.txt"), *self._root.glob("*.toml")]
        return not any(pin[1] in _text(file) for file in [*files, self._root / "setup.cfg"])

    def _commands(self) -> None:
        for command in self._said.commands:
            if command.split()[0] in _BUILDING:
                why = (
                    "what this class of yours does while it builds, beyond its flags, was not seen"
                )
                self.report.left(f"command {command}", self._place, why)
            else:
                self.report.needless(f"command {command}", self._place, "no build runs it")

    def _others(self) -> None:
        for name, value in self._said.others.items():
            what = f"{name} {value}"
            if why := _NEEDLESS.get(name):
                self.report.needless(what, self._place, why)
            elif name.startswith("package_data of "):
                why = f"no file matches it now; what comes later stands under `data:` in {MATRIX}"
                self.report.left(what, self._place, why)
            else:
                why = _REPLACED.get(name, f"write it into {PYPROJECT}, if you need it")
                self.report.left(what, self._place, why)

    def _data(self, package: str) -> None:
        own = self._said.packages.get(package, package)
        inside: list[str] = []
        for path in self._said.data:
            what = f"data file {path}"
            suffix = PurePosixPath(path).suffix
            if suffix in (*HOST_SUFFIXES, *CUDA_SUFFIXES, *HEADER_SUFFIXES, ".py"):
                self.report.needless(what, self._place, "wheels hold the sources in a package")
            elif path.startswith(f"{own}/"):
                inside.append(path[len(own) + 1 :])
                self._note(what, f"{MATRIX}: build: data")
            else:
                why = f"it is not a file of the package {package}"
                self.report.left(what, self._place, why)
        self._build.data += _patterns(inside)


def _is_too_old(classifier: str) -> bool:
    version = re.fullmatch(r"Programming Language :: Python :: (\d+)\.(\d+)", classifier)
    is_two = bool(re.match(r"Programming Language :: Python :: 2\b", classifier))
    return is_two or bool(version and (int(version[1]), int(version[2])) < _OLDEST_PYTHON)


def _is_for_no_python(requirement: str) -> bool:
    """Whether its marker leaves out every Python that torchship builds for."""
    try:
        marker = Requirement(requirement).marker
    except InvalidRequirement:
        return False
    if marker is None or "python" not in str(marker):
        return False
    # No marker needs to tell the later ones apart.
    pythons = [f"{_OLDEST_PYTHON[0]}.{minor}" for minor in range(_OLDEST_PYTHON[1], 20)]
    environments = [{"python_version": one, "python_full_version": f"{one}.0"} for one in pythons]
    return not any(marker.evaluate({**one, "extra": ""}) for one in environments)


def _patterns(files: Sequence[str]) -> list[str]:
    """The files; where a folder has many of one suffix, a pattern for them."""
    groups: dict[str, list[str]] = {}
    for file in files:
        path = PurePosixPath(file)
        groups.setdefault(str(path.parent / f"*{path.suffix}"), []).append(file)
    return [
        name
        for pattern, names in groups.items()
        for name in ([pattern] if len(names) > 3 else names)
    ]


def _origin(root: Path) -> str:
    """The web address of the repository's origin; "" without one."""
    command = ["git", "-C", str(root), "remote", "get-url", "origin"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    url = re.sub(r"^(?:ssh://)?git@([^/:]+)[:/]", r"https://\1/", result.stdout.strip())
    url = url.removesuffix(".git").rstrip("/")
    return url if re.fullmatch(r"https://[^\s/@]+(/[^\s/]+)+", url) else ""


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def maintainers(meta: Metadata) -> list[str]:
    """Who maintains the conda package: the owner of the repository on GitHub, if it is there."""
    owner = re.match(r"https://(?:www\.)?github\.com/([\w-]+)/", meta.url)
    return [owner[1] if owner else f"{meta.distribution}-developers"]


def project_yaml(meta: Metadata, namespace: str, operator: str) -> str:
    """The section `project:` of the matrix."""
    return (
        "project:\n"
        f"  distribution: {meta.distribution}\n"
        f"  summary: {json.dumps(meta.summary, ensure_ascii=False)}\n"
        f"  license: {meta.license}\n"
        f"  url: {meta.url}\n"
        f"  maintainers: {json.dumps(maintainers(meta))}\n"
        f"  package: {meta.package}\n"
        f"  namespace: {namespace}\n"
        f"  prefix: {meta.package.upper()}\n"
        f"  operator: {operator}\n"
        "  wheel_limit: 100000000\n"
    )


def project_toml(meta: Metadata) -> Iterator[str]:
    """`[build-system]`, and `[project]` with its tables."""
    build = ["setuptools>=77", "ninja", *meta.build_requires]
    yield "# vendor/torchship.json names the torchship that builds this project."
    yield "[build-system]"
    yield f"requires = {json.dumps(build)}"
    yield 'build-backend = "backend"'
    yield 'backend-path = ["vendor"]'
    yield ""
    yield "# The comments `#= ...` say how a value follows from build_matrix.yaml: change it there."
    yield "[project]"
    yield f'name = "{meta.distribution}"  #= "{{distribution}}"'
    yield f'version = "{meta.version}"  #= "{{version}}"'
    # A wheel requires the torch that its binaries serve, so this list is the build's to make.
    yield 'dynamic = ["dependencies"]'
    yield f'description = {json.dumps(meta.summary, ensure_ascii=False)}  #= "{{summary}}"'
    if meta.readme:
        yield f'readme = "{meta.readme}"'
    yield f'requires-python = "{meta.requires_python}"'
    yield f'license = "{meta.license}"  #= "{{license}}"'
    if meta.license_files:
        yield f"license-files = {json.dumps(meta.license_files)}"
    yield people_toml("authors", meta.authors)
    if meta.maintainers:
        yield people_toml("maintainers", meta.maintainers)
    if meta.keywords:
        yield f"keywords = {json.dumps(meta.keywords)}"
    if meta.classifiers:
        yield f"classifiers = {json.dumps(meta.classifiers, indent=2)}"
    yield ""
    yield "[project.urls]"
    yield f'Repository = "{meta.url}"  #= "{{url}}"'
    for key, url in meta.urls.items():
        yield f"{json.dumps(key)} = {json.dumps(url)}"
    yield from _table("[project.optional-dependencies]", meta.extras)
    for group, points in meta.entry_points.items():
        known = {"console_scripts": "scripts", "gui_scripts": "gui-scripts"}
        title = known.get(group, f"entry-points.{json.dumps(group)}")
        yield from _table(f"[project.{title}]", points)
    yield ""
    yield "[tool.setuptools]"
    yield "include-package-data = false"


def _table(title: str, values: "dict[str, list[str]] | dict[str, str]") -> Iterator[str]:
    if values:
        yield ""
        yield title
    for key, value in values.items():
        yield f"{json.dumps(key)} = {json.dumps(value)}"
