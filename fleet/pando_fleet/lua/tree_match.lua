-- KEYS tree; ARGV path. Returns chunks.
return match(KEYS[1], ARGV[1])
