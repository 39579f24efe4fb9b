#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/tidy on a small project of its own. Sources that are read together give the findings that
# they give alone. An include that only another source has is missing. Equal names in two sources are
# no mistake.
#   tidy_test.sh SOURCE_DIR
set -euo pipefail

source_dir=$1
if ! command -v clang-tidy > /dev/null || ! command -v clang++ > /dev/null; then
  echo "skipped: there is no clang-tidy or no clang++"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/scripts"
cp "$source_dir/scripts/tidy" "$work/scripts/"
cp "$source_dir/.clang-tidy" "$work/"
cd "$work"
cat > CMakeLists.txt << 'END'
cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES CXX)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
add_library(small a.cc b.cc c.cc)
END

fail() { cat log; echo "tidy_test: $1" >&2; exit 1; }

# What every source is at first. Both a.cc and c.cc have a kSize.
sources() {
  echo '#include <list>
namespace { constexpr int kSize = 1; }
int A() { return static_cast<int>(std::list<int>(kSize).size()); }' > a.cc
  echo 'int B() { return 2; }' > b.cc
  echo 'namespace { constexpr int kSize = 3; }
int C() { return kSize; }' > c.cc
}

sources
scripts/tidy > log 2>&1 || fail "it refuses sources without a mistake"
grep -qx 'tidy: read alone: c.cc' log || fail "c.cc, whose kSize clashes, is not read alone"
grep -qx 'tidy: no findings' log || fail "it does not say that there is nothing"

# In a.cc, which is read with b.cc, and in c.cc, which is read alone.
for name in a c; do
  sources
  echo 'int Named() { int BadName = 1; return BadName; }' >> "$name.cc"
  if scripts/tidy > log 2>&1; then fail "a name in the wrong style passes in $name.cc"; fi
  grep -q "/$name.cc:.*BadName.*readability-identifier-naming" log || fail "BadName is not named"
done

sources
echo 'int List() { return static_cast<int>(std::list<int>(2).size()); }' >> b.cc
if scripts/tidy > log 2>&1; then fail "a missing include passes"; fi
grep -q '/b.cc:2:.*error' log || fail "the missing include is not named"

sources
if scripts/tidy --jobs 0 > log 2>&1; then fail "--jobs 0 passes"; fi
grep -q -- '--jobs 0' log || fail "--jobs 0 is not named"
echo "passed"
