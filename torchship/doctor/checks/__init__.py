"""An environment's files, to what reading finds in them.

In come objects, packages and caches of the target; out go verdicts, findings and rows of a report.
Nothing is imported, and nothing is run but the compilers that `--build` asks for their versions.
The rules of the judge, with their checks, are in its own folder `rules`.

Begin with `judging.py`: `judge_package_file` judges an object as part of its package, with its
metadata and its libraries. `torch_loading.py` and `torch_wheels.py` ask whether torch itself would
load, `packages.py` what a package without binaries is, `caches.py` what lies in the caches of
compiled extensions, and `build_check.py` whether an extension can be compiled here.
"""
