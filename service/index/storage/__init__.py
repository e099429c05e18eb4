"""The storage of indexes: volumes, leases, manifests, and digests of files."""
