"""Taps: where Clew listens. One file for each client library."""
