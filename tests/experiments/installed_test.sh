#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The installed program finds experiments, presets and the report's program in the package.
#   installed_test.sh BUILD_DIR
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "installed_test: $*" >&2; exit 1; }

cmake --install "$1" --prefix "$work/prefix" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
share=$work/prefix/share/voxconv
for file in experiments/matrix.json experiments/minuet/fig16.json presets/minuet.json presets/defaults.json \
            report/report.py; do
  [[ -f $share/$file ]] || fail "$file is not installed"
done
[[ ! -e $share/experiments/presets ]] || fail "presets were installed as experiments"

# What the package has hides the source tree, which this machine has as well.
sed -i 's/"title": "[^"]*"/"title": "of the package"/' "$share/experiments/neighbours.json"
voxconv=$work/prefix/bin/voxconv
"$voxconv" experiment --list | grep -q 'neighbours .*of the package' ||
  fail "voxconv experiment --list does not read the package"
"$voxconv" experiment minuet/fig17 --quick --out "$work/results" > "$work/log" 2>&1 ||
  { cat "$work/log"; fail "voxconv experiment failed"; }
grep -q '^2 cells measured, 0 refused, 0 failed' <(grep 'cells measured' "$work/log") ||
  { cat "$work/log"; fail "voxconv experiment did not measure its cells"; }
echo 'import sys; print("the report of the package", sys.argv[1:])' > "$share/report/report.py"
if /usr/bin/python3 -c 'import matplotlib' 2> /dev/null; then
  "$voxconv" report "$work/results" | grep -q 'the report of the package' ||
    fail "voxconv report does not run the package's program"
else
  echo "voxconv report: left out, python3-matplotlib is not installed"
fi
echo "installed_test: passed"
