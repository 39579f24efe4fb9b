// SPDX-License-Identifier: Apache-2.0
// Classes of values: past the range of f16, near the ends of each dtype's range, denormal, signed
// zeros, and NaN and infinity in single rows and in the weights of single offsets, which must stay
// in the outputs that use these rows and offsets.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/verify/exact.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::verify {
namespace {

// Features of whole numbers times 2^exponent. Their sums stay exact as long as they stay in the
// range of the dtype.
struct ValueClass {
  const char* name;
  int exponent;
};

// The class's smallest magnitude is the dtype's smallest one, or its largest sums, up to 2^8 times
// that, come near the end of the range. tf32 is stored as f32, with 10 bits of mantissa.
std::vector<ValueClass> ScaledClasses(Precision precision) {
  switch (precision) {
    case Precision::kF32:
      return {{"past_65504", 17}, {"large", 118}, {"tiny", -110}, {"denormal", -149}};
    case Precision::kTf32:
      return {{"past_65504", 17}, {"large", 118}, {"tiny", -110}, {"denormal", -136}};
    case Precision::kF16:
      return {{"large", 7}, {"tiny", -14}, {"denormal", -24}};
    case Precision::kBF16:
      return {{"past_65504", 17}, {"large", 118}, {"tiny", -110}, {"denormal", -133}};
  }
  return {};
}

ConvData ScaledBy(ConvData data, int exponent) {
  for (float& x : data.features) x = std::ldexp(x, exponent);
  for (float& y : data.output) y = std::ldexp(y, exponent);
  return data;
}

// Row `row` of the features becomes `value` in all channels.
void SetRow(ConvData& data, int64_t row, float value) {
  for (int64_t c = 0; c < data.c_in; ++c) data.features[row * data.c_in + c] = value;
}

ConvData WithSignedZeros(const Problem& problem, ConvData data) {
  for (size_t row = 0; row < problem.inputs.size(); row += 2) {
    SetRow(data, static_cast<int64_t>(row), row % 4 == 0 ? 0.0f : -0.0f);
  }
  data.output = Sums(problem, data);
  return data;
}

// The first and the last row, and one in the middle: padding must not read them.
ConvData WithNonFinite(const Problem& problem, ConvData data, float value) {
  const auto rows = static_cast<int64_t>(problem.inputs.size());
  for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) SetRow(data, row, value);
  data.output = Sums(problem, data);
  return data;
}

// The first and the last offset. Outputs without a pair of these must stay as they are.
ConvData WithNonFiniteWeights(const Problem& problem, ConvData data, float value) {
  const auto size = static_cast<int64_t>(data.weights.size());
  data.weights[1] = value;
  data.weights[size - 2] = value;
  data.output = Sums(problem, data);
  return data;
}

bool IsOfWeights(absl::string_view value_class) {
  return value_class == "nan_weight" || value_class == "inf_weight";
}

ConvData DataOf(const std::string& value_class, int exponent, const Problem& problem,
                const CaseShape& shape) {
  ConvData data = WholeNumbers(problem, shape.c_in, shape.c_out);
  if (value_class == "signed_zero") return WithSignedZeros(problem, std::move(data));
  if (value_class == "nan") {
    return WithNonFinite(problem, std::move(data), std::numeric_limits<float>::quiet_NaN());
  }
  if (value_class == "inf") {
    return WithNonFinite(problem, std::move(data), std::numeric_limits<float>::infinity());
  }
  if (value_class == "nan_weight") {
    return WithNonFiniteWeights(problem, std::move(data), std::numeric_limits<float>::quiet_NaN());
  }
  if (value_class == "inf_weight") {
    return WithNonFiniteWeights(problem, std::move(data), std::numeric_limits<float>::infinity());
  }
  return ScaledBy(std::move(data), exponent);
}

// The atomic additions of GPUs may flush f32 denormals in global memory to zero (PTX ISA, atom.add
// and red.add). Dataflows that add by them are those that are not deterministic.
std::vector<float> WithFlushed(std::vector<float> expected, const std::vector<float>& output) {
  for (size_t i = 0; i < std::min(expected.size(), output.size()); ++i) {
    if (output[i] == 0.0f && std::fpclassify(expected[i]) == FP_SUBNORMAL) expected[i] = 0.0f;
  }
  return expected;
}

Outcome RunValueCase(const Environment& environment, const std::string& spec,
                     const CaseShape& shape, const ValueClass& values, const Problem& problem) {
  return WithDataflow(environment, spec, shape, problem.geometry, [&](const Dataflow& dataflow) {
    const ExecutionContext context = ContextOf(*environment.backend);
    const Capability capability = dataflow.CapabilityOf(
        Pass::kForward, ShapeOfLayer(problem.geometry, shape.c_in, shape.c_out, shape.precision));
    if (IsOfWeights(values.name) && !capability.isolates_weights) {
      return Outcome::Skipped("does not claim to keep weights that are not finite apart");
    }
    if (values.name == absl::string_view("denormal") && capability.flushes_denormals) {
      return Outcome::Skipped("counts denormal numbers as zero");
    }
    const absl::StatusOr<KernelMap> map = UploadReferenceMap(problem, context);
    if (!map.ok()) return Outcome::From(map.status());
    const ConvData data = DataOf(values.name, values.exponent, problem, shape);
    const auto output = Convolve(dataflow, *map, data, shape.precision, context);
    if (!output.ok()) return Outcome::From(output.status());
    const bool may_flush = context.backend->asynchronous() && !capability.deterministic;
    const LayerData layer = LayerDataOf(problem, data);
    return Outcome::From(CompareExactly(
        *output, may_flush ? WithFlushed(data.output, *output) : data.output, data.c_out, &layer));
  });
}

}  // namespace

void AddValueCases(Environment& environment, std::vector<Case>& cases) {
  for (const std::string geometry : {"submanifold_k3", "quantize_k3_s2"}) {
    const Problem* problem = environment.problems.Get(GeometryNamed(geometry), Scenes()[1]);
    const auto add = [&](const std::string& spec, const CaseShape& shape) {
      std::vector<ValueClass> classes = ScaledClasses(shape.precision);
      for (const char* name : {"signed_zero", "nan", "inf", "nan_weight", "inf_weight"})
        classes.push_back({name, 0});
      for (const ValueClass& values : classes) {
        cases.push_back({absl::StrCat("value/conv/", spec, "/", ShapeName(shape), "/", values.name,
                                      "/", problem->id),
                         [&environment, spec, shape, values, problem] {
                           return RunValueCase(environment, spec, shape, values, *problem);
                         }});
      }
    };
    ForEachClaimedShape(environment, {{16, 24}}, add);
  }
}

}  // namespace voxconv::verify
