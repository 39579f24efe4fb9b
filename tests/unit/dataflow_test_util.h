// SPDX-License-Identifier: Apache-2.0
// Kernel maps, a brute-force convolution over their pairs, and one run of a dataflow.
#ifndef VOXCONV_TESTS_UNIT_DATAFLOW_TEST_UTIL_H_
#define VOXCONV_TESTS_UNIT_DATAFLOW_TEST_UTIL_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/registry.h"

namespace voxconv {

// The pairs of a map on the host, by offset: (input row, output row), ascending by output row.
struct HostMap {
  int64_t num_inputs = 0, num_outputs = 0;
  std::vector<std::vector<std::pair<int32_t, int32_t>>> pairs;  // [K]
  bool symmetric = false;
  int identity_offset = -1;

  int num_offsets() const { return static_cast<int>(pairs.size()); }
  int64_t num_pairs() const {
    int64_t count = 0;
    for (const auto& of_offset : pairs) count += static_cast<int64_t>(of_offset.size());
    return count;
  }
};

// A submanifold 3x3x3 map of the voxels of a side^3 block of which `density` are present.
inline HostMap SubmanifoldMap(int side, double density, unsigned seed) {
  std::mt19937 random(seed);
  std::bernoulli_distribution present(density);
  std::vector<int32_t> row(side * side * side, -1);
  int32_t rows = 0;
  for (int32_t& r : row) r = present(random) ? rows++ : -1;
  const auto row_at = [&](int x, int y, int z) {
    const bool inside = std::min({x, y, z}) >= 0 && std::max({x, y, z}) < side;
    return inside ? row[(x * side + y) * side + z] : -1;
  };
  HostMap map{rows, rows, {}, /*symmetric=*/true, /*identity_offset=*/13};
  for (int k = 0; k < 27; ++k) {
    auto& pairs = map.pairs.emplace_back();
    for (int i = 0; i < side * side * side; ++i) {
      const int in = row_at(i / side / side + k / 9 - 1, i / side % side + k / 3 % 3 - 1,
                            i % side + k % 3 - 1);
      if (row[i] >= 0 && in >= 0) pairs.emplace_back(in, row[i]);
    }
  }
  return map;
}

// sizes[k] random pairs of offset k; an input and an output row occur at most once an offset.
inline HostMap RandomMap(int64_t num_inputs, int64_t num_outputs, const std::vector<int64_t>& sizes,
                         unsigned seed) {
  std::mt19937 random(seed);
  HostMap map{num_inputs, num_outputs, {}};
  std::vector<int32_t> in(num_inputs), out(num_outputs);
  std::iota(in.begin(), in.end(), 0);
  std::iota(out.begin(), out.end(), 0);
  for (const int64_t size : sizes) {
    std::shuffle(in.begin(), in.end(), random);
    std::shuffle(out.begin(), out.end(), random);
    std::sort(out.begin(), out.begin() + size);
    auto& pairs = map.pairs.emplace_back();
    for (int64_t i = 0; i < size; ++i) pairs.emplace_back(in[i], out[i]);
  }
  return map;
}

// An output row has an input under an offset with probability `density`: a random one that the
// offset has not used. Outputs for which none is left have none.
inline HostMap DensityMap(int64_t num_inputs, int64_t num_outputs, int num_offsets,
                          double density) {
  std::mt19937 random(7);
  std::bernoulli_distribution has(num_inputs > 0 ? density : 0.0);
  HostMap map{num_inputs, num_outputs, {}};
  std::vector<int32_t> inputs(num_inputs);
  std::iota(inputs.begin(), inputs.end(), 0);
  for (int k = 0; k < num_offsets; ++k) {
    auto& pairs = map.pairs.emplace_back();
    std::shuffle(inputs.begin(), inputs.end(), random);
    // Offsets differ in size, as those of a real map do.
    const bool sparse = k % 3 == 1;
    for (int64_t q = 0; q < num_outputs; ++q) {
      if (!has(random) || (sparse && q % 4 != 0) || pairs.size() == inputs.size()) continue;
      pairs.emplace_back(inputs[pairs.size()], q);
    }
  }
  return map;
}

inline KernelMap ToKernelMap(const HostMap& host, const ExecutionContext& context) {
  std::vector<int64_t> offset_ptr = {0};
  std::vector<int32_t> in, out;
  for (const auto& pairs : host.pairs) {
    for (const auto& [p, q] : pairs) {
      in.push_back(p);
      out.push_back(q);
    }
    offset_ptr.push_back(static_cast<int64_t>(in.size()));
  }
  KernelMap map(
      host.num_inputs, host.num_outputs, offset_ptr,
      PairList{*CopyToBackend<int32_t>(in, context), *CopyToBackend<int32_t>(out, context)});
  map.set_symmetric(host.symmetric);
  map.set_identity_offset(host.identity_offset);
  return map;
}

// One convolution's arguments, drawn at random.
struct ConvProblem {
  HostMap map;
  int64_t c_in = 0, c_out = 0;
  std::vector<float> features, weights;

  ConvProblem(HostMap host_map, int64_t in_channels, int64_t out_channels)
      : map(std::move(host_map)), c_in(in_channels), c_out(out_channels) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    features.resize(map.num_inputs * c_in);
    weights.resize(map.num_offsets() * c_in * c_out);
    for (float& value : features) value = normal(random);
    for (float& value : weights) value = normal(random);
  }

  ConvShape ShapeIn(Precision precision) const {
    return {c_in, c_out, map.num_offsets(), map.symmetric, ConvTypes::Of(precision)};
  }

  std::vector<double> BruteForce() const {
    std::vector<double> output(map.num_outputs * c_out, 0.0);
    for (int k = 0; k < map.num_offsets(); ++k) {
      for (const auto& [p, q] : map.pairs[k]) {
        for (int64_t i = 0; i < c_in; ++i) {
          const double x = features[p * c_in + i];
          const float* w = &weights[(k * c_in + i) * c_out];
          for (int64_t o = 0; o < c_out; ++o) output[q * c_out + o] += x * w[o];
        }
      }
    }
    return output;
  }
};

inline void PrintTo(const ConvProblem& problem, std::ostream* os) {
  const HostMap& map = problem.map;
  *os << map.num_inputs << "->" << map.num_outputs << " rows, K " << map.num_offsets() << ", "
      << map.num_pairs() << " pairs, channels " << problem.c_in << "->" << problem.c_out;
}

// Sizes and shapes around every edge: nothing, one, tails of tiles and of vectors, many offsets.
inline std::vector<ConvProblem> EdgeCases() {
  return {{DensityMap(0, 0, 27, 0.2), 16, 16},    {DensityMap(0, 5, 27, 0.2), 16, 16},
          {DensityMap(5, 0, 27, 0.2), 16, 16},    {DensityMap(9, 7, 27, 0.0), 16, 16},
          {DensityMap(1, 1, 1, 1.0), 1, 1},       {DensityMap(40, 40, 1, 1.0), 3, 33},
          {DensityMap(70, 50, 27, 0.3), 1, 3},    {DensityMap(70, 50, 27, 0.3), 3, 1},
          {DensityMap(131, 97, 27, 0.3), 33, 33}, {DensityMap(100, 131, 8, 0.9), 16, 20},
          {DensityMap(60, 53, 343, 0.05), 4, 9},  {DensityMap(300, 700, 27, 0.1), 32, 64}};
}

// A matrix behind `skipped` elements of the memory of `all`.
inline TensorView ViewBehind(int64_t skipped, TensorView all, int64_t rows, int64_t channels) {
  all.data = static_cast<char*>(all.data) + skipped * SizeOf(all.dtype);
  all.rows = rows;
  all.channels = all.row_stride = channels;
  return all;
}

// `spec` in `context`, on memory that holds NaN wherever nothing was written. The features, and the
// output, lie behind `skipped` elements of other data, so that they begin at any address.
inline absl::StatusOr<std::vector<float>> RunOn(const ExecutionContext& context,
                                                const Registry& registry, const std::string& spec,
                                                const ConvProblem& problem, int64_t skipped = 0,
                                                Precision precision = Precision::kF32) {
  const ConvShape shape = problem.ShapeIn(precision);
  const DType dtype = shape.types.input;
  VOXCONV_ASSIGN_OR_RETURN(auto dataflow,
                           registry.dataflows().Create(spec, context.backend->kind()));
  std::vector<float> padded(skipped, 1e30f);
  padded.insert(padded.end(), problem.features.begin(), problem.features.end());
  const int64_t size = static_cast<int64_t>(padded.size());
  VOXCONV_ASSIGN_OR_RETURN(Tensor memory, Tensor::FromHost(padded, size, 1, context, dtype));
  VOXCONV_ASSIGN_OR_RETURN(Tensor weights,
                           Tensor::FromHost(problem.weights, shape.num_offsets * problem.c_in,
                                            problem.c_out, context, dtype));
  VOXCONV_ASSIGN_OR_RETURN(
      Tensor results,
      Tensor::Create(problem.map.num_outputs * problem.c_out + skipped, 1, dtype, context));
  const TensorView input = ViewBehind(skipped, memory.view(), problem.map.num_inputs, problem.c_in);
  const TensorView output =
      ViewBehind(skipped, results.view(), problem.map.num_outputs, problem.c_out);
  const KernelMap pairs = ToKernelMap(problem.map, context);
  Workspace workspace;
  if (!dataflow->Supports(Pass::kForward, shape).ok) {
    VOXCONV_ASSIGN_OR_RETURN(
        Tensor accepted,
        RunConvolution(*dataflow, pairs, input, weights.view(), precision, workspace, context));
    return accepted.ToHost(context);
  }

  VOXCONV_ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedMap> map,
                           PrepareMap(*dataflow, Pass::kForward, shape, pairs, context));
  VOXCONV_ASSIGN_OR_RETURN(auto plan, dataflow->Plan(Pass::kForward, *map, shape, context));
  VOXCONV_RETURN_IF_ERROR(workspace.Grant(plan->booking(), context));
  const auto poison = [&](void* data, int64_t bytes) {
    return context.backend->FillBytes(data, 0xff, bytes, *context.stream);
  };
  if (const int64_t bytes = plan->booking().total_bytes(); bytes > 0) {
    VOXCONV_RETURN_IF_ERROR(poison(workspace.Get<char>(0), bytes));
  }
  VOXCONV_RETURN_IF_ERROR(poison(results.view().data, results.view().bytes()));
  VOXCONV_RETURN_IF_ERROR(
      dataflow->Forward(*plan, *map, {input, weights.view(), output}, workspace, context));
  VOXCONV_ASSIGN_OR_RETURN(std::vector<float> values, results.ToHost(context));
  values.erase(values.begin(), values.begin() + skipped);
  return values;
}

struct ConvResult {
  std::vector<float> output;  // empty where the run was refused
  Profile profile;
};

// The same on a CPU backend of `threads`; expects the run to end with `code`.
inline ConvResult RunDataflow(const Registry& registry, const std::string& spec,
                              const ConvProblem& problem, int threads = 1,
                              absl::StatusCode code = absl::StatusCode::kOk) {
  ConvResult result;
  const auto backend = *CpuBackend::Create({.threads = threads});
  const ExecutionContext context{backend.get(), &backend->main_stream(), &result.profile};
  absl::StatusOr<std::vector<float>> output = RunOn(context, registry, spec, problem);
  EXPECT_EQ(output.status().code(), code)
      << spec << " on " << testing::PrintToString(problem) << ": " << output.status();
  if (output.ok()) result.output = *std::move(output);
  return result;
}

// ||values - reference|| <= 1e-6 sqrt(length) ||reference||, `length` the longest possible sum.
inline void ExpectNearReference(const std::vector<float>& values,
                                const std::vector<double>& reference, int64_t length) {
  ASSERT_EQ(values.size(), reference.size());
  double error = 0, norm = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    error += (values[i] - reference[i]) * (values[i] - reference[i]);
    norm += reference[i] * reference[i];
  }
  // Written so that a NaN fails.
  EXPECT_TRUE(std::sqrt(error) <= 1e-6 * std::sqrt(static_cast<double>(length)) * std::sqrt(norm))
      << "error " << std::sqrt(error) << ", norm " << std::sqrt(norm);
}

inline void ExpectNear(const std::vector<float>& output, const ConvProblem& problem,
                       const std::string& what) {
  SCOPED_TRACE(testing::Message() << what << " on " << testing::PrintToString(problem));
  ExpectNearReference(output, problem.BruteForce(), problem.map.num_offsets() * problem.c_in);
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
  return std::ranges::equal(a, b, {}, bits, bits);
}

// All passes of a dataflow with kept prepared maps and plans, twice, and without. They must be
// equal bit by bit, and the second time must prepare nothing.
inline void ExpectKeptPassesAreTheSame(const Dataflow& dataflow, const std::string& spec,
                                       Precision precision, const ExecutionContext& context) {
  SCOPED_TRACE(spec);
  const KernelMap map = ToKernelMap(RandomMap(60, 50, {20, 31, 7}, 3), context);
  const DType dtype = StorageOf(precision);
  const auto make = [&](int64_t rows, int64_t channels, int64_t step) {
    std::vector<float> values(rows * channels);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * step % 17) - 8;
    return *Tensor::FromHost(values, rows, channels, context, dtype);
  };
  const Tensor x = make(60, 16, 3), w = make(3 * 16, 24, 5), dy = make(50, 24, 7);
  Workspace workspace;
  const auto run = [&](const KeptPasses& kept) {
    std::vector<std::vector<float>> results;
    const auto y =
        RunConvolution(dataflow, map, x.view(), w.view(), precision, workspace, context, {}, kept);
    const Tensor dx = *Tensor::Create(60, 16, dtype, context);
    const Tensor dw = *Tensor::Create(3 * 16, 24, dtype, context);
    const absl::Status input = RunInputGrad(dataflow, map, {dy.view(), w.view(), dx.view()},
                                            precision, workspace, context, kept);
    const absl::Status weight = RunWeightGrad(dataflow, map, {x.view(), dy.view(), dw.view()},
                                              precision, workspace, context, kept);
    EXPECT_TRUE(y.ok() && input.ok() && weight.ok()) << y.status() << input << weight;
    if (y.ok()) results = {*y->ToHost(context), *dx.ToHost(context), *dw.ToHost(context)};
    return results;
  };
  const auto expected = run({});
  PreparedMaps maps;
  EXPECT_EQ(run({&maps, spec}), expected);
  const int64_t bytes = maps.bytes();
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(run({&maps, spec}), expected);
  EXPECT_EQ(maps.bytes(), bytes);
}

// Right, counted, and bitwise the same on two threads.
inline void CheckVariant(const Registry& registry, const std::string& spec,
                         const ConvProblem& problem) {
  SCOPED_TRACE(testing::Message() << spec << " on " << testing::PrintToString(problem));
  const ConvResult one = RunDataflow(registry, spec, problem, 1);
  ExpectNear(one.output, problem, spec);
  EXPECT_EQ(one.profile.counters.true_pairs, problem.map.num_pairs());
  EXPECT_GE(one.profile.counters.padded_pairs, problem.map.num_pairs());
  const ConvResult two = RunDataflow(registry, spec, problem, 2);
  EXPECT_TRUE(SameBits(one.output, two.output));
}

// Every variant that the registry lists, on every edge case.
inline void CheckAllVariants(const Registry& registry) {
  const std::vector<ConvProblem> problems = EdgeCases();
  ASSERT_FALSE(problems.empty() || registry.dataflows().Variants(BackendKind::kCpu).empty());
  for (const std::string& spec : registry.dataflows().Variants(BackendKind::kCpu)) {
    for (const ConvProblem& problem : problems) CheckVariant(registry, spec, problem);
  }
}

}  // namespace voxconv

#endif  // VOXCONV_TESTS_UNIT_DATAFLOW_TEST_UTIL_H_
