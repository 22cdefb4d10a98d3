"""Every glue beside every torch: what works, and what the checker said before."""
