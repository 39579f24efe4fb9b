// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/preset.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/cli/session.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/networks/models.h"

namespace voxconv::measure {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;

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
  EXPECT_EQ(preset->configuration.choice, (LayerChoice{"m", "d", ""}));
  EXPECT_FALSE(preset->configuration.heuristic.has_value());
  EXPECT_TRUE(preset->configuration.layers.empty());
}

TEST(ParsePresetTest, FullPresetIsReadEntirely) {
  const auto preset = ParsePreset(R"({
    "name": "x", "summary": "s", "source": "p", "mapping": "m",
    "dataflow": "d", "output_coords": "o",
    "planner": {"kind": "heuristic", "threshold": 32, "narrow": "f", "wide": "g"},
    "layers": {"stem.*": {"mapping": "n"}, "head": {"dataflow": "e"}}})");
  ASSERT_TRUE(preset.ok()) << preset.status();
  const Configuration& configuration = preset->configuration;
  EXPECT_EQ(configuration.choice, (LayerChoice{"m", "d", "o"}));
  ASSERT_TRUE(configuration.heuristic.has_value());
  EXPECT_EQ(configuration.heuristic->channel_threshold, 32);
  EXPECT_EQ(configuration.heuristic->narrow, "f");
  EXPECT_EQ(configuration.heuristic->wide, "g");
  ASSERT_EQ(configuration.layers.size(), 2u);
  EXPECT_EQ(configuration.layers[0].pattern, "stem.*");
  EXPECT_EQ(configuration.layers[0].choice.mapping, "n");
  EXPECT_EQ(configuration.layers[1].choice.dataflow, "e");
}

TEST(ParsePresetTest, TellsWhatIsTakenAndWhatIsNot) {
  const std::string open = std::string(kMinimal).substr(0, sizeof(kMinimal) - 2);
  const auto preset = ParsePreset(
      open + R"(, "choices": {"mapping": "Section 3"}, "departs": ["It sorts twice."]})");
  ASSERT_TRUE(preset.ok()) << preset.status();
  EXPECT_THAT(preset->choices, ElementsAre(Pair("mapping", "Section 3")));
  EXPECT_THAT(preset->departs, ElementsAre("It sorts twice."));
  EXPECT_THAT(Message(open + R"(, "choices": {"mapping": 3}})"),
              HasSubstr("'choices.mapping' is 3"));
  EXPECT_THAT(Message(open + R"(, "departs": "It sorts."})"), HasSubstr("'departs' is"));
}

// Users of a preset of an engine learn where it is not the engine.
TEST(PresetFilesTest, EnginesTellWhereTheyDepart) {
  for (const std::string name : {"hcnn", "luo_lai", "minkowski", "minuet", "pcengine", "spconv1",
                                 "spconv2", "torchsparse"}) {
    const auto preset = LoadPreset(name);
    ASSERT_TRUE(preset.ok()) << preset.status();
    EXPECT_FALSE(preset->departs.empty()) << name;
  }
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
  const auto defaults = LoadDefaults();
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_THAT(configuration->choice.output_coords, StartsWith(defaults->output_coords));
}

constexpr char kChoice[] = R"({"mapping": "m", "dataflow": "d", "output_coords": "o"})";

std::string DefaultsText() {
  return absl::StrReplaceAll(
      R"({"layers": {"cpu": @}, "single_layer": @, "output_coords": "o", "trusted": @,
          "baseline": {"mapping": "b", "dataflow": "e"},
          "heuristic": {"narrow": "n", "wide": "w"}})",
      {{"@", kChoice}});
}

TEST(DefaultsTest, EveryRoleIsRead) {
  const auto defaults = ParseDefaults(DefaultsText());
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  const LayerChoice choice{"m", "d", "o"};
  EXPECT_EQ(defaults->LayersOn(BackendKind::kCpu).value(), choice);
  EXPECT_EQ(defaults->single_layer, choice);
  EXPECT_EQ(defaults->trusted, choice);
  EXPECT_EQ(defaults->output_coords, "o");
  EXPECT_EQ(defaults->baseline_mapping, "b");
  EXPECT_EQ(defaults->baseline_dataflow, "e");
  EXPECT_EQ(defaults->narrow, "n");
  EXPECT_EQ(defaults->wide, "w");
  EXPECT_THAT(std::string(defaults->LayersOn(BackendKind::kCuda).status().message()),
              HasSubstr("'layers' has no entry for the backend cuda"));
}

TEST(DefaultsTest, MistakesAreNamed) {
  for (const auto& [from, to, word] : std::vector<std::array<std::string, 3>>{
           {"\"cpu\"", "\"tpu\"", "'layers.tpu' is unknown"},
           {"\"narrow\": \"n\", ", "", "'heuristic.narrow' is missing"},
           {"\"b\"", "3", "'baseline.mapping' is 3"},
           {"\"trusted\"", "\"trust\"", "'trust' is unknown"}}) {
    const auto defaults = ParseDefaults(absl::StrReplaceAll(DefaultsText(), {{from, to}}));
    EXPECT_THAT(std::string(defaults.status().message()), HasSubstr(word)) << to;
  }
}

TEST(DefaultsTest, TheFileNamesPluginsThatThereAre) {
  const auto defaults = LoadDefaults();
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  const Registry& registry = BuiltinRegistry();
  const auto check = [&](const LayerChoice& choice) {
    EXPECT_TRUE(registry.mappings().Canonical(choice.mapping).ok()) << choice.mapping;
    EXPECT_TRUE(registry.dataflows().Canonical(choice.dataflow).ok()) << choice.dataflow;
    EXPECT_TRUE(registry.output_coords().Canonical(choice.output_coords).ok())
        << choice.output_coords;
  };
  for (const BackendKind backend : {BackendKind::kCpu, BackendKind::kCuda}) {
    const auto layers = defaults->LayersOn(backend);
    ASSERT_TRUE(layers.ok()) << layers.status();
    check(*layers);
  }
  check(defaults->single_layer);
  check(defaults->trusted);
  check({defaults->baseline_mapping, defaults->baseline_dataflow, defaults->output_coords});
  check({defaults->baseline_mapping, defaults->narrow, defaults->output_coords});
  check({defaults->baseline_mapping, defaults->wide, defaults->output_coords});
}

TEST(DefaultsTest, AFolderOfPresetsMayHaveItsOwn) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "voxconv_defaults";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "defaults.json") << DefaultsText();
  setenv("VOXCONV_PRESET_DIR", folder.c_str(), 1);
  const auto own = LoadDefaults();
  std::ofstream(folder / "defaults.json") << "{";
  const auto broken = LoadDefaults();
  EXPECT_THAT(ListPresets(), Not(Contains("defaults")));
  unsetenv("VOXCONV_PRESET_DIR");
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->baseline_mapping, "b");
  EXPECT_THAT(std::string(broken.status().message()), HasSubstr("defaults.json: "));
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
