"""`pando up`: a whole fleet on this machine, its processes kept alive and ended together."""
