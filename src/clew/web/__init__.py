"""`clew serve`: an OTLP/HTTP receiver and the viewer, over one local store.

- `receiver`: `POST /v1/traces` (and `/v1/metrics`, `/v1/logs`, which are accepted and dropped).
- `pages`: the list of runs and the timeline; each page has a JSON twin.
- `views`: what all pages share; `parameters` reads what an address asks for.
- `templates` and `static`: each page names the style sheets and scripts that it uses; those of
  `base.html` are on all of them.
- `guard`: the Host check and the security headers, around everything.
- `server`: starts all of it in a background thread.
"""
