"""What is measured: encoders behind one protocol, and controls that know nothing of meaning."""
