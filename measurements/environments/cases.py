"""The environments that people reported, as written down before the doctor saw any of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from ruamel.yaml import YAML

PATH = Path(__file__).with_name("cases.yaml")


@dataclass(frozen=True)
class Case:
    """One report, and how its environment is made again."""

    name: str
    thread: str
    """The address of the report."""
    report: str
    """What the report says, in a sentence."""
    torch: str
    """The key of `TORCHES` beside which the environment is made."""
    load: str
    """The Python code that works or fails."""
    works: bool
    """Whether the code works, by the report."""
    causes: tuple[str, ...] = ()
    """The codes of the doctor that name the cause of the report; () where the code works."""
    make: str = ""
    """The commands, in bash, that turn an environment with torch alone into the reported one."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The variables under which the code and the doctor run."""
    is_of_new_kind: bool = True
    """Whether nothing of its kind stood in the issue or the tests while the doctor was mended."""
    is_mended_for: bool = False
    """Whether the doctor was changed because of it: its first verdict, cause or fix was wrong, or
    it had no command."""
    needs_network: bool = False
    """Whether it installs packages."""
    needs_root: bool = False


def read(path: Path = PATH) -> list[Case]:
    """Read the cases. Raises ValueError if one has an unknown field, or a name occurs twice."""
    known = {item.name for item in fields(Case)}
    cases: dict[str, Case] = {}
    for entry in YAML(typ="safe").load(path.read_text(encoding="utf-8")):
        unknown = entry.keys() - known
        if unknown or entry.get("name") in cases:
            raise ValueError(f"{path}: {entry.get('name')}: {unknown or 'a second case so named'}")
        cases[entry["name"]] = Case(**{**entry, "causes": tuple(entry.get("causes", ()))})
    return list(cases.values())
