# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(dataflow_support_test SOURCES dataflow_support_test.cc
                 LIBS voxconv_dataflow_direct voxconv_dataflow_fetch_on_demand
                      voxconv_dataflow_gather_gemm_scatter voxconv_dataflow_hash2col
                      voxconv_dataflow_implicit_gemm voxconv_backend_cpu)
