"""Runs the GitHub workflows of a repository on this machine, to find what breaks in them.

    python -m measurements.rehearsal                      this repository's workflows
    python -m measurements.rehearsal FOLDER release.yml   one workflow of another repository
    python -m measurements.rehearsal --stand-ins          what is not the real thing

Each job gets a clean clone of the repository's last commit, and runs its `run:` steps unchanged and
in order under `bash -e`, on each occasion on which GitHub would start its workflow. What needs
GitHub is a stand-in, and each of these is named. Begin with `rehearsal.py`.

rehearsal    the clones, the occasions in turn, and what came of them
occasions    when GitHub starts a workflow
runner       the jobs of a workflow in order, and the steps of a job
machine      what a job runs on: its clone, its programs, its variables
actions      the stand-ins of actions
programs     the stand-ins of programs
forge        what GitHub and PyPI know, in a folder
workflow     a workflow's YAML as records
expressions  the `${{ ... }}` of a workflow, evaluated
"""
