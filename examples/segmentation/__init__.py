# SPDX-License-Identifier: Apache-2.0
"""What examples/train_ddp.py trains, on which batches, and how far it scales."""
