# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(core_test
  SOURCES core_test.cc kernel_map_test.cc plugin_call_test.cc registry_test.cc stage_scope_test.cc tensor_test.cc
  LIBS voxconv_backend_cpu)
voxconv_add_test(convention_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/convention_gradient_test.cc ${CMAKE_CURRENT_LIST_DIR}/convention_test.cc
  LIBS voxconv_test_session LABELS unit)
