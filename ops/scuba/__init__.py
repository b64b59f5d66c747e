"""Scuba: the newest events of categories as columns, for questions that are not known in advance.

category --Ingester--> rows that the sample keeps --FlatColumns--> Arrow --ScubaStore--> segments in DuckDB
HTTP, page, terminal --ExploreQuery or a SELECT--> Explorer --> the same segments, in the same process
"""
