#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# In every command, a plugin that throws or returns null gives an error that names it; one that calls
# exit(0), _exit(0) or quick_exit(0) does not end the command as if it was done.
#   others_test.sh VOXCONV PLUGIN
set -euo pipefail

voxconv=$1 plugin=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset VOXCONV_PLUGIN_PATH

fail() {
  cat "$work/out" "$work/err"
  echo "others_test: $*" >&2
  exit 1
}

input='scene:sphere?n=300'
small=(--plugin "$plugin" --threads 1 --input "$input")

# command NAME MAPPING: runs the command with the mapping.
command_with() {
  local name=$1 mapping=$2
  case $name in
    run) "$voxconv" run "${small[@]}" --network sparseresnet21 --width 0.25 --mapping "$mapping" ;;
    ab)
      "$voxconv" ab "${small[@]}" --a "$mapping/direct" --b hash/direct --channels 4,4
      ;;
    pool)
      "$voxconv" pool --plugin "$plugin" --threads 1 "$work/in.npz" "$work/out.npz" --mapping "$mapping"
      ;;
    bench) "$voxconv" bench "${small[@]}" --mapping "$mapping" --dataflow direct ;;
    tune)
      "$voxconv" tune "${small[@]}" --network sparseresnet21 --width 0.25 --quick \
        --mapping "$mapping" --out "$work/plan.json"
      ;;
    experiment)
      cat > "$work/e.json" <<JSON
{"name": "e", "title": "e", "kind": "layer", "baseline": "two", "inputs": ["$input"], "layers": [{"kernel": 3, "channels": [[4, 4]]}],
 "configurations": [{"name": "one", "spec": "$mapping/direct"}, {"name": "two", "spec": "hash/direct"}]}
JSON
      "$voxconv" experiment --plugin "$plugin" --threads 1 "$work/e.json" --out "$work/results"
      ;;
  esac
}

# refused COMMAND FAULT WORDS: it ends with a status other than 0, and with these words.
refused() {
  local status=0
  command_with "$1" "ending:fault=$2,voxels=0" > "$work/out" 2> "$work/err" || status=$?
  ((status != 0)) || fail "$1: $2: exit status 0"
  grep -qF -- "$3" "$work/out" "$work/err" || fail "$1: $2: no '$3'"
  ! grep -q 'unexpected error' "$work/err" || fail "$1: $2: unexpected error"
}

"$voxconv" voxelize "$input" "$work/in.npz" > "$work/out"
for command in ${3:-run ab pool bench tune experiment}; do
  command_with "$command" ending:fault=none > "$work/out" 2> "$work/err" || fail "$command: refused"
  refused "$command" throws 'mapping ending: DoQuery: exception: boom'
  refused "$command" cancels 'I gave up'
  refused "$command" null 'mapping ending: DoBuildIndex: returned null'
  refused "$command" exits 'ended by exit() before it was done in mapping ending: DoQuery'
  refused "$command" quick_exits 'ended by exit() before it was done in mapping ending: DoQuery'
  refused "$command" exits_at_once 'the process ends with exit status 0 before the command was done'
  grep -qx "voxconv $command: the process .*" "$work/err" || fail "$command is not named"
done
refused run crashes 'voxconv run: crashed in mapping ending: DoQuery'
# A destructor is no method of the interface: the loaded libraries are named.
ENDING_CRASHES_LATE=1 "$voxconv" list --plugin "$plugin" > "$work/out" 2> "$work/err" || true
grep -qx "voxconv list: crashed; loaded are $(realpath "$plugin")" "$work/err" || fail "list: crashes"
ENDING_CRASHES_LATE=1 refused run none "voxconv run: crashed; loaded are $(realpath "$plugin")"

# A dataflow whose outputs are wrong is not timed, also where no other one is.
status=0
ENDING_WITH_ZEROS=1 "$voxconv" bench "${small[@]}" --mapping hash: --dataflow zeros --channels 4x4 \
  --benchmark_min_time=0.001 > "$work/out" 2> "$work/err" || status=$?
((status != 0)) || fail "bench: wrong outputs: exit status 0"
grep -q '^conv/zeros/.*ERROR OCCURRED' "$work/out" || fail "bench: wrong outputs are timed"
