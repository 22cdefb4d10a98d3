"""The judged environment: which distributions it has, whose a file is, and what they require.

In comes `sys.path` of the judged Python. Out come records: a `Distribution` for each installed
name, the `Owner` of a file, the requirements that hold here, the tags that a wheel may have.

Begin with `metadata.py`, the one module that reads what installers wrote: METADATA, RECORD,
WHEEL, `.egg-info`, `.egg-link`, editable installs and conda-meta. `installed.py` says which of
several copies Python uses, `owner.py` whose a file is, and `built_for.py` for which torch.
`standards.py` is the door to `packaging`, which alone decides what a version, a specifier, a
marker, a tag or a name means.
"""
