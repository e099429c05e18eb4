"""Where indexes lie: volumes, leases, manifests, and digests of files."""
