"""new_project.sh: makes a repository for an op of your own, or updates its engine."""

import argparse
import hashlib
import json
import keyword
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
MATRIX = (REPO / "build_matrix.yaml").read_text(encoding="utf-8")
RECORD = "engine.json"

# The engine's files; only their lines with `#=` depend on the project. {package} is its package.
ENGINE = (
    *(".ci", ".clang-format", ".gitignore", "CMakeLists.txt", "MANIFEST.in", "setup.py"),
    *(f".github/workflows/{name}.yml" for name in ("publish", "pull-request", "release", "weekly")),
    ".github/dependabot.yml",
    *("cmake", "csrc/engine", "requirements", "torchship"),
    *("recipe/build.sh", "recipe/recipe.yaml", "{package}/__main__.py", "{package}/engine"),
    *(f"scripts/{name}.sh" for name in ("build_all", "cibuildwheel", "lint", "lock", "test")),
    *("scripts/test_env.sh", "scripts/release_tool.py", "scripts/engine_smoke.py", "tests/engine"),
)
# Files in the root of this checkout that a new project gets, but an update does not replace.
BEGINNING = ("LICENSE", "environment.yml", "pyproject.toml")
TEMPLATES = {"rms_norm": "own_op", "aten": "own_op_aten"}
FRAME = REPO / "examples" / "project"  # the files that do not depend on the template
TAKEN = {"engine", "examples", "scripts", "tests", "torch", "torchship"}  # names of other modules


def git(*words: str, cwd: Path = REPO) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=cwd, capture_output=True, text=True)


def project_of(matrix: str) -> dict[str, str]:
    """The lines `key: value` of the block `project:`."""
    block = re.search(r"^project:\n((?:  .*\n)*)", matrix, re.MULTILINE)
    return dict(re.findall(r"^  (\w+): *(.*)$", block[1], re.MULTILINE)) if block else {}


def engine_files(root: Path, package: str) -> dict[str, Path]:
    """The engine's files in the checkout `root`, by path with {package} as in `ENGINE`."""
    listed = git("ls-files", "-co", "--exclude-standard", "-z", cwd=root)
    if listed.returncode:
        sys.exit(f"error: {root} must be a git checkout: {listed.stderr.strip()}; use git clone")
    found = {}
    for name in listed.stdout.split("\0"):
        generic = re.sub(rf"^{package}/", "{package}/", name)
        if any(generic == part or generic.startswith(f"{part}/") for part in ENGINE):
            found[generic] = root / name
    return {generic: path for generic, path in sorted(found.items()) if path.is_file()}


def digest(path: Path) -> str:
    """The hash of a file without the texts before `#=`, which are generated from the matrix."""
    return hashlib.sha256(re.sub(rb"(?m)^.*(?=  #= )", b"", path.read_bytes())).hexdigest()


def bring_engine(target: Path, package: str) -> None:
    """Copies the engine, generates files from the matrix, and writes `RECORD` with the hashes."""
    ours = project_of(MATRIX)
    names = []
    for generic, path in engine_files(REPO, ours["package"]).items():
        names.append(generic.format(package=package))
        copy(path, target / names[-1])
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "RELEASE_"))}
    env["PYTHONPATH"] = str(target)
    tool = [sys.executable, target / "scripts" / "release_tool.py", "torchship.release"]
    tool.append("--write-generated")
    done = subprocess.run(tool, cwd=target, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}error: {target}: its release tool failed; see above")
    version = (REPO / ours["package"] / "_version.py").read_text(encoding="utf-8").split('"')[-2]
    record = {
        "note": f"the engine of {ours['url']}; its new_project.sh --update replaces these files",
        "version": version,
        "commit": git("rev-parse", "HEAD").stdout.strip(),
        "files": {name: digest(target / name) for name in names},
    }
    (target / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def copy(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, to)


def matrix_for(template: Path) -> str:
    """Our matrix with the template's project; kernels and CUDA only if the template has kernels."""
    project = (FRAME / "project.yaml").read_text(encoding="utf-8")
    for key, value in project_of((template / "project.yaml").read_text(encoding="utf-8")).items():
        project = re.sub(rf"(?m)^  {key}: .*$", f"  {key}: {value}", project)
    text = re.sub(r"^project:\n(?:  .*\n)*", lambda _: project, MATRIX, flags=re.MULTILINE)
    if not (template / "csrc" / "kernels").is_dir():
        text = re.sub(r"^kernels:\n(?:  .*\n)*", "kernels: {}\n", text, flags=re.MULTILINE)
        # Deletes the CUDA kernels in a platform's `differs`.
        text = re.sub(r"^ +kernels:\n +cuda.*\n", "", text, flags=re.MULTILINE)
        text = re.sub(r"^( +(?:devices|aten): )\[.*\]$", r"\1[cpu]", text, flags=re.MULTILINE)
    return text


def new(name: str, target: Path, template: Path) -> None:
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name) or keyword.iskeyword(module):
        sys.exit(f"error: NAME must be lower-case words joined by `-` or `_`, no keyword: {name!r}")
    if module in TAKEN or module in sys.stdlib_module_names:
        sys.exit(f"error: a package named {module} would hide another module; choose another NAME")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        sys.exit(f"error: {target} must be empty or must not exist; name another folder")
    target.mkdir(parents=True, exist_ok=True)
    for path in BEGINNING:
        shutil.copy2(REPO / path, target / path)
    settings = target / "pyproject.toml"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(re.sub(r"(?m)^examples = .*$", "examples = []", text), encoding="utf-8")
    (target / "build_matrix.yaml").write_text(matrix_for(template), encoding="utf-8")
    for root in (FRAME, template):
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.name != "project.yaml" and path.suffix != ".pyc":
                copy(path, target / str(path.relative_to(root)).replace("own_op", module))
    for path in [path for path in target.rglob("*") if path.is_file()]:
        text = path.read_text(encoding="utf-8")
        renamed = text.replace("own_op", module).replace("OWN_OP", module.upper())
        path.write_text(renamed.replace("own-op", module.replace("_", "-")), encoding="utf-8")
    bring_engine(target, module)
    if not (target / ".git").exists():
        git("init", "-q", "-b", "main", cwd=target).check_returncode()
        git("add", "-A", cwd=target).check_returncode()
    engine = project_of(MATRIX)["distribution"]
    print(f"{target}: {module.replace('_', '-')}, with the engine of {engine}")
    print(f"commit it, then: cd {target}; scripts/build_all.sh host; scripts/test.sh")


def update(target: Path) -> None:
    """Replaces the engine in `target`; exits with an error if somebody changed the engine there."""
    record = target / RECORD
    if not record.is_file():
        sys.exit(f"error: {target} has no {RECORD}: new_project.sh did not make it; name a project")
    old = json.loads(record.read_text(encoding="utf-8"))["files"]
    changed = [n for n, d in old.items() if (p := target / n).is_file() and digest(p) != d]
    if changed:
        text = f"error: the engine's files were changed in {target}: {', '.join(changed)}; put them"
        sys.exit(f"{text} back (git checkout), and run this again")
    package = project_of((target / "build_matrix.yaml").read_text(encoding="utf-8"))["package"]
    for name in old:
        (target / name).unlink(missing_ok=True)
    bring_engine(target, package)
    print(f"{target}: has the engine of this checkout; `git diff` there shows what changed")


def main() -> None:
    parser = argparse.ArgumentParser(prog="new_project.sh")
    parser.add_argument("name", metavar="NAME", nargs="?")
    parser.add_argument("target", metavar="DIR", type=Path, nargs="?")
    parser.add_argument("--template", choices=sorted(TEMPLATES), default="rms_norm")
    parser.add_argument("--update", metavar="DIR", type=Path)
    options = parser.parse_args()
    if options.update:
        update(options.update.resolve())
    elif options.target is None:
        parser.error("needs NAME and DIR")
    else:
        new(options.name, options.target.resolve(), REPO / "examples" / TEMPLATES[options.template])


if __name__ == "__main__":
    main()
