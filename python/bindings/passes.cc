// SPDX-License-Identifier: Apache-2.0
#include "passes.h"

#include "absl/strings/str_cat.h"
#include "status.h"

namespace voxconv::python {

ConstTensorView WeightMatrix(const InArray& weights, Engine& engine, int64_t offsets, int64_t c_in,
                             DType dtype) {
  weights.CheckOn(engine);
  const std::string needed = absl::StrCat(
      "[", offsets, ", ", c_in < 0 ? std::string("C_in") : absl::StrCat(c_in), ", C_out]");
  weights.CheckRank(3, needed.c_str());
  if (weights.shape(0) != offsets || (c_in >= 0 && weights.shape(1) != c_in)) {
    weights.CheckRank(-1, needed.c_str());
  }
  const ConstTensorView view = weights.Matrix();
  if (view.dtype != dtype) {
    ThrowValueError(absl::StrCat(weights.name(), ": dtype ", ToString(view.dtype), "; ",
                                 ToString(dtype), " is needed, as of the other arguments"));
  }
  return view;
}

ConstTensorView SideMatrix(const InArray& array, Engine& engine, int64_t rows, const char* side) {
  array.CheckOn(engine);
  array.CheckRank(2, "[N, C]");
  const ConstTensorView view = array.Matrix();
  if (view.rows != rows) {
    ThrowValueError(absl::StrCat(array.name(), ": shape ", array.ShapeText(),
                                 "; the kernel map has ", rows, " ", side));
  }
  return view;
}

ConstTensorView MatrixLike(const InArray& array, const InArray& x) {
  array.CheckOn(*x.engine());
  const ConstTensorView view = array.Matrix();
  if (array.ShapeText() != x.ShapeText() || view.dtype != x.Matrix().dtype) {
    ThrowValueError(absl::StrCat(array.name(), ": ", array.DTypeText(), " ", array.ShapeText(),
                                 "; ", x.DTypeText(), " ", x.ShapeText(), " is needed"));
  }
  return view;
}

float* FloatColumn(const char* name, nb::handle object, int64_t size, Engine& engine) {
  if (object.is_none()) return nullptr;
  const InArray array(name, object, Giver::kModuleInPlace);
  array.CheckOn(engine);
  if (!array.Is<float>() || array.ndim() != 1 || array.shape(0) != size) {
    ThrowValueError(absl::StrCat(name, ": ", array.DTypeText(), " ", array.ShapeText(),
                                 "; float32 [", size, "] is needed"));
  }
  return static_cast<float*>(const_cast<void*>(array.data()));
}

void CheckColumn(const InArray& array, int64_t channels, DType dtype, Engine& engine) {
  array.CheckOn(engine);
  const bool fits = array.ndim() == 1 && array.shape(0) == channels;
  if (fits && (array.Is<float>() || array.Matrix().dtype == dtype)) return;
  const std::string dtypes =
      dtype == DType::kF32 ? "float32" : absl::StrCat("float32 or ", ToString(dtype));
  ThrowValueError(absl::StrCat(array.name(), ": ", array.DTypeText(), " ", array.ShapeText(), "; ",
                               dtypes, " [", channels, "] is needed"));
}

}  // namespace voxconv::python
