"""The SPDX name of a licence, from what setup.py, a classifier or the text of LICENSE says."""

import re
from collections.abc import Iterable
from pathlib import Path

#: Stands where a repository names no licence; no package with it is published.
NONE = "LicenseRef-NONE-GIVEN"
#: By a pattern in a short name or a classifier, in the order to try them.
_NAMES = {
    r"apache.*2|^apache(?! .*1\.)": "Apache-2.0",
    r"mit\b|expat": "MIT",
    r"bsd.*\b2|simplified bsd": "BSD-2-Clause",
    r"bsd.*\b3|(new|revised|modified) bsd": "BSD-3-Clause",
    r"lgpl.*3|lesser.*v?3": "LGPL-3.0-or-later",
    r"agpl.*3|affero.*3": "AGPL-3.0-or-later",
    r"gpl.*3|general public.*3": "GPL-3.0-or-later",
    r"gpl.*2|general public.*2": "GPL-2.0-or-later",
    r"mpl.*2|mozilla.*2": "MPL-2.0",
    r"unlicense": "Unlicense",
    r"\bisc\b": "ISC",
}
#: By words that only the text of one licence has.
_TEXTS = {
    "Apache License Version 2.0": "Apache-2.0",
    "Permission is hereby granted, free of charge": "MIT",
    "Neither the name": "BSD-3-Clause",
    "Redistribution and use in source and binary forms": "BSD-2-Clause",
    "GNU AFFERO GENERAL PUBLIC LICENSE Version 3": "AGPL-3.0-or-later",
    "GNU LESSER GENERAL PUBLIC LICENSE Version 3": "LGPL-3.0-or-later",
    "GNU GENERAL PUBLIC LICENSE Version 3": "GPL-3.0-or-later",
    "GNU GENERAL PUBLIC LICENSE Version 2": "GPL-2.0-or-later",
    "Mozilla Public License Version 2.0": "MPL-2.0",
    "free and unencumbered software released into the public domain": "Unlicense",
}
_FILE = re.compile(r"(?i)^((un)?licen[cs]e|copying)([._-].*)?$")
_SPDX = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*")


def license_files(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_file() and _FILE.match(path.name))


def spdx_name(said: str, classifiers: Iterable[str], root: Path) -> str:
    """The SPDX name; NONE if the repository names no licence.

    What it names, but no rule knows, becomes a `LicenseRef-`.
    """
    texts = [said] if len(said) > 100 else []
    # The repository's stands beside a project in a folder of it.
    top = next((one for one in (root, *root.parents) if (one / ".git").exists()), root)
    folder = root if license_files(root) else top
    texts += [
        (folder / name).read_text(encoding="utf-8", errors="replace")
        for name in license_files(folder)
    ]
    short = said.strip() if len(said) <= 100 else ""
    if short in {*_NAMES.values(), "0BSD", "Zlib", "BSL-1.0"} or (
        " " in short and _SPDX.fullmatch(short)
    ):
        return short
    from_text = next(filter(None, map(_of_text, texts)), "")
    own = [one for one in classifiers if one.startswith("License ::")]
    from_name = next(filter(None, map(_of_name, [short, *own])), "")
    # "BSD" alone leaves open which; the text says it.
    if from_name or from_text:
        return from_name or from_text
    word = re.sub(r"[^A-Za-z0-9.]+", "-", short).strip("-")
    return f"LicenseRef-{word}" if word else ("LicenseRef-LICENSE" if texts else NONE)


def is_of_family(said: str, spdx: str) -> bool:
    """Whether the short name that a repository says may stand for this SPDX name.

    `BSD` alone does for both licences of this name, and for no other.
    """
    families = ("apache", "mit", "bsd", "lgpl", "agpl", "gpl", "mpl", "isc", "unlicense")
    words = re.sub(r"lesser general public", "lgpl", said.lower())
    named = {family for family in families if re.search(rf"\b{family}", words)}
    return not named or any(family in spdx.lower() for family in named)


def _of_name(name: str) -> str:
    low = name.rpartition("::")[2].strip().lower()
    return next((spdx for pattern, spdx in _NAMES.items() if re.search(pattern, low)), "")


def _of_text(text: str) -> str:
    flat = re.sub(r"\s+", " ", text)
    return next((spdx for words, spdx in _TEXTS.items() if words.lower() in flat.lower()), "")
