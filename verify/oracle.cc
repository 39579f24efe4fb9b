// SPDX-License-Identifier: Apache-2.0
#include "voxconv/verify/oracle.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "voxconv/verify/bounds.h"

namespace voxconv::verify {
namespace {

template <typename Change>
std::vector<double> Changed(const std::vector<float>& values, const Change& change) {
  std::vector<double> changed(values.size());
  std::transform(values.begin(), values.end(), changed.begin(),
                 [&](float value) { return change(double{value}); });
  return changed;
}

double Absolute(double value) { return std::abs(value); }

double ValueOr(const std::vector<float>& values, size_t i, double otherwise) {
  return values.empty() ? otherwise : values[i];
}

}  // namespace

Execution ExecutionOf(const Dataflow& dataflow, const ConvShape& shape) {
  const Capability capability = dataflow.CapabilityOf(Pass::kForward, shape);
  return {.rounds_partial_sums = capability.rounds_partial_sums,
          .stores_before_epilogue = !capability.fuses_epilogue};
}

Operands RoundedOperands(const reference::ConvShape& shape, Precision precision,
                         std::vector<float> features, std::vector<float> weights) {
  return {shape, precision, RoundedTo(precision, std::move(features)),
          RoundedTo(precision, std::move(weights))};
}

ExactConvolution::ExactConvolution(const reference::KernelMap& map, Operands operands)
    : map_(map),
      operands_(std::move(operands)),
      values_(reference::Convolution(map, operands_.shape, operands_.features, operands_.weights)),
      magnitudes_(reference::Convolution(map, operands_.shape,
                                         Changed(operands_.features, Absolute),
                                         Changed(operands_.weights, Absolute))),
      spreads_(reference::Convolution(map, operands_.shape, Changed(operands_.features, Square),
                                      Changed(operands_.weights, Square))),
      pairs_(operands_.shape.num_outputs) {
  for (double& spread : spreads_) spread = std::sqrt(spread);
  for (const int32_t row : map.out) ++pairs_[row];
}

ExactConvolution::Partials ExactConvolution::SumPartials() const {
  Partials partials;
  partials.magnitudes = partials.spreads = std::vector<double>(values_.size());
  const int64_t matrix = operands_.shape.c_in * operands_.shape.c_out;
  const reference::Fp64Array features = operands_.features;
  for (int k = 0; k < map_.num_offsets; ++k) {
    const int64_t first = map_.offset_ptr[k], end = map_.offset_ptr[k + 1];
    const reference::KernelMap offset{1,
                                      {0, end - first},
                                      {map_.in.begin() + first, map_.in.begin() + end},
                                      {map_.out.begin() + first, map_.out.begin() + end}};
    const std::vector<double> products =
        reference::Convolution(offset, operands_.shape, features,
                               std::vector<float>(operands_.weights.begin() + k * matrix,
                                                  operands_.weights.begin() + (k + 1) * matrix));
    for (size_t i = 0; i < products.size(); ++i) {
      partials.magnitudes[i] += std::abs(products[i]);
      partials.spreads[i] += products[i] * products[i];
    }
  }
  for (double& spread : partials.spreads) spread = std::sqrt(spread);
  return partials;
}

void ExactConvolution::Finish(const Execution& execution, const HostEpilogue& epilogue, size_t i,
                              Expected& expected) const {
  const size_t c = i % operands_.shape.c_out;
  double& value = expected.values[i];
  Tolerance& tolerance = expected.tolerances[i];
  if (epilogue.affine()) {
    const double scale = ValueOr(epilogue.scale, c, 1), shift = ValueOr(epilogue.shift, c, 0),
                 residual = ValueOr(epilogue.residual, i, 0), affine = value * scale + shift;
    if (execution.stores_before_epilogue) {
      tolerance = StoredTolerance(operands_.precision, value, tolerance);
      tolerance = AffineTolerance(value, scale, shift, 0, tolerance);
      if (!epilogue.residual.empty()) {
        tolerance = StoredTolerance(operands_.precision, affine, tolerance);
        tolerance = AffineTolerance(affine, 1, 0, residual, tolerance);
      }
    } else {
      tolerance = AffineTolerance(value, scale, shift, residual, tolerance);
    }
    value = affine + residual;
  }
  if (epilogue.relu) {
    // max(y, 0) brings no two numbers further apart.
    if (value < -tolerance.element) tolerance = {};
    value = std::max(value, 0.0);
  }
  tolerance = StoredTolerance(operands_.precision, value, tolerance);
}

Expected ExactConvolution::Expect(const Execution& execution, const HostEpilogue& epilogue) const {
  const bool rounds_partials =
      execution.rounds_partial_sums && StorageUnit(operands_.precision) > 0;
  Partials partials;
  if (rounds_partials) {
    partials = SumPartials();
  } else {
    partials.magnitudes = partials.spreads = std::vector<double>(values_.size());
  }
  Expected expected{operands_.shape.c_out, values_, std::vector<Tolerance>(values_.size())};
  for (size_t i = 0; i < values_.size(); ++i) {
    const ExactSum sum{values_[i],          magnitudes_[i],
                       spreads_[i],         partials.magnitudes[i],
                       partials.spreads[i], pairs_[i / operands_.shape.c_out]};
    expected.tolerances[i] =
        SumTolerance(operands_.precision, sum, operands_.shape.c_in, rounds_partials);
    Finish(execution, epilogue, i, expected);
  }
  return expected;
}

}  // namespace voxconv::verify
