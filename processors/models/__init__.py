"""Pydantic models as records and states. Only an app with models imports pydantic."""
