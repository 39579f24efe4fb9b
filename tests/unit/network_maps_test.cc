// SPDX-License-Identifier: Apache-2.0
// Which kernel maps a network makes, who shares them, and how long they live.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "networks_test_util.h"
#include "voxconv/networks/graph_builder.h"

namespace voxconv {
namespace {

// A neighbour table of a dataflow's own.
class OwnTable final : public PreparedMap {
 public:
  OwnTable(KernelMap map, SharedArray<int32_t> table)
      : PreparedMap(std::move(map)), table_(std::move(table)) {}
  int64_t bytes() const override { return map().bytes() + copied_bytes_; }
  const int32_t* table() const { return table_.data(); }
  void set_copied() { copied_bytes_ = table_.bytes(); }

 private:
  SharedArray<int32_t> table_;
  int64_t copied_bytes_ = 0;
};

// Brings a layout of its own, which it makes of a table: a copy, or the table itself. The option
// `tile` changes nothing, and least of all the layout.
class LayoutDataflow final : public Dataflow {
 public:
  LayoutDataflow(Options options, int& prepared)
      : options_(std::move(options)), prepared_(prepared) {}
  const Options& options() const override { return options_; }

 protected:
  Capability DoCapability(Pass, const ConvShape&) const override { return {}; }
  MapNeed DoNeededMap(Pass, const ConvShape&) const override {
    return {.form = MapForm::kNeighbourTable, .layout = options_.GetEnum("layout")};
  }
  absl::StatusOr<std::shared_ptr<const PreparedMap>> DoPrepare(
      const KernelMap& map, const MapNeed& need, const ExecutionContext& context) const override {
    ++prepared_;
    const SharedArray<int32_t>& table = map.table().table;
    if (need.layout == "shared") return std::make_shared<const OwnTable>(map, table);
    VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> copy,
                             CopyToBackend<int32_t>(table.array().host(), context));
    const auto own = std::make_shared<OwnTable>(map.WithoutArrays(), std::move(copy));
    own->set_copied();
    return own;
  }
  absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(Pass, const PreparedMap&, const ConvShape&,
                                                       const ExecutionContext&) const override {
    return std::make_unique<DataflowPlan>();
  }
  absl::Status DoForward(const DataflowPlan&, const PreparedMap& map, const ForwardArgs& args,
                         const Workspace&, const ExecutionContext&) const override {
    const int32_t* table = static_cast<const OwnTable&>(map).table();
    const int64_t num_offsets = map.map().num_offsets();
    const int64_t c_in = args.input.channels, c_out = args.output.channels;
    std::fill_n(args.output.f32(), args.output.rows * c_out, 0.0f);
    for (int64_t i = 0; i < args.output.rows * num_offsets; ++i) {
      if (table[i] < 0) continue;
      const float* x = args.input.f32() + table[i] * c_in;
      const float* w = args.weights.f32() + i % num_offsets * c_in * c_out;
      float* y = args.output.f32() + i / num_offsets * c_out;
      for (int64_t j = 0; j < c_in * c_out; ++j) y[j % c_out] += x[j / c_out] * w[j];
    }
    return absl::OkStatus();
  }

 private:
  Options options_;
  int& prepared_;
};

// Another mapping's tables, without their counts.
class UncountedMapping final : public Mapping {
 public:
  UncountedMapping(Options options, std::unique_ptr<const Mapping> counted)
      : options_(std::move(options)), counted_(std::move(counted)) {}
  const Options& options() const override { return options_; }
  Support DoSupports(const ConvGeometry&) const override { return Support::Yes(); }

 protected:
  absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const override {
    return counted_->BuildIndex(inputs, context);
  }
  absl::StatusOr<KernelMap> DoQuery(const MapIndex& index, const MapProblem& problem,
                                    const ExecutionContext& context) const override {
    VOXCONV_ASSIGN_OR_RETURN(const KernelMap map, counted_->Query(index, problem, context));
    return KernelMap(map.num_inputs(), map.num_outputs(), map.num_offsets(), map.table());
  }

 private:
  Options options_;
  std::unique_ptr<const Mapping> counted_;
};

class NetworkMapsTest : public NetworksTest {
 protected:
  NetworkMapsTest() {
    OptionSchema options;
    options.Enum("layout", {"copied", "shared"}, "copied", "the layout")
        .Int("tile", 1, 1, 9, "nothing");
    for (const char* name : {"own_layout", "other_layout"}) {
      EXPECT_TRUE(registry_.dataflows()
                      .Register({.name = name, .options = options}, BackendKind::kCpu,
                                [this](Options values) {
                                  return std::make_unique<const LayoutDataflow>(std::move(values),
                                                                                prepared_);
                                })
                      .ok());
    }
    const auto make_uncounted =
        [this](Options values) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
      VOXCONV_ASSIGN_OR_RETURN(
          auto counted,
          registry_.mappings().Create("brute_force:emit=neighbour_table", BackendKind::kCpu));
      return std::make_unique<const UncountedMapping>(std::move(values), std::move(counted));
    };
    EXPECT_TRUE(registry_.mappings()
                    .Register({.name = "uncounted"}, BackendKind::kCpu, make_uncounted)
                    .ok());
  }

  // The first of SmallUNet's layers runs with `first`, the others with `rest`.
  static RunConfig Mixed(const std::string& mapping, const std::string& first,
                         const std::string& rest) {
    const auto base = std::make_shared<FixedPlanner>(LayerChoice{mapping, rest, "brute_force"});
    return {.planner = std::make_shared<OverridePlanner>(
                base, std::vector<LayerOverride>{{"stem.conv1", {.dataflow = first}}})};
  }

  int prepared_ = 0;  // layouts made
};

TEST_F(NetworkMapsTest, LayoutsAreConvertedOnceAndMixFreely) {
  const std::vector<Coordinate> rows = Scene(12);
  const LayerChoice table{"brute_force", "brute_force:take=neighbour_table", "brute_force"};
  EXPECT_EQ(RunAndCompare(SmallUNet(), rows, Config(table)).maps_converted, 13);
  const LayerChoice native{"brute_force:emit=neighbour_table", "brute_force:take=neighbour_table",
                           "brute_force"};
  // Transposition gives pairs, so the inverse layers' maps still need conversion.
  EXPECT_EQ(RunAndCompare(SmallUNet(), rows, Config(native)).maps_converted, 4);

  // Two layers with one map and two layouts: a query, and a conversion for one of them.
  RunConfig config = Config();
  config.planner = std::make_shared<OverridePlanner>(
      config.planner,
      std::vector<LayerOverride>{{"stem.conv2", {.dataflow = "brute_force:take=neighbour_table"}}});
  const RunReport report = RunAndCompare(SmallUNet(), rows, config);
  EXPECT_EQ(report.maps_queried, 9);
  EXPECT_EQ(report.maps_converted, 1);
  EXPECT_EQ(Layer(report, "stem.conv2").map_origin, MapOrigin::kConverted);
  EXPECT_EQ(Layer(report, "stem.conv2").dataflow, "brute_force:take=neighbour_table");
}

TEST_F(NetworkMapsTest, AnotherMappingMeansAnotherMap) {
  RunConfig config = Config();
  config.planner = std::make_shared<OverridePlanner>(
      config.planner,
      std::vector<LayerOverride>{{"stem.conv2", {.mapping = "brute_force:emit=neighbour_table"}}});
  const RunReport report = RunAndCompare(SmallUNet(), Scene(12), config);
  EXPECT_EQ(report.maps_queried, 10);
  EXPECT_EQ(report.indices_built, 6);
  EXPECT_EQ(Layer(report, "stem.conv2").map_origin, MapOrigin::kQueried);
}

TEST_F(NetworkMapsTest, WithoutReuseEveryLayerBuildsItsOwn) {
  RunConfig config = Config();
  config.reuse_maps = false;
  const RunReport report = RunAndCompare(SmallUNet(), Scene(12), config);
  // All 42 but the inverse layers, which have no other map than their counterparts'.
  EXPECT_EQ(report.maps_queried, 38);
  EXPECT_EQ(report.indices_built, 38);
  EXPECT_EQ(report.maps_transposed, 4);
}

TEST_F(NetworkMapsTest, KeptMapsServeLaterRunsOnTheSameCoordinates) {
  RunConfig config = Config();
  config.keep_maps = true;
  const NetworkGraph graph = SmallUNet();
  auto runner = *NetworkRunner::Create(graph, config, registry_, *backend_);
  const SparseTensor input = Input(Scene(12), 4);
  const RunResult first = *runner->Run(input.view());
  const RunResult second = *runner->Run(input.view());
  EXPECT_EQ(first.report.maps_queried, 9);
  EXPECT_EQ(
      second.report.maps_queried + second.report.indices_built + second.report.maps_transposed, 0);
  EXPECT_EQ(*first.output.features().ToHost(context_), *second.output.features().ToHost(context_));
  // The same voxels in another set are built anew: only the set's identity counts.
  EXPECT_EQ(runner->Run(Input(Scene(12), 4).view())->report.maps_queried, 9);
  runner->ClearMaps();
  EXPECT_EQ(runner->Run(input.view())->report.maps_queried, 9);
}

TEST_F(NetworkMapsTest, MapsAreBuiltAheadAsFarAsTheirCoordinatesAreThere) {
  auto runner = *NetworkRunner::Create(SmallUNet(), Config(), registry_, *backend_);
  const CompiledNetwork& network = runner->network();
  MapStore maps(network);
  ASSERT_TRUE(maps.Start(Input(Scene(12), 4).coordinates(), context_).ok());
  RunReport report;
  const size_t end = network.schedule.order.size();
  EXPECT_FALSE(*maps.BuildNext(end, report)) << "not started";
  ASSERT_TRUE(maps.StartBuilding(context_).ok());
  EXPECT_FALSE(*maps.BuildNext(0, report)) << "no layer is before the first";
  int calls = 0;
  for (const CoordinateChain& chain : network.chains) {
    const auto meanwhile = [&] {
      ++calls;
      while (*maps.BuildNext(end, report)) {
      }
      EXPECT_EQ(report.maps_queried, 1) << "that of the input's own coordinates";
      EXPECT_TRUE(maps.HasCoordinates(network.schedule.order.front()));
      EXPECT_FALSE(maps.HasCoordinates(chain.node));
    };
    ASSERT_TRUE(maps.MakeChain(chain, context_, meanwhile).ok());
    EXPECT_TRUE(maps.HasCoordinates(chain.node));
  }
  EXPECT_EQ(calls, 1);
  while (*maps.BuildNext(end, report)) {
  }
  const int queried = report.maps_queried;
  EXPECT_GT(queried, 1);
  for (int node : network.schedule.order) {
    if (network.maps.MapOf(node, Pass::kForward) < 0) continue;
    LayerReport layer;
    ASSERT_TRUE(maps.Map(node, Pass::kForward, context_, layer, report).ok());
    EXPECT_EQ(layer.map_origin, MapOrigin::kReused);
    maps.Release(node);
  }
  EXPECT_EQ(report.maps_queried, queried);
  EXPECT_TRUE(maps.FinishBuilding().ok());
  EXPECT_EQ(maps.bytes(), 0);
}

TEST_F(NetworkMapsTest, LayersOfOnePluginShareALayout) {
  // Five submanifold maps, four strided ones and these transposed. The mapping's tables have the
  // form that layouts are made of; transposition gives pairs.
  const std::string tables = "brute_force:emit=neighbour_table";
  const std::vector<Coordinate> rows = Scene(12);
  RunReport report =
      RunAndCompare(SmallUNet(), rows, Mixed(tables, "own_layout:tile=2", "own_layout"));
  EXPECT_EQ(prepared_, 13);
  EXPECT_EQ(report.maps_converted, 4 + 13);
  EXPECT_EQ(Layer(report, "stem.conv1").map_origin, MapOrigin::kQueried);
  EXPECT_EQ(Layer(report, "stem.conv2").map_origin, MapOrigin::kReused);
  EXPECT_EQ(Layer(report, "stem.conv2").dataflow, "own_layout");
  // Another key, or another plugin with the same key, is a layout more.
  for (const char* first : {"own_layout:layout=shared", "other_layout"}) {
    prepared_ = 0;
    report = RunAndCompare(SmallUNet(), rows, Mixed(tables, first, "own_layout"));
    EXPECT_EQ(prepared_, 14) << first;
    EXPECT_EQ(report.maps_queried, 9);
    EXPECT_EQ(Layer(report, "stem.conv2").map_origin, MapOrigin::kConverted);
  }
}

TEST_F(NetworkMapsTest, PairsAreCountedThoughALayoutKeepsNoArrays) {
  const std::vector<Coordinate> rows = Scene(12);
  const RunReport expected = RunAndCompare(SmallUNet(), rows, Config());
  RunConfig config = Config({"uncounted", "own_layout", "brute_force"});
  const RunReport counted = RunAndCompare(SmallUNet(), rows, config);
  ASSERT_EQ(counted.layers.size(), expected.layers.size());
  for (size_t i = 0; i < counted.layers.size(); ++i) {
    EXPECT_EQ(counted.layers[i].map_sizes, expected.layers[i].map_sizes) << counted.layers[i].name;
  }
  config.count_pairs = false;
  EXPECT_EQ(Layer(RunAndCompare(SmallUNet(), rows, config), "stem.conv1").pairs, 0);
}

// Of a network of two convolutions on one map, with kept maps.
class KeptMapsTest : public NetworkMapsTest {
 protected:
  // What is held after both have run. The map's index is not counted.
  int64_t BytesHeld(const std::string& mapping, const std::string& first,
                    const std::string& second) {
    GraphBuilder b("two");
    const int conv = b.Conv("second", b.Conv("first", b.Input(2), 2, {}), 2, {});
    NetworkGraph graph = *std::move(b).Build(conv);
    InitializeParameters(graph, 1);
    RunConfig config;
    config.keep_maps = true;
    config.planner = std::make_shared<OverridePlanner>(
        std::make_shared<FixedPlanner>(LayerChoice{mapping, first, "brute_force"}),
        std::vector<LayerOverride>{{"second", {.dataflow = second}}});
    auto runner = *NetworkRunner::Create(graph, config, registry_, *backend_);
    MapStore maps(runner->network());
    EXPECT_TRUE(maps.Start(input_.coordinates(), context_).ok());
    RunReport report;
    LayerReport layer;
    for (int node = 1; node <= 2; ++node) {
      const auto map = maps.Map(node, Pass::kForward, context_, layer, report);
      EXPECT_TRUE(map.ok()) << map.status();
      EXPECT_TRUE((*map)->map().EnsureCounts(context_).ok());
      pairs_bytes_ = 8 * (*map)->map().num_pairs();
    }
    EXPECT_EQ(report.indices_built, 1);
    return maps.bytes() - 20 * input_.features().rows();  // an index entry of brute_force has 20
  }

  const SparseTensor input_ = Input(Scene(8), 2);
  const int64_t table_bytes_ = 4 * 27 * input_.features().rows();
  int64_t pairs_bytes_ = 0;
};

TEST_F(KeptMapsTest, AFormThatOnlyLayoutsAreMadeOfIsFreed) {
  // The pairs as queried, and the layout.
  int64_t held = BytesHeld("brute_force", "own_layout", "own_layout");
  EXPECT_EQ(held, pairs_bytes_ + table_bytes_);
  EXPECT_EQ(prepared_, 1);
  // Two layouts are made of one table.
  held = BytesHeld("brute_force", "own_layout", "other_layout");
  EXPECT_EQ(held, pairs_bytes_ + 2 * table_bytes_);
  EXPECT_EQ(prepared_, 3);
  // A layer reads the table too.
  held = BytesHeld("brute_force", "own_layout", "brute_force:take=neighbour_table");
  EXPECT_EQ(held, pairs_bytes_ + 2 * table_bytes_);
}

TEST_F(KeptMapsTest, SharedArraysCountOnce) {
  const std::string tables = "brute_force:emit=neighbour_table";
  int64_t held = BytesHeld(tables, "own_layout:layout=shared", "brute_force:take=neighbour_table");
  EXPECT_EQ(held, table_bytes_);
  held = BytesHeld(tables, "own_layout", "other_layout:layout=shared");
  EXPECT_EQ(held, 2 * table_bytes_);
  held = BytesHeld(tables, "brute_force", "brute_force");
  EXPECT_EQ(held, table_bytes_ + pairs_bytes_);
}

}  // namespace
}  // namespace voxconv
