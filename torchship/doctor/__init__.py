"""Which torch extensions of an environment work, and if one does not: why, and what to do.

`judge_file` judges an extension as part of the package that owns it; what is true of the file
alone, the package `judge` says. Begin reading at `command.py`.
"""

from .checks.judging import judge_package_file as judge_file

__all__ = ["judge_file"]
