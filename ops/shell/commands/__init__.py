"""The commands `config` and `audit`."""
