"""Ships an op: the checker, the builder, the loader, local builds. It knows no op."""
