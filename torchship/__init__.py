"""The tools that ship an op: checker, builder, loader, local builds. The op itself is elsewhere."""
