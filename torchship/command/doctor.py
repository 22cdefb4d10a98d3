"""`torchship doctor`: torch-doctor, with its own grammar."""

from collections.abc import Sequence

from ..doctor import command


def main(arguments: Sequence[str]) -> int:
    return command.main(arguments=arguments, program="torchship doctor")
