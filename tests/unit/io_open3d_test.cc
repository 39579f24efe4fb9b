// The formats that are read through Open3D.
#include "absl/strings/str_cat.h"
#include "io/read_point_cloud.h"
#include "io_test_util.h"

namespace voxconv {
namespace {

using testing::ElementsAre;

class Open3dFormats : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = folder_.Write("probe.xyz", "1 2 3\n");
    if (absl::IsUnimplemented(ReadPointCloud(path, {}).status())) {
      GTEST_SKIP() << "this build has no Open3D";
    }
  }

  // Reads a file of that content and checks that nothing was printed on the way.
  absl::StatusOr<PointCloud> Read(const std::string& name, const std::string& content,
                                  const ReadOptions& options = {}) {
    const std::string path = folder_.Write(name, content);
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    absl::StatusOr<PointCloud> cloud = ReadPointCloud(path, options);
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "") << name;
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << name;
    return cloud;
  }

  TempFolder folder_;
};

std::string Pcd(int points, const std::string& data) {
  return absl::StrCat("VERSION 0.7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nWIDTH ",
                      points, "\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS ", points, "\n", data);
}

TEST_F(Open3dFormats, PointFormats) {
  const absl::StatusOr<PointCloud> xyz = Read("a.xyz", "1 2 3\n4 5 6\n");
  ASSERT_TRUE(xyz.ok()) << xyz.status();
  EXPECT_THAT(xyz->xyz, ElementsAre(1, 2, 3, 4, 5, 6));
  const absl::StatusOr<PointCloud> normals = Read("a.xyzn", "1 2 3 0 0 1\n");
  ASSERT_TRUE(normals.ok()) << normals.status();
  EXPECT_THAT(normals->feature_names, ElementsAre("nx", "ny", "nz"));
  EXPECT_THAT(normals->features, ElementsAre(0, 0, 1));
  const absl::StatusOr<PointCloud> pcd = Read("a.pcd", Pcd(2, "DATA ascii\n1 2 3\nnan 5 6\n"));
  ASSERT_TRUE(pcd.ok()) << pcd.status();
  EXPECT_THAT(pcd->xyz, ElementsAre(1, 2, 3));
  EXPECT_EQ(pcd->dropped, 1);
}

TEST_F(Open3dFormats, RefusesDamageInOneSilentLine) {
  EXPECT_THAT(Read("a.pcd", Pcd(3, "DATA ascii\n1 2 3\n")),
              FailsWith(kDataLoss, "holds 1 rows, but its header says 3"));
  EXPECT_THAT(Read("a.pcd", Pcd(3, "DATA binary\n1234")),
              FailsWith(kDataLoss, "truncated: 4 data bytes of 36"));
  EXPECT_THAT(Read("a.pcd", Pcd(1, "DATA binary_compressed\n") + BytesOf<uint32_t>({99, 12})),
              FailsWith(kDataLoss, "truncated: 8 data bytes of 107"));
  EXPECT_THAT(Read("a.pcd", Pcd(9, "DATA binary_compressed\n") + BytesOf<uint32_t>({0, 12})),
              FailsWith(kDataLoss, "unpacks to 12 bytes, but its header says 108"));
  const uint32_t giant = uint32_t{12} << 28;
  EXPECT_THAT(Read("a.pcd", Pcd(1 << 28, "DATA binary_compressed\n") +
                                BytesOf<uint32_t>({4, giant}) + "abcd"),
              FailsWith(kDataLoss, "4 bytes cannot unpack to 3221225472"));
  EXPECT_THAT(Read("a.pcd",
                   "FIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nPOINTS 1\n"
                   "WIDTH 1000000000\nHEIGHT 2\nDATA ascii\n1 2 3\n"),
              FailsWith(kDataLoss, "WIDTH 1000000000 and HEIGHT 2 do not give POINTS 1"));
  EXPECT_THAT(Read("a.pcd",
                   "FIELDS x y z\nSIZE 0 0 0\nTYPE F F F\nCOUNT 1 1 1\n"
                   "POINTS 2000000000\nDATA binary\n"),
              FailsWith(kDataLoss, "the fields have no bytes"));
  EXPECT_THAT(Read("a.pcd", "garbage\n"), FailsWith(kDataLoss, "no DATA line"));
  EXPECT_THAT(Read("a.xyz", "1 2 3\n4 5\n"), FailsWith(kDataLoss, "line 2"));
  EXPECT_THAT(Read("a.xyz", "# nothing\n"), FailsWith(kInvalid, "no points"));
  EXPECT_THAT(Read("a.xyz", "nan 1 2\n"), FailsWith(kInvalid, "none of the 1 points"));
  EXPECT_THAT(Read("a.pts", "3\n1 2 3\n"), FailsWith(kDataLoss, "holds 1 rows"));
}

}  // namespace
}  // namespace voxconv
