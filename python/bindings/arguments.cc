// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include <nanobind/stl/string.h>

#include "voxconv/core/coordinate_key.h"

namespace voxconv::python {
namespace {

std::string Repr(nb::handle value) { return nb::cast<std::string>(nb::repr(value)); }

std::string ToText(const char* name, nb::handle value) {
  std::string text;
  if (nb::isinstance<nb::str>(value) && nb::try_cast(value, text)) return text;
  ThrowTypeError(absl::StrCat(name, ": a string is needed, not ", TypeText(value)));
}

// Whether `value` is a whole number and no bool.
bool IsInteger(nb::handle value, int64_t& number) {
  if (nb::isinstance<nb::bool_>(value) || !nb::hasattr(value, "__index__")) return false;
  try {
    return nb::try_cast(nb::module_::import_("operator").attr("index")(value), number);
  } catch (nb::python_error&) {
    return false;  // an array of several numbers
  }
}

bool IsNumber(nb::handle value, double& number) {
  if (nb::isinstance<nb::bool_>(value) || nb::isinstance<nb::str>(value)) return false;
  return nb::try_cast(value, number);
}

// The elements of a sequence of so many; false for what is none.
template <size_t N>
bool IsSequence(nb::handle value, std::array<nb::object, N>& elements) {
  if (nb::isinstance<nb::str>(value) || !nb::hasattr(value, "__len__") ||
      !nb::hasattr(value, "__getitem__") || nb::len(value) != N) {
    return false;
  }
  for (size_t i = 0; i < N; ++i) elements[i] = value[nb::int_(i)];
  return true;
}

bool FitsInt32(int64_t n) { return n >= INT32_MIN && n <= INT32_MAX; }

}  // namespace

std::string TypeText(nb::handle object) {
  const nb::handle type = object.type();
  const auto module = nb::cast<std::string>(nb::str(type.attr("__module__")));
  const auto name = nb::cast<std::string>(nb::str(type.attr("__qualname__")));
  return module == "builtins" ? name : absl::StrCat(module, ".", name);
}

int64_t ToInteger(const char* name, nb::handle value, int64_t low, int64_t high) {
  int64_t number = 0;
  if (IsInteger(value, number) && number >= low && number <= high) return number;
  ThrowValueError(
      absl::StrCat(name, " ", Repr(value), ": allowed are whole numbers ", low, " .. ", high));
}

Int3 ToInt3(const char* name, nb::handle value) {
  int64_t number = 0;
  std::array<nb::object, 3> elements;
  if (IsInteger(value, number) && FitsInt32(number)) {
    const auto n = static_cast<int32_t>(number);
    return {n, n, n};
  }
  Int3 result;
  bool ok = IsSequence(value, elements);
  for (int axis = 0; ok && axis < 3; ++axis) {
    ok = IsInteger(elements[axis], number) && FitsInt32(number);
    if (ok) result[axis] = static_cast<int32_t>(number);
  }
  if (ok) return result;
  ThrowValueError(
      absl::StrCat(name, " ", Repr(value), ": a whole number is needed, or three for x, y, z"));
}

std::array<double, 3> ToDouble3(const char* name, nb::handle value) {
  double number = 0;
  if (IsNumber(value, number)) return {number, number, number};
  std::array<nb::object, 3> elements;
  std::array<double, 3> result = {};
  bool ok = IsSequence(value, elements);
  for (int axis = 0; ok && axis < 3; ++axis) ok = IsNumber(elements[axis], result[axis]);
  if (ok) return result;
  ThrowValueError(
      absl::StrCat(name, " ", Repr(value), ": a number is needed, or three for x, y, z"));
}

std::optional<Range> ToRange(const char* name, nb::handle value) {
  if (value.is_none()) return std::nullopt;
  std::array<nb::object, 6> elements;
  Range range;
  bool ok = IsSequence(value, elements);
  for (int i = 0; ok && i < 6; ++i) {
    ok = IsNumber(elements[i], i < 3 ? range.low[i] : range.high[i - 3]);
  }
  for (int axis = 0; ok && axis < 3; ++axis) ok = range.low[axis] < range.high[axis];
  if (ok) return range;
  ThrowValueError(absl::StrCat(name, " ", Repr(value),
                               ": six numbers (xmin, ymin, zmin, xmax, ymax, zmax) are needed, "
                               "each least one below its greatest"));
}

std::optional<Box> ToBox(const char* name, nb::handle value) {
  if (value.is_none()) return std::nullopt;
  std::array<nb::object, 6> elements;
  Box box;
  bool ok = IsSequence(value, elements);
  for (int i = 0; ok && i < 6; ++i) {
    int64_t number = 0;
    ok = IsInteger(elements[i], number) && FitsInt32(number);
    if (ok) (i < 3 ? box.lo[i] : box.hi[i - 3]) = static_cast<int32_t>(number);
  }
  for (int axis = 0; ok && axis < 3; ++axis) ok = box.lo[axis] <= box.hi[axis];
  if (ok) return box;
  ThrowValueError(absl::StrCat(name, " ", Repr(value),
                               ": six whole numbers are needed, the least x, y, z and the "
                               "greatest, no least one past its greatest"));
}

std::string ToPath(const char* name, nb::handle value) {
  std::string path;
  if (nb::isinstance<nb::str>(value)) {
    path = nb::cast<std::string>(value);
  } else if (nb::hasattr(value, "__fspath__")) {
    path = nb::cast<std::string>(value.attr("__fspath__")());
  } else {
    ThrowTypeError(absl::StrCat(name, ": a path is needed, not ", TypeText(value)));
  }
  // A file in a folder of no name would lie in the root.
  if (path.empty()) ThrowValueError(absl::StrCat(name, " '': is empty; a path is needed"));
  return path;
}

nb::tuple ToTuple(const Int3& v) { return nb::make_tuple(v.x, v.y, v.z); }

bool LayerArguments::any() const {
  for (const nb::handle* argument : {&kind, &rule, &kernel, &stride, &dilation, &padding}) {
    if (!argument->is_none()) return true;
  }
  return false;
}

GeometryParams ToGeometryParams(const LayerArguments& layer) {
  GeometryParams params;
  if (!layer.kernel.is_none()) params.kernel = ToInt3("kernel", layer.kernel);
  if (!layer.stride.is_none()) params.stride = ToInt3("stride", layer.stride);
  if (!layer.dilation.is_none()) params.dilation = ToInt3("dilation", layer.dilation);
  if (!layer.padding.is_none()) params.padding = ToInt3("padding", layer.padding);
  params.kind = params.stride == Int3{1, 1, 1} ? ConvKind::kSubmanifold : ConvKind::kStrided;
  if (!layer.kind.is_none()) params.kind = ValueOf(ParseConvKind(ToText("kind", layer.kind)));
  if (layer.rule.is_none()) return params;
  if (params.kind != ConvKind::kStrided && params.kind != ConvKind::kInverse) {
    ThrowValueError(absl::StrCat("rule ", Repr(layer.rule), ": has no meaning with kind ",
                                 ToString(params.kind), "; it is for strided and inverse layers"));
  }
  params.rule = ValueOf(ParseOutputRule(ToText("rule", layer.rule)));
  return params;
}

ConvGeometry ToGeometry(const LayerArguments& layer, const Int3& tensor_stride) {
  GeometryParams params = ToGeometryParams(layer);
  params.input_tensor_stride = tensor_stride;
  return ValueOf(ConvGeometry::Create(params));
}

VoxelizeOptions ToVoxelizeOptions(nb::handle voxel_size, nb::handle origin, nb::handle batch,
                                  const std::string& order) {
  VoxelizeOptions options;
  options.size = ToDouble3("voxel_size", voxel_size);
  options.origin = ToDouble3("origin", origin);
  options.batch = static_cast<int32_t>(ToInteger("batch", batch, 0, kMaxBatch));
  options.order = ValueOf(ParseRowOrder(order));
  return options;
}

Precision ToPrecision(const std::string& text) { return ValueOf(ParsePrecision(text)); }

}  // namespace voxconv::python
