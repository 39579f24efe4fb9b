# SPDX-License-Identifier: Apache-2.0
"""The NumPy reference lies with the package's other tests."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests"))
