"""What a client's package needs at run time: the loader, local builds, the command line."""
