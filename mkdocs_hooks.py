"""What MkDocs and ProperDocs run of ours, in a fresh clone where nothing of it is installed."""

import sys
from pathlib import Path

# Taken back as soon as this file has run: whatever a build needs is imported here.
sys.path.insert(0, str(Path(__file__).parent / "src"))

from softmax_site.build import (  # noqa: E402, F401
    on_config,
    on_env,
    on_files,
    on_nav,
    on_page_content,
    on_page_context,
    on_post_build,
    on_post_page,
    on_post_template,
    on_startup,
)
