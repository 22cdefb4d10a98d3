"""The run: does the tasks of a plan, reuses what is still valid, and writes the manifest.

In comes a `Plan`; out come the files of `dist`, and `manifest.json`, which says of each how it was
made. Begin with `release.py`, the whole of a run. `tasks.py` does the tasks, several at a time;
`store.py` knows what has changed; `collect.py` joins what the steps say into the `Manifest` of
`manifest.py`; `listing.py` shows all of it.
"""
