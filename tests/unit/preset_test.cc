#include "measure/preset.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/session.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "networks/models.h"

namespace voxconv::measure {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

const Registry& BuiltinRegistry() {
  static const Registry* registry = [] {
    auto* filled = new Registry;
    EXPECT_TRUE(RegisterAllPlugins({}, *filled).ok());
    return filled;
  }();
  return *registry;
}

constexpr char kMinimal[] =
    R"({"name": "x", "summary": "s", "source": "p", "mapping": "m", "dataflow": "d"})";

std::string Message(absl::string_view json) {
  return std::string(ParsePreset(json).status().message());
}

TEST(ParsePresetTest, MinimalPresetHasDefaults) {
  const auto preset = ParsePreset(kMinimal);
  ASSERT_TRUE(preset.ok()) << preset.status();
  EXPECT_EQ(preset->name, "x");
  EXPECT_EQ(preset->configuration.choice, (LayerChoice{"m", "d", kDefaultOutputCoords}));
  EXPECT_FALSE(preset->configuration.heuristic.has_value());
  EXPECT_TRUE(preset->configuration.layers.empty());
}

TEST(ParsePresetTest, FullPresetIsReadEntirely) {
  const auto preset = ParsePreset(R"({
    "name": "x", "summary": "s", "source": "p", "mapping": "m",
    "dataflow": "d", "output_coords": "o",
    "planner": {"kind": "heuristic", "threshold": 32, "fetch_on_demand": "f",
                "gather_gemm_scatter": "g"},
    "layers": {"stem.*": {"mapping": "n"}, "head": {"dataflow": "e"}}})");
  ASSERT_TRUE(preset.ok()) << preset.status();
  const Configuration& configuration = preset->configuration;
  EXPECT_EQ(configuration.choice, (LayerChoice{"m", "d", "o"}));
  ASSERT_TRUE(configuration.heuristic.has_value());
  EXPECT_EQ(configuration.heuristic->channel_threshold, 32);
  EXPECT_EQ(configuration.heuristic->fetch_on_demand, "f");
  EXPECT_EQ(configuration.heuristic->gather_gemm_scatter, "g");
  ASSERT_EQ(configuration.layers.size(), 2u);
  EXPECT_EQ(configuration.layers[0].pattern, "stem.*");
  EXPECT_EQ(configuration.layers[0].choice.mapping, "n");
  EXPECT_EQ(configuration.layers[1].choice.dataflow, "e");
}

TEST(ParsePresetTest, MistakesAreNamed) {
  EXPECT_THAT(Message("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(Message("[]"), HasSubstr("the file is []; allowed is an object"));
  EXPECT_THAT(Message(R"({"name": "x"})"), HasSubstr("key 'summary' is missing"));
  EXPECT_THAT(Message(R"({"name": 3})"), HasSubstr("key 'name' is 3"));
  const std::string open = std::string(kMinimal).substr(0, sizeof(kMinimal) - 2);
  EXPECT_THAT(Message(open + R"(, "datafow": "d"})"), HasSubstr("key 'datafow'"));
  EXPECT_THAT(Message(open + R"(, "planner": {"kind": "best"}})"),
              HasSubstr("'planner.kind' is \"best\""));
  EXPECT_THAT(Message(open + R"(, "planner": {"kind": "heuristic", "threshold": -1}})"),
              HasSubstr("'planner.threshold' is -1; allowed"));
  EXPECT_THAT(Message(open + R"(, "layers": {"stem": {"mappping": "m"}}})"),
              HasSubstr("'layers.stem.mappping' is unknown"));
}

TEST(PresetFilesTest, EveryPresetResolvesAndPlansEveryNetwork) {
  const std::vector<std::string> names = ListPresets();
  EXPECT_THAT(names, IsSupersetOf({"fastest_cpu", "hcnn", "luo_lai", "minkowski", "minuet",
                                   "pcengine", "spconv1", "torchsparse"}));
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const auto preset = LoadPreset(name);
    ASSERT_TRUE(preset.ok()) << preset.status();
    const auto configuration = ResolveConfig(name, BuiltinRegistry());
    EXPECT_TRUE(configuration.ok()) << configuration.status();
    if (!configuration.ok()) continue;
    const auto again = Resolve(*configuration, BuiltinRegistry());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(ToJson(*again), ToJson(*configuration)) << "resolving twice changes nothing";
    for (const std::string& model : ModelNames()) {
      const auto graph = MakeModel(model, {});
      ASSERT_TRUE(graph.ok()) << graph.status();
      const auto choices = MakePlanner(*configuration)->Plan(*graph);
      EXPECT_TRUE(choices.ok()) << model << ": " << choices.status();
    }
  }
}

TEST(PresetFilesTest, VariableNamesAFolderThatHidesTheOthers) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "voxconv_presets";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "x.json") << kMinimal;
  std::ofstream(folder / "misnamed.json") << kMinimal;
  setenv("VOXCONV_PRESET_DIR", folder.c_str(), 1);
  EXPECT_THAT(ListPresets(), Contains("x"));
  EXPECT_THAT(ListPresets(), Contains("minuet")) << "the other folders are still there";
  EXPECT_TRUE(LoadPreset("x").ok());
  EXPECT_THAT(LoadPreset("misnamed").status().message(), HasSubstr("must be the file's name"));
  unsetenv("VOXCONV_PRESET_DIR");
  std::filesystem::remove_all(folder);
}

TEST(ResolveConfigTest, SpecsAreWrittenOutInFull) {
  const auto configuration =
      ResolveConfig("hash:variant=std/gather_gemm_scatter", BuiltinRegistry());
  ASSERT_TRUE(configuration.ok()) << configuration.status();
  EXPECT_THAT(configuration->choice.mapping, HasSubstr("hash:variant=std,"));
  EXPECT_THAT(configuration->choice.dataflow, HasSubstr("gather_gemm_scatter:grouping="));
}

TEST(ResolveConfigTest, UnknownWordsAreRefusedWithWhatThereIs) {
  const auto message = [](absl::string_view text) {
    return std::string(ResolveConfig(text, BuiltinRegistry()).status().message());
  };
  EXPECT_THAT(message("minuett"), HasSubstr("preset 'minuett' is unknown; there are fastest_cpu"));
  EXPECT_THAT(message("minuett"), HasSubstr("MAPPING/DATAFLOW"));
  EXPECT_THAT(message("../../etc/passwd"), HasSubstr("MAPPING/DATAFLOW"));
  EXPECT_THAT(message("hash/"), HasSubstr("configuration 'hash/'"));
  EXPECT_THAT(message("no_such/hash2col"), HasSubstr("'no_such/hash2col': mapping 'no_such'"));
  EXPECT_THAT(message("hash:variant=no/hash2col"), HasSubstr("variant"));
  for (const char* text : {"minuett", "a/b/c/d", "no_such/hash2col"}) {
    EXPECT_EQ(message(text).find('\n'), std::string::npos) << "one line";
  }
}

}  // namespace
}  // namespace voxconv::measure
