// SPDX-License-Identifier: Apache-2.0
// The same for the commands that measure: tune, bench, ab, experiment, and plans.
#include "bad_input_fixture.h"

namespace voxconv::testing {
namespace {

TEST_F(BadInputTest, TuneOptions) {
  const std::string tune = absl::StrCat("tune", kSmallInput, " ");
  ExpectRefused("tune", {"--input"});
  ExpectRefused(tune + "--search random", {"--search", "random", "measured", "heuristic"});
  ExpectRefused(tune + "--network lenet", {"lenet", "minkunet42"});
  ExpectRefused(tune + "--candidates /nowhere.json --width 0.25", {"/nowhere.json"});
  ExpectRefused(tune + "--out '" + Write("notes.txt", "notes") + "'", {"notes.txt", "JSON"});
  ExpectRefused(tune + "--out /nowhere/plan.json", {"/nowhere/plan.json"});
  const std::string small = absl::StrCat(tune, kSmallNetwork, " ");
  ExpectRefused(small + "--quick", {"--out is missing"});
  EXPECT_EQ(std::filesystem::file_size(Path("stdout")), 0);  // said before the work
  ExpectRefused(small + "--repeats 0", {"--repeats", "0", "1 .. 1000"});
  ExpectRefused(small + "--dtype f8", {"f8", "f16"});
  ExpectRefused(small + "--dataflow none", {"none", "direct"});
  ExpectRefused(small + "--mapping hash:load=3", {"load"});
  ExpectRefused(small + "--search heuristic --dataflow direct", {"--dataflow", "heuristic"});
  ExpectRefused(small + "--search heuristic --mapping none", {"none", "sorted_search"});
  EXPECT_EQ(std::filesystem::file_size(Path("stdout")), 0);
  for (const char* axes :
       {R"j({"tile": ["divisors(zz)"]})j", R"j({"tile": ["divisors(c_in"]})j",
        R"j({"tile": ["big"]})j", R"j({"epsilon": [7]})j", R"j({"epsilon": ["x"]})j"}) {
    const std::string grid =
        absl::StrCat(R"({"grids": [{"dataflow": "gather_gemm_scatter", "axes": )", axes, "}]}");
    ExpectRefused(small + "--candidates '" + Write("g.json", grid) + "'",
                  {"g.json", "grid: option '", "allowed are"});
    EXPECT_EQ(std::filesystem::file_size(Path("stdout")), 0);
  }
  ExpectRefused(small + "--candidates '" + Write("c.json", R"({"dataflows": [1.5]})") + "'",
                {"c.json", "1.5"});
}

// Devices and pipes need not end, or not give anything.
TEST_F(BadInputTest, JsonFiles) {
  const std::string pipe = Path("pipe.json");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string cut = Write("broken.json", "{\n \"name\": }");
  const std::string twice = Write("twice.json", R"([{"input": "a.bin", "input": "b.bin"}])");
  const std::string run = absl::StrCat("run", kSmallNetwork, kSmallInput, " --plan ");
  const std::string tune = absl::StrCat("tune", kSmallNetwork, kSmallInput, " ");
  const std::string inputs = "experiment parts --out '" + Path("results") + "' --inputs ";
  for (const std::string& reader :
       {run, tune + "--out ", tune + "--candidates ", inputs, std::string("experiment --list ")}) {
    ExpectRefused(absl::StrCat(reader, "'", pipe, "'"), {"pipe.json", "not a regular file"});
    ExpectRefused(absl::StrCat(reader, "'", cut, "'"),
                  {"broken.json", "JSON", "line 2, column 10"});
  }
  for (const std::string& reader : {run, tune + "--out ", tune + "--candidates ", inputs}) {
    ExpectRefused(reader + "/dev/zero", {"/dev/zero", "not a regular file"});
    ExpectRefused(reader + "'" + directory_.string() + "'", {directory_.string(), "directory"});
  }
  ExpectRefused(inputs + "'" + twice + "'", {"twice.json", "key 'input'", "twice"});
}

TEST_F(BadInputTest, Bench) {
  const std::string bench = "bench --input 'scene:uniform?n=10&box=8' ";
  ExpectRefused(bench + "--benchmark_colour=never", {"--benchmark_colour=never"});
  ExpectRefused(bench + "--benchmark_format=xml", {"--benchmark flag", "value"});
  const Outcome none = Voxconv(bench + "--benchmark_filter=no_such");
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.errors, HasSubstr("no benchmark matches"));
  ExpectRefused(bench + "--config minuet", {"--config", "--network"});
  ExpectRefused(bench + "--dtype f16", {"--dtype", "f16", "f32"});
  ExpectRefused(bench + "--threads 1,1024", {"--threads", "1024", "cores"});
  const std::string scan = absl::StrCat("'", Write("scan.bin", std::string(32, '\0')), "'");
  ExpectRefused("bench --input " + scan + " --benchmark_out=" + scan,
                {"--benchmark_out", "--input"});
}

// With --points, voxelisation is checked against the host's and timed, and so are frames.
TEST_F(BadInputTest, BenchFromPoints) {
  ExpectRefused("bench --points --input 'scene:uniform?n=10&box=8'",
                {"--points", "scene:uniform", "voxels"});
  ExpectRefused("bench --points --order sorted --input scene:lidar64",
                {"--order sorted has no meaning with --points"});
  const Outcome done = Voxconv(
      "bench --points --input 'scene:lidar64?azimuths=20' --input 'scene:uniform?n=10&box=8' "
      "--network minkunet42 --benchmark_filter=points/ --benchmark_min_time=0.001 --threads 1");
  EXPECT_EQ(done.exit_code, 0) << done.errors;
  std::ifstream file(Path("stdout"));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(text, HasSubstr("points/scene:lidar64?azimuths=20/voxels/threads=1"));
  EXPECT_THAT(text, HasSubstr("points/scene:lidar64?azimuths=20/minkunet42/"));
  EXPECT_THAT(text, Not(HasSubstr("points/scene:uniform")));
}

// Without names, all variants run: what a plugin refuses is left out, and is no error.
TEST_F(BadInputTest, BenchOfAllVariants) {
  const std::string bench =
      "bench --input 'scene:uniform?n=200&box=8' --channels 4x4 --benchmark_min_time=0.001 ";
  const Outcome all = Voxconv(bench + "--threads 1,1,0");
  EXPECT_EQ(all.exit_code, 0) << all.errors;
  EXPECT_THAT(all.errors, Not(HasSubstr("DEBUG")));
  std::ifstream file(Path("stdout"));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(text, Not(HasSubstr("threads=0")));
  EXPECT_THAT(text, Not(HasSubstr("mma=warp")));
  std::set<std::string> names;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::string name(line.substr(0, line.find(' ')));
    if (!absl::StrContains(name, '/')) continue;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_GT(names.size(), 20u);
  const Outcome named = Voxconv(bench + "--mapping hash:variant=bucketed --dataflow direct");
  EXPECT_EQ(named.exit_code, 1);
  EXPECT_THAT(named.errors, HasSubstr("has no CPU implementation"));
  // What is voxels already has one size, and results would be named after another one.
  ExpectRefused(bench + "--mapping hash --dataflow direct --voxel-size 0.1",
                {"scene:uniform", "voxel_size has no meaning", "voxels"});
  const Outcome sized = Voxconv(
      "bench --input 'scene:sphere?n=200' --channels 4x4 --benchmark_min_time=0.001 "
      "--mapping hash --dataflow direct --voxel-size 0.1");
  EXPECT_EQ(sized.exit_code, 0);
  std::ifstream sized_file(Path("stdout"));
  const std::string sized_text((std::istreambuf_iterator<char>(sized_file)), {});
  EXPECT_THAT(sized_text, HasSubstr("n=200@0.1/"));
}

TEST_F(BadInputTest, OptionsThatTheCpuHasNot) {
  ExpectRefused("bench --network sparseresnet21 --in-flight 2 --input scene:room",
                {"--in-flight 2", "--backend cuda"});
  ExpectRefused("bench --network sparseresnet21 --in-flight 0 --input scene:room",
                {"--in-flight 0", "1 .. 16"});
  ExpectRefused("bench --in-flight 2 --input scene:room", {"--in-flight", "--network"});
  for (const char* spec : {"implicit_gemm:mma=warp", "implicit_gemm:tile_channels=64"}) {
    ExpectRefused(absl::StrCat("run", kSmallNetwork, kSmallInput, " --dataflow ", spec),
                  {"implicit_gemm: the CPU has no mma and tile_channels to choose"});
  }
}

TEST_F(BadInputTest, CachesThatTheCpuHasNot) {
  const std::string ab =
      absl::StrCat("ab --a hash/direct --b hash/direct --channels 4,4", kSmallInput);
  const std::string experiment = "experiment parts --out '" + Path("r") + "'";
  const std::string bench = "bench --input scene:room";
  for (const std::string& command : {ab, experiment, bench}) {
    ExpectRefused(command + " --cache cold", {"--cache cold", "--backend cuda"});
    ExpectRefused(command + " --cache hot", {"--cache 'hot'", "warm and cold"});
    ExpectRefused(command + " --l2-mib 6", {"--l2-mib 6", "--backend cuda"});
    ExpectRefused(command + " --l2-mib -1", {"--l2-mib -1", "0 (all of the cache)"});
  }
}

TEST_F(BadInputTest, RoundsOfAb) {
  const std::string ab = absl::StrCat("ab --a hash/direct --b hash/direct --channels 4,4",
                                      kSmallInput, " --threads 1 ");
  ExpectRefused(ab + "--rounds 0", {"--rounds 0", "1 and more"});
  ExpectRefused(ab + "--rounds 1001", {"--rounds 1001", "1 .. 1000"});
  ExpectRefused("experiment parts --rounds 1001 --out '" + Path("r") + "'", {"--rounds 1001"});
  ExpectRefused(absl::StrCat("ab --a hash/direct/fused --b hash/direct", kSmallInput),
                {"--a 'hash/direct/fused'", "output coordinates", "submanifold"});
  ExpectRefused(ab + "--round 2 --rounds 2", {"--rounds", "together with --round"});
  const std::string out = Path("rounds.jsonl");
  const Outcome run = Voxconv(ab + "--rounds 2 --out '" + out + "'");
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  std::ifstream printed(Path("stdout")), lines(out);
  const std::string text((std::istreambuf_iterator<char>(printed)), {});
  for (const char* part : {"round 1 of 2: ", "round 2 of 2: ", "2 rounds", "40 pairs"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    ++count;
    EXPECT_THAT(line, HasSubstr(absl::StrCat("\"round\":", count)));
    EXPECT_THAT(line, HasSubstr("\"steal\":"));
    EXPECT_THAT(line, HasSubstr("\"busy\":"));
    EXPECT_THAT(line, HasSubstr("\"clocks\":null"));
    EXPECT_THAT(line, HasSubstr("\"captured\":null"));
    EXPECT_THAT(line, HasSubstr("\"gpu\":null"));
    EXPECT_THAT(line, HasSubstr("\"cache\":\"warm\""));
  }
  EXPECT_EQ(count, 2);
}

TEST_F(BadInputTest, InputsOfExperimentsThatAreNotThere) {
  const std::string file = Write("missing.json", R"({
    "name": "m", "title": "m", "kind": "layer", "inputs": ["/nowhere/scan.bin"],
    "layers": [{"kernel": 3, "channels": [[4, 4]]}], "baseline": "b",
    "configurations": [{"name": "a", "spec": "hash/direct"}, {"name": "b", "spec": "hash/direct"}]})");
  ExpectRefused(absl::StrCat("experiment '", file, "' --quick --out '", Path("r"), "'"),
                {"/nowhere/scan.bin", "no such file"});
  EXPECT_FALSE(std::filesystem::exists(Path("r")));
}

// A voxel size or a resolution that changes nothing must not stand in a result.
TEST_F(BadInputTest, SizesOfWhatIsVoxelsAlready) {
  const auto file = [&](const std::string& input, const std::string& more) {
    return Write("sized.json",
                 absl::StrCat(R"({"name": "s", "title": "s", "kind": "layer", "inputs": [)", input,
                              R"(], "layers": [{"kernel": 3, "channels": [[4, 4]]}],)", more,
                              R"("baseline": "b", "configurations": [)",
                              R"({"name": "a", "spec": "hash/direct"},)",
                              R"({"name": "b", "spec": "hash/direct"}]})"));
  };
  const std::string out = absl::StrCat("' --out '", Path("r"), "'");
  const std::string voxels = R"("scene:uniform?n=100&box=8")";
  ExpectRefused(
      "experiment '" + file(R"({"input": "scene:uniform?n=9&box=8", "voxel_size": 0.3})", "") + out,
      {"scene:uniform?n=9&box=8", "voxel_size has no meaning"});
  ExpectRefused("experiment '" + file(voxels, R"("resolutions": [16],)") + out,
                {"scene:uniform", "voxel_size has no meaning"});
  ExpectRefused("experiment '" + file(voxels, "") + out + " --input 'scene:blocks?n=2&edge=3' " +
                    "--voxel-size 0.2",
                {"scene:blocks", "voxel_size has no meaning"});
  ExpectRefused("experiment '" + file(R"({"input": "scene:sphere?n=99", "samples": 7})", "") + out,
                {"scene:sphere", "samples has no meaning", "meshes"});
}

TEST_F(BadInputTest, ReportsOfARunBesideItself) {
  std::filesystem::create_directories(Path("r"));
  const std::string report = "report '" + Path("r") + "' ";
  ExpectRefused(report + "--again '" + Path("r") + "'", {"--again", "another run"});
  ExpectRefused(report + "--out '" + Write("page.html", "") + "'", {"--out", "is no directory"});
}

TEST_F(BadInputTest, Experiments) {
  const std::string parts = "experiment parts --out '" + Path("results") + "' ";
  for (const char* option :
       {"--like indoor", "--voxel-size 0.1", "--fields x,y,z", "--dtype-in f16"}) {
    ExpectRefused(absl::StrCat(parts, option), {std::string(option, 6), "without --input"});
  }
  ExpectRefused(parts + "--input scene:room --like foo", {"--like", "foo", "outdoor-64"});
  const std::string inputs = Write("i.json", R"([{"input": "scene:room", "like": "foo"}])");
  ExpectRefused(parts + "--inputs '" + inputs + "'", {"i.json", "inputs[0].like", "foo", "indoor"});

  setenv("VOXCONV_PRESET_DIR", "/nowhere", 1);
  ExpectRefused("run --input scene:room --preset minuet", {"VOXCONV_PRESET_DIR", "/nowhere"});
  unsetenv("VOXCONV_PRESET_DIR");
  setenv("VOXCONV_EXPERIMENT_DIR", "/nowhere", 1);
  ExpectRefused("experiment --list", {"VOXCONV_EXPERIMENT_DIR", "/nowhere"});
  Write("broken.json", "{");
  setenv("VOXCONV_EXPERIMENT_DIR", directory_.c_str(), 1);
  ExpectRefused("experiment --list", {"broken.json", "line 1"});
  EXPECT_GT(std::filesystem::file_size(Path("stdout")), 500);  // the others
  unsetenv("VOXCONV_EXPERIMENT_DIR");
}

TEST_F(BadInputTest, NoGpu) {
  if (MakeBackend({.kind = BackendKind::kCuda}).ok()) {
    GTEST_SKIP() << "this machine has a GPU";
  }
  for (const char* command : {"run --input scene:lidar64", "verify", "bench", "info scene:lidar64",
                              "ab --input scene:lidar64 --a hash/direct --b grid/direct"}) {
    ExpectRefused(absl::StrCat(command, " --backend cuda"), {"cuda"});
  }
}

TEST_F(BadInputTest, GpuThatIsNotThereOrTooSmall) {
  if (!MakeBackend({.kind = BackendKind::kCuda}).ok()) {
    GTEST_SKIP() << "no CUDA device on this machine";
  }
  const std::string run = "run --backend cuda --network sparseresnet21 --input scene:lidar64 ";
  ExpectRefused(run + "--device -1", {"device", "-1"});
  ExpectRefused(run + "--device 4096", {"device", "4096"});
  ExpectRefused(run + "--memory-limit-mib 4", {"memory", "4"});
  ExpectRefused(run + "--dtype f64", {"dtype", "f64"});
}

TEST_F(BadInputTest, PlansForAnotherUse) {
  const std::string path = Path("plan.json");
  const std::string plan = absl::StrCat(" --plan '", path, "'", kSmallInput);
  const Outcome tuned = Voxconv(
      absl::StrCat("tune --quick --threads 1 --out '", path, "'", kSmallNetwork, kSmallInput));
  ASSERT_EQ(tuned.exit_code, 0) << tuned.errors;
  const Outcome planned = Voxconv(absl::StrCat("run --threads 1", kSmallNetwork, plan));
  EXPECT_EQ(planned.exit_code, 0) << planned.errors;
  const std::string compare = absl::StrCat("ab --b minuet --threads 1 --a 'plan:", path, "'");
  const Outcome compared = Voxconv(absl::StrCat(compare, kSmallNetwork, kSmallInput));
  EXPECT_EQ(compared.exit_code, 0) << compared.errors;
  ExpectRefused(compare + kSmallInput, {"--a", "--network"});

  ExpectRefused("run --network sparseresnet21 --width 0.5" + plan, {"width", "0.5", "0.25"});
  ExpectRefused("run --network minkunet42" + plan, {"plan.json", "minkunet42", "sparseresnet21"});
  const std::string run = absl::StrCat("run", kSmallNetwork);
  ExpectRefused(run + plan + " --dtype tf32", {"dtype", "tf32", "f32"});
  ExpectRefused(run + plan + " --threads 2", {"device", "1 thread", "2 threads"});
  ExpectRefused(run + plan + " --threads 1 --in-channels 3", {"plan", "stage1.conv"});
  ExpectRefused(run + plan + " --preset minuet", {"--preset", "--plan"});
  const std::string other = absl::StrCat(run, kSmallInput, " --plan ");
  ExpectRefused(other + "/nowhere.json", {"/nowhere.json"});
  ExpectRefused(other + "'" + Write("cut.json", R"({"format": "voxconv-plan")") + "'",
                {"cut.json", "JSON"});
}

}  // namespace
}  // namespace voxconv::testing
