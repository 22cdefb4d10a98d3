"""nvcc's flags of a project, for a clang that compiles its CUDA kernels instead."""

from collections.abc import Sequence

from .programs import BuildError

#: What clang needs no flag for, or has no counterpart that changes the result.
_LEFT_OUT = {
    "--expt-relaxed-constexpr",
    "-expt-relaxed-constexpr",
    "--expt-extended-lambda",
    "-expt-extended-lambda",
    "--extended-lambda",
    "-extended-lambda",
    "-lineinfo",
    "--generate-line-info",
}
_COUNTERPARTS = {
    "--use_fast_math": "-ffast-math",
    "-use_fast_math": "-ffast-math",
    "--fmad=false": "-ffp-contract=off",
    "-fmad=false": "-ffp-contract=off",
    "--fmad=true": "-ffp-contract=fast",
    "-fmad=true": "-ffp-contract=fast",
}
#: The flags whose value is the next word, or stands after `=`, with the option of clang for it;
#: None for flags that are left out.
_WITH_VALUE = {
    "-Xcompiler": (),
    "--compiler-options": (),
    "-Xptxas": ("-Xcuda-ptxas",),
    "--ptxas-options": ("-Xcuda-ptxas",),
    "--threads": None,
    "-t": None,
    "--split-compile": None,
}
#: The flags that clang and nvcc spell alike.
_ALIKE = ("-O", "-D", "-U", "-W", "-f", "-g", "-m")


def clang_flags(flags: Sequence[str]) -> list[str]:
    """The flags of clang that mean what these flags of nvcc mean.

    Raises BuildError for a flag without a counterpart.
    """
    result: list[str] = []
    words = iter(flags)
    for word in words:
        name, _, value = word.partition("=")
        if word in _COUNTERPARTS:
            result.append(_COUNTERPARTS[word])
        elif name in _WITH_VALUE:
            value = value or next(words, "")
            before = _WITH_VALUE[name]
            parts = [] if before is None else value.split(",")
            result += [piece for part in parts for piece in (*(before or ()), part)]
        elif word in _LEFT_OUT:
            continue
        elif word.startswith(_ALIKE):
            result.append(word)
        else:
            raise BuildError(
                f"`build:` gives the CUDA kernels nvcc's flag {word}, for which clang has no "
                "counterpart, and clang compiles them here, since there is no nvcc of this CUDA "
                "major; set CUDA_HOME to a toolkit with nvcc, or remove the flag"
            )
    return result
