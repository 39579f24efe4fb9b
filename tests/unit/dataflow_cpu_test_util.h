// Random kernel maps, a brute-force convolution over their pairs, and one run of a dataflow.
#ifndef VOXCONV_TESTS_UNIT_DATAFLOW_CPU_TEST_UTIL_H_
#define VOXCONV_TESTS_UNIT_DATAFLOW_CPU_TEST_UTIL_H_

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "core/dataflow.h"
#include "core/registry.h"
#include "gtest/gtest.h"

namespace voxconv {

// A convolution on random pairs: an (output, offset) has an input with probability `density`.
struct ConvCase {
  int64_t num_inputs = 0;
  int64_t num_outputs = 0;
  int num_offsets = 27;
  double density = 0.2;
  int64_t c_in = 16;
  int64_t c_out = 16;
};

inline void PrintTo(const ConvCase& c, std::ostream* os) {
  *os << c.num_inputs << "->" << c.num_outputs << " rows, K " << c.num_offsets << ", density "
      << c.density << ", channels " << c.c_in << "->" << c.c_out;
}

// Sizes and shapes around every edge: nothing, one, tails of tiles and of vectors, many offsets.
inline std::vector<ConvCase> EdgeCases() {
  return {{0, 0},
          {0, 5},
          {5, 0},
          {9, 7, 27, 0.0},
          {1, 1, 1, 1.0, 1, 1},
          {40, 40, 1, 1.0, 3, 33},
          {70, 50, 27, 0.3, 1, 3},
          {70, 50, 27, 0.3, 3, 1},
          {131, 97, 27, 0.3, 33, 33},
          {100, 131, 8, 0.9, 16, 20},
          {60, 53, 343, 0.05, 4, 9},
          {300, 700, 27, 0.1, 32, 64}};
}

class ConvProblem {
 public:
  explicit ConvProblem(const ConvCase& c) : shape_(c) {
    std::mt19937 random(7);
    std::bernoulli_distribution has(c.num_inputs > 0 ? c.density : 0.0);
    offset_ptr_.push_back(0);
    for (int k = 0; k < c.num_offsets; ++k) {
      // Offsets differ in size, as those of a real map do.
      const bool sparse = k % 3 == 1;
      for (int64_t q = 0; q < c.num_outputs; ++q) {
        if (!has(random) || (sparse && q % 4 != 0)) continue;
        in_.push_back(static_cast<int32_t>(random() % c.num_inputs));
        out_.push_back(static_cast<int32_t>(q));
      }
      offset_ptr_.push_back(static_cast<int64_t>(in_.size()));
    }
    std::uniform_real_distribution<float> uniform(-1, 1);
    features_.resize(c.num_inputs * c.c_in);
    weights_.resize(c.num_offsets * c.c_in * c.c_out);
    for (float& x : features_) x = uniform(random);
    for (float& w : weights_) w = uniform(random);
  }

  const ConvCase& shape() const { return shape_; }
  int64_t num_pairs() const { return offset_ptr_.back(); }
  const std::vector<int64_t>& offset_ptr() const { return offset_ptr_; }

  KernelMap Map(const ExecutionContext& context) const {
    return KernelMap(
        shape_.num_inputs, shape_.num_outputs, offset_ptr_, LayoutRequest{},
        PairList{*CopyToBackend<int32_t>(in_, context), *CopyToBackend<int32_t>(out_, context)});
  }
  Tensor Features(const ExecutionContext& context) const {
    return *Tensor::FromHost(features_, shape_.num_inputs, shape_.c_in, context);
  }
  Tensor Weights(const ExecutionContext& context) const {
    return *Tensor::FromHost(weights_, shape_.num_offsets * shape_.c_in, shape_.c_out, context);
  }

  std::vector<double> Expected() const {
    std::vector<double> y(shape_.num_outputs * shape_.c_out, 0.0);
    for (int64_t k = 0; k < shape_.num_offsets; ++k) {
      for (int64_t i = offset_ptr_[k]; i < offset_ptr_[k + 1]; ++i) {
        for (int64_t c = 0; c < shape_.c_in; ++c) {
          const double x = features_[in_[i] * shape_.c_in + c];
          const float* w = &weights_[(k * shape_.c_in + c) * shape_.c_out];
          for (int64_t j = 0; j < shape_.c_out; ++j) y[out_[i] * shape_.c_out + j] += x * w[j];
        }
      }
    }
    return y;
  }

  // Norm-wise; the bound grows with the length of a sum. NaN fails.
  void ExpectNear(const std::vector<float>& y) const {
    const std::vector<double> expected = Expected();
    ASSERT_EQ(y.size(), expected.size());
    double error = 0, norm = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      error += (y[i] - expected[i]) * (y[i] - expected[i]);
      norm += expected[i] * expected[i];
    }
    const double length = static_cast<double>(shape_.c_in * shape_.num_offsets);
    EXPECT_TRUE(std::sqrt(error) <= 1e-6 * std::sqrt(length) * std::sqrt(norm))
        << "error " << std::sqrt(error) << " of " << std::sqrt(norm);
  }

 private:
  ConvCase shape_;
  std::vector<int64_t> offset_ptr_;
  std::vector<int32_t> in_, out_;
  std::vector<float> features_, weights_;
};

struct ConvResult {
  std::vector<float> output;
  Profile profile;
};

// Runs the dataflow `spec` on memory that holds NaN wherever nothing was written.
inline ConvResult RunDataflow(const Registry& registry, const std::string& spec,
                              const ConvProblem& problem, int threads = 1) {
  const auto backend = *CpuBackend::Create({.threads = threads});
  ConvResult result;
  const ExecutionContext context{backend.get(), &backend->main_stream(), &result.profile};
  const std::unique_ptr<const Dataflow> dataflow = *registry.dataflows().Create(spec);
  const ConvShape shape{problem.shape().c_in, problem.shape().c_out, DType::kF32};
  EXPECT_TRUE(dataflow->Supports(shape, BackendKind::kCpu).ok);

  const KernelMap pairs = problem.Map(context);
  const LayoutRequest request = dataflow->RequiredLayout(pairs.num_offsets());
  const KernelMap converted = *backend->ConvertKernelMap(pairs, request, context);
  const std::unique_ptr<DataflowPlan> plan = *dataflow->Plan(converted, shape, context);
  Workspace workspace;
  EXPECT_TRUE(workspace.Grant(plan->booking(), context).ok());
  if (plan->booking().total_bytes() > 0) {
    std::memset(workspace.Get<char>(0), 0xff, plan->booking().total_bytes());
  }
  const Tensor features = problem.Features(context);
  const Tensor weights = problem.Weights(context);
  const std::vector<float> nan(problem.shape().num_outputs * problem.shape().c_out,
                               std::numeric_limits<float>::quiet_NaN());
  const Tensor output =
      *Tensor::FromHost(nan, problem.shape().num_outputs, problem.shape().c_out, context);
  const absl::Status status = dataflow->Forward(
      *plan, converted, {features.view(), weights.view(), output.view()}, workspace, context);
  EXPECT_TRUE(status.ok()) << status;
  result.output = *output.ToHost(context);
  return result;
}

// Every variant that the registry lists, on every edge case: right, counted, and bitwise the same
// on two threads.
inline void CheckAllVariants(const Registry& registry) {
  for (const std::string& spec : registry.dataflows().Variants()) {
    for (const ConvCase& c : EdgeCases()) {
      SCOPED_TRACE(testing::Message() << spec << " on " << testing::PrintToString(c));
      const ConvProblem problem(c);
      const ConvResult one = RunDataflow(registry, spec, problem, 1);
      problem.ExpectNear(one.output);
      EXPECT_EQ(one.profile.counters.true_pairs, problem.num_pairs());
      EXPECT_GE(one.profile.counters.padded_pairs, problem.num_pairs());
      const ConvResult two = RunDataflow(registry, spec, problem, 2);
      ASSERT_EQ(one.output.size(), two.output.size());
      if (one.output.empty()) continue;
      EXPECT_EQ(
          0, std::memcmp(one.output.data(), two.output.data(), one.output.size() * sizeof(float)));
    }
  }
}

}  // namespace voxconv

#endif  // VOXCONV_TESTS_UNIT_DATAFLOW_CPU_TEST_UTIL_H_
