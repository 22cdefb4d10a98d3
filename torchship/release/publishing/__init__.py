"""Publishing: from the `dist` folders of machines to users, and back.

In come `dist` folders; out come one `dist`, files on an index or in a channel, or a version that
is yanked. Begin with `merge.py`, which joins shards. `provenance.py` asks of the result whether its
files are those of the commit; `gathered.py` lists the files of a release on GitHub; `upload.py`
and `take_back.py` are the ways to users and back.
"""
