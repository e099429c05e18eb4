"""What hostile requests cost, and what the time of a refusal reveals."""
