# SPDX-License-Identifier: Apache-2.0
if(VOXCONV_HAVE_CUDA)
  voxconv_add_test(mapping_cuda_test SOURCES mapping_cuda_test.cc
                   LIBS voxconv_mapping_grid voxconv_mapping_hash voxconv_mapping_octree
                        voxconv_mapping_perfect_hash voxconv_output_coords_expansion
                        voxconv_backend_cpu voxconv_backend_cuda)
endif()
