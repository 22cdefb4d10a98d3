"""What a new torch changes: measured from a release, and written into every table of ours."""
