"""Ships an op: the checker, the builder, the loader, local builds. No op is in this package."""
