"""The authors or maintainers of a distribution, of which setuptools has two texts."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.utils import getaddresses


@dataclass(frozen=True)
class Person:
    """A person; one of both may be ""."""

    name: str = ""
    email: str = ""

    def __str__(self) -> str:
        return f"{self.name} <{self.email}>" if self.name and self.email else self.name + self.email

    def toml(self) -> str:
        values = {"name": self.name, "email": self.email}
        pairs = [f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in values.items() if v]
        return f"{{ {', '.join(pairs)} }}"


def people(names: str, emails: str) -> list[Person]:
    """The people whom setup() or PEP 621 named.

    PEP 621's are `Ada <ada@example.org>, Bob <...>` among the addresses, and a name alone, in a
    line of its own, if they have none; an address without a name is that of the name at its place
    among `names`.
    """
    found = [Person(name.strip(), at) for name, at in getaddresses([emails]) if "@" in at]
    bare = [person.email for person in found if not person.name]
    named = [person for person in found if person.name]
    words = [word.strip() for word in names.split(",") if word.strip()]
    if len(words) != len(bare):  # not one for each, so a comma may be part of a name
        words = [line.strip() for line in names.splitlines() if line.strip()]
    known = {person.name for person in named}
    return [*_pairs([word for word in words if word not in known], bare), *named]


def _pairs(names: Iterable[str], emails: list[str]) -> Iterator[Person]:
    rest = iter(emails)
    yield from (Person(name, next(rest, "")) for name in names)
    yield from (Person(email=email) for email in rest)


def people_toml(key: str, persons: Iterable[Person]) -> str:
    """A line of `[project]`."""
    return f"{key} = [{', '.join(person.toml() for person in persons)}]"
