-- KEYS tree; ARGV now or '', path, capacity in chunks.
touch(KEYS[1], ARGV[2], now_ms(ARGV[1]), nil, tonumber(ARGV[3]))
