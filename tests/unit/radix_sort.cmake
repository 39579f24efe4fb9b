# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(radix_sort_test SOURCES radix_sort_test.cc
                 LIBS voxconv_backend_cpu)
