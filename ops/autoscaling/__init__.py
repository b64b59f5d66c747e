"""How many workers a processor is given."""
