"""Compares a port of diff-gaussian-rasterization with upstream's own build, on a GPU.

    UPSTREAM=DIR python -m pytest measurements/porting/check_gaussians.py

Upstream has no tests of its own. DIR is its folder as published, with glm in third_party/glm; its
extension is compiled by torch.utils.cpp_extension. The port is the installed package. Results must
be equal, and gradients, which atomic additions sum in any order, close to equal.
"""

import math
import os
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

diff_gaussian_rasterization = pytest.importorskip("diff_gaussian_rasterization")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

POINTS = 3000
HEIGHT = 136
WIDTH = 200
FIELD_OF_VIEW = 1.2
#: Of the spherical harmonics.
DEGREE = 3


@pytest.fixture(scope="module")
def upstream() -> ModuleType:
    from torch.utils.cpp_extension import load

    folder = Path(os.environ["UPSTREAM"])
    sources = ("ext.cpp", "rasterize_points.cu", *_kernels(folder))
    module: ModuleType = load(
        "upstream_gaussians",
        [str(folder / source) for source in sources],
        extra_cuda_cflags=[f"-I{folder / 'third_party/glm'}"],
    )
    return module


def _kernels(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in sorted(folder.glob("cuda_rasterizer/*.cu"))]


@pytest.fixture(scope="module")
def scene() -> dict[str, Tensor]:
    torch.manual_seed(0)
    directions = torch.randn(POINTS, 4)
    tensors = {
        "means": torch.rand(POINTS, 3) * torch.tensor([4.0, 3.0, 5.0]) - torch.tensor([2, 1.5, -1]),
        "opacities": torch.rand(POINTS, 1),
        "scales": torch.rand(POINTS, 3) * 0.1 + 0.01,
        "rotations": directions / directions.norm(dim=1, keepdim=True),
        "harmonics": torch.randn(POINTS, (DEGREE + 1) ** 2, 3) * 0.3,
        "background": torch.tensor([0.1, 0.2, 0.3]),
        "view": torch.eye(4),
        "projection": projection(),
        "camera": torch.zeros(3),
    }
    return {name: tensor.cuda() for name, tensor in tensors.items()}


def projection(near: float = 0.01, far: float = 100.0) -> Tensor:
    """What projects row vectors to the image."""
    tangent = math.tan(FIELD_OF_VIEW / 2)
    matrix = torch.zeros(4, 4)
    matrix[0, 0] = 1 / tangent
    matrix[1, 1] = 1 / tangent
    matrix[2, 2] = far / (far - near)
    matrix[3, 2] = -far * near / (far - near)
    matrix[2, 3] = 1.0
    return matrix


def forward_arguments(scene: dict[str, Tensor]) -> tuple[object, ...]:
    tangent = math.tan(FIELD_OF_VIEW / 2)
    none = torch.empty(0)
    return (
        scene["background"],
        scene["means"],
        none,
        scene["opacities"],
        scene["scales"],
        scene["rotations"],
        1.0,
        none,
        scene["view"],
        scene["projection"],
        tangent,
        tangent,
        HEIGHT,
        WIDTH,
        scene["harmonics"],
        DEGREE,
        scene["camera"],
        False,
        False,
    )


def backward_arguments(
    scene: dict[str, Tensor], result: tuple[object, ...], weights: Tensor
) -> tuple[object, ...]:
    """The arguments for the gradients of a forward call's result, the image weighted so."""
    count, _, radii, geometry, binning, image = result
    tangent = math.tan(FIELD_OF_VIEW / 2)
    none = torch.empty(0)
    return (
        scene["background"],
        scene["means"],
        radii,
        none,
        scene["scales"],
        scene["rotations"],
        1.0,
        none,
        scene["view"],
        scene["projection"],
        tangent,
        tangent,
        weights,
        scene["harmonics"],
        DEGREE,
        scene["camera"],
        geometry,
        count,
        binning,
        image,
        False,
    )


def settings(scene: dict[str, Tensor]) -> object:
    tangent = math.tan(FIELD_OF_VIEW / 2)
    return diff_gaussian_rasterization.GaussianRasterizationSettings(
        image_height=HEIGHT,
        image_width=WIDTH,
        tanfovx=tangent,
        tanfovy=tangent,
        bg=scene["background"],
        scale_modifier=1.0,
        viewmatrix=scene["view"],
        projmatrix=scene["projection"],
        sh_degree=DEGREE,
        campos=scene["camera"],
        prefiltered=False,
        debug=False,
    )


def render(scene: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    rasterizer = diff_gaussian_rasterization.GaussianRasterizer(settings(scene))
    color, radii = rasterizer(
        means3D=scene["means"],
        means2D=torch.zeros_like(scene["means"]),
        opacities=scene["opacities"],
        shs=scene["harmonics"],
        scales=scene["scales"],
        rotations=scene["rotations"],
    )
    return color, radii


def test_images_are_equal(upstream: ModuleType, scene: dict[str, Tensor]) -> None:
    count, color, radii, *_ = upstream.rasterize_gaussians(*forward_arguments(scene))
    ours, our_radii = render(scene)
    assert count > POINTS
    assert (color - scene["background"][:, None, None]).abs().amax() > 0.1
    assert torch.equal(ours, color)
    assert torch.equal(our_radii, radii)


def test_gradients_are_close(upstream: ModuleType, scene: dict[str, Tensor]) -> None:
    names = ("opacities", "means", "harmonics", "scales", "rotations")
    leaves = {name: scene[name].clone().requires_grad_() for name in names}
    color, _ = render(scene | leaves)
    weights = torch.randn_like(color)
    (color * weights).sum().backward()

    result = upstream.rasterize_gaussians(*forward_arguments(scene))
    gradients = upstream.rasterize_gaussians_backward(*backward_arguments(scene, result, weights))
    _, _, opacities, means, _, harmonics, scales, rotations = gradients
    theirs = (opacities, means, harmonics, scales, rotations)
    for name, gradient in zip(names, theirs, strict=True):
        ours = leaves[name].grad
        assert ours is not None
        assert gradient.abs().amax() > 0, name
        torch.testing.assert_close(
            ours, gradient, rtol=1e-3, atol=1e-4 * float(gradient.abs().amax())
        )


def test_the_same_points_are_visible(upstream: ModuleType, scene: dict[str, Tensor]) -> None:
    rasterizer = diff_gaussian_rasterization.GaussianRasterizer(settings(scene))
    points = scene["means"] - torch.tensor([0, 0, 3.0], device="cuda")
    visible = upstream.mark_visible(points, scene["view"], scene["projection"])
    assert 0 < int(visible.sum()) < POINTS
    assert torch.equal(rasterizer.markVisible(points), visible)


def test_a_size_that_no_int_holds_is_refused(scene: dict[str, Tensor]) -> None:
    arguments = list(forward_arguments(scene))
    arguments[12] = 2**32 + HEIGHT
    with pytest.raises(RuntimeError, match="outside the range"):
        torch.ops.diff_gaussian_rasterization.rasterize_gaussians(*arguments)
