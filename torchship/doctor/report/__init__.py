"""Decisions and findings, to what is printed.

In come what was decided of each object and what is to be said of packages; out goes a report as
blocks, rows, JSON, Markdown or annotations of GitHub.

Begin with `rows.py`: a row is what is said of one object, package or folder. `report.py` holds the
rows of an environment and its forms for programs; `blocks.py` is the form for people, `forms.py`
names all of them. `allowances.py` reads the list of failures that are allowed.
"""
