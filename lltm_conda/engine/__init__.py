"""The parts of torchship that the package needs: in a checkout, the folder `torchship` itself.

A wheel has a copy of them here instead of this file.
"""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parents[2] / "torchship")]
