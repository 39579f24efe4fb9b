// Kernel maps and a brute-force convolution for the unit tests of dataflows.
#ifndef VOXCONV_TESTS_UNIT_DATAFLOW_TEST_UTIL_H_
#define VOXCONV_TESTS_UNIT_DATAFLOW_TEST_UTIL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "core/convolution.h"
#include "core/registry.h"
#include "gtest/gtest.h"

namespace voxconv::dataflow_test {

// The pairs of a map on the host, by offset: (input row, output row), ascending by output row.
struct HostMap {
  int64_t num_inputs = 0, num_outputs = 0;
  std::vector<std::vector<std::pair<int32_t, int32_t>>> pairs;  // [K]
  bool symmetric = false;
  int identity_offset = -1;

  int num_offsets() const { return static_cast<int>(pairs.size()); }
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
  PairList list;
  list.in = *CopyToBackend<int32_t>(in, context);
  list.out = *CopyToBackend<int32_t>(out, context);
  KernelMap map(host.num_inputs, host.num_outputs, offset_ptr, {}, std::move(list));
  map.set_symmetric(host.symmetric);
  map.set_identity_offset(host.identity_offset);
  return map;
}

// One convolution's arguments, drawn at random.
struct Problem {
  HostMap map;
  int64_t c_in = 0, c_out = 0;
  std::vector<float> features, weights;

  Problem(HostMap host_map, int64_t in_channels, int64_t out_channels)
      : map(std::move(host_map)), c_in(in_channels), c_out(out_channels) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    features.resize(map.num_inputs * c_in);
    weights.resize(map.num_offsets() * c_in * c_out);
    for (float& value : features) value = normal(random);
    for (float& value : weights) value = normal(random);
  }

  std::vector<double> BruteForce() const {
    std::vector<double> output(map.num_outputs * c_out, 0.0);
    for (int k = 0; k < map.num_offsets(); ++k) {
      for (const auto& [p, q] : map.pairs[k]) {
        for (int64_t i = 0; i < c_in; ++i) {
          for (int64_t o = 0; o < c_out; ++o) {
            output[q * c_out + o] +=
                static_cast<double>(features[p * c_in + i]) * weights[(k * c_in + i) * c_out + o];
          }
        }
      }
    }
    return output;
  }
};

struct Result {
  absl::Status status;
  std::vector<float> output;
  Profile profile;
};

// Runs `dataflow` on a CPU backend with `threads`, the workspace filled with NaN beforehand so
// that a row used but never written shows.
inline Result RunDataflow(const Registry& registry, const std::string& spec, const Problem& problem,
                          int threads = 1) {
  Result result;
  auto backend = *CpuBackend::Create({.threads = threads});
  const ExecutionContext context{backend.get(), &backend->main_stream(), &result.profile};
  const auto run = [&]() -> absl::StatusOr<std::vector<float>> {
    VOXCONV_ASSIGN_OR_RETURN(auto dataflow, registry.dataflows().Create(spec));
    const int64_t k = problem.map.num_offsets();
    VOXCONV_ASSIGN_OR_RETURN(
        Tensor input,
        Tensor::FromHost(problem.features, problem.map.num_inputs, problem.c_in, context));
    VOXCONV_ASSIGN_OR_RETURN(Tensor weights, Tensor::FromHost(problem.weights, k * problem.c_in,
                                                              problem.c_out, context));
    Workspace workspace;
    WorkspaceBooking poison;
    const int64_t bytes = int64_t{4} << 20;
    const int slot = poison.Book(bytes);
    VOXCONV_RETURN_IF_ERROR(workspace.Grant(poison, context));
    VOXCONV_RETURN_IF_ERROR(
        backend->FillBytes(workspace.Get<char>(slot), 0xff, bytes, *context.stream));
    result.profile = Profile();
    const KernelMap map = ToKernelMap(problem.map, context);
    VOXCONV_ASSIGN_OR_RETURN(Tensor output, RunConvolution(*dataflow, map, input.view(),
                                                           weights.view(), workspace, context));
    return output.ToHost(context);
  };
  absl::StatusOr<std::vector<float>> output = run();
  result.status = output.status();
  if (output.ok()) result.output = *std::move(output);
  return result;
}

// ||output - reference|| <= 1e-6 sqrt(L) ||reference||, L the longest possible sum.
inline void ExpectNear(const Result& result, const Problem& problem, const std::string& what) {
  ASSERT_TRUE(result.status.ok()) << what << ": " << result.status;
  const std::vector<double> reference = problem.BruteForce();
  ASSERT_EQ(result.output.size(), reference.size()) << what;
  double error = 0, norm = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    error += (result.output[i] - reference[i]) * (result.output[i] - reference[i]);
    norm += reference[i] * reference[i];
  }
  const double length = static_cast<double>(problem.map.num_offsets() * problem.c_in);
  // Written so that a NaN fails.
  EXPECT_TRUE(std::sqrt(error) <= 1e-6 * std::sqrt(length) * std::sqrt(norm))
      << what << ": error " << std::sqrt(error) << ", norm " << std::sqrt(norm);
}

}  // namespace voxconv::dataflow_test

#endif  // VOXCONV_TESTS_UNIT_DATAFLOW_TEST_UTIL_H_
