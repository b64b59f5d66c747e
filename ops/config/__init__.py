"""Configuration: one TOML file per environment. Variables and flags take precedence; secrets are never printed."""
