// SPDX-License-Identifier: Apache-2.0
// The runner, on plugins of the test's own.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "networks_test_util.h"
#include "voxconv/networks/graph_builder.h"

namespace voxconv {
namespace {

using ::testing::HasSubstr;

TEST_F(NetworksTest, MinkUNet42EqualsTheReferenceAndBuildsEachMapOnce) {
  const RunReport report = RunAndCompare(SmallUNet(), Scene(24), Config());
  // Submanifold maps of five levels, strided maps between them, and those transposed.
  EXPECT_EQ(report.indices_built, 5);
  EXPECT_EQ(report.maps_queried, 9);
  EXPECT_EQ(report.maps_transposed, 4);
  EXPECT_EQ(report.maps_converted, 0);
  EXPECT_EQ(Layer(report, "stem.conv1").map_origin, MapOrigin::kQueried);
  EXPECT_EQ(Layer(report, "stem.conv2").map_origin, MapOrigin::kReused);
  EXPECT_EQ(Layer(report, "encoder1.down").map_origin, MapOrigin::kQueried);
  EXPECT_EQ(Layer(report, "decoder4.up").map_origin, MapOrigin::kTransposed);
  EXPECT_EQ(Layer(report, "decoder4.res2.conv2").map_origin, MapOrigin::kReused);
  EXPECT_EQ(Layer(report, "encoder2.res1.shortcut").map_origin, MapOrigin::kNone);
  EXPECT_EQ(Layer(report, "encoder2.res1.shortcut").dataflow, "matmul");
}

TEST_F(NetworksTest, AStridedLayersIndexServesItsNextLayers) {
  const RunReport report = RunAndCompare(SmallUNet(), Scene(16), Config());
  const auto visits = [&](const std::string& name, Stage stage) {
    return Layer(report, name).profile.visits[static_cast<int>(stage)];
  };
  EXPECT_EQ(visits("stem.conv1", Stage::kIndexBuild), 1);
  EXPECT_EQ(visits("encoder1.down", Stage::kIndexBuild), 0);
  EXPECT_EQ(visits("encoder1.down", Stage::kOutputCoords), 1);
  EXPECT_EQ(visits("encoder1.down", Stage::kMapQuery), 1);
  EXPECT_EQ(visits("encoder1.res1.conv1", Stage::kIndexBuild), 1);
  EXPECT_EQ(visits("decoder1.up", Stage::kMapQuery), 0);
  EXPECT_EQ(visits("stem.conv1.bn", Stage::kEpilogue), 1);
  EXPECT_EQ(visits("decoder1.cat", Stage::kDense), 1);
  EXPECT_EQ(visits("head", Stage::kDense), 1);
}

TEST_F(NetworksTest, ReportTellsShapesAndMapSizes) {
  const std::vector<Coordinate> rows = Scene(16);
  const RunReport report = RunAndCompare(SmallUNet(), rows, Config());
  const LayerReport& stem = Layer(report, "stem.conv1");
  EXPECT_EQ(stem.op, "conv");
  EXPECT_EQ(stem.geometry, "submanifold k3");
  EXPECT_EQ(stem.mapping, "brute_force");
  EXPECT_EQ(stem.dataflow, "brute_force");
  EXPECT_EQ(stem.c_in, 4);
  EXPECT_EQ(stem.c_out, 4);
  EXPECT_EQ(stem.n_in, static_cast<int64_t>(rows.size()));
  EXPECT_EQ(stem.n_out, stem.n_in);
  ASSERT_EQ(stem.map_sizes.size(), 27u);
  EXPECT_EQ(stem.map_sizes[13], stem.n_in);
  EXPECT_EQ(stem.map_sizes[0], stem.map_sizes[26]);
  int64_t pairs = 0;
  for (int64_t size : stem.map_sizes) pairs += size;
  EXPECT_EQ(stem.pairs, pairs);
  EXPECT_EQ(stem.profile.counters.true_pairs, pairs);

  const LayerReport& down = Layer(report, "encoder1.down");
  EXPECT_EQ(down.output_coords, "brute_force");
  const LayerReport& up = Layer(report, "decoder4.up");
  EXPECT_EQ(up.geometry, "inverse/quantize k2 s2 t2");
  EXPECT_EQ(up.n_in, down.n_out);
  EXPECT_EQ(up.n_out, down.n_in);
  EXPECT_EQ(up.map_sizes, down.map_sizes);
  EXPECT_EQ(up.mapping, "brute_force");

  double milliseconds = 0;
  for (const LayerReport& layer : report.layers) milliseconds += layer.profile.Total();
  EXPECT_NEAR(report.total.Total(), milliseconds, 1e-6);
  EXPECT_GT(report.parameter_bytes, 0);
  EXPECT_GT(report.peak_map_bytes, 0);
}

TEST_F(NetworksTest, ModelsEqualTheReference) {
  for (const char* name : {"sparseresnet21", "centerpoint"}) {
    SCOPED_TRACE(name);
    NetworkGraph graph = *MakeModel(name, {.width = 0.25});
    InitializeParameters(graph, 5);
    RunAndCompare(graph, Scene(24), Config());
  }
}

// The reference drops the same voxels.
TEST_F(NetworksTest, AGridDropsVoxelsOutside) {
  const auto last_voxels = [&](const std::optional<Box>& grid) {
    NetworkGraph graph = *MakeModel("centerpoint", {.width = 0.25, .grid = grid});
    InitializeParameters(graph, 5);
    return RunAndCompare(graph, Scene(24), Config()).layers.back().n_out;
  };
  EXPECT_LT(last_voxels(Box{{0, 0, 0}, {23, 23, 40}}), last_voxels(std::nullopt));
}

TEST_F(NetworksTest, TheCpuRecordsNoFrames) {
  const NetworkGraph graph = SmallUNet();
  const SparseTensor input = Input(Scene(8), 4);
  RunConfig config = Config();
  auto runner = *NetworkRunner::Create(graph, config, registry_, *backend_);
  absl::Status status = runner->Record(input.view()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("keep_maps is needed"), std::string::npos) << status;
  config.keep_maps = true;
  runner = *NetworkRunner::Create(graph, config, registry_, *backend_);
  status = runner->Record(input.view()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("backend cpu: work is done when it is queued"), std::string::npos)
      << status;
}

TEST_F(NetworksTest, FoldedBatchNormGivesTheSameResult) {
  RunConfig config = Config();
  config.fold_batch_norm = true;
  const RunReport report = RunAndCompare(SmallUNet(), Scene(16), config);
  for (const LayerReport& layer : report.layers) EXPECT_NE(layer.op, "batch_norm");
  EXPECT_EQ(Layer(report, "stem.conv1").profile.visits[static_cast<int>(Stage::kEpilogue)], 1);
}

TEST_F(NetworksTest, FusedTailsGiveTheSameResult) {
  for (bool fold : {false, true}) {
    for (const char* name : {"minkunet42", "sparseresnet21"}) {
      SCOPED_TRACE(absl::StrCat(name, fold ? " folded" : ""));
      NetworkGraph graph = *MakeModel(name, {.width = 0.25});
      InitializeParameters(graph, 5);
      RunConfig config = Config(kFused);
      config.fold_batch_norm = fold;
      const RunReport report = RunAndCompare(graph, Scene(16), config);
      int fused = 0;
      for (const LayerReport& layer : report.layers) {
        EXPECT_TRUE(layer.op != "add" || !layer.fused_into.empty()) << layer.name;
        if (layer.fused_into.empty()) continue;
        ++fused;
        EXPECT_EQ(layer.profile.Total(), 0.0) << layer.name;
        EXPECT_EQ(layer.n_out, Layer(report, layer.fused_into).n_out);
      }
      EXPECT_GT(fused, 0);
    }
  }
}

// Also of layers that would be fused into another, or whose tensor a later layer would take over.
TEST_F(NetworksTest, AnyLayersFeaturesAreKept) {
  const NetworkGraph graph = SmallUNet();
  const std::vector<Coordinate> rows = Scene(12);
  const std::vector<float> features = Features(static_cast<int64_t>(rows.size()) * 4);
  std::map<std::string, std::vector<double>> expected;
  ASSERT_TRUE(RunReferenceNetwork(graph, rows, features,
                                  [&](const ReferenceLayer& layer, std::vector<double>& output) {
                                    expected[graph.node(layer.node).name] = output;
                                  })
                  .ok());
  std::vector<std::vector<std::string>> asked(1);
  for (const auto& [name, values] : expected) {
    asked[0].push_back(name);  // all at once
    asked.push_back({name});   // and one by one, where the others may be fused
    if (asked.size() > 8) break;
  }
  asked.push_back({"head", "stem.conv1"});
  const SparseTensor input = Input(rows, 4);
  for (const LayerChoice& choice : {kBruteForce, kFused, kStrided}) {
    for (const std::vector<std::string>& layers : asked) {
      RunConfig config = Config(choice);
      config.keep_layers = layers;
      config.profile_stages = false;
      auto runner = NetworkRunner::Create(graph, config, registry_, *backend_);
      ASSERT_TRUE(runner.ok()) << runner.status();
      const auto result = (*runner)->Run(input.view());
      ASSERT_TRUE(result.ok()) << result.status();
      for (const std::string& name : layers) {
        const SparseTensor& kept = name == "head" ? result->output : result->kept.at(name);
        EXPECT_LT(reference::RelativeError(*kept.features().ToHost(context_), expected.at(name)),
                  1e-5)
            << name;
      }
    }
  }
}

TEST_F(NetworksTest, AnUnknownLayerToKeepIsRefused) {
  RunConfig config = Config();
  config.keep_layers = {"stem.conv9"};
  const absl::Status status =
      NetworkRunner::Create(SmallUNet(), config, registry_, *backend_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(),
            "layer 'stem.conv9': minkunet42 has none of this name; its last is 'head'");
}

TEST_F(NetworksTest, ReportSaysWhatWasFusedIntoWhat) {
  RunConfig config = Config(kFused);
  const RunReport report = RunAndCompare(SmallUNet(), Scene(12), config);
  EXPECT_EQ(Layer(report, "stem.conv1").fused_into, "");
  EXPECT_EQ(Layer(report, "stem.conv1.bn").fused_into, "stem.conv1");
  EXPECT_EQ(Layer(report, "encoder1.res1.add").fused_into, "encoder1.res1.conv2");
  // A shortcut's batch norm runs by itself, ahead of the convolution that adds it.
  EXPECT_EQ(Layer(report, "encoder2.res1.shortcut").fused_into, "");
  EXPECT_EQ(Layer(report, "encoder2.res1.shortcut.bn").fused_into, "");
  EXPECT_EQ(Layer(report, "encoder2.res1.add").fused_into, "encoder2.res1.conv2");
  // Folded, nothing but products and concatenations is left to run.
  config.fold_batch_norm = true;
  const RunReport folded = RunAndCompare(SmallUNet(), Scene(12), config);
  EXPECT_EQ(folded.total.visits[static_cast<int>(Stage::kEpilogue)], 0);
}

TEST_F(NetworksTest, TailsEndWhereOthersReadOrTheNetworkEnds) {
  GraphBuilder b("tails");
  const int x = b.Conv("x", b.Input(4), 4, {.bias = true, .relu = true});  // read twice
  const int y = b.Conv("y", x, 4, {.bias = true});
  const int sum = b.Add("sum", x, y, false);
  const int twice = b.Add("twice", sum, sum, false);
  const int pointwise = b.Conv("pointwise", twice, 4, {.kernel = {1, 1, 1}, .bias = true});
  const int z = b.Conv("z", twice, 4, {.bias = true});
  const int late = b.Add("late", pointwise, z, false);
  const int end = b.Relu("end", b.BatchNorm("bn", late, false));
  NetworkGraph graph = *std::move(b).Build(end);
  InitializeParameters(graph, 3);
  const RunReport report = RunAndCompare(graph, Scene(12), Config(kFused));
  EXPECT_EQ(Layer(report, "sum").fused_into, "y");
  EXPECT_EQ(Layer(report, "twice").fused_into, "");
  EXPECT_EQ(Layer(report, "late").fused_into, "z");
  EXPECT_EQ(Layer(report, "bn").fused_into, "");
}

TEST_F(NetworksTest, UnprofiledRunsReportNoLayers) {
  RunConfig config = Config();
  config.keep_maps = true;
  auto runner = *NetworkRunner::Create(SmallUNet(), config, registry_, *backend_);
  const SparseTensor input = Input(Scene(12), 4);
  const RunResult profiled = *runner->Run(input.view());
  runner->set_profile_stages(false);
  const RunResult bare = *runner->Run(input.view());
  EXPECT_TRUE(bare.report.layers.empty());
  EXPECT_EQ(bare.report.total.Total(), 0.0);
  EXPECT_EQ(bare.report.peak_feature_bytes, profiled.report.peak_feature_bytes);
  EXPECT_EQ(*bare.output.features().ToHost(context_), *profiled.output.features().ToHost(context_));
}

TEST_F(NetworksTest, TensorsAreFreedAfterTheirLastConsumer) {
  // A chain of 20 layers never holds more than one layer's input and output.
  GraphBuilder b("chain");
  int x = b.Input(16);
  for (int i = 0; i < 20; ++i) x = b.ConvBlock(absl::StrCat("conv", i), x, 16, {});
  NetworkGraph graph = *std::move(b).Build(x);
  InitializeParameters(graph, 1);
  auto runner = *NetworkRunner::Create(graph, Config(), registry_, *backend_);
  const SparseTensor input = Input(Scene(24), 16);
  const int64_t before = backend_->BytesInUse();
  backend_->ResetPeak();
  {
    const RunResult result = *runner->Run(input.view());
    const int64_t tensor = input.features().view().bytes();
    EXPECT_EQ(result.report.peak_feature_bytes, 2 * tensor);
    EXPECT_LE(backend_->PeakBytes() - before, 2 * tensor + result.report.peak_map_bytes);
    EXPECT_EQ(backend_->BytesInUse() - before, tensor);  // the result, and no map
  }
  EXPECT_EQ(backend_->BytesInUse(), before);
}

TEST_F(NetworksTest, PoolingAndItsInverseEqualTheReference) {
  for (PoolMode mode :
       {PoolMode::kMax, PoolMode::kSum, PoolMode::kAverage, PoolMode::kAveragePresent}) {
    for (const Int3& kernel : {Int3{2, 2, 2}, Int3{3, 3, 1}}) {
      SCOPED_TRACE(absl::StrCat(ToString(mode), " ", ToString(kernel)));
      GraphBuilder b("pools");
      const int x = b.Conv("conv", b.Input(3), 6, {.bias = true});
      const int pool = b.Pool("pool", x, {.mode = mode, .kernel = kernel});
      const int coarse = b.Conv("coarse", pool, 6, {.relu = true});
      const int fine = b.Unpool("unpool", coarse, pool);
      const int relu = b.Relu("relu", b.Add("sum", x, fine, false));
      NetworkGraph graph = *std::move(b).Build(relu);
      InitializeParameters(graph, 2);
      const RunReport report = RunAndCompare(graph, Scene(16), Config());
      EXPECT_EQ(Layer(report, "unpool").map_origin, MapOrigin::kReused);
      EXPECT_EQ(Layer(report, "pool").mapping, "brute_force");
    }
  }
}

TEST_F(NetworksTest, AMapIsSharedByPoolingAndConvolution) {
  GraphBuilder b("shared");
  const int x = b.Input(3);
  const int pool = b.Pool("pool", x, {});
  const int conv =
      b.Conv("conv", x, 3, {.kind = ConvKind::kStrided, .kernel = {2, 2, 2}, .stride = {2, 2, 2}});
  const int cat = b.Concat("cat", pool, conv);
  NetworkGraph graph = *std::move(b).Build(cat);
  InitializeParameters(graph, 2);
  const RunReport report = RunAndCompare(graph, Scene(12), Config());
  EXPECT_EQ(report.maps_queried, 1);
  EXPECT_EQ(report.total.visits[static_cast<int>(Stage::kOutputCoords)], 1);
}

// Samples in turn: no row has its neighbours beside it.
TEST_F(NetworksTest, RowsInAnyOrderEqualTheReference) {
  std::vector<Coordinate> rows = Scene(12);
  std::shuffle(rows.begin(), rows.end(), std::mt19937(3));
  RunAndCompare(SmallUNet(), rows, Config());
  GraphBuilder b("classifier");
  int x = b.ConvBlock("conv", b.Input(3), 8, {});
  x = b.Linear("classes", b.GlobalPool("global", x, PoolMode::kAveragePresent), 4);
  NetworkGraph graph = *std::move(b).Build(x);
  InitializeParameters(graph, 2);
  RunAndCompare(graph, rows, Config());
}

// Results have the rows of the caller, kept layers too. What is kept for the caller's set is found
// again by it, and rows that are sorted are not moved.
TEST_F(NetworksTest, ReorderedInputsGiveResultsInTheCallersOrder) {
  std::vector<Coordinate> rows = Scene(12);
  RunConfig config = Config();
  config.reorder_input = true;
  RunAndCompare(SmallUNet(), rows, config);
  std::shuffle(rows.begin(), rows.end(), std::mt19937(3));
  RunAndCompare(SmallUNet(), rows, config);

  config.keep_maps = true;
  config.keep_layers = {"stem.conv2", "encoder1.down"};
  RunConfig plain = config;
  plain.reorder_input = false;
  const auto runner = *NetworkRunner::Create(SmallUNet(), config, registry_, *backend_);
  const auto expected_of = *NetworkRunner::Create(SmallUNet(), plain, registry_, *backend_);
  const SparseTensor input = Input(rows, 4);
  const RunResult first = *runner->Run(input.view());
  const RunResult again = *runner->Run(input.view());
  const RunResult expected = *expected_of->Run(input.view());
  EXPECT_EQ(again.report.maps_queried, 0);
  EXPECT_EQ(again.report.indices_built, 0);
  const auto expect_same = [&](const SparseTensor& actual, const SparseTensor& wanted) {
    EXPECT_EQ(*CopyToHost(actual.coordinates()->rows(), context_),
              *CopyToHost(wanted.coordinates()->rows(), context_));
    EXPECT_LT(reference::RelativeError(*actual.features().ToHost(context_),
                                       *wanted.features().ToHost(context_)),
              1e-5);
  };
  for (const RunResult* result : {&first, &again}) {
    expect_same(result->output, expected.output);
    expect_same(result->kept.at("stem.conv2"), expected.kept.at("stem.conv2"));
    expect_same(result->kept.at("encoder1.down"), expected.kept.at("encoder1.down"));
  }
  EXPECT_EQ(first.output.coordinates()->id(), input.coordinates()->id());
}

TEST_F(NetworksTest, GlobalPoolingAndClassifierEqualTheReference) {
  for (PoolMode mode : {PoolMode::kMax, PoolMode::kSum, PoolMode::kAveragePresent}) {
    GraphBuilder b("classifier");
    int x = b.ConvBlock("conv", b.Input(3), 8, {});
    x = b.Linear("hidden", b.GlobalPool("global", x, mode), 6, /*relu=*/true);
    const int classes = b.Linear("classes", x, 4);
    NetworkGraph graph = *std::move(b).Build(classes);
    InitializeParameters(graph, 2);
    RunAndCompare(graph, Scene(12), Config());
  }
}

// The last of three samples lies outside of the outputs' bounds.
TEST_F(NetworksTest, GlobalPoolingKeepsSamplesThatLostAllVoxels) {
  GraphBuilder b("bounded");
  int x = b.Conv("down", b.Input(3), 4,
                 {.kind = ConvKind::kStrided,
                  .rule = OutputRule::kDilate,
                  .stride = {2, 2, 2},
                  .output_bounds = Box{{-8, -8, -8}, {8, 8, 8}}});
  x = b.Linear("classes", b.GlobalPool("global", x, PoolMode::kSum), 4);
  NetworkGraph graph = *std::move(b).Build(x);
  InitializeParameters(graph, 2);
  const std::vector<Coordinate> rows = {{0, 1, 2, 3}, {1, 0, 0, 0}, {2, 99, 99, 99}};
  RunAndCompare(graph, rows, Config());
  auto runner = *NetworkRunner::Create(graph, Config(), registry_, *backend_);
  const auto result = runner->Run(Input(rows, 3).view());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->output.features().rows(), 3);
}

TEST_F(NetworksTest, GenerativeAndAnisotropicLayersEqualTheReference) {
  GraphBuilder b("generative");
  int x = b.Input(3, {2, 2, 4});
  x = b.Conv("grow", x, 4,
             {.kind = ConvKind::kTransposed, .kernel = {2, 3, 2}, .stride = {2, 1, 2}});
  x = b.Conv("wide", x, 4, {.kernel = {3, 1, 5}, .dilation = {2, 1, 1}});
  NetworkGraph graph = *std::move(b).Build(x);
  InitializeParameters(graph, 2);
  RunAndCompare(graph, Scene(10, {2, 2, 4}), Config());
}

TEST_F(NetworksTest, EmptyCloudsAndSingleVoxelsRun) {
  const NetworkGraph graph = SmallUNet();
  RunAndCompare(graph, {{0, 1, 2, 3}}, Config());
  RunAndCompare(graph, {{5, -1, -2, -3}}, Config());  // samples 0..4 are empty
  auto runner = *NetworkRunner::Create(graph, Config(), registry_, *backend_);
  const SparseTensor none = Input({}, 4);
  const auto result = runner->Run(none.view());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->output.features().rows(), 0);
  EXPECT_EQ(result->output.features().channels(), 5);
}

TEST_F(NetworksTest, ActivationsStayBoundedOver42Layers) {
  NetworkGraph graph = *MakeMinkUNet42(0.5, 4, 0);
  InitializeParameters(graph, 1);
  auto runner = *NetworkRunner::Create(graph, Config(), registry_, *backend_);
  const SparseTensor input = Input(Scene(12), 4);
  const std::vector<float> y = *runner->Run(input.view())->output.features().ToHost(context_);
  double squares = 0;
  for (float value : y) squares += double{value} * value;
  const double rms = std::sqrt(squares / y.size());
  RecordProperty("rms", std::to_string(rms));
  EXPECT_GT(rms, 0.05);
  EXPECT_LT(rms, 100.0);
}

TEST_F(NetworksTest, RefusesWhatDoesNotFit) {
  const NetworkGraph graph = SmallUNet();
  const auto create_error = [&](const NetworkGraph& g, const RunConfig& config) {
    return std::string(NetworkRunner::Create(g, config, registry_, *backend_).status().message());
  };
  EXPECT_THAT(create_error(graph, {}), HasSubstr("planner: none is given"));
  EXPECT_THAT(create_error(*MakeMinkUNet42(0.125, 4, 5), Config()),
              HasSubstr("parameter 'stem.conv1.weight' has no values"));
  EXPECT_THAT(create_error(graph, Config({"nothing", "brute_force", "brute_force"})),
              HasSubstr("layer 'stem.conv1': "));
  EXPECT_THAT(create_error(graph, Config({"brute_force", "brute_force:take=5", "brute_force"})),
              HasSubstr("take"));
  RunConfig half = Config();
  half.precision = Precision::kF16;
  EXPECT_THAT(create_error(graph, half), HasSubstr("not f16"));

  GraphBuilder b("wide");
  const int conv = b.Conv("conv", b.Input(5000), 1, {.kernel = {1, 1, 3}});
  NetworkGraph wide = *std::move(b).Build(conv);
  InitializeParameters(wide, 1);
  EXPECT_EQ(create_error(wide, Config()),
            "layer 'conv': dataflow 'brute_force': more than 4096 input channels");
}

// A network without a plugin that could refuse.
TEST_F(NetworksTest, DenseLayersInHostMemoryTakeF32Only) {
  GraphBuilder b("dense");
  const int linear = b.Linear("linear", b.Input(4), 2);
  NetworkGraph graph = *std::move(b).Build(linear);
  InitializeParameters(graph, 1);
  RunConfig config = Config();
  for (const Precision precision : {Precision::kTf32, Precision::kF16, Precision::kBF16}) {
    config.precision = precision;
    EXPECT_EQ(NetworkRunner::Create(graph, config, registry_, *backend_).status().message(),
              absl::StrCat("precision ", ToString(precision),
                           ": dense operators in host memory take f32 only"));
  }
}

TEST_F(NetworksTest, RefusesInputsThatDoNotFit) {
  auto runner = *NetworkRunner::Create(SmallUNet(), Config(), registry_, *backend_);
  const auto error = [&](const SparseTensorView& input) {
    return std::string(runner->Run(input).status().message());
  };
  const SparseTensor good = Input({{0, 0, 0, 0}}, 4);
  EXPECT_EQ(error(good.view()), "");
  EXPECT_EQ(error({nullptr, good.features().view()}), "coordinates: none are given");
  EXPECT_THAT(error(Input({{0, 0, 0, 0}}, 3).view()),
              HasSubstr("features: shape [1, 3]; minkunet42 takes [1, 4]"));
  EXPECT_THAT(error(Input({{0, 0, 0, 0}}, 4, {2, 2, 2}).view()),
              HasSubstr("coordinates: tensor stride 2; minkunet42 takes 1"));
  SparseTensorView bad = good.view();
  bad.features.dtype = DType::kF16;
  EXPECT_EQ(error(bad), "features: dtype f16; the network takes f32");
  bad = good.view();
  bad.features.device = {MemorySpace::kDevice, 1};
  EXPECT_EQ(error(bad), "features: it lies in device 1; the backend takes host memory");
}

TEST_F(NetworksTest, RunningOutOfMemoryNamesTheLayerAndLeavesTheRunnerUsable) {
  backend_ = *CpuBackend::Create({.threads = 1, .memory_limit = 2 << 20});
  context_ = {backend_.get(), &backend_->main_stream(), nullptr};
  NetworkGraph graph = *MakeMinkUNet42(0.125, 4, 5);
  InitializeParameters(graph, 11);
  auto runner = NetworkRunner::Create(graph, Config(), registry_, *backend_);
  ASSERT_TRUE(runner.ok()) << runner.status();
  {
    const SparseTensor input = Input(Scene(64), 4);
    const auto result = (*runner)->Run(input.view());
    EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(result.status().message(), HasSubstr("layer 'stem."));
    EXPECT_THAT(result.status().message(), HasSubstr("out of memory"));
  }
  const SparseTensor small = Input({{0, 0, 0, 0}}, 4);
  EXPECT_TRUE((*runner)->Run(small.view()).ok());
}

}  // namespace
}  // namespace voxconv
