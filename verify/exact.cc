// SPDX-License-Identifier: Apache-2.0
#include "voxconv/verify/exact.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "voxconv/verify/convolve.h"

namespace voxconv::verify {
namespace {

// bf16 holds all whole numbers up to here.
constexpr float kLargestSum = 256;

// -1 or 1. There is no zero: it would hide a product that is lost, or a zero that is written.
std::vector<float> Signs(int64_t count, uint64_t seed) {
  std::vector<float> values(count);
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (float& value : values) {
    state = state * 6364136223846793005 + 1442695040888963407;
    value = state >> 63 == 0 ? 1.0f : -1.0f;
  }
  return values;
}

}  // namespace

std::vector<float> Sums(const Problem& problem, const ConvData& data) {
  const int64_t c_in = data.c_in, c_out = data.c_out;
  std::vector<float> sums(problem.outputs.size() * c_out);
  for (int k = 0; k < problem.map.num_offsets; ++k) {
    const float* matrix = data.weights.data() + k * c_in * c_out;
    for (int64_t i = problem.map.offset_ptr[k]; i < problem.map.offset_ptr[k + 1]; ++i) {
      const float* x = data.features.data() + problem.map.in[i] * c_in;
      float* y = sums.data() + problem.map.out[i] * c_out;
      for (int64_t c = 0; c < c_in; ++c) {
        for (int64_t j = 0; j < c_out; ++j) y[j] += x[c] * matrix[c * c_out + j];
      }
    }
  }
  return sums;
}

ConvData WholeNumbers(const Problem& problem, int64_t c_in, int64_t c_out) {
  ConvData data{.c_in = c_in, .c_out = c_out};
  data.features = Signs(static_cast<int64_t>(problem.inputs.size()) * c_in, 31);
  data.weights = Signs(problem.geometry.num_offsets() * c_in * c_out, 32);
  data.output = Sums(problem, data);
  for (const float sum : data.output) VOXCONV_CHECK(std::abs(sum) <= kLargestSum);
  return data;
}

absl::Status CompareExactly(const std::vector<float>& actual, const std::vector<float>& expected,
                            int64_t channels, const LayerData* layer) {
  if (actual.size() != expected.size()) {
    return absl::InternalError(absl::StrCat("the output has ", actual.size(),
                                            " elements; the reference has ", expected.size()));
  }
  const std::vector<double> exact(expected.begin(), expected.end());
  Difference difference{channels, actual, exact, {}, 0};
  double furthest = -1;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]))) continue;
    difference.wrong.push_back(static_cast<int64_t>(i));
    const double off = std::abs(double{actual[i]} - exact[i]);
    // A NaN is further off than any number.
    const double distance = std::isnan(off) ? HUGE_VAL : off;
    if (!(distance > furthest)) continue;
    furthest = distance;
    difference.worst = static_cast<int64_t>(i);
  }
  if (difference.wrong.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(WorstElement(difference, layer), "; the exact value is ",
                                          expected[difference.worst], "; ",
                                          DescribePattern(difference, layer)));
}

LayerData LayerDataOf(const Problem& problem, const ConvData& data) {
  return {problem, data.c_in, data.features, data.weights};
}

absl::StatusOr<std::vector<float>> Convolve(const Dataflow& dataflow, const KernelMap& map,
                                            const ConvData& data, Precision precision,
                                            const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(
      Tensor input,
      Tensor::FromHost(data.features, map.num_inputs(), data.c_in, context, StorageOf(precision)));
  VOXCONV_ASSIGN_OR_RETURN(Tensor weights,
                           Tensor::FromHost(data.weights, map.num_offsets() * data.c_in, data.c_out,
                                            context, StorageOf(precision)));
  Workspace workspace;
  VOXCONV_ASSIGN_OR_RETURN(
      const Tensor output,
      ConvolveOntoNan(dataflow, map, input.view(), weights.view(), precision, workspace, context));
  return output.ToHost(context);
}

std::string ShapeName(const CaseShape& shape) {
  return absl::StrCat(
      shape.c_in, "x", shape.c_out,
      shape.precision == Precision::kF32 ? "" : absl::StrCat("-", ToString(shape.precision)));
}

Outcome WithDataflow(const Environment& environment, const std::string& spec,
                     const CaseShape& shape, const ConvGeometry& geometry,
                     const std::function<Outcome(const Dataflow&)>& run) {
  const auto dataflow = environment.registry->dataflows().Create(spec, environment.backend->kind());
  if (!dataflow.ok()) return Outcome::From(dataflow.status());
  const Support support = (*dataflow)->Supports(
      Pass::kForward, ShapeOfLayer(geometry, shape.c_in, shape.c_out, shape.precision));
  return support.ok ? run(**dataflow) : Outcome::Unsupported(support);
}

Outcome WithMapping(const Environment& environment, const std::string& spec,
                    const ConvGeometry& geometry,
                    const std::function<Outcome(const Mapping&)>& run) {
  const auto mapping = environment.registry->mappings().Create(spec, environment.backend->kind());
  if (!mapping.ok()) return Outcome::From(mapping.status());
  const Support support = (*mapping)->Supports(geometry);
  return support.ok ? run(**mapping) : Outcome::Unsupported(support);
}

void ForEachClaimedPrecision(const Environment& environment, const std::string& spec, int64_t c_in,
                             int64_t c_out, const std::function<void(Precision)>& add) {
  add(Precision::kF32);
  const auto dataflow = environment.registry->dataflows().Create(spec, environment.backend->kind());
  if (!dataflow.ok()) return;  // the case of f32 says so
  for (const Precision precision : {Precision::kTf32, Precision::kF16, Precision::kBF16}) {
    const ConvShape shape{
        .c_in = c_in, .c_out = c_out, .num_offsets = 27, .types = ConvTypes::Of(precision)};
    // A plugin that throws here fails in the cases of f32.
    if ((*dataflow)->Supports(Pass::kForward, shape).ok) add(precision);
  }
}

void ForEachClaimedShape(const Environment& environment, std::initializer_list<CaseShape> channels,
                         const std::function<void(const std::string&, const CaseShape&)>& add) {
  for (const std::string& spec :
       environment.registry->dataflows().Variants(environment.backend->kind())) {
    for (const CaseShape& c : channels) {
      ForEachClaimedPrecision(environment, spec, c.c_in, c.c_out, [&](Precision precision) {
        add(spec, {c.c_in, c.c_out, precision});
      });
    }
  }
}

}  // namespace voxconv::verify
