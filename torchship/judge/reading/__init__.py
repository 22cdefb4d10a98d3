"""One file, to what it says of itself.

In comes the path of a shared object, and the budget of a run; out goes a `BinaryRecord`, whatever
the file holds. Nothing is loaded, and nothing of the machine is looked at.

Begin with `binary.py`: `read_binary` makes the record. `elf.py` reads the headers, the symbols and
the versions of an ELF file, `fatbin.py` the GPU code in it. `layouts.py` has what was measured of
torch's classes, with the symbols of each release in `symbols.json`; `named_torch.py` finds a
release of torch in the name of a file.
"""
