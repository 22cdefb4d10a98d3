"""Other people's shared objects: what the checker says of them, and what happens when they load."""
