voxconv_add_test(network_models_test
  SOURCES network_models_test.cc
  LIBS voxconv_networks
  LABELS unit)
voxconv_add_test(networks_test
  SOURCES networks_test.cc
  LIBS voxconv_test_support voxconv_backend_cpu
  LABELS unit)
