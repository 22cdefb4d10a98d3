"""`doctor`: every torch extension of an environment, other packages' included, and what if."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from environments import doctor_forks
from packaging_alone import packaging_alone
from shared_objects import GLUE_RECORD, KERNELS_RECORD, fake_torch, shared_object
from small_client import PROJECT

from torchship.doctor import judge_file
from torchship.judge import probe_runtime
from torchship.judge.machine.torch_probe import release
from torchship.judge.records import UNKNOWN

Doctor = Callable[..., subprocess.CompletedProcess[str]]
SYMBOL = "_ZN2at6Tensor3addEv"
REPO = Path(__file__).resolve().parents[3]


def package(site: Path, name: str, version: str, path: Path, requires: str = "") -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n{requires}\n\n")
    (info / "RECORD").write_text(f"{path.relative_to(site).as_posix()},sha256=x,1\n")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """torch 2.9.1, an extension that pins it, one that pins nothing, and one that it breaks."""
    site = tmp_path / "site"
    root = fake_torch(site, "2.9.1", exports=[SYMBOL])
    (root / "__init__.py").write_text("raise AssertionError('torch is imported')\n")
    flags = ["-Wl,--no-as-needed", f"-L{root / 'lib'}", "-l:libtorch_cpu.so"]
    for name, symbols, requires in (
        ("good", [SYMBOL], "Requires-Dist: torch==2.9.1"),
        ("silent", [SYMBOL], ""),
        ("broken", [SYMBOL, "_ZN2at6absentEv"], ""),
    ):
        path = shared_object(site / name / "_C.so", undefined=symbols, flags=flags)
        package(site, name, "1.0", path, requires)
    plain = shared_object(site / "plain" / "_impl.so")
    package(site, "plain", "1.0", plain)
    return site


@pytest.fixture
def doctor(site: Path) -> Doctor:
    def run(*arguments: str, nobody: bool = False) -> subprocess.CompletedProcess[str]:
        code = (
            "import sys; from torchship.doctor.command import main;"
            "from torchship.judge.project import NOBODY;"
            "code = main(NOBODY, sys.argv[1:]); assert 'torch' not in sys.modules; sys.exit(code)"
        )
        words = (code, "--no-import", "--verbose", *arguments)
        (folder,) = site.parent.glob("site*")
        env = {"PYTHONPATH": f"{folder}:{REPO}:{packaging_alone()}", "PATH": "/usr/bin:/bin"}
        if not (nobody and os.geteuid() == 0):
            return doctor_forks().run(*words, cwd=site.parent, env=env)
        before = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        return subprocess.run(
            [*before, sys.executable, "-S", "-c", *words],
            capture_output=True,
            text=True,
            cwd=site.parent,
            env=env,
        )

    return run


def states(process: subprocess.CompletedProcess[str]) -> dict[str, str]:
    report = json.loads(process.stdout)
    assert report["schema"] == 1
    return {item["package"]: item["state"] for item in report["extensions"]}


def test_every_extension_of_the_environment_is_found_and_judged(doctor: Doctor) -> None:
    process = doctor("--json")
    assert states(process) == {"good": "nothing found", "silent": "unknown", "broken": "fails"}, (
        process.stderr
    )
    assert process.returncode == 1
    extensions = {item["package"]: item for item in json.loads(process.stdout)["extensions"]}
    assert "_ZN2at6absentEv" in extensions["broken"]["cause"]["observed"]
    assert extensions["good"]["cause"] is None


@pytest.mark.parametrize(
    ("name", "code"), [("good", 0), ("silent", 0), ("broken", 1), ("site/good/_C.so", 0)]
)
def test_a_package_or_a_file_can_be_asked_for(doctor: Doctor, name: str, code: int) -> None:
    process = doctor("--json", name)
    assert len(states(process)) == 1
    assert process.returncode == code


def test_a_package_comes_before_a_folder_of_its_name(doctor: Doctor, site: Path) -> None:
    (site.parent / "good").mkdir()
    assert states(doctor("--json", "good")) == {"good": "nothing found"}


def test_the_table_names_package_state_and_cure(doctor: Doctor) -> None:
    out = doctor().stdout
    assert "good 1.0" in out
    assert "does not work" in out
    assert "  to fix:  " in out
    assert "nothing found by reading: 1, not working: 1, cannot be told: 1" in out


@pytest.mark.parametrize(
    "arguments", [["no/such/path"], ["no_such_package"], ["--torch", "1.3"], ["--torch", "nowhere"]]
)
def test_what_does_not_exist_is_bad_usage(doctor: Doctor, arguments: list[str]) -> None:
    process = doctor(*arguments)
    assert process.returncode == 2
    assert process.stderr.strip()
    assert "Traceback" not in process.stderr


def test_a_verdict_without_a_cure_has_no_line_for_one(doctor: Doctor) -> None:
    assert "to fix" not in doctor("--torch", "2.9", "good").stdout


def test_what_if_another_torch_were_here(doctor: Doctor, tmp_path: Path) -> None:
    root = fake_torch(tmp_path / "other", "2.10.0", exports=[SYMBOL])
    process = doctor("--json", "--torch", str(root), "good")
    assert states(process) == {"good": "unknown"}
    process = doctor("--json", "--torch", "2.9", "good")
    assert states(process) == {"good": "unknown"}
    assert "not looked up" in json.loads(process.stdout)["extensions"][0]["cause"]["observed"]


def describe_extensions(doctor: Doctor, *arguments: str) -> dict[str, tuple[str | None, str]]:
    """By the path's last two parts: the owner and the state."""
    extensions = json.loads(doctor("--json", *arguments).stdout)["extensions"]
    return {"/".join(Path(i["path"]).parts[-2:]): (i["package"], i["state"]) for i in extensions}


def extension(site: Path, path: Path) -> Path:
    libraries = site / "torch" / "lib"
    flags = ["-Wl,--no-as-needed", f"-L{libraries}", "-l:libtorch_cpu.so"]
    return shared_object(path, undefined=[SYMBOL], flags=flags)


@pytest.mark.parametrize("how", ["pip", "setup.py develop"])
def test_what_is_installed_from_its_source_folder_is_found_and_owned(
    doctor: Doctor, site: Path, how: str
) -> None:
    source = site.parent / "a source"
    extension(site, source / "edited" / "_C.so")
    extension(site, source / "build" / "lib" / "_C.so")
    extension(site, source / "venv" / "lib" / "_C.so")
    (source / "venv" / "pyvenv.cfg").touch()
    metadata = "Name: edited-package\nVersion: 1.0\nRequires-Dist: torch==2.9.1\n\n"
    if how == "pip":
        info = site / "edited_package-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(metadata)
        (info / "RECORD").write_text("__editable__.edited.pth,,\n")
        url = {"url": source.as_uri(), "dir_info": {"editable": True}}
        (info / "direct_url.json").write_text(json.dumps(url))
    else:
        (site / "edited-package.egg-link").write_text(f"{source}\n.")
        info = source / "edited_package.egg-info"
        info.mkdir()
        (info / "PKG-INFO").write_text(metadata)
    owned = {
        name: ownership
        for name, ownership in describe_extensions(doctor).items()
        if "edited-package" in ownership
    }
    assert owned == {"edited/_C.so": ("edited-package", "nothing found")}
    assert describe_extensions(doctor, "edited-package") == owned


@pytest.mark.parametrize(("installer", "owner"), [("conda", "theirs-conda"), ("pip", "theirs")])
def test_the_conda_package_owns_what_conda_installed(
    doctor: Doctor, site: Path, installer: str, owner: str
) -> None:
    extension(site, site / "theirs" / "_C.so")
    package(site, "theirs", "1.0", site / "theirs" / "_C.so")
    (site / "theirs-1.0.dist-info" / "INSTALLER").write_text(f"{installer}\n")
    (site.parent / "conda-meta").mkdir()
    files = ["site/theirs/_C.so"]
    meta = {"name": "theirs-conda", "version": "1", "depends": ["libtorch >=2.9.1,<2.10.0a0"]}
    (site.parent / "conda-meta" / "theirs.json").write_text(json.dumps({**meta, "files": files}))
    state = "nothing found" if installer == "conda" else "unknown"
    assert describe_extensions(doctor)["theirs/_C.so"] == (owner, state)


def test_what_nobody_owns_is_found_in_site_packages(doctor: Doctor, site: Path) -> None:
    site = site.rename(site.with_name("site-packages"))
    extension(site, site / "copied.egg" / "_C.so")
    extension(site, site / "torch" / "lib" / "libtorch_python.so")  # torch's own is none
    extensions = describe_extensions(doctor)
    assert extensions["copied.egg/_C.so"] == (None, "unknown")
    assert set(extensions) == {"good/_C.so", "silent/_C.so", "broken/_C.so", "copied.egg/_C.so"}


def test_a_file_that_is_named_has_its_row_though_it_needs_no_torch(doctor: Doctor) -> None:
    assert set(describe_extensions(doctor, "site/plain/_impl.so", "site/good/_C.so")) == {
        "plain/_impl.so",
        "good/_C.so",
    }
    assert describe_extensions(doctor, "plain", "good") == {"good/_C.so": ("good", "nothing found")}


def test_a_folder_of_another_platform_is_said_to_be_one(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "mac").mkdir()
    for name in ("_C.so", "_image.so"):
        (tmp_path / "mac" / name).write_bytes(b"\xcf\xfa\xed\xfe\x0c\x00\x00\x01" + b"\0" * 60)
    process = doctor("mac/", "good")
    assert process.returncode == 1
    assert "darwin-aarch64" in process.stdout


@pytest.mark.parametrize("name", ["", "a" * 400])
def test_a_name_that_no_file_can_have_is_bad_usage(doctor: Doctor, name: str) -> None:
    process = doctor(name)
    assert (process.returncode, process.stdout) == (2, "")
    assert "is neither a file" in process.stderr


def test_what_this_user_must_not_read_is_said_to_be_that(doctor: Doctor, site: Path) -> None:
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root may read everything")
    (site / "good" / "_C.so").chmod(0)
    (site / "shut").mkdir(mode=0)
    for folder in (site, *site.parents[:-1]):
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | 0o005)
    process = doctor("site/good/_C.so", nobody=True)
    assert "is not readable by this user" in " ".join(process.stdout.split())
    assert "to fix:  chmod a+r " in process.stdout
    for arguments in (["site/shut"], ["site/shut/x.so"], ["--torch", "site/shut/x"]):
        process = doctor(*arguments, nobody=True)
        assert process.returncode == 2
        assert "Traceback" not in process.stderr


def test_of_a_release_alone_the_symbols_of_our_binaries_are_not_known_either(
    tmp_path: Path,
) -> None:
    symbols = ["aoti_torch_get_dim"]
    path = shared_object(tmp_path / "glue-stable210.so", record=GLUE_RECORD, undefined=symbols)
    runtime = probe_runtime(release("2.15.0", (2, 15)), gpu=False, project=PROJECT)
    cause = judge_file(path, runtime._replace(package_version="")).cause
    assert cause is not None
    assert (cause.dimension, cause.status) == ("torch symbols", UNKNOWN)


def test_a_release_alone_has_no_cuda_to_compare_with(tmp_path: Path) -> None:
    record = {**KERNELS_RECORD, "name": "cuda13", "device": "cuda", "cuda": "13.0"}
    path = shared_object(tmp_path / "kernels-cuda13.so", record=record)
    runtime = probe_runtime(release("2.15.0", (2, 15)), gpu=False, project=PROJECT)
    cause = judge_file(path, runtime._replace(package_version="")).cause
    assert cause is not None
    assert (cause.dimension, cause.status) == ("CUDA build of torch", UNKNOWN)


@pytest.mark.slow
def test_two_hundred_extensions_take_at_most_twenty_seconds(doctor: Doctor, site: Path) -> None:
    built = extension(site, site.parent / "_C.so")
    for number in range(200):
        path = site / f"many{number}" / "_C.so"
        path.parent.mkdir()
        shutil.copy(built, path)
        package(site, f"many{number}", "1.0", path)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = doctor()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert "203 files" in process.stdout
    assert re.search(r"203 files read in [0-9.]+ s", process.stdout)
    assert seconds < 10  # of the 20 that are promised, since machines differ


def test_a_pipe_that_closes_early_is_no_error(site: Path) -> None:
    code = f"import sys; sys.path[:0] = ['{site}', '{REPO}', '{packaging_alone()}']; " + (
        "from torchship.doctor.command import main;"
        "from torchship.judge.project import NOBODY;"
        "sys.exit(main(NOBODY, ['--no-import', '--json']))"
    )
    command = f"'{sys.executable}' -S -c \"{code}\" | true"
    process = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=site)
    assert "Traceback" not in process.stderr
    assert "BrokenPipe" not in process.stderr
