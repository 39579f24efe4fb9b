# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(output_coords_test SOURCES output_coords_test.cc
                 LIBS voxconv_output_coords_expansion voxconv_backend_cpu)
