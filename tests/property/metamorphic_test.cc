// SPDX-License-Identifier: Apache-2.0
// Relations that hold between runs of any mapping with any dataflow, without an oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/support/session.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/verify/matrix.h"
#include "voxconv/verify/problem.h"

namespace voxconv::testing {
namespace {

using verify::Values;

constexpr int64_t kIn = 5, kOut = 7;

// By coordinate, so that outputs of different row orders compare.
using Field = std::map<Coordinate, std::vector<double>>;

Field ToField(const LayerOutput& output, int64_t channels) {
  Field field;
  for (size_t i = 0; i < output.rows.size(); ++i) {
    field[output.rows[i]] = {output.features.begin() + i * channels,
                             output.features.begin() + (i + 1) * channels};
  }
  return field;
}

void ExpectClose(const Field& a, const Field& b) {
  ASSERT_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (const auto& [coordinate, values] : a) {
    const auto it = b.find(coordinate);
    ASSERT_NE(it, b.end());
    for (size_t c = 0; c < values.size(); ++c) {
      difference += std::pow(values[c] - it->second[c], 2);
      norm += values[c] * values[c];
    }
  }
  EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(norm));
}

GeometryParams ParamsOf(const std::string& name) {
  for (const verify::NamedGeometry& geometry : verify::Geometries()) {
    if (geometry.name == name) return geometry.params;
  }
  ADD_FAILURE() << name;
  return {};
}

ConvGeometry Geometry(GeometryParams params) {
  auto geometry = ConvGeometry::Create(params);
  VOXCONV_CHECK(geometry.ok());
  return *std::move(geometry);
}

std::vector<Coordinate> Rows() {
  std::vector<Coordinate> rows = verify::Scenes()[1].rows;  // two samples, an empty one between
  VOXCONV_CHECK(!rows.empty());
  return rows;
}

LayerInput Input(std::vector<Coordinate> rows, uint64_t seed, int64_t channels = kIn) {
  LayerInput input{std::move(rows), {}, channels};
  input.features = Values(input.rows.size() * channels, seed);
  return input;
}

struct Pairing {
  std::string mapping, dataflow;
};

// Every mapping variant with one dataflow and every dataflow variant with one mapping.
std::vector<Pairing> Pairings() {
  const std::vector<std::string> mappings =
      BuiltinRegistry().mappings().Variants(BackendKind::kCpu);
  const std::vector<std::string> dataflows =
      BuiltinRegistry().dataflows().Variants(BackendKind::kCpu);
  std::vector<Pairing> pairings;
  // Some variants are another backend's.
  const ConvGeometry geometry = *ConvGeometry::Create({});
  for (const std::string& mapping : mappings) {
    const auto plugin = BuiltinRegistry().mappings().Create(mapping, BackendKind::kCpu);
    if (!(*plugin)->Supports(geometry).ok) continue;
    pairings.push_back({mapping, dataflows.front()});
  }
  for (const std::string& dataflow : dataflows) {
    const auto plugin = BuiltinRegistry().dataflows().Create(dataflow, BackendKind::kCpu);
    if (!(*plugin)->Supports(Pass::kForward, {.c_in = kIn, .c_out = kOut}).ok) continue;
    pairings.push_back({mappings.front(), dataflow});
  }
  return pairings;
}

class MetamorphicTest : public ::testing::TestWithParam<Pairing> {
 protected:
  LayerOutput Run(const ConvGeometry& geometry, const LayerInput& input,
                  const std::vector<float>& weights, int64_t c_out = kOut,
                  const std::vector<Coordinate>* outputs = nullptr) {
    auto output =
        RunLayer(GetParam().mapping, GetParam().dataflow, geometry, input, weights, c_out, outputs);
    EXPECT_TRUE(output.ok()) << output.status();
    return output.ok() ? *std::move(output) : LayerOutput{};
  }
  // A test that leaves a geometry out, since the mapping refuses it, ends as a skipped one.
  bool Supported(const ConvGeometry& geometry) {
    auto mapping = BuiltinRegistry().mappings().Create(GetParam().mapping, BackendKind::kCpu);
    const Support support = (*mapping)->Supports(geometry);
    if (!support.ok) refusals_.push_back(absl::StrCat(geometry.ToString(), ": ", support.reason));
    return support.ok;
  }
  void TearDown() override {
    if (!refusals_.empty()) GTEST_SKIP() << "not run: " << absl::StrJoin(refusals_, "; ");
  }
  std::vector<float> Weights(const ConvGeometry& geometry, uint64_t seed) {
    return Values(geometry.num_offsets() * kIn * kOut, seed);
  }

 private:
  std::vector<std::string> refusals_;
};

const char* const kKinds[] = {"submanifold_k3", "quantize_k2_s2", "quantize_k3_s2", "dilate_k3_s2"};

TEST_P(MetamorphicTest, ShiftedInputGivesShiftedOutput) {
  for (const char* name : kKinds) {
    const ConvGeometry geometry = Geometry(ParamsOf(name));
    if (!Supported(geometry)) continue;
    const LayerInput input = Input(Rows(), 1);
    const std::vector<float> weights = Weights(geometry, 2);
    // A multiple of the output stride, else quantisation would group the voxels otherwise.
    const Int3 shift = {-38, 14, 4002};
    const auto moved = [&](std::vector<Coordinate> rows) {
      for (Coordinate& c : rows) c = {c.b, c.x + shift.x, c.y + shift.y, c.z + shift.z};
      return rows;
    };
    LayerOutput expected = Run(geometry, input, weights);
    expected.rows = moved(expected.rows);
    LayerInput shifted = input;
    shifted.rows = moved(input.rows);
    ExpectClose(ToField(expected, kOut), ToField(Run(geometry, shifted, weights), kOut));
  }
}

TEST_P(MetamorphicTest, PermutedRowsGivePermutedOutput) {
  for (const char* name : kKinds) {
    const ConvGeometry geometry = Geometry(ParamsOf(name));
    if (!Supported(geometry)) continue;
    const LayerInput input = Input(Rows(), 3);
    const std::vector<float> weights = Weights(geometry, 4);
    LayerInput reversed = input;
    const size_t rows = input.rows.size();
    for (size_t i = 0; i < rows; ++i) {
      reversed.rows[i] = input.rows[rows - 1 - i];
      std::copy_n(input.features.begin() + (rows - 1 - i) * kIn, kIn,
                  reversed.features.begin() + i * kIn);
    }
    const LayerOutput output = Run(geometry, input, weights);
    const LayerOutput permuted = Run(geometry, reversed, weights);
    ExpectClose(ToField(output, kOut), ToField(permuted, kOut));
    if (geometry.keeps_coordinates()) {
      EXPECT_EQ(permuted.rows, reversed.rows);
    } else {
      EXPECT_EQ(permuted.rows, output.rows);
    }
  }
}

TEST_P(MetamorphicTest, IsLinear) {
  for (const char* name : kKinds) {
    const ConvGeometry geometry = Geometry(ParamsOf(name));
    if (!Supported(geometry)) continue;
    const LayerInput a = Input(Rows(), 5), b = Input(Rows(), 6);
    LayerInput sum = a;
    for (size_t i = 0; i < sum.features.size(); ++i) {
      sum.features[i] = 2 * a.features[i] - b.features[i];
    }
    const std::vector<float> weights = Weights(geometry, 7);
    LayerOutput expected = Run(geometry, a, weights);
    const LayerOutput of_b = Run(geometry, b, weights);
    for (size_t i = 0; i < expected.features.size(); ++i) {
      expected.features[i] = 2 * expected.features[i] - of_b.features[i];
    }
    ExpectClose(ToField(expected, kOut), ToField(Run(geometry, sum, weights), kOut));
  }
}

// Mirroring the voxels and the kernel mirrors the output.
TEST_P(MetamorphicTest, FlippedInputAndKernelGiveFlippedOutput) {
  const ConvGeometry geometry = Geometry(ParamsOf("submanifold_k3"));
  const LayerInput input = Input(Rows(), 8);
  const std::vector<float> weights = Weights(geometry, 9);
  std::vector<float> mirrored(weights.size());
  for (int k = 0; k < 27; ++k) {
    std::copy_n(weights.begin() + k * kIn * kOut, kIn * kOut,
                mirrored.begin() + (26 - k) * kIn * kOut);
  }
  const auto flipped = [](std::vector<Coordinate> rows) {
    for (Coordinate& c : rows) c = {c.b, -c.x, -c.y, -c.z};
    return rows;
  };
  LayerOutput expected = Run(geometry, input, weights);
  expected.rows = flipped(expected.rows);
  LayerInput flipped_input = input;
  flipped_input.rows = flipped(input.rows);
  ExpectClose(ToField(expected, kOut), ToField(Run(geometry, flipped_input, mirrored), kOut));
}

// <conv(x), y> = <x, inverse(y)> with the weights transposed.
TEST_P(MetamorphicTest, InverseIsTheAdjointOfStrided) {
  for (const char* name : {"quantize_k2_s2", "quantize_k3_s2", "dilate_k3_s2"}) {
    const ConvGeometry strided = Geometry(ParamsOf(name));
    const auto inverse = ConvGeometry::InverseOf(strided);
    ASSERT_TRUE(inverse.ok()) << inverse.status();
    if (!Supported(strided) || !Supported(*inverse)) continue;
    const LayerInput x = Input(Rows(), 10);
    const std::vector<float> weights = Weights(strided, 11);
    std::vector<float> transposed(weights.size());
    for (int k = 0; k < strided.num_offsets(); ++k) {
      for (int64_t i = 0; i < kIn; ++i) {
        for (int64_t o = 0; o < kOut; ++o) {
          transposed[(k * kOut + o) * kIn + i] = weights[(k * kIn + i) * kOut + o];
        }
      }
    }
    const LayerOutput conv = Run(strided, x, weights);
    const LayerInput y = Input(conv.rows, 12, kOut);
    const LayerOutput back = Run(*inverse, y, transposed, kIn, &x.rows);
    ASSERT_EQ(back.features.size(), x.features.size());
    double left = 0, right = 0, size = 0;
    for (size_t i = 0; i < conv.features.size(); ++i) {
      left += double{conv.features[i]} * y.features[i];
      size += std::abs(double{conv.features[i]} * y.features[i]);
    }
    for (size_t i = 0; i < x.features.size(); ++i) {
      right += double{x.features[i]} * back.features[i];
    }
    EXPECT_NEAR(left, right, 1e-5 * size);
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, MetamorphicTest, ::testing::ValuesIn(Pairings()),
                         [](const auto& info) {
                           return std::to_string(info.index) + "_" +
                                  TestName(info.param.mapping + "_" + info.param.dataflow);
                         });

// A million voxels: every mapping finds the same pairs.
TEST(MillionVoxelTest, MappingsAgree) {
  std::vector<Coordinate> rows;
  rows.reserve(1'000'000);
  // Rough layers: about five neighbours a voxel, as surfaces have.
  for (int32_t x = 0; rows.size() < 1'000'000; ++x) {
    for (int32_t y = 0; y < 1000 && rows.size() < 1'000'000; ++y) {
      const int32_t z = (x * 7 + y * 13) % 5 + (x / 50 + y / 70) % 9 * 20;
      rows.push_back({0, x - 500, y - 500, z});
    }
  }
  const ExecutionContext context = CpuContext();
  const auto set = CoordinateSet::Create(rows, {1, 1, 1}, context);
  ASSERT_TRUE(set.ok()) << set.status();
  const ConvGeometry geometry = Geometry({});
  std::vector<int32_t> first_in;
  for (const auto& [name, entry] : BuiltinRegistry().mappings().entries()) {
    if (!entry.factories.contains(BackendKind::kCpu)) continue;
    const auto mapping = BuiltinRegistry().mappings().Create(name, BackendKind::kCpu);
    ASSERT_TRUE(mapping.ok()) << mapping.status();
    const auto map = QueryPairs(**mapping, {**set, **set, geometry}, context);
    ASSERT_TRUE(map.ok()) << name << ": " << map.status();
    const auto in = CopyToHost(map->pairs().in.array(), context);
    ASSERT_TRUE(in.ok());
    if (first_in.empty()) first_in = *in;
    EXPECT_TRUE(*in == first_in) << name;
  }
}

}  // namespace
}  // namespace voxconv::testing
