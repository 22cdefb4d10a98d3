"""The placeholders of a project whose author has not said who he is."""

from collections.abc import Iterator
from pathlib import Path

from .licenses import NONE
from .render import AUTHOR, YEAR

#: Who reads these sees an author and addresses.
_FILES = ("LICENSE", "CITATION.cff", "pyproject.toml", "build_matrix.yaml")
_PEOPLE = (AUTHOR, YEAR, NONE)
_ADDRESS = "://example.org"  # a domain that nobody can have (RFC 2606)


def find_placeholders(root: Path, *, is_public: bool = True) -> Iterator[str]:
    """A sentence for each placeholder in the files of the project `root`.

    An address that nobody can have stops only what goes to a public index.
    """
    for name in _FILES:
        path = root / name
        if not path.is_file():
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        for placeholder in (*_PEOPLE, *((_ADDRESS,) if is_public else ())):
            numbers = [str(n) for n, line in enumerate(lines, 1) if placeholder in line]
            if numbers:
                yield f"{name}, line {', '.join(numbers)}: {placeholder} stands for yours; write it"
