# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(reference_gradients_test
  SOURCES reference_gradients_test.cc
  LIBS voxconv_reference_training voxconv_test_support
  LABELS unit)
voxconv_add_test(weights_test
  SOURCES weights_test.cc
  LIBS voxconv_training_run
  LABELS unit)
voxconv_add_test(training_test
  SOURCES shared_batch_test.cc training_parts_test.cc training_slopes_test.cc training_test.cc
  LIBS voxconv_training voxconv_reference_training voxconv_test_session
  LABELS unit)
voxconv_add_test(training_run_test
  SOURCES training_run_test.cc training_data_test.cc
  LIBS voxconv_training_run voxconv_test_session
  LABELS unit)
