"""What a hostile file, its package and its folder may cost the checker, and whose word counts."""

from __future__ import annotations

import grp
import json
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from costs import cost_of, in_child
from hostile_files import MEGABYTES, SECONDS, SECONDS_ANY_SIZE
from hostile_packages import (
    FOR_THIS_TORCH,
    HOSTILE_METADATA,
    HOSTILE_RECORDS,
    HOSTILE_WHEELS,
    KINDS_OF_PLACES,
    METADATA_PLACES,
    SYMBOL,
    costly_siblings,
    distribution,
    many_members,
    package_of_libraries,
    plain_wheel,
    replace_file,
    symbols_times_libraries,
    with_conda_metadata,
    with_editables,
    with_egg_links,
    with_large_origin,
    with_spellings,
    write_wheel,
    zipped,
)
from made_facts import unread
from packaging_alone import packaging_alone
from shared_objects import fake_torch, shared_object
from small_client import PROJECT

from torchship.doctor import examine, judge_file
from torchship.doctor.checks.judging import judge_package_file_in_run
from torchship.doctor.command import main as doctor
from torchship.doctor.environment import owner
from torchship.judge import Runtime, find_torch, probe_runtime, target
from torchship.judge.budget import Budget
from torchship.judge.machine.torch_probe import TorchNotFoundError
from torchship.judge.records import UNKNOWN
from torchship.judge.target import Target
from torchship.judge.text import read_json, read_regular
from torchship.judge.words import codes


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    """A fake torch 2.9.1 in tmp_path/torch-site, so that its site folder is none of the test's."""
    root = fake_torch(tmp_path / "torch-site", "2.9.1", exports=[SYMBOL])
    return probe_runtime(find_torch(root), gpu=False)


#: Of each kind, those that take two seconds; the others are in the default tests.
COSTLY = {"as many folders", "100 editables of the whole disk", "200 egg-links to one folder"}
#: What may be under way when a budget ends, in seconds.
UNDER_WAY = 1.5


def seconds_to_judge(path: Path, runtime: Runtime) -> Callable[[], float]:
    """In a child of its own: the processor seconds of a judgement with a budget of SECONDS, which
    must end in no error."""

    def judge() -> float:
        start = time.process_time()
        runtime.target.budget = Budget(SECONDS)
        judge_package_file_in_run(path, runtime)
        return time.process_time() - start

    return judge


# Point 5: time is bounded by a budget.


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.slow
def test_5_symbols_times_libraries_stay_in_the_bounds(
    distinct: bool, tmp_path: Path, runtime: Runtime
) -> None:
    """400 DT_NEEDED and 30,000 symbols, of one name or of as many."""
    path = symbols_times_libraries(tmp_path, distinct=distinct)
    assert path.stat().st_size < 2 << 20
    cost = cost_of(seconds_to_judge(path, runtime), allowed=SECONDS + UNDER_WAY)
    assert cost.seconds < SECONDS + UNDER_WAY
    assert cost.megabytes < MEGABYTES


@pytest.mark.parametrize(
    ("spent", "cost"),
    [
        (Budget(seconds=0.0), "0 s of processor time in all"),
        (Budget(megabytes=0), "0 MB in all"),
    ],
    ids=["time", "bytes"],
)
def test_5_where_the_budget_is_spent_nothing_can_be_told(
    spent: Budget, cost: str, tmp_path: Path, runtime: Runtime
) -> None:
    path = shared_object(tmp_path / "x.so", undefined=[SYMBOL])
    runtime.target.budget = spent
    verdict = judge_package_file_in_run(path, runtime)
    assert not verdict.accepted
    assert verdict.cause is not None
    assert (verdict.cause.status, verdict.cause.code) == (UNKNOWN, codes.BUDGET_SPENT)
    assert f"takes more than {cost}, so it was given up" in verdict.cause.why
    assert judge_file(path, runtime).rejection is not None, "the next run has a budget of its own"


@pytest.mark.parametrize("shape", ["chain", "ring", "clique"])
def test_5_each_library_of_a_package_is_judged_once(
    shape: str, tmp_path: Path, runtime: Runtime
) -> None:
    path = package_of_libraries(tmp_path, shape, 20)
    cost = cost_of(seconds_to_judge(path, runtime), allowed=SECONDS + UNDER_WAY)
    assert cost.seconds < SECONDS + UNDER_WAY
    assert cost.megabytes < MEGABYTES


@pytest.mark.parametrize("requires", HOSTILE_METADATA.values(), ids=HOSTILE_METADATA)
def test_5_metadata_of_200_kb_costs_little(requires: str, tmp_path: Path, runtime: Runtime) -> None:
    site = tmp_path / "site-packages"
    path = shared_object(site / "theirs" / "_C.so", undefined=[SYMBOL])
    distribution(site, "theirs", path, requires=requires)
    cost = cost_of(seconds_to_judge(path, runtime), allowed=SECONDS + UNDER_WAY)
    assert cost.seconds < SECONDS + UNDER_WAY
    assert cost.megabytes < MEGABYTES


@pytest.mark.slow
def test_5_a_folder_under_many_names_is_not_listed_for_each(
    tmp_path: Path, runtime: Runtime
) -> None:
    path = Path(str(in_child(lambda: str(with_spellings(tmp_path)))))
    cost = cost_of(seconds_to_judge(path, runtime), allowed=SECONDS + UNDER_WAY)
    assert cost.seconds < SECONDS + UNDER_WAY
    assert cost.megabytes < MEGABYTES


#: Whose a file is must be known to say that nothing can be told of it, so a list is read to its end
#: before the clock is asked: some 20 microseconds and one kilobyte for each of a hundred thousand.
LISTING = 2.5
LISTING_MEGABYTES = 60


def _slow(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if name in COSTLY else []


@pytest.mark.parametrize(
    "record",
    [pytest.param(record, id=name, marks=_slow(name)) for name, record in HOSTILE_RECORDS.items()],
)
@pytest.mark.slow
def test_5_a_record_of_2_mb_costs_little(record: str, tmp_path: Path, runtime: Runtime) -> None:
    site = tmp_path / "site-packages"
    path = shared_object(site / "theirs" / "_C.so", undefined=[SYMBOL])
    info = distribution(site, "theirs", path)
    (info / "RECORD").write_text(record)
    cost = cost_of(seconds_to_judge(path, runtime), allowed=SECONDS + UNDER_WAY + LISTING)
    assert cost.seconds < SECONDS + UNDER_WAY + LISTING
    assert cost.megabytes < MEGABYTES + LISTING_MEGABYTES


@pytest.mark.slow
def test_5_libraries_that_cost_no_lookup_end_in_time(tmp_path: Path, runtime: Runtime) -> None:
    """To read the GPU code of one takes 0.1 s or more; nothing in it is looked up."""
    cost = cost_of(
        seconds_to_judge(costly_siblings(tmp_path, 150), runtime), allowed=SECONDS + UNDER_WAY
    )
    assert cost.seconds < SECONDS + UNDER_WAY


HOSTILE_SITES: dict[str, Callable[[Path], Path]] = {
    "8 MB of small values in direct_url.json": with_large_origin,
    "40 such files in conda-meta": lambda folder: with_conda_metadata(folder, 40),
    "100 editables of the whole disk": lambda folder: with_editables(folder, 100),
    "200 egg-links to one folder": lambda folder: with_egg_links(folder, 200),
}


@pytest.mark.parametrize(
    "make",
    [pytest.param(make, id=name, marks=_slow(name)) for name, make in HOSTILE_SITES.items()],
)
def test_5_what_a_whole_site_folder_tells_stays_in_the_bounds(
    make: Callable[[Path], Path], tmp_path: Path, runtime: Runtime
) -> None:
    path = Path(str(in_child(lambda: str(make(tmp_path)))))
    cost = cost_of(seconds_to_judge(path, runtime), allowed=SECONDS + UNDER_WAY)
    assert cost.seconds < SECONDS + UNDER_WAY
    assert cost.megabytes < MEGABYTES


def test_5_a_report_on_many_hostile_files_ends_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is left when the processor time is spent is said to be unknown, file by file."""
    monkeypatch.setattr(examine, "Budget", lambda: Budget(0.0))
    for number in range(3):
        shared_object(tmp_path / f"lib{number}.so", undefined=[SYMBOL])
    assert doctor(PROJECT, ["--json", str(tmp_path)]) == 0
    extensions = json.loads(capsys.readouterr().out)["extensions"]
    assert [extension["state"] for extension in extensions] == ["unknown"] * 3


# Point 6: only folders that count, and only bounded regular files.


def voucher(site: Path, runtime: Runtime) -> Path:
    """An object of `site` that only its metadata's word makes acceptable."""
    assert runtime.torch is not None
    libraries = [runtime.torch.lib_dir / "libtorch_cpu.so"]
    path = shared_object(site / "theirs" / "_C.so", undefined=[SYMBOL], libraries=libraries)
    distribution(site, "theirs", path, requires=FOR_THIS_TORCH)
    return path


def test_6_metadata_in_a_site_folder_vouches(tmp_path: Path, runtime: Runtime) -> None:
    assert judge_file(voucher(tmp_path / "site-packages", runtime), runtime).accepted


@pytest.mark.parametrize("name", ["scratch", "site-packages"])
def test_6_metadata_in_a_folder_that_others_may_write_to_does_not(
    name: str, tmp_path: Path, runtime: Runtime
) -> None:
    path = voucher(tmp_path / name, runtime)
    (tmp_path / name).chmod(0o1777)
    assert owner.find_owner(Target(), path) is None
    assert not judge_file(path, runtime).accepted


GROUPS = {
    "of root alone": ("root", [], True),
    "of root, who is named in it": ("root", ["root"], True),
    "of root and somebody else": ("root", ["root", "mallory"], False),
    "of several users": ("lab", ["alice", "mallory"], False),
    "of a name that is no user's": ("users", [], False),
}


def set_group(monkeypatch: pytest.MonkeyPatch, name: str, members: list[str]) -> None:
    """Give every group of the machine this name and these members."""
    entry = grp.struct_group((name, "x", 1234, members))
    monkeypatch.setattr(owner.grp, "getgrgid", lambda _: entry)


@pytest.mark.parametrize(("name", "members", "counts"), GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("place", ["", "theirs-1.0.dist-info"])
@pytest.mark.parametrize("mode", [0o775, 0o2775])
def test_6_metadata_that_a_group_may_write_counts_if_the_group_is_one_user(
    *,
    mode: int,
    place: str,
    name: str,
    members: list[str],
    counts: bool,
    tmp_path: Path,
    runtime: Runtime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = voucher(tmp_path / "site-packages", runtime)
    (tmp_path / "site-packages" / place).chmod(mode)
    set_group(monkeypatch, name, members)
    assert (owner.find_owner(Target(), path) is not None) is counts
    assert judge_file(path, runtime).accepted is counts


def test_6_the_group_of_a_user_of_the_same_name_is_private(
    tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = voucher(tmp_path / "site-packages", runtime)
    (tmp_path / "site-packages").chmod(0o775)
    user = pwd.getpwuid(os.getuid())
    alice = pwd.struct_passwd(("alice", *user[1:]))
    monkeypatch.setattr(owner.pwd, "getpwuid", {os.getuid(): alice, 0: alice}.__getitem__)
    set_group(monkeypatch, "alice", ["alice"])
    assert owner.find_owner(Target(), path) is not None


def test_6_an_unknown_group_may_be_anybody(
    tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = voucher(tmp_path / "site-packages", runtime)
    (tmp_path / "site-packages").chmod(0o775)
    monkeypatch.setattr(owner.grp, "getgrgid", {}.__getitem__)  # raises KeyError, as for no group
    assert owner.find_owner(Target(), path) is None


@pytest.mark.parametrize("mode", [0o775, 0o2775, 0o1775])
@pytest.mark.parametrize("metadata", ["dist-info", "conda-meta"])
def test_6_a_shared_site_folder_of_this_python_counts(
    metadata: str,
    mode: int,
    tmp_path: Path,
    runtime: Runtime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a shared conda environment: its group decides what this Python executes anyway."""
    folder = tmp_path / "site-packages"
    path = voucher(folder, runtime)
    if metadata == "conda-meta":
        shutil.rmtree(folder / "theirs-1.0.dist-info")
        package = {
            "name": "theirs",
            "version": "1.0",
            "files": ["theirs/_C.so"],
            "depends": ["pytorch ==2.9.1"],
        }
        (folder / "conda-meta").mkdir(mode=0o775)
        (folder / "conda-meta" / "theirs.json").write_text(json.dumps(package))
        monkeypatch.setattr(sys, "prefix", str(folder))
    else:
        monkeypatch.setattr(target.site, "getsitepackages", lambda: [str(folder)])
    folder.chmod(mode)
    set_group(monkeypatch, "lab", ["alice", "bob"])
    assert judge_file(path, runtime).accepted
    folder.chmod(mode | 0o002)
    assert not judge_file(path, unread(runtime)).accepted


def test_6_metadata_that_others_may_write_does_not(tmp_path: Path, runtime: Runtime) -> None:
    """Its site folder is closed to them."""
    path = voucher(tmp_path / "site-packages", runtime)
    (tmp_path / "site-packages" / "theirs-1.0.dist-info").chmod(0o777)
    assert owner.find_owner(Target(), path) is None
    assert not judge_file(path, runtime).accepted


def test_6_metadata_in_a_parent_that_is_no_site_folder_does_not(
    tmp_path: Path, runtime: Runtime
) -> None:
    assert not judge_file(voucher(tmp_path / "scratch", runtime), runtime).accepted


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_6_metadata_in_a_folder_of_another_user_does_not(tmp_path: Path, runtime: Runtime) -> None:
    path = voucher(tmp_path / "site-packages", runtime)
    assert owner.find_owner(Target(), path) is not None
    os.chown(tmp_path / "site-packages", 12345, 12345)
    assert owner.find_owner(Target(), path) is None


@pytest.mark.parametrize("name", METADATA_PLACES)
@pytest.mark.parametrize("kind", KINDS_OF_PLACES)
def test_6_what_is_no_bounded_regular_file_neither_hangs_nor_bloats(
    kind: str, name: str, tmp_path: Path, runtime: Runtime
) -> None:
    site = tmp_path / "site-packages"
    path = voucher(site, runtime)
    replace_file(site / name, kind)
    cost = cost_of(seconds_to_judge(path, runtime), allowed=SECONDS + UNDER_WAY)
    assert cost.seconds < SECONDS + UNDER_WAY
    assert cost.megabytes < MEGABYTES


DAMAGED_METADATA = {
    "files of numbers": ("conda-meta/t.json", '{"files": [1, null, {}]}'),
    "files that are a number": ("conda-meta/t.json", '{"files": 5}'),
    "a name that is a list": (
        "conda-meta/t.json",
        '{"files": ["theirs/_C.so"], "name": [], "version": {}, "depends": [1]}',
    ),
    "depends that is a number": (
        "conda-meta/t.json",
        '{"files": ["theirs/_C.so"], "name": "t", "version": "1", "depends": 1}',
    ),
    "nested JSON": ("conda-meta/t.json", "[" * 100_000),
    "an editable without a url": (
        "theirs-1.0.dist-info/direct_url.json",
        '{"dir_info": {"editable": true}}',
    ),
    "a url that is a list": (
        "theirs-1.0.dist-info/direct_url.json",
        '{"dir_info": {"editable": true}, "url": []}',
    ),
    "a url with a zero byte": (
        "theirs-1.0.dist-info/direct_url.json",
        '{"dir_info": {"editable": true}, "url": "file:///a%00b"}',
    ),
    "dir_info that is a number": (
        "theirs-1.0.dist-info/direct_url.json",
        '{"dir_info": 1, "url": "file:///"}',
    ),
    "an egg-link with a zero byte": ("theirs.egg-link", "a\0b"),
    "an egg-link with a pattern": ("**.egg-link", "/"),
    "a RECORD with a zero byte": ("theirs-1.0.dist-info/RECORD", "a\0b.so,,\ntheirs/_C.so,,\n"),
    "no name": ("theirs-1.0.dist-info/METADATA", "Version: 1.0\n\n"),
    "empty metadata": ("theirs-1.0.dist-info/METADATA", ""),
}


@pytest.mark.parametrize(("name", "content"), DAMAGED_METADATA.values(), ids=DAMAGED_METADATA)
def test_6_damaged_metadata_is_no_crash(
    name: str, content: str, tmp_path: Path, runtime: Runtime
) -> None:
    site = tmp_path / "site-packages"
    path = voucher(site, runtime)
    (site / name).parent.mkdir(exist_ok=True)
    (site / name).write_text(content)
    judge_file(path, runtime)
    owner.distributions(runtime.target, site)


def test_6_an_editable_of_the_whole_disk_is_not_walked_to_the_end(
    tmp_path: Path, runtime: Runtime
) -> None:
    site = tmp_path / "site-packages"
    path = voucher(site, runtime)
    origin = {"dir_info": {"editable": True}, "url": "file:///"}
    (site / "theirs-1.0.dist-info" / "direct_url.json").write_text(json.dumps(origin))
    start = time.process_time()
    owner.find_owner(Target(), path)
    assert time.process_time() - start < SECONDS_ANY_SIZE


def test_6_one_reader_of_bounded_regular_files(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc" * 1000)
    assert read_regular(path, 4) == b"abca"
    os.mkfifo(tmp_path / "fifo")
    for other in (tmp_path / "fifo", tmp_path, Path("/dev/zero"), tmp_path / "none"):
        with pytest.raises(OSError):
            read_regular(other, 4)
        assert read_json(other) == {}
    with pytest.raises(OSError, match="null"):
        read_regular("a\0b", 4)


@pytest.mark.skipif(os.geteuid() != 0, reason="root starts this as a user for whom it is closed")
def test_6_a_closed_folder_on_the_path_is_no_crash(tmp_path: Path, public_folder: Path) -> None:
    closed = public_folder / "closed"
    (closed / "inner" / "conda-meta").mkdir(parents=True)
    closed.chmod(0)
    program = (
        "import sys; from torchship.doctor.command import main;"
        "from torchship.judge.project import NOBODY; sys.exit(main(NOBODY, ['--json']))"
    )
    repository = Path(__file__).resolve().parents[3]
    run = subprocess.run(
        [
            *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
            *(sys.executable, "-S", "-c", program),
        ],
        capture_output=True,
        text=True,
        cwd=public_folder,
        env={
            "PYTHONPATH": f"{closed}:{closed / 'inner'}:{repository}:{packaging_alone()}",
            "PATH": "/usr/bin:/bin",
        },
    )
    assert run.returncode == 2, run.stderr  # there is no torch
    assert json.loads(run.stdout)["extensions"] == []


# Point 7: --audit, --torch, links and paths.


@pytest.mark.parametrize("make", HOSTILE_WHEELS.values(), ids=HOSTILE_WHEELS)
def test_7_a_hostile_wheel_is_an_answer_and_no_traceback(
    make: Callable[[], bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / "theirs-1.0-py3-none-any.whl"
    wheel.write_bytes(make())
    assert doctor(PROJECT, ["--audit", str(wheel)]) in (1, 2)
    assert not (tmp_path / "x.so").exists()
    printed = capsys.readouterr()
    assert "is not a wheel" in printed.err or "problem: " in printed.out


def test_7_a_wheel_that_is_a_fifo_is_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "x.whl")
    assert doctor(PROJECT, ["--audit", str(tmp_path / "x.whl")]) == 2
    assert "is not a wheel" in capsys.readouterr().err


def test_7_a_wheel_that_unpacks_to_more_than_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torchship.doctor.wheels import unpacking

    assert unpacking._MAX_UNPACKED <= 2_000_000_000
    monkeypatch.setattr(unpacking, "_MAX_UNPACKED", 10_000_000)
    wheel = tmp_path / "theirs-1.0-py3-none-any.whl"
    wheel.write_bytes(zipped({f"theirs/lib{number}.so": bytes(3 << 20) for number in range(4)}))
    assert wheel.stat().st_size < 100_000
    assert doctor(PROJECT, ["--audit", str(wheel)]) == 2
    assert "unpacks to more than" in capsys.readouterr().err


def test_7_a_list_of_members_without_end_is_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each member of 47 bytes takes 350 bytes of memory."""
    wheel = write_wheel(tmp_path, lambda: many_members(500_000))
    cost = cost_of(lambda: float(doctor(PROJECT, ["--audit", str(wheel)])))
    assert cost.megabytes < MEGABYTES
    assert doctor(PROJECT, ["--audit", str(wheel)]) == 2
    assert "its list of members has more than 20 MB" in capsys.readouterr().err


def test_7_what_the_audit_does_not_read_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchship.doctor.wheels import unpacking

    monkeypatch.setattr(unpacking, "_MAX_UNPACKED", 10_000_000)
    wheel = tmp_path / "theirs-1.0-py3-none-any.whl"
    wheel.write_bytes(zipped({"theirs/data.bin": bytes(30 << 20), **plain_wheel()}))
    assert doctor(PROJECT, ["--audit", str(wheel)]) == 0


def test_7_an_audit_whose_time_is_spent_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torchship.doctor.wheels import audit

    assert audit._SECONDS < 30
    monkeypatch.setattr(audit, "_SECONDS", 0.0)
    wheel = tmp_path / "theirs-1.0-py3-none-any.whl"
    wheel.write_bytes(zipped({"theirs/_C.so": bytes(1000), **plain_wheel()}))
    assert doctor(PROJECT, ["--audit", str(wheel)]) == 2
    assert "cannot be audited" in capsys.readouterr().err


def test_7_a_musllinux_wheel_that_needs_glibc_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = shared_object(
        tmp_path / "_C.so",
        undefined=["aoti_torch_get_dim"],
        flags=["-include", "stdio.h", "-Wl,--no-as-needed", "-lm", "-lc"],
    )
    if "GLIBC" not in owner_floors(path):
        pytest.skip("the compiler writes no version needs")
    wheel = tmp_path / "theirs-1.0-py3-none-musllinux_1_2_x86_64.whl"
    wheel.write_bytes(zipped({"theirs/_C.so": path.read_bytes(), **plain_wheel()}))
    assert doctor(PROJECT, ["--audit", str(wheel)]) == 1
    assert "promises musl" in " ".join(capsys.readouterr().out.split())


def owner_floors(path: Path) -> dict[str, tuple[int, ...]]:
    from torchship.judge import read_binary

    return dict(read_binary(path).floors)


def test_7_a_torch_that_is_a_fifo_is_an_answer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "version.py")
    with pytest.raises(TorchNotFoundError):
        find_torch(tmp_path)
    assert doctor(PROJECT, ["--torch", str(tmp_path / "version.py")]) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="root starts this as a user for whom it is closed")
@pytest.mark.slow
def test_7_a_link_into_a_closed_folder_is_an_answer(public_folder: Path) -> None:
    closed = public_folder / "closed"
    shared_object(closed / "x.so", undefined=[SYMBOL])
    closed.chmod(0)
    site = public_folder / "open"
    site.mkdir(mode=0o755)
    (site / "link.so").symlink_to(closed / "x.so")
    child = os.fork()
    if child == 0:
        code = 9
        try:
            os.setgid(65534)
            os.setuid(65534)
            judge_file(site / "link.so", probe_runtime(gpu=False))
            code = doctor(PROJECT, [str(site / "link.so")]) + doctor(PROJECT, [str(site)])
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in (2, 3)


@pytest.mark.slow
def test_7_a_path_beyond_4096_bytes_is_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = str(tmp_path) + "/d" * 3000 + "/x.so"
    verdict = judge_file(long, probe_runtime(gpu=False))
    assert verdict.rejection is not None
    assert "File name too long" in verdict.rejection.observed
    for arguments in ([long], ["--torch", long], ["--audit", long], ["x" * 300 + ".so"]):
        assert doctor(PROJECT, arguments) == 2, arguments
    assert len(capsys.readouterr().err) < 60_000
