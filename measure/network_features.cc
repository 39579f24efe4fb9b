// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/network_features.h"

#include <cstdint>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/kernel_map_file.h"
#include "voxconv/networks/executor.h"

namespace voxconv::measure {
namespace {

absl::Status Append(const SparseTensor& tensor, const std::string& prefix,
                    const ExecutionContext& context, NpzArrays& arrays) {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> features, tensor.features().ToHost(context));
  arrays.emplace_back(absl::StrCat(prefix, "features"),
                      MakeNpyArray({tensor.features().rows(), tensor.features().channels()},
                                   absl::MakeConstSpan(features)));
  if (tensor.coordinates() == nullptr) return absl::OkStatus();
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<Coordinate> rows,
                           CopyToHost(tensor.coordinates()->rows(), context));
  arrays.emplace_back(absl::StrCat(prefix, "coords"), CoordinatesToArray(rows));
  const Int3& stride = tensor.tensor_stride();
  const std::vector<int32_t> strides = {stride.x, stride.y, stride.z};
  arrays.emplace_back(absl::StrCat(prefix, "tensor_stride"),
                      MakeNpyArray({3}, absl::MakeConstSpan(strides)));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckLayers(const std::vector<std::string>& layers) {
  std::set<std::string> distinct;
  for (const std::string& layer : layers) {
    if (layer.empty()) {
      return absl::InvalidArgumentError(
          "a layer's name is empty; allowed are names with single commas between them");
    }
    if (distinct.insert(layer).second) continue;
    return absl::InvalidArgumentError(absl::StrCat("layer '", layer, "' is named twice"));
  }
  return absl::OkStatus();
}

absl::StatusOr<NpzArrays> FeaturesOfLayers(const NetworkGraph& graph, RunConfig config,
                                           const std::vector<std::string>& layers,
                                           const SparseTensorView& input, const Registry& registry,
                                           Backend& backend) {
  VOXCONV_RETURN_IF_ERROR(CheckLayers(layers));
  config.keep_layers = layers;
  config.profile_stages = false;
  VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<NetworkRunner> runner,
                           NetworkRunner::Create(graph, config, registry, backend));
  VOXCONV_ASSIGN_OR_RETURN(const RunResult result, runner->Run(input));
  const std::string& last = runner->graph().node(runner->graph().output()).name;
  const ExecutionContext context{&backend, &backend.main_stream(), nullptr};
  NpzArrays arrays;
  for (const std::string& layer : layers) {
    const std::string prefix = layers.size() == 1 ? "" : absl::StrCat(layer, ".");
    const SparseTensor& tensor = layer == last ? result.output : result.kept.at(layer);
    VOXCONV_RETURN_IF_ERROR(Append(tensor, prefix, context, arrays));
  }
  return arrays;
}

}  // namespace voxconv::measure
