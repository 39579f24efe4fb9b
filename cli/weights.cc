// SPDX-License-Identifier: Apache-2.0
// voxconv weights: what a file of weights holds, whether it fits a network, and the same weights in
// another format or convention.
#include "voxconv/training/weights.h"

#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "voxconv/cli/command.h"
#include "voxconv/cli/input_options.h"
#include "voxconv/cli/output_path.h"
#include "voxconv/cli/standard_output.h"
#include "voxconv/networks/models.h"

namespace voxconv::cli {
namespace {

po::options_description WeightsOptions() {
  po::options_description options("Weights");
  options.add_options()                                                                         //
      ("in", po::value<std::string>(), "FILE: a .safetensors file, or an .npz file of arrays")  //
      ("out", po::value<std::string>(),
       "OUT: write the arrays to this .safetensors or .npz file; with --network, its parameters "
       "under its own names")  //
      ("network", po::value<std::string>(),
       absl::StrCat("say what fits this network: ", absl::StrJoin(TrainableNames(), ", "), ", ",
                    "centerpoint, sparseresnet21")
           .c_str())  //
      ("width", po::value<double>()->default_value(1.0),
       "factor on every channel count; all counts must stay whole numbers")  //
      ("in-channels", po::value<int64_t>()->default_value(0),
       "input channels; 0: the network's usual number")  //
      ("classes", po::value<int64_t>()->default_value(19),
       "classes of a network with a head; 0: minkunet42 without one")  //
      ("levels", po::value<int>()->default_value(3),
       "networks of H-CNN: how often the resolution is halved")  //
      ("names", po::value<std::string>(),
       "a JSON object with FILE's name of each parameter whose name there is another")  //
      ("convention", po::value<std::string>()->default_value("voxconv"),
       "how FILE writes weights: voxconv, spconv, torchsparse or minkowski")  //
      ("to-convention", po::value<std::string>()->default_value("voxconv"),
       "how OUT is to write them")  //
      ("npz-limit-mib", po::value<int64_t>()->default_value(256), kNpzLimitHelp);
  return options;
}

absl::StatusOr<NetworkGraph> TargetNetwork(const po::variables_map& values) {
  const std::string& name = values["network"].as<std::string>();
  const ModelOptions options{.width = values["width"].as<double>(),
                             .in_channels = values["in-channels"].as<int64_t>(),
                             .classes = values["classes"].as<int64_t>(),
                             .levels = values["levels"].as<int>()};
  absl::StatusOr<NetworkGraph> graph = MakeModel(name, options);
  return graph.ok() ? std::move(graph) : MakeTrainable(name, options);
}

absl::Status CheckApplicable(const po::variables_map& values) {
  if (values.count("network") == 0) {
    for (const char* name :
         {"width", "in-channels", "classes", "levels", "names", "convention", "to-convention"}) {
      if (values.count(name) == 0 || values[name].defaulted()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, ": has no meaning without --network"));
    }
  } else {
    const std::string& network = values["network"].as<std::string>();
    const auto refuse = [&](const char* name, const char* which) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, ": has no meaning with --network ",
                                                     network, ", only with ", which));
    };
    if (!values["levels"].defaulted() && !absl::StartsWith(network, "hcnn_")) {
      return refuse("levels", "those of H-CNN");
    }
    if (!values["classes"].defaulted() &&
        (network == "sparseresnet21" || network == "centerpoint")) {
      return refuse("classes", "networks that have a head");
    }
  }
  if (values.count("out") == 0 && !values["to-convention"].defaulted()) {
    return absl::InvalidArgumentError("--to-convention: has no meaning without OUT");
  }
  return absl::OkStatus();
}

void PrintArrays(const Safetensors& content) {
  std::vector<std::vector<std::string>> table = {{"array", "dtype", "shape"}};
  int64_t values = 0;
  for (const SafeTensor& tensor : content.tensors) {
    table.push_back({tensor.name, tensor.dtype, NpyShapeString(tensor.shape)});
    values += tensor.size();
  }
  std::cout << FormatTable(table) << content.tensors.size() << " arrays, " << values << " values\n";
}

void PrintLines(const char* what, const std::vector<std::string>& lines) {
  constexpr size_t kShown = 20;
  for (size_t i = 0; i < lines.size() && i < kShown; ++i) {
    std::cout << what << " " << lines[i] << "\n";
  }
  if (lines.size() > kShown) {
    std::cout << what << " " << lines.size() - kShown << " more\n";
  }
}

// The parameters of the network, or an error that counts what does not fit.
absl::StatusOr<Safetensors> Fit(const po::variables_map& values, const Safetensors& content) {
  const auto convention = [&](const char* name) {
    return ParseConvention(values[name].as<std::string>());
  };
  VOXCONV_ASSIGN_OR_RETURN(const Convention from, convention("convention"));
  VOXCONV_ASSIGN_OR_RETURN(const Convention to, convention("to-convention"));
  VOXCONV_ASSIGN_OR_RETURN(const NetworkGraph graph, TargetNetwork(values));
  WeightNames names;
  if (values.count("names") != 0) {
    VOXCONV_ASSIGN_OR_RETURN(names, ReadWeightNames(values["names"].as<std::string>(), graph));
  }
  WeightsFit fit;
  Safetensors converted = ConvertWeights(graph, content, from, to, names, fit);
  PrintLines("missing:", fit.missing);
  PrintLines("wrong shape:", fit.wrong);
  PrintLines("not of this network:", fit.surplus);
  std::cout << fit.fitting << " of the " << graph.parameters().size() << " parameters of "
            << graph.name() << " fit\n";
  if (fit.fits()) return converted;
  return absl::InvalidArgumentError(absl::StrCat(
      values["in"].as<std::string>(), ": does not fit ", graph.name(), ": ", fit.missing.size(),
      " parameters are missing, ", fit.wrong.size(),
      " have a wrong shape; the first: ", fit.missing.empty() ? fit.wrong[0] : fit.missing[0]));
}

}  // namespace

absl::Status RunWeights(const std::vector<std::string>& args) {
  po::positional_options_description positional;
  positional.add("in", 1).add("out", 1);
  VOXCONV_ASSIGN_OR_RETURN(
      const po::variables_map values,
      ParseArguments("weights FILE [OUT] [OPTIONS]", WeightsOptions(), positional, args));
  if (values.count("in") == 0) {
    return absl::InvalidArgumentError("FILE is missing: a .safetensors or .npz file");
  }
  VOXCONV_RETURN_IF_ERROR(CheckApplicable(values));
  const std::string out = OutOf(values);
  if (!out.empty()) {
    VOXCONV_RETURN_IF_ERROR(CheckWeightsPath(out));
    VOXCONV_RETURN_IF_ERROR(
        CheckOutputs({{"FILE", values["in"].as<std::string>()}}, {{"OUT", out}}));
    VOXCONV_RETURN_IF_ERROR(CheckWriteFile(out));
  }
  VOXCONV_ASSIGN_OR_RETURN(const NpzOptions npz, ParseNpzLimit(values));
  VOXCONV_ASSIGN_OR_RETURN(Safetensors content, ReadWeights(values["in"].as<std::string>(), npz));
  if (values.count("network") == 0) {
    PrintArrays(content);
  } else {
    VOXCONV_ASSIGN_OR_RETURN(content, Fit(values, content));
  }
  if (out.empty()) return absl::OkStatus();
  VOXCONV_ASSIGN_OR_RETURN(const std::string bytes, SerializeWeights(out, content));
  VOXCONV_RETURN_IF_ERROR(WriteFiles({{out, bytes}}));
  std::cout << content.tensors.size() << " arrays -> " << out << "\n";
  return absl::OkStatus();
}

}  // namespace voxconv::cli
