"""Telling somebody when something is wrong: rules, what they have come to, and where that is sent."""
