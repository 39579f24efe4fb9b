// SPDX-License-Identifier: Apache-2.0
// Convolves a point cloud through voxconv's C++ library: a submanifold layer and a strided one,
// forward and backward. Holds all results against the fp64 reference.
//   convolve [--input FILE|SCENE] [--backend cpu|cuda] [--mapping SPEC] [--dataflow SPEC]
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "arguments.h"
#include "voxconv/voxconv.h"

namespace example {
namespace {

using voxconv::ConvGeometry;
using voxconv::DType;
using voxconv::ExecutionContext;
using voxconv::KernelMap;
using voxconv::Pass;
using voxconv::SparseTensor;
using voxconv::Tensor;

constexpr auto kPrecision = voxconv::Precision::kF32;

// What runs the layers. One instance of a plugin serves all of them. The workspace serves one layer
// after the other.
struct Engine {
  std::unique_ptr<voxconv::Backend> backend;
  std::unique_ptr<const voxconv::Mapping> mapping;
  std::unique_ptr<const voxconv::Dataflow> dataflow;
  std::unique_ptr<const voxconv::OutputCoords> output_coords;
  voxconv::Workspace workspace;

  ExecutionContext Context(voxconv::Profile* profile = nullptr) const {
    return {backend.get(), &backend->main_stream(), profile};
  }
};

absl::StatusOr<Engine> MakeEngine(const Arguments& arguments) {
  VOXCONV_ASSIGN_OR_RETURN(const auto kind, voxconv::ParseBackendKind(arguments.backend));
  voxconv::Registry registry;
  VOXCONV_RETURN_IF_ERROR(RegisterBuiltinPlugins(registry));
  Engine engine;
  VOXCONV_ASSIGN_OR_RETURN(engine.backend, voxconv::MakeBackend({.kind = kind}));
  VOXCONV_ASSIGN_OR_RETURN(engine.mapping, registry.mappings().Create(arguments.mapping, kind));
  VOXCONV_ASSIGN_OR_RETURN(engine.dataflow, registry.dataflows().Create(arguments.dataflow, kind));
  VOXCONV_ASSIGN_OR_RETURN(engine.output_coords,
                           registry.output_coords().Create(arguments.output_coords, kind));
  return engine;
}

// A layer y = conv(x) with weights w. dx and dw are its gradients for the gradient dy of y.
struct Layer {
  ConvGeometry geometry;
  SparseTensor y;
  KernelMap map;
  Tensor w, dy, dx, dw;
};

// Which voxels come out, which voxels meet under which kernel offset, and then the features. A
// caller that keeps map and plan repeats the last call alone for other features on these voxels.
absl::Status Forward(const SparseTensor& x, int64_t c_out, Engine& engine, Layer& layer,
                     const ExecutionContext& context) {
  voxconv::CoordinateSetPtr outputs = x.coordinates();
  if (!layer.geometry.keeps_coordinates()) {
    VOXCONV_ASSIGN_OR_RETURN(
        outputs, engine.output_coords->Compute(*x.coordinates(), layer.geometry, context));
  }
  VOXCONV_ASSIGN_OR_RETURN(
      layer.map,
      QueryKernelMap(*engine.mapping, {*x.coordinates(), *outputs, layer.geometry}, context));

  const voxconv::Dataflow& dataflow = *engine.dataflow;
  const int64_t c_in = x.features().channels(), w_rows = layer.geometry.num_offsets() * c_in;
  VOXCONV_ASSIGN_OR_RETURN(layer.w, Tensor::FromHost(voxconv::verify::Values(w_rows * c_out, 1),
                                                     w_rows, c_out, context));
  const voxconv::ConvShape shape = ShapeOfLayer(layer.geometry, c_in, c_out, kPrecision);
  VOXCONV_ASSIGN_OR_RETURN(const auto prepared,
                           PrepareMap(dataflow, Pass::kForward, shape, layer.map, context));
  VOXCONV_ASSIGN_OR_RETURN(const auto plan,
                           dataflow.Plan(Pass::kForward, *prepared, shape, context));
  VOXCONV_ASSIGN_OR_RETURN(Tensor y,
                           RunPlannedConvolution(dataflow, *plan, *prepared, x.features().view(),
                                                 layer.w.view(), engine.workspace, context));
  layer.y = SparseTensor(outputs, std::move(y));
  return absl::OkStatus();
}

// These functions prepare, plan and run. RunConvolution does the same for the forward pass.
absl::Status Backward(const Tensor& x, Engine& engine, Layer& layer,
                      const ExecutionContext& context) {
  const int64_t rows = layer.y.features().rows(), c_out = layer.w.channels();
  VOXCONV_ASSIGN_OR_RETURN(
      layer.dy, Tensor::FromHost(voxconv::verify::Values(rows * c_out, 2), rows, c_out, context));
  VOXCONV_ASSIGN_OR_RETURN(layer.dx, Tensor::Create(x.rows(), x.channels(), DType::kF32, context));
  VOXCONV_ASSIGN_OR_RETURN(layer.dw, Tensor::Create(layer.w.rows(), c_out, DType::kF32, context));
  VOXCONV_RETURN_IF_ERROR(RunInputGrad(*engine.dataflow, layer.map,
                                       {layer.dy.view(), layer.w.view(), layer.dx.view()},
                                       kPrecision, engine.workspace, context));
  return RunWeightGrad(*engine.dataflow, layer.map, {x.view(), layer.dy.view(), layer.dw.view()},
                       kPrecision, engine.workspace, context);
}

// `terms`: the most products that an element sums.
absl::Status Compare(const char* name, const Tensor& tensor, const std::vector<double>& expected,
                     int64_t terms, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values, tensor.ToHost(context));
  const double bound = voxconv::verify::RelativeTolerance(kPrecision, terms);
  VOXCONV_ASSIGN_OR_RETURN(const double error, voxconv::verify::CompareOutputs(
                                                   values, expected, bound, "the reference"));
  absl::PrintF("  %s: error %.1e, bound %.1e\n", name, error, bound);
  return absl::OkStatus();
}

// Voxels and kernel map must be those of the reference exactly; features and gradients norm-wise.
absl::Status Check(const SparseTensor& x, const Layer& layer, const ExecutionContext& context) {
  namespace reference = voxconv::reference;
  VOXCONV_ASSIGN_OR_RETURN(const auto inputs, CopyToHost(x.coordinates()->rows(), context));
  VOXCONV_ASSIGN_OR_RETURN(const auto outputs, CopyToHost(layer.y.coordinates()->rows(), context));
  VOXCONV_ASSIGN_OR_RETURN(const auto features, x.features().ToHost(context));
  VOXCONV_ASSIGN_OR_RETURN(const auto w, layer.w.ToHost(context));
  VOXCONV_ASSIGN_OR_RETURN(const auto dy, layer.dy.ToHost(context));

  const auto expected = voxconv::verify::MakeProblem({"layer", layer.geometry.params()},
                                                     {.name = "input", .rows = inputs});
  if (outputs != expected->outputs) return absl::InternalError("other voxels than the reference's");
  VOXCONV_RETURN_IF_ERROR(voxconv::verify::CompareMaps(layer.map, expected->map, context));
  const int64_t num_inputs = x.features().rows(), num_outputs = layer.dy.rows(),
                c_in = x.features().channels(), c_out = layer.dy.channels(),
                num_offsets = layer.map.num_offsets();
  const reference::ConvShape shape{num_inputs, num_outputs, c_in, c_out};
  VOXCONV_RETURN_IF_ERROR(Compare("output", layer.y.features(),
                                  reference::Convolution(expected->map, shape, features, w),
                                  num_offsets * c_in, context));
  VOXCONV_RETURN_IF_ERROR(Compare("input gradient", layer.dx,
                                  reference::BackwardInput(expected->map, shape, dy, w),
                                  num_offsets * c_out, context));
  return Compare("weight gradient", layer.dw,
                 reference::BackwardWeight(expected->map, shape, features, dy), num_outputs,
                 context);
}

void PrintStages(const char* name, const voxconv::Profile& profile) {
  absl::PrintF("  %s:", name);
  for (int i = 0; i < voxconv::kNumStages; ++i) {
    const auto stage = static_cast<voxconv::Stage>(i);
    if (profile.visits[i] > 0) absl::PrintF(" %s %.2f ms", ToString(stage), profile.Time(stage));
  }
  absl::PrintF("\n");
}

absl::StatusOr<SparseTensor> RunLayer(const voxconv::GeometryParams& params, const SparseTensor& x,
                                      int64_t c_out, Engine& engine) {
  VOXCONV_ASSIGN_OR_RETURN(ConvGeometry geometry, ConvGeometry::Create(params));
  Layer layer{.geometry = std::move(geometry)};
  voxconv::Profile forward, backward;
  VOXCONV_RETURN_IF_ERROR(Forward(x, c_out, engine, layer, engine.Context(&forward)));
  VOXCONV_RETURN_IF_ERROR(Backward(x.features(), engine, layer, engine.Context(&backward)));
  VOXCONV_RETURN_IF_ERROR(engine.backend->FlushStages());
  VOXCONV_RETURN_IF_ERROR(layer.map.EnsureCounts(engine.Context()));
  absl::PrintF("%s: %d -> %d voxels, %d -> %d channels, %d pairs\n", layer.geometry.ToString(),
               layer.map.num_inputs(), layer.map.num_outputs(), x.features().channels(), c_out,
               layer.map.num_pairs());
  PrintStages("forward", forward);
  PrintStages("gradients", backward);
  VOXCONV_RETURN_IF_ERROR(Check(x, layer, engine.Context()));
  return std::move(layer.y);
}

absl::Status Run(int argc, char** argv) {
  VOXCONV_ASSIGN_OR_RETURN(const Arguments arguments, ParseArguments(argc, argv));
  VOXCONV_ASSIGN_OR_RETURN(Engine engine, MakeEngine(arguments));
  VOXCONV_ASSIGN_OR_RETURN(const auto cloud, voxconv::LoadInput(arguments.input, {}));
  VOXCONV_ASSIGN_OR_RETURN(const SparseTensor x,
                           MakeSparseTensor(cloud, /*channels=*/4, engine.Context()));
  absl::PrintF("%d points, %d voxels; %s\n", cloud.points, cloud.size(),
               engine.backend->DeviceName());
  VOXCONV_ASSIGN_OR_RETURN(const SparseTensor y, RunLayer({.kernel = {3, 3, 3}}, x, 16, engine));
  return RunLayer({.kind = voxconv::ConvKind::kStrided, .kernel = {2, 2, 2}, .stride = {2, 2, 2}},
                  y, 32, engine)
      .status();
}

}  // namespace
}  // namespace example

int main(int argc, char** argv) {
  const absl::Status status = example::Run(argc, argv);
  if (!status.ok()) absl::FPrintF(stderr, "convolve: %s\n", status.message());
  return status.ok() ? 0 : 1;
}
