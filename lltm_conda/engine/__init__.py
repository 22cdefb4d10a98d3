"""The parts of torchship that the package needs, which a build copies into this folder."""

from pathlib import Path

if not Path(__file__).with_name("judge").is_dir():  # a bare checkout
    from torchship.engine import stand_in

    stand_in(__name__)
