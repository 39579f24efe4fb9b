# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(mapping_hash_test SOURCES mapping_hash_test.cc
                 LIBS voxconv_mapping_hash voxconv_backend_cpu)
