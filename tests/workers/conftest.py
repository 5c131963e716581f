"""Makes the toys and the small policy runs importable: pytest's importlib mode adds nothing to the path."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "pipelines")]
