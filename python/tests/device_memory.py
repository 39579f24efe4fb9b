# SPDX-License-Identifier: Apache-2.0
"""What calls leave allocated on a CUDA device."""

from collections.abc import Callable

import torch


def kept_by(call: Callable[[], object]) -> int:
    """Bytes of the device that 10,000 calls take and do not give back.

    The calls before must have taken what is kept for later calls. No other program may use the device.
    """
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    for _ in range(10_000):
        call()
    torch.cuda.synchronize()
    return before - torch.cuda.mem_get_info()[0]
