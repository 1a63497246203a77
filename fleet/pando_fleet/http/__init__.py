"""What clients see alike of routers and workers: the form of errors, and requests' ids."""
