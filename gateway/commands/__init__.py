"""The commands of `howdah`, one module for each family: its arguments, and what it does."""
