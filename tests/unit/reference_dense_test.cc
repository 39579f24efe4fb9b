// SPDX-License-Identifier: Apache-2.0
// The oracle against convolutions of dense, zero-padded volumes. A volume is
// indexed on its tensor's lattice, i = p / t, and convolved by the textbook
// formula out[u] = Σ_k in[u·s - pad + k·d]·w[k] with k counted from 0, so that
// neither a kernel offset nor a kernel map takes part in the expected value.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <ostream>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "voxconv/reference_cpu/convolution.h"
#include "voxconv/reference_cpu/geometry.h"
#include "voxconv/reference_cpu/kernel_map.h"
#include "voxconv/reference_cpu/layers.h"

namespace voxconv::reference {
namespace {

constexpr int64_t kCIn = 2;
constexpr int64_t kCOut = 3;
constexpr int32_t kBatches = 2;
constexpr int64_t kInputRadius = 3;
constexpr int64_t kOutputRadius = 12;  // holds every output of the cases below

struct Case {
  std::string name;
  Geometry geometry;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// Zero outside [-radius, radius]^3.
class DenseVolume {
 public:
  DenseVolume(int64_t radius, int64_t channels)
      : radius_(radius),
        channels_(channels),
        values_(kBatches * Side() * Side() * Side() * channels, 0.0) {}

  double Get(int32_t b, const Vec3& i, int64_t c) const {
    for (const int64_t v : i) {
      if (v < -radius_ || v > radius_) return 0.0;
    }
    return values_[Index(b, i, c)];
  }
  double& At(int32_t b, const Vec3& i, int64_t c) { return values_.at(Index(b, i, c)); }

 private:
  int64_t Side() const { return 2 * radius_ + 1; }
  size_t Index(int32_t b, const Vec3& i, int64_t c) const {
    int64_t index = b;
    for (const int64_t v : i) index = index * Side() + v + radius_;
    return static_cast<size_t>(index * channels_ + c);
  }

  int64_t radius_;
  int64_t channels_;
  std::vector<double> values_;
};

void ForEachIn(const Vec3& lo, const Vec3& hi, const std::function<void(const Vec3&)>& visit) {
  for (int64_t x = lo[0]; x <= hi[0]; ++x) {
    for (int64_t y = lo[1]; y <= hi[1]; ++y) {
      for (int64_t z = lo[2]; z <= hi[2]; ++z) visit({x, y, z});
    }
  }
}

void ForEachWithin(int64_t radius, const std::function<void(int32_t, const Vec3&)>& visit) {
  for (int32_t b = 0; b < kBatches; ++b) {
    ForEachIn({-radius, -radius, -radius}, {radius, radius, radius},
              [&](const Vec3& i) { visit(b, i); });
  }
}

Vec3 LatticeIndex(const Coord& c, const Vec3& t) { return {c.x / t[0], c.y / t[1], c.z / t[2]}; }

Coord FromLattice(int32_t b, const Vec3& i, const Vec3& t) {
  return {b, static_cast<int32_t>(i[0] * t[0]), static_cast<int32_t>(i[1] * t[1]),
          static_cast<int32_t>(i[2] * t[2])};
}

std::vector<Coord> RandomCoords(size_t count, const Vec3& t, std::mt19937& random) {
  std::uniform_int_distribution<int64_t> position(-kInputRadius, kInputRadius);
  std::set<Coord> unique;
  while (unique.size() < count) {
    unique.insert(FromLattice(static_cast<int32_t>(random() % kBatches),
                              {position(random), position(random), position(random)}, t));
  }
  std::vector<Coord> coords(unique.begin(), unique.end());
  std::shuffle(coords.begin(), coords.end(), random);
  return coords;
}

std::vector<float> RandomValues(size_t count, std::mt19937& random) {
  std::uniform_real_distribution<float> value(-1.0f, 1.0f);
  std::vector<float> values(count);
  for (float& v : values) v = value(random);
  return values;
}

// A layer on random voxels and features, and its inputs as a dense volume whose
// last channel marks the voxels.
class Layer {
 public:
  explicit Layer(const Geometry& geometry) : g(geometry), random(7), dense(kInputRadius, kCIn + 1) {
    inputs = RandomCoords(60, g.tensor_stride, random);
    outputs = OutputCoordinates(inputs, g);
    map = BuildKernelMap(inputs, outputs, g);
    shape = {static_cast<int64_t>(inputs.size()), static_cast<int64_t>(outputs.size()), kCIn,
             kCOut};
    x = RandomValues(inputs.size() * kCIn, random);
    w = RandomValues(Volume() * kCIn * kCOut, random);
    for (size_t row = 0; row < inputs.size(); ++row) {
      const Vec3 i = LatticeIndex(inputs[row], g.tensor_stride);
      for (int64_t c = 0; c < kCIn; ++c) dense.At(inputs[row].b, i, c) = x[row * kCIn + c];
      dense.At(inputs[row].b, i, kCIn) = 1.0;
    }
  }

  size_t Volume() const { return static_cast<size_t>(g.kernel[0] * g.kernel[1] * g.kernel[2]); }

  double Weight(const Vec3& k, int64_t ci, int64_t co) const {
    const int64_t index = (k[0] * g.kernel[1] + k[1]) * g.kernel[2] + k[2];
    return w[(index * kCIn + ci) * kCOut + co];
  }

  // Cells in front of the output cell that the window covers.
  int64_t Pad(int a) const {
    return g.padding[a] + (g.kernel[a] % 2 == 1 ? g.dilation[a] * ((g.kernel[a] - 1) / 2) : 0);
  }

  // Visits the cells of the window of output `u` and their position in the kernel.
  void ForEachInWindow(const Vec3& u, const std::function<void(const Vec3&, const Vec3&)>& visit) {
    ForEachIn({0, 0, 0}, {g.kernel[0] - 1, g.kernel[1] - 1, g.kernel[2] - 1}, [&](const Vec3& k) {
      Vec3 i;
      for (int a = 0; a < 3; ++a) i[a] = u[a] * g.stride[a] - Pad(a) + k[a] * g.dilation[a];
      visit(i, k);
    });
  }

  DenseVolume DenseConvolution() {
    DenseVolume y(kOutputRadius, kCOut);
    ForEachWithin(kOutputRadius, [&](int32_t b, const Vec3& u) {
      ForEachInWindow(u, [&](const Vec3& i, const Vec3& k) {
        if (dense.Get(b, i, kCIn) == 0.0) return;
        for (int64_t ci = 0; ci < kCIn; ++ci) {
          for (int64_t co = 0; co < kCOut; ++co) {
            y.At(b, u, co) += dense.Get(b, i, ci) * Weight(k, ci, co);
          }
        }
      });
    });
    return y;
  }

  std::vector<double> ReadAtOutputs(const DenseVolume& y, const Vec3& t_out) const {
    std::vector<double> rows;
    for (const Coord& q : outputs) {
      for (int64_t c = 0; c < kCOut; ++c) rows.push_back(y.Get(q.b, LatticeIndex(q, t_out), c));
    }
    return rows;
  }

  Geometry g;
  std::mt19937 random;
  std::vector<Coord> inputs;
  std::vector<Coord> outputs;
  KernelMap map;
  ConvShape shape;
  std::vector<float> x;
  std::vector<float> w;
  DenseVolume dense;
};

Vec3 Times(const Vec3& a, const Vec3& b) { return {a[0] * b[0], a[1] * b[1], a[2] * b[2]}; }

void ExpectCanonical(const KernelMap& map, const Layer& layer) {
  EXPECT_NO_THROW(CheckKernelMap(map, layer.shape.num_inputs, layer.shape.num_outputs));
  EXPECT_GT(map.in.size(), 0u);
  for (int k = 0; k < map.num_offsets; ++k) {
    for (int64_t i = map.offset_ptr[k] + 1; i < map.offset_ptr[k + 1]; ++i) {
      EXPECT_LT(map.out[i - 1], map.out[i]);
    }
  }
}

void ExpectForwardEquals(const Layer& layer, const std::vector<double>& expected) {
  const std::vector<double> y = Convolution(layer.map, layer.shape, layer.x, layer.w);
  EXPECT_LT(RelativeError(y, expected), 1e-14);
}

using Pair = std::tuple<int, int32_t, int32_t>;

// All pairs (k, in, out), or (k, out, in) when swapped.
std::set<Pair> Pairs(const KernelMap& map, bool swapped) {
  std::set<Pair> pairs;
  for (int k = 0; k < map.num_offsets; ++k) {
    for (int64_t i = map.offset_ptr[k]; i < map.offset_ptr[k + 1]; ++i) {
      pairs.emplace(k, swapped ? map.out[i] : map.in[i], swapped ? map.in[i] : map.out[i]);
    }
  }
  return pairs;
}

class SubmanifoldTest : public testing::TestWithParam<Case> {};

TEST_P(SubmanifoldTest, EqualsDense) {
  Layer layer(GetParam().geometry);
  EXPECT_EQ(layer.outputs, layer.inputs);
  ExpectCanonical(layer.map, layer);
  ExpectForwardEquals(layer, layer.ReadAtOutputs(layer.DenseConvolution(), layer.g.tensor_stride));
}

Geometry Submanifold(Vec3 kernel, Vec3 dilation, Vec3 t) {
  return {.kind = Kind::kSubmanifold, .kernel = kernel, .dilation = dilation, .tensor_stride = t};
}

INSTANTIATE_TEST_SUITE_P(
    Reference, SubmanifoldTest,
    testing::Values(Case{"Odd", Submanifold({3, 3, 3}, {1, 1, 1}, {1, 1, 1})},
                    Case{"Even", Submanifold({2, 2, 2}, {1, 1, 1}, {1, 1, 1})},
                    Case{"Pointwise", Submanifold({1, 1, 1}, {1, 1, 1}, {2, 2, 2})},
                    Case{"Dilated", Submanifold({3, 3, 3}, {2, 2, 2}, {1, 1, 1})},
                    Case{"MixedOnStridedTensor", Submanifold({3, 4, 1}, {2, 1, 3}, {4, 2, 1})}),
    [](const auto& info) { return info.param.name; });

class StridedTest : public testing::TestWithParam<Case> {};

std::vector<Coord> ExpectedStridedOutputs(Layer& layer) {
  const Geometry& g = layer.g;
  std::vector<Coord> expected;
  ForEachWithin(kOutputRadius, [&](int32_t b, const Vec3& u) {
    bool is_output = false;
    if (g.rule == Rule::kDilate) {
      layer.ForEachInWindow(u, [&](const Vec3& i, const Vec3&) {
        is_output = is_output || layer.dense.Get(b, i, kCIn) != 0.0;
      });
      for (int a = 0; a < 3 && g.bounds; ++a) {
        is_output = is_output && u[a] >= g.bounds->lo[a] && u[a] <= g.bounds->hi[a];
      }
    } else {
      const Vec3 first = Times(u, g.stride);
      ForEachIn(
          first,
          {first[0] + g.stride[0] - 1, first[1] + g.stride[1] - 1, first[2] + g.stride[2] - 1},
          [&](const Vec3& i) { is_output |= layer.dense.Get(b, i, kCIn) != 0.0; });
    }
    if (is_output) expected.push_back(FromLattice(b, u, Times(g.stride, g.tensor_stride)));
  });
  return expected;
}

TEST_P(StridedTest, EqualsDense) {
  Layer layer(GetParam().geometry);
  EXPECT_EQ(layer.outputs, ExpectedStridedOutputs(layer));
  ExpectCanonical(layer.map, layer);
  ExpectForwardEquals(layer, layer.ReadAtOutputs(layer.DenseConvolution(),
                                                 Times(layer.g.stride, layer.g.tensor_stride)));
}

TEST_P(StridedTest, InverseSwapsThePairs) {
  const Layer strided(GetParam().geometry);
  Geometry g = strided.g;
  g.kind = Kind::kInverse;
  EXPECT_EQ(OutputTensorStride(g), strided.g.tensor_stride);
  EXPECT_THROW(OutputCoordinates(strided.outputs, g), std::invalid_argument);

  const KernelMap inverse = BuildKernelMap(strided.outputs, strided.inputs, g);
  EXPECT_EQ(Pairs(inverse, true), Pairs(strided.map, false));
  EXPECT_EQ(inverse.offset_ptr, strided.map.offset_ptr);
  for (int k = 0; k < inverse.num_offsets; ++k) {
    EXPECT_TRUE(std::is_sorted(inverse.out.begin() + inverse.offset_ptr[k],
                               inverse.out.begin() + inverse.offset_ptr[k + 1]));
  }
}

TEST_P(StridedTest, InverseWithTransposedWeightsIsTheAdjoint) {
  Layer strided(GetParam().geometry);
  Geometry g = strided.g;
  g.kind = Kind::kInverse;
  const KernelMap inverse = BuildKernelMap(strided.outputs, strided.inputs, g);
  std::vector<float> transposed(strided.w.size());
  for (int64_t k = 0; k < inverse.num_offsets; ++k) {
    for (int64_t ci = 0; ci < kCIn; ++ci) {
      for (int64_t co = 0; co < kCOut; ++co) {
        transposed[(k * kCOut + co) * kCIn + ci] = strided.w[(k * kCIn + ci) * kCOut + co];
      }
    }
  }
  const std::vector<float> dy = RandomValues(strided.outputs.size() * kCOut, strided.random);
  const ConvShape shape = {strided.shape.num_outputs, strided.shape.num_inputs, kCOut, kCIn};
  const std::vector<double> backward = BackwardInput(strided.map, strided.shape, dy, strided.w);
  EXPECT_LT(RelativeError(Convolution(inverse, shape, dy, transposed), backward), 1e-14);
}

Geometry Quantize(Vec3 kernel, Vec3 stride, Vec3 dilation, Vec3 t) {
  return {.kind = Kind::kStrided,
          .rule = Rule::kQuantize,
          .kernel = kernel,
          .stride = stride,
          .dilation = dilation,
          .tensor_stride = t};
}

Geometry Dilate(Vec3 kernel, Vec3 stride, Vec3 dilation, Vec3 padding, Vec3 t) {
  Geometry g = Quantize(kernel, stride, dilation, t);
  g.rule = Rule::kDilate;
  g.padding = padding;
  return g;
}

Geometry Bounded(Geometry g, Vec3 lo, Vec3 hi) {
  g.bounds = Bounds{lo, hi};
  return g;
}

INSTANTIATE_TEST_SUITE_P(
    Quantize, StridedTest,
    testing::Values(Case{"Even", Quantize({2, 2, 2}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1})},
                    Case{"Odd", Quantize({3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {2, 2, 2})},
                    Case{"Stride1", Quantize({3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1})},
                    Case{"WindowSmallerThanStride",
                         Quantize({1, 1, 1}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1})},
                    Case{"Mixed", Quantize({3, 2, 5}, {2, 3, 1}, {1, 2, 1}, {1, 2, 4})}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Dilate, StridedTest,
    testing::Values(
        Case{"Even", Dilate({2, 2, 2}, {2, 2, 2}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1})},
        Case{"Odd", Dilate({3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1})},
        Case{"Stride1", Dilate({3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {2, 2, 2})},
        Case{"Padded", Dilate({3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, {2, 2, 2})},
        Case{"NegativePadding", Dilate({3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {-1, -2, 0}, {1, 1, 1})},
        Case{"Mixed", Dilate({3, 2, 4}, {2, 3, 1}, {2, 1, 1}, {1, -1, 2}, {1, 4, 2})},
        Case{"Bounded", Bounded(Dilate({3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, {2, 2, 2}),
                                {0, -1, -20}, {20, 1, 0})}),
    [](const auto& info) { return info.param.name; });

class TransposedTest : public testing::TestWithParam<Case> {};

TEST_P(TransposedTest, EqualsDenseScatter) {
  Layer layer(GetParam().geometry);
  const Geometry& g = layer.g;
  const Vec3 t_out = {g.tensor_stride[0] / g.stride[0], g.tensor_stride[1] / g.stride[1],
                      g.tensor_stride[2] / g.stride[2]};
  EXPECT_EQ(OutputTensorStride(g), t_out);
  DenseVolume y(kOutputRadius, kCOut);
  std::set<Coord> touched;
  ForEachWithin(kInputRadius, [&](int32_t b, const Vec3& i) {
    if (layer.dense.Get(b, i, kCIn) == 0.0) return;
    ForEachIn({0, 0, 0}, {g.kernel[0] - 1, g.kernel[1] - 1, g.kernel[2] - 1}, [&](const Vec3& k) {
      Vec3 u;
      for (int a = 0; a < 3; ++a) u[a] = i[a] * g.stride[a] + k[a] * g.dilation[a] - layer.Pad(a);
      touched.insert(FromLattice(b, u, t_out));
      for (int64_t ci = 0; ci < kCIn; ++ci) {
        for (int64_t co = 0; co < kCOut; ++co) {
          y.At(b, u, co) += layer.dense.Get(b, i, ci) * layer.Weight(k, ci, co);
        }
      }
    });
  });
  EXPECT_EQ(layer.outputs, std::vector<Coord>(touched.begin(), touched.end()));
  ExpectCanonical(layer.map, layer);
  ExpectForwardEquals(layer, layer.ReadAtOutputs(y, t_out));
}

Geometry Transposed(Vec3 kernel, Vec3 stride, Vec3 dilation, Vec3 t) {
  return {.kind = Kind::kTransposed,
          .kernel = kernel,
          .stride = stride,
          .dilation = dilation,
          .tensor_stride = t};
}

INSTANTIATE_TEST_SUITE_P(
    Reference, TransposedTest,
    testing::Values(Case{"Even", Transposed({2, 2, 2}, {2, 2, 2}, {1, 1, 1}, {2, 2, 2})},
                    Case{"Odd", Transposed({3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {4, 4, 4})},
                    Case{"Stride1", Transposed({3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1})},
                    Case{"Mixed", Transposed({3, 2, 4}, {2, 3, 1}, {1, 2, 1}, {4, 3, 1})}),
    [](const auto& info) { return info.param.name; });

// A convolution is linear in x and in w, so a difference quotient is exact for
// any step; L = Σ dy·y.
TEST(GradientTest, EqualsFiniteDifferences) {
  Layer layer(Dilate({3, 2, 1}, {2, 1, 1}, {1, 1, 1}, {1, 0, 0}, {1, 1, 1}));
  const std::vector<float> dy = RandomValues(layer.outputs.size() * kCOut, layer.random);
  const auto loss = [&] {
    const std::vector<double> y = Convolution(layer.map, layer.shape, layer.x, layer.w);
    return std::inner_product(y.begin(), y.end(), dy.begin(), 0.0);
  };
  const auto differences = [&](std::vector<float>& variables) {
    const double base = loss();
    std::vector<double> gradient;
    for (float& v : variables) {
      const float saved = v;
      v += 1.0f;
      const double step = static_cast<double>(v) - saved;
      gradient.push_back((loss() - base) / step);
      v = saved;
    }
    return gradient;
  };
  EXPECT_LT(RelativeError(BackwardInput(layer.map, layer.shape, dy, layer.w), differences(layer.x)),
            1e-12);
  EXPECT_LT(
      RelativeError(BackwardWeight(layer.map, layer.shape, layer.x, dy), differences(layer.w)),
      1e-12);
}

}  // namespace
}  // namespace voxconv::reference
