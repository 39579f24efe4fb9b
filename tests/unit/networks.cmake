# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(network_models_test
  SOURCES network_models_test.cc
  LIBS voxconv_networks
  LABELS unit)
foreach(test IN ITEMS network_concatenations_test network_maps_test networks_test)
  voxconv_add_test(${test}
    SOURCES ${test}.cc
    LIBS voxconv_test_support voxconv_reference_network voxconv_backend_cpu
    LABELS unit)
endforeach()
if(VOXCONV_HAVE_CUDA)
  voxconv_add_test(networks_cuda_test SOURCES networks_cuda_test.cc
                   LIBS voxconv_networks voxconv_backend_cpu voxconv_backend_cuda
                        voxconv_mapping_hash voxconv_output_coords_expansion
                        voxconv_dataflow_fetch_on_demand voxconv_dataflow_gather_gemm_scatter
                        voxconv_dataflow_implicit_gemm
                   LABELS unit)
  voxconv_add_test(synchronisations_cuda_test SOURCES synchronisations_cuda_test.cc
                   LIBS voxconv_training_run voxconv_networks voxconv_backend_cpu voxconv_backend_cuda
                        voxconv_mapping_grid voxconv_mapping_hash voxconv_mapping_octree
                        voxconv_mapping_perfect_hash voxconv_mapping_sorted_search
                        voxconv_output_coords_expansion voxconv_dataflow_fetch_on_demand
                        voxconv_dataflow_gather_gemm_scatter voxconv_dataflow_implicit_gemm
                   LABELS unit)
  foreach(call IN ITEMS cudaStreamSynchronize cudaDeviceSynchronize cudaEventSynchronize cudaMalloc
                        cudaFree cudaMallocHost cudaHostAlloc cudaFreeHost cudaMemcpy
                        cudaMemcpyAsync)
    target_link_options(synchronisations_cuda_test PRIVATE LINKER:--wrap=${call})
  endforeach()
endif()
