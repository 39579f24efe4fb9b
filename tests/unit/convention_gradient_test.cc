// SPDX-License-Identifier: Apache-2.0
// Gradients of SpConv's and TorchSparse's layers: each is the sum over the engine's own kernel
// indices, written out here, and the dataflows' gradient of the same layer in voxconv's geometry.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "convention_test_util.h"
#include "gtest/gtest.h"
#include "tests/support/session.h"
#include "voxconv/core/convolution.h"
#include "voxconv/io/convention.h"

namespace voxconv {
namespace {

using testing::BuiltinRegistry;
using testing::CpuContext;

Int3 Xyz(const std::array<int32_t, 3>& v) { return {v[0], v[1], v[2]}; }

std::vector<Coordinate> RowsOf(const std::vector<Row>& rows) {
  std::vector<Coordinate> coordinates;
  coordinates.reserve(rows.size());
  for (const Row& row : rows) coordinates.push_back({row[0], row[1], row[2], row[3]});
  return coordinates;
}

// The output gradient at `u`, in the engine's columns: any function of it serves.
std::vector<float> OutputGradAt(const Row& u) {
  std::vector<float> values;
  for (int o = 0; o < kOut; ++o) {
    const int mixed = 5 * u[0] + 7 * u[1] + 11 * u[2] + 13 * u[3] + 17 * o;
    values.push_back(std::sin(0.3f * static_cast<float>(mixed)));
  }
  return values;
}

// A layer of an engine on data: its pairs, and where its array has the weight of a pair.
struct EngineLayer {
  Convention convention;
  LayerArguments arguments;
  std::vector<int64_t> weight_shape;
  std::function<void(const std::function<void(size_t p, const Row& u, int j)>&)> for_pairs;
  std::function<size_t(int j, int64_t i, int64_t o)> weight_at;
};

struct Gradients {
  std::vector<double> input, weights;  // [rows, kIn], and in the engine's layout
};

// What the engine differentiates: y[u] = sum of x[p] W[j] over its pairs.
Gradients EnginesGradients(const EngineLayer& layer, const Data& data) {
  Gradients sums{std::vector<double>(data.features.size()),
                 std::vector<double>(data.weights.size())};
  layer.for_pairs([&](size_t p, const Row& u, int j) {
    const std::vector<float> dy = OutputGradAt(u);
    for (int64_t i = 0; i < kIn; ++i) {
      for (int64_t o = 0; o < kOut; ++o) {
        const size_t w = layer.weight_at(j, i, o);
        sums.input[p * kIn + i] += double{data.weights[w]} * dy[o];
        sums.weights[w] += double{data.features[p * kIn + i]} * dy[o];
      }
    }
  });
  return sums;
}

void ExpectClose(const std::vector<float>& values, const std::vector<double>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-5) << i;
}

// Reordered as weights are: the order is the same for a weight and its gradient.
Weights ToVoxconv(const EngineLayer& layer, const std::vector<float>& values) {
  const auto weights =
      WeightsToVoxconv(layer.convention, AxesToXyz(layer.convention, layer.arguments.kernel),
                       MakeNpyArray(layer.weight_shape, absl::MakeConstSpan(values)),
                       AxesToXyz(layer.convention, layer.arguments.stride));
  EXPECT_TRUE(weights.ok()) << weights.status();
  return *weights;
}

// The layer in voxconv's geometry, with the output gradient and the weights as it reads them.
class ConvertedLayer {
 public:
  ConvertedLayer(const EngineLayer& layer, const Data& data)
      : layer_(layer), geometry_(*MakeGeometry(layer.convention, layer.arguments)) {
    std::vector<Coordinate> rows = RowsOf(data.coords);
    const Int3 in_unit = geometry_.input_tensor_stride();
    EXPECT_TRUE(CoordinatesToVoxconv(layer.convention, in_unit, rows).ok());
    inputs_ = *CoordinateSet::Create(rows, in_unit, context_);
    outputs_ = inputs_;
    if (!geometry_.keeps_coordinates()) {
      const auto plugin =
          *BuiltinRegistry().output_coords().Create("sort_unique", BackendKind::kCpu);
      outputs_ = *plugin->Compute(*inputs_, geometry_, context_);
    }
    const auto mapping = *BuiltinRegistry().mappings().Create("hash", BackendKind::kCpu);
    map_.emplace(*QueryPairs(*mapping, {*inputs_, *outputs_, geometry_}, context_));
    x_ = *Tensor::FromHost(data.features, inputs_->size(), kIn, context_);
    const std::vector<float> w = ToVoxconv(layer, data.weights).values;
    w_ = *Tensor::FromHost(w, geometry_.num_offsets() * kIn, kOut, context_);
    dy_ = *Tensor::FromHost(OutputGrad(), outputs_->size(), kOut, context_);
  }

  void ExpectGradients(const std::string& spec, const Gradients& expected) const {
    const auto dataflow = *BuiltinRegistry().dataflows().Create(spec, BackendKind::kCpu);
    const Tensor dx = *Tensor::Create(x_.rows(), kIn, DType::kF32, context_);
    const Tensor dw = *Tensor::Create(w_.rows(), kOut, DType::kF32, context_);
    Workspace workspace;
    ASSERT_EQ(RunInputGrad(*dataflow, *map_, {dy_.view(), w_.view(), dx.view()}, Precision::kF32,
                           workspace, context_),
              absl::OkStatus());
    ASSERT_EQ(RunWeightGrad(*dataflow, *map_, {x_.view(), dy_.view(), dw.view()}, Precision::kF32,
                            workspace, context_),
              absl::OkStatus());
    ExpectClose(*dx.ToHost(context_), expected.input);
    const std::vector<float> engines(expected.weights.begin(), expected.weights.end());
    const std::vector<float> reordered = ToVoxconv(layer_, engines).values;
    ExpectClose(*dw.ToHost(context_), {reordered.begin(), reordered.end()});
  }

 private:
  std::vector<float> OutputGrad() const {
    std::vector<Coordinate> rows = *CopyToHost(outputs_->rows(), context_);
    CoordinatesFromVoxconv(layer_.convention, geometry_.output_tensor_stride(), rows);
    std::vector<float> dy;
    for (const Coordinate& c : rows) {
      const std::vector<float> values = OutputGradAt({c.b, c.x, c.y, c.z});
      dy.insert(dy.end(), values.begin(), values.end());
    }
    return dy;
  }

  const ExecutionContext context_ = CpuContext();
  const EngineLayer& layer_;
  ConvGeometry geometry_;
  CoordinateSetPtr inputs_, outputs_;
  std::optional<KernelMap> map_;
  Tensor x_, w_, dy_;
};

void ExpectEnginesGradients(const EngineLayer& layer, const Data& data) {
  const Gradients expected = EnginesGradients(layer, data);
  const ConvertedLayer converted(layer, data);
  for (const char* spec : {"direct", "fetch_on_demand", "gather_gemm_scatter", "hash2col",
                           "implicit_gemm", "implicit_gemm:mask_sort=rarest"}) {
    SCOPED_TRACE(spec);
    converted.ExpectGradients(spec, expected);
  }
}

// Strided where a stride is above 1, else submanifold.
LayerArguments ArgumentsOf(const std::array<int32_t, 3>& kernel,
                           const std::array<int32_t, 3>& stride,
                           const std::array<int32_t, 3>& padding) {
  const bool strided = stride != std::array<int32_t, 3>{1, 1, 1};
  return {.kind = strided ? ConvKind::kStrided : ConvKind::kSubmanifold,
          .rule = strided ? OutputRule::kDilate : OutputRule::kQuantize,
          .kernel = Xyz(kernel),
          .stride = Xyz(stride),
          .padding = Xyz(padding)};
}

void ExpectSpconvsGradients(const SpconvLayer& layer) {
  const auto& [kernel, stride, padding, dilation, shape] = layer;
  const int volume = kernel[0] * kernel[1] * kernel[2];
  SCOPED_TRACE(::testing::PrintToString(kernel) + ::testing::PrintToString(stride));
  const Data data = MakeData(volume, 0, 9);
  const std::set<Row> active(data.coords.begin(), data.coords.end());
  LayerArguments arguments = ArgumentsOf(kernel, stride, padding);
  arguments.dilation = Xyz(dilation);
  const bool strided = arguments.kind == ConvKind::kStrided;
  if (strided) arguments.spatial_shape = Xyz(shape);
  ExpectEnginesGradients(
      {Convention::kSpconv,
       arguments,
       {kOut, kernel[0], kernel[1], kernel[2], kIn},
       [&](const std::function<void(size_t, const Row&, int)>& body) {
         ForSpconvPairs(data, layer, [&](size_t p, const Row& u, int j) {
           if (strided || active.contains(u)) body(p, u, j);
         });
       },
       [volume](int j, int64_t i, int64_t o) { return (o * volume + j) * kIn + i; }},
      data);
}

TEST(ConventionGradientTest, OfSpconvsLayers) {
  ExpectSpconvsGradients({{3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, {9, 9, 9}});
  ExpectSpconvsGradients({{3, 2, 5}, {1, 2, 3}, {1, 0, 2}, {2, 1, 1}, {9, 9, 12}});
  ExpectSpconvsGradients({{3, 1, 5}, {1, 1, 1}, {1, 0, 2}, {1, 1, 1}, {9, 9, 9}});
}

void ExpectTorchsparsesGradients(const TorchsparseLayer& layer) {
  const auto& [kernel, stride, padding] = layer;
  const int volume = kernel[0] * kernel[1] * kernel[2];
  SCOPED_TRACE(::testing::PrintToString(kernel) + ::testing::PrintToString(stride));
  const Data data = MakeData(volume, 0, 9);
  LayerArguments arguments = ArgumentsOf(kernel, stride, padding);
  Int3 shape{1, 1, 1};
  for (const Row& row : data.coords) {
    shape = {std::max(shape.x, row[1] + 1), std::max(shape.y, row[2] + 1),
             std::max(shape.z, row[3] + 1)};
  }
  arguments.spatial_shape = shape;
  ExpectEnginesGradients({Convention::kTorchsparse,
                          arguments,
                          {volume, kIn, kOut},
                          [&](const std::function<void(size_t, const Row&, int)>& body) {
                            ForTorchsparsePairs(data, layer, body);
                          },
                          [](int j, int64_t i, int64_t o) { return (j * kIn + i) * kOut + o; }},
                         data);
}

TEST(ConventionGradientTest, OfTorchsparsesLayers) {
  ExpectTorchsparsesGradients({{3, 3, 3}, {2, 2, 2}, {1, 1, 1}});
  ExpectTorchsparsesGradients({{2, 2, 2}, {2, 2, 2}, {0, 0, 0}});
  ExpectTorchsparsesGradients({{3, 2, 5}, {1, 2, 3}, {1, 0, 2}});
}

}  // namespace
}  // namespace voxconv
