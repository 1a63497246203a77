"""The control loop: reads the world, decides, plans, acts and tells; one task a pool."""
