# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(view_test SOURCES view_test.cc
                 LIBS voxconv_view voxconv_test_support voxconv_backend_cpu LABELS unit)
