voxconv_add_test(
    mapping_perfect_hash_test SOURCES ${CMAKE_CURRENT_LIST_DIR} /
    mapping_perfect_hash_test.cc LIBS voxconv_mapping_perfect_hash voxconv_backend_cpu LABELS unit)
