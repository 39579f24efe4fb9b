// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cmath>
#include <limits>

#include "io_test_util.h"
#include "voxconv/io/load_input.h"
#include "voxconv/io/npy.h"
#include "voxconv/io/read_point_cloud.h"
#include "voxconv/io/read_raw.h"

namespace voxconv {
namespace {

using testing::ElementsAre;

const float kInf = std::numeric_limits<float>::infinity();

TEST(ReadRaw, KittiAndNuScenesRows) {
  const absl::StatusOr<PointCloud> kitti =
      ParsePointCloud(BytesOf<float>({1, 2, 3, 0.5, 4, 5, 6, 0.25}), "a.bin", {});
  ASSERT_TRUE(kitti.ok()) << kitti.status();
  EXPECT_THAT(kitti->xyz, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(kitti->features, ElementsAre(0.5, 0.25));
  EXPECT_THAT(kitti->feature_names, ElementsAre("intensity"));
  const absl::StatusOr<PointCloud> nuscenes =
      ParsePointCloud(BytesOf<float>({1, 2, 3, 9, 31}), "a.pcd.bin", {});
  ASSERT_TRUE(nuscenes.ok()) << nuscenes.status();
  EXPECT_THAT(nuscenes->features, ElementsAre(9, 31));
  EXPECT_THAT(nuscenes->feature_names, ElementsAre("intensity", "ring"));
}

TEST(ReadRaw, FieldsInAnyOrderAndSkipped) {
  ReadOptions options;
  options.fields = "_,z,dt,y,x";
  options.dtype_in = "f64";
  const absl::StatusOr<PointCloud> cloud =
      ParsePointCloud(BytesOf<double>({99, 3, 0.5, 2, 1}), "a.bin", options);
  ASSERT_TRUE(cloud.ok()) << cloud.status();
  EXPECT_THAT(cloud->xyz, ElementsAre(1, 2, 3));
  EXPECT_THAT(cloud->feature_names, ElementsAre("dt"));
  EXPECT_THAT(cloud->features, ElementsAre(0.5));
}

TEST(ReadRaw, DropsAndCountsNonFiniteRows) {
  const absl::StatusOr<PointCloud> cloud = ParsePointCloud(
      BytesOf<float>({1, 2, 3, 0, NAN, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9, kInf, 1, 1, 1, 1}), "a.bin",
      {});
  ASSERT_TRUE(cloud.ok()) << cloud.status();
  EXPECT_EQ(cloud->dropped, 2);
  EXPECT_THAT(cloud->xyz, ElementsAre(1, 2, 3, 4, 5, 6, 1, 1, 1));
  EXPECT_THAT(ParsePointCloud(BytesOf<float>({1, 2, 3, NAN}), "a.bin", {}),
              FailsWith(kInvalid, "none of the 1 rows"));
}

TEST(ReadRaw, RefusesASizeThatDoesNotDivide) {
  EXPECT_THAT(ParsePointCloud(std::string(30, '\0'), "a.bin", {}),
              FailsWith(kInvalid, "a.bin: 30 bytes is not a multiple of the 16-byte row"));
  EXPECT_THAT(ParsePointCloud("", "a.bin", {}), FailsWith(kInvalid, "empty"));
}

TEST(ReadRaw, RefusesBitsOfAnotherDtype) {
  std::vector<double> doubles;
  for (int i = 1; i <= 100; ++i) doubles.insert(doubles.end(), {i * 0.3, i * 0.7, -1.7, 0.1 * i});
  const absl::StatusOr<PointCloud> as_f32 = ParsePointCloud(BytesOf(doubles), "d.bin", {});
  EXPECT_THAT(as_f32, FailsWith(kInvalid, "d.bin: is not a table of f32 x,y,z,intensity"));
  EXPECT_THAT(as_f32, FailsWith(kInvalid, "dtype_in f"));
  EXPECT_THAT(
      ParsePointCloud(BytesOf<float>({NAN, 1, 1, 1, 2e6, 1, 1, 1, 1, 2, 3, 4}), "h.bin", {}),
      FailsWith(kInvalid, "2 of 3 rows"));
}

TEST(ReadRaw, RefusesOptionsByName) {
  const auto parse = [](const std::string& fields, const std::string& dtype,
                        const std::string& name = "a.bin") {
    ReadOptions options;
    options.fields = fields;
    options.dtype_in = dtype;
    return ParsePointCloud(std::string(32, '\0'), name, options);
  };
  EXPECT_THAT(parse("", "f8"), FailsWith(kInvalid, "dtype_in f8: unknown; allowed: f16"));
  EXPECT_THAT(parse("x,y,i", ""), FailsWith(kInvalid, "has no 'z'"));
  EXPECT_THAT(parse("x,y,z,x", ""), FailsWith(kInvalid, "'x' is empty or repeated"));
  EXPECT_THAT(parse("x,y,z,", ""), FailsWith(kInvalid, "'' is empty or repeated"));
  EXPECT_THAT(parse("", "f16", "a.npy"), FailsWith(kInvalid, "dtype_in f16 has no meaning"));
  EXPECT_THAT(parse("x,y,z", "", "a.ply"), FailsWith(kInvalid, "fields x,y,z has no meaning"));
  EXPECT_THAT(parse("", "", "a.laz"),
              FailsWith(kInvalid, "unknown extension; allowed: .pcd.bin .bin"));
  ReadOptions array;
  array.array = "points";
  EXPECT_THAT(ParsePointCloud("", "a.bin", array), FailsWith(kInvalid, "array"));
}

TEST(ReadFile, RefusesWhatIsNotAReadableFile) {
  const TempFolder folder;
  EXPECT_THAT(ReadPointCloud(folder.Path("none.bin"), {}), FailsWith(kNotFound, "no such file"));
  EXPECT_THAT(ReadPointCloud(folder.Path(""), {}), FailsWith(kInvalid, "is a directory"));
  EXPECT_THAT(ReadPointCloud(folder.Write("empty.bin", ""), {}), FailsWith(kInvalid, "is empty"));
  EXPECT_THAT(ReadPointCloud("/dev/null", {}), FailsWith(kInvalid, "not a regular file"));
  const std::string closed = folder.Write("closed.bin", std::string(16, '\0'));
  std::filesystem::permissions(closed, std::filesystem::perms::none);
  if (geteuid() == 0) GTEST_SKIP() << "root may read every file";
  EXPECT_THAT(ReadPointCloud(closed, {}),
              FailsWith(absl::StatusCode::kPermissionDenied, "cannot be opened"));
}

TEST(ReadNpyPoints, TakesFloatTables) {
  const std::string table =
      *SerializeNpy(MakeNpyArray({2, 4}, std::vector<double>{1, 2, 3, 7, 4, 5, 6, 8}));
  const absl::StatusOr<PointCloud> cloud = ParsePointCloud(table, "a.npy", {});
  ASSERT_TRUE(cloud.ok()) << cloud.status();
  EXPECT_THAT(cloud->xyz, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(cloud->feature_names, ElementsAre("f0"));
  ReadOptions named;
  named.fields = "x,y,z,curvature";
  EXPECT_THAT(ParsePointCloud(table, "a.npy", named)->feature_names, ElementsAre("curvature"));
  named.fields = "x,y,z";
  EXPECT_THAT(ParsePointCloud(table, "a.npy", named),
              FailsWith(kInvalid, "names 3 columns, but the array has 4"));
}

TEST(ReadNpyPoints, RefusesOtherShapesAndDtypes) {
  const auto parse = [](const NpyArray& array) {
    return ParsePointCloud(*SerializeNpy(array), "a.npy", {});
  };
  EXPECT_THAT(parse(MakeNpyArray({4}, std::vector<float>(4))), FailsWith(kInvalid, "shape is [4]"));
  EXPECT_THAT(parse(MakeNpyArray({2, 2}, std::vector<float>(4))), FailsWith(kInvalid, "[2, 2]"));
  EXPECT_THAT(parse(MakeNpyArray({0, 3}, std::vector<float>())), FailsWith(kInvalid, "N >= 1"));
  EXPECT_THAT(parse(MakeNpyArray({1, 3}, std::vector<int32_t>(3))),
              FailsWith(kInvalid, "dtype is int32"));
}

TEST(ReadNpzPoints, ChoosesTheArray) {
  const TempFolder folder;
  const auto points = [](float x) { return MakeNpyArray({1, 3}, std::vector<float>{x, 0, 0}); };
  const std::string path = folder.Path("a.npz");
  ASSERT_TRUE(WriteNpz(path, {{"first", points(1)}, {"points", points(2)}}).ok());
  EXPECT_EQ(ReadPointCloud(path, {})->xyz[0], 2);
  ReadOptions options;
  options.array = "first";
  EXPECT_EQ(ReadPointCloud(path, options)->xyz[0], 1);
  options.array = "third";
  EXPECT_THAT(ReadPointCloud(path, options), FailsWith(kNotFound, "it holds first, points"));
  ASSERT_TRUE(WriteNpz(path, {{"only", points(3)}}).ok());
  EXPECT_EQ(ReadPointCloud(path, {})->xyz[0], 3);
  // The only table is the points, wherever it is.
  ASSERT_TRUE(WriteNpz(path, {{"label", MakeNpyArray({1}, std::vector<int32_t>(1))},
                              {"intensity", MakeNpyArray({1}, std::vector<float>(1))},
                              {"xyz", points(4)}})
                  .ok());
  EXPECT_EQ(ReadPointCloud(path, {})->xyz[0], 4);
}

TEST(PointCloud, MovesTheBoxsCentreToTheOrigin) {
  std::vector<double> xyz = {10, 0, 5, 14, 1, 5, 12, 4, 5};
  Centre(xyz);
  EXPECT_THAT(xyz, ElementsAre(-2, -2, 0, 2, -1, 0, 0, 2, 0));
  std::vector<double> none;
  Centre(none);
  EXPECT_TRUE(none.empty());
}

TEST(PointCloud, ScalesIntoTheUnitSphere) {
  std::vector<double> xyz = {10, 0, 0, 14, 0, 0, 12, 1, 0};
  ScaleIntoUnitSphere(xyz);
  EXPECT_DOUBLE_EQ(xyz[0] * xyz[0] + xyz[1] * xyz[1], 1.0);
  EXPECT_DOUBLE_EQ(xyz[0], -xyz[3]);
  std::vector<double> one = {5, 5, 5};
  ScaleIntoUnitSphere(one);
  EXPECT_THAT(one, ElementsAre(0, 0, 0));
}

TEST(ReadRaw, SuggestsTheNumberTypeThatFitsBest) {
  std::vector<double> rows;
  for (int i = 0; i < 50; ++i) rows.insert(rows.end(), {1.1 * i, 20.3 - i, 0.7, 0.5});
  const std::string bytes = BytesOf<double>(rows);
  const std::vector<std::string> fields = {"x", "y", "z", "intensity"};
  EXPECT_THAT(ParseRawPoints(bytes, {fields, RawDtype::kFloat32}, "a.bin"),
              FailsWith(kInvalid, "plausible as dtype_in f64"));
  // An array's file says what its numbers are.
  const absl::Status known =
      ParseRawPoints(BytesOf<double>(std::vector<double>(40, 1e30)),
                     {fields, RawDtype::kFloat64, /*dtype_known=*/true}, "a.npy")
          .status();
  EXPECT_THAT(std::string(known.message()), testing::Not(testing::HasSubstr("dtype_in")));
  EXPECT_THAT(ParseRawPoints(BytesOf<double>({1, 2, 3, 1e300}), {fields, RawDtype::kFloat64}, "b"),
              FailsWith(kInvalid, "past the range of float32"));
}

// UTM coordinates: x and y of hundreds of kilometres, beyond what a scan reaches from zero.
TEST(Georeferenced, AnOriginMakesAllFormatsReadable) {
  const TempFolder folder;
  std::vector<double> rows;
  for (int i = 0; i < 20; ++i) rows.insert(rows.end(), {3691234.5 + i, 5412345.25 - i, 512.0, 0.5});
  const std::vector<float> narrow(rows.begin(), rows.end());
  const std::vector<std::string> paths = {
      folder.Write("f64.npy", *SerializeNpy(MakeNpyArray({20, 4}, absl::MakeConstSpan(rows)))),
      folder.Write("f32.npy", *SerializeNpy(MakeNpyArray({20, 4}, absl::MakeConstSpan(narrow)))),
      folder.Write("a.npz",
                   *SerializeNpz({{"points", MakeNpyArray({20, 4}, absl::MakeConstSpan(rows))}})),
      folder.Write("a.bin", BytesOf(narrow))};
  for (const std::string& path : paths) {
    LoadOptions options;
    options.voxelize.size = {1, 1, 1};
    EXPECT_THAT(LoadInput(path, options),
                FailsWith(kInvalid, "need an origin near them, such as 3691234,5412345,512"));
    options.voxelize.origin = {3691234, 5412345, 500};
    const auto cloud = LoadInput(path, options);
    ASSERT_TRUE(cloud.ok()) << cloud.status();
    ASSERT_EQ(cloud->size(), 20) << path;
    EXPECT_EQ(cloud->coords[0], (Coordinate{0, 0, 0, 12}));
    EXPECT_EQ(cloud->coords[19], (Coordinate{0, 19, -19, 12}));
  }
  // Bits of another type are refused near a far origin, too.
  ReadOptions options;
  options.origin = {3691234, 5412345, 500};
  EXPECT_THAT(ParsePointCloud(BytesOf(rows), "a.bin", options), FailsWith(kInvalid, "not a table"));
}

}  // namespace
}  // namespace voxconv
