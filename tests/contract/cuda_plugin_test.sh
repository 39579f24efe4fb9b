#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Loads the plugin warp_per_row, whose kernels lie in a shared library, lists it, and verifies it
# where there is a device. Exits with 77 where there is none that the program has code for, and where
# nvcc's host compiler, whose build stamp the plugin has, is not the program's.
#   cuda_plugin_test.sh VOXCONV WARP_PER_ROW.SO
set -euo pipefail

voxconv=$1
plugin=$2
log=$(mktemp)
trap 'rm -f "$log"' EXIT

status=0
"$voxconv" list --plugin "$plugin" > "$log" 2>&1 || status=$?
if grep -q 'built with' "$log"; then
  echo "not loaded: $(cat "$log")"
  exit 77
fi
((status == 0)) || { cat "$log" >&2; exit 1; }
grep -q warp_per_row "$log" || { echo "voxconv list does not name warp_per_row" >&2; exit 1; }

"$voxconv" verify --backend cuda --plugin "$plugin" --dataflow warp_per_row > "$log" 2>&1 || status=$?
if grep -Eq 'no CUDA device|this program has no code for' "$log"; then
  echo "listed; not verified: $(tail -n 1 "$log")"
  exit 77
fi
tail -n 2 "$log"
((status == 0)) || { grep -i '^FAILED' "$log" | head -n 20 >&2; exit 1; }
# A filter that matches nothing would pass, too.
grep -Eq '^[1-9][0-9]* passed, 0 failed' "$log" || {
  echo "voxconv verify ran no case of warp_per_row" >&2
  exit 1
}
