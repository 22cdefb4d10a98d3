"""The pages of the site; `_ext` has the programs that build it and write parts of it."""
