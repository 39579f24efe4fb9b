// SPDX-License-Identifier: Apache-2.0
// From absl::Status to Python's exceptions.
#ifndef VOXCONV_PYTHON_BINDINGS_STATUS_H_
#define VOXCONV_PYTHON_BINDINGS_STATUS_H_

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace nb = nanobind;

namespace voxconv::python {

// Throws what becomes a Python exception with the status's message, as one line. `status` must be
// an error. MemoryError: kResourceExhausted. NotImplementedError: kUnimplemented. ValueError:
// kInvalidArgument, kOutOfRange, kNotFound, kAlreadyExists, kFailedPrecondition and kDataLoss, all
// of which say that an argument does not fit. RuntimeError: all others. Needs the GIL.
[[noreturn]] void ThrowStatus(const absl::Status& status);

// Throws ValueError or TypeError with this message.
[[noreturn]] void ThrowValueError(const std::string& message);
[[noreturn]] void ThrowTypeError(const std::string& message);

inline void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) ThrowStatus(status);
}

// The value, or the exception.
template <typename T>
T ValueOf(absl::StatusOr<T> value) {
  if (!value.ok()) ThrowStatus(value.status());
  return *std::move(value);
}

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_STATUS_H_
