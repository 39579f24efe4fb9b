# SPDX-License-Identifier: Apache-2.0
voxconv_plugin(ending_plugin ${CMAKE_CURRENT_LIST_DIR}/ending_plugin/ending.cc)
target_link_libraries(ending_plugin PRIVATE voxconv_warnings)
foreach(command verify others)
  add_test(NAME ending_plugin_${command}_test
           COMMAND ${CMAKE_CURRENT_LIST_DIR}/ending_plugin/${command}_test.sh
                   $<TARGET_FILE:voxconv> $<TARGET_FILE:ending_plugin>)
  set_tests_properties(ending_plugin_${command}_test PROPERTIES LABELS contract TIMEOUT 300)
endforeach()
if(VOXCONV_PYTHON)
  add_test(NAME ending_plugin_signals_test
           COMMAND ${VOXCONV_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/ending_plugin/signals_test.py
                   $<TARGET_FILE:voxconv> $<TARGET_FILE:ending_plugin>)
  set_tests_properties(ending_plugin_signals_test PROPERTIES LABELS contract TIMEOUT 300)
endif()
