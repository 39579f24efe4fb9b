// SPDX-License-Identifier: Apache-2.0
// Plugins that are wrong on purpose: `verify` must find each of them, in every precision where it
// is wrong. The table says by which case.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/saboteurs/faults.h"
#include "tests/support/session.h"
#include "voxconv/builtin/backends.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::testing {
namespace {

constexpr std::array<Precision, 4> kPrecisions = {Precision::kF32, Precision::kTf32,
                                                  Precision::kF16, Precision::kBF16};
constexpr const char* kDataflows[] = {"gather_gemm_scatter", "implicit_gemm"};
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

class SaboteursTest : public ::testing::TestWithParam<BackendKind> {
 protected:
  void SetUp() override {
    const auto make = [](int threads) {
      return MakeBackend({.kind = GetParam(), .threads = threads});
    };
    absl::StatusOr<std::unique_ptr<Backend>> backend = make(2);
    if (!backend.ok() && GetParam() == BackendKind::kCuda) {
      GTEST_SKIP() << "no CUDA backend: " << backend.status().message();
    }
    ASSERT_EQ(backend.status(), absl::OkStatus());
    parallel_ = *std::move(backend);
    serial_ = *make(1);
    environment_ = {&registry_, parallel_.get(), serial_.get(), parallel_.get(), {}};
  }

  template <typename Fault>
  void Add(const NamedFault<Fault>& fault, const std::string& inner) {
    if (fault.cpu_only && GetParam() != BackendKind::kCpu) return;
    const std::string name = absl::StrCat(fault.name, "_in_", inner);
    const absl::Status status =
        RegisterWrapped(name, BuiltinRegistry(), inner, fault.fault, registry_);
    ASSERT_EQ(status, absl::OkStatus());
    for (const Precision precision : fault.precisions) {
      rows_[{name, precision}] = {fault.name, inner, fault.name != kNoFault};
    }
  }

  // Runs each case of the matrix that is about a plugin which no case has caught yet.
  void RunMatrix() {
    for (const verify::Case& test : verify::MakeCases(environment_, {})) {
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
    std::cout << absl::StrFormat("%-29s %-20s %-5s %s\n", "fault", "in", "type", "caught by");
    for (const auto& [key, row] : rows_) {
      const std::string passed = absl::StrCat("nothing in ", row.cases, " cases");
      std::cout << absl::StrFormat("%-29s %-20s %-5s %s\n", row.fault, row.inner,
                                   ToString(key.second),
                                   row.caught_by.empty() ? passed : row.caught_by);
    }
  }

  Registry registry_;
  std::unique_ptr<Backend> serial_, parallel_;
  verify::Environment environment_;
  std::map<RowKey, Row> rows_;
};

TEST_P(SaboteursTest, EveryDataflowIsCaught) {
  for (const std::string inner : kDataflows) {
    const auto right = BuiltinRegistry().dataflows().Create(inner, GetParam());
    ASSERT_EQ(right.status(), absl::OkStatus());
    const ConvShape shape{.c_in = 16, .c_out = 16, .num_offsets = 27};
    const bool deterministic = (*right)->CapabilityOf(Pass::kForward, shape).deterministic;
    Add(NamedFault<DataflowFault>{kNoFault,
                                  [](const ConvCall& call) { return call.RunRight(); },
                                  {kPrecisions.begin(), kPrecisions.end()}},
        inner);
    for (const auto& fault : DataflowFaults()) {
      if (deterministic || !fault.breaks_determinism) Add(fault, inner);
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

INSTANTIATE_TEST_SUITE_P(Backends, SaboteursTest,
                         ::testing::Values(BackendKind::kCpu, BackendKind::kCuda),
                         [](const auto& info) { return std::string(ToString(info.param)); });

}  // namespace
}  // namespace voxconv::testing
