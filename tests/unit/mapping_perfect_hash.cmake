# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(mapping_perfect_hash_test SOURCES mapping_perfect_hash_test.cc
                 LIBS voxconv_mapping_perfect_hash voxconv_backend_cpu)
if(VOXCONV_HAVE_CUDA)
  voxconv_add_test(mapping_perfect_hash_cuda_test SOURCES mapping_perfect_hash_cuda_test.cc
                   LIBS voxconv_mapping_perfect_hash voxconv_io voxconv_backend_cpu
                        voxconv_backend_cuda)
endif()
