"""What replicas that share indexes know of one another: leases, and how long each is silent."""
