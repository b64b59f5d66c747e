"""What users declare: categories, records, processors, joins, and how each behaves."""
