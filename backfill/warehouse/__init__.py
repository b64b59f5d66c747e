"""The warehouse: the paths, contents and notes of files by category and day."""
