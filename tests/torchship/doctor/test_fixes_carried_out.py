"""Every fix of another package's fault, carried out: an environment with the fault, the
command that the checker names, typed into a shell, and the same environment without the fault.

test_project_fixes.py carries out those of the project.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import textwrap
from pathlib import Path

import pytest
from made_facts import make_runtime, make_torch
from packaging_alone import packaging_alone
from shared_objects import fake_torch, shared_object
from sick_environment import CARRIED_OUT, REPO, SickEnvironment, carries_out
from small_client import PROJECT
from small_clients import TORCHSHIP

from torchship.doctor.fixes.mending import install_package
from torchship.judge import BinaryRecord, Environment, Finding, fixes
from torchship.judge.fixes import table
from torchship.judge.fixes.table import Whose, Wrong
from torchship.judge.records import REJECTED, Owner, TorchInstall
from torchship.judge.text import quoted
from torchship.judge.words import render

ADD = "_ZN2at6Tensor3addEv"
ONLY_OLD = "_ZN2at10only_in_29Ev"
#: A symbol of torch 2.13 and every later measured one, which have one class layout.
SINCE_213 = "_ZN5torch8autograd4Node17release_resourcesEv"


@pytest.fixture(params=[pytest.param("pip", marks=pytest.mark.slow), "uv"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> SickEnvironment:
    """Environments of uv have no pip; the commands are then uv's, which take half the time."""
    return SickEnvironment(tmp_path, installer=request.param)


by_both = pytest.mark.parametrize("place", ["pip", "uv"], indirect=True)


def test_each_kind_that_holds_a_command_is_carried_out_by_a_test() -> None:
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        if "@carries_out(" in file.read_text(encoding="utf-8"):
            importlib.import_module(file.stem)
    assert {kind.value for kind in fixes.Kind} == CARRIED_OUT


def test_a_fix_with_a_command_has_a_kind() -> None:
    """All fixes are made by the functions of one module, of which those with a command ask for
    its kind."""
    makers = ("judge/fixes/kinds.py", "judge/records.py")
    others = [
        str(path.relative_to(TORCHSHIP))
        for path in TORCHSHIP.rglob("*.py")
        if re.search(r"\bFix\(", path.read_text("utf-8"))
        and not str(path.relative_to(TORCHSHIP)).endswith(makers)
    ]
    assert others == []


@pytest.mark.parametrize("whose", [*Whose])
@pytest.mark.parametrize("wrong", [*Wrong])
def test_the_table_has_a_fix_for_every_owner_and_fault(whose: Whose, wrong: Wrong) -> None:
    path = Path("/x/torch_extensions/py311_cpu/op/op.so" if whose is Whose.CACHE else "/x/_C.so")
    if whose is Whose.PROJECT:
        path = Path("/x/glue-stable210.so")
    owner = Owner(name="theirs", version="1.0", libraries={})
    binary = BinaryRecord(
        path=path,
        kind="glue" if whose is Whose.PROJECT else "extension",
        name=path.name,
        owner=owner if whose is Whose.PACKAGE else None,
    )
    assert table.whose(binary, make_runtime()) is whose
    assert fixes.fix_for(wrong, binary, make_runtime()).text


@carries_out(fixes.Kind.REINSTALL_PACKAGE)
@by_both
def test_a_damaged_file_comes_back_with_its_package(place: SickEnvironment) -> None:
    place.publish_torch("2.13.0+cpu", [ADD])
    extension = place.make_extension("1.0", [ADD])
    for version in ("1.0", "2.0"):
        place.publish_wheel("theirs", version, {"theirs/_C.so": extension}, ["torch==2.13.0"])
    place.install("torch", "theirs==1.0")
    path = place.site / "theirs" / "_C.so"
    path.write_bytes(path.read_bytes()[:40])
    before = place.is_mended("theirs/_C.so", fixes.Kind.REINSTALL_PACKAGE)
    start = "python -m pip install" if place.has_pip else "uv pip install --python python"
    assert before.command.startswith(f"{start} --force-reinstall --no-deps ")
    assert place.installed_version("theirs") == "1.0"


@carries_out(fixes.Kind.INSTALL_RELEASE)
@by_both
def test_the_release_for_this_torch_replaces_one_for_another(place: SickEnvironment) -> None:
    place.publish_torch("2.9.1+cpu", [ADD])
    place.publish_torch("2.15.0")
    for version, symbols in (("0.23.0", [ADD, ONLY_OLD]), ("0.24.1+cpu", [ADD]), ("0.29.0", [ADD])):
        files = {"torchvision/_C.so": place.make_extension(version, symbols)}
        place.publish_wheel("torchvision", version, files)
    place.publish_wheel("torchvision", "0.24.1", {"torchvision/_C.so": "another index's build"})
    place.install("torch==2.9.1+cpu", "torchvision==0.23.0")
    before = place.is_mended("torchvision/_C.so", fixes.Kind.INSTALL_RELEASE)
    assert "--index-url https://download.pytorch.org/whl/cpu " in before.command
    assert place.installed_version("torch") == "2.9.1+cpu"
    assert place.installed_version("torchvision") == "0.24.1+cpu"


@pytest.mark.parametrize(
    ("name", "torch", "wanted"),
    [
        ("torchvision", "2.13.0+cpu", "torchvision==0.28.0+cpu"),
        ("torchaudio", "2.9.1+cu128", "torchaudio==2.9.1+cu128"),
        ("torchvision", "2.15.0+cpu", "torchvision==0.29.*"),  # it shares its minor with 2.14
        ("torchcodec", "2.9.1+cpu", "torchcodec==0.9.*"),  # its patches are its own
        ("torchvision", "2.13.0", "torchvision==0.28.*"),
    ],
)
def test_a_build_of_pytorchs_index_is_asked_for_by_its_local_version(
    tmp_path: Path, name: str, torch: str, wanted: str
) -> None:
    """What another index has under the same number is then no answer."""
    folder = fake_torch(tmp_path, torch, cuda="13.0")
    (tmp_path / f"torch-{torch}.dist-info").mkdir()
    runtime = make_runtime(make_torch(torch, cuda="13.0")._replace(root=folder))
    assert f'"{wanted}"' in install_package(name, runtime)


@pytest.mark.parametrize(
    ("place", "here", "back", "gone"),
    [
        ("uv", "0.28.0", "0.28.0+cpu", "_C.so"),
        ("uv", "0.28.0+cu130", "0.28.0+cpu", "_C.so image.so"),
        ("uv", "0.24.0", "0.28", "_C.so"),
        ("pip", "0.24.0", "0.28", "_C.so image.so"),
    ],
    indirect=["place"],
)
def test_a_file_that_is_gone_comes_back_in_a_build_for_this_torch(
    place: SickEnvironment, here: str, back: str, gone: str
) -> None:
    """The build that was installed would be refused, since it is for CUDA or for another torch."""
    place.publish_torch("2.13.0+cpu", [ADD])
    for version in ("0.24.0", "0.28.0", "0.28.0+cu130", "0.28.0+cpu"):
        files: dict[str, Path | str] = {
            "torchvision/_C.so": place.make_extension(version, [ADD], defined=["PyInit__C"]),
            "torchvision/image.so": place.make_extension(version, [ADD]),
            "torchvision/__init__.py": "import torch\nfrom torchvision import _C\n",
        }
        place.publish_wheel("torchvision", version, files)
    place.install("torch", f"torchvision=={here}")
    for name in gone.split():
        (place.site / "torchvision" / name).unlink()
    cause = place.failing_row("torchvision")["cause"]
    assert cause["code"] == "TD204"
    assert "--index-url https://download.pytorch.org/whl/cpu " in cause["command"]
    place.type(cause["command"])
    assert place.installed_version("torchvision").startswith(back)
    assert (place.site / "torchvision" / "_C.so").exists()


@carries_out(fixes.Kind.FIT_TORCH)
@pytest.mark.parametrize("source", ["its metadata", "its symbols"])
def test_the_torch_that_a_package_was_built_for_mends_it(
    place: SickEnvironment, source: str
) -> None:
    place.publish_torch("2.9.1", [ADD])
    place.publish_torch("2.15.0", [ADD, SINCE_213])
    requires = ["torch==2.15.0"] if source == "its metadata" else ["torch"]
    files = {"theirs/_C.so": place.make_extension("1.0", [ADD, SINCE_213])}
    place.publish_wheel("theirs", "1.0", files, requires)
    place.install("torch==2.9.1", "theirs")
    before = place.is_mended("theirs/_C.so", fixes.Kind.FIT_TORCH)
    assert before.command.endswith('"torch==2.15.*"')


SETUP = textwrap.dedent(
    """
    import os, pathlib, setuptools, struct, subprocess, torch
    folder = pathlib.Path(torch.__file__).parent
    version = folder.joinpath("version.py").read_text().split("__version__ = '")[1].split("'")[0]
    old = version.startswith("2.9")
    symbols = ["SYMBOL"] + ["OLD"] * old
    lines = [f'extern char u{i} __asm__("{s}"); void *p{i} = &u{i};' for i, s in enumerate(symbols)]
    arch = os.environ.get("TORCH_CUDA_ARCH_LIST", "8.0").replace(".", "")
    entry = struct.pack("<HHIQ8xHHI8xQ16x", 2, 0x101, 64, 32, 8, 1, int(arch), 17) + bytes(32)
    blob = pathlib.Path("code.bin").resolve()
    blob.write_bytes(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry)
    lines.append(f'__asm__(".section .nv_fatbin,\\\\"a\\\\"\\\\n.incbin \\\\"{blob}\\\\"\\\\n");')
    pathlib.Path("NAME").mkdir(exist_ok=True)
    pathlib.Path("c.c").write_text("\\n".join(lines))
    library = folder / "lib" / "libtorch_cpu.so"
    command = ["gcc", "-w", "-shared", "-fPIC", "c.c", "-o", "NAME/_C.so", "-Wl,--no-as-needed"]
    subprocess.run([*command, f"-L{library.parent}", "-l:libtorch_cpu.so"], check=True)
    setuptools.setup(
        name="NAME", version="2.1.2", packages=["NAME"], package_data={"NAME": ["*.so"]},
        install_requires=[f"torch=={version.split('+')[0]}"],
    )
    """
)


def write_sources(folder: Path, name: str) -> Path:
    """A package that compiles its extension for the torch that is installed."""
    folder.mkdir(parents=True)
    script = SETUP.replace("NAME", name).replace("SYMBOL", ADD).replace("OLD", ONLY_OLD)
    (folder / "setup.py").write_text(script)
    return folder


def publish_sdist(place: SickEnvironment, name: str, *, file: str = "_C.so") -> None:
    folder = write_sources(place.folder / f"{name}-2.1.2", name)
    script = folder / "setup.py"
    script.write_text(script.read_text().replace("_C.so", file))
    (folder / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.1.2\n")
    with tarfile.open(place.index / f"{name}-2.1.2.tar.gz", "w:gz") as archive:
        archive.add(folder, folder.name)


@carries_out(fixes.Kind.COMPILE_PACKAGE)
@pytest.mark.parametrize(
    ("place", "origin"),
    [
        ("uv", "an sdist"),
        pytest.param("pip", "its source folder", marks=pytest.mark.slow),
        pytest.param("pip", "an sdist", marks=pytest.mark.slow),
        pytest.param("uv", "its source folder", marks=pytest.mark.slow),
    ],
    indirect=["place"],
)
def test_a_package_with_sources_is_compiled_for_this_torch(
    place: SickEnvironment, origin: str
) -> None:
    name = "torch_scatter" if origin == "an sdist" else "theirs"
    place.publish_torch("2.9.1", [ADD, ONLY_OLD])
    place.publish_torch("2.13.0+cpu", [ADD])
    place.install("torch==2.9.1")
    if origin == "an sdist":
        publish_sdist(place, name)
        place.install("torch-scatter==2.1.2", options="--no-build-isolation")
    else:
        source = write_sources(place.folder / "a source", name)
        place.install(str(source), options="--no-build-isolation")
    assert place.judge(f"{name}/_C.so").accepted
    place.install("torch==2.13.0+cpu")
    before = place.is_mended(f"{name}/_C.so", fixes.Kind.COMPILE_PACKAGE)
    assert ("--no-binary" in before.command) == (origin == "an sdist")
    assert place.installed_version("torch") == "2.13.0+cpu"


@carries_out(fixes.Kind.COMPILE_PACKAGE)
def test_a_package_that_was_installed_without_its_binaries_is_compiled(
    place: SickEnvironment,
) -> None:
    place.publish_torch("2.13.0+cpu", [ADD])
    place.publish_wheel("torch_scatter", "2.1.2", {"torch_scatter/__init__.py": ""}, ["torch"])
    place.install("torch", "torch-scatter")

    def look() -> dict[str, object]:
        command = "python -m torchship.doctor --json torch-scatter || true"
        report = json.loads(place.type(command, PYTHONPATH=f"{REPO}:{packaging_alone()}"))
        return {row["code"]: row["cause"] for row in report["notices"]}

    before = look()["TD703"]
    publish_sdist(place, "torch_scatter", file="_version_cpu.so")
    place.type(before["command"])  # type: ignore[index]
    assert "TD703" not in look()
    assert (place.site / "torch_scatter" / "_version_cpu.so").is_file()


@carries_out(fixes.Kind.BUILD_FOR_GPU)
def test_a_package_is_compiled_for_this_gpu(place: SickEnvironment) -> None:
    place.publish_torch("2.13.0", [ADD], cuda="13.0")
    place.install("torch")
    publish_sdist(place, "torch_scatter")
    place.install("torch-scatter==2.1.2", options="--no-build-isolation")
    before = place.is_mended("torch_scatter/_C.so", fixes.Kind.BUILD_FOR_GPU, "12.0")
    assert before.command.startswith('TORCH_CUDA_ARCH_LIST="12.0" ')


def test_without_known_sources_no_command_builds_from_them() -> None:
    owner = Owner(name="theirs", version="1.0", libraries={})
    binary = BinaryRecord(path=Path("/x/_C.so"), kind="extension", name="_C.so", owner=owner)
    for fix in (
        fixes.fix_for(fixes.Wrong.MACHINE, binary, make_runtime()),
        fixes.fix_for(fixes.Wrong.BUILD, binary, make_runtime()),
        fixes.build_cuda(binary, make_runtime(), [(9, 0)]),
    ):
        assert fix.command == ""
        assert "--no-binary" not in fix.text


def binary_for_cuda_12(**facts: object) -> BinaryRecord:
    owner = Owner(name="theirs", version="1.0", libraries={}, **facts)
    return BinaryRecord(
        path=Path("/x/_C.so"),
        kind="extension",
        name="_C.so",
        owner=owner,
        needed=("libtorch_cpu.so", "libcudart.so.12"),
        torch_symbols=(ADD,),
    )


@pytest.mark.parametrize("torch", [make_torch("2.15.0", cuda="13.2"), make_torch("2.13.0+cpu")])
def test_a_package_for_cuda_12_gets_the_torch_of_pypi_that_it_was_built_for(
    torch: TorchInstall,
) -> None:
    binary = binary_for_cuda_12(built_for=(((2, 10), "its metadata"),))
    fix = fixes.same_cuda(binary, make_runtime(torch), "12")
    assert fix.command == 'python -m pip install "torch==2.10.*"'


def test_no_torch_of_another_cuda_is_offered() -> None:
    """PyPI's torch 2.11 and later are built for CUDA 13."""
    binary = binary_for_cuda_12(built_for=(((2, 11), "its metadata"),))
    assert (
        fixes.same_cuda(binary, make_runtime(make_torch("2.15.0", cuda="13.2")), "12").command == ""
    )


@carries_out(fixes.Kind.REINSTALL_TORCH)
def test_a_damaged_torch_comes_back_as_the_same_build(place: SickEnvironment) -> None:
    for version in ("2.13.0+cpu", "2.13.0", "2.15.0"):
        place.publish_torch(version, [ADD])
    files = {"theirs/_C.so": place.make_extension("1.0", [ADD])}
    place.publish_wheel("theirs", "1.0", files, ["torch==2.13.0"])
    place.install("torch==2.13.0+cpu", "theirs")
    (place.site / "torch" / "lib" / "libc10.so").write_bytes(b"\x7fELF")
    place.is_mended("theirs/_C.so", fixes.Kind.REINSTALL_TORCH)
    assert place.installed_version("torch") == "2.13.0+cpu"


@pytest.mark.parametrize(
    ("torch", "command"),
    [
        (make_torch("2.13.0+cpu"), '"torch==2.13.0+cpu"'),
        (make_torch("2.13.0"), '"torch==2.13.0"'),
        (make_torch("2.14.0a0+git1"), ""),
        (None, ""),
    ],
)
def test_torch_is_put_back_as_the_build_that_was_there_or_not_at_all(
    torch: object, command: str
) -> None:
    fix = fixes.reinstall_torch(Environment("pip"), torch)  # type: ignore[arg-type]
    assert bool(fix.command) == bool(command)
    assert fix.command.endswith(command)
    assert "--no-deps" in fix.command or not command


@carries_out(fixes.Kind.INSTALL_REQUIREMENT)
def test_an_imported_package_that_is_missing_is_installed(place: SickEnvironment) -> None:
    place.publish_torch("2.13.0", [ADD])
    source = {"theirs/__init__.py": "import einops"}
    place.publish_wheel("theirs", "1.0", source, ["torch==2.13.0", "einops>=0.7"])
    place.publish_wheel("einops", "0.8.0", {"einops/__init__.py": ""})
    place.install("torch", "theirs")
    command = "python -m torchship.doctor --json theirs"
    path = f"{REPO}:{packaging_alone()}"
    report = json.loads(place.type(f"{command} || true", PYTHONPATH=path))
    (cause,) = [row["cause"] for row in report["notices"] if row["state"] == "fails"]
    assert cause["code"] == "TD707"
    place.type(cause["command"])
    place.type(command, PYTHONPATH=path)


@carries_out(fixes.Kind.OPEN_FILE)
@pytest.mark.parametrize("closed", ["the file", "its folder", "a folder 'and\na line' above"])
def test_what_is_closed_to_this_user_is_opened(public_folder: Path, closed: str) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user")
    name = closed if "above" in closed else "above"
    path = shared_object(public_folder / name / "inner" / "_C.so")
    {"the file": path, "its folder": path.parent}.get(closed, path.parents[1]).chmod(0o600)
    code = (
        "import sys; from pathlib import Path; from torchship.judge import fixes\n"
        "try: open(sys.argv[1]).close()\n"
        "except OSError: print(fixes.open_path(Path(sys.argv[1])).command)"
    )
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    # From a folder that everybody may read: this repository may lie in a closed one.
    engine = public_folder / "site" / "torchship"
    shutil.copytree(REPO / "torchship", engine)

    def find_cure() -> str:
        command = [*nobody, sys.executable, "-S", "-c", code, str(path)]
        environment = {
            "PYTHONPATH": f"{engine.parent}:{packaging_alone()}",
            "PATH": "/usr/bin:/bin",
        }
        return subprocess.check_output(command, env=environment, cwd="/", text=True).strip()

    command = find_cure()
    assert command.startswith("chmod a+r")
    assert "\n" not in command
    subprocess.run(["bash", "-c", command], check=True)
    assert find_cure() == ""


@carries_out(fixes.Kind.REMOVE_CACHE)
@pytest.mark.parametrize("cache", ["torch_extensions/py311_cpu", ".triton/cache"])
def test_what_was_compiled_for_another_torch_is_removed_and_compiled_again(
    place: SickEnvironment, cache: str
) -> None:
    """`compile` does what the caches' compilers do: it compiles what is not in the cache."""
    place.publish_torch("2.13.0", [ADD])
    place.install("torch")
    build = place.folder / "a home" / cache / "theirs"
    path = build / ("inner/_C.so" if "triton" in cache else "_C.so")

    def compile_if_absent(symbols: list[str]) -> None:
        if not build.exists():
            path.parent.mkdir(parents=True)
            shutil.copy(place.make_extension("1.0", symbols), path)

    compile_if_absent([ADD, ONLY_OLD])
    before = place.judge(path)
    assert before.kind == fixes.Kind.REMOVE_CACHE.value
    place.type(before.command)
    compile_if_absent([ADD])
    assert "lacks symbols" not in place.judge(path).why


@pytest.mark.rehearsal
@carries_out(fixes.Kind.REMOVE_CACHE)
def test_torch_compiles_again_what_was_removed(tmp_path: Path) -> None:
    """With the real compiler of torch, which takes a stale object for a good one."""
    source = tmp_path / "ext.cpp"
    source.write_text("#include <torch/extension.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n")
    program = (
        "from torch.utils.cpp_extension import load\n"
        f"load('theirs', [{str(source)!r}], extra_cflags=['-O0'])"
    )
    cache = tmp_path / "torch_extensions"
    tools = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    environment = {"PATH": tools, "TORCH_EXTENSIONS_DIR": str(cache), "HOME": str(tmp_path)}

    def loads() -> bool:
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=environment, capture_output=True).returncode == 0

    assert loads()
    path = cache / "theirs" / "theirs.so"
    # As a build for another torch: ninja sees no reason to build again.
    stamp = path.stat()
    path.write_bytes(path.read_bytes().replace(b"libtorch_cpu.so", b"libtorch_cpv.so"))
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert not loads()
    folder = fixes.compiled_at_run_time(Path(tmp_path, "torch_extensions", "py", "theirs", "x.so"))
    assert folder is not None
    os.environ["TORCH_EXTENSIONS_DIR"] = str(cache)
    try:
        found = fixes.compiled_at_run_time(path)
    finally:
        del os.environ["TORCH_EXTENSIONS_DIR"]
    assert found == path.parent
    subprocess.run(["bash", "-c", fixes.remove_folder(found).command], check=True)
    assert loads()


@carries_out(fixes.Kind.INSTALL_ONCE)
def test_what_is_installed_over_itself_is_removed_and_installed_once(
    place: SickEnvironment,
) -> None:
    place.publish_wheel("theirs", "0.9", {"theirs/__init__.py": ""})
    wheel = place.publish_wheel("theirs", "1.0", {"theirs/__init__.py": ""})
    place.install("theirs==0.9")
    aside = (place.site / "theirs-0.9.dist-info").rename(place.folder / "theirs-0.9.dist-info")
    place.install("theirs==1.0")
    aside.rename(place.site / aside.name)
    environment = Environment("pip", source=str(wheel), path=(str(place.site),))
    fix = fixes.install_once(environment, PROJECT._replace(distribution="theirs"))
    by_uv = "uv pip uninstall --python python theirs"
    assert fix.command == ("python -m pip uninstall theirs" if place.has_pip else by_uv)
    for _ in range(2):
        place.type(fix.command)
    assert not [*place.site.glob("theirs*")]
    place.type(fix.text.rpartition(", then ")[2])
    assert [entry.name for entry in place.site.glob("theirs-*")] == ["theirs-1.0.dist-info"]


@carries_out(fixes.Kind.USE_DEFINITION)
def test_the_plain_definition_is_imported_where_there_is_no_binary(
    place: SickEnvironment,
) -> None:
    """The variable keeps the package from loading what is not there."""
    load = "import os\nif os.environ.get('TINY_LOAD') != '0':\n    raise ImportError('no binary')\n"
    definition = "def scale(): ...\n"
    files = {"tiny_client/__init__.py": load, "tiny_client/reference.py": definition}
    place.publish_wheel("tiny_client", "0.1.0", files)
    place.install("tiny_client")
    place.type(fixes.without_binaries(PROJECT).command)


def test_the_command_in_json_can_be_typed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Elsewhere, `~` stands for the home folder, and `$PREFIX` for that of the environment."""
    path = Path(sys.prefix) / "a file"
    finding = Finding(
        dimension="file",
        status=REJECTED,
        observed=str(path),
        needed="a file that this user may read",
        fix=fixes.open_path(path),
    )
    render.print_json(cause=finding)
    cause = json.loads(capsys.readouterr().out)["cause"]
    assert cause["observed"] == "$PREFIX/a file"
    assert cause["command"] == cause["fix"] == f"chmod a+r '{path}'"


def test_a_path_is_one_word_of_a_command() -> None:
    for name in ("a b", "it's", "new\nline", "bell\a", "a\udc80byte", "ü", "\\n"):
        word = quoted(Path("/x") / name)
        assert word.isprintable()
        output = subprocess.check_output(["bash", "-c", f"printf %s {word}"])
        assert output == os.fsencode(f"/x/{name}")
