"""Dead letters after their rejection: reading, retrying and dropping."""
