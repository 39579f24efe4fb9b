# SPDX-License-Identifier: Apache-2.0
if(VOXCONV_HAVE_CUDA)
  voxconv_add_test(backend_cuda_test
    SOURCES cuda_device_control_test.cc cuda_gemm_test.cc cuda_kernel_map_test.cc cuda_stream_test.cc
            cuda_sort_test.cc cuda_tensor_ops_test.cc
    LIBS voxconv_backend_cpu voxconv_backend_cuda
    LABELS unit)
endif()
