#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the build to a temporary prefix. Builds examples/plugin, examples/dataflow_plugin,
# examples/library and a small program against the installed package alone. Runs the plugins: the
# mapping in that program, and both in `voxconv verify`. Runs the programs of examples/library. The
# same with examples/cuda_plugin, by the CUDA compiler and for the architectures that are given.
#   installed_plugin_test.sh SOURCE_DIR BUILD_DIR CXX BUILD_TYPE [NVCC ARCHITECTURES]
set -euo pipefail

source_dir=$1
build_dir=$2
cxx=$3
build_type=$4
nvcc=${5:-}
architectures=${6:-}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# step DESCRIPTION COMMAND...: quiet unless it fails.
step() {
  local description=$1
  shift
  echo "== $description"
  if ! "$@" > "$work/log" 2>&1; then
    cat "$work/log"
    echo "installed_plugin_test: failed: $description" >&2
    exit 1
  fi
}

# build NAME SOURCES [CMAKE ARGUMENTS...]: configures and builds SOURCES in $work/NAME.
build() {
  local name=$1 sources=$2
  shift 2
  step "configure $name" cmake -G Ninja -S "$sources" -B "$work/$name" \
    -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_BUILD_TYPE="$build_type" \
    -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF "$@"
  step "build $name" cmake --build "$work/$name" --parallel 2
}

step "install" cmake --install "$build_dir" --prefix "$work/prefix"
step "find the completions" grep -q experiment \
  "$work/prefix/share/bash-completion/completions/voxconv" \
  "$work/prefix/share/zsh/site-functions/_voxconv"
# Nothing of the source tree may be needed from here on: the sources are copied out of it.
cp -r "$source_dir/examples/plugin" "$work/plugin_source"
cp -r "$source_dir/examples/dataflow_plugin" "$work/dataflow_plugin_source"
cp -r "$source_dir/examples/library" "$work/library_source"
cp -r "$source_dir/tests/contract/installed_host" "$work/host_source"
build plugin "$work/plugin_source"
build dataflow_plugin "$work/dataflow_plugin_source"
build library "$work/library_source"
build host "$work/host_source"
plugin=$work/plugin/binary_tree.so

step "load and run in a program of the installed package" "$work/host/installed_host" "$plugin"
cat "$work/log"

# library_program NAME ERRORS [ARGUMENTS...]: it must print as many errors, each of which it has held
# against its bound itself. Once more, the bound is looked at here.
library_program() {
  local name=$1 errors=$2
  shift 2
  step "$name $*" "$work/library/$name" --input 'scene:lidar64?azimuths=100' "$@"
  grep -o 'error .*' "$work/log"
  awk -v errors="$errors" '
    match($0, /error [0-9.e+-]+, bound [0-9.e+-]+/) {
      split(substr($0, RSTART, RLENGTH), part, /[ ,]+/)
      if (part[2] + 0 <= part[4] + 0 && part[4] + 0 < 1e-3) ++within
    }
    END { exit within != errors }' "$work/log" || {
    cat "$work/log"
    echo "$name: not all of $errors errors are below their bounds" >&2
    exit 1
  }
}
library_program convolve 6
library_program convolve 6 --mapping sorted_search --dataflow gather_gemm_scatter
library_program network 1
if "$work/library/convolve" --mapping hassh > "$work/log" 2>&1; then
  echo "convolve takes a mapping that does not exist" >&2
  exit 1
fi
grep -q "^convolve: mapping 'hassh' is unknown; there are grid, hash" "$work/log"

voxconv=$build_dir/bin/voxconv
if [[ -x $voxconv ]]; then
  # verify_plugin FAMILY NAME LIBRARY: lists it, and runs its cases.
  verify_plugin() {
    step "voxconv list" "$voxconv" list --plugin "$3"
    grep -q "$2" "$work/log" || { echo "voxconv list does not name $2" >&2; exit 1; }
    step "voxconv verify --$1 $2" "$voxconv" verify --backend cpu --plugin "$3" "--$1" "$2"
    tail -n 1 "$work/log"
    # A filter that matches nothing would pass, too.
    grep -Eq '^[1-9][0-9]* passed, 0 failed' "$work/log" || {
      echo "voxconv verify ran no case of $2" >&2
      exit 1
    }
  }
  verify_plugin mapping binary_tree "$plugin"
  verify_plugin dataflow row_lists "$work/dataflow_plugin/row_lists.so"
else
  echo "== voxconv verify: left out, $voxconv is not built"
fi

if [[ $nvcc && -x $voxconv ]]; then
  cp -r "$source_dir/examples/cuda_plugin" "$work/cuda_plugin_source"
  build cuda_plugin "$work/cuda_plugin_source" -DCMAKE_CUDA_COMPILER="$nvcc" \
    -DCMAKE_CUDA_ARCHITECTURES="$architectures"
  status=0
  "$source_dir/tests/contract/cuda_plugin_test.sh" "$voxconv" "$work/cuda_plugin/warp_per_row.so" ||
    status=$?
  ((status == 0 || status == 77)) || exit "$status"  # 77: it said why not
fi
