"""Runs the GitHub workflows on this machine: every `run:` step unchanged, with named stand-ins for
the rest.

    python measurements/rehearse.py                every workflow, on every occasion
    python measurements/rehearse.py --stand-ins    what is not the real thing
    python measurements/rehearse.py --prove 10     also faults and changes; stores all

expressions   the `${{ ... }}` of a workflow, evaluated
workflow      a workflow's YAML as records
machine       the machine of a job: its folders, and the programs that call back to the stand-ins
stand_ins     the register of stand-ins of programs
programs      those of other people's programs
own_programs  those of this repository's
actions       the stand-ins of actions
forge         what GitHub, PyPI and the registry of images know
prebuilt      small true artefacts, where a build would take minutes
runner        runs the jobs of a workflow in order
rehearsal     all of it, on all occasions
occasions     when a workflow runs, and what must have come of it
source        a clone that a maintainer releases
true_files    the artefacts of a version of it, for users
faults        what may happen to a release between its jobs, drawn by seed
mutations     single-token changes of a workflow, drawn by seed
"""
