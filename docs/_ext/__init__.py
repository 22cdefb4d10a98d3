"""What builds the site, and what writes tables and pictures of its pages from data."""
