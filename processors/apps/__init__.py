"""Apps: their files, their modules and their processors."""
