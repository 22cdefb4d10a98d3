"""Compares what `torchship port` says of three public extensions with what their own ports did.

    python -m measurements.porting.compare_ports causal-conv1d=DIR xformers=DIR ao=DIR

DIR is a clone with the commits of PORTS; that of causal-conv1d is fetched as `refs/pull/102/head`.
Writes measurements/results/porting.json, and the table of docs/ship/porting.md.
"""

import argparse
import io
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from measurements import storage
from torchship.porting.counterparts import Status
from torchship.porting.report import Report, Row, read_folder
from torchship.porting.tokens import Kind, tokenize

RESULT = storage.RESULTS / "porting.json"
PAGE = Path(__file__).parents[2] / "docs/ship/porting.md"


@dataclass(frozen=True)
class Port:
    """Two commits of a public repository: before and after its authors ported a folder."""

    name: str
    repository: str
    source: str
    before: str
    after: str
    folder: str
    #: Folders that the authors left as they were.
    left_out: tuple[str, ...] = ()


PORTS = (
    Port(
        name="causal-conv1d",
        repository="causal-conv1d",
        source="Dao-AILab/causal-conv1d, pull request 102",
        before="0d2252d161f25f7907bbd05985c08ab98d255874",
        after="2a0671137c948b798f7dbeddb91ae48bdfc66594",
        folder="csrc",
    ),
    Port(
        name="xformers",
        repository="xformers",
        source="facebookresearch/xformers, 6d6e6f0a and a6991050",
        before="6d6e6f0a07e5771b40b0814adac7f07aae946beb^",
        after="a6991050a1fd7f39c5ee68256718427bdacec46b",
        folder="xformers/csrc",
        left_out=("hip_fmha", "hip_decoder"),
    ),
    Port(
        name="torchao, MXFP8",
        repository="ao",
        source="pytorch/ao, pull request 3610",
        before="aa9be6836a2623507106eed065a4e0b043533eb5^",
        after="aa9be6836a2623507106eed065a4e0b043533eb5",
        folder="torchao/csrc/cuda/mx_kernels",
    ),
    Port(
        name="torchao, sparse CUTLASS",
        repository="ao",
        source="pytorch/ao, pull request 3725",
        before="df0fde39fb5204d1b343bbe3443bd2954c818ae4^",
        after="df0fde39fb5204d1b343bbe3443bd2954c818ae4",
        folder="torchao/csrc/cuda/rowwise_scaled_linear_sparse_cutlass",
    ),
)


@dataclass(frozen=True)
class Comparison:
    """A report on the sources before the port, held against the sources after it."""

    name: str
    source: str
    files: int
    uses: int
    #: Uses of names that have a counterpart, and of those whose counterpart the port uses.
    with_counterpart: int
    confirmed: int
    #: Uses of names without a counterpart, and of those that the port has no more.
    without: int
    gone: int
    #: Uses that are still to port afterwards, and the stable ones.
    left: int
    stable: int
    torch: str
    #: The names that the port turned into something else than the report says.
    otherwise: list[str]
    #: What the port uses of the stable ABI that the report does not name.
    unforeseen: list[str]


def export(clone: Path, commit: str, folder: str, target: Path) -> Path:
    archive = subprocess.run(
        ["git", "-C", str(clone), "archive", commit, folder], capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(target, filter="data")
    return target / folder


def names_in(folder: Path, report: Report) -> set[str]:
    """The names that stand in the sources of a report."""
    files = {place.file for row in report.rows for place in row.places}
    return {
        token.text
        for file in files
        for token in tokenize((folder / file).read_text(encoding="utf-8", errors="replace"))
        if token.kind is Kind.NAME
    }


def last_name(spelling: str) -> str:
    names: list[str] = re.findall(r"\w+", spelling.partition("<")[0])
    return names[-1]


def uses(rows: list[Row]) -> int:
    return sum(row.count for row in rows)


def compare(port: Port, clone: Path) -> Comparison:
    with tempfile.TemporaryDirectory() as name:
        before = export(clone, port.before, port.folder, Path(name, "before"))
        after = export(clone, port.after, port.folder, Path(name, "after"))
        said = read_folder(before, port.left_out)
        done = read_folder(after, port.left_out)
        names = names_in(after, done)
    foretold = said.having(Status.COUNTERPART, Status.DISPATCHER)
    confirmed = [row for row in foretold if last_name(row.counterpart.stable) in names]
    without = said.having(Status.WAY_ROUND, Status.UNKNOWN)
    remaining = {row.name for row in done.rows if row.counterpart.status is not Status.STABLE}
    expected = {last_name(row.counterpart.stable) for row in foretold}
    known = {last_name(row.name) for row in said.having(Status.STABLE)}
    return Comparison(
        name=port.name,
        source=port.source,
        files=said.files,
        uses=said.to_port,
        with_counterpart=uses(foretold),
        confirmed=uses(confirmed),
        without=uses(without),
        gone=uses([row for row in without if row.name not in remaining]),
        left=done.to_port,
        stable=done.count(Status.STABLE),
        torch=done.torch,
        otherwise=[f"{row.name} ({row.count})" for row in foretold if row not in confirmed],
        unforeseen=[
            row.name
            for row in done.having(Status.STABLE)
            if last_name(row.name) not in expected | known
        ],
    )


def table(comparisons: list[Comparison]) -> Iterator[str]:
    titles = (
        "extension",
        "uses of torch",
        "have a counterpart",
        "of these, the port uses it",
        "have none",
        "of these, gone",
    )
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"
    for each in comparisons:
        share = each.with_counterpart / each.uses
        yield (
            f"| {each.name} | {each.uses} | {each.with_counterpart} ({share:.0%}) | "
            f"{each.confirmed} ({each.confirmed / each.with_counterpart:.0%}) | "
            f"{each.without} | {each.gone} |"
        )


def load() -> list[Comparison]:
    stored = storage.load(RESULT)
    assert isinstance(stored, list)
    return [Comparison(**record) for record in stored]


def drawn(page: str, comparisons: list[Comparison]) -> str:
    """The page with the table of the comparisons between its marks."""
    begin = "<!-- ports:begin -->\n"
    end = "<!-- ports:end -->\n"
    before, _, rest = page.partition(begin)
    after = rest.partition(end)[2]
    return before + begin + "\n".join(table(comparisons)) + "\n" + end + after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clones", nargs="*", metavar="NAME=DIR")
    options = parser.parse_args()
    if options.clones:
        clones = dict(clone.split("=", 1) for clone in options.clones)
        measured = [compare(port, Path(clones[port.repository])) for port in PORTS]
        storage.save([asdict(each) for each in measured], RESULT)
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8"), load()), encoding="utf-8")


if __name__ == "__main__":
    main()
