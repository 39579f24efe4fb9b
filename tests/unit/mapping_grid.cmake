# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(mapping_grid_test SOURCES mapping_grid_test.cc
                 LIBS voxconv_mapping_grid voxconv_backend_cpu)
