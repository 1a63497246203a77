-- KEYS tree; ARGV path. Returns chunks.
return match(KEYS[1], ARGV[1], first_probes(ARGV[1], 0))
