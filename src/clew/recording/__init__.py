"""Recording model calls: at the tap, on a thread of its own, into the data folder.

- `switch`: the one switch of an installation, flipped by `clew prompt capture`.
- `starting`: watches the switch in a running process, and puts the recorder in its place.
- `recorder`: a bounded queue and the thread that empties it.
- `normal`, `building`: what a finished call becomes: its request and answer in one normal form.
- `sweeper`: retention, at start and then every six hours.

Nothing here is imported while recording is off, except the switch and what watches it.
"""
