// SPDX-License-Identifier: Apache-2.0
// Experiment files: what they may say, and the one line that tells what is wrong.
#include "voxconv/experiments/runner/definition.h"

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/cli/session.h"
#include "voxconv/experiments/runner/cells.h"
#include "voxconv/experiments/runner/runner.h"
#include "voxconv/io/file_bytes.h"

namespace voxconv::experiment {
namespace {

using measure::Json;
using ::testing::AllOf;
using ::testing::HasSubstr;

Json Valid() {
  return Json::parse(R"({
    "name": "test", "title": "a test", "kind": "layer",
    "inputs": ["scene:uniform?n=100&box=8", "scene:uniform?n=200&box=8"],
    "layers": [{"kernel": 3, "channels": [[4, 8], [8, 8]]}],
    "configurations": [
      {"name": "reference", "spec": "hash/direct"},
      {"name": "tile {tile}", "spec": "hash/implicit_gemm:tile={tile}", "for": {"tile": [2, 4]}}
    ],
    "baseline": "reference"
  })");
}

std::string ErrorOf(const Json& json) {
  const auto definition = ParseDefinition(json.dump());
  return definition.ok() ? "" : std::string(definition.status().message());
}

TEST(DefinitionTest, EveryFileThatIsShippedIsValid) {
  const auto names = ListDefinitions();
  EXPECT_GE(names.size(), 30u);
  for (const std::string& name : names) {
    const auto definition = LoadDefinition(name);
    EXPECT_TRUE(definition.ok()) << definition.status();
  }
}

TEST(DefinitionTest, ConfigurationsOfShippedFilesExist) {
  Registry registry;
  ASSERT_TRUE(RegisterAllPlugins({}, registry).ok());
  for (const std::string& name : ListDefinitions()) {
    if (name == "own") continue;  // needs a plugin that is loaded
    const auto definition = LoadDefinition(name);
    ASSERT_TRUE(definition.ok()) << definition.status();
    for (const ConfigurationItem& item : definition->configurations) {
      if (PlanPathOf(item).has_value()) continue;  // a user's
      const auto resolved = ResolveItem(item, definition->kind, registry);
      EXPECT_TRUE(resolved.ok()) << name << ": " << resolved.status();
    }
  }
}

TEST(DefinitionTest, ForMakesAConfigurationOfEachValue) {
  const auto definition = ParseDefinition(Valid().dump());
  ASSERT_TRUE(definition.ok()) << definition.status();
  ASSERT_EQ(definition->configurations.size(), 3u);
  const ConfigurationItem& last = definition->configurations.back();
  EXPECT_EQ(last.name, "tile 4");
  EXPECT_EQ(last.spec, "hash/implicit_gemm:tile=4");
  EXPECT_EQ(last.params, Json({{"tile", 4}}));
  EXPECT_EQ(last.against, std::vector<std::string>{"reference"});
}

TEST(DefinitionTest, CellsAreAllCombinations) {
  const auto definition = ParseDefinition(Valid().dump());
  ASSERT_TRUE(definition.ok()) << definition.status();
  EXPECT_EQ(ExpandCells(*definition, {}).size(), 2u * 2u * 2u);
  const std::vector<InputSource> given = {{.name = "mine", .input = "mine.bin"}};
  EXPECT_EQ(ExpandCells(*definition, {.given = given}).size(), 2u * 2u);
  EXPECT_EQ(ExpandCells(*definition, {.quick = true}).size(), 2u);
}

TEST(DefinitionTest, OrdersOfRowsAreAnAxisAndTellCellsApart) {
  Json json = Valid();
  json["orders"] = {"scan", "sorted"};
  const auto definition = ParseDefinition(json.dump());
  ASSERT_TRUE(definition.ok()) << definition.status();
  const std::vector<Cell> cells = ExpandCells(*definition, {});
  EXPECT_EQ(cells.size(), 2u * 2u * 2u * 2u);
  EXPECT_EQ(CheckDistinct(cells), absl::OkStatus());
  EXPECT_EQ(AskedJson(cells.front())["order"], "scan");
  EXPECT_EQ(cells.front().input.name, "scene:uniform?n=100&box=8");
  EXPECT_EQ(AskedJson(cells.back())["order"], "sorted");
  EXPECT_EQ(cells.back().input.name, "scene:uniform?n=200&box=8 sorted");
  EXPECT_EQ(ExpandCells(*definition, {.quick = true}).size(), 2u);
}

TEST(DefinitionTest, AnInputMayHaveItsOwnOrder) {
  Json json = Valid();
  EXPECT_EQ(AskedJson(ExpandCells(*ParseDefinition(json.dump()), {})[0])["order"], "scan");
  json["inputs"] = Json::parse(R"([{"input": "a.bin"}, {"input": "a.bin", "order": "morton"}])");
  const auto definition = ParseDefinition(json.dump());
  ASSERT_TRUE(definition.ok()) << definition.status();
  const std::vector<Cell> cells = ExpandCells(*definition, {});
  EXPECT_EQ(CheckDistinct(cells), absl::OkStatus());
  EXPECT_EQ(AskedJson(cells.back())["order"], "morton");
  EXPECT_EQ(cells.back().input.name, "a.bin morton");
  json["orders"] = {"sorted", "shuffled"};  // of the other input
  EXPECT_EQ(ExpandCells(*ParseDefinition(json.dump()), {}).size(), 3u * 2u * 2u);
}

TEST(DefinitionTest, BatchesAndDataSetsAreAsked) {
  Json json = Valid();
  json["inputs"] = Json::parse(
      R"([{"input": "a.bin", "data": "KITTI"}, {"input": "a.bin", "name": "two", "batch": ["b.bin"]}])");
  const auto definition = ParseDefinition(json.dump());
  ASSERT_TRUE(definition.ok()) << definition.status();
  const std::vector<Cell> cells = ExpandCells(*definition, {});
  EXPECT_EQ(AskedJson(cells.front())["data"], "KITTI");
  EXPECT_FALSE(AskedJson(cells.front()).contains("batch"));
  EXPECT_EQ(AskedJson(cells.back())["batch"], Json({"b.bin"}));
  EXPECT_FALSE(AskedJson(cells.back()).contains("data"));
}

TEST(DefinitionTest, PlansAreSidesOfNetworks) {
  Json json = Valid();
  json.erase("layers");
  json["kind"] = "network";
  json["networks"] = {"minkunet42"};
  json["configurations"][1] = {{"name", "tuned"}, {"spec", "plan:plans/a.json"}};
  const auto definition = ParseDefinition(json.dump());
  ASSERT_TRUE(definition.ok()) << definition.status();
  EXPECT_EQ(PlanPathOf(definition->configurations[1]), "plans/a.json");
  EXPECT_EQ(PlanPathOf(definition->configurations[0]), std::nullopt);
}

// The lists for --inputs.
TEST(DefinitionTest, ShippedInputsAreRead) {
  for (const auto& entry : std::filesystem::directory_iterator(VOXCONV_TEST_INPUTS)) {
    const auto text = ReadFileBytes(entry.path().string());
    ASSERT_TRUE(text.ok()) << text.status();
    const auto inputs = ParseInputs(*text);
    ASSERT_TRUE(inputs.ok()) << entry.path() << ": " << inputs.status();
    std::set<std::string> names;
    for (const InputSource& input : *inputs) {
      EXPECT_FALSE(input.data.empty()) << input.name;
      EXPECT_TRUE(names.insert(input.name).second) << input.name;
    }
  }
}

TEST(DefinitionTest, LabelsSayAllThatIsNotAsUsual) {
  Json json = Valid();
  const auto label = [&](const char* layer) {
    json["layers"] = Json::array({Json::parse(layer)});
    json["layers"][0]["channels"] = {{4, 8}};
    const auto definition = ParseDefinition(json.dump());
    EXPECT_TRUE(definition.ok()) << definition.status();
    return definition.ok() ? definition->works[0].label : "";
  };
  EXPECT_EQ(label(R"({"kernel": 3})"), "submanifold k3 4->8");
  EXPECT_EQ(label(R"({"kernel": [3, 1, 1], "dilation": 2})"), "submanifold k3x1x1 d2 4->8");
  EXPECT_EQ(label(R"({"kind": "strided", "kernel": 2, "stride": 2})"), "strided k2 s2 4->8");
  EXPECT_EQ(label(R"({"kind": "inverse", "kernel": 2, "stride": 2})"), "inverse k2 s2 4->8");
  EXPECT_EQ(label(R"({"kind": "strided", "kernel": 3, "stride": [2, 2, 1], "rule": "dilate",
                      "padding": 1})"),
            "strided k3 s2x2x1 dilate p1 4->8");
}

TEST(DefinitionTest, CellsThatAReportCouldNotTellApartAreRefused) {
  Json json = Valid();
  json["inputs"] =
      Json::parse(R"([{"input": "a.bin", "name": "x"}, {"input": "b.bin", "name": "x"}])");
  const auto definition = ParseDefinition(json.dump());
  ASSERT_TRUE(definition.ok()) << definition.status();
  EXPECT_THAT(std::string(CheckDistinct(ExpandCells(*definition, {})).message()),
              AllOf(HasSubstr("'a.bin' and 'b.bin'"), HasSubstr("names that differ")));
  EXPECT_EQ(CheckDistinct(ExpandCells(*ParseDefinition(Valid().dump()), {})), absl::OkStatus());
}

TEST(DefinitionTest, FilesOfResultsHaveNamesThatDiffer) {
  EXPECT_EQ(ResultPath("d", "minuet/fig16"), "d/minuet-fig16.jsonl");
  EXPECT_EQ(ResultPath("d", "minuet-fig16"), "d/minuet%2Dfig16.jsonl");
  EXPECT_EQ(ResultPath("d", "a%2Db"), "d/a%252Db.jsonl");
  EXPECT_EQ(ResultPath("d", "../x"), "d/%2E.-x.jsonl");
}

TEST(DefinitionTest, OnlyTheBackendsThatAreNamed) {
  Json json = Valid();
  json["configurations"][1]["backends"] = {"cuda"};
  const auto definition = ParseDefinition(json.dump());
  ASSERT_TRUE(definition.ok()) << definition.status();
  EXPECT_TRUE(ExpandCells(*definition, {.backend = BackendKind::kCpu}).empty());
  EXPECT_FALSE(ExpandCells(*definition, {.backend = BackendKind::kCuda}).empty());
}

struct WrongFile {
  const char* path;     // JSON pointer
  const char* value;    // put there
  const char* says;     // which key
  const char* allowed;  // and what is allowed
};

class WrongFileTest : public ::testing::TestWithParam<WrongFile> {};

TEST_P(WrongFileTest, TheKeyItsValueAndWhatIsAllowedAreNamed) {
  Json json = Valid();
  json[Json::json_pointer(GetParam().path)] = Json::parse(GetParam().value);
  EXPECT_THAT(ErrorOf(json), AllOf(HasSubstr(GetParam().says), HasSubstr(GetParam().allowed)));
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongFileTest,
    ::testing::Values(
        WrongFile{"/kind", R"("layers")", "key 'kind' is \"layers\"", "network, layer, map, info"},
        WrongFile{"/kind", "null", "key 'kind' is missing", "network, layer, map, info"},
        WrongFile{"/inputz", "[]", "key 'inputz' is unknown", "inputs"},
        WrongFile{"/inputs", "[]", "key 'inputs' is []", "not empty"},
        WrongFile{"/dtypes", "[]", "key 'dtypes' is []", "not empty"},
        WrongFile{"/maps", "[]", "key 'maps' is []", "not empty"},
        WrongFile{"/orders", "[]", "key 'orders' is []", "not empty"},
        WrongFile{"/orders", R"(["scan", "z"])", "key 'orders' is [\"scan\",\"z\"]", "morton"},
        WrongFile{"/orders", R"(["scan", "scan"])", "key 'orders'", "differ"},
        WrongFile{"/inputs/0", R"({"input": "a", "order": "z"})", "inputs[0].order' is \"z\"",
                  "scan, sorted, shuffled and morton"},
        WrongFile{"/resolutions", "[]", "key 'resolutions' is []", "not empty"},
        WrongFile{"/backends", "[]", "key 'backends' is []", "not empty"},
        WrongFile{"/configurations/0/backends", "[]", "backends' is []", "not empty"},
        WrongFile{"/stage_times", "true", "key 'stage_times' is true", "networks"},
        WrongFile{"/inputs/0", "7", "key 'inputs[0]' is 7", "object"},
        WrongFile{"/inputs/0", R"({"input": "a", "voxel_size": 0})", "inputs[0].voxel_size' is 0",
                  "above 0"},
        WrongFile{"/inputs/0", R"({"input": "a", "batch": []})", "inputs[0].batch' is []",
                  "not empty"},
        WrongFile{"/configurations/0/spec", R"("plan:p.json")", "\"plan:p.json\"", "of networks"},
        WrongFile{"/published",
                  R"([{"what": "w", "source": "s", "gpu": "g", "ratio": 2,
                       "fewer_voxels_than": "kitti"}])",
                  "published[0].fewer_voxels_than' is \"kitti\"", "outdoor-64"},
        WrongFile{"/layers/0/kernel", R"("big")", "layers[0].kernel' is \"big\"", "whole number"},
        WrongFile{"/layers/0/kernel", "0", "layers[0]': kernel", "1.."},
        WrongFile{"/layers/0",
                  R"({"kind": "inverse", "kernel": 2, "stride": 0, "channels": [[4, 8]]})",
                  "layers[0]': stride", "1.."},
        WrongFile{"/layers/0",
                  R"({"kind": "transposed", "kernel": 0, "stride": 2, "channels": [[4, 8]]})",
                  "layers[0]': kernel", "1.."},
        WrongFile{"/layers/0/channels/1", "[8]", "layers[0].channels[1]' is [8]", "C_IN, C_OUT"},
        WrongFile{"/layers/0/channels/0/0", "0", "layers[0].channels[0]' is [0,8]", "1 .. 65536"},
        WrongFile{"/dtypes", R"(["f64"])", "key 'dtypes' is [\"f64\"]", "f32, tf32, f16 and bf16"},
        WrongFile{"/dtypes", R"({"tpu": "f32"})", "key 'dtypes'", "cpu and cuda"},
        WrongFile{"/maps", R"(["cached"])", "key 'maps' is [\"cached\"]", "rebuilt"},
        WrongFile{"/baseline", R"("other")", "key 'baseline' is \"other\"", "reference"},
        WrongFile{"/configurations/1/against", R"("none")", "'against'", "reference"},
        WrongFile{"/configurations/1/for", R"({"tile": []})", "for.tile' is []", "not empty"},
        WrongFile{"/configurations/1/name", R"("reference")", "two named 'reference'", "differ"},
        WrongFile{"/configurations/0/against", R"("reference")", "'reference' names itself alone",
                  "others"},
        WrongFile{"/configurations/1/against", "[]", "configurations' is", "held against another"},
        WrongFile{"/layers/0/rule", R"("dilate")", "rule' is \"dilate\"", "submanifold"},
        WrongFile{"/resolutions", "[0]", "resolutions[0]' is 0", "1 .. 65536"},
        WrongFile{"/networks", R"(["minkunet42"])", "key 'networks'", "layers"},
        WrongFile{"/published", R"([{"what": "w", "source": "s", "gpu": "g"}])",
                  "published[0].ratio' is missing", "exactly one of"},
        WrongFile{"/published", R"([{"what": "w", "source": "s", "gpu": "g", "ratio": -1}])",
                  "published[0].ratio' is -1", "above 0"},
        WrongFile{"/published",
                  R"([{"what": "w", "source": "s", "gpu": "g", "ratio": 2, "metric": "speed"}])",
                  "published[0].metric' is \"speed\"", "map_query"},
        WrongFile{"/published", R"([{"what": "w", "gpu": "g", "ratio": 2}])",
                  "published[0].source' is missing", "text"},
        WrongFile{"/published", R"([{"what": "w", "source": "s", "gpu": "g", "faster": false}])",
                  "published[0].faster' is false", "true"},
        WrongFile{"/analysis", R"("map_sizes")", "key 'analysis' is \"map_sizes\"", "info"},
        WrongFile{"/plots", R"([{"x": "colour"}])", "plots[0].x' is \"colour\"", "tile"}));

// 20^6 configurations would take all memory before one of them is refused.
TEST(DefinitionTest, ConfigurationsAreCountedBeforeTheyAreMade) {
  Json json = Valid();
  for (const char* axis : {"a", "b", "c", "d", "e", "f"}) {
    for (int i = 0; i < 20; ++i) json["configurations"][1]["for"][axis].push_back(i);
  }
  EXPECT_THAT(ErrorOf(json), AllOf(HasSubstr("configurations[1].for.c"), HasSubstr("4096")));
}

TEST(DefinitionTest, MapsThatAreTimedAreMadeAnew) {
  Json json = Valid();
  json["kind"] = "map";
  json["layers"] = {{{"kernel", 3}}};
  json["configurations"] = {{{"name", "reference"}, {"spec", "hash"}},
                            {{"name", "other"}, {"spec", "grid"}}};
  EXPECT_EQ(ErrorOf(json), "");
  json["maps"] = {"rebuilt", "reused"};
  EXPECT_THAT(ErrorOf(json), AllOf(HasSubstr("key 'maps'"), HasSubstr("rebuilt")));
}

TEST(DefinitionTest, TheFileIsNamed) {
  EXPECT_THAT(std::string(LoadDefinition("missing.json").status().message()),
              HasSubstr("missing.json"));
  EXPECT_THAT(std::string(LoadDefinition("minuet/fig99").status().message()),
              AllOf(HasSubstr("minuet/fig99"), HasSubstr("minuet/fig16")));
}

}  // namespace
}  // namespace voxconv::experiment
