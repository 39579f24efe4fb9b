# SPDX-License-Identifier: Apache-2.0
voxconv_add_test(rarest_order_test SOURCES rarest_order_test.cc
                 LIBS voxconv_dataflow_implicit_gemm)
