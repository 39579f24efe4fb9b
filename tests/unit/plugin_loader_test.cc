// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/plugin_loader.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/core/file_hash.h"

namespace voxconv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string FixtureDir(const std::string& name) {
  return absl::StrCat(VOXCONV_FIXTURE_DIR, "/", name);
}
std::string Fixture(const std::string& name) {
  return absl::StrCat(FixtureDir(name), "/fixture_", name, ".so");
}

bool IsEmpty(const Registry& registry) {
  return registry.mappings().entries().empty() && registry.dataflows().entries().empty() &&
         registry.output_coords().entries().empty();
}

// Loading `path` fails with `code` and one line that names the path and holds `reason`.
void ExpectRefused(const std::string& path, absl::StatusCode code, const std::string& reason) {
  Registry registry;
  const absl::Status status = LoadPlugin(path, registry);
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(absl::StrCat("plugin '", path, "'")),
                                                   HasSubstr(reason), Not(HasSubstr("\n"))));
  EXPECT_TRUE(IsEmpty(registry));
}

class ScopedPluginPath {
 public:
  explicit ScopedPluginPath(const std::string& value) {
    setenv(kPluginPathVariable, value.c_str(), /*overwrite=*/1);
  }
  ~ScopedPluginPath() { unsetenv(kPluginPathVariable); }
};

TEST(PluginLoader, RegistersAGoodPlugin) {
  Registry registry;
  ASSERT_EQ(LoadPlugin(Fixture("good"), registry), absl::OkStatus());
  EXPECT_TRUE(registry.dataflows().entries().contains("fixture"));
  // Runs code of the library.
  EXPECT_EQ(registry.dataflows().Create("fixture", BackendKind::kCpu).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(PluginLoader, NotesWhatIsLoaded) {
  Registry registry;
  ASSERT_EQ(LoadPlugin(Fixture("good"), registry), absl::OkStatus());
  Registry other;
  ASSERT_EQ(LoadPlugin(Fixture("good"), other), absl::OkStatus());
  ExpectRefused(Fixture("wrong_abi"), absl::StatusCode::kFailedPrecondition, "ABI");
  const std::vector<LoadedPlugin> plugins = LoadedPlugins();
  const auto is_fixture = [](const LoadedPlugin& plugin) {
    return plugin.hash == *HashFile(Fixture("good"));
  };
  ASSERT_EQ(std::count_if(plugins.begin(), plugins.end(), is_fixture), 1);
  const LoadedPlugin& fixture = *std::find_if(plugins.begin(), plugins.end(), is_fixture);
  EXPECT_THAT(fixture.dataflows, ::testing::ElementsAre("fixture"));
  EXPECT_TRUE(fixture.mappings.empty());
  EXPECT_EQ(fixture.path, Fixture("good"));
  // VOXCONV_PLUGIN_ARCHITECTURE is the machine's own here: no narrower than this program.
  EXPECT_FALSE(fixture.compiled_for.empty());
  EXPECT_EQ(LibraryOf("fixture:option=1")->hash, fixture.hash);
  EXPECT_FALSE(LibraryOf("hash").has_value());
}

TEST(PluginLoader, RefusesCodeThatTheProcessorLacks) {
  ExpectRefused(Fixture("wrong_processor"), absl::StatusCode::kFailedPrecondition,
                "compiled for AVX-4096, which this processor lacks; rebuild the plugin here, or "
                "with VOXCONV_PLUGIN_ARCHITECTURE=OFF");
}

TEST(PluginLoader, HashesBytes) {
  const std::string path = ::testing::TempDir() + "/plugin_loader_test_hashed";
  std::ofstream(path) << "a";
  EXPECT_EQ(HashFile(path).value(), "af63dc4c8601ec8c");  // FNV-1a of "a"
  std::ofstream(path) << "";
  EXPECT_EQ(HashFile(path).value(), "cbf29ce484222325");
  EXPECT_EQ(HashFile("/nowhere").status().code(), absl::StatusCode::kNotFound);
}

TEST(PluginLoader, RefusesWhatIsNoLibrary) {
  ExpectRefused("", absl::StatusCode::kNotFound, "there is no such file");
  ExpectRefused(Fixture("nowhere"), absl::StatusCode::kNotFound, "there is no such file");
  ExpectRefused(FixtureDir("good"), absl::StatusCode::kInvalidArgument, "a directory");
  const std::string text = ::testing::TempDir() + "/plugin_loader_test_text.so";
  std::ofstream(text) << "no library at all\n";
  ExpectRefused(text, absl::StatusCode::kInvalidArgument, "no shared library");
}

TEST(PluginLoader, RefusesWrongLibraries) {
  ExpectRefused(Fixture("no_symbol"), absl::StatusCode::kInvalidArgument,
                "does not export voxconv_plugin_info");
  ExpectRefused(Fixture("undefined_symbol"), absl::StatusCode::kInvalidArgument,
                "voxconv_nobody_defines_this");
  ExpectRefused(Fixture("null_info"), absl::StatusCode::kInvalidArgument, "returns null");
  ExpectRefused(Fixture("incomplete"), absl::StatusCode::kInvalidArgument, "lacks");
}

TEST(PluginLoader, RefusesAnotherAbiOrBuild) {
  ExpectRefused(Fixture("wrong_abi"), absl::StatusCode::kFailedPrecondition, "plugin ABI 43");
  ExpectRefused(Fixture("wrong_stamp"), absl::StatusCode::kFailedPrecondition,
                absl::StrCat("built with (voxconv 0.0.0, another), this program with (",
                             HostBuildStamp(), ")"));
}

TEST(PluginLoader, ReportsRegisterFunctions) {
  ExpectRefused(Fixture("register_fails"), absl::StatusCode::kUnavailable,
                "fixture: the fixture refuses to register");
  ExpectRefused(Fixture("registers_nothing"), absl::StatusCode::kInvalidArgument,
                "registers nothing");
}

TEST(PluginLoader, TakesExceptionsForErrors) {
  ExpectRefused(Fixture("throws"), absl::StatusCode::kInternal,
                "fixture: exception: the fixture throws");
  ExpectRefused(Fixture("throws_int"), absl::StatusCode::kInternal,
                "fixture: exception of an unknown type");
  ExpectRefused(Fixture("info_throws"), absl::StatusCode::kInternal,
                "voxconv_plugin_info(): exception: the info throws");
}

TEST(PluginLoader, OutlivesALibraryThatEndsTheProcess) {
  ExpectRefused(Fixture("aborts"), absl::StatusCode::kInternal,
                "loading it ends the process: it is killed by signal 6 (Aborted) (the fixture "
                "aborts)");
  ExpectRefused(Fixture("exits"), absl::StatusCode::kInternal,
                "loading it ends the process: it ends with exit status 0");
}

TEST(PluginLoader, NamesThePluginAndTheOptionOfAWrongSchema) {
  ExpectRefused(Fixture("bad_default"), absl::StatusCode::kInvalidArgument,
                "mapping plugin 'bad': default of option block='9': allowed are 1..4");
  ExpectRefused(Fixture("double_name"), absl::StatusCode::kInvalidArgument,
                "mapping plugin 'bad': option block is declared more than once");
}

// Every length, in steps: in the header, in the segments, in the section headers.
TEST(PluginLoader, RefusesALibraryThatIsCutShort) {
  std::ifstream whole(Fixture("good"), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(whole), {}};
  const std::string path = ::testing::TempDir() + "/plugin_loader_test_cut.so";
  for (const size_t size : {size_t{10}, size_t{64}, size_t{100}, bytes.size() / 3, bytes.size() / 2,
                            bytes.size() - 1}) {
    SCOPED_TRACE(size);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes.substr(0, size);
    ExpectRefused(path, absl::StatusCode::kInvalidArgument,
                  size < 16 ? "does not begin as an ELF file" : "it is cut short");
  }
}

TEST(PluginLoader, FindsThePluginInANamespace) {
  Registry registry;
  EXPECT_EQ(LoadPlugin(Fixture("in_namespace"), registry), absl::OkStatus());
}

TEST(PluginLoader, TheBuildStampNamesTheHeaders) {
  EXPECT_THAT(std::string(HostBuildStamp()), ::testing::ContainsRegex(", headers [0-9a-f]{12}$"));
}

TEST(PluginLoader, RefusesADuplicateName) {
  Registry registry;
  ASSERT_EQ(LoadPlugin(Fixture("good"), registry), absl::OkStatus());
  for (const char* name : {"same_name", "good"}) {
    const absl::Status status = LoadPlugin(Fixture(name), registry);
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(Fixture(name)),
                      HasSubstr("dataflow plugin 'fixture' is registered already")));
  }
  EXPECT_EQ(registry.dataflows().entries().size(), 1u);
}

TEST(PluginLoader, ReadsTheEnvironment) {
  {
    Registry registry;
    EXPECT_EQ(LoadPluginsFromEnvironment(registry), absl::OkStatus());
    EXPECT_TRUE(IsEmpty(registry));
  }
  for (const std::string& value :
       {Fixture("good"), FixtureDir("good"), absl::StrCat(":", FixtureDir("good"), "::")}) {
    ScopedPluginPath path(value);
    Registry registry;
    EXPECT_EQ(LoadPluginsFromEnvironment(registry), absl::OkStatus());
    EXPECT_TRUE(registry.dataflows().entries().contains("fixture")) << value;
  }
}

TEST(PluginLoader, StopsAtTheFirstErrorInTheEnvironment) {
  ScopedPluginPath path(absl::StrCat(FixtureDir("good"), ":", Fixture("wrong_abi")));
  Registry registry;
  const absl::Status status = LoadPluginsFromEnvironment(registry);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("VOXCONV_PLUGIN_PATH: "), HasSubstr(Fixture("wrong_abi"))));
  EXPECT_TRUE(registry.dataflows().entries().contains("fixture"));
}

TEST(PluginLoader, RefusesADirectoryWithoutLibraries) {
  ScopedPluginPath path(VOXCONV_FIXTURE_DIR);  // holds directories only
  Registry registry;
  const absl::Status status = LoadPluginsFromEnvironment(registry);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("holds no *.so file"));
}

}  // namespace
}  // namespace voxconv
