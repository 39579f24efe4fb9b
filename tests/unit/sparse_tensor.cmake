# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(sparse_tensor_test
  SOURCES sparse_tensor_test.cc
  LIBS voxconv_core voxconv_backend_cpu
  LABELS unit)
