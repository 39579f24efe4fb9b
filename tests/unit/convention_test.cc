// SPDX-License-Identifier: Apache-2.0
// `voxconv conv --convention` against each engine's own definition, written out here as a sum over
// its own kernel indices on its own coordinate columns.
#include "voxconv/io/convention.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "convention_test_util.h"
#include "voxconv/cli/command.h"
#include "voxconv/io/npy.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::cli {
namespace {

using Field = std::map<Row, std::vector<double>>;

NpyArray CoordsArray(const std::vector<Row>& rows) {
  std::vector<int32_t> flat;
  for (const Row& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  return MakeNpyArray({static_cast<int64_t>(rows.size()), 4}, absl::MakeConstSpan(flat));
}

// Runs the command and returns what it wrote, by output coordinate.
Field RunCommand(const Data& data, const std::vector<int64_t>& weight_shape,
                 std::vector<std::string> options, const std::vector<Row>* outputs = nullptr) {
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() / absl::StrCat("voxconv_convention_", getpid());
  std::filesystem::create_directories(directory);
  const std::string in = directory / "in.npz", out = directory / "out.npz";
  NpzArrays arrays = {{"coords", CoordsArray(data.coords)},
                      {"features", MakeNpyArray({static_cast<int64_t>(data.coords.size()), kIn},
                                                absl::MakeConstSpan(data.features))},
                      {"weights", MakeNpyArray(weight_shape, absl::MakeConstSpan(data.weights))}};
  if (outputs != nullptr) arrays.emplace_back("out_coords", CoordsArray(*outputs));
  EXPECT_TRUE(WriteNpz(in, arrays).ok());
  options.insert(options.begin(), {in, out});
  const absl::Status status = RunConv(options);
  EXPECT_TRUE(status.ok()) << status;
  Field field;
  if (!status.ok()) return field;
  const auto written = ReadNpz(out);
  EXPECT_TRUE(written.ok()) << written.status();
  const auto coords = ToInt32(*FindArray(*written, "out_coords"), "out_coords");
  const auto features = ToFloat32(*FindArray(*written, "out_features"), "out_features");
  for (size_t i = 0; i < coords->size() / 4; ++i) {
    const Row row = {(*coords)[4 * i], (*coords)[4 * i + 1], (*coords)[4 * i + 2],
                     (*coords)[4 * i + 3]};
    field[row] = {features->begin() + i * kOut, features->begin() + (i + 1) * kOut};
  }
  std::filesystem::remove_all(directory);
  return field;
}

void ExpectSame(const Field& actual, const Field& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [row, values] : expected) {
    const auto it = actual.find(row);
    ASSERT_NE(it, actual.end()) << row[1] << " " << row[2] << " " << row[3];
    for (int64_t o = 0; o < kOut; ++o) EXPECT_NEAR(it->second[o], values[o], 1e-5);
  }
}

// Adds x[p] W[j] to y[q], with the weights' own index order given by `weight`.
void Accumulate(Field& y, const Row& q, const Data& data, size_t p,
                const std::function<float(int64_t i, int64_t o)>& weight) {
  std::vector<double>& values = y.try_emplace(q, kOut, 0.0).first->second;
  for (int64_t i = 0; i < kIn; ++i) {
    for (int64_t o = 0; o < kOut; ++o)
      values[o] += double{data.features[p * kIn + i]} * weight(i, o);
  }
}

// W[o, k0, k1, k2, i] of SpConv.
std::function<float(int64_t, int64_t)> SpconvWeight(const Data& data, int volume, int j) {
  return
      [&data, volume, j](int64_t i, int64_t o) { return data.weights[(o * volume + j) * kIn + i]; };
}

TEST(SpconvTest, Strided) {
  for (const SpconvLayer& layer :
       {SpconvLayer{{3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, {9, 9, 9}},
        SpconvLayer{{3, 3, 3}, {2, 2, 2}, {0, 1, 1}, {1, 1, 1}, {9, 9, 9}},
        SpconvLayer{{3, 1, 1}, {2, 1, 1}, {0, 0, 0}, {1, 1, 1}, {9, 9, 9}},
        SpconvLayer{{2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1}, {9, 10, 11}},
        SpconvLayer{{3, 2, 5}, {1, 2, 3}, {1, 0, 2}, {2, 1, 1}, {9, 9, 12}}}) {
    const auto& [k, s, p, d, shape] = layer;
    const int volume = k[0] * k[1] * k[2];
    const Data data = MakeData(volume, 0, 9);
    Field expected;
    ForSpconvPairs(data, layer, [&](size_t row, const Row& u, int j) {
      Accumulate(expected, u, data, row, SpconvWeight(data, volume, j));
    });
    const auto text = [](const auto& v) { return absl::StrCat(v[0], ",", v[1], ",", v[2]); };
    ExpectSame(RunCommand(data, {kOut, k[0], k[1], k[2], kIn},
                          {"--convention", "spconv", "--kind", "strided", "--kernel", text(k),
                           "--stride", text(s), "--padding", text(p), "--dilation", text(d),
                           "--spatial-shape", text(shape)}),
               expected);
  }
}

TEST(SpconvTest, Submanifold) {
  const Data data = MakeData(3 * 1 * 5, 0, 9);
  const SpconvLayer layer = {{3, 1, 5}, {1, 1, 1}, {1, 0, 2}, {1, 1, 1}, {9, 9, 9}};
  const std::set<Row> active(data.coords.begin(), data.coords.end());
  Field expected;
  ForSpconvPairs(data, layer, [&](size_t row, const Row& u, int j) {
    if (active.count(u) != 0) Accumulate(expected, u, data, row, SpconvWeight(data, 15, j));
  });
  ExpectSame(RunCommand(data, {kOut, 3, 1, 5, kIn},
                        {"--convention", "spconv", "--kernel", "3,1,5", "--padding", "1,0,2"}),
             expected);
}

TEST(SpconvTest, Inverse) {
  // Coarse inputs, fine outputs: the pairs of the strided layer, exchanged.
  const SpconvLayer layer = {{3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, {9, 9, 9}};
  const Data fine = MakeData(27, 0, 9);
  std::map<Row, size_t> coarse;
  ForSpconvPairs(fine, layer, [&](size_t, const Row& u, int) { coarse.emplace(u, 0); });
  Data data;
  for (auto& [row, index] : coarse) {
    index = data.coords.size();
    data.coords.push_back(row);
  }
  data.features = verify::Values(data.coords.size() * kIn, 3);
  data.weights = fine.weights;
  Field expected;
  for (const Row& row : fine.coords) expected[row] = std::vector<double>(kOut, 0.0);
  ForSpconvPairs(fine, layer, [&](size_t row, const Row& u, int j) {
    Accumulate(expected, fine.coords[row], data, coarse[u], SpconvWeight(data, 27, j));
  });
  ExpectSame(
      RunCommand(data, {kOut, 3, 3, 3, kIn},
                 {"--convention", "spconv", "--kind", "inverse", "--stride", "2", "--padding", "1"},
                 &fine.coords),
      expected);
}

// Kernel and stride 1: SpConv 2.3.8 multiplies the features by a view of the weights' memory as
// [C_in, C_out]. With a stride it goes the usual way.
TEST(SpconvTest, KernelOfOneIsAView) {
  const Data data = MakeData(1, 0, 9);
  for (const bool strided : {false, true}) {
    const SpconvLayer layer = {
        {1, 1, 1},
        strided ? std::array<int32_t, 3>{2, 2, 2} : std::array<int32_t, 3>{1, 1, 1},
        {0, 0, 0},
        {1, 1, 1},
        {9, 9, 9}};
    Field expected;
    ForSpconvPairs(data, layer, [&](size_t row, const Row& u, int) {
      Accumulate(expected, u, data, row, [&](int64_t i, int64_t o) {
        return strided ? data.weights[o * kIn + i] : data.weights[i * kOut + o];
      });
    });
    std::vector<std::string> options = {"--convention", "spconv", "--kernel", "1"};
    if (strided) {
      options.insert(options.end(),
                     {"--kind", "strided", "--stride", "2", "--spatial-shape", "9,9,9"});
    }
    ExpectSame(RunCommand(data, {kOut, 1, 1, 1, kIn}, options), expected);
  }
}

std::string Text(const std::array<int32_t, 3>& v) {
  return absl::StrCat(v[0], ",", v[1], ",", v[2]);
}

std::function<float(int64_t, int64_t)> TorchsparseWeight(const Data& data, int j) {
  return [&data, j](int64_t i, int64_t o) { return data.weights[(j * kIn + i) * kOut + o]; };
}

// The third is fed with the output of a layer of stride 2, whose coordinates are in units of 2.
TEST(TorchsparseTest, Strided) {
  const TorchsparseLayer layers[] = {
      {{3, 3, 3}, {2, 2, 2}, {1, 1, 1}}, {{3, 3, 3}, {2, 2, 2}, {0, 0, 0}},
      {{2, 2, 2}, {2, 2, 2}, {0, 0, 0}}, {{4, 4, 4}, {2, 2, 2}, {1, 1, 1}},
      {{3, 2, 5}, {1, 2, 3}, {1, 0, 2}}, {{3, 1, 1}, {2, 1, 1}, {0, 0, 0}}};
  for (const TorchsparseLayer& layer : layers) {
    for (const std::string tensor_stride : {"1", "2"}) {
      const auto& [k, s, padding] = layer;
      SCOPED_TRACE(absl::StrCat(Text(k), " ", tensor_stride));
      const int volume = k[0] * k[1] * k[2];
      const Data data = MakeData(volume, 0, 9);
      Field expected;
      ForTorchsparsePairs(data, layer, [&](size_t row, const Row& u, int j) {
        Accumulate(expected, u, data, row, TorchsparseWeight(data, j));
      });
      ExpectSame(RunCommand(data, {volume, kIn, kOut},
                            {"--convention", "torchsparse", "--kind", "strided", "--kernel",
                             Text(k), "--stride", Text(s), "--padding", Text(padding),
                             "--tensor-stride", tensor_stride}),
                 expected);
    }
  }
}

// The same layer on the same cube by both rules. TorchSparse drops outputs that centred windows of
// voxconv's `dilate` still reach: those past the last whole window.
TEST(TorchsparseTest, HasOtherOutputsThanVoxconvsOwnRule) {
  Data data;
  for (int32_t x = 0; x < 10; ++x) {
    for (int32_t y = 0; y < 10; ++y) {
      for (int32_t z = 0; z < 10; ++z) data.coords.push_back({0, x, y, z});
    }
  }
  data.features = verify::Values(data.coords.size() * kIn, 1);
  data.weights = verify::Values(27 * kIn * kOut, 2);
  const std::vector<std::string> layer = {"--kind",   "strided", "--kernel",  "3",
                                          "--stride", "2",       "--padding", "1"};
  const auto with = [&](std::vector<std::string> options) {
    options.insert(options.end(), layer.begin(), layer.end());
    return options;
  };
  Field published;
  ForTorchsparsePairs(data, {{3, 3, 3}, {2, 2, 2}, {1, 1, 1}},
                      [&](size_t row, const Row& u, int j) {
                        Accumulate(published, u, data, row, TorchsparseWeight(data, j));
                      });
  EXPECT_EQ(published.size(), 5 * 5 * 5);
  ExpectSame(RunCommand(data, {27, kIn, kOut}, with({"--convention", "torchsparse"})), published);

  std::set<Row> own;  // p = 2 u - 1 + d for the offsets d of -1, 0 and 1
  for (const Row& p : data.coords) {
    for (int j = 0; j < 27; ++j) {
      const Row v = {0, p[1] + 1 - (j / 9 - 1), p[2] + 1 - (j / 3 % 3 - 1), p[3] + 1 - (j % 3 - 1)};
      if (v[1] % 2 == 0 && v[2] % 2 == 0 && v[3] % 2 == 0) own.insert(v);
    }
  }
  EXPECT_EQ(own.size(), 6 * 6 * 6);
  const Field output = RunCommand(data, {27, kIn, kOut}, with({"--rule", "dilate"}));
  std::set<Row> rows;
  for (const auto& [row, values] : output) rows.insert(row);
  EXPECT_EQ(rows, own);
}

TEST(TorchsparseTest, Inverse) {
  const TorchsparseLayer layer = {{3, 3, 3}, {2, 2, 2}, {1, 1, 1}};
  const Data fine = MakeData(27, 0, 9);
  std::map<Row, size_t> coarse;
  ForTorchsparsePairs(fine, layer, [&](size_t, const Row& u, int) { coarse.emplace(u, 0); });
  Data data;
  for (auto& [row, index] : coarse) {
    index = data.coords.size();
    data.coords.push_back(row);
  }
  data.features = verify::Values(data.coords.size() * kIn, 3);
  data.weights = fine.weights;
  Field expected;
  for (const Row& row : fine.coords) expected[row] = std::vector<double>(kOut, 0.0);
  ForTorchsparsePairs(fine, layer, [&](size_t row, const Row& u, int j) {
    Accumulate(expected, fine.coords[row], data, coarse[u], TorchsparseWeight(data, j));
  });
  ExpectSame(RunCommand(data, {27, kIn, kOut},
                        {"--convention", "torchsparse", "--kind", "inverse", "--stride", "2",
                         "--padding", "1"},
                        &fine.coords),
             expected);
}

TEST(TorchsparseTest, WhatHasNoCounterpartIsRefused) {
  EXPECT_TRUE(MakeGeometry(Convention::kTorchsparse, {.kernel = {4, 4, 4}}).ok());
  EXPECT_TRUE(MakeGeometry(Convention::kTorchsparse, {.kernel = {2, 1, 4}}).ok());
  EXPECT_FALSE(MakeGeometry(Convention::kTorchsparse, {.kernel = {3, 2, 3}}).ok());
  EXPECT_FALSE(MakeGeometry(Convention::kTorchsparse, {.dilation = {2, 2, 2}}).ok());
  EXPECT_FALSE(
      MakeGeometry(Convention::kTorchsparse, {.kind = ConvKind::kTransposed, .stride = {2, 2, 2}})
          .ok());
}

// Offsets with x fastest, as MinkowskiEngine walks a region and TorchSparse an odd kernel.
TEST(OffsetOrderTest, MinkowskiAndTorchsparse) {
  for (const std::string convention : {"minkowski", "torchsparse"}) {
    for (const int size : {2, 3, 4}) {
      const bool even = size % 2 == 0;
      if (convention == "minkowski" && size == 4) continue;
      const int volume = size * size * size;
      const bool x_fastest = convention == "minkowski" || !even;
      const Data data = MakeData(volume, -4, 9);
      std::map<Row, size_t> rows;
      for (size_t i = 0; i < data.coords.size(); ++i) rows[data.coords[i]] = i;
      Field expected;
      for (const Row& q : data.coords) {
        expected[q] = std::vector<double>(kOut, 0.0);
        for (int j = 0; j < volume; ++j) {
          const int slow = j / size / size, middle = j / size % size, fast = j % size;
          const int base = even ? 0 : -1;
          const int dx = (x_fastest ? fast : slow) + base, dy = middle + base,
                    dz = (x_fastest ? slow : fast) + base;
          const auto p = rows.find({q[0], q[1] + dx, q[2] + dy, q[3] + dz});
          if (p == rows.end()) continue;
          Accumulate(expected, q, data, p->second,
                     [&](int64_t i, int64_t o) { return data.weights[(j * kIn + i) * kOut + o]; });
        }
      }
      ExpectSame(RunCommand(data, {volume, kIn, kOut},
                            {"--convention", convention, "--kernel", absl::StrCat(size)}),
                 expected);
    }
  }
}

TEST(ConventionTest, PaddingFromSpconv) {
  EXPECT_EQ(PaddingFromSpconv(1, 3, 1), 0);
  EXPECT_EQ(PaddingFromSpconv(0, 3, 1), -1);
  EXPECT_EQ(PaddingFromSpconv(0, 2, 1), 0);
  EXPECT_EQ(PaddingFromSpconv(2, 5, 2), -2);
}

}  // namespace
}  // namespace voxconv::cli
