"""The site's part in a build by MkDocs or ProperDocs: the Markdown extension and the data files.

`mkdocs_hooks.py` offers these functions, so that a plain `mkdocs build` or `mkdocs serve` finds
them wherever the repository lies.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from softmax_site import markdown, rendered


def on_config(config):
    """Add the Markdown extension, which needs to know where the repository is."""
    root = str(Path(config.config_file_path).parent)
    config.markdown_extensions.append(markdown.__name__)
    config.mdx_configs[markdown.__name__] = {"root": root}
    return config


def on_files(files, config):
    """Add the charts, tables and colours that follow from the measurements."""
    file: Any = type(next(iter(files)))  # of MkDocs or of ProperDocs, whichever runs
    for path, text in rendered.load(Path(config.config_file_path).parent).assets.items():
        files.append(file.generated(config, path, content=text))
    return files
