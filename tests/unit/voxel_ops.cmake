# SPDX-License-Identifier: Apache-2.0
set(backends voxconv_backend_cpu)
if(VOXCONV_HAVE_CUDA)
  list(APPEND backends voxconv_backend_cuda)
endif()
voxconv_add_test(voxel_ops_test
  SOURCES admit_coordinates_test.cc devoxelize_test.cc voxelize_test.cc
  LIBS voxconv_io ${backends}
  LABELS unit)
if(VOXCONV_HAVE_CUDA)
  target_compile_definitions(voxel_ops_test PRIVATE VOXCONV_TEST_CUDA)
endif()
