"""Categories, from the command line."""
