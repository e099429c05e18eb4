"""Results as Markdown, JSON and plots."""
