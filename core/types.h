// SPDX-License-Identifier: Apache-2.0
// Small types that every interface uses.
#ifndef VOXCONV_CORE_TYPES_H_
#define VOXCONV_CORE_TYPES_H_

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace voxconv {

// One value per spatial axis. Axis 0 is x, 1 is y, 2 is z, everywhere.
struct Int3 {
  int32_t x = 0, y = 0, z = 0;

  constexpr int32_t& operator[](int axis) { return axis == 0 ? x : axis == 1 ? y : z; }
  constexpr int32_t operator[](int axis) const { return axis == 0 ? x : axis == 1 ? y : z; }
  friend bool operator==(const Int3&, const Int3&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Int3& v) {
    return H::combine(std::move(h), v.x, v.y, v.z);
  }
};

inline constexpr char kAxisNames[3] = {'x', 'y', 'z'};

// "3" for {3,3,3}, "1x3x1" otherwise.
std::string ToString(const Int3& v);

// One row of a CoordinateSet: batch sample and position in units of the finest voxel.
struct Coordinate {
  int32_t b = 0, x = 0, y = 0, z = 0;

  Int3 position() const { return {x, y, z}; }
  friend auto operator<=>(const Coordinate&, const Coordinate&) = default;
};
static_assert(sizeof(Coordinate) == 16);

// A box of positions. Both corners are inside.
struct Box {
  Int3 lo, hi;
  friend bool operator==(const Box&, const Box&) = default;
};

// What the elements of a tensor are stored as.
enum class DType { kF32, kF16, kBF16 };

// What the factors of a product are rounded to before they are multiplied. Sums are f32 in every
// precision. kTf32 has the range of f32 and 10 bits of mantissa. Its factors are stored as f32.
enum class Precision { kF32, kTf32, kF16, kBF16 };

// The kind of a backend, which is a name. A plugin has one factory for each kind that it runs on
// (core/registry.h). A new backend adds a kind by taking a new name.
class BackendKind {
 public:
  static const BackendKind kCpu, kCuda;

  // `name` is a lower_snake_case word. Its characters must live as long as the program.
  constexpr explicit BackendKind(absl::string_view name) : name_(name) {}
  constexpr absl::string_view name() const { return name_; }

  friend constexpr bool operator==(const BackendKind& a, const BackendKind& b) {
    return a.name_ == b.name_;
  }
  friend constexpr bool operator<(const BackendKind& a, const BackendKind& b) {
    return a.name_ < b.name_;
  }

 private:
  absl::string_view name_;
};
inline constexpr BackendKind BackendKind::kCpu{"cpu"};
inline constexpr BackendKind BackendKind::kCuda{"cuda"};

enum class MemorySpace { kHost, kDevice };

// Where memory lies: on the host, or on the device with this index.
struct Device {
  MemorySpace space = MemorySpace::kHost;
  int index = 0;  // 0 on the host
  friend bool operator==(const Device&, const Device&) = default;
};

// The timed steps of a convolution, in order. kDense is the time of the layers of a network that
// are not sparse convolutions, such as batch norm, linear, concatenation and pooling.
enum class Stage {
  kOutputCoords,
  kIndexBuild,
  kMapQuery,
  kConvert,
  kGather,
  kGemm,
  kScatter,
  kFused,
  kEpilogue,
  kDense,
};
inline constexpr int kNumStages = 10;

absl::string_view ToString(DType dtype);          // "f32", "f16", "bf16"
absl::string_view ToString(Precision precision);  // "f32", "tf32", "f16", "bf16"
inline absl::string_view ToString(BackendKind kind) { return kind.name(); }
absl::string_view ToString(Stage stage);  // "output_coords", "index_build", ...
// "host memory", "device 1".
std::string ToString(const Device& device);

// Reads what ToString writes. The command line and files call a precision "dtype". kInvalidArgument
// for any other text; the message lists what is allowed.
absl::StatusOr<Precision> ParsePrecision(absl::string_view text);
// Reads "cpu" and "cuda". Other kinds have no word on the command line. kInvalidArgument as above.
absl::StatusOr<BackendKind> ParseBackendKind(absl::string_view text);

// The dtype of tensors whose values are factors in `precision`: f32 for kF32 and kTf32.
DType StorageOf(Precision precision);
// The precision that uses all bits of factors that are stored as `dtype`. Never kTf32.
Precision PrecisionOf(DType dtype);
// Bytes of one element.
int64_t SizeOf(DType dtype);

}  // namespace voxconv

#endif  // VOXCONV_CORE_TYPES_H_
