// SPDX-License-Identifier: Apache-2.0
#include "tests/support/session.h"

#include <cctype>
#include <cstdlib>
#include <map>

#include "voxconv/builtin/plugins.h"

namespace voxconv::testing {

const Registry& BuiltinRegistry() {
  static const Registry* registry = [] {
    auto* filled = new Registry;
    VOXCONV_CHECK(RegisterAllPlugins({}, *filled).ok());
    return filled;
  }();
  return *registry;
}

CpuBackend& Cpu(int threads) {
  static auto* backends = new std::map<int, std::unique_ptr<CpuBackend>>;
  std::unique_ptr<CpuBackend>& backend = (*backends)[threads];
  if (backend == nullptr) {
    auto made = CpuBackend::Create({.threads = threads});
    VOXCONV_CHECK(made.ok());
    backend = *std::move(made);
  }
  return *backend;
}

ExecutionContext CpuContext(int threads) {
  CpuBackend& backend = Cpu(threads);
  return {&backend, &backend.main_stream()};
}

absl::StatusOr<LayerOutput> RunLayer(const std::string& mapping_spec,
                                     const std::string& dataflow_spec, const ConvGeometry& geometry,
                                     const LayerInput& input, const std::vector<float>& weights,
                                     int64_t c_out, const std::vector<Coordinate>* given_outputs) {
  const ExecutionContext context = CpuContext();
  const Registry& registry = BuiltinRegistry();
  VOXCONV_ASSIGN_OR_RETURN(const auto mapping,
                           registry.mappings().Create(mapping_spec, BackendKind::kCpu));
  VOXCONV_ASSIGN_OR_RETURN(const auto dataflow,
                           registry.dataflows().Create(dataflow_spec, BackendKind::kCpu));
  VOXCONV_ASSIGN_OR_RETURN(
      CoordinateSetPtr inputs,
      CoordinateSet::Create(input.rows, geometry.input_tensor_stride(), context));
  CoordinateSetPtr outputs = inputs;
  if (given_outputs != nullptr) {
    VOXCONV_ASSIGN_OR_RETURN(
        outputs, CoordinateSet::Create(*given_outputs, geometry.output_tensor_stride(), context));
  } else if (!geometry.keeps_coordinates()) {
    const std::string& first = registry.output_coords().entries().begin()->first;
    VOXCONV_ASSIGN_OR_RETURN(const auto plugin,
                             registry.output_coords().Create(first, BackendKind::kCpu));
    VOXCONV_ASSIGN_OR_RETURN(outputs, plugin->Compute(*inputs, geometry, context));
  }
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap map,
                           QueryKernelMap(*mapping, {*inputs, *outputs, geometry}, context));
  VOXCONV_ASSIGN_OR_RETURN(Tensor features,
                           Tensor::FromHost(input.features, inputs->size(), input.c_in, context));
  VOXCONV_ASSIGN_OR_RETURN(
      Tensor weight,
      Tensor::FromHost(weights, geometry.num_offsets() * input.c_in, c_out, context));
  Workspace workspace;
  VOXCONV_ASSIGN_OR_RETURN(
      Tensor result, RunConvolution(*dataflow, map, features.view(), weight.view(), Precision::kF32,
                                    workspace, context));
  LayerOutput output;
  VOXCONV_ASSIGN_OR_RETURN(output.rows, CopyToHost(outputs->rows(), context));
  VOXCONV_ASSIGN_OR_RETURN(output.features, result.ToHost(context));
  return output;
}

std::string TestName(const std::string& spec) {
  std::string name = spec;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

std::string DataPath(const std::string& file) {
  const char* directory = std::getenv("VOXCONV_DATA_DIR");
  const std::string root =
      directory != nullptr ? directory : std::string(VOXCONV_SOURCE_DIR) + "/../shared/data";
  return root + "/" + file;
}

}  // namespace voxconv::testing
