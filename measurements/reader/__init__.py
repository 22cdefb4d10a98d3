"""What hostile files cost the reader of the checker."""
