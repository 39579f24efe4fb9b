# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(training_ops_test
  SOURCES lovasz_test.cc training_ops_test.cc training_step_test.cc
  LIBS voxconv_backend_cpu voxconv_reference_training
  LABELS unit)
