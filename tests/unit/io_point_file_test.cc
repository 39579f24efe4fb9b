// SPDX-License-Identifier: Apache-2.0
// PCD, XYZ and PTS files.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "io_test_util.h"
#include "voxconv/io/read_point_cloud.h"

namespace voxconv {
namespace {

using testing::ElementsAre;

absl::StatusOr<PointCloud> Read(const std::string& name, const std::string& content) {
  return ParsePointCloud(content, name, {});
}

std::string Pcd(int points, const std::string& data) {
  return absl::StrCat("VERSION 0.7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nWIDTH ",
                      points, "\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS ", points, "\n", data);
}

TEST(PointFile, ReadsAllFormats) {
  const absl::StatusOr<PointCloud> xyz = Read("a.xyz", "1 2 3\n4 5 6\n");
  ASSERT_TRUE(xyz.ok()) << xyz.status();
  EXPECT_THAT(xyz->xyz, ElementsAre(1, 2, 3, 4, 5, 6));
  const absl::StatusOr<PointCloud> more = Read("a.xyz", "1 2 3 0.5 7\n4 5 6 0.25 8\n");
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_THAT(more->feature_names, ElementsAre("f0", "f1"));
  EXPECT_THAT(more->features, ElementsAre(0.5, 7, 0.25, 8));
  const absl::StatusOr<PointCloud> normals = Read("a.xyzn", "1 2 3 0 0 1\n");
  ASSERT_TRUE(normals.ok()) << normals.status();
  EXPECT_THAT(normals->feature_names, ElementsAre("nx", "ny", "nz"));
  EXPECT_THAT(normals->features, ElementsAre(0, 0, 1));
  const absl::StatusOr<PointCloud> pcd = Read("a.pcd", Pcd(2, "DATA ascii\n1 2 3\nnan 5 6\n"));
  ASSERT_TRUE(pcd.ok()) << pcd.status();
  EXPECT_THAT(pcd->xyz, ElementsAre(1, 2, 3));
  EXPECT_EQ(pcd->dropped, 1);
}

TEST(PointFile, RefusesDamageInOneLine) {
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
              FailsWith(kDataLoss, "4 bytes do not unpack to 3221225472"));
  EXPECT_THAT(Read("a.pcd",
                   "FIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nPOINTS 1\n"
                   "WIDTH 1000000000\nHEIGHT 2\nDATA ascii\n1 2 3\n"),
              FailsWith(kDataLoss, "WIDTH 1000000000 and HEIGHT 2 do not give POINTS 1"));
  EXPECT_THAT(Read("a.pcd",
                   "FIELDS x y z\nSIZE 0 0 0\nTYPE F F F\nCOUNT 1 1 1\n"
                   "POINTS 2000000000\nDATA binary\n"),
              FailsWith(kDataLoss, "field 'x' has an unknown TYPE, SIZE or COUNT"));
  EXPECT_THAT(Read("a.pcd", "garbage\n"), FailsWith(kDataLoss, "no DATA line"));
  EXPECT_THAT(Read("a.xyz", "1 2 3\n4 5\n"), FailsWith(kDataLoss, "line 2"));
  EXPECT_THAT(Read("a.xyz", "1 2 3\n4 5 6 7\n"),
              FailsWith(kDataLoss, "line 2: is not of 3 numbers"));
  EXPECT_THAT(Read("a.xyz", "1 2 3 car\n"), FailsWith(kDataLoss, "line 1: is not of 4 numbers"));
  EXPECT_THAT(Read("a.xyz", "# nothing\n"), FailsWith(kInvalid, "no points"));
  EXPECT_THAT(Read("a.xyz", "nan 1 2\n"), FailsWith(kInvalid, "none of the 1 points"));
  EXPECT_THAT(Read("a.pts", "3\n1 2 3\n"), FailsWith(kDataLoss, "holds 1 rows"));
}

constexpr char kColored[] =
    "# .PCD\nVERSION 0.7\nFIELDS x y z rgb normal_x normal_y normal_z other\n"
    "SIZE 4 8 2 4 4 4 4 1\nTYPE F F I U F F F U\nCOUNT 1 1 1 1 1 1 1 2\nPOINTS 2\n";

std::string ColoredRow(float x) {
  return BytesOf<float>({x}) + BytesOf<double>({2.5}) + BytesOf<int16_t>({-3}) +
         BytesOf<uint32_t>({0x003366ff}) + BytesOf<float>({0, 0, 1}) + "ab";
}

void ExpectColored(const absl::StatusOr<PointCloud>& cloud) {
  ASSERT_TRUE(cloud.ok()) << cloud.status();
  EXPECT_THAT(cloud->xyz, ElementsAre(1, 2.5, -3, 4, 2.5, -3));
  EXPECT_THAT(cloud->feature_names, ElementsAre("r", "g", "b", "nx", "ny", "nz"));
  EXPECT_THAT(cloud->features, ElementsAre(0.2f, 0.4f, 1, 0, 0, 1, 0.2f, 0.4f, 1, 0, 0, 1));
}

TEST(Pcd, ReadsColoursAndNormalsInEachForm) {
  ExpectColored(Read("a.pcd", absl::StrCat(kColored,
                                           "DATA ascii\n1 2.5 -3 3368703 0 0 1 7 8\n"
                                           "4 2.5 -3 3368703 0 0 1 7 8\n")));
  const std::string rows = ColoredRow(1) + ColoredRow(4);
  ExpectColored(Read("a.pcd", absl::StrCat(kColored, "DATA binary\n", rows)));
  // Field after field: the first point's value as it is, then a copy of it where both agree.
  const std::string first = ColoredRow(1), second = ColoredRow(4);
  std::string fields, packed;
  size_t at = 0;
  for (const size_t size : {4, 8, 2, 4, 4, 4, 4, 2}) {
    const std::string a = first.substr(at, size), b = second.substr(at, size);
    at += size;
    fields += a + b;
    packed += static_cast<char>(size - 1) + a;
    if (a == b && size >= 3 && size <= 8) {
      // A copy of `size` bytes from `size` bytes back.
      packed += static_cast<char>((size - 2) << 5);
      packed += static_cast<char>(size - 1);
    } else {
      packed += static_cast<char>(size - 1) + b;
    }
  }
  const auto compressed = [&](const std::string& bytes, size_t size) {
    return absl::StrCat(
        kColored, "DATA binary_compressed\n",
        BytesOf<uint32_t>({static_cast<uint32_t>(bytes.size()), static_cast<uint32_t>(size)}),
        bytes);
  };
  ASSERT_LT(packed.size(), fields.size() + 16);
  ExpectColored(Read("a.pcd", compressed(packed, fields.size())));
  // Cut, or turned into other runs and copies: never past either end.
  for (size_t size = 0; size < packed.size(); ++size) {
    EXPECT_FALSE(Read("a.pcd", compressed(packed.substr(0, size), fields.size())).ok()) << size;
    std::string other = packed;
    for (const int byte : {0, 31, 32, 224, 255}) {
      other[size] = static_cast<char>(byte);
      (void)Read("a.pcd", compressed(other, fields.size()));
    }
  }
}

TEST(Pcd, RefusesWhatIsWrong) {
  const auto refused = [](const std::string& from, const std::string& to, const std::string& text) {
    const std::string good = Pcd(1, "DATA ascii\n1 2 3\n");
    ASSERT_TRUE(Read("a.pcd", good).ok());
    EXPECT_THAT(Read("a.pcd", absl::StrReplaceAll(good, {{from, to}})), FailsWith(kDataLoss, text));
  };
  refused("TYPE F F F", "TYPE F F", "do not agree");
  refused("TYPE F F F", "TYPE F F X", "field 'z' has an unknown TYPE");
  refused("TYPE F F F", "TYPE F F FF", "field 'z' has an unknown TYPE");
  refused("SIZE 4 4 4", "SIZE 4 4 3", "field 'z' has an unknown TYPE, SIZE");
  refused("SIZE 4 4 4", "SIZE 4 4 -4", "bad SIZE line");
  refused("COUNT 1 1 1", "COUNT 1 1 0", "field 'z' has an unknown TYPE, SIZE or COUNT");
  refused("COUNT 1 1 1", "COUNT 1 1 99999", "field 'z' has an unknown TYPE, SIZE or COUNT");
  refused("FIELDS x y z", "FIELDS x y w", "has no field x, y or z");
  refused("1 2 3", "1 2", "row 0 is not of 3 numbers");
  refused("1 2 3", "1 2 x", "row 0 is not of 3 numbers");
  refused("DATA ascii", "DATA packed", "DATA 'packed'; allowed are ascii");
}

TEST(Pts, ReadsColoursOverIntensities) {
  const auto cloud = Read("a.pts", "2\n1 2 3 -9 0 51 255\n4 5 6 7 255 0 0\n");
  ASSERT_TRUE(cloud.ok()) << cloud.status();
  EXPECT_THAT(cloud->xyz, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(cloud->features, ElementsAre(0, 0.2f, 1, 1, 0, 0));
  EXPECT_THAT(Read("a.pts", "1\n1 2 3 4 5\n"), FailsWith(kDataLoss, "3, 4, 6 or 7 numbers"));
  EXPECT_THAT(Read("a.pts", "2\n1 2 3\n1 2 3 4\n"), FailsWith(kDataLoss, "as in the first row"));
  EXPECT_THAT(Read("a.pts", "many\n1 2 3\n"), FailsWith(kDataLoss, "not the number of points"));
}

}  // namespace
}  // namespace voxconv
