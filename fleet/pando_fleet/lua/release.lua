-- KEYS leases, parts, loads; ARGV lease.
end_lease(lease_keys(1), ARGV[1])
