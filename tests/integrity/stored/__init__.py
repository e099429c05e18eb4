"""Stores that former versions wrote."""
