# SPDX-License-Identifier: Apache-2.0
"""The NumPy reference lies with the package's other tests."""

import pathlib
import sys

import torch

# Tensors are small. On a busy machine many threads wait for each other at the end of each operation.
torch.set_num_threads(min(2, torch.get_num_threads()))
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests"))
