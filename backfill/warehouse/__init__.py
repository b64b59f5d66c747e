"""Files by category and day: where they lie, what they hold, and what is noted beside them."""
