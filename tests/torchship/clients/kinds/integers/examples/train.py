"""Counts the letters of a text; fails where the counts are wrong."""

import torch

from own_op import tally

letters = torch.tensor(list(b"mississippi"), dtype=torch.uint8)
counts, first = tally(letters, 128)
assert (counts[ord("s")], counts[ord("p")], first[ord("p")]) == (4, 2, 8)
