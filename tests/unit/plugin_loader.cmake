# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(plugin_loader_test
  SOURCES plugin_loader_test.cc LIBS voxconv_core voxconv_backend_cpu LABELS unit)
voxconv_enable_plugins(plugin_loader_test)

# fixture_<case>.so for each, in a directory of its own.
foreach(case good same_name no_symbol undefined_symbol null_info wrong_abi wrong_processor
             wrong_stamp incomplete register_fails registers_nothing throws throws_int info_throws
             in_namespace aborts exits bad_default double_name)
  voxconv_plugin(fixture_${case} plugin_fixtures/fixture.cc)
  string(TOUPPER ${case} macro)
  target_compile_definitions(fixture_${case} PRIVATE VOXCONV_FIXTURE_${macro})
  set_target_properties(fixture_${case} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/plugin_fixtures/${case})
  target_link_libraries(fixture_${case} PRIVATE voxconv_warnings)
  add_dependencies(plugin_loader_test fixture_${case})
endforeach()
target_compile_definitions(plugin_loader_test PRIVATE
  VOXCONV_FIXTURE_DIR="${CMAKE_BINARY_DIR}/tests/plugin_fixtures")
