// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_REFERENCE_CPU_FP64_ARRAY_H_
#define VOXCONV_REFERENCE_CPU_FP64_ARRAY_H_

#include <cstddef>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

namespace voxconv::reference {

// An array of fp64 numbers, made of floats or doubles. A function that takes it
// can have a layer's float input as well as the fp64 result of another layer.
// Owns a copy in host memory.
class Fp64Array {
 public:
  Fp64Array() = default;
  // The conversions are implicit on purpose; they are the point of the class.
  // NOLINTBEGIN(google-explicit-constructor)
  Fp64Array(std::span<const float> values) : values_(values.begin(), values.end()) {}
  Fp64Array(const std::vector<float>& values) : values_(values.begin(), values.end()) {}
  Fp64Array(std::vector<double> values) : values_(std::move(values)) {}
  Fp64Array(std::initializer_list<double> values) : values_(values) {}
  // NOLINTEND(google-explicit-constructor)

  std::size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  double operator[](std::size_t i) const { return values_[i]; }

 private:
  std::vector<double> values_;
};

}  // namespace voxconv::reference

#endif  // VOXCONV_REFERENCE_CPU_FP64_ARRAY_H_
