// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/cli/session.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/version.h"
#include "voxconv/io/file_bytes.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/measure/preset.h"
#include "voxconv/networks/graph_builder.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/reference_cpu/layers.h"
#include "voxconv/tune/candidates.h"
#include "voxconv/tune/host_output.h"
#include "voxconv/tune/network_work.h"
#include "voxconv/tune/plan_record.h"
#include "voxconv/tune/race.h"
#include "voxconv/tune/search.h"
#include "voxconv/tune/shape_tuner.h"
#include "voxconv/verify/bounds.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::tune {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Contestant Named(std::string name) {
  return {std::move(name), [] { return absl::OkStatus(); }};
}

TEST(RaceTest, MediansOfInterleavedRounds) {
  std::string order;
  int call = 0;
  const Stopwatch stopwatch = [&](const Contestant& contestant) -> absl::StatusOr<double> {
    order += contestant.name;
    return contestant.name == "a" ? 1.0 : 1.0 + 0.1 * call++;
  };
  const auto finishes = Race({Named("a"), Named("b")}, {.repeats = 3}, stopwatch);
  EXPECT_EQ(order, "abbaab");
  EXPECT_EQ(finishes[0].ms, 1.0);
  EXPECT_DOUBLE_EQ(finishes[1].ms, 1.1);
}

TEST(RaceTest, DropsTheSlowAndTheFailing) {
  const Stopwatch stopwatch = [](const Contestant& contestant) -> absl::StatusOr<double> {
    if (contestant.name == "broken") return absl::InternalError("no");
    return contestant.name == "fast" ? 1.0 : 100.0;
  };
  const auto finishes =
      Race({Named("slow"), Named("fast"), Named("broken")}, {.repeats = 5}, stopwatch);
  EXPECT_EQ(finishes[0].rounds, 1);
  EXPECT_EQ(finishes[0].ms, 100);
  EXPECT_EQ(finishes[1].rounds, 5);
  EXPECT_TRUE(std::isinf(finishes[2].ms));
  EXPECT_EQ(finishes[2].status.message(), "no");
}

absl::StatusOr<HostOutput> OnHost(const std::vector<float>& values, DType dtype,
                                  const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const Tensor tensor,
                           Tensor::FromHost(values, 1, values.size(), context, dtype));
  HostOutput output;
  VOXCONV_RETURN_IF_ERROR(output.Copy(tensor, context));
  return output;
}

TEST(HostOutputTest, ErrorsAreThoseOfTheReference) {
  const auto backend = CpuBackend::Create({.threads = 2});
  ASSERT_TRUE(backend.ok()) << backend.status();
  const ExecutionContext context{backend->get(), &(*backend)->main_stream()};
  const std::vector<float> expected = verify::Values(300000, 1);
  std::vector<float> output = expected;
  for (size_t i = 0; i < output.size(); i += 1000) output[i] += 0.5f;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const auto a = OnHost(output, dtype, context), b = OnHost(expected, dtype, context);
    ASSERT_TRUE(a.ok() && b.ok());
    const Precision precision = dtype == DType::kF32   ? Precision::kF32
                                : dtype == DType::kF16 ? Precision::kF16
                                                       : Precision::kBF16;
    const double error = reference::RelativeError(verify::RoundedTo(precision, output),
                                                  verify::RoundedTo(precision, expected));
    EXPECT_NEAR(RelativeError(*a, *b), error, 1e-9 * error);
    EXPECT_EQ(RelativeError(*b, *b), 0);
    output[299999] = NAN;
    EXPECT_TRUE(std::isinf(RelativeError(*OnHost(output, dtype, context), *b)));
    output[299999] = expected[299999];
  }
  const auto zeros = OnHost({0, 0}, DType::kF16, context),
             one = OnHost({0, 1}, DType::kF16, context);
  EXPECT_EQ(RelativeError(*zeros, *zeros), 0);
  EXPECT_TRUE(std::isinf(RelativeError(*one, *zeros)));
  EXPECT_TRUE(std::isinf(RelativeError(*one, *OnHost({0, 1}, DType::kF32, context))));
  EXPECT_TRUE(std::isinf(RelativeError(*one, *OnHost({0, 1, 1}, DType::kF16, context))));
}

// Correct, but for one value a row; or without writing anything.
class WrongDataflow final : public Dataflow {
 public:
  WrongDataflow(std::unique_ptr<const Dataflow> inner, bool idle)
      : inner_(std::move(inner)), idle_(idle) {}
  const Options& options() const override { return inner_->options(); }

 protected:
  Capability DoCapability(Pass pass, const ConvShape& shape) const override {
    return inner_->CapabilityOf(pass, shape);
  }
  MapNeed DoNeededMap(Pass pass, const ConvShape& shape) const override {
    return inner_->NeededMap(pass, shape);
  }
  absl::StatusOr<std::shared_ptr<const PreparedMap>> DoPrepare(
      const KernelMap& map, const MapNeed& need, const ExecutionContext& context) const override {
    return inner_->Prepare(map, need, context);
  }
  absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(
      Pass pass, const PreparedMap& map, const ConvShape& shape,
      const ExecutionContext& context) const override {
    return inner_->Plan(pass, map, shape, context);
  }
  absl::Status DoForward(const DataflowPlan& plan, const PreparedMap& map, const ForwardArgs& args,
                         const Workspace& workspace,
                         const ExecutionContext& context) const override {
    if (idle_) return absl::OkStatus();
    VOXCONV_RETURN_IF_ERROR(inner_->Forward(plan, map, args, workspace, context));
    for (int64_t row = 0; row < args.output.rows; ++row) {
      args.output.f32()[row * args.output.channels] += 0.01f;
    }
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<const Dataflow> inner_;
  bool idle_;
};

// A map without any pair.
class EmptyMapping final : public Mapping {
 public:
  explicit EmptyMapping(std::unique_ptr<const Mapping> inner) : inner_(std::move(inner)) {}
  const Options& options() const override { return inner_->options(); }
  Support DoSupports(const ConvGeometry&) const override { return Support::Yes(); }

 protected:
  absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const override {
    return inner_->BuildIndex(inputs, context);
  }
  absl::StatusOr<KernelMap> DoQuery(const MapIndex&, const MapProblem& problem,
                                    const ExecutionContext& context) const override {
    PairList pairs;
    VOXCONV_ASSIGN_OR_RETURN(pairs.in, AllocateArray<int32_t>(0, context));
    VOXCONV_ASSIGN_OR_RETURN(pairs.out, AllocateArray<int32_t>(0, context));
    return KernelMap(problem.inputs.size(), problem.outputs.size(),
                     std::vector<int64_t>(problem.geometry.num_offsets() + 1), std::move(pairs));
  }

 private:
  std::unique_ptr<const Mapping> inner_;
};

NetworkGraph SmallNetwork() {
  GraphBuilder builder("small");
  int x = builder.Input(4);
  x = builder.Conv("wide", x, 8, {});
  const int down = builder.Conv(
      "down", x, 16, {.kind = ConvKind::kStrided, .kernel = {2, 2, 2}, .stride = {2, 2, 2}});
  x = builder.Conv("deep", down, 16, {});
  x = builder.InverseConv("up", x, 8, down);
  auto graph = std::move(builder).Build(x);
  VOXCONV_CHECK(graph.ok());
  InitializeParameters(*graph, 1);
  return *std::move(graph);
}

class TuneTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(RegisterAllPlugins({}, registry_).ok());
    for (const bool idle : {false, true}) {
      ASSERT_TRUE(registry_.dataflows()
                      .Register({.name = idle ? "idle" : "wrong", .summary = "for this test"},
                                BackendKind::kCpu,
                                [this, idle](const Options&) { return MakeWrong(idle); })
                      .ok());
    }
    ASSERT_TRUE(registry_.dataflows()
                    .Register({.name = "late", .summary = "for this test"}, BackendKind::kCpu,
                              [this](const Options&) { return MakeWrong(false, "direct"); })
                    .ok());
    ASSERT_TRUE(
        registry_.mappings()
            .Register({.name = "blind", .summary = "for this test"}, BackendKind::kCpu,
                      [this](const Options&) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
                        VOXCONV_ASSIGN_OR_RETURN(
                            auto inner, registry_.mappings().Create("hash", BackendKind::kCpu));
                        return std::make_unique<EmptyMapping>(std::move(inner));
                      })
            .ok());
    backend_ = *CpuBackend::Create({.threads = 1});
    std::vector<Coordinate> rows;
    for (int x = 0; x < 16; ++x) {
      for (int y = 0; y < 12; ++y) rows.push_back({0, x, y, (x * y) % 3});
    }
    input_ = *SparseTensor::Create(rows, {1, 1, 1}, std::vector<float>(rows.size() * 4, 0.5f), 4,
                                   context());
  }

  absl::StatusOr<std::unique_ptr<const Dataflow>> MakeWrong(
      bool idle, const std::string& of = "gather_gemm_scatter") const {
    VOXCONV_ASSIGN_OR_RETURN(auto inner, registry_.dataflows().Create(of, BackendKind::kCpu));
    return std::make_unique<WrongDataflow>(std::move(inner), idle);
  }

  ExecutionContext context() { return {backend_.get(), &backend_->main_stream(), nullptr}; }

  // Whatever is doctored takes no time at all.
  SearchSetup Doctored() {
    return {.graph = graph_,
            .registry = registry_,
            .coordinates = input_.coordinates(),
            .candidates = {{"hash", "blind", "sorted_search"},
                           {"wrong", "idle", "direct", "gather_gemm_scatter"},
                           {"sort_unique"},
                           {}},
            .context = context(),
            .stopwatch = [](const Contestant& contestant) -> absl::StatusOr<double> {
              for (const char* name : {"wrong", "idle", "blind"}) {
                if (absl::StrContains(contestant.name, name)) return 1e-6;
              }
              if (absl::EndsWith(contestant.name, "deep/direct")) return 10;
              return absl::EndsWith(contestant.name, "/direct") ? 1 : 2;
            },
            .trusted = {"hash", "gather_gemm_scatter", "sort_unique"}};
  }

  NetworkGraph graph_ = SmallNetwork();
  Registry registry_;
  std::unique_ptr<CpuBackend> backend_;
  SparseTensor input_;
};

TEST_F(TuneTest, NeverKeepsACandidateThatFailsItsCheck) {
  const auto result = MeasuredSearch(Doctored());
  ASSERT_TRUE(result.ok()) << result.status();
  std::vector<std::string> names, dataflows;
  for (const TunedLayer& layer : result->layers) {
    names.push_back(graph_.node(layer.node).name);
    dataflows.push_back(layer.choice.dataflow);
    EXPECT_THAT(layer.choice.mapping, testing::AnyOf("hash", "sorted_search"));
    for (const Timed& other : layer.others) {
      EXPECT_NE(other.spec, "wrong");
      EXPECT_NE(other.spec, "idle");
    }
  }
  EXPECT_THAT(names, ElementsAre("wide", "down", "deep", "up"));
  EXPECT_THAT(dataflows, ElementsAre("direct", "direct", "gather_gemm_scatter", "direct"));
  int wrong = 0, idle = 0, blind = 0;
  for (const Rejected& entry : result->rejected) {
    EXPECT_FALSE(entry.reason.empty());
    wrong += entry.spec == "wrong";
    idle += entry.spec == "idle";
    blind += entry.spec == "blind";
  }
  EXPECT_EQ(wrong, 4);
  EXPECT_EQ(idle, 4);
  EXPECT_EQ(blind, 3);
}

// A check takes longer than a race. `late` reads the map as `direct` does, and is wrong.
TEST_F(TuneTest, WhatIsSlowIsNeitherCheckedNorTaken) {
  SearchSetup setup = Doctored();
  setup.candidates.mappings = {"hash", "blind"};
  setup.candidates.dataflows = {"direct", "late"};
  setup.stopwatch = [](const Contestant& contestant) -> absl::StatusOr<double> {
    if (absl::StrContains(contestant.name, "blind")) return 5;
    return absl::StrContains(contestant.name, "late") ? 1.2 : 1;
  };
  const auto result = MeasuredSearch(setup);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->rejected.empty());
  for (const TunedLayer& layer : result->layers) {
    EXPECT_EQ(layer.choice.mapping, "hash");
    EXPECT_EQ(layer.choice.dataflow, "direct");
    ASSERT_EQ(layer.others.size(), 1u);
    EXPECT_EQ(layer.others[0].ms, 1.2);
  }
  for (const TunedMap& map : result->maps) EXPECT_TRUE(map.others.empty());
}

TEST_F(TuneTest, RefusesATrustedPluginThatIsWrong) {
  SearchSetup setup = Doctored();
  setup.trusted.dataflow = "wrong";
  EXPECT_THAT(std::string(MeasuredSearch(setup).status().message()), HasSubstr("trusted"));
  setup.trusted.dataflow = "gather_gemm_scatter";
  setup.trusted.mapping = "blind";
  EXPECT_EQ(MeasuredSearch(setup).status().code(), absl::StatusCode::kInternal);
}

TEST_F(TuneTest, StopsBetweenParts) {
  SearchSetup setup = Doctored();
  setup.race.stop = [] { return true; };
  EXPECT_EQ(MeasuredSearch(setup).status().code(), absl::StatusCode::kAborted);
}

TEST_F(TuneTest, RealTimesGiveAPlanThatRuns) {
  SearchSetup setup = Doctored();
  // With one honest mapping. Of two, each could win a map, and then neither has times in all maps.
  setup.candidates.mappings = {"hash", "blind"};
  setup.stopwatch = WallStopwatch(context());
  setup.race.repeats = 2;
  const auto result = MeasuredSearch(setup);
  ASSERT_TRUE(result.ok()) << result.status();
  const LayerChoice single = BestForAll(*result);
  EXPECT_EQ(single.mapping, "hash");
  const NetworkSetup network{.graph = graph_,
                             .registry = registry_,
                             .input = input_,
                             .config = {},
                             .context = context(),
                             .stopwatch = WallStopwatch(context()),
                             .race = {.repeats = 1}};
  const LayerChoice trusted{"hash", "gather_gemm_scatter", "sort_unique"};
  const auto times = TimeNetworks(
      network,
      {{"trusted", std::make_shared<FixedPlanner>(trusted)},
       {"tuned", std::make_shared<ListedPlanner>(PlannedLayers(graph_, *result), single)},
       {"wrong", std::make_shared<FixedPlanner>(LayerChoice{"hash", "wrong", "sort_unique"})}});
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ((*times)[1].rejected, "");
  EXPECT_THAT((*times)[2].rejected, HasSubstr("differs norm-wise"));
}

TEST_F(TuneTest, OneChoiceForAllReplacesTheOthers) {
  auto result = MeasuredSearch(Doctored());
  ASSERT_TRUE(result.ok()) << result.status();
  const size_t others = result->layers[0].others.size();
  TakeForAll({"sorted_search", "gather_gemm_scatter", "sort_unique"}, *result);
  for (const TunedLayer& layer : result->layers) {
    EXPECT_EQ(layer.choice.dataflow, "gather_gemm_scatter");
    EXPECT_EQ(layer.choice.mapping, "sorted_search");
    EXPECT_EQ(layer.ms, 2);
  }
  EXPECT_EQ(result->layers[0].others.size(), others);
  EXPECT_EQ(result->layers[0].others[0].spec, "direct");
}

TEST_F(TuneTest, ThresholdWithTheSmallestTime) {
  NetworkSetup setup{.graph = graph_,
                     .registry = registry_,
                     .input = input_,
                     .config = {},
                     .context = context(),
                     .stopwatch = [](const Contestant& contestant) -> absl::StatusOr<double> {
                       return contestant.name == "threshold=8" ? 1.0 : 3.0;
                     }};
  HeuristicPlanner::Config config{.mapping = "hash",
                                  .output_coords = "sort_unique",
                                  .narrow = "fetch_on_demand",
                                  .wide = "gather_gemm_scatter"};
  auto result = TuneThreshold(setup, config);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->threshold, 8);
  EXPECT_EQ(result->ms, 1);
  EXPECT_EQ(result->times.size(), 3u);  // 0, 8, 16
  // Where a dataflow is wrong, only the plan without it is left.
  config.narrow = "wrong";
  result = TuneThreshold(setup, config);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->threshold, 0);
}

TEST_F(TuneTest, GridsExpandFromABase) {
  const auto expand = [&](const DataflowGrid& grid, const std::string& base) {
    return Expand(grid, base, 6, 8, registry_.dataflows(), BackendKind::kCpu);
  };
  const DataflowGrid tiles{"gather_gemm_scatter",
                           {.where = {}, .axes = {{"tile", {"divisors(c_in)", "4"}}}}};
  const auto specs = expand(tiles, "gather_gemm_scatter:order=weight");
  EXPECT_THAT(specs, ElementsAre("gather_gemm_scatter:order=weight,tile=1",
                                 "gather_gemm_scatter:order=weight,tile=2",
                                 "gather_gemm_scatter:order=weight,tile=3",
                                 "gather_gemm_scatter:order=weight,tile=6",
                                 "gather_gemm_scatter:order=weight,tile=4"));
  EXPECT_TRUE(expand(tiles, "direct").empty());
  const DataflowGrid adaptive{"gather_gemm_scatter",
                              {.where = {"grouping", {"adaptive"}},
                               .axes = {{"epsilon", {"0", "1"}}, {"threshold", {"0", "16"}}}}};
  EXPECT_EQ(expand(adaptive, "gather_gemm_scatter").size(), 4u);
  EXPECT_TRUE(expand(adaptive, "gather_gemm_scatter:grouping=fixed").empty());
}

TEST_F(TuneTest, GridsThatPluginsDescribeAreSearched) {
  const Candidates candidates = DefaultCandidates(registry_, BackendKind::kCpu, /*quick=*/false);
  ASSERT_EQ(candidates.grids.size(), 3u);
  for (const DataflowGrid& grid : candidates.grids) {
    EXPECT_GT(Expand(grid, grid.dataflow, 6, 8, registry_.dataflows(), BackendKind::kCpu).size(),
              1u)
        << grid.grid.axes[0].option;
  }
  EXPECT_TRUE(DefaultCandidates(registry_, BackendKind::kCpu, /*quick=*/true).grids.empty());
  Registry other;
  PluginDescription typo{.name = "typo"};
  typo.grids = {{.where = {}, .axes = {{"tille", {"1"}}}}};
  EXPECT_THAT(std::string(other.dataflows().Describe(typo).message()), HasSubstr("'tille'"));
}

TEST_F(TuneTest, PreparedMapsAreSharedByWhatIsRead) {
  const auto mapping = *registry_.mappings().Create("hash", BackendKind::kCpu);
  const ConvGeometry geometry = *ConvGeometry::Create({});
  const CoordinateSet& set = *input_.coordinates();
  PreparedMaps maps(*QueryPairs(*mapping, {set, set, geometry}, context()), context());
  const ConvShape shape = ShapeOfLayer(geometry, 4, 8, Precision::kF32);
  const auto reading = [&](const std::string& spec) {
    return MapReading::Of(ParsePluginSpec(spec)->name,
                          *registry_.dataflows().Create(spec, BackendKind::kCpu), shape);
  };
  const auto get = [&](const std::string& spec) { return *maps.Get(reading(spec)); };
  EXPECT_EQ(get("gather_gemm_scatter"), get("gather_gemm_scatter:grouping=fixed"));
  EXPECT_NE(get("gather_gemm_scatter"), get("gather_gemm_scatter:map=coded_csr"));
  EXPECT_FALSE(reading("gather_gemm_scatter").Same(reading("implicit_gemm")));
  EXPECT_EQ((*maps.Get(MapReading::Pairs()))->map().form(), MapForm::kPairs);
}

TEST_F(TuneTest, CandidatesAreReadAndRefused) {
  const BackendKind cpu = BackendKind::kCpu;
  const Candidates defaults = DefaultCandidates(registry_, cpu, /*quick=*/true);
  EXPECT_THAT(defaults.dataflows, Contains("direct"));
  EXPECT_EQ(DefaultCandidates(registry_, cpu, false).dataflows,
            DefaultCandidates(registry_, cpu, false).dataflows);
  const auto parsed = ParseCandidates(
      R"({"dataflows": ["direct:weights=naive"], "grids": [{"dataflow": "gather_gemm_scatter",
          "where": {"order": ["weight"]}, "axes": {"tile": [1, 2]}}]})",
      registry_, cpu, defaults);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->dataflows, ElementsAre("direct:weights=naive"));
  EXPECT_EQ(parsed->mappings, defaults.mappings);
  ASSERT_EQ(parsed->grids.size(), 1u);
  EXPECT_THAT(parsed->grids[0].grid.axes[0].values, ElementsAre("1", "2"));
  for (const auto& [text, word] : std::vector<std::pair<std::string, std::string>>{
           {"{", "JSON"},
           {R"({"dataflow": []})", "'dataflow'"},
           {R"({"dataflows": []})", "'dataflows'"},
           {R"({"dataflows": ["none"]})", "none"},
           {R"({"mappings": ["hash:load=2"]})", "load"},
           {R"({"grids": [{"dataflow": "direct", "axes": {"tile": [1]}}]})", "tile"},
           {R"({"grids": [{"axes": {}}]})", "dataflow"}}) {
    EXPECT_THAT(std::string(ParseCandidates(text, registry_, cpu, defaults).status().message()),
                HasSubstr(word))
        << text;
  }
}

// What each engine tunes by itself. A preset with a plan of its space is tuned as its engine is.
TEST_F(TuneTest, SpacesOfEngines) {
  for (const std::string name : {"minuet", "torchsparse"}) {
    const auto json =
        ReadFileBytes(absl::StrCat(VOXCONV_SOURCE_DIR, "/experiments/spaces/", name, ".json"));
    ASSERT_TRUE(json.ok()) << json.status();
    const auto space = ParseCandidates(*json, registry_, BackendKind::kCpu, {});
    ASSERT_TRUE(space.ok()) << name << ": " << space.status();
    EXPECT_THAT(space->dataflows, ::testing::SizeIs(1)) << name;
    EXPECT_FALSE(space->grids.empty()) << name;
    const auto preset = measure::LoadPreset(name);
    ASSERT_TRUE(preset.ok()) << preset.status();
    const LayerChoice& choice = preset->configuration.choice;
    EXPECT_EQ(space->mappings[0], *registry_.mappings().Canonical(choice.mapping)) << name;
    EXPECT_EQ(space->dataflows[0], *registry_.dataflows().Canonical(choice.dataflow)) << name;
  }
}

// What an engine may be tuned over (experiments/spaces).
TEST_F(TuneTest, TheEnginesOwnSpacesAreRead) {
  const Candidates none;
  const auto defaults = measure::LoadDefaults();
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           absl::StrCat(VOXCONV_SOURCE_DIR, "/experiments/spaces"))) {
    ++files;
    const auto text = ReadFileBytes(entry.path().string());
    ASSERT_TRUE(text.ok()) << text.status();
    for (const BackendKind backend : {BackendKind::kCpu, BackendKind::kCuda}) {
      if (backend == BackendKind::kCuda && !VOXCONV_HAVE_CUDA) continue;
      const auto space = ParseCandidates(*text, registry_, backend, none);
      ASSERT_TRUE(space.ok()) << entry.path() << ": " << space.status();
      EXPECT_FALSE(space->mappings.empty()) << entry.path();
      EXPECT_FALSE(space->dataflows.empty()) << entry.path();
      const auto preset = measure::LoadPreset(entry.path().stem().string());
      ASSERT_TRUE(preset.ok()) << preset.status();
      EXPECT_EQ(space->mappings[0],
                *registry_.mappings().Canonical(preset->configuration.choice.mapping))
          << entry.path();
      const std::string& output_coords = preset->configuration.choice.output_coords;
      EXPECT_THAT(space->output_coords,
                  ElementsAre(output_coords.empty() ? defaults->output_coords : output_coords))
          << entry.path();
    }
  }
  EXPECT_EQ(files, 4);
}

TEST_F(TuneTest, NamesNarrowToTheirCandidates) {
  const std::vector<std::string> candidates = {"direct", "direct:weights=naive", "hash2col"};
  const auto narrow = [&](const std::vector<std::string>& wanted) {
    return Narrow(registry_.dataflows(), BackendKind::kCpu, candidates, wanted);
  };
  EXPECT_THAT(*narrow({"direct"}), ElementsAre("direct", "direct:weights=naive"));
  EXPECT_THAT(*narrow({"direct:weights=naive", "implicit_gemm"}),
              ElementsAre("direct:weights=naive", "implicit_gemm"));
  EXPECT_FALSE(narrow({"none"}).ok());
}

TEST(PlanToTakeTest, TheFastestCountsAndThePlanStaysWhereTheyAreAlike) {
  const auto times = [](double plan, double single, double usual) {
    return std::vector<NetworkTime>{
        {"trusted", 900, ""}, {"plan", plan, ""}, {"single", single, ""}, {"default", usual, ""}};
  };
  EXPECT_EQ(PlanToTake(times(500, 510, 520), 1, {2, 3}), 1u);
  EXPECT_EQ(PlanToTake(times(500, 498, 497), 1, {2, 3}), 1u);
  EXPECT_EQ(PlanToTake(times(520, 510, 512), 1, {2, 3}), 2u);
  EXPECT_EQ(PlanToTake(times(520, 510, 452), 1, {2, 3}), 3u);  // as it was once seen
  EXPECT_EQ(PlanToTake(times(500, 510, kNoTime), 1, {2, 3}), 1u);
}

}  // namespace
}  // namespace voxconv::tune
