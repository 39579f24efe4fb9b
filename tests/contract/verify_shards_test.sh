#!/usr/bin/env bash
# The shards of `voxconv verify` hold every selected case once.
#   verify_shards_test.sh VOXCONV
set -euo pipefail

list() { "$1" verify --backend cpu --quick --list "${@:2}"; }
diff <(list "$1" | sort) <(for i in 1 2 3 4 5 6 7; do list "$1" --shard $i/7; done | sort)
# More shards than cases: some are empty, which is no error.
"$1" verify --backend cpu --filter coords/ --shard 9999/9999 | tail -n 1 |
  grep -qx '0 passed, 0 failed, 0 skipped'
