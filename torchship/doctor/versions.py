"""Versions and specifiers, as `packaging` decides them."""

from __future__ import annotations

from contextlib import suppress


def satisfies(requirement: str, version: str) -> bool | None:
    """Whether a version meets a requirement such as `torch==2.9.*`; None if that cannot be told.

    A pre-release that is installed counts as pip would count it.
    """
    for load in (_installed, _of_pip):
        with suppress(ImportError):
            return load(requirement, version)
    return None


def _installed(requirement: str, version: str) -> bool | None:
    from packaging import requirements
    from packaging import version as versions

    try:
        specifier = requirements.Requirement(requirement).specifier
        return specifier.contains(versions.Version(version), prereleases=True)
    except (requirements.InvalidRequirement, versions.InvalidVersion):
        return None


def _of_pip(requirement: str, version: str) -> bool | None:
    from pip._vendor.packaging import requirements
    from pip._vendor.packaging import version as versions

    try:
        specifier = requirements.Requirement(requirement).specifier
        return specifier.contains(versions.Version(version), prereleases=True)
    except (requirements.InvalidRequirement, versions.InvalidVersion):
        return None
