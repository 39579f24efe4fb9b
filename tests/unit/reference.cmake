# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(reference_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/reference_test.cc
          ${CMAKE_CURRENT_LIST_DIR}/reference_dense_test.cc
  LIBS voxconv_reference_cpu LABELS unit)
