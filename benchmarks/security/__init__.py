"""The cost of hostile requests, and the information in the time of a refusal."""
