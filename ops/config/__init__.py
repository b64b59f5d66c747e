"""Configuration: one TOML file for an environment, below variables and flags; checked whole, with secrets never shown."""
