# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(bad_input_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/bad_input_test.cc
          ${CMAKE_CURRENT_LIST_DIR}/bad_input_measuring_test.cc
  LIBS voxconv_test_session LABELS contract)
target_compile_definitions(bad_input_test PRIVATE VOXCONV_PROGRAM="$<TARGET_FILE:voxconv>")
add_dependencies(bad_input_test voxconv)

voxconv_add_test(array_commands_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/array_commands_test.cc
  LIBS voxconv_test_session LABELS contract)
target_compile_definitions(array_commands_test PRIVATE VOXCONV_PROGRAM="$<TARGET_FILE:voxconv>")
add_dependencies(array_commands_test voxconv)

voxconv_add_test(support_table_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/support_table_test.cc LIBS voxconv_test_session LABELS contract)
voxconv_add_test(real_scan_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/real_scan_test.cc LIBS voxconv_test_session LABELS contract)

# The whole matrix; under sanitizers, which make it some thirty times slower, a part of it.
if(VOXCONV_SANITIZE)
  add_test(NAME verify_cpu COMMAND voxconv verify --backend cpu --quick)
else()
  add_test(NAME verify_cpu COMMAND voxconv verify --backend cpu)
endif()
set_tests_properties(verify_cpu PROPERTIES TIMEOUT 600 LABELS contract)

# The networks as a user verifies them; network_test goes over all plugins.
foreach(network minkunet42 sparseresnet21)
  add_test(NAME verify_${network}
           COMMAND voxconv verify --network ${network} --width 0.25 --input scene:sphere?n=2000
                   --crop-voxels 300 --mapping sorted_search)
  set_tests_properties(verify_${network} PROPERTIES LABELS contract)
endforeach()

voxconv_add_test(network_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/network_test.cc
  LIBS voxconv_test_session voxconv_test_support LABELS contract)

add_test(NAME verify_shards_test
         COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/verify_shards_test.sh $<TARGET_FILE:voxconv>)
set_tests_properties(verify_shards_test PROPERTIES LABELS contract)

add_test(NAME count_tests_test
         COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/count_tests_test.sh ${PROJECT_SOURCE_DIR})
set_tests_properties(count_tests_test PROPERTIES LABELS contract SKIP_RETURN_CODE 77)

add_test(NAME tidy_test COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tidy_test.sh ${PROJECT_SOURCE_DIR})
set_tests_properties(tidy_test PROPERTIES LABELS contract SKIP_RETURN_CODE 77)

add_test(NAME sanitize_test
         COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/sanitize_test.sh ${PROJECT_SOURCE_DIR})
set_tests_properties(sanitize_test PROPERTIES LABELS contract SKIP_RETURN_CODE 77)
voxconv_add_test(train_command_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/train_command_test.cc LIBS voxconv_io LABELS contract)
target_compile_definitions(train_command_test PRIVATE VOXCONV_PROGRAM="$<TARGET_FILE:voxconv>")
add_dependencies(train_command_test voxconv)
voxconv_add_test(training_course_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/training_course_test.cc
  LIBS voxconv_training voxconv_reference_training voxconv_test_session LABELS contract)
