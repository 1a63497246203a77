-- KEYS tree; ARGV now or '', path, capacity in chunks.
touch(KEYS[1], ARGV[2], tonumber(ARGV[3]), now_ms(ARGV[1]))
