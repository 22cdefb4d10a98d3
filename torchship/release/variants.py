"""Writes an index of wheel variants (PEP 825, a draft): a wheel for each kind of NVIDIA driver.

An installer that knows variants asks the machine for its driver and takes the one wheel that fits;
other installers take the plain wheel beside them.
"""

import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from . import ReleaseError
from .cells import Cell, all_cells
from .manifest import Manifest, parse, wrong_files
from .pack_steps import true_tag, write_index
from .paths import fresh, publish
from .run import only_run
from .settings import Settings
from .store import relative, source_epoch
from .wheels import Wheel, join, read_wheel

if TYPE_CHECKING:
    from variantlib.models.variant import VariantDescription
    from variantlib.models.variant_info import VariantInfo

NAMESPACE = "nvidia"
FEATURE = "cuda_version_lower_bound"
# The provider of the namespace. uv has its own copy, which answers for this plugin alone.
PROVIDER = "nvidia-variant-provider"
PLUGIN = "nvidia_variant_provider.plugin:NvidiaVariantPlugin"
NO_DRIVER = "null"  # the label that PEP 825 reserves for a variant without properties
DESCRIPTION = "variant.json"  # in a wheel's .dist-info


@dataclass(frozen=True)
class Variant:
    """A wheel variant: its label, and the oldest CUDA version that its driver must know."""

    label: str
    lower_bound: str | None

    @classmethod
    def of(cls, cell: Cell) -> "Variant":
        """The variant that serves the machines of a cell's kernels."""
        if cell.cuda_major is None:
            return cls(label=NO_DRIVER, lower_bound=None)
        return cls(label=cell.device, lower_bound=f"{cell.cuda_major}.0")


def write_variants(settings: Settings, console: Console) -> None:
    """Writes `dist/variants` from the thin wheels of the stable glue that `dist` holds.

    Raises ReleaseError if there is no such wheel, or if one is not as it was made.
    """
    with only_run(settings, console):
        manifest = parse(settings.manifest)
        wheels = _stable_wheels(manifest, settings)
        folder = fresh(settings.temporary / "variants") / settings.project.distribution
        folder.mkdir()
        paths = [
            *_write_wheels(wheels, folder, settings),
            _write_plain_wheel(manifest, wheels, folder, settings),
        ]
        write_index(folder.parent)
        shutil.rmtree(settings.variant_index, ignore_errors=True)
        shutil.move(folder.parent, settings.variant_index)
    for path in paths:
        size = (settings.variant_index / folder.name / path.name).stat().st_size
        console.print(f"{path.name}; {size / 1e6:.2f} MB", markup=False, soft_wrap=True)
    place = relative(settings.variant_index, settings.repo)
    console.print(f"the wheel variants (experimental): {place}", markup=False, soft_wrap=True)


def _stable_wheels(manifest: Manifest, settings: Settings) -> dict[Variant, Wheel]:
    """The packed thin wheels of the stable glue, by the variants that they become."""
    cells = [cell for cell in all_cells(settings.matrix) if cell.stable]
    packed = {name: entry.wheel for name, entry in manifest.cells.items() if entry.packed}
    paths = {Variant.of(cell): packed[cell.name] for cell in cells if cell.name in packed}
    if not paths:
        names = " ".join(cell.name for cell in cells)
        raise ReleaseError(
            f"{settings.dist}: got no thin wheel of the stable glue, needs at least one; run "
            f"scripts/build_all.sh --variants {names}"
        )
    artefacts = [artefact for artefact in manifest.artefacts if artefact.path in paths.values()]
    if problems := wrong_files(artefacts, settings.dist):
        raise ReleaseError(f"{settings.dist}: {problems[0]}; build it again")
    return {
        variant: _require_target(read_wheel(settings.dist / str(path)), settings)
        for variant, path in paths.items()
    }


def _require_target(wheel: Wheel, settings: Settings) -> Wheel:
    """The wheel with the first torch of the stable glue as its oldest torch.

    Its binaries load with no older one, and an installer should say so.
    """
    target = settings.matrix.stable.target
    head, blank, body = wheel.info["METADATA"].partition(b"\n\n")
    head, count = re.subn(
        rb"^Requires-Dist: torch>=[\d.]+$",
        f"Requires-Dist: torch>={target}".encode(),
        head,
        flags=re.MULTILINE,
    )
    if count != 1:
        raise ReleaseError(
            f"{wheel.name} {wheel.version}: METADATA has {count} lines `Requires-Dist: torch>=...`,"
            " needs one; build the wheel again"
        )
    return wheel._replace(info={**wheel.info, "METADATA": head + blank + body})


def _write_wheels(
    wheels: Mapping[Variant, Wheel], folder: Path, settings: Settings
) -> Iterable[Path]:
    """Writes the wheel of each variant, and the description of all of them beside these."""
    try:
        from variantlib.variants_json import VariantsJson
    except ImportError as error:
        raise ReleaseError(
            "--variants needs variantlib, which this Python does not have; pip install variantlib, "
            "or run scripts/build_all.sh, which makes an environment of its own"
        ) from error
    index = VariantsJson(_provider_info())
    paths = []
    for variant, wheel in wheels.items():
        description = _describe(variant)
        index.variants[variant.label] = description
        labelled = wheel.renamed(local=None)
        labelled.info[DESCRIPTION] = _render(description)
        path = labelled.write(folder, epoch=source_epoch(settings))
        paths.append(path.rename(path.with_name(f"{path.stem}-{variant.label}.whl")))
    prefix = "-".join(paths[0].name.split("-")[:2])
    (folder / f"{prefix}-variants.json").write_text(index.to_str() + "\n", encoding="utf-8")
    return paths


def _write_plain_wheel(
    manifest: Manifest, wheels: Mapping[Variant, Wheel], folder: Path, settings: Settings
) -> Path:
    """Puts a wheel beside the variants for installers that do not know them.

    It is the fat wheel if that is whole. Otherwise it holds what the variants hold, as a partial
    fat wheel has a version of its own, which every installer would prefer.
    """
    if manifest.fat and not manifest.partial:
        fat = settings.dist / manifest.fat.path
        if problems := wrong_files([manifest.fat], settings.dist):
            raise ReleaseError(f"{settings.dist}: {problems[0]}; build it again")
        return publish(fat, folder / fat.name)
    parts = fresh(settings.temporary / "variant-parts")
    epoch = source_epoch(settings)
    paths = {variant.label: wheel.write(parts, epoch=epoch) for variant, wheel in wheels.items()}
    joined = join(paths, local=None, platform=settings.platform)
    tagged = joined.renamed(local=None, tag=true_tag(joined, settings.machine))
    return tagged.write(folder, epoch=epoch)


def _provider_info() -> "VariantInfo":
    """Who tells an installer what the properties of our namespace mean on a machine."""
    from variantlib.models.variant_info import ProviderInfo, VariantInfo

    provider = ProviderInfo(requires=[PROVIDER], plugin_api=PLUGIN)
    return VariantInfo(namespace_priorities=[NAMESPACE], providers={NAMESPACE: provider})


def _describe(variant: Variant) -> "VariantDescription":
    from variantlib.models.variant import VariantDescription, VariantProperty

    if variant.lower_bound is None:
        return VariantDescription(label=variant.label)
    bound = VariantProperty(namespace=NAMESPACE, feature=FEATURE, value=variant.lower_bound)
    return VariantDescription(properties=[bound], label=variant.label)


def _render(description: "VariantDescription") -> bytes:
    """The file DESCRIPTION of one variant."""
    from variantlib.api import make_variant_dist_info

    text: str = make_variant_dist_info(
        description, variant_info=_provider_info(), expand_aot_plugin_properties=False
    )
    return text.encode()
