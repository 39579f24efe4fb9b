// SPDX-License-Identifier: Apache-2.0
#include "python_call.h"

#include <nanobind/stl/string.h>

#include "arguments.h"

namespace voxconv::python {
namespace {

thread_local uintptr_t current_stream = 0;

// An array of a plugin: shared as it is, on the stream that the plugin's work was queued on. It is
// no InArray, whose engine would outlive a backend that is a suite's own.
class Returned {
 public:
  Returned(const char* name, nb::handle object, int64_t size, const ExecutionContext& context) {
    nb::object source = nb::borrow(object);
    if (context.backend->asynchronous() && nb::hasattr(object, "__dlpack_device__")) {
      const nb::object device = object.attr("__dlpack_device__")();
      if (nb::cast<int>(device[0]) == nb::device::cuda::value) {
        const uintptr_t stream = StreamAddress(context);
        source = object.attr("__dlpack__")(nb::arg("stream") = stream == 0 ? 1 : stream);
      }
    }
    if (!nb::try_cast(source, array_, /*convert=*/false)) {
      ThrowTypeError(
          absl::StrCat(name, ": ", TypeText(object),
                       " is no array of numbers that DLPack or the buffer protocol shares"));
    }
    if (static_cast<int64_t>(array_.size()) != size) {
      ThrowValueError(absl::StrCat(name, ": ", array_.size(), " elements; ", size, " are needed"));
    }
    int64_t expected = 1;
    for (auto axis = static_cast<int64_t>(array_.ndim()) - 1; size > 0 && axis >= 0; --axis) {
      if (array_.shape(axis) != 1 && array_.stride(axis) != expected) {
        ThrowValueError(absl::StrCat(name, ": is not contiguous; a row-major array is needed"));
      }
      expected *= static_cast<int64_t>(array_.shape(axis));
    }
    on_host_ = array_.device_type() == nb::device::cpu::value;
    const Device device = context.backend->device();
    const bool there = !on_host_ && device.space == MemorySpace::kDevice &&
                       array_.device_type() == nb::device::cuda::value &&
                       array_.device_id() == device.index;
    if (!on_host_ && !there) {
      ThrowValueError(absl::StrCat(name, ": lies on another device than the coordinates"));
    }
    if (!Is<int32_t>() && !Is<int64_t>()) {
      ThrowValueError(
          absl::StrCat(name, ": dtype ", NameOf(array_.dtype()), "; int32 or int64 is needed"));
    }
  }

  template <typename T>
  bool Is() const {
    return array_.dtype() == nb::dtype<T>();
  }
  bool on_host() const { return on_host_; }
  const void* data() const { return array_.data(); }
  int64_t size() const { return static_cast<int64_t>(array_.size()); }

  template <typename T>
  std::vector<T> OnHost() const {
    const auto copy = [&](const auto* from) { return std::vector<T>(from, from + size()); };
    return Is<int32_t>() ? copy(static_cast<const int32_t*>(data()))
                         : copy(static_cast<const int64_t*>(data()));
  }

 private:
  nb::ndarray<nb::ro> array_;
  bool on_host_ = true;
};

// Enters a context manager of Python.
nb::object Entered(nb::object manager) {
  manager.attr("__enter__")();
  return manager;
}

}  // namespace

PyObjectPtr Share(nb::object object) {
  return {new nb::object(std::move(object)), [](const nb::object* pointer) {
            const nb::gil_scoped_acquire acquired;
            delete pointer;
          }};
}

OnStream::OnStream(const ExecutionContext& context) : before_(current_stream) {
  if (!context.backend->asynchronous()) return;
  stream_ = StreamAddress(context);
  device_ = context.backend->device().index;
  current_stream = stream_;
  had_engine_ = HasCudaEngine(device_, stream_);
  if (const nb::object torch = LoadedModule("torch"); !torch.is_none()) {
    const nb::object cuda = torch.attr("cuda");
    // PyTorch wraps no stream of address 0, which is CUDA's legacy default stream.
    const nb::object stream =
        stream_ == 0 ? cuda.attr("default_stream")(device_)
                     : cuda.attr("ExternalStream")(stream_, nb::arg("device") = device_);
    entered_.push_back(Entered(cuda.attr("stream")(stream)));
  }
  if (const nb::object cupy = LoadedModule("cupy"); !cupy.is_none()) {
    const nb::object cuda = cupy.attr("cuda");
    entered_.push_back(Entered(cuda.attr("Device")(device_)));
    entered_.push_back(Entered(cuda.attr("ExternalStream")(stream_, device_)));
  }
}

OnStream::~OnStream() {
  current_stream = before_;
  while (!entered_.empty()) {
    try {
      entered_.back().attr("__exit__")(nb::none(), nb::none(), nb::none());
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("voxconv: leaving a plugin's stream");
    }
    entered_.pop_back();
  }
  // Calls of voxconv by the plugin made an engine for a stream that may end before the process.
  if (!had_engine_) ForgetCudaEngine(device_, stream_);
}

uintptr_t OnStream::Current() { return current_stream; }

Array<int32_t> TakeRows(const char* name, nb::handle object, int64_t size,
                        const ExecutionContext& context) {
  const Returned rows(name, object, size, context);
  if (rows.on_host()) {
    const std::vector<int32_t> values = [&] {
      if (rows.Is<int32_t>()) return rows.OnHost<int32_t>();
      std::vector<int32_t> narrow;
      for (const int64_t value : rows.OnHost<int64_t>()) {
        if (value != static_cast<int32_t>(value)) {
          ThrowValueError(absl::StrCat(name, ": ", value, " is no row"));
        }
        narrow.push_back(static_cast<int32_t>(value));
      }
      return narrow;
    }();
    return ValueOf(CopyToBackend(absl::MakeConstSpan(values), context));
  }
  if (!rows.Is<int32_t>()) {
    ThrowValueError(absl::StrCat(name, ": dtype int64; int32 is needed on CUDA"));
  }
  Array<int32_t> result = ValueOf(AllocateArray<int32_t>(size, context));
  ThrowIfError(context.backend->Copy(result.data(), result.space(), rows.data(), result.space(),
                                     result.bytes(), *context.stream));
  return result;
}

std::vector<int64_t> TakeOnHost(const char* name, nb::handle object, int64_t size,
                                const ExecutionContext& context) {
  const Returned rows(name, object, size, context);
  if (rows.on_host()) return rows.OnHost<int64_t>();
  const auto fetch = [&]<typename T>(std::vector<T> values) {
    ThrowIfError(context.backend->Copy(values.data(), MemorySpace::kHost, rows.data(),
                                       context.backend->device().space,
                                       size * static_cast<int64_t>(sizeof(T)), *context.stream));
    ThrowIfError(context.stream->Synchronize());
    return std::vector<int64_t>(values.begin(), values.end());
  };
  return rows.Is<int32_t>() ? fetch(std::vector<int32_t>(size)) : fetch(std::vector<int64_t>(size));
}

}  // namespace voxconv::python
