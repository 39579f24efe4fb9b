#!/usr/bin/env bash
# What scripts/sanitize makes of its processes' output, with stand-ins for them: a clean run, one
# with findings, one with hazards of a library, one with a failed case, one that breaks off and one
# that does not end.
#   sanitize_test.sh SOURCE_DIR      exits with 77 without Python
set -euo pipefail
command -v python3 > /dev/null || exit 77

sanitize=$1/scripts/sanitize
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat > "$work/compute-sanitizer" <<'TOOL'
#!/usr/bin/env bash
[[ $VOXCONV_CUDA_REUSE_BLOCKS == 0 && $CUDA_VISIBLE_DEVICES =~ ^[01]$ ]] || exit 3
found=0
case " $* " in
  *" --shard 2/3 "*"findings "*) found=7 ;;
  *" --shard 2/3 "*"library "*)
    found=2
    echo "========= Error: Race reported between Write access at nvjet_sm90_hsh_64x8+0xa0"
    echo "=========     and Read access at nvjet_sm90_hsh_64x8+0xb0 [16 hazards]"
    echo "========= Error: Race reported between Write access at Ours(int)+0xa0"
    echo "=========     and Read access at nvjet_sm90_hsh_64x8+0xb0 [16 hazards]"
    ;;
  *" --shard 2/3 "*"failed "*) echo "3 passed, 1 failed, 0 skipped"; echo "ERROR SUMMARY: 0 errors"; exit 1 ;;
  *" --shard 2/3 "*"breaks "*) echo "3 pas"; exit 1 ;;
  *" --shard 2/3 "*"hangs "*) sleep 60 ;;
esac
echo "4 passed, 0 failed, 1 skipped"
if [[ $* == *racecheck* ]]; then
  echo "========= RACECHECK SUMMARY: $found hazards displayed ($found errors, 0 warnings)"
else
  echo "========= ERROR SUMMARY: $found errors"
fi
TOOL
printf '#!/bin/sh\necho "GPU 0: A"\necho "GPU 1: B"\n' > "$work/nvidia-smi"
printf '#!/bin/sh\n' > "$work/voxconv"
chmod +x "$work"/*

# expect STATUS LINE WHAT: a run of three shards, told WHAT, ends with STATUS and prints LINE.
expect() {
  local wanted=$1 line=$2 status=0
  shift 2
  PATH=$work:$PATH CUDA_VISIBLE_DEVICES='' "$sanitize" --voxconv "$work/voxconv" --jobs 3 \
    --shards 3 --seconds 2 --logs "$work/logs" "${@:1:$#-1}" -- "${@: -1}" > "$work/out" || status=$?
  if ((status != wanted)) || ! grep -qF "$line" "$work/out"; then
    cat "$work/out"
    echo "sanitize_test: exit status $status, wanted $wanted and '$line'" >&2
    exit 1
  fi
}

clean='12 passed, 0 failed, 3 skipped; 0 findings; 3 of 3 shards ended'
expect 0 "racecheck: $clean" all
expect 0 "memcheck: $clean" all
expect 0 "initcheck: $clean" --tool initcheck all
expect 1 'memcheck: 12 passed, 0 failed, 3 skipped; 7 findings; 3 of 3 shards ended' findings
expect 1 'racecheck: 12 passed, 0 failed, 3 skipped; 7 findings' --tool racecheck findings
expect 1 'racecheck: 12 passed, 0 failed, 3 skipped; 1 findings' --tool racecheck library
grep -q 'besides, 1 inside' "$work/out"
expect 1 '11 passed, 1 failed, 2 skipped; 0 findings; 3 of 3' --tool memcheck failed
expect 1 '8 passed, 0 failed, 2 skipped; 0 findings; 2 of 3' --tool memcheck breaks
expect 1 '8 passed, 0 failed, 2 skipped; 0 findings; 2 of 3' --tool memcheck hangs
grep -q -- '--shard 2/3 hangs' "$work/out"
