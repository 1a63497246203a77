-- KEYS leases, parts, loads; ARGV lease.
end_prefill(lease_keys(1), ARGV[1])
