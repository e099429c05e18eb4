"""Export cross-encoders: models that score a query and a text together."""
