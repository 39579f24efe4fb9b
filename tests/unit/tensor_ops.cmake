# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(tensor_ops_test
  SOURCES tensor_ops_test.cc
  LIBS voxconv_backend_cpu voxconv_reference_cpu
  LABELS unit)
