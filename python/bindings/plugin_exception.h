// SPDX-License-Identifier: Apache-2.0
// Exceptions of plugins in Python, which pass through C++ code as an absl::Status. The exception
// itself is kept beside it: the caller's exception gets it as its cause.
#ifndef VOXCONV_PYTHON_BINDINGS_PLUGIN_EXCEPTION_H_
#define VOXCONV_PYTHON_BINDINGS_PLUGIN_EXCEPTION_H_

#include <nanobind/nanobind.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace nb = nanobind;

namespace voxconv::python {

// The exception as a status in one line that begins with `who`, and keeps it. kUnimplemented:
// NotImplementedError. kResourceExhausted: MemoryError, and PyTorch's OutOfMemoryError. kCancelled:
// what is no Exception, such as KeyboardInterrupt. kInternal: all others. The frames of the
// traceback lose their variables, which may be arrays that were lent for one call. `is_worker`: the
// calling thread was none of Python's before it took the GIL, as those that build a network's maps.
// Needs the GIL.
absl::Status StatusOf(const std::string& who, nb::python_error& error, bool is_worker);

// The exception that became a part of this message on this thread or on a worker. Invalid if there
// is none. It is kept no longer. Needs the GIL.
nb::object TakeOriginal(absl::string_view message);

// Whether a plugin raised what is no Exception, and so ends the call that the plugin serves. Needs
// the GIL.
bool IsEnding();
// Raises that exception again if there is one. It is kept no longer. Needs the GIL.
void ThrowIfEnding();

// Forgets all exceptions. For the interpreter's end.
void ForgetExceptions();

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_PLUGIN_EXCEPTION_H_
