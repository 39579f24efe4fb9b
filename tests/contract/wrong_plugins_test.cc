// SPDX-License-Identifier: Apache-2.0
// Plugins that break their contract: `verify` says what is wrong, case by case, and goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/brute_force_plugins.h"
#include "voxconv/builtin/backends.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/verify/crash_report.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::testing {
namespace {

using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// A right map, as parts that a fault can change.
struct MapParts {
  int64_t num_inputs = 0, num_outputs = 0;
  std::vector<int64_t> offset_ptr = {0};
  std::vector<int32_t> in, out, table;
  bool without_arrays = false;
  int identity_offset = -1;
  bool symmetric = false;

  absl::StatusOr<KernelMap> Build(bool as_table, const ExecutionContext& context) const {
    KernelMap::Storage storage;
    if (as_table) {
      VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> entries, CopyToBackend<int32_t>(table, context));
      storage = NeighbourTable{.table = std::move(entries), .masks = {}};
    } else {
      PairBuffers pairs;
      VOXCONV_ASSIGN_OR_RETURN(pairs.in, CopyToBackend<int32_t>(in, context));
      VOXCONV_ASSIGN_OR_RETURN(pairs.out, CopyToBackend<int32_t>(out, context));
      storage = PairList(std::move(pairs));
    }
    if (without_arrays) storage = std::monostate();
    KernelMap map(num_inputs, num_outputs, offset_ptr, std::move(storage));
    map.set_identity_offset(identity_offset);
    map.set_symmetric(symmetric);
    return map;
  }
};

struct CopiedRows final : MapIndex {
  std::map<Coordinate, int32_t> row_of;
  int64_t bytes() const override { return 0; }
};

MapParts RightParts(const CopiedRows& index, const MapProblem& problem) {
  const int num_offsets = problem.geometry.num_offsets();
  MapParts parts{.num_inputs = problem.inputs.size(), .num_outputs = problem.outputs.size()};
  parts.identity_offset = problem.geometry.center();
  parts.symmetric = problem.geometry.symmetric();
  parts.table.assign(parts.num_outputs * num_offsets, -1);
  for (int k = 0; k < num_offsets; ++k) {
    const Int3& d = problem.geometry.InputOffset(k);
    for (int64_t q = 0; q < parts.num_outputs; ++q) {
      const Coordinate& c = problem.outputs.rows().host()[q];
      const auto found = index.row_of.find({c.b, c.x + d.x, c.y + d.y, c.z + d.z});
      if (found == index.row_of.end()) continue;
      parts.in.push_back(found->second);
      parts.out.push_back(static_cast<int32_t>(q));
      parts.table[q * num_offsets + k] = found->second;
    }
    parts.offset_ptr.push_back(static_cast<int64_t>(parts.in.size()));
  }
  return parts;
}

// What one wrong mapping does otherwise; the rest of it is right.
struct MappingFault {
  std::function<void(MapParts&)> change = [](MapParts&) {};
  bool table = false;
  std::function<absl::StatusOr<KernelMap>()> instead_of_query;
  std::function<absl::StatusOr<std::unique_ptr<MapIndex>>()> instead_of_build;
};

class FaultyMapping final : public Mapping {
 public:
  FaultyMapping(Options options, MappingFault fault)
      : options_(std::move(options)), fault_(std::move(fault)) {}
  const Options& options() const override { return options_; }
  Support DoSupports(const ConvGeometry&) const override { return Support::Yes(); }

 protected:
  absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(const CoordinateSet& inputs,
                                                         const ExecutionContext&) const override {
    if (fault_.instead_of_build) return fault_.instead_of_build();
    auto index = std::make_unique<CopiedRows>();
    for (const Coordinate& row : inputs.rows().host()) {
      index->row_of.emplace(row, static_cast<int32_t>(index->row_of.size()));
    }
    return index;
  }
  absl::StatusOr<KernelMap> DoQuery(const MapIndex& index, const MapProblem& problem,
                                    const ExecutionContext& context) const override {
    if (fault_.instead_of_query) return fault_.instead_of_query();
    MapParts parts = RightParts(static_cast<const CopiedRows&>(index), problem);
    if (!parts.in.empty()) fault_.change(parts);
    return parts.Build(fault_.table, context);
  }

 private:
  Options options_;
  MappingFault fault_;
};

// Runs the cases of one plugin on the CPU beside the plugins for tests.
class WrongPluginsTest : public ::testing::Test {
 protected:
  WrongPluginsTest() : backend_(*MakeBackend({.threads = 2})) {
    VOXCONV_CHECK(RegisterBruteForce(registry_).ok());
    environment_ = {&registry_, backend_.get(), backend_.get(), backend_.get(), {}};
  }

  void AddMapping(MappingFault fault) {
    const absl::Status status = registry_.mappings().Register(
        {.name = "faulty", .summary = "for tests"}, BackendKind::kCpu,
        [fault](Options options) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
          return std::make_unique<FaultyMapping>(std::move(options), fault);
        });
    VOXCONV_CHECK(status.ok());
  }

  // "id: why" of the cases that failed.
  std::vector<std::string> Failures(const verify::Selection& selection) {
    std::vector<std::string> failures;
    num_cases_ = 0;
    for (const verify::Case& test : verify::MakeCases(environment_, selection)) {
      const verify::Outcome outcome = verify::RunCase(test);
      ++num_cases_;
      if (outcome.verdict == verify::Verdict::kFailed) {
        failures.push_back(absl::StrCat(test.id, ": ", outcome.detail));
      }
    }
    return failures;
  }

  // Map and conv cases fail with `words`, and nothing else is said of this mapping.
  void ExpectMappingFails(MappingFault fault, const std::string& words) {
    SCOPED_TRACE(words);
    AddMapping(std::move(fault));
    const std::vector<std::string> maps =
        Failures({.mapping = "faulty", .filter = "map/faulty/submanifold_k3/"});
    EXPECT_THAT(maps, Contains(HasSubstr(words)));
    const std::vector<std::string> convolutions =
        Failures({.mapping = "faulty", .filter = "conv/faulty/"});
    EXPECT_THAT(convolutions, Contains(HasSubstr(words)));
    for (const std::string& line : convolutions) EXPECT_THAT(line, Not(HasSubstr("\n")));
  }

  Registry registry_;
  std::unique_ptr<Backend> backend_;
  verify::Environment environment_;
  int64_t num_cases_ = 0;
};

TEST_F(WrongPluginsTest, ARightMappingPasses) {
  AddMapping({});
  EXPECT_THAT(Failures({.mapping = "faulty"}), IsEmpty());
  EXPECT_GT(num_cases_, 100);
}

struct NamedFault {
  std::string words;  // of the message
  MappingFault fault;
};

std::vector<NamedFault> MapFaults() {
  const auto change = [](std::function<void(MapParts&)> f) { return MappingFault{std::move(f)}; };
  const auto table = [](std::function<void(MapParts&)> f) {
    return MappingFault{std::move(f), /*table=*/true};
  };
  return {
      {"is outside", change([](MapParts& p) { p.in.back() = 100000000; })},
      {"is outside", change([](MapParts& p) { p.in.back() = -7; })},
      {"is outside", change([](MapParts& p) { p.out.back() = 1 << 30; })},
      {"in has", change([](MapParts& p) { p.offset_ptr.back() += 5; })},
      {"28 offsets; the problem has 27",
       change([](MapParts& p) { p.offset_ptr.push_back(p.offset_ptr.back()); })},
      {"26 offsets; the problem has 27", change([](MapParts& p) { p.offset_ptr.pop_back(); })},
      {"offset_ptr descends", change([](MapParts& p) { p.offset_ptr[1] = 1 << 30; })},
      {"inputs; the problem", change([](MapParts& p) { p.num_inputs += 1000000; })},
      {"outputs; the problem", change([](MapParts& p) { p.num_outputs += 1000000; })},
      {"its arrays were left out", change([](MapParts& p) { p.without_arrays = true; })},
      {"table has", table([](MapParts& p) { p.table.resize(p.table.size() / 2); })},
      {"table entry 13 is 100000000", table([](MapParts& p) { p.table[13] = 100000000; })},
      {"0 inputs", {.instead_of_query = [] { return KernelMap(); }}},
  };
}

class WrongMapTest : public WrongPluginsTest, public ::testing::WithParamInterface<size_t> {};

TEST_P(WrongMapTest, IsRefusedBeforeAnythingReadsIt) {
  const NamedFault fault = MapFaults()[GetParam()];
  ExpectMappingFails(fault.fault, fault.words);
}
INSTANTIATE_TEST_SUITE_P(All, WrongMapTest, ::testing::Range<size_t>(0, MapFaults().size()));

// "(0, -1, 2, 3)".
constexpr char kVoxel[] = "\\(0, -?[0-9]+, -?[0-9]+, -?[0-9]+\\)";

TEST_F(WrongPluginsTest, AWrongMapNamesTheOffsetAndBothVoxels) {
  AddMapping({.change = [](MapParts& p) {
    p.in.pop_back();
    p.out.pop_back();
    --p.offset_ptr.back();
  }});
  EXPECT_THAT(Failures({.mapping = "faulty", .filter = "map/faulty/quantize_k3_s2/cluster"}),
              ElementsAre(ContainsRegex(absl::StrCat(
                  "offset 26 has ([0-9]+) pairs; the reference has [0-9]+; the kernel map is "
                  "wrong: under offset 26 \\(1, 1, 1\\) output [0-9]+ ",
                  kVoxel, " has no pair; by the definition it meets input [0-9]+ ", kVoxel))));
}

TEST_F(WrongPluginsTest, AMapWithNegatedOffsetsIsKnown) {
  AddMapping({.change = [](MapParts& p) {
    const MapParts right = p;
    p.in.clear();
    p.out.clear();
    const int num_offsets = static_cast<int>(p.offset_ptr.size()) - 1;
    for (int k = 0; k < num_offsets; ++k) {
      const int other = num_offsets - 1 - k;
      for (int64_t i = right.offset_ptr[other]; i < right.offset_ptr[other + 1]; ++i) {
        p.in.push_back(right.in[i]);
        p.out.push_back(right.out[i]);
      }
      p.offset_ptr[k + 1] = static_cast<int64_t>(p.in.size());
    }
  }});
  EXPECT_THAT(Failures({.mapping = "faulty", .filter = "map/faulty/submanifold_k3/cluster"}),
              ElementsAre(HasSubstr("; the map matches with offsets negated")));
}

TEST_F(WrongPluginsTest, ANullIndexIsAnError) {
  ExpectMappingFails({.instead_of_build = [] { return std::unique_ptr<MapIndex>(); }},
                     "mapping faulty: DoBuildIndex: returned null");
}

TEST_F(WrongPluginsTest, ExceptionsFailTheirCaseAlone) {
  ExpectMappingFails(
      {.instead_of_query = []() -> absl::StatusOr<KernelMap> { throw std::runtime_error("a\nb"); }},
      "exception: a b");
}

TEST_F(WrongPluginsTest, SoDoesWhatIsNoException) {
  ExpectMappingFails({.instead_of_query = []() -> absl::StatusOr<KernelMap> { throw 42; }},
                     "exception of an unknown type");
}

// The index of one geometry alone: each of the map cases has an index of its own, and passes.
TEST_F(WrongPluginsTest, AnIndexServesSeveralGeometries) {
  struct OneGeometry final : MapIndex {
    mutable std::unique_ptr<ConvGeometry> first;
    CopiedRows rows;
    int64_t bytes() const override { return 0; }
  };
  class Forgetful final : public Mapping {
   public:
    explicit Forgetful(Options options) : inner_(std::move(options), {}) {}
    const Options& options() const override { return inner_.options(); }
    Support DoSupports(const ConvGeometry&) const override { return Support::Yes(); }

   protected:
    absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(
        const CoordinateSet& inputs, const ExecutionContext& context) const override {
      auto index = std::make_unique<OneGeometry>();
      VOXCONV_ASSIGN_OR_RETURN(const auto rows, inner_.BuildIndex(inputs, context));
      index->rows = static_cast<const CopiedRows&>(*rows);
      return index;
    }
    absl::StatusOr<KernelMap> DoQuery(const MapIndex& index, const MapProblem& problem,
                                      const ExecutionContext& context) const override {
      const auto& own = static_cast<const OneGeometry&>(index);
      if (own.first == nullptr) own.first = std::make_unique<ConvGeometry>(problem.geometry);
      return inner_.Query(own.rows, {problem.inputs, problem.outputs, *own.first}, context);
    }

   private:
    FaultyMapping inner_;
  };
  ASSERT_EQ(registry_.mappings().Register(
                {.name = "forgetful"}, BackendKind::kCpu,
                [](Options options) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
                  return std::make_unique<Forgetful>(std::move(options));
                }),
            absl::OkStatus());
  const std::vector<std::string> failures = Failures({.mapping = "forgetful"});
  EXPECT_THAT(failures, SizeIs(2));
  EXPECT_THAT(failures, Each(HasSubstr("map/forgetful/reused_index/")));
}

TEST_F(WrongPluginsTest, AFactoryThatRefusesEverythingIsOneCase) {
  const auto refuse = [](absl::Status status) {
    return [status](Options) -> absl::StatusOr<std::unique_ptr<const Mapping>> { return status; };
  };
  ASSERT_TRUE(registry_.mappings()
                  .Register({.name = "refuses"}, BackendKind::kCpu,
                            refuse(absl::InvalidArgumentError("I refuse")))
                  .ok());
  ASSERT_TRUE(registry_.mappings()
                  .Register({.name = "elsewhere"}, BackendKind::kCpu,
                            refuse(absl::UnimplementedError("no device")))
                  .ok());
  const std::string line = "map/refuses/factory: mapping refuses: I refuse";
  EXPECT_THAT(Failures({.mapping = "refuses"}), ElementsAre(line));
  EXPECT_THAT(Failures({.mapping = "refuses", .quick = true}), ElementsAre(line));
  EXPECT_THAT(Failures({.filter = "factory"}), ElementsAre(line));
  EXPECT_THAT(Failures({.mapping = "elsewhere"}), IsEmpty());
  EXPECT_EQ(num_cases_, 1);
}

TEST_F(WrongPluginsTest, ASpecWithAColonSelectsThatVariantAlone) {
  Failures({.mapping = "brute_force:", .filter = "map/*/submanifold_k3/single"});
  const int64_t one = num_cases_;
  Failures(
      {.mapping = "brute_force:emit=neighbour_table", .filter = "map/*/submanifold_k3/single"});
  EXPECT_EQ(num_cases_, one);
  Failures({.mapping = "brute_force", .filter = "map/*/submanifold_k3/single"});
  EXPECT_EQ(num_cases_, 2 * one);
}

// y is right where a row has pairs.
class FaultyDataflow final : public Dataflow {
 public:
  FaultyDataflow(Options options, std::string fault)
      : options_(std::move(options)), fault_(std::move(fault)) {}
  const Options& options() const override { return options_; }

 protected:
  Capability DoCapability(Pass, const ConvShape& shape) const override {
    return {.support = fault_ == "claims_f16" ? Support::Yes() : F32Only("faulty", shape),
            .fuses_epilogue = fault_ == "claims_epilogue"};
  }
  MapNeed DoNeededMap(Pass, const ConvShape&) const override { return {}; }
  absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(Pass, const PreparedMap&, const ConvShape&,
                                                       const ExecutionContext&) const override {
    if (fault_ == "null_plan") return std::unique_ptr<DataflowPlan>();
    return std::make_unique<DataflowPlan>();
  }
  absl::Status DoForward(const DataflowPlan&, const PreparedMap& prepared, const ForwardArgs& args,
                         const Workspace&, const ExecutionContext&) const override {
    if (args.input.dtype != DType::kF32) return absl::InternalError("it was a lie");
    const KernelMap& map = prepared.map();
    const int64_t c_in = args.input.channels, c_out = args.output.channels;
    const PairList& pairs = map.pairs();
    if (fault_ != "leaves_rows") std::fill_n(args.output.f32(), args.output.rows * c_out, 0.0f);
    for (int64_t i = 0; fault_ == "leaves_rows" && i < map.num_pairs(); ++i) {
      std::fill_n(args.output.f32() + pairs.out.data()[i] * c_out, c_out, 0.0f);
    }
    for (int k = 0; k < map.num_offsets(); ++k) {
      if (fault_ == "skips_offset" && k == 5) continue;
      const int weights = fault_ == "negates_offsets" ? map.num_offsets() - 1 - k : k;
      for (int64_t i = map.offset_ptr()[k]; i < map.offset_ptr()[k + 1]; ++i) {
        for (int64_t c = 0; c < c_in * c_out; ++c) {
          args.output.f32()[pairs.out.data()[i] * c_out + c % c_out] +=
              args.input.f32()[pairs.in.data()[i] * c_in + c / c_out] *
              args.weights.f32()[weights * c_in * c_out + c];
        }
      }
    }
    for (int64_t row = 0; row < args.output.rows; ++row) {
      float* y = args.output.f32() + row * c_out;
      if (fault_ == "last_rows" && row + 3 >= args.output.rows) std::fill_n(y, c_out, 7.0f);
      if (fault_ == "channel_block" && c_out > 8) std::fill_n(y + 4, 4, 7.0f);
    }
    return absl::OkStatus();
  }

 private:
  Options options_;
  std::string fault_;
};

class WrongDataflowTest : public WrongPluginsTest {
 protected:
  std::vector<std::string> FailuresOf(const std::string& fault) {
    const absl::Status status = registry_.dataflows().Register(
        {.name = "faulty"}, BackendKind::kCpu,
        [fault](Options options) -> absl::StatusOr<std::unique_ptr<const Dataflow>> {
          return std::make_unique<FaultyDataflow>(std::move(options), fault);
        });
    VOXCONV_CHECK(status.ok());
    return Failures({.dataflow = "faulty", .filter = "conv/reference/"});
  }
};

TEST_F(WrongDataflowTest, ARightOnePasses) {
  EXPECT_THAT(FailuresOf("none"), IsEmpty());
  EXPECT_GT(num_cases_, 50);
}
TEST_F(WrongDataflowTest, RowsWithoutAPairAreWritten) {
  EXPECT_THAT(FailuresOf("leaves_rows"), Contains(HasSubstr("is nan; the reference has 0")));
}
TEST_F(WrongDataflowTest, APatternOfTheWrongElementsIsNamed) {
  const std::map<std::string, std::string> patterns = {
      {"skips_offset", "; the products of offset 5 \\(-1, 0, 1\\) are missing"},
      {"negates_offsets", "; it matches with offsets negated"},
      {"last_rows", "elements differ, in 3 of [0-9]+ rows; the last 3 rows"},
      {"channel_block", "elements differ, in ([0-9]+) of [0-9]+ rows; channels 4 .. 7"},
      {"leaves_rows", "; all of these are NaN, which is what nothing has written to"}};
  for (const auto& [fault, pattern] : patterns) {
    SCOPED_TRACE(fault);
    registry_ = Registry();
    const std::string voxel = fault == "leaves_rows" ? "" : absl::StrCat("row [0-9]+ ", kVoxel);
    EXPECT_THAT(FailuresOf(fault), Contains(ContainsRegex(absl::StrCat(voxel, ".*", pattern))));
  }
}
TEST_F(WrongDataflowTest, ANullPlanIsAnError) {
  EXPECT_THAT(FailuresOf("null_plan"),
              Contains(HasSubstr("dataflow faulty: DoPlan: returned null")));
}
TEST_F(WrongDataflowTest, WhatItClaimsOnTheCpuIsRun) {
  EXPECT_THAT(FailuresOf("claims_epilogue"), Contains(HasSubstr("-epilogue/")));
}
TEST_F(WrongDataflowTest, SoAreTheDTypesThatItClaims) {
  EXPECT_THAT(FailuresOf("claims_f16"), Contains(HasSubstr("-f16/")));
}

TEST(CrashReportDeathTest, NamesTheCase) {
  const std::string id = "map/faulty/none";
  EXPECT_DEATH(
      {
        verify::CrashReport crash;
        crash.SetCase(id);
        std::abort();
      },
      "crashed in the case map/faulty/none");
}

}  // namespace
}  // namespace voxconv::testing
