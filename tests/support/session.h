// SPDX-License-Identifier: Apache-2.0
// What suites over the registry share.
#ifndef VOXCONV_TESTS_SUPPORT_SESSION_H_
#define VOXCONV_TESTS_SUPPORT_SESSION_H_

#include <memory>
#include <string>
#include <vector>

#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/registry.h"

namespace voxconv::testing {

// Every built-in plugin and those of VOXCONV_PLUGIN_PATH, registered once a process.
const Registry& BuiltinRegistry();

// CPU backend with `threads` threads, made once a process and thread count.
CpuBackend& Cpu(int threads = 2);
ExecutionContext CpuContext(int threads = 2);

// Layer with its own data: output coordinates by `sort_unique`, then mapping and dataflow.
struct LayerInput {
  std::vector<Coordinate> rows;
  std::vector<float> features;  // [rows, c_in]
  int64_t c_in = 0;
};
struct LayerOutput {
  std::vector<Coordinate> rows;
  std::vector<float> features;  // [rows, c_out]
};
absl::StatusOr<LayerOutput> RunLayer(const std::string& mapping, const std::string& dataflow,
                                     const ConvGeometry& geometry, const LayerInput& input,
                                     const std::vector<float>& weights, int64_t c_out,
                                     const std::vector<Coordinate>* outputs = nullptr);

// Test names from specs: everything but letters and digits becomes _.
std::string TestName(const std::string& spec);

// Where the real scans lie: VOXCONV_DATA_DIR or ../shared/data beside the source tree.
std::string DataPath(const std::string& file);

}  // namespace voxconv::testing

#endif  // VOXCONV_TESTS_SUPPORT_SESSION_H_
