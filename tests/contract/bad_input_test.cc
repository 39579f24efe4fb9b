// SPDX-License-Identifier: Apache-2.0
// Bad input gives one clear line on standard error and a non-zero exit, never a crash.
#include "bad_input_fixture.h"

namespace voxconv::testing {
namespace {

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
  ExpectRefused("list extra", {"'extra'", "one too many", "none"});
  ExpectRefused("info scene:room more", {"'more'", "one too many", "one is allowed"});
  ExpectRefused("weights a.npz b.npz c.npz", {"'c.npz'", "2 are allowed"});
  ExpectRefused("help -v", {"'-v'", "commands"});
  ExpectRefused("--version --verbose --verbose", {"--verbose", "once"});
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
  const std::string centerpoint = "run --network centerpoint --width 0.25 " + scene;
  ExpectRefused(centerpoint + "--grid 0,0,0,131072,39,39", {"grid", "131072", "131071"});
  ExpectRefused(centerpoint + "--grid=-2147483648,0,0,39,39,39", {"grid", "-131072 .. 131071"});
  const std::string features = "run --features-out '" + Path("f.npz") + "' " + scene;
  ExpectRefused(features + "--layer ,", {"layer's name is empty"});
  const std::string view =
      "view --network sparseresnet21 --width 0.25 --out '" + Path("v.html") + "' " + scene;
  ExpectRefused(view + "--layer stage1.conv,stage1.conv", {"'stage1.conv' is named twice"});
  ExpectRefused(view + "--channel 0,1,0", {"--channel 0,1,0", "twice"});
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
  // A scene of voxels, and one of points.
  for (const char* option : {"--voxel-size 3", "--origin 3", "--voxel-rule spconv"}) {
    const std::string name = std::string(option).substr(0, std::string(option).find(' '));
    ExpectRefused(absl::StrCat("info ", option, " ", scene), {name, "scene:uniform", "voxels"});
  }
  for (const std::string option : {"--samples 5", "--input-seed 5"}) {
    ExpectRefused("info scene:sphere?n=100 " + option,
                  {option.substr(0, option.find(' ')), "scene:sphere", "mesh"});
  }
  for (const char* command : {"run", "ab --a minuet --b hcnn", "bench", "verify --quick"}) {
    ExpectRefused(absl::StrCat(command, " --device 3"), {"--device 3", "--backend cpu"});
  }
  ExpectRefused("bench --output-coords sort_unique", {"--output-coords sort_unique", "cpu"});
  for (const std::string option : {"--filter map", "--shard 1/2", "--quick", "--threads 1"}) {
    ExpectRefused("verify --support " + option, {option.substr(0, option.find(' ')), "--support"});
  }
  for (const char* command : {"info", "run", "bench", "tune --out plan.json",
                              "ab --a minuet --b hcnn", "voxelize --out v.npz", "view --out v.html",
                              "train --network hcnn_classifier --data d.npz --out run"}) {
    const std::string input = std::string(command).substr(0, 5) == "train" ? "" : scene;
    ExpectRefused(absl::StrCat(command, " --order zorder ", input),
                  {"--order 'zorder'", "scan, sorted, shuffled and morton"});
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

// OpenBLAS, which Open3D brings, asks for memory until it has it, and is waited for at the end.
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

// The kernel's signal would end the program without a word, and leave a scratch file.
TEST_F(BadInputTest, FilesPastTheLimitOfTheShell) {
  const std::string out = Path("big.npz");
  const std::string command =
      absl::StrCat("ulimit -f 8; '", VOXCONV_PROGRAM, "' voxelize 'scene:sphere?n=20000' '", out,
                   "' --voxel-size 0.01 >/dev/null 2>'", Path("errors"), "'");
  const int status = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  std::ifstream file(Path("errors"));
  const std::string errors((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(errors, HasSubstr("big.npz: cannot be written: File too large"));
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    EXPECT_EQ(entry.path().filename(), "errors");
  }
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
  const std::vector<float> floats = {1, 2, 3};
  ASSERT_TRUE(
      WriteNpz(Path("x.npz"), {{"x", MakeNpyArray({1, 3}, absl::MakeConstSpan(floats))}}).ok());
  ExpectRefused("conv '" + Path("x.npz") + "' '" + Path("y.npz") + "'", {"IN.npz", "coords"});
  ExpectRefused("run --weights '" + Path("x.npz") + "' --input scene:room",
                {"x.npz", "is no safetensors file"});
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
  for (const std::string engine : {"--convention spconv ", "--convention torchsparse "}) {
    // Submanifold; inverse; and voxels at 3 and 4 of the last axis.
    ExpectConvRefused(arrays, engine + "--spatial-shape 9", {"spatial_shape", "submanifold"});
    ExpectConvRefused(coarse, engine + "--kind inverse --stride 2 --spatial-shape 9",
                      {"spatial_shape", "inverse"});
    ExpectConvRefused(arrays, engine + "--kind strided --stride 2 --spatial-shape 9,9,4",
                      {"coords: 4 in row 1, column 3", "--spatial-shape 9x9x4", "0 .. 3"});
  }
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

TEST_F(BadInputTest, ArraysThatAreNotReadAreNamed) {
  const Arrays a;
  const std::vector<float> bias = {1, 2, 3};
  ASSERT_TRUE(
      WriteNpz(Path("in.npz"),
               {{"coords", MakeNpyArray(a.coords_shape, absl::MakeConstSpan(a.coords))},
                {"features", MakeNpyArray(a.features_shape, absl::MakeConstSpan(a.features))},
                {"weights", MakeNpyArray(a.weights_shape, absl::MakeConstSpan(a.weights))},
                {"Bias", MakeNpyArray({3}, absl::MakeConstSpan(bias))}})
          .ok());
  const Outcome run = Voxconv("conv '" + Path("in.npz") + "' '" + Path("out.npz") + "'");
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  std::ifstream out(Path("stdout"));
  const std::string text((std::istreambuf_iterator<char>(out)), {});
  EXPECT_THAT(text, HasSubstr("IN.npz: not read: Bias\n"));
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

}  // namespace
}  // namespace voxconv::testing
