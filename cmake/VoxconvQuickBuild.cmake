# SPDX-License-Identifier: Apache-2.0
# What keeps the time of a whole build short: headers that most sources include are compiled once
# for the libraries, once for those libraries that read and write text, and once for the tests, and
# several sources of a library are compiled together. Neither changes what a source may rely on:
# scripts/tidy parses every source by itself.
option(VOXCONV_QUICK_BUILD "Compile common headers once and several sources together" ON)

set(VOXCONV_COMMON_HEADERS
  <algorithm> <array> <cmath> <cstdint> <cstring> <functional> <limits> <map> <memory> <numeric>
  <optional> <set> <string> <utility> <variant> <vector>
  <absl/status/status.h> <absl/status/statusor.h> <absl/strings/match.h>
  <absl/strings/numbers.h> <absl/strings/str_cat.h> <absl/strings/str_format.h>
  <absl/strings/str_join.h> <absl/strings/str_split.h> <absl/strings/string_view.h>
  <absl/types/span.h>
  <voxconv/core/convolution.h> <voxconv/core/dataflow.h> <voxconv/core/mapping.h>
  <voxconv/core/registry.h> <voxconv/core/sparse_tensor.h> <voxconv/core/tensor.h>)

# Headers of core are taken, but core is not linked: core itself uses them.
function(voxconv_precompile target)
  list(TRANSFORM ARGN REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:\\1>" OUTPUT_VARIABLE headers)
  target_include_directories(${target} PRIVATE
    $<TARGET_PROPERTY:voxconv_core,INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_libraries(${target} PRIVATE absl::status absl::statusor absl::strings absl::span
                        absl::str_format absl::hash voxconv_warnings)
  target_precompile_headers(${target} PRIVATE ${headers})
endfunction()

if(VOXCONV_QUICK_BUILD)
  set(empty ${PROJECT_BINARY_DIR}/generated/empty.cc)
  file(CONFIGURE OUTPUT ${empty} CONTENT "")
  add_library(voxconv_precompiled OBJECT ${empty})
  voxconv_precompile(voxconv_precompiled ${VOXCONV_COMMON_HEADERS})
  add_library(voxconv_precompiled_text OBJECT ${empty})
  voxconv_precompile(voxconv_precompiled_text ${VOXCONV_COMMON_HEADERS} <filesystem> <iostream>
                     <nlohmann/json.hpp>)
  target_link_libraries(voxconv_precompiled_text PRIVATE nlohmann_json::nlohmann_json)
  if(VOXCONV_TESTS)
    # A program, because the tests are: a program's code is not compiled as a library's is.
    set(empty_program ${PROJECT_BINARY_DIR}/generated/empty_program.cc)
    file(CONFIGURE OUTPUT ${empty_program} CONTENT "int main() { return 0; }\n")
    add_executable(voxconv_precompiled_tests EXCLUDE_FROM_ALL ${empty_program})
    target_compile_definitions(voxconv_precompiled_tests PRIVATE
                               VOXCONV_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    voxconv_precompile(voxconv_precompiled_tests ${VOXCONV_COMMON_HEADERS}
                       <gmock/gmock.h> <gtest/gtest.h>)
    target_link_libraries(voxconv_precompiled_tests PRIVATE GTest::gtest GTest::gmock)
  endif()
endif()

# Takes the headers that were compiled for ${kind}: "", "_text" or "_tests".
function(voxconv_use_precompiled target kind)
  if(VOXCONV_QUICK_BUILD)
    target_precompile_headers(${target} REUSE_FROM voxconv_precompiled${kind})
  endif()
endfunction()

# Not for plugins and backends: their inner loops are compiled as they stand.
function(voxconv_compile_together target)
  if(VOXCONV_QUICK_BUILD)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  endif()
endfunction()

# For a library of flags, printing and files: none of its code is timed, and JSON's templates take
# long to optimise. At -O1 GCC 12 warns of uninitialised members of a variant that is initialised.
function(voxconv_text_library target)
  voxconv_use_precompiled(${target} "_text")
  if(VOXCONV_QUICK_BUILD)
    target_compile_options(${target} PRIVATE
      $<$<CONFIG:Release>:-O1>
      $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>)
  endif()
endfunction()
