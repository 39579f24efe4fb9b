#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A case that ends the process of `voxconv verify`, or does not end, fails; the others run.
#   verify_test.sh VOXCONV PLUGIN
set -euo pipefail

voxconv=$1 plugin=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset VOXCONV_PLUGIN_PATH

fail() {
  cat "$work/out" "$work/err"
  echo "verify_test: $*" >&2
  exit 1
}

# verify STATUS ARGUMENTS...: prints to out and err, and ends with STATUS.
verify() {
  local wanted=$1 status=0
  shift
  "$voxconv" verify --plugin "$plugin" --threads 1 "$@" > "$work/out" 2> "$work/err" || status=$?
  ((status == wanted)) || fail "exit status $status, wanted $wanted: $*"
}

says() {
  grep -qF -- "$1" "$work/out" || fail "no '$1'"
}

some='map/*/submanifold_k'
verify 0 --mapping ending: --filter "$some"
tail -n 1 "$work/out" | grep -qx '[0-9]* passed, 0 failed, 0 skipped' || fail "no tally"
passed=$(tail -n 1 "$work/out" | cut -d' ' -f1)
one=$("$voxconv" verify --plugin "$plugin" --mapping ending: --filter "$some*one_voxel" --list | wc -l)
((one > 1)) || fail "no case to end"

# ends FAULT WORDS [ARGUMENTS...]: the cases of one voxel fail with these words, each in a process of its
# own, and all others pass.
ends() {
  local fault=$1 words=$2
  shift 2
  verify 1 --mapping "ending:fault=$fault" --filter "$some" "$@"
  says "$((passed - one)) passed, $one failed, 0 skipped"
  says "FAILED map/ending:fault=$fault/"
  says "$words"
  says "  voxconv verify --plugin"
  says "--filter 'map/ending:fault=$fault/"
  [[ $(cat "$work/err") == "voxconv verify: $one of $passed cases failed" ]] || fail "more on stderr"
}

ends throws 'mapping ending: DoQuery: exception: boom'
says "more like map/ending:fault=throws/"
ends exits 'ended by exit() before it was done in mapping ending: DoQuery'
ends exits_at_once 'the process ends with exit status 0'
ends crashes 'is killed by signal 11 (Segmentation fault): voxconv verify: crashed in mapping ending: DoQuery'
ends overflows 'is killed by signal 11 (Segmentation fault)'

# The result for programs names the library, also where several processes have loaded it.
for fault in none crashes; do
  "$voxconv" verify --plugin "$plugin" --json --mapping "ending:fault=$fault" \
    --filter "map/*/submanifold_k3/*one_voxel" \
    > "$work/out" 2> "$work/err" || [[ $fault == crashes ]] || fail "$fault fails"
  python3 - "$plugin" "$work/out" <<'PYTHON' || fail "--json with $fault"
import json, os, sys
plugins = json.load(open(sys.argv[2]))["plugins"]
assert [(p["name"], p["path"]) for p in plugins] == [("ending", os.path.abspath(sys.argv[1]))], plugins
assert len(plugins[0]["hash"]) == 16 and plugins[0]["compiled_for"], plugins
PYTHON
done

# One case, with a limit.
hang='map/ending:fault=hangs/submanifold_k3/one_voxel'
verify 1 --case-seconds 2 --filter "$hang"
says "FAILED $hang: it does not end within 2 s (--case-seconds)"
says "  voxconv verify --plugin $plugin --threads 1 --case-seconds 2 --filter '$hang'"
says '0 passed, 1 failed, 0 skipped'

# A process that ends in every case is not started for ever; what was not run is no success.
verify 1 --mapping 'ending:fault=null'
says 'mapping ending: DoBuildIndex: returned null'
grep -q 'more like' "$work/out" || fail "failures are not grouped"
(($(grep -c '^FAILED' "$work/out") <= 20)) || fail "more than 20 shown"

# The errors of the command are its own.
verify 1 --filter no_such_case
[[ $(cat "$work/err") == 'voxconv verify: no case matches --filter no_such_case; --list prints the cases' ]] ||
  fail "another error"
verify 1 --case-seconds 0
grep -q -- '--case-seconds 0: allowed' "$work/err" || fail "0 s are taken"
