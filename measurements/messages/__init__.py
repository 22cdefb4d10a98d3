"""How well pasted messages are explained, on messages out of public threads."""
