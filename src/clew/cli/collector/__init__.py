"""Collector configurations, generated from the allow-list."""
