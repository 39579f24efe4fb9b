# SPDX-License-Identifier: Apache-2.0
if(VOXCONV_HAVE_CUDA)
  voxconv_add_test(dataflow_cuda_test
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/dataflow_cuda_test.cc
    LIBS voxconv_dataflow_direct voxconv_dataflow_fetch_on_demand
         voxconv_dataflow_gather_gemm_scatter voxconv_dataflow_hash2col
         voxconv_dataflow_implicit_gemm voxconv_backend_cpu voxconv_backend_cuda
    LABELS unit)
  voxconv_add_test(dataflow_strided_rows_cuda_test
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/dataflow_strided_rows_cuda_test.cc
    LIBS voxconv_dataflow_implicit_gemm voxconv_backend_cpu voxconv_backend_cuda
    LABELS unit)
endif()
