#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What scripts/sanitize makes of its processes' output and ends, with stand-ins for them.
#   sanitize_test.sh SOURCE_DIR      exits with 77 without Python
set -euo pipefail
command -v python3 > /dev/null || exit 77

sanitize=$1/scripts/sanitize
work=$(mktemp -d)
export work
trap 'rm -rf "$work"' EXIT

# The last word of its command says how the second of three shards ends.
cat > "$work/compute-sanitizer" <<'TOOL'
#!/usr/bin/env bash
[[ $VOXCONV_CUDA_REUSE_BLOCKS == 0 && $CUDA_VISIBLE_DEVICES =~ ^[01]$ ]] || exit 3
touch "$work/gpu$CUDA_VISIBLE_DEVICES"
found=0 status=0 tally="4 passed, 0 failed, 1 skipped"
if [[ " $* " == *" --shard 2/3 "* ]]; then
  case ${*: -1} in
    findings) found=250 ;;
    library)
      found=5
      echo "========= Error: Race reported between Write access at nvjet_sm90_hsh_64x8+0xa0"
      echo "=========     and Read access at nvjet_sm90_hsh_64x8+0xb0 [16 hazards]"
      echo "========= Error: Race reported between Read access at sm90_xmma_gemm_tilesize64_5x_cublas+0xa0"
      echo "=========     and Write access at sm90_xmma_gemm_tilesize64_5x_cublas+0xb0 [16 hazards]"
      echo "========= Error: Race reported between Write access at nvjet_sm90_hsh_64x8+0xa0"
      echo "=========     and Read access at Ours(int)+0xb0 [16 hazards]"
      for ours in our_xmma_gemm_x\(int\) not_nvjet_x; do
        echo "========= Error: Race reported between Read access at $ours+0xa0"
        echo "=========     and Write access at $ours+0xb0 [16 hazards]"
      done
      ;;
    failed) tally="3 passed, 1 failed, 1 skipped" status=1 ;;
    crashes) status=139 ;;
    breaks) echo "3 pas"; exit 1 ;;
    hangs)
      sleep 60 &
      echo $! > "$work/sleep"
      wait
      ;;
  esac
fi
echo "$tally"
if [[ $* == *racecheck* ]]; then
  echo "========= RACECHECK SUMMARY: $found hazards displayed ($found errors, 0 warnings)"
else
  echo "========= ERROR SUMMARY: $found errors"
  if ((found > 100)); then
    echo "========= ERROR SUMMARY: $((found - 100)) errors were not printed."
  fi
fi
exit $status
TOOL
printf '#!/bin/sh\necho "GPU 0: A"\necho "  MIG 1g: B"\necho "GPU 1: C"\n' > "$work/nvidia-smi"
printf '#!/bin/sh\n' > "$work/voxconv"
chmod +x "$work"/*
unset CUDA_VISIBLE_DEVICES
PATH=$work:$PATH
arguments=(--voxconv "$work/voxconv" --jobs 3 --shards 3 --logs "$work/logs")

fail() {
  cat "$work/out"
  echo "sanitize_test: $*" >&2
  exit 1
}

# expect STATUS LINE ARGUMENTS...: a run ends with STATUS and prints LINE.
expect() {
  local wanted=$1 line=$2 status=0
  shift 2
  "$sanitize" "${arguments[@]}" "$@" > "$work/out" || status=$?
  ((status == wanted)) || fail "exit status $status, wanted $wanted: $*"
  grep -qF "$line" "$work/out" || fail "no '$line': $*"
}

# gone: the process that the hanging shard started has ended.
gone() {
  local i
  for i in {1..50}; do
    kill -0 "$(cat "$work/sleep")" 2> /dev/null || return 0
    sleep 0.1
  done
  fail "sleep was left behind"
}

clean='12 passed, 0 failed, 3 skipped; 0 findings; 3 of 3 shards ended'
expect 0 "racecheck: $clean" -- all
expect 0 "memcheck: $clean" -- all
expect 0 "initcheck: $clean" --tool initcheck -- all
[[ -e $work/gpu0 && -e $work/gpu1 ]] || fail "not on both GPUs"
expect 1 'memcheck: 12 passed, 0 failed, 3 skipped; 250 findings; 3 of 3 shards ended' -- findings
expect 1 'racecheck: 12 passed, 0 failed, 3 skipped; 250 findings' --tool racecheck -- findings
expect 1 'racecheck: 12 passed, 0 failed, 3 skipped; 3 findings' --tool racecheck -- library
grep -q 'besides, 2 inside' "$work/out" || fail "the library's hazards are not told apart"
expect 1 '11 passed, 1 failed, 3 skipped; 0 findings; 3 of 3' --tool memcheck -- failed
expect 1 '12 passed, 0 failed, 3 skipped; 0 findings; 3 of 3' --tool memcheck -- crashes
expect 1 '8 passed, 0 failed, 2 skipped; 0 findings; 2 of 3' --tool memcheck -- breaks
expect 1 '8 passed, 0 failed, 2 skipped; 0 findings; 2 of 3' --tool memcheck --seconds 2 -- hangs
grep -q -- '--shard 2/3 hangs' "$work/out" || fail "the hanging shard is not named"
gone

rm "$work/sleep"
"$sanitize" "${arguments[@]}" --tool memcheck -- hangs > "$work/out" &
until [[ -s $work/sleep ]]; do sleep 0.1; done
kill -TERM $!
status=0
wait $! || status=$?
((status == 143)) || fail "exit status $status after SIGTERM"
gone
