# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(mapping_sorted_search_test SOURCES mapping_sorted_search_test.cc
                 LIBS voxconv_mapping_sorted_search voxconv_backend_cpu)
if(VOXCONV_HAVE_CUDA)
  voxconv_add_test(mapping_sorted_search_cuda_test SOURCES mapping_sorted_search_cuda_test.cc
                   LIBS voxconv_mapping_sorted_search voxconv_backend_cuda)
endif()
