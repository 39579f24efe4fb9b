# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(wrong_plugins_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/wrong_plugins_test.cc
  LIBS voxconv_test_session voxconv_test_support LABELS contract)
