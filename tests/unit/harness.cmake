# SPDX-License-Identifier: Apache-2.0
foreach(part cache_use gpu_watch machine_load paired product_rate result_line statistics)
  voxconv_add_test(harness_${part}_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/${part}_test.cc
                   LIBS voxconv_measure voxconv_backend_cpu LABELS unit)
endforeach()
voxconv_add_test(harness_preset_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/preset_test.cc
                 LIBS voxconv_cli voxconv_measure LABELS unit)
voxconv_add_test(ab_gate_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/ab_gate_test.cc
                 LIBS voxconv_cli LABELS unit)
voxconv_add_test(ab_captured_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/ab_captured_test.cc
                 LIBS voxconv_cli LABELS unit)
voxconv_add_test(all_rows_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/all_rows_test.cc
                 LIBS voxconv_cli voxconv_test_saboteurs voxconv_test_session voxconv_verify
                 LABELS unit)
voxconv_add_test(ab_rounds_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/ab_rounds_test.cc
                 LIBS voxconv_cli LABELS unit)
voxconv_add_test(verify_bounds_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/verify_bounds_test.cc
                 LIBS voxconv_verify LABELS unit)
# By far the longest under sanitizers: it starts first.
set_tests_properties(verify_bounds_test PROPERTIES COST 100)
voxconv_add_test(verify_network_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/verify_network_test.cc
                 LIBS voxconv_cli voxconv_test_saboteurs voxconv_verify LABELS unit)
voxconv_add_test(terminal_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/terminal_test.cc
                 LIBS voxconv_cli LABELS unit)
