-- KEYS tree; ARGV path, depth in chunks.
cut(KEYS[1], ARGV[1], tonumber(ARGV[2]))
