"""What a process says of itself while it works: one line for each thing, for people or for programs."""
