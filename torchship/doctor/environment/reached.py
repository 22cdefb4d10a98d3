"""Which of the shared objects Python reaches: it takes one module of a name, which may hide others.

What is hidden is never judged as used. Where the module in front has objects of its own, those are
judged. Where it has none, nothing serves in the place of the hidden ones, and whoever needs them
fails.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...judge.project import Record
from ...judge.records import NOTHING
from ...judge.target import Target
from .catalog import tops_of
from .installed import Reach, distributions_in
from .owner import is_shared_object_name, shared_objects


class Reached(Record, kw_only=True):
    """The shared objects of an environment, by what Python takes."""

    files: tuple[Path, ...]  #: to be judged
    hidden: Mapping[Path, Path] = NOTHING  #: those that are not judged, and what hides each
    #: Of `files`: those that are hidden by a module without objects, and that module.
    lacking: Mapping[Path, Path] = NOTHING
    modules_in_front: Mapping[Path, str] = NOTHING  #: of `files`: the objects of what hides others


def reach_of(target: Target, places: Mapping[str, tuple[Path, ...]] = NOTHING) -> Reach:
    """What Python takes for a file; `places` are those that it told, by the module."""
    return Reach(map(Path, filter(None, target.search_path())), places)


def sort_out(
    target: Target,
    files: Sequence[Path],
    named: Sequence[Path],
    reach: Reach,
    *,
    is_looking: bool,
) -> Reached:
    """Sort files by what Python takes; `named` are the paths that the user gave, which are judged
    whatever hides them. Only a look can tell that a hidden file is missed."""
    hiding: dict[Path, Path] = {}
    for file in files:
        place = (
            None if any(one == file or one in file.parents for one in named) else reach.hiding(file)
        )
        if place is not None:
            hiding[file] = place
    reached = dict.fromkeys(file for file in files if file not in hiding)
    lacking: dict[Path, Path] = {}
    in_front: dict[Path, str] = {}
    for file, place in hiding.items():
        own = _objects_in(place)
        in_front.update((one, reach.module_of(file)) for one in own if one not in reached)
        if is_looking and not own and not _is_installed(target, place):
            lacking[file] = place
    # A module in front may be made of links to the files themselves.
    judged = set(map(os.path.realpath, (*in_front, *lacking)))
    return Reached(
        files=(*reached, *in_front, *lacking),
        hidden={f: place for f, place in hiding.items() if os.path.realpath(f) not in judged},
        lacking=lacking,
        modules_in_front=in_front,
    )


def _objects_in(place: Path) -> list[Path]:
    if place.is_dir():
        return shared_objects(place)
    return [place] if is_shared_object_name(place.name) else []


def _is_installed(target: Target, place: Path) -> bool:
    """Whether a module belongs to a distribution: it is then judged as what it is."""
    top = place.name.partition(".")[0]
    return any(top in tops_of(target, one.place) for one in distributions_in(target, place.parent))
