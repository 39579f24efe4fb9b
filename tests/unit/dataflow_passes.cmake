# SPDX-License-Identifier: Apache-2.0
# What all dataflows have in common: layouts of their own, and gradients.
set(dataflows voxconv_dataflow_direct voxconv_dataflow_fetch_on_demand
              voxconv_dataflow_gather_gemm_scatter voxconv_dataflow_hash2col
              voxconv_dataflow_implicit_gemm)
voxconv_add_test(dataflow_layouts_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/dataflow_layouts_test.cc
  LIBS ${dataflows} voxconv_backend_cpu)
voxconv_add_test(dataflow_gradients_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/dataflow_gradients_test.cc
  LIBS ${dataflows} voxconv_reference_cpu voxconv_backend_cpu)
if(VOXCONV_HAVE_CUDA)
  voxconv_add_test(dataflow_layouts_cuda_test
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/dataflow_layouts_cuda_test.cc
    LIBS ${dataflows} voxconv_backend_cpu voxconv_backend_cuda)
  voxconv_add_test(dataflow_hash2col_cuda_test
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/dataflow_hash2col_cuda_test.cc
    LIBS voxconv_dataflow_hash2col voxconv_reference_cpu voxconv_backend_cpu voxconv_backend_cuda)
endif()
