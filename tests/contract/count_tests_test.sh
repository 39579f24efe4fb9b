#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/count_tests counts a skipped test as skipped, wherever it is skipped.
#   count_tests_test.sh SOURCE_DIRECTORY
set -euo pipefail
command -v python3 > /dev/null || {
  echo "no python3"
  exit 77
}

count=$1/scripts/count_tests
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# expect STATUS LAST_LINE ENTRY...: of a run of these entries.
expect() {
  local status=0 want=$1 last=$2
  shift 2
  printf '%s\n' '<testsuite>' "$@" '</testsuite>' > "$work/junit"
  "$count" "$work/junit" > "$work/out" || status=$?
  if [[ $status != "$want" || $(tail -n 1 "$work/out") != "$last" ]]; then
    echo "status $status, wanted $want; wanted the last line '$last' of:"
    cat "$work/out"
    exit 1
  fi
}

# entry STATUS OUTPUT [SKIPPED_MESSAGE]
entry() {
  echo "<testcase name=\"t\" status=\"$1\">${3:+<skipped message=\"$3\"/>}"
  echo "<system-out>$2</system-out></testcase>"
}

ok='[ RUN      ] A.ok
[       OK ] A.ok (0 ms)'
skip='[ RUN      ] A.skip
a.cc:3: Skipped
no device
[  SKIPPED ] A.skip (0 ms)'
fail='[ RUN      ] A.fail
[  FAILED  ] A.fail (1 ms)'
lists='[  PASSED  ] 1 test.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] A.skip
[  FAILED  ] 1 test, listed below:
[  FAILED  ] A.fail'

expect 0 '1 passed, 0 failed, 1 skipped' "$(entry run "$ok
$skip
$lists")"
grep -qx 'skipped: t: 1 of 2: no device' "$work/out"
# All of a program's tests, which ctest then calls skipped.
expect 0 '0 passed, 0 failed, 2 skipped' \
  "$(entry notrun "$skip
$skip" SKIP_REGULAR_EXPRESSION_MATCHED)"
expect 1 '1 passed, 1 failed, 1 skipped' "$(entry fail "$ok
$skip
$fail
$lists")"
# A crash in the second test.
expect 1 '1 passed, 1 failed, 0 skipped' "$(entry fail "$ok
[ RUN      ] A.crash")"
expect 0 '1 passed, 0 failed, 1 skipped' "$(entry run '')" \
  "$(entry notrun 'no python3' 'SKIP_RETURN_CODE=77')"
expect 1 '0 passed, 1 failed, 0 skipped' "$(entry notrun '' 'Unable to find executable')"
expect 0 '2 passed, 0 failed, 1 skipped' "$(entry run 'Ran 3 tests in 0.1s

OK (skipped=1)')"
expect 0 '1 passed, 0 failed, 0 skipped' "$(entry run 'verify on a CPU: 9 cases in 0.1 s
5 passed, 0 failed, 4 skipped')"
grep -qx 'skipped: t: 4 of 9 cases of verify' "$work/out"
