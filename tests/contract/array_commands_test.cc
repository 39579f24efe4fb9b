// SPDX-License-Identifier: Apache-2.0
// What commands write as arrays, and the files that they read and write: voxelize, pool, weights,
// the features of a network's layers, and standard output in place of a file.
#include "bad_input_fixture.h"
#include "nlohmann/json.hpp"
#include "voxconv/io/convention.h"
#include "voxconv/io/safetensors.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/networks/models.h"

namespace voxconv::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

class ArrayCommandsTest : public BadInputTest {
 protected:
  void ExpectDone(const std::string& arguments) const {
    const Outcome run = Voxconv(arguments);
    EXPECT_EQ(run.exit_code, 0) << arguments << "\n" << run.errors;
  }
  std::string Printed() const {
    std::ifstream in(Path("stdout"), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  std::vector<float> Floats(const NpzArrays& arrays, const std::string& name) const {
    const NpyArray* array = FindArray(arrays, name);
    EXPECT_NE(array, nullptr) << name;
    return array == nullptr ? std::vector<float>() : *ToFloat32(*array, name);
  }
  NpzArrays Read(const std::string& file) const {
    const auto arrays = ReadNpz(Path(file));
    EXPECT_TRUE(arrays.ok()) << arrays.status();
    return arrays.ok() ? *arrays : NpzArrays();
  }
  // The parameters of the small network as the program makes them, in a file.
  std::string WriteWeights(const std::string& renamed = "", const std::string& name = "") const {
    NetworkGraph graph = *MakeModel("sparseresnet21", {.width = 0.25});
    InitializeParameters(graph, 7);
    Safetensors content;
    for (const Parameter& p : graph.parameters()) {
      content.tensors.push_back(
          MakeSafeTensor(p.name == renamed ? name : p.name, p.shape, p.values));
    }
    return Write("weights.safetensors", *SerializeSafetensors(content));
  }
};

TEST_F(ArrayCommandsTest, RunNamesTheKernelOfEachLayer) {
  const std::string run = absl::StrCat("run", kSmallNetwork, kSmallInput, " --dataflow ");
  for (const auto& [dataflow, kernel] :
       {std::pair("direct:weights=naive", "naive"),
        std::pair("fetch_on_demand:tile=64", "products of 64 rows"),
        std::pair("gather_gemm_scatter", "products, "),
        std::pair("hash2col", "hash2col, dense products"),
        std::pair("implicit_gemm:tile=32", "products of 32 rows")}) {
    ExpectDone(run + dataflow);
    EXPECT_THAT(Printed(), ::testing::Not(HasSubstr("kernel"))) << dataflow;
    ExpectDone(run + dataflow + " --verbose");
    EXPECT_THAT(Printed(), AllOf(HasSubstr("kernel"), HasSubstr(kernel))) << dataflow;
    ExpectDone(run + dataflow + " --json");
    EXPECT_THAT(Printed(), HasSubstr(absl::StrCat("\"kernel\":\"", kernel))) << dataflow;
  }
}

TEST_F(ArrayCommandsTest, VoxelizeWritesWhatEveryCommandReads) {
  const std::string cloud = Write("a.xyz", "0.1 0.1 0.1\n0.2 0.2 0.2\n3.5 0 0\n-9 0 0\n");
  ExpectDone(absl::StrCat("voxelize '", cloud, "' '", Path("v.npz"),
                          "' --voxel-size 1 --range -5,-5,-5,5,5,5"));
  EXPECT_THAT(Printed(), HasSubstr("outside the range: 1"));
  const NpzArrays arrays = Read("v.npz");
  EXPECT_THAT(*ToInt32(*FindArray(arrays, "coords"), "coords"),
              ElementsAre(0, 0, 0, 0, 0, 3, 0, 0));
  EXPECT_THAT(FindArray(arrays, "features")->shape, ElementsAre(2, 3));
  const std::string input = absl::StrCat(" --input '", Path("v.npz"), "'");
  ExpectDone("info '" + Path("v.npz") + "'");
  EXPECT_THAT(Printed(), HasSubstr("voxels: 2,"));
  ExpectDone("run" + std::string(kSmallNetwork) + input);
  ExpectDone("verify --quick --filter sorted_search" + std::string(kSmallNetwork) + input);
  ExpectDone("ab --a minuet --b torchsparse --pairs 20 --channels 4x4" + input);
  ExpectDone("bench --benchmark_filter=map/hash --benchmark_min_time=0.001 --mapping hash" + input);
  ExpectDone("voxelize" + input + " --out - --range 0,0,0,1,1,1");
  EXPECT_THAT(Printed(), StartsWith("PK"));
  ExpectRefused("info --voxel-size 2" + input, {"--voxel-size", "voxels already"});
  ExpectRefused("info --voxel-rule spconv" + input, {"--voxel-rule", "voxels already"});
  ExpectRefused("info --range 0,0,0,0,1,1" + input, {"--range '0,0,0,0,1,1'", "six numbers"});
  ExpectRefused("bench --range 1" + input, {"--range '1'"});
  ExpectRefused("voxelize scene:room", {"OUT.npz is missing"});
  ExpectRefused("voxelize scene:room out.bin", {"out.bin", ".npz"});
}

TEST_F(ArrayCommandsTest, RowsComeInTheOrderThatIsAskedFor) {
  const std::string cloud = Write("a.xyz", "3.5 0 0\n0.1 0.1 0.1\n3.6 0 0\n-2 0 0\n0.2 1 0\n");
  const auto coords = [&](const std::string& input, const std::string& options) {
    ExpectDone(absl::StrCat("voxelize '", input, "' '", Path("v.npz"), "' ", options));
    return *ToInt32(*FindArray(Read("v.npz"), "coords"), "coords");
  };
  const auto scan = ElementsAre(0, 3, 0, 0, 0, 0, 0, 0, 0, -2, 0, 0, 0, 0, 1, 0);
  EXPECT_THAT(coords(cloud, "--voxel-size 1"), scan);
  EXPECT_THAT(Printed(), HasSubstr("order: scan"));
  EXPECT_THAT(coords(cloud, "--voxel-size 1 --order sorted"),
              ElementsAre(0, -2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 3, 0, 0));
  EXPECT_THAT(Printed(), HasSubstr("order: sorted"));
  EXPECT_THAT(coords(cloud, "--voxel-size 1 --order morton"),
              ElementsAre(0, -2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 3, 0, 0));
  const auto shuffled = coords(cloud, "--voxel-size 1 --order shuffled");
  EXPECT_EQ(coords(cloud, "--voxel-size 1 --order shuffled --input-seed 0"), shuffled);
  // A file of voxels keeps its rows.
  coords(cloud, "--voxel-size 1");
  std::filesystem::rename(Path("v.npz"), Path("scan.npz"));
  EXPECT_THAT(coords(Path("scan.npz"), ""), scan);
}

TEST_F(ArrayCommandsTest, SamplesAreCountedInAnyOrder) {
  Arrays in;
  in.coords = {2, 0, 0, 0, 0, 1, 1, 1, 1, 4, 4, 4};
  in.coords_shape = {3, 4};
  in.features = {1, 2, 3};
  in.features_shape = {3, 1};
  ExpectDone(absl::StrCat("info '", WriteArrays(in), "'"));
  EXPECT_THAT(Printed(), HasSubstr("voxels: 3, batch samples: 3, order: scan"));
}

TEST_F(ArrayCommandsTest, EveryFigureSaysItsOrder) {
  const std::string input = " --input 'scene:uniform?n=300&box=9' ";
  for (const char* order : {"scan", "sorted"}) {
    const std::string option = absl::StrCat(" --order ", order, input);
    ExpectDone("info --json" + option);
    EXPECT_THAT(Printed(), HasSubstr(absl::StrCat("\"order\":\"", order)));
    ExpectDone("run --json" + std::string(kSmallNetwork) + option);
    EXPECT_THAT(Printed(), HasSubstr(absl::StrCat("\"order\":\"", order)));
    ExpectDone("run" + std::string(kSmallNetwork) + option);
    EXPECT_THAT(Printed(), HasSubstr(absl::StrCat("order ", order)));
    ExpectDone("ab --json --a minuet --b torchsparse --pairs 20 --channels 4x4" + option);
    EXPECT_THAT(Printed(), HasSubstr(absl::StrCat("\"order\":\"", order)));
    ExpectDone(
        "bench --benchmark_filter=map/hash --benchmark_min_time=0.001 --mapping hash "
        "--benchmark_format=json" +
        option);
    EXPECT_THAT(Printed(), HasSubstr(absl::StrCat("\"order\": \"", order)));
    const bool named = Printed().find(",order=sorted/") != std::string::npos;
    EXPECT_EQ(named, std::string(order) == "sorted");
  }
}

TEST_F(ArrayCommandsTest, PoolGivesTheMaximumSumAndMeans) {
  Arrays in;
  in.coords = {0, 0, 0, 0, 0, 1, 1, 1, 0, 4, 4, 4};
  in.coords_shape = {3, 4};
  in.features = {1, -4, 3, -2, 5, 6};
  in.features_shape = {3, 2};
  const std::string path = WriteArrays(in);
  const auto pooled = [&](const std::string& options) {
    ExpectDone(absl::StrCat("pool '", path, "' '", Path("out.npz"), "' ", options));
    return Floats(Read("out.npz"), "out_features");
  };
  EXPECT_THAT(pooled(""), ElementsAre(3, -2, 5, 6));
  EXPECT_THAT(*ToInt32(*FindArray(Read("out.npz"), "out_coords"), ""),
              ElementsAre(0, 0, 0, 0, 0, 4, 4, 4));
  EXPECT_THAT(pooled("--mode sum"), ElementsAre(4, -6, 5, 6));
  EXPECT_THAT(pooled("--mode average"), ElementsAre(0.5, -0.75, 0.625, 0.75));
  EXPECT_THAT(pooled("--mode average_present"), ElementsAre(2, -3, 5, 6));
  for (const std::string mode : {"max", "sum", "average", "average_present"}) {
    const std::vector<float> expected = pooled("--mode " + mode);
    EXPECT_EQ(pooled("--dataflow hash2col --mode " + mode), expected);
    EXPECT_EQ(pooled("--dataflow hash2col:columns=lookup --mode " + mode), expected);
  }
  // SpConv's maximum begins at 0, and its average divides by the voxels that are there.
  const std::string spconv = "--convention spconv --spatial-shape 6,6,6 ";
  EXPECT_THAT(pooled(spconv), ElementsAre(3, 0, 5, 6));
  EXPECT_THAT(pooled(spconv + "--mode average"), ElementsAre(2, -3, 5, 6));
  const std::string pool = absl::StrCat("pool '", path, "' '", Path("x.npz"), "' ");
  ExpectRefused(pool + spconv + "--mode sum", {"--mode 'sum'", "max", "average"});
  ExpectRefused(pool + "--kind inverse --stride 2", {"--kind inverse", "submanifold", "strided"});
  ExpectRefused(pool + "--dataflow direct", {"--dataflow direct", "hash2col"});
  ExpectRefused(pool + "--dtype f16", {"--dtype f16", "cpu"});
  ExpectRefused(absl::StrCat("conv '", path, "' '", Path("x.npz"), "' --dtype bf16"),
                {"--dtype bf16", "cpu"});
  ExpectDone(absl::StrCat("pool '", path, "' -"));
  EXPECT_THAT(Printed(), StartsWith("PK"));
}

TEST_F(ArrayCommandsTest, RunWritesTheFeaturesOfAnyLayer) {
  const std::string run =
      absl::StrCat("run", kSmallInput, kSmallNetwork, " --features-out '", Path("f.npz"), "' ");
  ExpectDone(run + "--layer stage1.conv,stage5.conv.bn");
  const NpzArrays two = Read("f.npz");
  ASSERT_NE(FindArray(two, "stage1.conv.features"), nullptr);
  EXPECT_THAT(*ToInt32(*FindArray(two, "stage1.conv.tensor_stride"), ""), ElementsAre(1, 1, 1));
  ASSERT_NE(FindArray(two, "stage5.conv.bn.coords"), nullptr);
  ExpectDone(run);  // the last layer
  const NpzArrays one = Read("f.npz");
  EXPECT_EQ(Floats(one, "features"), Floats(two, "stage5.conv.bn.features"));
  ExpectRefused(run + "--layer nowhere", {"nowhere", "stage5.conv.bn"});
  ExpectRefused(run + "--layer stage1.conv,stage1.conv", {"stage1.conv", "twice"});
  ExpectRefused(run + "--fold-batch-norm", {"--fold-batch-norm", "--features-out"});
  ExpectRefused(absl::StrCat("run --layer stem", kSmallInput), {"--layer", "--features-out"});
  ExpectRefused(absl::StrCat("run --features-out - --json", kSmallInput),
                {"--features-out", "--json"});
}

TEST_F(ArrayCommandsTest, RunTakesWeightsAndTheCommandSaysWhatFits) {
  const std::string weights = WriteWeights();
  const std::string run =
      absl::StrCat("run", kSmallInput, kSmallNetwork, " --features-out '", Path("f.npz"), "' ");
  ExpectDone(run + "--seed 7");
  const std::vector<float> expected = Floats(Read("f.npz"), "features");
  ExpectDone(run + "--weights '" + weights + "'");
  EXPECT_EQ(Floats(Read("f.npz"), "features"), expected);
  ExpectRefused(run + "--seed 7 --weights '" + weights + "'", {"--seed", "--weights"});

  ExpectDone("weights '" + weights + "'");
  EXPECT_THAT(Printed(), HasSubstr("stage1.conv.weight"));
  const std::string fit = absl::StrCat("weights '", weights, "' ");
  ExpectDone(absl::StrCat(fit, kSmallNetwork));
  EXPECT_THAT(Printed(), HasSubstr("parameters of sparseresnet21 fit"));
  ExpectRefused(fit + "--network sparseresnet21", {"does not fit", "wrong shape"});
  ExpectRefused(fit + "--convention spconv", {"--convention", "--network"});
  ExpectRefused(fit + "out.pt", {"out.pt", ".safetensors"});

  // To another engine's convention and format, and back.
  ExpectDone(absl::StrCat(fit, " '", Path("s.npz"), "' --to-convention spconv", kSmallNetwork));
  EXPECT_THAT(FindArray(Read("s.npz"), "stage1.conv.weight")->shape, SizeIs(5));
  ExpectDone(absl::StrCat("weights '", Path("s.npz"), "' '", Path("back.safetensors"),
                          "' --convention spconv", kSmallNetwork));
  ExpectDone(run + "--weights '" + Path("back.safetensors") + "'");
  EXPECT_EQ(Floats(Read("f.npz"), "features"), expected);

  WriteWeights("stage1.conv.weight", "module.0");
  ExpectRefused(absl::StrCat(fit, kSmallNetwork), {"missing", "stage1.conv.weight"});
  const std::string names = Write("names.json", R"({"stage1.conv.weight": "module.0"})");
  ExpectDone(absl::StrCat(fit, "--names '", names, "'", kSmallNetwork));
  ExpectRefused(run + "--weights '" + weights + "'", {"stage1.conv.weight", "missing"});
}

}  // namespace
}  // namespace voxconv::testing
