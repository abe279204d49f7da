"""A script that makes one model call in one run and ends, as a process of its own."""

from __future__ import annotations

import sys

import httpx

import clew

if __name__ == "__main__":
    clew.configure(service_name="short")
    clew.instrument()
    body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Hello"}]}
    with clew.run("once"), httpx.Client(trust_env=False) as client:
        client.post(f"{sys.argv[1]}/chat/completions", json=body).raise_for_status()
    clew.shutdown()
