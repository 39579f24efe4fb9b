// SPDX-License-Identifier: Apache-2.0
// Plugins that are wrong on purpose: `verify` must find each of them, in every precision where it
// is wrong. The table says by which case.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/saboteurs/faults.h"
#include "tests/support/session.h"
#include "tests/support/training_networks.h"
#include "voxconv/builtin/backends.h"
#include "voxconv/builtin/plugins.h"
#include "voxconv/reference_cpu/layers.h"
#include "voxconv/training/reference_gradients.h"
#include "voxconv/training/trainer.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::testing {
namespace {

constexpr const char* kMappings[] = {"hash", "sorted_search"};
// Wrapped without a fault: verify must find nothing.
constexpr char kNoFault[] = "no_fault";

// Of one wrapped plugin in one precision.
struct Row {
  std::string fault, inner;
  bool must_fail = true;
  int64_t cases = 0;
  std::string caught_by;  // the first case that fails
  std::string why;
};
using RowKey = std::pair<std::string, Precision>;  // registered name

// What a case's id says of the plugin and the precision that it is about.
RowKey KeyOf(const std::string& id) {
  const std::vector<std::string> parts = absl::StrSplit(id, '/');
  if (parts[0] == "map") return {parts[1], Precision::kF32};
  if (parts.size() < 4 || parts[1] == "map") {
    return {parts.size() < 3 ? "" : parts[2], Precision::kF32};
  }
  const std::vector<std::string> shape = absl::StrSplit(parts[3], '-');
  const absl::StatusOr<Precision> precision = ParsePrecision(shape.size() < 2 ? "f32" : shape[1]);
  return {parts[2], precision.value_or(Precision::kF32)};
}

class Saboteurs : public ::testing::Test {
 protected:
  // Skips the test where the backend's device is missing.
  void Open(BackendKind kind) {
    kind_ = kind;
    const auto make = [kind](int threads) {
      return MakeBackend({.kind = kind, .threads = threads});
    };
    absl::StatusOr<std::unique_ptr<Backend>> backend = make(2);
    if (!backend.ok() && kind == BackendKind::kCuda) {
      GTEST_SKIP() << "no CUDA backend: " << backend.status().message();
    }
    ASSERT_EQ(backend.status(), absl::OkStatus());
    parallel_ = *std::move(backend);
    serial_ = *make(1);
    environment_ = {&registry_, parallel_.get(), serial_.get(), parallel_.get(), {}};
  }

  template <typename Fault>
  void Add(const NamedFault<Fault>& fault, const std::string& inner) {
    if (fault.cpu_only && kind_ != BackendKind::kCpu) return;
    const std::string name = absl::StrCat(fault.name, "_in_", inner);
    const absl::Status status =
        RegisterWrapped(name, BuiltinRegistry(), inner, fault.fault, registry_);
    ASSERT_EQ(status, absl::OkStatus());
    for (const Precision precision : fault.precisions) {
      rows_[{name, precision}] = {fault.name, inner, fault.name != kNoFault};
    }
  }

  // Runs each case of the matrix that is about a plugin which no case has caught yet.
  void RunMatrix(const std::string& filter = "") {
    for (const verify::Case& test : verify::MakeCases(environment_, {.filter = filter})) {
      const auto row = rows_.find(KeyOf(test.id));
      if (row == rows_.end() || !row->second.caught_by.empty()) continue;
      const verify::Outcome outcome = verify::RunCase(test);
      if (outcome.verdict == verify::Verdict::kSkipped) continue;
      ++row->second.cases;
      if (outcome.verdict != verify::Verdict::kFailed) continue;
      row->second.caught_by = absl::StrReplaceAll(test.id, {{row->first.first, "*"}});
      row->second.why = outcome.detail;
    }
  }

  void ExpectAllCaught() const {
    for (const auto& [key, row] : rows_) {
      SCOPED_TRACE(absl::StrCat(key.first, " in ", ToString(key.second)));
      EXPECT_GT(row.cases, 0);
      if (row.must_fail) {
        EXPECT_NE(row.caught_by, "") << "passes all " << row.cases << " cases";
      } else {
        EXPECT_EQ(row.caught_by, "") << row.why;
      }
    }
  }

  void PrintTable() const {
    std::cout << absl::StrFormat("%-33s %-20s %-5s %s\n", "fault", "in", "type", "caught by");
    for (const auto& [key, row] : rows_) {
      const std::string passed = absl::StrCat("nothing in ", row.cases, " cases");
      std::cout << absl::StrFormat("%-33s %-20s %-5s %s\n", row.fault, row.inner,
                                   ToString(key.second),
                                   row.caught_by.empty() ? passed : row.caught_by);
    }
  }

  BackendKind kind_ = BackendKind::kCpu;
  Registry registry_;
  std::unique_ptr<Backend> serial_, parallel_;
  verify::Environment environment_;
  std::map<RowKey, Row> rows_;
};

class SaboteursTest : public Saboteurs, public ::testing::WithParamInterface<BackendKind> {
 protected:
  void SetUp() override { Open(GetParam()); }
};

// One dataflow in one precision has the whole matrix of cases, so that processes can share them.
class DataflowSaboteursTest
    : public Saboteurs,
      public ::testing::WithParamInterface<std::tuple<BackendKind, std::string, Precision>> {
 protected:
  void SetUp() override { Open(std::get<BackendKind>(GetParam())); }
};

TEST_P(DataflowSaboteursTest, IsCaught) {
  const auto& [kind, inner, precision] = GetParam();
  const auto right = BuiltinRegistry().dataflows().Create(inner, kind);
  ASSERT_EQ(right.status(), absl::OkStatus());
  const ConvShape shape{.c_in = 16, .c_out = 16, .num_offsets = 27};
  const bool deterministic = (*right)->CapabilityOf(Pass::kForward, shape).deterministic;
  std::vector<NamedFault<DataflowFault>> faults = DataflowFaults();
  faults.push_back({kNoFault, [](const ConvCall& call) { return call.RunRight(); }, {precision}});
  for (NamedFault<DataflowFault>& fault : faults) {
    if (absl::c_linear_search(fault.precisions, precision) &&
        (deterministic || !fault.breaks_determinism)) {
      fault.precisions = {precision};
      Add(fault, inner);
    }
  }
  RunMatrix();
  PrintTable();
  ExpectAllCaught();
}

TEST_P(SaboteursTest, EveryMappingIsCaught) {
  for (const std::string inner : kMappings) {
    Add(NamedFault<MappingFault>{kNoFault, [](const MapCall&, Pairs&) {}, {Precision::kF32}},
        inner);
    for (const auto& fault : MappingFaults()) Add(fault, inner);
  }
  RunMatrix();
  PrintTable();
  ExpectAllCaught();
}

TEST_P(SaboteursTest, EveryPoolingIsCaught) {
  for (const auto& fault : PoolFaults()) Add(fault, "hash2col");
  RunMatrix("pool/conv/");
  PrintTable();
  ExpectAllCaught();
}

class GradientSaboteursTest : public DataflowSaboteursTest {};

TEST_P(GradientSaboteursTest, IsCaught) {
  const auto& [kind, inner, precision] = GetParam();
  const GradFault none = [](const GradCall& call) { return call.RunRight(); };
  std::vector<NamedFault<GradFault>> faults = GradFaults();
  faults.push_back({kNoFault, none, {precision}});
  for (NamedFault<GradFault>& fault : faults) {
    fault.precisions = {precision};
    Add(fault, inner);
  }
  RunMatrix("grad/conv/");
  PrintTable();
  ExpectAllCaught();
}

// Of the parameter gradients of a whole network, the largest norm-wise error against the oracle.
double WorstGradient(Trainer& trainer, const SparseTensor& input,
                     const std::vector<int32_t>& labels, const ReferenceGradients& expected) {
  const auto result = trainer.Step(input.view(), labels, 0.1);
  EXPECT_TRUE(result.ok()) << result.status();
  double worst = 0;
  for (size_t p = 0; p < trainer.graph().parameters().size(); ++p) {
    const Parameter& parameter = trainer.graph().parameters()[p];
    if (!parameter.trained()) continue;
    worst = std::max(
        worst, reference::RelativeError(*trainer.Gradient(parameter.name), expected.parameters[p]));
  }
  return worst;
}

// Convolutions of one tensor whose gradients must be added up. The fault leaves out one of them,
// each in its turn: what a sum looks like that does not accumulate.
class AccumulationSaboteursTest : public DataflowSaboteursTest {};

TEST_P(AccumulationSaboteursTest, IsCaught) {
  const auto& [kind, inner, precision] = GetParam();
  GraphBuilder b("consumers");
  const int stem = b.Conv("stem", b.Input(3), 8, {.bias = true, .relu = true});
  const int sum = b.Add("sum", b.Conv("a", stem, 6, {}), b.Conv("b", stem, 6, {}), /*relu=*/true);
  const int head = b.Conv("head", sum, kSegmentationClasses, {});
  NetworkGraph graph = *std::move(b).Build(head);
  InitializeParameters(graph, 3);
  const std::vector<Coordinate> rows = WavyRows(12);
  const std::vector<float> x = DistinctFeatures(rows.size() * 3);
  const std::vector<int32_t> labels = SomeLabels(rows.size(), kSegmentationClasses);
  const auto reference = *ReferenceTraining::Create(graph, rows);
  const std::vector<double> x64(x.begin(), x.end());
  const auto expected = *reference->Compute(ParametersOf(graph), x64, labels, {});
  const ExecutionContext context{parallel_.get(), &parallel_->main_stream(), nullptr};
  const SparseTensor input =
      *SparseTensor::Create(rows, {1, 1, 1}, x, 3, context, StorageOf(precision));
  // Backward, the input gradients come in the order head, b, a.
  for (const int lost : {-1, 1, 2}) {
    Registry registry;
    ASSERT_EQ(RegisterBuiltinPlugins(registry), absl::OkStatus());
    const std::string name = absl::StrCat("loses_", lost + 1);
    const auto calls = std::make_shared<int>(0);
    const GradFault fault = [calls, lost](const GradCall& call) -> absl::Status {
      if (absl::Status status = call.RunRight(); !status.ok()) return status;
      if (call.what != GradCall::What::kInputGrad || (*calls)++ != lost) return absl::OkStatus();
      return call.context.backend->FillBytes(call.result.data, 0, call.result.bytes(),
                                             *call.context.stream);
    };
    ASSERT_EQ(RegisterWrapped(name, BuiltinRegistry(), inner, fault, registry), absl::OkStatus());
    TrainingConfig config;
    config.run.planner = std::make_shared<FixedPlanner>(LayerChoice{"hash", name, "sort_unique"});
    config.run.precision = precision;
    const auto trainer = Trainer::Create(graph, config, registry, *parallel_);
    ASSERT_EQ(trainer.status(), absl::OkStatus());
    const double error = WorstGradient(**trainer, input, labels, expected);
    if (lost < 0) {
      // gather_gemm_scatter rounds partial sums to bf16: 0.16. All others are at most 0.05.
      EXPECT_LE(error, precision == Precision::kF32    ? 1e-4
                       : precision == Precision::kBF16 ? 0.25
                                                       : 0.01);
    } else {
      EXPECT_GT(error, 0.5) << "the gradient of consumer " << lost << " is missing";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, SaboteursTest,
                         ::testing::Values(BackendKind::kCpu, BackendKind::kCuda),
                         [](const auto& info) { return std::string(ToString(info.param)); });

constexpr Precision kPrecisions[] = {Precision::kF32, Precision::kTf32, Precision::kF16,
                                     Precision::kBF16};
std::string NameOf(const ::testing::TestParamInfo<DataflowSaboteursTest::ParamType>& info) {
  const auto& [kind, inner, precision] = info.param;
  return absl::StrCat(ToString(kind), "_", inner, "_", ToString(precision));
}

INSTANTIATE_TEST_SUITE_P(
    Backends, DataflowSaboteursTest,
    ::testing::Combine(::testing::Values(BackendKind::kCpu, BackendKind::kCuda),
                       ::testing::Values("gather_gemm_scatter", "implicit_gemm"),
                       ::testing::ValuesIn(kPrecisions)),
    NameOf);

const auto kEveryDataflow = ::testing::Values("direct", "fetch_on_demand", "gather_gemm_scatter",
                                              "hash2col", "implicit_gemm");

INSTANTIATE_TEST_SUITE_P(Backends, GradientSaboteursTest,
                         ::testing::Combine(::testing::Values(BackendKind::kCpu,
                                                              BackendKind::kCuda),
                                            kEveryDataflow, ::testing::ValuesIn(kPrecisions)),
                         NameOf);

// On the CPU, networks are trained in f32 alone.
INSTANTIATE_TEST_SUITE_P(Cpu, AccumulationSaboteursTest,
                         ::testing::Combine(::testing::Values(BackendKind::kCpu), kEveryDataflow,
                                            ::testing::Values(Precision::kF32)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Cuda, AccumulationSaboteursTest,
                         ::testing::Combine(::testing::Values(BackendKind::kCuda), kEveryDataflow,
                                            ::testing::ValuesIn(kPrecisions)),
                         NameOf);

}  // namespace
}  // namespace voxconv::testing
