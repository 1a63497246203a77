"""`pando sim`: from a trace and a pool's manifest to runs, a table and files."""
