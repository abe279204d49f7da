"""Where the recorded exchanges are: read in place, beside the project or at `CLEW_CORPUS`."""

from __future__ import annotations

import os
from pathlib import Path

CORPUS = Path(os.environ.get("CLEW_CORPUS", Path(__file__).parents[2] / "../shared/corpus"))
