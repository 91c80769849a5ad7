"""What MkDocs and ProperDocs run of ours, in a fresh clone where nothing of it is installed."""

import sys
from pathlib import Path

# Taken back as soon as this file has run: whatever a build needs is imported here.
sys.path.insert(0, str(Path(__file__).parent / "src"))

from softmax_site.build import on_config, on_files  # noqa: E402, F401
