# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(dataflow_ggs_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/dataflow_ggs_test.cc
          ${CMAKE_CURRENT_LIST_DIR}/dataflow_ggs_grouping_test.cc
  LIBS voxconv_dataflow_gather_gemm_scatter voxconv_backend_cpu LABELS unit)
voxconv_add_test(dataflow_hash2col_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/dataflow_hash2col_test.cc
  LIBS voxconv_dataflow_direct voxconv_dataflow_hash2col voxconv_reference_cpu voxconv_backend_cpu
  LABELS unit)
