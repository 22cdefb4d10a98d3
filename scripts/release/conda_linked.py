"""Conda packages of a torch that already lies on the disk: metadata, and a path to the torch.

The bootstrap channel holds one pytorch. Packing every other torch would cost gigabytes and minutes;
a package that links to an environment costs neither, while solver, installation and the process
that loads our binaries are real. Such a package has `linked` in its build string, and works as long
as the environment exists.
"""

from collections.abc import Iterator
from pathlib import Path

from engine.compat.records import TorchInstall
from engine.compat.torch_probe import find_torch
from release.conda_stubs import Stub, cuda_version, exports_of_pytorch, write_channel

LINK = "linked-torch.pth"


def link_torch(folder: Path, env: Path, python: str) -> Path:
    return write_channel(folder, packages(find_torch(env), python))


def packages(torch: TorchInstall, python: str) -> Iterator[Stub]:
    """Its pytorch, with the `cuda-version` that its CUDA build needs.

    PyPI has no CPU builds, so a CUDA build also stands in for one: without a driver it computes on
    the CPU. The build string names both (`cpu_linked_cu128_py311_0`), without the word by which
    CUDA packages know a CUDA build.
    """
    tag = f"py{python.replace('.', '')}_0"
    if torch.cuda is None:
        yield _pytorch(torch, python, f"cpu_linked_{tag}")
        return
    flavour = f"cuda{torch.cuda.replace('.', '')}"
    major = int(torch.cuda.split(".")[0])
    yield cuda_version(torch.cuda)
    needs = ("__cuda", f"cuda-version >={torch.cuda},<{major + 1}")
    yield _pytorch(torch, python, f"{flavour}_linked_{tag}", needs)
    yield _pytorch(torch, python, f"cpu_linked_{flavour.replace('cuda', 'cu')}_{tag}")


def _pytorch(torch: TorchInstall, python: str, build: str, needs: tuple[str, ...] = ()) -> Stub:
    release = torch.version.split("+")[0]
    # Its requirements and PyPI's CUDA libraries lie beside it.
    site = torch.root.resolve().parent
    return Stub(
        "pytorch",
        release,
        build,
        depends=(f"python {python}.*", *needs),
        run_exports=exports_of_pytorch(release),
        files={f"lib/python{python}/site-packages/{LINK}": f"{site}\n"},
    )
