// The formats that are read through Open3D, and the mesh sampler.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "io/read_point_cloud.h"
#include "io/sample_mesh.h"
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

std::string Ply(const std::string& elements, const std::string& body) {
  return absl::StrCat("ply\nformat ascii 1.0\n", elements, "end_header\n", body);
}

constexpr char kVertices[] =
    "element vertex 4\nproperty float x\nproperty float y\nproperty float z\n";
constexpr char kFaces[] = "element face 2\nproperty list uchar int vertex_indices\n";
constexpr char kSquare[] = "0 0 0\n1 0 0\n1 1 0\n0 1 0\n";

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
  const absl::StatusOr<PointCloud> ply = Read("a.ply", Ply(kVertices, kSquare));
  ASSERT_TRUE(ply.ok()) << ply.status();
  EXPECT_EQ(ply->size(), 4);
}

TEST_F(Open3dFormats, MeshesAreSampled) {
  ReadOptions options;
  options.samples = 500;
  options.seed = 3;
  const std::string square =
      Ply(absl::StrCat(kVertices, kFaces), absl::StrCat(kSquare, "3 0 1 2\n3 0 2 3\n"));
  const absl::StatusOr<PointCloud> cloud = Read("square.ply", square, options);
  ASSERT_TRUE(cloud.ok()) << cloud.status();
  EXPECT_EQ(cloud->size(), 500);
  EXPECT_THAT(cloud->feature_names, ElementsAre("nx", "ny", "nz"));
  EXPECT_EQ(cloud->features[2], 1.0f);
  EXPECT_EQ(Read("square.ply", square, options)->xyz, cloud->xyz);
  options.into_unit_sphere = true;
  EXPECT_THAT(Read("square.ply", square, options)->xyz,
              testing::Each(testing::AllOf(testing::Ge(-1.0), testing::Le(1.0))));
  EXPECT_TRUE(Read("a.obj", "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n", options).ok());
  options.samples = 0;
  EXPECT_THAT(Read("square.ply", square, options), FailsWith(kInvalid, "samples = 0"));
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
  EXPECT_THAT(Read("a.pcd", "garbage\n"), FailsWith(kDataLoss, "no DATA line"));
  EXPECT_THAT(Read("a.xyz", "1 2 3\n4 5\n"), FailsWith(kDataLoss, "line 2"));
  EXPECT_THAT(Read("a.xyz", "# nothing\n"), FailsWith(kInvalid, "no points"));
  EXPECT_THAT(Read("a.xyz", "nan 1 2\n"), FailsWith(kInvalid, "none of the 1 points"));
  EXPECT_THAT(Read("a.pts", "3\n1 2 3\n"), FailsWith(kDataLoss, "holds 1 rows"));
  EXPECT_THAT(Read("a.obj", "garbage\n"), FailsWith(kDataLoss, "cannot be read"));
  EXPECT_THAT(Read("a.stl", "garbage\n"), FailsWith(kDataLoss, "cannot be read"));
  EXPECT_THAT(Read("a.off", "garbage\n"), FailsWith(kDataLoss, "cannot be read"));
  EXPECT_THAT(Read("a.glb", "garbage\n"), FailsWith(kDataLoss, "cannot be read"));
  EXPECT_THAT(Read("a.obj", "v 0 0 0\nv 1 0 0\n"), FailsWith(kInvalid, "no triangles"));
  EXPECT_THAT(Read("a.ply", ""), FailsWith(kInvalid, "empty"));
}

TEST_F(Open3dFormats, RefusesDamagedPly) {
  const std::string both = absl::StrCat(kVertices, kFaces);
  EXPECT_THAT(Read("a.ply", "garbage\n"), FailsWith(kInvalid, "not a PLY file"));
  EXPECT_THAT(Read("a.ply", "ply\nformat ascii 1.0\n"), FailsWith(kDataLoss, "no end_header"));
  EXPECT_THAT(Read("a.ply", Ply("element vertex many\n", "")), FailsWith(kInvalid, "vertex many"));
  EXPECT_THAT(Read("a.ply", Ply(kVertices, "0 0 0\n1 0 0\n")),
              FailsWith(kDataLoss, "'vertex' row 2 of 4"));
  EXPECT_THAT(Read("a.ply", Ply(both, absl::StrCat(kSquare, "3 0 1 2\n3 0 2"))),
              FailsWith(kDataLoss, "'face' row 1 of 2"));
  EXPECT_THAT(Read("a.ply", Ply(both, absl::StrCat(kSquare, "3 0 1 2\n3 0 2 9\n"))),
              FailsWith(kInvalid, "vertex 9; there are 4 at 'face' row 1 of 2"));
}

// Open3D ends with a signal at most of these, and misreads the others.
TEST_F(Open3dFormats, RefusesPlyThatOpen3dDiesOf) {
  const std::string both = absl::StrCat(kVertices, kFaces);
  const auto faces = [&](const std::string& rows) {
    return Read("a.ply", Ply(both, absl::StrCat(kSquare, rows)));
  };
  EXPECT_THAT(faces("0\n3 0 1 2\n"), FailsWith(kInvalid, "a face of 0 vertices"));
  EXPECT_THAT(faces("2 0 1\n3 0 1 2\n"), FailsWith(kInvalid, "a face of 2 vertices"));
  EXPECT_THAT(faces("4 0 1 2 -1\n3 0 1 2\n"), FailsWith(kInvalid, "vertex -1; there are 4"));
  EXPECT_THAT(faces("4 0 1 2 4\n3 0 1 2\n"), FailsWith(kInvalid, "vertex 4; there are 4"));
  EXPECT_THAT(Read("a.ply", Ply("element vertex 0\nproperty float x\nproperty float y\n"
                                "property float z\nelement face 1\n"
                                "property list uchar int vertex_indices\n",
                                "3 0 1 2\n")),
              FailsWith(kInvalid, "vertex 0; there are 0"));
  EXPECT_THAT(Read("a.ply", Ply(both, absl::StrCat(kSquare, "3 0 1 ", std::string(5000, '1')))),
              FailsWith(kDataLoss, "'face' row 0"));
  for (const size_t length : {300, 1100, 100000}) {
    const std::string word(length, 'x');
    EXPECT_THAT(Read("a.ply", Ply(absl::StrCat("comment ", word, "\n", kVertices), kSquare)),
                FailsWith(kInvalid, "PLY header has a line of"));
    EXPECT_THAT(Read("a.ply", Ply(absl::StrCat(kVertices, "property float ", word, "\n"), "")),
                FailsWith(kInvalid, "PLY header has a line of"));
  }
  EXPECT_THAT(Read("a.ply", Ply(absl::StrCat(kVertices, kVertices), "")),
              FailsWith(kInvalid, "'vertex' stands twice"));
  EXPECT_THAT(Read("a.ply", Ply("element vertex 9000000000000000000\n", "")),
              FailsWith(kInvalid, "has no properties"));
  EXPECT_THAT(Read("a.ply", Ply("element vertex 1\nproperty list uchar float x\n"
                                "property float y\nproperty float z\n",
                                "0 1 2\n")),
              FailsWith(kInvalid, "'x' as a list"));
  EXPECT_THAT(Read("a.ply", Ply(absl::StrCat(kVertices,
                                             "element face 1\n"
                                             "property int vertex_indices\n"),
                                absl::StrCat(kSquare, "1\n"))),
              FailsWith(kInvalid, "no list of integers"));
}

TEST_F(Open3dFormats, ReadsAndRefusesBinaryPly) {
  const auto ply = [](const std::string& format, const std::string& face) {
    return absl::StrCat("ply\nformat ", format, " 1.0\nelement vertex 3\nproperty float x\n",
                        "property float y\nproperty float z\nelement face 1\n",
                        "property list uchar int vertex_indices\nend_header\n",
                        BytesOf<float>({0, 0, 0, 1, 0, 0, 0, 1, 0}), face);
  };
  const std::string little = "binary_little_endian";
  EXPECT_TRUE(Read("a.ply", ply(little, absl::StrCat("\x03", BytesOf<int32_t>({0, 1, 2})))).ok());
  EXPECT_THAT(Read("a.ply", ply(little, std::string(1, '\0'))), FailsWith(kInvalid, "face of 0"));
  EXPECT_THAT(Read("a.ply", ply(little, absl::StrCat("\x03", BytesOf<int32_t>({0, 1, -2})))),
              FailsWith(kInvalid, "a face with vertex"));
  EXPECT_THAT(Read("a.ply", ply(little, absl::StrCat("\x04", BytesOf<int32_t>({0, 1, 2})))),
              FailsWith(kDataLoss, "'face' row 0"));
}

Mesh Square() {
  Mesh mesh;
  mesh.vertices = {0, 0, 0, 2, 0, 0, 2, 2, 0, 0, 2, 0};
  mesh.triangles = {{0, 1, 2}, {0, 2, 3}};
  return mesh;
}

TEST(SampleMesh, IsUniformOverTheArea) {
  const absl::StatusOr<PointCloud> cloud = SampleMesh(Square(), 40'000, 1, "square");
  ASSERT_TRUE(cloud.ok()) << cloud.status();
  int quadrants[4] = {0, 0, 0, 0};
  for (int64_t i = 0; i < cloud->size(); ++i) {
    const double x = cloud->xyz[3 * i], y = cloud->xyz[3 * i + 1];
    ASSERT_TRUE(x >= 0 && x <= 2 && y >= 0 && y <= 2);
    ++quadrants[(x >= 1 ? 1 : 0) + (y >= 1 ? 2 : 0)];
  }
  for (const int count : quadrants) EXPECT_NEAR(count, 10'000, 400);
}

TEST(SampleMesh, InterpolatesNormalsAndColours) {
  Mesh mesh = Square();
  mesh.normals = {1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0};
  mesh.colors = {0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0};
  const absl::StatusOr<PointCloud> cloud = SampleMesh(mesh, 100, 1, "square");
  ASSERT_TRUE(cloud.ok()) << cloud.status();
  EXPECT_THAT(cloud->feature_names, ElementsAre("nx", "ny", "nz", "r", "g", "b"));
  for (int64_t i = 0; i < cloud->size(); ++i) {
    EXPECT_FLOAT_EQ(cloud->features[6 * i], 1);                            // the vertices' normal
    EXPECT_NEAR(cloud->features[6 * i + 3], cloud->xyz[3 * i] / 2, 1e-6);  // red grows with x
  }
}

TEST(SampleMesh, RefusesImpossibleMeshes) {
  EXPECT_THAT(SampleMesh({}, 10, 0, "m"), FailsWith(kInvalid, "m: the mesh has no triangles"));
  Mesh mesh = Square();
  mesh.triangles[1][2] = 4;
  EXPECT_THAT(SampleMesh(mesh, 10, 0, "m"), FailsWith(kInvalid, "vertex 4"));
  mesh = Square();
  mesh.vertices[0] = NAN;
  EXPECT_THAT(SampleMesh(mesh, 10, 0, "m"), FailsWith(kInvalid, "NaN"));
  mesh = Square();
  for (double& value : mesh.vertices) value = 0;
  EXPECT_THAT(SampleMesh(mesh, 10, 0, "m"), FailsWith(kInvalid, "area is 0"));
}

}  // namespace
}  // namespace voxconv
