voxconv_add_test(tensor_ops_test
  SOURCES tensor_ops_test.cc
  LIBS voxconv_backend_cpu
  LABELS unit)
