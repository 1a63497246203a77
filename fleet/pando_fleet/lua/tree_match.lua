-- KEYS tree; ARGV path. Returns chunks.
return search(KEYS[1], ARGV[1], EVER)
