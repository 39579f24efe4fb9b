# SPDX-License-Identifier: Apache-2.0
# The dataflows that fuse gather, multiply and scatter, and their micro-kernel.
voxconv_add_test(sgemm_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/sgemm_test.cc
  LIBS voxconv_backend_cpu
  LABELS unit)
voxconv_add_test(indirect_gemm_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/indirect_gemm_test.cc
  LIBS voxconv_backend_cpu LABELS unit)
voxconv_add_test(bf16_gemm_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/amx_f32_gemm_test.cc ${CMAKE_CURRENT_LIST_DIR}/bf16_gemm_test.cc
  LIBS voxconv_backend_cpu LABELS unit)
foreach(dataflow fetch_on_demand implicit_gemm direct)
  voxconv_add_test(dataflow_${dataflow}_test
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/dataflow_${dataflow}_test.cc
    LIBS voxconv_dataflow_${dataflow} voxconv_backend_cpu LABELS unit)
  target_include_directories(dataflow_${dataflow}_test PRIVATE ${CMAKE_CURRENT_LIST_DIR})
endforeach()
if(VOXCONV_HAVE_CUDA)
  voxconv_add_test(implicit_gemm_tile_test
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/implicit_gemm_tile_test.cc
    LIBS voxconv_dataflow_implicit_gemm voxconv_backend_cpu voxconv_backend_cuda LABELS unit)
endif()
