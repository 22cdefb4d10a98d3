"""Wheels that are not installed, to which of them work.

In come paths and addresses; out goes a verdict on each wheel. Nobody trusts these files yet, so
what is fetched, unpacked and read of them has bounds of its own.

Begin with `choose.py`, which looks for the best of several wheels for this environment, or with
`audit.py`, which says to authors which environments a wheel will serve. `unpacking.py` reads the
name and the members of a wheel; `remote.py` fetches the parts of one on a server.
"""
