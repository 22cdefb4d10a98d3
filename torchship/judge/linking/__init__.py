"""An object, to what the dynamic linker would do with it after `import torch`.

In come the record of a file, the torch and the target; out goes an `Opening`: the files that would
be loaded, each with its header, the libraries and symbols that would be missing, and what else the
linker would mind.

Begin with `after_torch.py`: `link` asks for one object. `process.py` models a process: what it has
loaded, and what loading one more object would do. `search.py` has the rules by which glibc finds
a library, and the facts that it reads in a file; `glibc.py` what the linker of this machine says of
itself: its subfolders for processors, and its tokens.
"""
