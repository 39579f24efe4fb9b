// SPDX-License-Identifier: Apache-2.0
// Layers of SpConv and TorchSparse as sums over their own kernel indices, on their own coordinate
// columns.
#ifndef VOXCONV_TESTS_UNIT_CONVENTION_TEST_UTIL_H_
#define VOXCONV_TESTS_UNIT_CONVENTION_TEST_UTIL_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "voxconv/verify/matrix.h"

namespace voxconv {

using Row = std::array<int32_t, 4>;

inline constexpr int64_t kIn = 2, kOut = 3;

struct Data {
  std::vector<Row> coords;
  std::vector<float> features, weights;
};

inline Data MakeData(int volume, int32_t lo, int32_t extent) {
  std::set<Row> rows;
  uint32_t state = 7;
  const auto next = [&] {
    state = state * 1664525 + 1013904223;
    return lo + static_cast<int32_t>((state >> 8) % extent);
  };
  for (int i = 0; i < 60; ++i) {
    const int32_t a = next(), b = next(), c = next();
    rows.insert({i % 2, a, b, c});
  }
  Data data;
  data.coords.assign(rows.begin(), rows.end());
  data.features = verify::Values(data.coords.size() * kIn, 1);
  data.weights = verify::Values(volume * kIn * kOut, 2);
  return data;
}

struct SpconvLayer {
  std::array<int32_t, 3> kernel, stride, padding, dilation, shape;
};

// Calls body(row of p, u, j) for every input p, kernel index j and output u inside the bounds with
// p = u s - padding + index dilation.
inline void ForSpconvPairs(const Data& data, const SpconvLayer& layer,
                           const std::function<void(size_t, const Row&, int)>& body) {
  const auto& [kernel, stride, padding, dilation, shape] = layer;
  for (size_t p = 0; p < data.coords.size(); ++p) {
    for (int j = 0; j < kernel[0] * kernel[1] * kernel[2]; ++j) {
      const int index[3] = {j / (kernel[1] * kernel[2]), j / kernel[2] % kernel[1], j % kernel[2]};
      Row u = {data.coords[p][0], 0, 0, 0};
      bool inside = true;
      for (int a = 0; a < 3; ++a) {
        const int32_t v = data.coords[p][a + 1] + padding[a] - index[a] * dilation[a];
        const int32_t size =
            (shape[a] + 2 * padding[a] - dilation[a] * (kernel[a] - 1) - 1) / stride[a] + 1;
        inside = inside && v >= 0 && v % stride[a] == 0 && v / stride[a] < size;
        u[a + 1] = v / stride[a];
      }
      if (inside) body(p, u, j);
    }
  }
}

struct TorchsparseLayer {
  std::array<int32_t, 3> kernel, stride, padding;
};

// Calls body(row of p, u, j) as TorchSparse 2.1 publishes it: u s = p + padding - index, with u in
// 0 .. floor((max + 2 padding - (k - 1)) / s). j counts x fastest if the volume is odd, and z
// fastest if not.
inline void ForTorchsparsePairs(const Data& data, const TorchsparseLayer& layer,
                                const std::function<void(size_t, const Row&, int)>& body) {
  const auto& [k, s, padding] = layer;
  const int volume = k[0] * k[1] * k[2];
  std::array<int32_t, 3> most = {0, 0, 0};
  for (const Row& row : data.coords) {
    for (int a = 0; a < 3; ++a) most[a] = std::max(most[a], row[a + 1]);
  }
  for (size_t p = 0; p < data.coords.size(); ++p) {
    for (int j = 0; j < volume; ++j) {
      const std::array<int, 3> index =
          volume % 2 == 1 ? std::array<int, 3>{j % k[0], j / k[0] % k[1], j / (k[0] * k[1])}
                          : std::array<int, 3>{j / (k[1] * k[2]), j / k[2] % k[1], j % k[2]};
      Row u = {data.coords[p][0], 0, 0, 0};
      bool inside = true;
      for (int a = 0; a < 3; ++a) {
        const int32_t v = data.coords[p][a + 1] + padding[a] - index[a];
        inside = inside && v >= 0 && v % s[a] == 0 &&
                 v / s[a] <= (most[a] + 2 * padding[a] - (k[a] - 1)) / s[a];
        u[a + 1] = v / s[a];
      }
      if (inside) body(p, u, j);
    }
  }
}

}  // namespace voxconv

#endif  // VOXCONV_TESTS_UNIT_CONVENTION_TEST_UTIL_H_
