# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(third_backend_test SOURCES third_backend_test.cc
                 LIBS voxconv_builtin voxconv_test_support)
