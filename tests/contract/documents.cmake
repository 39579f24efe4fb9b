# SPDX-License-Identifier: Apache-2.0
# The documents that scripts write must say what the data and the program say now.
find_program(VOXCONV_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH)
if(VOXCONV_PYTHON)
  add_test(NAME performance_page_test
           COMMAND ${VOXCONV_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/performance_page --check)
  add_test(NAME speed_table_test
           COMMAND ${VOXCONV_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/speed_table --check)
  add_test(NAME tune_table_test
           COMMAND ${VOXCONV_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/tune_table --check)
  add_test(NAME engines_page_test
           COMMAND ${VOXCONV_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/engines_page --check)
  add_test(NAME command_line_test
           COMMAND ${VOXCONV_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/command_line_test.py
                   $<TARGET_FILE:voxconv>)
  set_tests_properties(performance_page_test speed_table_test tune_table_test engines_page_test command_line_test
                       PROPERTIES LABELS contract)
endif()

add_test(NAME command_reference_test
         COMMAND ${PROJECT_SOURCE_DIR}/scripts/make_reference --check $<TARGET_FILE:voxconv>)
set_tests_properties(command_reference_test PROPERTIES LABELS contract)
