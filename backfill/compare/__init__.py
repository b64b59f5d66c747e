"""Stream and batch side by side."""
