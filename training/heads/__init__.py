"""Heads on a bundle's vectors: trained by the service, put into the bundle."""
