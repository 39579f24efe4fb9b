voxconv_add_test(mapping_octree_test SOURCES mapping_octree_test.cc
                 LIBS voxconv_mapping_octree voxconv_backend_cpu)
