// SPDX-License-Identifier: Apache-2.0
// How C++ code without the GIL calls a plugin in Python, and lends it arrays.
#ifndef VOXCONV_PYTHON_BINDINGS_PYTHON_CALL_H_
#define VOXCONV_PYTHON_BINDINGS_PYTHON_CALL_H_

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "array.h"
#include "engine.h"
#include "plugin_exception.h"

namespace voxconv::python {

// An object of Python that C++ code without the GIL copies and destroys.
using PyObjectPtr = std::shared_ptr<const nb::object>;
PyObjectPtr Share(nb::object object);

// What `call` returns; an exception of Python becomes a status (StatusOf). Takes the GIL.
template <typename Call>
std::invoke_result_t<Call> InPython(const std::string& who, const Call& call) {
  const bool is_worker = PyGILState_GetThisThreadState() == nullptr;
  const nb::gil_scoped_acquire acquired;
  try {
    return call();
  } catch (nb::python_error& error) {
    return StatusOf(who, error, is_worker);
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(who, ": ", error.what()));
  }
}

// While it lives, the context's stream is the current one of PyTorch and CuPy, if the process has
// loaded them, and what Python calls plugin_stream(). Does nothing on the CPU. Needs the GIL.
class OnStream {
 public:
  explicit OnStream(const ExecutionContext& context);
  ~OnStream();
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

  // The stream of the plugin that the calling thread is in; 0 outside of one.
  static uintptr_t Current();

 private:
  std::vector<nb::object> entered_;
  uintptr_t before_ = 0, stream_ = 0;
  int device_ = 0;
  bool had_engine_ = true;
};

// The same for work that Python queues on the context's stream: what the stream kept back goes
// first (Stream::Collect). kFailedPrecondition if the stream is being recorded: a recording would
// keep the addresses of memory that Python frees.
template <typename Call>
absl::Status InPythonOn(const ExecutionContext& context, const std::string& who, const Call& call) {
  absl::Status status = ReadyForOthers(context);
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat(who, ": ", status.message()));
  return InPython(who, [&]() -> absl::Status {
    const OnStream current(context);
    return call();
  });
}

// Lends memory to Python for one call. Afterwards nothing may refer to it any more.
class Loan {
 public:
  Loan() : flag_(std::make_shared<const int>(0)) {}
  // An array on the memory; read-only where the framework has such arrays.
  template <typename T>
  nb::object Lend(const T* data, const std::vector<int64_t>& shape, const Device& device) const {
    return ReadOnlyArray(data, shape, nb::dtype<T>(), device, Keep(flag_));
  }
  nb::object Lend(const ConstTensorView& view, const std::vector<int64_t>& shape) const {
    return ReadOnlyArray(view.data, shape, DLPackOf(view.dtype), view.device, Keep(flag_));
  }
  nb::object LendWritable(const TensorView& view, const std::vector<int64_t>& shape) const {
    return OutArray(view.data, shape, DLPackOf(view.dtype), view.device, Keep(flag_), {});
  }
  // Refuses an array that is still there.
  absl::Status Check(const std::string& who) const {
    if (flag_.use_count() == 1) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat(who, ": keeps an array that it was given for one call; it must copy it"));
  }

 private:
  std::shared_ptr<const int> flag_;
};

// A NumPy array of its own.
template <typename T>
nb::object Copied(const T* data, const std::vector<int64_t>& shape) {
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  auto values = std::make_shared<std::vector<T>>(data, data + size);
  T* begin = values->data();
  return OutArray(begin, shape, nb::dtype<T>(), Device{}, Keep(std::move(values)), {});
}

// Whole numbers that a plugin returned, copied into the backend's memory: int32 or int64 in host
// memory, or int32 where the backend's memory is. Queued on the context's stream. ValueError for
// another size, dtype or device.
Array<int32_t> TakeRows(const char* name, nb::handle object, int64_t size,
                        const ExecutionContext& context);
// The same as int64 on the host. Synchronises the stream if the array is not there.
std::vector<int64_t> TakeOnHost(const char* name, nb::handle object, int64_t size,
                                const ExecutionContext& context);

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_PYTHON_CALL_H_
