"""Looks: imports torch and packages in the judged Python, and notes what happened.

In: `Subject`s, each a package with its extensions, and the judged Python (`processes.Python`).
Out: a `Seen` for each import and for each extension. Nothing here says why; `reasons` does.

Begin with `look.py`, which decides what is tried and what is tried again. `seen.py` has the
records, and checks what the other process tells. `import_probe.py` is the program that runs
in the judged Python, `processes.py` starts and ends it, `linker_log.py` reads what the dynamic
linker tells of a failure.
"""
