// The small words that every interface is written with.
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

  int32_t& operator[](int axis) { return axis == 0 ? x : axis == 1 ? y : z; }
  int32_t operator[](int axis) const { return axis == 0 ? x : axis == 1 ? y : z; }
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

// Inclusive box.
struct Box {
  Int3 lo, hi;
  friend bool operator==(const Box&, const Box&) = default;
};

enum class DType { kF32, kTf32, kF16, kBF16 };
enum class BackendKind { kCpu, kCuda };
enum class MemorySpace { kHost, kDevice };

// The timed, named arrows of the straight line, in order; kDense holds the layers of a network
// that are no sparse convolution (batch norm, linear, concatenation, pooling).
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

absl::string_view ToString(DType dtype);
absl::string_view ToString(BackendKind kind);
absl::string_view ToString(Stage stage);
absl::StatusOr<DType> ParseDType(absl::string_view text);
absl::StatusOr<BackendKind> ParseBackendKind(absl::string_view text);

// Bytes of one stored element; tf32 is stored as f32.
int64_t SizeOf(DType dtype);

}  // namespace voxconv

#endif  // VOXCONV_CORE_TYPES_H_
