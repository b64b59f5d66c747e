"""Alerting: rules, active alerts, and notifications about them."""
