"""Reason: code that an old protoc generated, which a newer protobuf refuses."""

from __future__ import annotations

import re

from ...judge.records import Finding
from ...judge.words import codes
from ..environment.standards import normal
from ..fixes.mending import install
from .case import Case

_REFUSED = re.compile(r"Descriptors cannot (?:not )?be created directly")
#: The first release that refuses what protoc before 3.19 generated is 4.21.
_BEFORE = "protobuf<4"


def generated_code_is_refused(case: Case) -> Finding | None:
    if not any(_REFUSED.search(error.message) for error in case.errors):
        return None
    protobuf = case.catalog.named("protobuf")
    if protobuf is None:
        return None
    packages = (case.catalog.of_file(frame.file) for frame in case.frames())
    of_code = (one for one in packages if one is not None and normal(one.name) != "protobuf")
    package = next(of_code, case.subject)
    name = case.name_of(package)
    return case.finding(
        codes.REQUIREMENT_NOT_MET,
        f"{name} holds code that protoc before 3.19 generated, which protobuf "
        f"{protobuf.version} refuses",
        observed=f"protobuf {protobuf.version}",
        needed=_BEFORE,
        fix=install(case.runtime, _BEFORE),
    )
