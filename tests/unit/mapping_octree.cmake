# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(mapping_octree_test SOURCES mapping_octree_test.cc
                 LIBS voxconv_mapping_octree voxconv_backend_cpu)
if(VOXCONV_HAVE_CUDA)
  voxconv_add_test(mapping_octree_cuda_test SOURCES mapping_octree_cuda_test.cc
                   LIBS voxconv_mapping_octree voxconv_backend_cpu voxconv_backend_cuda)
endif()
