#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The shards of `voxconv verify` hold every selected case once, and are of one size.
#   verify_shards_test.sh VOXCONV
set -euo pipefail

voxconv=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$voxconv" verify --backend cpu --quick --list > "$work/all"
[[ -s $work/all ]]
for i in 1 2 3 4 5 6 7; do
  "$voxconv" verify --backend cpu --quick --list --shard $i/7 > "$work/$i"
  awk -v i=$i 'NR % 7 == i % 7' "$work/all" | diff - "$work/$i"
done
# More shards than cases: some are empty, which is no error.
"$voxconv" verify --backend cpu --filter coords/ --shard 9999/9999 > "$work/none"
[[ $(tail -n 1 "$work/none") == '0 passed, 0 failed, 0 skipped' ]]
