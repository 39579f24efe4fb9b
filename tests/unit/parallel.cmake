# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(parallel_test SOURCES parallel_test.cc LIBS voxconv_backend_cpu)
