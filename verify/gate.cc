// SPDX-License-Identifier: Apache-2.0
#include "voxconv/verify/gate.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/map_check.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/reference_cpu/layers.h"
#include "voxconv/verify/convolve.h"
#include "voxconv/verify/difference.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::verify {
namespace {

absl::StatusOr<CoordinateSetPtr> OutputsOf(const Problem& problem, const CoordinateSetPtr& inputs,
                                           const OutputCoords* plugin,
                                           const ExecutionContext& context) {
  const ConvGeometry& geometry = problem.geometry;
  if (plugin == nullptr || geometry.keeps_coordinates() || geometry.kind() == ConvKind::kInverse) {
    return problem.MakeOutputs(inputs, context);
  }
  VOXCONV_RETURN_IF_ERROR(plugin->Supports(geometry).ToStatus("output_coords"));
  VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr outputs, plugin->Compute(*inputs, geometry, context));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<Coordinate> rows,
                           CopyToHost(outputs->rows(), context));
  if (rows == problem.outputs) return outputs;
  return absl::InternalError(absl::StrCat("output coordinates differ from the reference's (",
                                          rows.size(), " and ", problem.outputs.size(), " rows)"));
}

}  // namespace

absl::StatusOr<reference::KernelMap> PairsOnHost(const KernelMap& map,
                                                 const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs,
                           context.backend->map_ops().To(MapForm::kPairs, map, context));
  reference::KernelMap host{.num_offsets = pairs.num_offsets(), .offset_ptr = pairs.offset_ptr()};
  VOXCONV_ASSIGN_OR_RETURN(host.in, CopyToHost(pairs.pairs().in.array(), context));
  VOXCONV_ASSIGN_OR_RETURN(host.out, CopyToHost(pairs.pairs().out.array(), context));
  return host;
}

absl::Status CompareMaps(const reference::KernelMap& map, const reference::KernelMap& expected,
                         absl::string_view whose) {
  if (map.num_offsets != expected.num_offsets) {
    return absl::InternalError(absl::StrCat("the kernel map has ", map.num_offsets, " offsets; ",
                                            whose, " has ", expected.num_offsets));
  }
  for (int k = 0; k < map.num_offsets; ++k) {
    const int64_t pairs = map.offset_ptr[k + 1] - map.offset_ptr[k];
    const int64_t want = expected.offset_ptr[k + 1] - expected.offset_ptr[k];
    if (pairs == want) continue;
    return absl::InternalError(
        absl::StrCat("offset ", k, " has ", pairs, " pairs; ", whose, " has ", want));
  }
  for (size_t i = 0; i < map.in.size(); ++i) {
    if (map.in[i] == expected.in[i] && map.out[i] == expected.out[i]) continue;
    return absl::InternalError(absl::StrCat("pair ", i, " is (", map.in[i], ", ", map.out[i], "); ",
                                            whose, " has (", expected.in[i], ", ", expected.out[i],
                                            ")"));
  }
  return absl::OkStatus();
}

absl::Status CompareMaps(const KernelMap& map, const reference::KernelMap& expected,
                         const ExecutionContext& context, absl::string_view whose) {
  VOXCONV_ASSIGN_OR_RETURN(const reference::KernelMap pairs, PairsOnHost(map, context));
  return CompareMaps(pairs, expected, whose);
}

absl::Status CompareMaps(const KernelMap& map, const KernelMap& expected,
                         const ExecutionContext& context, absl::string_view whose) {
  VOXCONV_ASSIGN_OR_RETURN(const reference::KernelMap pairs, PairsOnHost(expected, context));
  return CompareMaps(map, pairs, context, whose);
}

absl::Status CompareMaps(const KernelMap& map, const Problem& problem,
                         const ExecutionContext& context) {
  const absl::Status same = CompareMaps(map, problem.map, context, "the reference");
  if (same.ok()) return same;
  VOXCONV_ASSIGN_OR_RETURN(const CoordinateSetPtr inputs, problem.MakeInputs(context));
  VOXCONV_ASSIGN_OR_RETURN(const CoordinateSetPtr outputs, problem.MakeOutputs(inputs, context));
  const absl::Status held = CheckMapOnAllRows(map, {*inputs, *outputs, problem.geometry}, context);
  if (held.ok()) return same;
  return absl::InternalError(absl::StrCat(same.message(), "; ", held.message()));
}

absl::StatusOr<double> CompareOutputs(const std::vector<float>& output,
                                      const reference::Fp64Array& expected, double bound,
                                      absl::string_view whose) {
  return HoldDifference(reference::RelativeError(output, expected), bound, whose);
}

absl::StatusOr<double> HoldDifference(double difference, double bound, absl::string_view whose) {
  // Written so that a NaN fails.
  if (difference <= bound) return difference;
  return absl::InternalError(absl::StrCat("the output differs norm-wise by ", difference,
                                          " from that of ", whose, ", past ", bound));
}

RunPrecision RunPrecisionOf(const Dataflow& dataflow, const ConvShape& shape, bool with_epilogue) {
  const Execution execution = ExecutionOf(dataflow, shape);
  return {shape.types.precision, 1 + (execution.rounds_partial_sums ? 1 : 0) +
                                     (with_epilogue && execution.stores_before_epilogue ? 1 : 0)};
}

double DifferenceBound(const RunPrecision& a, const RunPrecision& b, int64_t reduction,
                       bool same_operands) {
  double bound = 0;
  for (const RunPrecision* run : {&a, &b}) {
    bound += RelativeTolerance(run->precision, reduction, run->stores);
    if (!same_operands) bound += OperandTolerance(run->precision);
  }
  return bound;
}

absl::StatusOr<CropReference> CropReference::Create(const GeometryParams& params,
                                                    const ConvShape& shape,
                                                    absl::Span<const Coordinate> rows,
                                                    int64_t limit) {
  std::vector<Coordinate> crop;
  for (const int64_t i : CropRows(rows, limit)) crop.push_back(rows[i]);
  CropReference reference;
  // MakeProblem takes a geometry that exists.
  VOXCONV_RETURN_IF_ERROR(ConvGeometry::Create(PlacedGeometry(params)).status());
  reference.problem_ = MakeProblem({"layer", params}, {"crop", std::move(crop)});
  if (reference.problem_ == nullptr) {
    return absl::InvalidArgumentError("the layer does not apply to the crop");
  }
  const Problem& problem = reference.problem();
  const reference::ConvShape sizes{static_cast<int64_t>(problem.inputs.size()),
                                   static_cast<int64_t>(problem.outputs.size()), shape.c_in,
                                   shape.c_out};
  reference.exact_ = std::make_unique<const ExactConvolution>(
      problem.map,
      RoundedOperands(sizes, shape.types.precision, Values(sizes.num_inputs * shape.c_in, 1),
                      Values(problem.geometry.num_offsets() * shape.c_in * shape.c_out, 2)));
  return reference;
}

absl::StatusOr<KernelMap> CheckedMap(const Problem& problem, const Mapping& mapping,
                                     const OutputCoords* output_coords,
                                     const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const CoordinateSetPtr inputs, problem.MakeInputs(context));
  VOXCONV_ASSIGN_OR_RETURN(const CoordinateSetPtr outputs,
                           OutputsOf(problem, inputs, output_coords, context));
  VOXCONV_ASSIGN_OR_RETURN(KernelMap map,
                           QueryKernelMap(mapping, {*inputs, *outputs, problem.geometry}, context));
  VOXCONV_RETURN_IF_ERROR(CompareMaps(map, problem, context));
  return map;
}

absl::StatusOr<CropCheck> CheckOnCrop(const CropReference& reference, const Mapping& mapping,
                                      const OutputCoords* output_coords, const Dataflow& dataflow,
                                      const ExecutionContext& context) {
  const Problem& problem = reference.problem();
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap map,
                           CheckedMap(problem, mapping, output_coords, context));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> output,
                           Convolve(dataflow, map, reference.exact().operands(), context));
  const Expected expected =
      reference.exact().Expect(ExecutionOf(dataflow, ShapeOf(map, reference.exact().operands())));
  const Operands& operands = reference.exact().operands();
  const LayerData layer{problem, operands.shape.c_in, operands.features, operands.weights};
  VOXCONV_RETURN_IF_ERROR(CheckOutput(output, expected, &layer));
  return CropCheck{static_cast<int64_t>(problem.inputs.size()),
                   reference::RelativeError(output, expected.values), expected.NormBound()};
}

}  // namespace voxconv::verify
