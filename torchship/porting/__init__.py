"""`torchship port FOLDER`: what an extension uses of torch, and what of it the stable ABI has.

`tokens.py` cuts sources into tokens, `names.py` finds the names of torch in them, and
`counterparts.py` is the table of what torch's stable ABI has. `report.py` joins them for a folder,
`command.py` prints that.
"""
