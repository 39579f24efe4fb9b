// SPDX-License-Identifier: Apache-2.0
// Arguments of Python as the library's values. Each function throws a one-line TypeError or
// ValueError that names the argument, its value and what is allowed.
#ifndef VOXCONV_PYTHON_BINDINGS_ARGUMENTS_H_
#define VOXCONV_PYTHON_BINDINGS_ARGUMENTS_H_

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "status.h"
#include "voxconv/core/geometry.h"
#include "voxconv/core/types.h"
#include "voxconv/io/load_input.h"
#include "voxconv/io/range.h"

namespace voxconv::python {

// "int", "numpy.ndarray": for messages.
std::string TypeText(nb::handle object);

// A whole number of low .. high.
int64_t ToInteger(const char* name, nb::handle value, int64_t low, int64_t high);
// One whole number, or three for x, y, z.
Int3 ToInt3(const char* name, nb::handle value);
// One number, or three for x, y, z.
std::array<double, 3> ToDouble3(const char* name, nb::handle value);
// Six numbers: the least x, y, z, then the greatest. None stands for no range.
std::optional<Range> ToRange(const char* name, nb::handle value);
// Six whole numbers, in the same order. None stands for no box.
std::optional<Box> ToBox(const char* name, nb::handle value);
// A string or what os.fspath makes one of.
std::string ToPath(const char* name, nb::handle value);
nb::tuple ToTuple(const Int3& v);

// The C++ object that `value` wraps, which Python owns. `type` names the class for the message.
template <typename T>
T& As(const char* name, nb::handle value, const char* type) {
  T* object = nullptr;
  if (value.is_none() || !nb::try_cast(value, object, /*convert=*/false) || object == nullptr) {
    ThrowTypeError(absl::StrCat(name, ": a ", type, " is needed, not ", TypeText(value)));
  }
  return *object;
}

// A layer as Python describes it; None stands for the default. Nothing is owned.
struct LayerArguments {
  nb::handle kind, rule, kernel, stride, dilation, padding;
  // Whether any argument is given.
  bool any() const;
};
// Without a kind, a stride of 1 means submanifold, another one strided. `tensor_stride` is that of
// the input.
ConvGeometry ToGeometry(const LayerArguments& layer, const Int3& tensor_stride);
// The same without the tensor stride.
GeometryParams ToGeometryParams(const LayerArguments& layer);

// How voxels are made of points.
VoxelizeOptions ToVoxelizeOptions(nb::handle voxel_size, nb::handle origin, nb::handle batch,
                                  const std::string& order);

Precision ToPrecision(const std::string& text);

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_ARGUMENTS_H_
