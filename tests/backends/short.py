"""A script that does one run and ends, as a process of its own."""

from __future__ import annotations

import clew

if __name__ == "__main__":
    clew.configure(service_name="short")
    with clew.run("once"):
        pass
    clew.shutdown()
