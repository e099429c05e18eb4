"""Encoders with one interface, and controls that ignore meaning."""
