"""Environments out of public reports: what the doctor says of each, and what really happens."""
