"""The matrix: what is built, for whom, and with which tools.

In comes `build_matrix.yaml`; out come its checked values for one platform (`Matrix`), the cells
(`Cell`), the `Settings` of a run, and every file that is generated from the matrix.

Begin with `schema.py`, which says what the file may hold, then `cells.py`. `load.py` reads the
file, `settings.py` adds the folders of the project, and `generated.py` writes what follows.
"""
