# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(io_test
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/io_data_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/io_json_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/io_load_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/io_mesh_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/io_npy_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/io_point_file_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/io_output_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/io_raw_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/io_row_order_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/io_safetensors_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/io_scenes_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/io_voxelize_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/io_voxels_test.cc
  LIBS voxconv_io
  LABELS unit)
