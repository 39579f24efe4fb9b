// Bad input gives one clear line on standard error and a non-zero exit, never a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/session.h"
#include "io/npy.h"
#include "tests/support/session.h"

namespace voxconv::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kSmallInput[] = " --input 'scene:uniform?n=400&box=16'";
constexpr char kSmallNetwork[] = " --network sparseresnet21 --width 0.25";

struct Outcome {
  int exit_code = -1;
  bool exited = false;
  std::string errors;
};

class BadInputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() /
                 absl::StrCat("voxconv_bad_input_", getpid(), "_",
                              ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& file) const { return (directory_ / file).string(); }
  std::string Write(const std::string& file, const std::string& bytes) const {
    std::ofstream(Path(file), std::ios::binary) << bytes;
    return Path(file);
  }

  Outcome Voxconv(const std::string& arguments, const std::string& output = "") const {
    const std::string command = absl::StrCat(
        "'", VOXCONV_PROGRAM, "' ", arguments, " 2>&1 >",
        output.empty() ? absl::StrCat("'", Path("stdout"), "'") : output, " </dev/null");
    Outcome run;
    FILE* pipe = popen(command.c_str(), "r");
    VOXCONV_CHECK(pipe != nullptr);
    std::array<char, 4096> buffer;
    while (size_t n = fread(buffer.data(), 1, buffer.size(), pipe))
      run.errors.append(buffer.data(), n);
    const int status = pclose(pipe);
    run.exited = WIFEXITED(status);
    run.exit_code = run.exited ? WEXITSTATUS(status) : -1;
    return run;
  }

  // One line that contains all of `words`. Standard output goes to `output`, a redirection's right
  // side.
  void ExpectRefused(const std::string& arguments, const std::vector<std::string>& words,
                     const std::string& output = "") const {
    SCOPED_TRACE(arguments);
    const Outcome run = Voxconv(arguments, output);
    EXPECT_TRUE(run.exited) << run.errors;
    EXPECT_THAT(run.exit_code, ::testing::AnyOf(1, 2));
    EXPECT_THAT(std::vector<std::string>(absl::StrSplit(run.errors, '\n', absl::SkipEmpty())),
                SizeIs(1))
        << run.errors;
    for (const std::string& word : words) EXPECT_THAT(run.errors, HasSubstr(word));
  }

  struct Arrays {
    std::vector<int32_t> coords = {0, 1, 2, 3, 0, 1, 2, 4};
    std::vector<int64_t> coords_shape = {2, 4};
    std::vector<float> features = {1, 2, 3, 4};
    std::vector<int64_t> features_shape = {2, 2};
    std::vector<float> weights = std::vector<float>(27 * 2 * 3, 0.5f);
    std::vector<int64_t> weights_shape = {27, 2, 3};
  };
  std::string WriteArrays(const Arrays& a) const {
    const std::string path = Path("in.npz");
    const absl::Status status = WriteNpz(
        path, {{"coords", MakeNpyArray(a.coords_shape, absl::MakeConstSpan(a.coords))},
               {"features", MakeNpyArray(a.features_shape, absl::MakeConstSpan(a.features))},
               {"weights", MakeNpyArray(a.weights_shape, absl::MakeConstSpan(a.weights))}});
    VOXCONV_CHECK(status.ok());
    return path;
  }
  void ExpectConvRefused(const Arrays& arrays, const std::string& options,
                         const std::vector<std::string>& words) const {
    ExpectRefused(
        absl::StrCat("conv '", WriteArrays(arrays), "' '", Path("out.npz"), "' ", options), words);
    EXPECT_FALSE(std::filesystem::exists(Path("out.npz")));
  }

  std::filesystem::path directory_;
};

TEST_F(BadInputTest, CommandLine) {
  ExpectRefused("frobnicate", {"frobnicate", "verify"});
  ExpectRefused("run --input scene:lidar64 --frobnicate 3", {"frobnicate"});
  ExpectRefused("run", {"--input"});
  ExpectRefused("run --input scene:lidar64 --threads -3", {"threads", "-3"});
  ExpectRefused("run --input scene:lidar64 --threads many", {"many"});
  ExpectRefused("run --input scene:lidar64 --threads 1024", {"--threads 1024", "cores"});
  ExpectRefused("info scene:room --samples -1", {"--samples -1", "1 .. "});
  ExpectRefused("run --input scene:lidar64 --voxel-size 0", {"size", "0"});
  ExpectRefused("run --input scene:lidar64 --voxel-size 0.1,0.2", {"voxel-size", "0.1,0.2"});
  ExpectRefused("run --input scene:lidar64 --network resnet50", {"resnet50", "minkunet42"});
  ExpectRefused("run --input scene:lidar64 --width -1", {"width"});
  ExpectRefused("run --input scene:lidar64 --backend tpu", {"tpu", "cpu"});
  ExpectRefused("run --input scene:lidar64 --dtype f16", {"f16"});
  ExpectRefused("run --input scene:nowhere", {"nowhere"});
  ExpectRefused("run --input 'scene:uniform?n=-5'", {"n", "-5"});
  ExpectRefused("verify --filter no_such_case", {"--filter"});
  ExpectRefused("verify --quick --shard 4/3", {"--shard", "4/3", "I <= N"});
  ExpectRefused("info scene:lidar64 --plugin /nonexistent.so", {"/nonexistent.so"});
}

TEST_F(BadInputTest, Plugins) {
  const std::string run = "run --input 'scene:uniform?n=10&box=8' ";
  ExpectRefused(run + "--mapping quadtree", {"quadtree", "sorted_search"});
  ExpectRefused(run + "--dataflow systolic", {"systolic", "fetch_on_demand"});
  ExpectRefused(run + "--mapping sorted_search:variant=bogo", {"variant", "bogo", "naive"});
  ExpectRefused(run + "--mapping sorted_search:speed=9", {"speed", "variant"});
  ExpectRefused(run + "--mapping sorted_search:variant", {"variant", "key=value"});
  ExpectRefused(run + "--dataflow gather_gemm_scatter:epsilon=2", {"epsilon", "2"});
  ExpectRefused(run + "--preset fastest_of_all", {"fastest_of_all", "minuet"});
}

TEST_F(BadInputTest, OptionsWithoutMeaning) {
  const std::string scene = "--input 'scene:uniform?n=10&box=8' ";
  ExpectRefused("run --preset minuet --mapping hash " + scene, {"--mapping", "--preset"});
  ExpectRefused("run --preset minuet --output-coords fused " + scene, {"--output-coords"});
  ExpectRefused("run --network sparseresnet21 --classes 5 " + scene, {"--classes", "minkunet42"});
  ExpectRefused("run --seed -1 " + scene, {"--seed -1"});
  ExpectRefused("ab --a minuet --b hcnn --network minkunet42 --kernel 2 " + scene, {"--kernel"});
  ExpectRefused("ab --a minuet --b hcnn --width 0.5 " + scene, {"--width", "--network"});
  ExpectRefused("ab --a minuet --b hcnn --rule dilate " + scene, {"--rule", "submanifold"});
  ExpectRefused("info --fields x,y,z " + scene, {"fields", "files"});
  ExpectRefused("info --voxel-size nan " + scene, {"voxel size", "nan"});
  ExpectRefused("--version extra", {"--version", "extra"});
  ExpectRefused("run --serial-maps " + scene, {"--serial-maps", "cuda"});
  for (const char* option : {"--voxel-size 3", "--origin 3", "--voxel-rule spconv", "--samples 3",
                             "--unit-sphere", "--npz-limit-mib 3"}) {
    const std::string name = std::string(option).substr(0, std::string(option).find(' '));
    ExpectRefused(absl::StrCat("verify --quick ", option), {name, "--network"});
  }
  ExpectRefused("info --voxel-rule f32 " + scene, {"voxel rule", "f32", "spconv"});
  ExpectRefused("info --npz-limit-mib 0 " + scene, {"--npz-limit-mib 0", "1 .. "});
  ExpectRefused("verify --mapping quadtree", {"quadtree", "sorted_search"});
  ExpectRefused("verify --mapping hash:load_factor=0.3", {"load_factor=0.3", "variant=cuckoo"});
}

TEST_F(BadInputTest, SaidBeforeTheWork) {
  const std::string scene = "--input 'scene:uniform?n=10&box=8' ";
  ExpectRefused("run --out /nonexistent/line.jsonl " + scene, {"/nonexistent/line.jsonl"});
  EXPECT_EQ(std::filesystem::file_size(Path("stdout")), 0);
  ExpectRefused("info --mapping quadtree " + scene, {"quadtree"});
  EXPECT_EQ(std::filesystem::file_size(Path("stdout")), 0);
  ExpectRefused("bench --input missing.bin", {"missing.bin"});
  ExpectRefused("bench --voxel-size 0", {"voxel size", "0"});
}

TEST_F(BadInputTest, OutputThatCannotBeWritten) {
  const std::string scene = "'scene:uniform?n=10&box=8'";
  for (const std::string& arguments :
       {std::string("list"), std::string("list --json"), std::string("list --help"),
        std::string("experiment --list"), std::string("--help"), std::string("--version"),
        "info " + scene, "run --network sparseresnet21 --width 0.25 --input " + scene}) {
    ExpectRefused(arguments, {"standard output cannot be written", "No space left"}, "/dev/full");
    ExpectRefused(arguments, {"standard output cannot be written"}, "&-");
  }
}

// What is written over an input, or over another output, is lost.
TEST_F(BadInputTest, OutputsOverInputs) {
  const std::string in = WriteArrays({}), link = Path("link.npz");
  std::filesystem::create_symlink(in, link);
  const std::string conv = "conv '" + in + "' ";
  ExpectRefused(conv + "'" + in + "'", {"OUT.npz", "IN.npz", "in.npz"});
  ExpectRefused(conv + "'" + link + "'", {"OUT.npz", "link.npz", "IN.npz"});
  ExpectRefused(conv + "'" + Path("o.npz") + "' --save-map '" + in + "'", {"--save-map", "IN.npz"});
  const std::string same = "'" + Path("om.npz") + "'";
  ExpectRefused(conv + same + " --save-map " + same, {"--save-map", "OUT.npz"});
  ExpectRefused(conv + same + " --save-map /nowhere/m.npz", {"--save-map", "/nowhere/m.npz"});
  ExpectRefused(conv + "/dev/null", {"OUT.npz", "/dev/null", "regular"});
  EXPECT_FALSE(std::filesystem::exists(Path("om.npz")));

  const std::string scan = Write("scan.bin", std::string(32, '\0'));
  const std::string over = "--input '" + scan + "' --out '" + scan + "'";
  ExpectRefused("run " + over, {"--out", "--input", "scan.bin"});
  ExpectRefused("ab --a grid/direct --b hash/direct " + over, {"--out", "--input", "scan.bin"});
  const std::string plan = Write("plan.json", "{}");
  ExpectRefused("ab --a plan:'" + plan + "' --b hash/direct --out '" + plan + "'",
                {"--out", "--a"});
  EXPECT_EQ(std::filesystem::file_size(scan), 32);
}

// Scratch files have names that nobody has, and both files of a command are written or neither.
TEST_F(BadInputTest, ScratchFilesAreNobodyElses) {
  const std::string in = WriteArrays({}), out = Path("out9.npz"), partial = out + ".partial";
  std::filesystem::copy_file(in, partial);
  Outcome run = Voxconv("conv '" + partial + "' '" + out + "'");
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  EXPECT_EQ(std::filesystem::file_size(partial), std::filesystem::file_size(in));
  const std::string mine = Write("mine.txt", "mine"), other = Path("other.npz");
  std::filesystem::create_symlink(mine, other + ".partial");
  run = Voxconv("conv '" + in + "' '" + other + "'");
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  EXPECT_EQ(std::filesystem::file_size(mine), 4);
  // A link as target stays, and the file that it names is written.
  const std::string link = Path("to_other.npz");
  std::filesystem::remove(other);
  std::filesystem::create_symlink(other, link);
  run = Voxconv("conv '" + in + "' '" + link + "' --save-map '" + Path("map.npz") + "'");
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(std::filesystem::is_regular_file(other));
  EXPECT_TRUE(std::filesystem::is_regular_file(Path("map.npz")));

  const std::string plan = Path("plan.json"), scratch = Write("plan.json.new", "mine");
  run = Voxconv(absl::StrCat("tune --quick --repeats 1 --mapping hash --dataflow direct --out '",
                             plan, "'", kSmallNetwork, kSmallInput));
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  EXPECT_TRUE(std::filesystem::exists(plan));
  EXPECT_EQ(std::filesystem::file_size(scratch), 4);
}

// Nobody writes into this pipe: a command that opened it would wait for ever.
TEST_F(BadInputTest, PipesInPlaceOfFiles) {
  const std::string pipe = Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const char* extension : {".bin", ".npy", ".npz", ".ply", ".obj", ".off", ".glb", ".pcd"}) {
    const std::string link = Path(absl::StrCat("link", extension));
    std::filesystem::create_symlink(pipe, link);
    ExpectRefused("info '" + link + "'", {"link", "not a regular file"});
  }
  const std::string scene = " --input 'scene:uniform?n=10&box=8' ";
  ExpectRefused("conv '" + pipe + "' '" + Path("o.npz") + "'", {"pipe", "not a regular file"});
  ExpectRefused("run --plan '" + pipe + "'" + scene, {"pipe", "not a regular file"});
  ExpectRefused("run --plugin '" + pipe + "'" + scene, {"pipe", "not a regular file"});
  ExpectRefused("run --out '" + pipe + "'" + scene, {"pipe", "cannot open"});
  ExpectRefused("tune --out '" + pipe + "'" + scene, {"pipe", "not a regular file"});
  ExpectRefused("tune --candidates '" + pipe + "'" + scene, {"pipe", "not a regular file"});
  ExpectRefused("experiment '" + pipe + "'", {"pipe"});
}

TEST_F(BadInputTest, DeeplyNestedJson) {
  const std::string deep =
      Write("deep.json", std::string(100'000, '[') + std::string(100'000, ']'));
  const std::string objects = [] {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += R"({"a":)";
    text += '1';
    return text + std::string(100'000, '}');
  }();
  const std::string deep_objects = Write("objects.json", objects);
  const std::string scene = " --input 'scene:uniform?n=10&box=8' ";
  for (const std::string& file : {deep, deep_objects}) {
    ExpectRefused("run --plan '" + file + "'" + scene, {file, "100 nested"});
    ExpectRefused("tune --candidates '" + file + "'" + scene, {file, "100 nested"});
    ExpectRefused("tune --out '" + file + "'" + scene, {file, "100 nested"});
    ExpectRefused("experiment '" + file + "'", {file, "100 nested"});
    ExpectRefused("experiment parts --inputs '" + file + "'", {file, "100 nested"});
    const std::string gltf = file + ".gltf";
    std::filesystem::copy_file(file, gltf);
    ExpectRefused("info '" + gltf + "'", {gltf, "100 nested"});
  }
}

// Work without end is refused before it begins.
TEST_F(BadInputTest, EndlessWork) {
  const std::string scene = " --input 'scene:uniform?n=10&box=8' ";
  ExpectRefused("run --width 100" + scene, {"width 100", "parameters", "memory"});
  ExpectRefused("verify --network minkunet42 --width 100" + scene, {"width 100", "memory"});
  ExpectRefused("tune --width 100" + scene, {"width 100", "memory"});
  ExpectRefused("ab --a grid/direct --b hash/direct --pairs 1000000000" + scene,
                {"pairs 1000000000", "1000000"});
  ExpectRefused("ab --a grid/direct --b hash/direct --warmup 1000000000" + scene,
                {"warmup 1000000000", "1000000"});
  ExpectRefused("run --warmup 1000000000" + scene, {"--warmup 1000000000", "1000000"});
  Arrays arrays;
  arrays.weights = {};
  arrays.weights_shape = {27, int64_t{1} << 40, 0};
  ExpectConvRefused(arrays, "", {"weights", "[27, 1099511627776, 0]", "65536"});
  arrays.weights_shape = {27, 0, 1'000'000'000};
  ExpectConvRefused(arrays, "", {"weights", "[27, 0, 1000000000]", "65536"});
  arrays.coords = {};
  arrays.coords_shape = {0, 4};
  arrays.features = {};
  arrays.features_shape = {0, 1'000'000'000};
  ExpectConvRefused(arrays, "", {"features", "[0, 1000000000]", "65536"});
}

// OpenBLAS asks for memory until it has it, and is waited for at the end.
TEST_F(BadInputTest, TinyAddressSpace) {
  const std::string command =
      absl::StrCat("ulimit -v 280000; exec timeout 60 '", VOXCONV_PROGRAM, "' run", kSmallNetwork,
                   kSmallInput, " >/dev/null 2>'", Path("errors"), "'");
  const int status = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  // 127: the loader cannot map all libraries, of CUDA for instance.
  EXPECT_THAT(WEXITSTATUS(status), ::testing::AnyOf(1, 127));
  std::ifstream file(Path("errors"));
  const std::string errors((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(errors, ::testing::AnyOf(HasSubstr("address space is limited to 273 MiB"),
                                       HasSubstr("shared libraries")));
}

TEST_F(BadInputTest, SurplusColumnsAreNamed) {
  const std::vector<float> rows = {1, 2, 3, 0.5, 31, 2, 3, 4, 0.5, 30};
  const std::string scan = Write(
      "scan.pcd.bin", std::string(reinterpret_cast<const char*>(rows.data()), 4 * rows.size()));
  const Outcome run = Voxconv(absl::StrCat("run", kSmallNetwork, " --input '", scan, "'"));
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  std::ifstream out(Path("stdout"));
  const std::string text((std::istreambuf_iterator<char>(out)), {});
  EXPECT_THAT(text, HasSubstr("the network takes 4: ring is left out"));
}

TEST_F(BadInputTest, EmptyArguments) {
  const std::string scan = "run --input '" + Write("scan.bin", std::string(32, '\0')) + "' ";
  for (const char* option : {"--out", "--plan", "--fields", "--dtype-in", "--array"}) {
    ExpectRefused(absl::StrCat(scan, option, " ''"), {absl::StrCat(option, " ''"), "empty"});
  }
  ExpectRefused("experiment parts --out ''", {"--out ''", "empty"});
  ExpectRefused("report '" + directory_.string() + "' --out ''", {"--out ''", "empty"});
  ExpectRefused("tune --input scene:room --out ''", {"--out ''", "empty"});
  ExpectRefused("info ''", {"INPUT ''", "empty"});
}

TEST_F(BadInputTest, ResultsAfterAnUnfinishedLine) {
  const std::string out = Write("lines.jsonl", R"({"cut)");
  const Outcome run =
      Voxconv(absl::StrCat("run", kSmallNetwork, kSmallInput, " --out '", out, "'"));
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  std::ifstream file(out);
  std::string first, second;
  std::getline(file, first);
  std::getline(file, second);
  EXPECT_EQ(first, R"({"cut)");
  EXPECT_THAT(second, ::testing::StartsWith(R"({"kind":"run")"));
}

TEST_F(BadInputTest, Memory) {
  ExpectRefused("run --input scene:uniform --in-channels 99999999999", {"--in-channels"});
  ExpectRefused("run --input scene:uniform --classes 99999999999", {"--classes"});

  const std::string run = "run --input 'scene:uniform?n=20000&box=4000' ";
  ExpectRefused(run + "--mapping grid:storage=dense,memory_limit_mib=1", {"memory_limit_mib", "1"});
  ExpectRefused(run + "--memory-limit-mib 1", {"memory", "limit"});
}

TEST_F(BadInputTest, Files) {
  ExpectRefused("info '" + Path("missing.bin") + "'", {"missing.bin"});
  ExpectRefused("info '" + directory_.string() + "'", {directory_.string()});
  ExpectRefused("info '" + Write("empty.bin", "") + "'", {"empty.bin"});
  ExpectRefused("info '" + Write("odd.bin", std::string(17, 'x')) + "'", {"odd.bin", "17"});
  ExpectRefused("info '" + Write("x.unknown", "abc") + "'", {"x.unknown"});
  ExpectRefused("info '" + Write("broken.npy", "\x93NUMPY\x01") + "'", {"broken.npy"});
  ExpectRefused("info '" + Write("broken.npz", "PK\x03\x04") + "'", {"broken.npz"});
  ExpectRefused("info '" + Write("broken.ply", "ply\nformat ascii 1.0\n") + "'", {"broken.ply"});
  ExpectRefused("info '" + Write("broken.pcd", "VERSION .7\n") + "'", {"broken.pcd"});
}

TEST_F(BadInputTest, PointsFarAway) {
  const std::vector<float> point = {1e9f, 0, 0, 0};
  std::string bytes(reinterpret_cast<const char*>(point.data()), 16);
  ExpectRefused("info '" + Write("far.bin", bytes) + "'", {"far.bin"});
  const std::vector<float> near = {9000.0f, 0, 0, 0};
  bytes.assign(reinterpret_cast<const char*>(near.data()), 16);
  ExpectRefused("info '" + Write("edge.bin", bytes) + "'", {"x", "131071"});
}

TEST_F(BadInputTest, NanRowsAreDroppedAndCounted) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> points = {1, 2, 3, 0.5f, nan, 2, 3, 0.5f, 4, 5, 6, 0.5f};
  const std::string path =
      Write("nan.bin", std::string(reinterpret_cast<const char*>(points.data()), 48));
  const Outcome run = Voxconv("info '" + path + "'");
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  std::ifstream out(Path("stdout"));
  const std::string text((std::istreambuf_iterator<char>(out)), {});
  EXPECT_THAT(text, HasSubstr("dropped (NaN or Inf): 1"));
}

TEST_F(BadInputTest, ConvArrays) {
  Arrays arrays;
  arrays.coords = {0, 1, 2, 3, 0, 1, 2, 3};
  ExpectConvRefused(arrays, "", {"row 1", "(0, 1, 2, 3)", "duplicate"});
  arrays.coords = {0, 1, 2, 3, 0, 131072, 2, 3};
  ExpectConvRefused(arrays, "", {"row 1", "x = 131072", "131071"});
  arrays.coords = {0, 1, 2, 3, 512, 1, 2, 3};
  ExpectConvRefused(arrays, "", {"row 1", "batch 512", "511"});
  arrays.coords = {0, 1, 2, 3, 0, 1, 2, 5};
  ExpectConvRefused(arrays, "--tensor-stride 2", {"row 0", "multiple", "2"});
  arrays = {};
  arrays.features_shape = {4, 1};
  ExpectConvRefused(arrays, "", {"features", "[4, 1]", "[2, C_in]"});
  arrays = {};
  arrays.weights_shape = {27, 3, 2};
  ExpectConvRefused(arrays, "", {"weights", "3 input channels", "2"});
  arrays.weights_shape = {9, 6, 3};
  ExpectConvRefused(arrays, "", {"weights", "[9, 6, 3]", "[27, C_in, C_out]"});
  arrays = {};
  arrays.coords_shape = {8};
  ExpectConvRefused(arrays, "", {"coords", "[8]", "[N, 4]"});
}

TEST_F(BadInputTest, ConvOptions) {
  const Arrays arrays;
  ExpectConvRefused(arrays, "--kind deformable", {"deformable", "submanifold"});
  ExpectConvRefused(arrays, "--stride 2", {"stride", "2", "submanifold"});
  ExpectConvRefused(arrays, "--kernel 0", {"kernel", "0"});
  ExpectConvRefused(arrays, "--kernel 3,3", {"kernel", "3,3"});
  ExpectConvRefused(arrays, "--kernel 64", {"kernel", "64", "32768"});
  ExpectConvRefused(arrays, "--padding 1", {"padding", "1", "dilate"});
  ExpectConvRefused(arrays, "--kind strided --stride 2 --rule nearest", {"nearest", "quantize"});
  Arrays coarse;
  coarse.coords = {0, 2, 2, 4, 0, 2, 2, 6};
  ExpectConvRefused(coarse, "--kind inverse --stride 2", {"out_coords"});
  ExpectConvRefused(arrays, "--kind transposed --stride 2 --tensor-stride 1", {"stride", "divide"});
  ExpectConvRefused(arrays, "--convention onnx", {"onnx", "spconv"});
  ExpectConvRefused(arrays, "--convention spconv --kind strided --rule quantize", {"--rule"});
  ExpectConvRefused(arrays, "--save-map map.txt", {"map.txt", ".npz"});
  ExpectConvRefused(arrays, "--dilation 100000", {"range"});
  ExpectConvRefused(arrays, "--rule dilate", {"--rule", "submanifold", "strided"});
  ExpectConvRefused(arrays, "--output-coords fused", {"--output-coords", "submanifold", "strided"});
  const std::string dilate = "--kind strided --stride 2 --rule dilate ";
  ExpectConvRefused(arrays, dilate + "--bounds 5,0,0,4,9,9", {"--bounds", "5", "4"});
  const std::string spconv = "--convention spconv ";
  ExpectConvRefused(arrays, spconv + "--bounds 0,0,0,9,9,9", {"bounds", "spatial_shape"});
  ExpectConvRefused(arrays, spconv + "--spatial-shape=-5", {"--spatial-shape", "-5", "from 1"});
  ExpectConvRefused(arrays, spconv + "--kind strided --spatial-shape 9 --padding=-5",
                    {"padding", "-5", "from 0"});
}

TEST_F(BadInputTest, NotANumberInAnArrayIsNoCrash) {
  Arrays arrays;
  arrays.features = {1, std::nanf(""), 3, 4};
  const Outcome run =
      Voxconv(absl::StrCat("conv '", WriteArrays(arrays), "' '", Path("out.npz"), "'"));
  EXPECT_EQ(run.exit_code, 0) << run.errors;
}

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
  const std::string scan = "'" + Write("scan.bin", std::string(32, '\0')) + "'";
  ExpectRefused("bench --input " + scan + " --benchmark_out=" + scan,
                {"--benchmark_out", "--input"});
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
  const Outcome sized = Voxconv(bench + "--mapping hash --dataflow direct --voxel-size 0.1");
  EXPECT_EQ(sized.exit_code, 0);
  std::ifstream sized_file(Path("stdout"));
  const std::string sized_text((std::istreambuf_iterator<char>(sized_file)), {});
  EXPECT_THAT(sized_text, HasSubstr("box=8@0.1/"));
}

TEST_F(BadInputTest, OptionsThatTheCpuHasNot) {
  for (const char* spec : {"implicit_gemm:mma=warp", "implicit_gemm:tile_channels=64"}) {
    ExpectRefused(absl::StrCat("run", kSmallNetwork, kSmallInput, " --dataflow ", spec),
                  {"implicit_gemm: the CPU has no mma and tile_channels to choose"});
  }
}

TEST_F(BadInputTest, RoundsOfAb) {
  const std::string ab = absl::StrCat("ab --a hash/direct --b hash/direct --channels 4,4",
                                      kSmallInput, " --threads 1 ");
  ExpectRefused(ab + "--rounds 0", {"--rounds 0", "1 and more"});
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

TEST_F(BadInputTest, OptionsForASavedMap) {
  const std::string map = Path("map.npz");
  const Outcome saved = Voxconv(
      absl::StrCat("conv '", WriteArrays({}), "' '", Path("o.npz"), "' --save-map '", map, "'"));
  ASSERT_EQ(saved.exit_code, 0) << saved.errors;
  EXPECT_EQ(Voxconv("info '" + map + "'").exit_code, 0);
  for (const char* option : {"--mapping hash", "--voxel-size 1", "--fields x,y,z"}) {
    ExpectRefused(absl::StrCat("info '", map, "' ", option), {"no meaning", "kernel map"});
  }
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
