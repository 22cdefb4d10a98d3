"""Builds a small client just in time and prints what happened as JSON; the tests run it.

    jit_program.py STEP ...

Every step adds one entry to the answer: what it returned, or the text of its BuildError.
"""

import concurrent.futures
import json
import os
import sys
import warnings
from pathlib import Path

if "aot" not in sys.argv:
    os.environ["TINY_LOAD"] = "0"

import tiny_client
import tiny_client.jit
import torch
from tiny_client.engine.builder import BuildError

warnings.simplefilter("ignore")


def attempt(**arguments):
    try:
        return str(tiny_client.jit.load(**arguments).paths[0])
    except BuildError as error:
        return str(error)


def threads():
    """The folders that eight threads at once get."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(attempt) for _ in range(8)]
        return sorted({future.result() for future in futures})


def computes_right():
    """Whether the op does what its definition does; imported as the documentation says."""
    from tiny_client import reference, scale

    values = torch.linspace(-2, 3, 5000)
    return torch.equal(scale(values, 1.5), reference(values, 1.5))


def public_names():
    """Those of the package that are not there, or are modules in the place of what they hold."""
    values = {name: getattr(tiny_client, name) for name in tiny_client.__all__}
    return [name for name, value in values.items() if isinstance(value, type(sys))]


def broken_compiler():
    """A build with a compiler that tells its version and compiles nothing."""
    script = Path("broken-c++").resolve()
    script.write_text(
        '#!/bin/sh\ncase $1 in -*v*) exec c++ "$@" ;; esac\necho out of order\nexit 1\n'
    )
    script.chmod(0o755)
    os.environ["CXX"] = str(script)
    try:
        return attempt()
    finally:
        del os.environ["CXX"]


STEPS = {
    "aot": lambda: tiny_client.__file__,
    "broken_compiler": broken_compiler,
    "load": attempt,
    "load_verbose": lambda: attempt(verbose=True),
    "load_other": lambda: attempt(with_cuda=False),
    "load_cuda": lambda: attempt(with_cuda=True),
    "computes_right": computes_right,
    "public_names": public_names,
    "threads": threads,
}
answer = {step: STEPS[step]() for step in sys.argv[1:]}
print("ANSWER " + json.dumps(answer))
