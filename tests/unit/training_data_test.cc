// SPDX-License-Identifier: Apache-2.0
// Data sets, augmentation and batches.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/session.h"
#include "voxconv/io/npy.h"
#include "voxconv/training/data/augment.h"
#include "voxconv/training/data/class_weights.h"
#include "voxconv/training/data/dataset.h"
#include "voxconv/training/data/loader.h"
#include "voxconv/training/data/model_arrays.h"
#include "voxconv/training/data/scan_sets.h"

namespace voxconv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string TempPath(const std::string& name) { return ::testing::TempDir() + "/" + name; }

template <typename T>
NpyArray Array(std::vector<int64_t> shape, const std::vector<T>& values) {
  return MakeNpyArray(std::move(shape), absl::MakeConstSpan(values));
}

// Three models of two classes, one of which has no cells.
std::string WriteModels(const std::vector<int32_t>& labels = {1, 0, 1},
                        const std::vector<int64_t>& offsets = {0, 2, 2, 3}) {
  const std::string path = TempPath("models.npz");
  NpzArrays arrays;
  for (const char* split : {"train", "test"}) {
    arrays.emplace_back(std::string("coords_") + split,
                        Array<int32_t>({3, 3}, {0, 0, 0, 1, 2, 3, 5, 5, 5}));
    arrays.emplace_back(std::string("offsets_") + split,
                        Array<int64_t>({static_cast<int64_t>(offsets.size())}, offsets));
    arrays.emplace_back(std::string("labels_") + split,
                        Array<int32_t>({static_cast<int64_t>(labels.size())}, labels));
  }
  EXPECT_TRUE(WriteNpz(path, arrays).ok());
  return path;
}

TEST(DatasetTest, VoxelModelsWithoutCellsAreLeftOut) {
  const auto set = OpenDataset(WriteModels(), "train");
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ((*set)->size(), 2);
  EXPECT_EQ((*set)->label_kind(), LabelKind::kCloud);
  EXPECT_THAT((*set)->class_names(), ElementsAre("class 0", "class 1"));
  const auto cloud = (*set)->Load(1);
  ASSERT_TRUE(cloud.ok()) << cloud.status();
  EXPECT_THAT(cloud->cloud.xyz, ElementsAre(5.5, 5.5, 5.5));
  EXPECT_THAT(cloud->labels, ElementsAre(1));
  EXPECT_THAT((*set)->NameOf(1), HasSubstr("train model 2"));
}

TEST(DatasetTest, ModelsThatDoNotFitAreRefusedByName) {
  const auto message = [](const std::string& path) {
    const auto set = OpenDataset(path, "test");
    EXPECT_FALSE(set.ok());
    return std::string(set.status().message());
  };
  EXPECT_THAT(message(WriteModels({1, -2, 1})), HasSubstr("labels_test: -2 at 1"));
  EXPECT_THAT(message(WriteModels({-1, -1, -1})),
              HasSubstr("models.npz: labels_test: -1 at 0; allowed are 0 to 4095"));
  EXPECT_THAT(message(WriteModels({1, 2'000'000'000, 1})),
              HasSubstr("labels_test: 2000000000 at 1; allowed are 0 to 4095"));
  EXPECT_THAT(message(WriteModels({1, 0, 1}, {0, 2, 1, 3})), HasSubstr("'offsets_test'"));
  EXPECT_THAT(message(WriteModels({1, 0, 1}, {0, 2, 2, 4})), HasSubstr("to the 3 rows"));
  EXPECT_THAT(message(TempPath("nothing_there")), HasSubstr("no data set"));
  EXPECT_THAT(std::string(OpenDataset(WriteModels(), "validation").status().message()),
              HasSubstr("split: 'validation'; allowed are train and test"));
}

TEST(DatasetTest, ClassesWithoutNamesAreThoseOfBothSplits) {
  const std::string path = TempPath("unnamed.npz");
  NpzArrays arrays = {{"labels_train", Array<int32_t>({1}, {0})},
                      {"labels_test", Array<int32_t>({1}, {2})}};
  for (const std::string split : {"train", "test"}) {
    arrays.emplace_back("coords_" + split, Array<int32_t>({1, 3}, {0, 0, 0}));
    arrays.emplace_back("offsets_" + split, Array<int64_t>({2}, {0, 1}));
  }
  ASSERT_TRUE(WriteNpz(path, arrays).ok());
  EXPECT_EQ((*OpenDataset(path, "train"))->classes(), 3);
  EXPECT_EQ((*OpenDataset(path, "test"))->classes(), 3);
  EXPECT_EQ(CheckClassNames({"chair", "table", "chair"}).message(),
            "class_names: 'chair' at 0 and at 2");
  EXPECT_TRUE(CheckClassNames({"chair", "table"}).ok());
}

TEST(DatasetTest, ASplitWithoutCloudsIsRefused) {
  const std::string path = TempPath("no_clouds.npz");
  const auto message = [&](const std::string& set) {
    return std::string(OpenDataset(set, "test").status().message());
  };
  ASSERT_TRUE(WriteNpz(path, {{"coords_train", Array<int32_t>({1, 3}, {0, 0, 0})},
                              {"offsets_train", Array<int64_t>({2}, {0, 1})},
                              {"labels_train", Array<int32_t>({1}, {0})}})
                  .ok());
  EXPECT_EQ(message(path), path + ": split test: 0 clouds; at least 1 is needed");
  ASSERT_TRUE(WriteNpz(path, {{"coords_test", Array<int32_t>({0, 3}, {})},
                              {"offsets_test", Array<int64_t>({3}, {0, 0, 0})},
                              {"labels_test", Array<int32_t>({2}, {0, 1})}})
                  .ok());
  EXPECT_EQ(message(path), path + ": split test: 0 clouds; at least 1 is needed");
  const std::filesystem::path folder = TempPath("train_alone");
  std::filesystem::create_directories(folder / "chair" / "train");
  std::ofstream(folder / "chair" / "train" / "a.xyz") << "0 0 0\n";
  EXPECT_EQ(message(folder.string()),
            folder.string() + ": split test: 0 clouds; at least 1 is needed");
}

TEST(DatasetTest, BalancedWeightsAreInverseToTheLabels) {
  const std::string path = TempPath("unequal.npz");
  ASSERT_TRUE(WriteNpz(path, {{"coords_train", Array<int32_t>({4, 3}, std::vector<int32_t>(12))},
                              {"offsets_train", Array<int64_t>({5}, {0, 1, 2, 3, 4})},
                              {"labels_train", Array<int32_t>({4}, {0, 2, 0, 0})}})
                  .ok());
  const auto weights = BalancedClassWeights(**OpenDataset(path, "train"));
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_THAT(*weights, ElementsAre(4 / (2 * 3.0f), 0, 2));
}

// A tetrahedron of class 1 and a triangle of class 0.
std::string WriteMeshes(const std::vector<int32_t>& face_ends = {0, 4, 5},
                        uint16_t last_vertex = 2) {
  const std::string path = TempPath("meshes.npz");
  NpzArrays arrays;
  for (const std::string split : {"train", "test"}) {
    arrays.emplace_back("mesh_vertices_" + split,
                        Array<float>({7, 3}, {0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1,  //
                                              0, 0, 2, 4, 0, 2, 0, 4, 2}));
    arrays.emplace_back("mesh_faces_" + split,
                        Array<uint16_t>({5, 3}, {0, 1, 2, 0, 1, 3, 0, 2, 3, 1, 2, 3,  //
                                                 0, 1, last_vertex}));
    arrays.emplace_back("mesh_voff_" + split, Array<int32_t>({3}, {0, 4, 7}));
    arrays.emplace_back("mesh_foff_" + split,
                        Array<int32_t>({static_cast<int64_t>(face_ends.size())}, face_ends));
    arrays.emplace_back("labels_" + split, Array<uint8_t>({2}, {1, 0}));
  }
  EXPECT_TRUE(WriteNpz(path, arrays).ok());
  return path;
}

TEST(DatasetTest, MeshesAreSampledWithNormals) {
  const auto set = OpenDataset(WriteMeshes(), "test", {.samples = 500});
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ((*set)->size(), 2);
  EXPECT_EQ((*set)->label_kind(), LabelKind::kCloud);
  const auto cloud = (*set)->Load(1);
  ASSERT_TRUE(cloud.ok()) << cloud.status();
  EXPECT_THAT(cloud->labels, ElementsAre(0));
  EXPECT_EQ(cloud->cloud.size(), 500);
  EXPECT_THAT(cloud->cloud.feature_names, ElementsAre("nx", "ny", "nz"));
  for (int64_t i = 0; i < 500; ++i) {
    const double* point = &cloud->cloud.xyz[3 * i];
    EXPECT_NEAR(point[2], 2, 1e-12);
    EXPECT_LE(point[0] + point[1], 4 + 1e-12);
    EXPECT_NEAR(cloud->cloud.features[3 * i + 2], 1, 1e-6);
  }
  EXPECT_EQ((*set)->Load(1)->cloud.xyz, cloud->cloud.xyz);
}

TEST(DatasetTest, MeshesThatDoNotFitAreRefusedByName) {
  EXPECT_THAT(std::string(OpenDataset(WriteMeshes({0, 4, 6}), "train").status().message()),
              HasSubstr("'mesh_foff_train': it must ascend from 0 to the 5 rows"));
  const auto set = OpenDataset(WriteMeshes({0, 4, 5}, 3), "train");
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_THAT(std::string((*set)->Load(1).status().message()),
              HasSubstr("train mesh 1: a triangle names vertex 3, but there are 3 vertices"));
}

void WriteText(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(DatasetTest, AFolderForEachClassInBothLayouts) {
  const std::string points = "0 0 0\n1 2 3\n", mesh = "OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n";
  for (const bool split_first : {false, true}) {
    const std::filesystem::path folder = TempPath("class_folders");
    std::filesystem::remove_all(folder);
    const auto write = [&](const std::string& name, const std::string& split,
                           const std::string& file, const std::string& text) {
      WriteText((split_first ? folder / split / name : folder / name / split) / file, text);
    };
    write("table", "train", "b.xyz", points);
    write("table", "train", "a.off", mesh);
    write("chair", "test", "c.xyz", points);
    write("chair", "train", "d.xyz", points);
    write("chair", "train", ".hidden", "");
    const auto set = OpenDataset(folder.string(), "train", {.samples = 9});
    ASSERT_TRUE(set.ok()) << set.status();
    EXPECT_THAT((*set)->class_names(), ElementsAre("chair", "table"));
    ASSERT_EQ((*set)->size(), 3);
    EXPECT_THAT((*set)->Load(0)->labels, ElementsAre(0));
    EXPECT_THAT((*set)->NameOf(1), HasSubstr("a.off"));
    EXPECT_EQ((*set)->Load(1)->cloud.size(), 9);
    EXPECT_THAT((*set)->Load(2)->cloud.xyz, ElementsAre(0, 0, 0, 1, 2, 3));
    EXPECT_EQ((*OpenDataset(folder.string(), "test"))->size(), 1);
    write("table", "test", "notes.txt", "");
    EXPECT_THAT(std::string(OpenDataset(folder.string(), "test").status().message()),
                HasSubstr("notes.txt: no file of points or of a mesh"));
  }
}

TEST(DatasetTest, SemanticKittisFoldersAndLabels) {
  const std::filesystem::path folder = TempPath("kitti");
  std::filesystem::remove_all(folder);
  const auto write = [&](const char* sequence, const std::vector<uint32_t>& labels) {
    const auto below = folder / "sequences" / sequence;
    std::filesystem::create_directories(below / "velodyne");
    std::filesystem::create_directories(below / "labels");
    std::ofstream scan(below / "velodyne" / "000000.bin", std::ios::binary);
    for (size_t i = 0; i < 2; ++i) {
      const float row[4] = {static_cast<float>(i), 2, 3, 0.5f};
      scan.write(reinterpret_cast<const char*>(row), sizeof(row));
    }
    std::ofstream label(below / "labels" / "000000.label", std::ios::binary);
    label.write(reinterpret_cast<const char*>(labels.data()),
                static_cast<std::streamsize>(labels.size() * 4));
  };
  write("00", {252u | 7u << 16, 0});  // a moving car, the seventh; nothing
  write("08", {40, 99});
  const auto train = OpenDataset(folder.string(), "train");
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_EQ((*train)->size(), 1);
  EXPECT_EQ((*train)->classes(), 19);
  const auto cloud = (*train)->Load(0);
  ASSERT_TRUE(cloud.ok()) << cloud.status();
  EXPECT_THAT(cloud->labels, ElementsAre(0, -1));
  EXPECT_THAT(cloud->cloud.feature_names, ElementsAre("intensity"));
  const auto test = OpenDataset(folder.string(), "test");
  EXPECT_THAT((*test)->Load(0)->labels, ElementsAre(8, -1));
  write("00", {252});
  EXPECT_THAT(std::string((*train)->Load(0).status().message()),
              HasSubstr("4 bytes; 2 points need four each"));
  write("00", {252, 5});
  EXPECT_THAT(std::string((*train)->Load(0).status().message()),
              HasSubstr("label 5: SemanticKITTI does not define it"));
}

// The learning map of the data set's makers, by name.
TEST(DatasetTest, SemanticKittisLearningMap) {
  const std::map<std::string, std::vector<uint32_t>> raw_labels = {
      {"car", {10, 252}},
      {"bicycle", {11}},
      {"motorcycle", {15}},
      {"truck", {18, 258}},
      {"person", {30, 254}},
      {"bicyclist", {31, 253}},
      {"motorcyclist", {32, 255}},
      {"road", {40, 60}},
      {"parking", {44}},
      {"sidewalk", {48}},
      {"other-ground", {49}},
      {"building", {50}},
      {"fence", {51}},
      {"vegetation", {70}},
      {"trunk", {71}},
      {"terrain", {72}},
      {"pole", {80}},
      {"traffic-sign", {81}},
      {"ignored", {0, 1, 52, 99}},
      {"other-vehicle", {13, 16, 20, 256, 257, 259}}};
  const std::filesystem::path folder = TempPath("kitti_names");
  const std::filesystem::path scans = folder / "sequences" / "00" / "velodyne";
  std::filesystem::create_directories(scans);
  const std::ofstream empty_scan(scans / "000000.bin");
  const auto set = OpenSemanticKitti(folder.string(), "train");
  ASSERT_TRUE(set.ok()) << set.status();
  const std::vector<std::string> names = (*set)->class_names();
  size_t defined = 0;
  for (const auto& [name, labels] : raw_labels) {
    const auto at = std::find(names.begin(), names.end(), name);
    const int expected = at == names.end() ? -1 : static_cast<int>(at - names.begin());
    EXPECT_EQ(expected < 0, name == "ignored") << name;
    for (const uint32_t raw : labels) EXPECT_EQ(*SemanticKittiClass(raw), expected) << raw;
    defined += labels.size();
  }
  size_t known = 0;
  for (uint32_t raw = 0; raw < 65536; ++raw) known += SemanticKittiClass(raw).ok() ? 1 : 0;
  EXPECT_EQ(known, defined);
}

TEST(DatasetTest, LabelledFramesHaveTheirMakersClasses) {
  const std::string path = testing::DataPath("semantickitti_08_000000.npz");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is missing (VOXCONV_DATA_DIR)";
  const auto set = OpenDataset(path, "train");
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ((*set)->classes(), 19);
  EXPECT_EQ((*set)->class_names()[0], "car");
  EXPECT_EQ((*set)->class_names()[18], "traffic-sign");
  const auto cloud = (*set)->Load(0);
  ASSERT_TRUE(cloud.ok()) << cloud.status();
  EXPECT_EQ(cloud->labels.size(), static_cast<size_t>(cloud->cloud.size()));
  EXPECT_THAT(cloud->cloud.feature_names, ElementsAre("intensity"));
}

TEST(NpyTextTest, ReadsTextsAndRefusesTheRest) {
  const auto file = [](const std::string& header, const std::u32string& data) {
    std::string bytes("\x93NUMPY\x01\x00", 8);
    bytes.push_back(static_cast<char>(header.size()));
    bytes.push_back('\0');
    bytes += header;
    bytes.append(reinterpret_cast<const char*>(data.data()), data.size() * 4);
    return bytes;
  };
  const std::string header = "{'descr': '<U2', 'fortran_order': False, 'shape': (2,), }";
  EXPECT_THAT(*ParseNpyText(file(header, std::u32string(U"ab\u00e9\0", 4)), "x"),
              ElementsAre("ab", "\xc3\xa9"));
  const auto message = [](const std::string& bytes) {
    return std::string(ParseNpyText(bytes, "x").status().message());
  };
  EXPECT_THAT(message(file(header, U"abc")), HasSubstr("2 texts of 2 characters need 16"));
  EXPECT_THAT(message(file("{'descr': '<f4', 'shape': (2,), }", U"ab")),
              HasSubstr("no array of texts"));
  EXPECT_THAT(message("abc"), HasSubstr("x: is not a .npy file"));
}

LabelledCloud SomeCloud() {
  LabelledCloud cloud;
  cloud.cloud.feature_names = {"nx", "ny", "nz"};
  for (int i = 0; i < 50; ++i) {
    for (const double value : {std::sin(i), std::cos(2.0 * i), 0.1 * i}) {
      cloud.cloud.xyz.push_back(value);
      cloud.cloud.features.push_back(static_cast<float>(value));  // points the same way
    }
    cloud.labels.push_back(i);
  }
  return cloud;
}

TEST(AugmentTest, RotationsTurnPointsAndNormalsAlike) {
  for (const bool any : {false, true}) {
    LabelledCloud cloud = SomeCloud();
    Augment({.rotation = 180, .any_rotation = any, .flip = {0.5, 0.5, 0.5}}, 7, cloud);
    const LabelledCloud before = SomeCloud();
    EXPECT_NE(cloud.cloud.xyz, before.cloud.xyz);
    for (size_t i = 0; i < before.cloud.xyz.size(); i += 3) {
      const auto norm = [](const double* v) { return std::hypot(v[0], v[1], v[2]); };
      EXPECT_NEAR(norm(&cloud.cloud.xyz[i]), norm(&before.cloud.xyz[i]), 1e-12);
      for (size_t axis = 0; axis < 3; ++axis) {
        EXPECT_NEAR(cloud.cloud.features[i + axis], cloud.cloud.xyz[i + axis], 1e-5);
      }
      if (!any) {
        EXPECT_NEAR(std::abs(cloud.cloud.xyz[i + 2]), std::abs(before.cloud.xyz[i + 2]), 1e-12);
      }
    }
  }
}

// The mean trace of rotations that are uniform is 0. A uniform axis with a uniform angle has 1.
TEST(AugmentTest, AnyRotationIsUniform) {
  double trace = 0, z_squared = 0;
  constexpr int kSeeds = 4000;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    LabelledCloud axes;
    axes.cloud.xyz = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    Augment({.any_rotation = true}, seed, axes);
    const std::vector<double>& xyz = axes.cloud.xyz;
    trace += (xyz[0] + xyz[4] + xyz[8]) / kSeeds;
    z_squared += xyz[8] * xyz[8] / kSeeds;
    const double triple = xyz[0] * (xyz[4] * xyz[8] - xyz[5] * xyz[7]) -
                          xyz[1] * (xyz[3] * xyz[8] - xyz[5] * xyz[6]) +
                          xyz[2] * (xyz[3] * xyz[7] - xyz[4] * xyz[6]);
    EXPECT_NEAR(triple, 1, 1e-12);  // no reflection
  }
  EXPECT_NEAR(trace, 0, 0.08);  // five standard deviations
  EXPECT_NEAR(z_squared, 1.0 / 3, 0.025);
}

TEST(AugmentTest, DroppedPointsTakeTheirLabelsAlong) {
  LabelledCloud cloud = SomeCloud();
  Augment({.drop_points = 0.9}, 3, cloud);
  const LabelledCloud before = SomeCloud();
  ASSERT_LT(cloud.cloud.size(), before.cloud.size());
  ASSERT_EQ(cloud.labels.size(), static_cast<size_t>(cloud.cloud.size()));
  for (size_t i = 0; i < cloud.labels.size(); ++i) {
    EXPECT_EQ(cloud.cloud.xyz[3 * i], before.cloud.xyz[3 * cloud.labels[i]]);
    EXPECT_EQ(cloud.cloud.features[3 * i], before.cloud.features[3 * cloud.labels[i]]);
  }
  for (uint64_t seed = 0; seed < 20; ++seed) {
    LabelledCloud one = SomeCloud();
    Augment({.drop_points = 1}, seed, one);
    EXPECT_GE(one.cloud.size(), 1);
  }
}

TEST(AugmentTest, TheSeedDecides) {
  const Augmentation augmentation{.rotation = 30, .scale = 0.1, .shift = 1, .jitter = 0.01};
  LabelledCloud a = SomeCloud(), b = SomeCloud(), c = SomeCloud();
  Augment(augmentation, 1, a);
  Augment(augmentation, 1, b);
  Augment(augmentation, 2, c);
  EXPECT_EQ(a.cloud.xyz, b.cloud.xyz);
  EXPECT_NE(a.cloud.xyz, c.cloud.xyz);
  EXPECT_THAT(std::string(CheckAugmentation({.scale = 1}).message()),
              HasSubstr("scale: 1; allowed is [0, 1)"));
  EXPECT_THAT(std::string(CheckAugmentation({.jitter = -1}).message()), HasSubstr("jitter: -1"));
}

TEST(LabelledCloudTest, AVoxelHasTheLabelOfMostOfItsPoints) {
  LabelledCloud cloud;
  cloud.cloud.xyz = {0.1, 0, 0, 0.2, 0, 0, 0.3, 0, 0, 1.5, 0, 0, 2.5, 0, 0, 2.6, 0, 0};
  cloud.labels = {4, 2, 4, -1, 3, 1};
  const auto voxels =
      VoxelizeLabelled(cloud, LabelKind::kPoint, -1, 1, {.size = {1, 1, 1}, .xyz_features = false});
  ASSERT_TRUE(voxels.ok()) << voxels.status();
  EXPECT_THAT(voxels->labels, ElementsAre(4, -1, 1));  // of equals the lowest
  EXPECT_THAT(voxels->features, ElementsAre(1, 1, 1));
}

// What a loader gives over an epoch, batch by batch.
std::vector<LabelledVoxels> Batches(const Dataset& set, LoaderConfig config, int64_t epoch,
                                    int workers, int64_t first = 0) {
  config.workers = workers;
  BatchLoader loader(set, config, epoch, first);
  std::vector<LabelledVoxels> batches;
  while (!loader.done()) batches.push_back(*loader.Next());
  return batches;
}

// A set of one cloud without points.
class EmptySet final : public Dataset {
 public:
  int64_t size() const override { return 1; }
  LabelKind label_kind() const override { return LabelKind::kCloud; }
  int64_t classes() const override { return 1; }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::string NameOf(int64_t) const override { return "cloud 0"; }
  absl::StatusOr<std::string> ContentHash() const override { return "0"; }
  absl::StatusOr<LabelledCloud> Load(int64_t) const override {
    return LabelledCloud{.cloud = {}, .labels = {0}};
  }

 private:
  std::vector<std::string> names_ = {"only"};
};

TEST(LoaderTest, ACloudWithoutPointsIsRefusedByName) {
  const EmptySet set;
  for (const int workers : {0, 2}) {
    BatchLoader loader(set, {.batch = 1, .channels = 1, .workers = workers}, 0);
    EXPECT_EQ(loader.Next().status().message(), "cloud 0: 0 points; at least 1 is needed");
  }
}

TEST(LoaderTest, BatchesDependOnSeedAndEpochAlone) {
  const std::string path = TempPath("many.npz");
  std::vector<int32_t> cells, labels;
  std::vector<int64_t> offsets{0};
  for (int i = 0; i < 23; ++i) {
    for (int j = 0; j < 3 + i % 4; ++j) cells.insert(cells.end(), {i, j, i % 5});
    labels.push_back(i % 3);
    offsets.push_back(static_cast<int64_t>(cells.size()) / 3);
  }
  ASSERT_TRUE(WriteNpz(path, {{"coords_train", Array<int32_t>({offsets.back(), 3}, cells)},
                              {"offsets_train", Array<int64_t>({24}, offsets)},
                              {"labels_train", Array<int32_t>({23}, labels)}})
                  .ok());
  const auto set = OpenDataset(path, "train");
  ASSERT_TRUE(set.ok()) << set.status();
  LoaderConfig config{.batch = 5, .channels = 4, .shuffle = true, .seed = 9};
  config.augmentation = {.rotation = 20, .drop_points = 0.2};
  config.voxelize.size = {0.5, 0.5, 0.5};
  const std::vector<LabelledVoxels> expected = Batches(**set, config, 2, 0);
  ASSERT_EQ(expected.size(), 5u);
  EXPECT_EQ(expected.back().samples, 3);
  for (const int workers : {1, 4}) {
    const std::vector<LabelledVoxels> batches = Batches(**set, config, 2, workers);
    ASSERT_EQ(batches.size(), expected.size());
    for (size_t i = 0; i < batches.size(); ++i) {
      EXPECT_EQ(batches[i].coordinates, expected[i].coordinates);
      EXPECT_EQ(batches[i].features, expected[i].features);
      EXPECT_EQ(batches[i].labels, expected[i].labels);
    }
  }
  const std::vector<LabelledVoxels> rest = Batches(**set, config, 2, 2, 3);
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[0].coordinates, expected[3].coordinates);
  const std::vector<LabelledVoxels> later = Batches(**set, config, 3, 0);
  EXPECT_NE(later[0].labels, expected[0].labels);
  for (config.workers = 0; config.workers < 3; ++config.workers) {
    EpochLoader epochs(**set, config, /*epochs=*/4, /*epoch=*/2, /*first=*/3);
    for (size_t i = 3; i < 10; ++i) {
      const LabelledVoxels& batch = i < 5 ? expected[i] : later[i - 5];
      EXPECT_EQ((*epochs.Next())->coordinates, batch.coordinates) << i;
    }
    EXPECT_FALSE(epochs.Next()->has_value());
  }
  EXPECT_TRUE(EpochLoader(**set, config, 3, 1, /*first=*/5).Next()->has_value());
  // Every cloud comes once.
  std::multiset<int32_t> seen;
  for (const LabelledVoxels& batch : expected)
    seen.insert(batch.labels.begin(), batch.labels.end());
  EXPECT_EQ(seen, std::multiset<int32_t>(labels.begin(), labels.end()));
}

TEST(LoaderTest, CentresCloudsBeforeItAugmentsThem) {
  const std::string path = TempPath("far.npz");
  // A bar of 5 cells along x, far from the origin.
  std::vector<int32_t> cells;
  for (int32_t x = 0; x < 5; ++x) cells.insert(cells.end(), {100 + x, 50, 20});
  ASSERT_TRUE(WriteNpz(path, {{"coords_train", Array<int32_t>({5, 3}, cells)},
                              {"offsets_train", Array<int64_t>({2}, {0, 5})},
                              {"labels_train", Array<int32_t>({1}, {0})}})
                  .ok());
  const auto set = OpenDataset(path, "train");
  ASSERT_TRUE(set.ok()) << set.status();
  LoaderConfig config{.batch = 1, .channels = 1, .centre = true};
  config.augmentation.flip = {1, 1, 0};
  config.voxelize = {.size = {1, 1, 1}, .xyz_features = false};
  const LabelledVoxels bar = Batches(**set, config, 0, 0).at(0);
  std::set<int32_t> x;
  for (const Coordinate& voxel : bar.coordinates) {
    x.insert(voxel.x);
    EXPECT_EQ(voxel.y, 0);
    EXPECT_EQ(voxel.z, 0);
  }
  EXPECT_EQ(x, (std::set<int32_t>{-2, -1, 0, 1, 2}));
  config.augmentation = {.shift = 8};
  const LabelledVoxels moved = Batches(**set, config, 0, 0).at(0);
  EXPECT_NE(moved.coordinates, bar.coordinates);
  for (const Coordinate& voxel : moved.coordinates) EXPECT_LE(std::abs(voxel.x), 10);
}

}  // namespace
}  // namespace voxconv
