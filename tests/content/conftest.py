"""Makes the formats of the leak suite importable: the same bodies, read on purpose here."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "privacy" / "support"))
