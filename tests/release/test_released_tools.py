"""The tools that are released with the package: torchship and torch-doctor, in which forms."""

from __future__ import annotations

from torchship.release.steps.tools.tools import chosen_tools, paths_of


def test_torchship_and_the_doctor_are_released_with_the_package(settings) -> None:
    tools = chosen_tools([], None, settings)
    version = settings.project.version
    assert {tool.name: paths_of(tool, settings) for tool in tools} == {
        "torchship": [
            f"simple/torchship/torchship-{version}-py3-none-any.whl",
            f"channel/noarch/torchship-{version}-py_0.conda",
            f"channel/noarch/torchship-release-{version}-py_0.conda",
        ],
        "torch-doctor": [
            f"simple/torch-doctor/torch_doctor-{version}-py3-none-any.whl",
            "torch-doctor.pyz",
            f"channel/noarch/torch-doctor-{version}-py_0.conda",
        ],
    }
