// SPDX-License-Identifier: Apache-2.0
#include "status.h"

#include <nanobind/stl/string.h>

#include "absl/strings/str_replace.h"
#include "plugin_exception.h"

namespace voxconv::python {
namespace {

std::string OneLine(const std::string& message) {
  return absl::StrReplaceAll(message, {{"\n", " "}});
}

[[noreturn]] void Throw(PyObject* type, const std::string& message) {
  PyErr_SetString(type, OneLine(message).c_str());
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
  ThrowIfEnding();
  const std::string message(status.message());
  PyObject* const type = ExceptionOf(status.code());
  nb::object original = TakeOriginal(message);
  if (!original.is_valid()) Throw(type, message);
  const nb::object exception = nb::handle(type)(OneLine(message));
  PyException_SetCause(exception.ptr(), original.release().ptr());  // takes the reference
  PyErr_SetObject(type, exception.ptr());
  throw nb::python_error();
}

void ThrowValueError(const std::string& message) { Throw(PyExc_ValueError, message); }

void ThrowTypeError(const std::string& message) { Throw(PyExc_TypeError, message); }

}  // namespace voxconv::python
