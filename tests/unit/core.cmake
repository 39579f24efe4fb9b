voxconv_add_test(core_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/core_test.cc LIBS voxconv_backend_cpu LABELS unit)
voxconv_add_test(convention_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/convention_test.cc LIBS voxconv_test_session LABELS unit)
