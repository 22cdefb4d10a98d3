"""The helpers of both doors, and operators of every kind, do what torch does.

The properties are computed by kit_program.py, once for each glue.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from processes import Forks
from small_clients import FOLDER, PYTHONPATH, BuiltOnce, glues

TRUE = (
    "every_float8_is_widened_as_torch_does",
    "every_16_bit_float_is_narrowed_as_torch_does",
    "any_bits_and_ends_of_float32_are_narrowed_as_torch_does",
    "integers_bool_and_complex_are_dispatched",
    "copies_are_made_only_where_they_are_needed",
    "another_dtype_is_rounded_as_torch_does",
    "zeros_and_empty_take_a_vector_of_sizes_and_a_dtype",
    "no_copy_records_a_gradient",
    "views_are_those_of_torch",
    "elements_are_read",
    "rows_are_picked_by_a_tensor",
    "random_numbers_follow_torchs_seed",
    "a_seed_is_drawn_without_any_argument",
    "a_factory_without_a_named_device_takes_its_first",
    "meta_tensors_get_results_without_computation",
)
ON_A_GPU = (
    "copies_move_between_devices",
    "factories_make_tensors_on_a_gpu",
    "elements_of_a_gpu_are_read",
)
SAID = {
    "a_dtype_that_is_not_dispatched_is_refused_with_the_accepted": (
        "kit-client: tensors must be float16, bfloat16, float32, float64, float8_e4m3fn, "
        "float8_e5m2 or int16; convert them"
    ),
    "a_factory_refuses_a_device_that_it_does_not_serve": (
        "kit-client: this operator makes tensors on cpu alone"
    ),
    "a_wrong_dtype_is_refused_with_those_that_are_right": (
        "kit-client: x must be float32 or int32, got float64; convert it with x.to(torch.float32)"
    ),
}


# ATen's headers take most of a build's time.
GLUES = [glues()[0], *(pytest.param(glue, marks=pytest.mark.slow) for glue in glues()[1:])]
Results = Callable[[str], dict[str, object]]


def properties_by(
    forked: Forks, program: str, argument: Path, **variables: str
) -> dict[str, object]:
    """What a program prints."""
    env = os.environ | {"PYTHONPATH": PYTHONPATH, **variables}
    process = forked.program(FOLDER / program, str(argument), cwd=argument.parent, env=env)
    assert process.returncode == 0, process.stdout + process.stderr
    properties: dict[str, object] = json.loads(process.stdout)
    return properties


@pytest.fixture(scope="session")
def results(built_once: BuiltOnce, forked: Forks) -> Results:
    """What kit_program.py says of a glue."""

    @cache
    def run(glue: str) -> dict[str, object]:
        root = built_once("kit", glue).folder
        return properties_by(forked, "kit_program.py", root / "lib" / f"glue-{glue}.so")

    return run


UNDER_AUTOCAST = {
    "nothing is cast outside": ["torch.float32", "torch.float64"],
    "float64 stays, float32 is lowered": ["torch.bfloat16", "torch.float64"],
    "a list and float16 are lowered": ["torch.bfloat16", "torch.bfloat16"],
    "integers stay": "torch.int32",
    "bfloat16 is raised": "torch.float32",
    "a disabled block casts nothing": "torch.float32",
    "values are those of a cast": True,
    "gradients": ["torch.float32", [1.0] * 8],
    "compiled": True,
}


def under_autocast(built_once: BuiltOnce, forked: Forks, glue: str) -> dict[str, object]:
    """What autocast_program.py says of a glue, by device."""
    root = built_once("kit", glue).folder
    return properties_by(forked, "autocast_program.py", root, KIT_VARIANT=f"{glue}-cpu")


@pytest.mark.slow  # it compiles a function, for which dynamo is imported
@pytest.mark.parametrize("glue", glues())
def test_autocast_casts_for_the_operators_that_ask_for_it(
    built_once: BuiltOnce, forked: Forks, glue: str
) -> None:
    assert under_autocast(built_once, forked, glue)["cpu"] == UNDER_AUTOCAST


@pytest.mark.cuda
@pytest.mark.parametrize("glue", glues())
def test_autocast_casts_on_a_gpu(built_once: BuiltOnce, forked: Forks, glue: str) -> None:
    assert under_autocast(built_once, forked, glue)["cuda"] == UNDER_AUTOCAST


@pytest.mark.parametrize("glue", GLUES)
@pytest.mark.parametrize("name", TRUE)
def test_it_holds(results: Results, glue: str, name: str) -> None:
    assert results(glue)[name] is True


@pytest.mark.cuda
@pytest.mark.parametrize("glue", glues())
@pytest.mark.parametrize("name", ON_A_GPU)
def test_it_holds_on_a_gpu(results: Results, glue: str, name: str) -> None:
    assert results(glue)[name] is True


@pytest.mark.parametrize("glue", GLUES)
@pytest.mark.parametrize("name", SAID)
def test_it_is_refused(results: Results, glue: str, name: str) -> None:
    assert SAID[name] in str(results(glue)[name])


@pytest.mark.parametrize("glue", GLUES)
def test_views_outside_the_tensor_are_refused(results: Results, glue: str) -> None:
    errors = results(glue)["views_outside_the_tensor_are_refused"]
    assert errors == [
        "kit-client: index 2 of 2 elements is out of range",
        "kit-client: narrow to 1 and the 3 after of 3 elements is out of range",
        "kit-client: dimension 2 of a tensor with 2 dimensions; count them from 0",
    ]
