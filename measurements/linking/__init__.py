"""Random cases of linking: the checker's verdict beside what the dynamic linker really does."""
