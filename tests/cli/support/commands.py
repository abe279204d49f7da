"""What a command is to a test."""

from collections.abc import Callable

Clew = Callable[..., tuple[int, str, str]]
"""Runs the command line with these arguments: exit code, stdout, stderr."""
