// SPDX-License-Identifier: Apache-2.0
// Builds a network, runs it on a point cloud through voxconv's C++ library and holds its output
// against the fp64 reference.
//   network [--input FILE|SCENE] [--backend cpu|cuda] [--mapping SPEC] [--dataflow SPEC]
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "arguments.h"
#include "voxconv/voxconv.h"

namespace example {
namespace {

// A small U-Net: down once, a residual block, up again and a skip connection.
absl::StatusOr<voxconv::NetworkGraph> SmallUNet(int64_t in_channels) {
  voxconv::GraphBuilder builder("small_unet");
  const int input = builder.Input(in_channels);
  const int stem = builder.ConvBlock("stem", input, 16, {.kernel = {3, 3, 3}});
  const int down = builder.ConvBlock(
      "down", stem, 32,
      {.kind = voxconv::ConvKind::kStrided, .kernel = {2, 2, 2}, .stride = {2, 2, 2}});
  const int bottom = builder.ResidualBlock("bottom", down, 32);
  const int up = builder.UpBlock("up", bottom, 16, down);
  const int skip = builder.Concat("skip", up, stem);
  return std::move(builder).Build(builder.Linear("head", skip, 8));
}

absl::Status Run(int argc, char** argv) {
  VOXCONV_ASSIGN_OR_RETURN(const Arguments arguments, ParseArguments(argc, argv));
  VOXCONV_ASSIGN_OR_RETURN(const auto kind, voxconv::ParseBackendKind(arguments.backend));
  voxconv::Registry registry;
  VOXCONV_RETURN_IF_ERROR(RegisterBuiltinPlugins(registry));
  VOXCONV_ASSIGN_OR_RETURN(const auto backend, voxconv::MakeBackend({.kind = kind}));
  const voxconv::ExecutionContext context{backend.get(), &backend->main_stream()};

  VOXCONV_ASSIGN_OR_RETURN(const auto cloud, voxconv::LoadInput(arguments.input, {}));
  VOXCONV_ASSIGN_OR_RETURN(const auto input, MakeSparseTensor(cloud, /*channels=*/4, context));
  VOXCONV_ASSIGN_OR_RETURN(voxconv::NetworkGraph graph, SmallUNet(/*in_channels=*/4));
  InitializeParameters(graph, /*seed=*/1);

  voxconv::RunConfig config;
  config.planner = std::make_shared<voxconv::FixedPlanner>(
      voxconv::LayerChoice{arguments.mapping, arguments.dataflow, arguments.output_coords});
  VOXCONV_ASSIGN_OR_RETURN(const auto runner,
                           voxconv::NetworkRunner::Create(graph, config, registry, *backend));
  VOXCONV_ASSIGN_OR_RETURN(const voxconv::RunResult result, runner->Run(input.view()));
  for (const voxconv::LayerReport& layer : result.report.layers) {
    absl::PrintF("%-18s %-10s %6d -> %6d voxels, %2d -> %2d channels, %7.2f ms\n", layer.name,
                 layer.op, layer.n_in, layer.n_out, layer.c_in, layer.c_out, layer.profile.Total());
  }

  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> output,
                           result.output.features().ToHost(context));
  VOXCONV_ASSIGN_OR_RETURN(
      const auto expected,
      RunReferenceNetwork(graph, cloud.coords, FeaturesWithChannels(cloud, 4)));
  const double bound = voxconv::verify::NetworkBound(graph, config.precision);
  VOXCONV_ASSIGN_OR_RETURN(
      const double error,
      voxconv::verify::CompareOutputs(output, expected.features, bound, "the reference"));
  absl::PrintF("%d voxels in %.2f ms; error %.1e, bound %.1e\n", cloud.size(),
               result.report.total.Total(), error, bound);
  return absl::OkStatus();
}

}  // namespace
}  // namespace example

int main(int argc, char** argv) {
  const absl::Status status = example::Run(argc, argv);
  if (!status.ok()) absl::FPrintF(stderr, "network: %s\n", status.message());
  return status.ok() ? 0 : 1;
}
