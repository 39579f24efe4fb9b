// SPDX-License-Identifier: Apache-2.0
// PLY, OBJ, OFF, STL and glTF files, and the mesh sampler.
#include <sys/stat.h>

#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "io_test_util.h"
#include "voxconv/io/load_input.h"
#include "voxconv/io/mesh_file.h"
#include "voxconv/io/read_point_cloud.h"
#include "voxconv/io/sample_mesh.h"

namespace voxconv {
namespace {

using io_internal::ParseObj;
using io_internal::ParseOff;
using io_internal::ParseStl;
using testing::ElementsAre;
using testing::SizeIs;

absl::StatusOr<PointCloud> Read(const std::string& name, const std::string& content,
                                const ReadOptions& options = {}) {
  return ParsePointCloud(content, name, options);
}

std::string Ply(const std::string& elements, const std::string& body) {
  return absl::StrCat("ply\nformat ascii 1.0\n", elements, "end_header\n", body);
}

constexpr char kVertices[] =
    "element vertex 4\nproperty float x\nproperty float y\nproperty float z\n";
constexpr char kFaces[] = "element face 2\nproperty list uchar int vertex_indices\n";
constexpr char kSquare[] = "0 0 0\n1 0 0\n1 1 0\n0 1 0\n";

TEST(MeshFile, IsSampled) {
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

TEST(Ply, RefusesDamage) {
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

TEST(Ply, RefusesWrongFaces) {
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

TEST(Ply, ReadsAndRefusesBinaryFiles) {
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

// Colours are shares of their type's range; longer lines than any fixed buffer are read.
TEST(Ply, ReadsPointsWithFeaturesAndLongLines) {
  const std::string word(100'000, 'x');
  const std::string header = absl::StrCat(
      "comment ", word, "\nelement vertex 2\nproperty float x\nproperty double y\n",
      "property short z\nproperty uchar red\nproperty uchar green\nproperty uchar blue\n",
      "property float nx\nproperty float ny\nproperty float nz\nproperty int ", word, "\n");
  const auto cloud = Read("a.ply", Ply(header, "1 2 3 0 51 255 0 0 1 7\n4 5 -6 0 0 0 1 0 0 8\n"));
  ASSERT_TRUE(cloud.ok()) << cloud.status();
  EXPECT_THAT(cloud->xyz, ElementsAre(1, 2, 3, 4, 5, -6));
  EXPECT_THAT(cloud->feature_names, ElementsAre("r", "g", "b", "nx", "ny", "nz"));
  EXPECT_THAT(cloud->features, ElementsAre(0, 0.2f, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0));
  EXPECT_THAT(Read("a.ply", Ply("element vertex 1\nproperty float x\nproperty float y\n", "1 2\n")),
              FailsWith(kInvalid, "has no property 'z'"));
  EXPECT_THAT(Read("a.ply", Ply("element vertex 0\nproperty float x\nproperty float y\n"
                                "property float z\n",
                                "")),
              FailsWith(kInvalid, "holds no points"));
  EXPECT_THAT(Read("a.ply", Ply(absl::StrCat(kVertices,
                                             "element tristrips 1\n"
                                             "property list int int vertex_indices\n"),
                                absl::StrCat(kSquare, "3 0 1 2\n"))),
              FailsWith(kInvalid, "triangle strips"));
}

double Area(const Mesh& mesh) {
  double area = 0;
  for (const auto& [a, b, c] : mesh.triangles) {
    const auto edge = [&, a = a](int32_t to, int axis) {
      return mesh.vertices[3 * to + axis] - mesh.vertices[3 * a + axis];
    };
    double square = 0;
    for (int axis = 0; axis < 3; ++axis) {
      const int u = (axis + 1) % 3, v = (axis + 2) % 3;
      const double side = edge(b, u) * edge(c, v) - edge(b, v) * edge(c, u);
      square += side * side;
    }
    area += std::sqrt(square) / 2;
  }
  return area;
}

// A floor of quads 20 m wide beside one small triangle.
std::string QuadsBesideATriangle() {
  std::string obj = "mtllib of_no_matter.mtl\no quads\n";
  for (int x = 0; x <= 20; ++x) {
    for (int y = 0; y <= 20; ++y) absl::StrAppend(&obj, "v ", x, " ", y, " 0\n");
  }
  for (int x = 0; x < 20; ++x) {
    for (int y = 0; y < 20; ++y) {
      const int at = 21 * x + y + 1;
      absl::StrAppend(&obj, "f ", at, " ", at + 21, " ", at + 22, " ", at + 1, "\n");
    }
  }
  absl::StrAppend(&obj, "o triangle\nv 30 0 0\nv 30.1 0 0\nv 30 0.1 0\nusemtl none\n",
                  "f -3//1 -2//1 -1//1\n");
  return "vn 0 0 1\n" + obj;
}

TEST(Obj, ReadsPolygonsOfAllSizesAndObjects) {
  const auto mesh = ParseObj(QuadsBesideATriangle(), "a.obj");
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_THAT(mesh->triangles, SizeIs(801));
  EXPECT_NEAR(Area(*mesh), 400.005, 1e-9);
  const TempFolder folder;
  LoadOptions options;
  options.voxelize.size = {1, 1, 1};
  const auto voxels = LoadInput(folder.Write("a.obj", QuadsBesideATriangle()), options);
  ASSERT_TRUE(voxels.ok()) << voxels.status();
  EXPECT_GE(voxels->size(), 400);
}

TEST(Obj, NeverOpensTheFilesThatItNames) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo(folder.Path("pipe").c_str(), 0600), 0);
  for (const char* named : {"pipe", "/etc/passwd", "/dev/zero", ""}) {
    const std::string obj =
        absl::StrCat("mtllib ", named, "\nv 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n");
    EXPECT_TRUE(ReadPointCloud(folder.Write("a.obj", obj), {}).ok()) << named;
  }
}

TEST(Obj, CutsConcavePolygonsInside) {
  // An L of area 3 and, upright, a star whose fan would leave it.
  const auto l =
      ParseObj("v 0 0 0\nv 2 0 0\nv 2 1 0\nv 1 1 0\nv 1 2 0\nv 0 2 0\nf 3 4 5 6 1 2\n", "l");
  ASSERT_TRUE(l.ok()) << l.status();
  EXPECT_NEAR(Area(*l), 3, 1e-12);
  EXPECT_THAT(l->triangles, SizeIs(4));
  std::string star, face = "f";
  double expected = 0;
  for (int i = 0; i < 10; ++i) {
    const double radius = i % 2 == 0 ? 2 : 0.5, angle = M_PI * i / 5;
    absl::StrAppend(&star, "v 3 ", radius * std::cos(angle), " ", radius * std::sin(angle), "\n");
    absl::StrAppend(&face, " ", i + 1);
    expected += 0.5 * 2 * 0.5 * std::sin(M_PI / 5);
  }
  const auto cut = ParseObj(absl::StrCat(star, face, "\n"), "star");
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_NEAR(Area(*cut), expected, 1e-4);
}

TEST(Obj, ReadsContinuedLinesNormalsAndColours) {
  const auto mesh = ParseObj(
      "v 0 0 0 1 0 0\nv 1 0 0 0 1 0\r\nv 0 1 \\\n 0 0 0 1\nvn 0 0 2\nvt 0 0\nf 1/1/1 2/1/1 "
      "\\\r\n 3/1/1 # a comment\n",
      "a.obj");
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_THAT(mesh->vertices, ElementsAre(0, 0, 0, 1, 0, 0, 0, 1, 0));
  EXPECT_THAT(mesh->colors, ElementsAre(1, 0, 0, 0, 1, 0, 0, 0, 1));
  EXPECT_THAT(mesh->normals, ElementsAre(0, 0, 2, 0, 0, 2, 0, 0, 2));
}

TEST(Obj, RefusesWhatIsWrong) {
  const std::string three = "v 0 0 0\nv 1 0 0\nv 0 1 0\n";
  const auto refused = [&](const std::string& rest, const std::string& text) {
    EXPECT_THAT(ParseObj(three + rest, "a.obj"), FailsWith(kDataLoss, text)) << rest;
  };
  EXPECT_THAT(ParseObj(three + "f 1 2 4\n", "a.obj"),
              FailsWith(kInvalid, "face 0 has vertex 3; there are 3, counted from 0"));
  EXPECT_THAT(ParseObj(three + "f 1//1 2//1 3//1\n", "a.obj"),
              FailsWith(kInvalid, "a face names normal 1; there are 0"));
  refused("f 1 2 0\n", "line 4: a face with vertex '0'; there are 3 before it");
  refused("f 1 2 -4\n", "vertex '-4'");
  refused("f 1 2 99999999999999999999\n", "vertex '9999");
  refused("f 1 2\n", "a face of 2 vertices");
  refused("f\n", "a face of 0 vertices");
  refused("f 1//0 2//1 3//1\n", "normal '1//0'; there are 0 before it");
  refused("v 1 2\n", "a vertex of 2 values");
  refused("v 1 2 x\n", "not of numbers");
  refused("garbage\n", "'garbage' is no OBJ statement");
  refused("surf 0 1\n", "'surf' is no OBJ statement");
  refused(std::string(100'000, 'f') + "\n", "is no OBJ statement");
  EXPECT_THAT(Read("a.obj", "v 0 0 0\nv 1 0 0\n"), FailsWith(kInvalid, "no triangles"));
  EXPECT_THAT(Read("a.obj", three + "v nan 0 0\nf 1 2 4\n"), FailsWith(kInvalid, "NaN or Inf"));
}

constexpr char kOffSquare[] = "0 0 0\n1 0 0\n1 1 0\n0 1 0\n";

TEST(Off, ReadsAllHeads) {
  for (const char* head : {"OFF\n4 1 0\n", "OFF 4 1 0\n", "OFF4 1 0\n", "# c\nOFF # c\n\n4 1\n"}) {
    const auto mesh = ParseOff(absl::StrCat(head, kOffSquare, "4 0 1 2 3\n"), "a.off");
    ASSERT_TRUE(mesh.ok()) << head << mesh.status();
    EXPECT_NEAR(Area(*mesh), 1, 1e-12);
  }
  const auto colored = ParseOff(
      "CNOFF\n3 1 0\n0 0 0 0 0 1 255 0 0 255\n1 0 0 0 0 1 0 255 0 255\n0 1 0 0 0 1 0 0 51 255\n"
      "3 0 1 2 9 9 9\n",
      "a.off");
  ASSERT_TRUE(colored.ok()) << colored.status();
  EXPECT_THAT(colored->normals, ElementsAre(0, 0, 1, 0, 0, 1, 0, 0, 1));
  EXPECT_THAT(colored->colors, ElementsAre(1, 0, 0, 0, 1, 0, 0, 0, 0.2));
}

TEST(Off, RefusesWhatIsWrong) {
  const auto refused = [&](const std::string& off, absl::StatusCode code, const std::string& text) {
    EXPECT_THAT(ParseOff(off, "a.off"), FailsWith(code, text)) << off;
  };
  const std::string square = absl::StrCat("OFF\n4 1 0\n", kOffSquare);
  refused("garbage\n", kDataLoss, "'garbage' is none of");
  refused("", kDataLoss, "is not an OFF file");
  refused("OFF\n", kDataLoss, "counts are missing");
  refused("OFF\n-1 1 0\n", kDataLoss, "needs the numbers");
  refused("OFF BINARY\n", kDataLoss, "needs the numbers");
  refused("OFF\n4000000000000 1 0\n0 0 0\n", kDataLoss, "truncated at vertex 1 of");
  refused(square, kDataLoss, "truncated at face 0 of 1");
  refused(square + "0\n", kDataLoss, "a face of '0' corners");
  refused(square + "2 0 1\n", kDataLoss, "a face of '2' corners");
  refused(square + "-3 0 1 2\n", kDataLoss, "a face of '-3' corners");
  refused(square + "9000000000000000000 0 1 2\n", kDataLoss, "lists 3");
  refused(square + "3 0 1\n", kDataLoss, "lists 2");
  refused(square + "3 0 1 x\n", kDataLoss, "vertex 'x'");
  refused(square + "3 0 1 4\n", kInvalid, "face 0 has vertex 4; there are 4");
  refused(square + "4 0 1 2 -1\n", kInvalid, "face 0 has vertex -1");
  refused("OFF\n1 0 0\n1 2\n", kDataLoss, "too few numbers");
  refused("OFF\n1 0 0\n1 2 " + std::string(100'000, '3') + "x\n", kDataLoss, "too few numbers");
}

std::string BinaryStl(uint32_t facets, size_t written) {
  std::string stl = "solid, as some binary files begin";
  stl.resize(80, ' ');
  stl += BytesOf<uint32_t>({facets});
  for (size_t i = 0; i < written; ++i) {
    stl += BytesOf<float>({0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0}) + std::string(2, '\0');
  }
  return stl;
}

TEST(Stl, ReadsTextAndBinary) {
  const auto text = ParseStl(
      "solid a name\n facet normal 0 0 1\n outer loop\n vertex 0 0 0\n vertex 1 0 0\n"
      " vertex 0 1e0 0\n endloop\n endfacet\nendsolid a name\n",
      "a.stl");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_NEAR(Area(*text), 0.5, 1e-12);
  const auto binary = ParseStl(BinaryStl(3, 3), "a.stl");
  ASSERT_TRUE(binary.ok()) << binary.status();
  EXPECT_NEAR(Area(*binary), 1.5, 1e-12);
}

TEST(Stl, RefusesWhatIsWrong) {
  EXPECT_THAT(ParseStl("garbage\n", "a.stl"), FailsWith(kDataLoss, "is not an STL file"));
  EXPECT_THAT(ParseStl(std::string(200, 'x'), "a.stl"), FailsWith(kDataLoss, "facets take"));
  EXPECT_THAT(ParseStl(std::string(84, 'x'), "a.stl"), FailsWith(kDataLoss, "facets take"));
  const auto text = [](const std::string& rest) { return ParseStl("solid\n" + rest, "a.stl"); };
  EXPECT_THAT(text("outer loop\nvertex 0 0 0\n"), FailsWith(kDataLoss, "truncated"));
  EXPECT_THAT(text("outer loop\nvertex 0 0\n"), FailsWith(kDataLoss, "line 3"));
  EXPECT_THAT(text("vertex 0 0 0\n"), FailsWith(kDataLoss, "line 2"));
  EXPECT_THAT(text("outer loop\nendloop\n"), FailsWith(kDataLoss, "three vertices"));
  EXPECT_THAT(text("outer loop\nouter loop\n"), FailsWith(kDataLoss, "within a loop"));
  EXPECT_THAT(text("face\n"), FailsWith(kDataLoss, "'face' is no STL statement"));
}

std::string Base64(const std::string& bytes) { return absl::Base64Escape(bytes); }

struct GltfParts {
  std::string buffer = BytesOf<float>({0, 0, 0, 1, 0, 0, 0, 1, 0}) + BytesOf<uint16_t>({0, 1, 2});
  std::string uri;  // empty: the buffer as data
  std::string views = R"({"buffer":0,"byteLength":36},{"buffer":0,"byteOffset":36,"byteLength":6})";
  std::string positions = R"({"bufferView":0,"componentType":5126,"count":3,"type":"VEC3"})";
  std::string indices = R"({"bufferView":1,"componentType":5123,"count":3,"type":"SCALAR"})";
  std::string primitive = R"({"attributes":{"POSITION":0},"indices":1})";
  std::string nodes = R"({"mesh":0})";
  std::string more;
};
std::string Gltf(const GltfParts& p) {
  const std::string uri =
      p.uri.empty() ? "data:application/octet-stream;base64," + Base64(p.buffer) : p.uri;
  return absl::StrCat(R"({"asset":{"version":"2.0"},"buffers":[{"byteLength":)", p.buffer.size(),
                      R"(,"uri":")", uri, R"("}],"bufferViews":[)", p.views, R"(],"accessors":[)",
                      p.positions, ",", p.indices, R"(],"meshes":[{"primitives":[)", p.primitive,
                      R"(]}],"nodes":[)", p.nodes, "]", p.more, "}");
}
absl::StatusOr<Mesh> ParseGltf(const std::string& bytes) {
  return io_internal::ParseGltf(bytes, "a.gltf", [](const std::string& file) {
    return absl::NotFoundError(file + ": no such file");
  });
}

TEST(Gltf, ReadsTrianglesWithTheirTransforms) {
  const auto plain = ParseGltf(Gltf({}));
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_THAT(plain->vertices, ElementsAre(0, 0, 0, 1, 0, 0, 0, 1, 0));
  EXPECT_THAT(plain->triangles, ElementsAre(std::array<int32_t, 3>{0, 1, 2}));
  GltfParts parts;
  // A quarter turn about z and a scale of 2, moved by the parent.
  parts.nodes =
      R"({"children":[1],"translation":[10,20,30]},)"
      R"({"mesh":0,"scale":[2,2,2],"rotation":[0,0,0.70710678118654752,0.70710678118654752]})";
  const auto moved = ParseGltf(Gltf(parts));
  ASSERT_TRUE(moved.ok()) << moved.status();
  const std::vector<double> expected = {10, 20, 30, 10, 22, 30, 8, 20, 30};
  ASSERT_THAT(moved->vertices, SizeIs(9));
  for (int i = 0; i < 9; ++i) EXPECT_NEAR(moved->vertices[i], expected[i], 1e-12) << i;
  parts = {};
  parts.more = R"(,"scenes":[{"nodes":[]}],"scene":0)";
  EXPECT_THAT(ParseGltf(Gltf(parts))->triangles, testing::IsEmpty());
}

TEST(Gltf, ReadsBinaryFilesAndFilesBeside) {
  GltfParts parts;
  std::string json = Gltf(parts);
  const size_t uri = json.find(",\"uri\"");
  json.erase(uri, json.find('}', uri) - uri);
  json.resize((json.size() + 3) / 4 * 4, ' ');
  std::string bin = parts.buffer;
  bin.resize(44);
  const std::string chunks =
      BytesOf<uint32_t>({static_cast<uint32_t>(json.size()), 0x4E4F534A}) + json +
      BytesOf<uint32_t>({static_cast<uint32_t>(bin.size()), 0x004E4942}) + bin;
  const std::string glb =
      "glTF" + BytesOf<uint32_t>({2, static_cast<uint32_t>(12 + chunks.size())}) + chunks;
  ASSERT_TRUE(ParseGltf(glb).ok()) << ParseGltf(glb).status();
  for (size_t size = 0; size < glb.size(); ++size) {
    EXPECT_FALSE(ParseGltf(glb.substr(0, size)).ok()) << size;
  }
  const TempFolder folder;
  folder.Write("b.bin", parts.buffer);
  parts.uri = "b.bin";
  EXPECT_TRUE(ReadPointCloud(folder.Write("a.gltf", Gltf(parts)), {}).ok());
  for (const char* elsewhere : {"../b.bin", "/etc/passwd", "..", "sub/b.bin", "file:b.bin"}) {
    parts.uri = elsewhere;
    EXPECT_THAT(ReadPointCloud(folder.Write("a.gltf", Gltf(parts)), {}),
                FailsWith(kDataLoss, "in the same folder"));
  }
  ASSERT_EQ(mkfifo(folder.Path("pipe").c_str(), 0600), 0);
  parts.uri = "pipe";
  EXPECT_THAT(ReadPointCloud(folder.Write("a.gltf", Gltf(parts)), {}),
              FailsWith(kInvalid, "not a regular file"));
}

TEST(Gltf, RefusesWhatIsWrong) {
  const auto refused = [](auto change, const std::string& text) {
    GltfParts parts;
    change(parts);
    const auto mesh = ParseGltf(Gltf(parts));
    EXPECT_FALSE(mesh.ok()) << text;
    EXPECT_THAT(std::string(mesh.status().message()), testing::HasSubstr(text));
  };
  refused(
      [](GltfParts& p) {
        p.positions = R"({"componentType":5126,"count":3,"type":"VEC3","sparse":{}})";
      },
      "is sparse");
  refused(
      [](GltfParts& p) {
        p.positions = R"({"bufferView":0,"componentType":5126,"count":4,"type":"VEC3"})";
      },
      "past its bufferView");
  refused(
      [](GltfParts& p) {
        p.positions =
            R"({"bufferView":0,"componentType":5126,"count":1099511627775,"type":"VEC3"})";
      },
      "past its bufferView");
  refused(
      [](GltfParts& p) {
        p.positions = R"({"bufferView":9,"componentType":5126,"count":3,"type":"VEC3"})";
      },
      "no object 9 in 'bufferViews'");
  refused(
      [](GltfParts& p) {
        p.positions = R"({"bufferView":0,"componentType":5120,"count":3,"type":"VEC3"})";
      },
      "do not fit");
  refused([](GltfParts& p) { p.views = R"({"buffer":0,"byteOffset":30,"byteLength":36},{})"; },
          "past its buffer");
  refused(
      [](GltfParts& p) {
        p.buffer = BytesOf<float>({0, 0, 0, 1, 0, 0, 0, 1, 0}) + BytesOf<uint16_t>({0, 1, 3});
      },
      "names vertex 3; there are 3");
  refused([](GltfParts& p) { p.uri = "data:;base64,AAAA"; }, "fewer than its byteLength");
  refused([](GltfParts& p) { p.uri = "data:;base64,!"; }, "no base64");
  refused([](GltfParts& p) { p.primitive = R"({"attributes":{"POSITION":0},"mode":1})"; },
          "mode 1");
  refused([](GltfParts& p) { p.primitive = "{}"; }, "no attributes");
  refused(
      [](GltfParts& p) {
        p.nodes = R"({"children":[0],"mesh":0})";
        p.more = R"(,"scenes":[{"nodes":[0]}])";
      },
      "two parents or is its own");
  refused([](GltfParts& p) { p.nodes = R"({"children":[7]})"; }, "no object 7 in 'nodes'");
  refused([](GltfParts& p) { p.nodes = R"({"mesh":0,"matrix":[1]})"; }, "not of 16 numbers");
  refused([](GltfParts& p) { p.more = R"(,"extensionsRequired":["KHR_draco_mesh_compression"])"; },
          "KHR_draco_mesh_compression");
  EXPECT_THAT(ParseGltf("garbage\n"), FailsWith(kDataLoss, "not valid JSON"));
  EXPECT_THAT(ParseGltf(std::string(100'000, '[')), FailsWith(kDataLoss, "100 nested"));
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
