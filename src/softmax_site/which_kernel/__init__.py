"""Which kernel a shape gets, answered by the library's own chooser in the reader's browser.

* `answer`: a question as numbers in, an answer as numbers and words out, in the browser too;
* `micro`: what stands in MicroPython for names that it lacks;
* `page`: what the page shows without a script, and the files that its script loads.

The chooser is a package by itself here, named `chooser`, as it is in the browser: the site is built
where there is no torch.
"""

import importlib.util
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "triton_softmax/config"

_spec = importlib.util.spec_from_file_location("chooser", FOLDER / "__init__.py")
assert _spec and _spec.loader
sys.modules["chooser"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules["chooser"])
