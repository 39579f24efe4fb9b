// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/network_options.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/parse.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/training/checkpoint.h"

namespace voxconv::cli {
namespace {

absl::Status CheckChannels(const po::variables_map& values, const char* name) {
  constexpr int64_t kMaxChannels = 65536;
  const int64_t value = values[name].as<int64_t>();
  if (value >= 0 && value <= kMaxChannels) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, " ", value, ": allowed are 0 .. ", kMaxChannels));
}

}  // namespace

void AddShapeOptions(po::options_description& options) {
  options.add_options()  //
      ("width", po::value<double>()->default_value(1.0),
       "factor on every channel count of the network; all counts must stay whole numbers");
  AddGridOption(options);
}

void AddGridOption(po::options_description& options) {
  options.add_options()  //
      ("grid", po::value<std::string>(),
       "voxels of centerpoint's grid as six values, the least x, y, z and the greatest x, y, z, "
       "such as 0,0,0,1439,1439,40: strided layers drop outputs outside, as SpConv does; without "
       "it they keep all");
}

void AddNetworkOptions(po::options_description& options) {
  AddShapeOptions(options);
  options.add_options()  //
      ("in-channels", po::value<int64_t>()->default_value(0),
       "input channels; 0: the network's usual number")  //
      ("classes", po::value<int64_t>()->default_value(19),
       "classes of minkunet42's head; 0: no head")                                 //
      ("seed", po::value<uint64_t>()->default_value(1), "seed of the parameters")  //
      ("weights", po::value<std::string>(),
       "take the parameters from this safetensors file; `voxconv weights` says what fits and "
       "converts other files");
}

absl::StatusOr<ModelOptions> ParseModelOptions(const po::variables_map& values) {
  ModelOptions options;
  if (values.count("width") != 0) options.width = values["width"].as<double>();
  for (const auto& [name, channels] :
       {std::pair("in-channels", &options.in_channels), std::pair("classes", &options.classes)}) {
    if (values.count(name) == 0) continue;
    VOXCONV_RETURN_IF_ERROR(CheckChannels(values, name));
    *channels = values[name].as<int64_t>();
  }
  if (values.count("grid") != 0) {
    VOXCONV_ASSIGN_OR_RETURN(options.grid, ParseBox("--grid", values["grid"].as<std::string>()));
  }
  return options;
}

absl::StatusOr<Precision> ParseNetworkDtype(const po::variables_map& values, BackendKind backend) {
  const std::string& text = values["dtype"].as<std::string>();
  VOXCONV_ASSIGN_OR_RETURN(const Precision precision, ParsePrecision(text));
  if (precision == Precision::kF32 || backend != BackendKind::kCpu) return precision;
  return absl::InvalidArgumentError(
      absl::StrCat("--dtype ", text, ": allowed for networks with --backend cpu is f32"));
}

absl::StatusOr<NetworkGraph> BuildNetwork(const po::variables_map& values) {
  VOXCONV_ASSIGN_OR_RETURN(const ModelOptions options, ParseModelOptions(values));
  if (!values["classes"].defaulted() && values["network"].as<std::string>() != "minkunet42") {
    return absl::InvalidArgumentError("--classes: only minkunet42 has a segmentation head");
  }
  VOXCONV_ASSIGN_OR_RETURN(NetworkGraph graph,
                           MakeModel(values["network"].as<std::string>(), options));
  if (values.count("weights") == 0) {
    InitializeParameters(graph, values["seed"].as<uint64_t>());
    return graph;
  }
  if (!values["seed"].defaulted()) {
    return absl::InvalidArgumentError(
        "--seed: has no meaning together with --weights, which gives all parameters");
  }
  VOXCONV_RETURN_IF_ERROR(LoadParameters(values["weights"].as<std::string>(), graph));
  return graph;
}

}  // namespace voxconv::cli
