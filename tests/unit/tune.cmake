# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(harness_plan_file_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/plan_file_test.cc
                 LIBS voxconv_builtin voxconv_measure LABELS unit)
voxconv_add_test(tuning_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/tuning_test.cc
                 LIBS voxconv_networks LABELS unit)
voxconv_add_test(tune_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/tune_test.cc
                 LIBS voxconv_cli LABELS unit)
