# SPDX-License-Identifier: Apache-2.0
# The guide's example with kernels, as a shared library in the program that loads it.
if(VOXCONV_HAVE_CUDA AND NOT VOXCONV_SANITIZE)
  voxconv_plugin(example_warp_per_row ${PROJECT_SOURCE_DIR}/examples/cuda_plugin/warp_per_row.cu)
  target_link_libraries(example_warp_per_row PRIVATE voxconv_warnings)
  set_target_properties(example_warp_per_row PROPERTIES
    OUTPUT_NAME warp_per_row LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/plugin_fixtures/cuda)
  add_test(NAME cuda_plugin_test
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda_plugin_test.sh $<TARGET_FILE:voxconv>
                   $<TARGET_FILE:example_warp_per_row>)
  set_tests_properties(cuda_plugin_test PROPERTIES TIMEOUT 300 LABELS contract SKIP_RETURN_CODE 77)
endif()
