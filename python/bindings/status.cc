// SPDX-License-Identifier: Apache-2.0
#include "status.h"

#include "absl/strings/str_replace.h"

namespace voxconv::python {
namespace {

[[noreturn]] void Throw(PyObject* type, const std::string& message) {
  PyErr_SetString(type, absl::StrReplaceAll(message, {{"\n", " "}}).c_str());
  throw nb::python_error();
}

PyObject* ExceptionOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kResourceExhausted:
      return PyExc_MemoryError;
    case absl::StatusCode::kUnimplemented:
      return PyExc_NotImplementedError;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kDataLoss:
      return PyExc_ValueError;
    default:
      return PyExc_RuntimeError;
  }
}

}  // namespace

void ThrowStatus(const absl::Status& status) {
  Throw(ExceptionOf(status.code()), std::string(status.message()));
}

void ThrowValueError(const std::string& message) { Throw(PyExc_ValueError, message); }

void ThrowTypeError(const std::string& message) { Throw(PyExc_TypeError, message); }

}  // namespace voxconv::python
