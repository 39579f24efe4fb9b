// SPDX-License-Identifier: Apache-2.0
// The backends and the plugins of the process, and how a call from Python uses them.
#ifndef VOXCONV_PYTHON_BINDINGS_ENGINE_H_
#define VOXCONV_PYTHON_BINDINGS_ENGINE_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "outputs_ahead.h"
#include "plugin_exception.h"
#include "status.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/mapping.h"
#include "voxconv/core/registry.h"
#include "voxconv/core/workspace.h"

namespace voxconv::python {

// A backend and the scratch memory of its calls. One call at a time drives it. What lies in its
// memory holds a pointer to it, so that memory never outlives its backend.
class Engine {
 public:
  explicit Engine(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  Backend& backend() { return *backend_; }
  Workspace& workspace() { return workspace_; }
  // Use it within a call.
  OutputsAhead& outputs_ahead() { return outputs_ahead_; }
  ExecutionContext Context() { return {backend_.get(), &backend_->main_stream()}; }

  // Holds the engine for one call of one thread, which may nest calls: a plugin that is written in
  // Python may use voxconv itself. Construct it without the GIL: who waits for the engine must not
  // keep Python from the thread that has it.
  class Call {
   public:
    explicit Call(Engine& engine);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // Whether this thread holds an engine.
    static bool InCall();

   private:
    std::unique_lock<std::recursive_mutex> lock_;
  };

 private:
  std::unique_ptr<Backend> backend_;
  // After the backend: they are freed first.
  Workspace workspace_;
  OutputsAhead outputs_ahead_;
  std::recursive_mutex mutex_;
};
using EnginePtr = std::shared_ptr<Engine>;

// A value in an engine's memory. It keeps the engine, and is freed while it holds the engine: a
// backend that is asynchronous frees memory on its stream.
template <typename T>
class Held {
 public:
  Held(EnginePtr engine, T value) : engine_(std::move(engine)), value_(std::move(value)) {}
  ~Held() {
    if (!engine_->backend().asynchronous()) return;
    // A call that drops the last pointer, such as one that leaves the voxels of an earlier call, is
    // without the GIL already.
    std::optional<nb::gil_scoped_release> released;
    if (!Engine::Call::InCall()) released.emplace();
    const Engine::Call call(*engine_);
    value_ = T();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  const EnginePtr& engine() const { return engine_; }
  const T& operator*() const { return value_; }
  const T* operator->() const { return &value_; }

 private:
  EnginePtr engine_;
  T value_;  // after the engine: it is freed first
};
// Shared, so that Python's objects and the arrays that they hand out hold the same value.
template <typename T>
using HeldPtr = std::shared_ptr<const Held<T>>;
template <typename T>
HeldPtr<T> Hold(EnginePtr engine, T value) {
  return std::make_shared<const Held<T>>(std::move(engine), std::move(value));
}

// The engine of the CPU.
EnginePtr CpuEngine();
// The engine of GPU `device` and the stream with this address: the caller's current stream (0 and 1
// are CUDA's legacy default stream). NotImplementedError in a module that was built without CUDA.
EnginePtr CudaEngine(int device, uintptr_t stream);
// Whether CudaEngine has made the engine of this GPU and stream.
bool HasCudaEngine(int device, uintptr_t stream);
// Drops the engine of this GPU and stream, if there is one.
void ForgetCudaEngine(int device, uintptr_t stream);
// "cpu", "cuda" or "cuda:1"; the stream is the caller's current one (CurrentStream). ValueError for
// other names.
EnginePtr EngineNamed(const std::string& device);
// Whether what lies in the memory of one engine serves calls on the other: they are the same, or
// both are the CPU's.
bool Fit(Engine& a, Engine& b);
// "cpu", "cuda:1".
std::string DeviceName(Engine& engine);

// The current stream of the framework that the process has loaded: PyTorch's or CuPy's for
// `device`, else 0. Needs the GIL.
uintptr_t CurrentStream(int device);
// The module if the process has imported it, else None. Needs the GIL.
nb::object LoadedModule(const char* name);
// The address of the context's CUDA stream; 0 on the CPU and for CUDA's legacy default stream.
uintptr_t StreamAddress(const ExecutionContext& context);
// Makes the context's stream ready for work that others queue on its address: hands over what it
// kept back. kFailedPrecondition if it is being recorded. OK on the CPU.
absl::Status ReadyForOthers(const ExecutionContext& context);

// Makes the CPU's engine anew with so many threads; 0: all cores. What lies in the old one's memory
// keeps it alive.
void SetNumThreads(int threads);
int NumThreads();

// The plugins: those that are built in, those of VOXCONV_PLUGIN_PATH, and those that were added
// since. Only a thread that has the GIL may add plugins. A call takes the registry's current state
// (Plugins) and keeps it while it runs.
std::shared_ptr<const Registry> Plugins();
// The plugin of this spec on the engine's kind of backend. Kept for later calls, until plugins are
// added. Needs the GIL.
std::shared_ptr<const Mapping> MappingNamed(const std::string& spec, Engine& engine);
std::shared_ptr<const Dataflow> DataflowNamed(const std::string& spec, Engine& engine);
std::shared_ptr<const OutputCoords> OutputCoordsNamed(const std::string& spec, Engine& engine);
// Calls `add` with a copy of the registry, which replaces it if `add` succeeds. `replaces` says
// that `add` gives another plugin to a name that the registry has.
void AddPlugins(const std::function<absl::Status(Registry&)>& add, bool replaces = false);
// Returns how often a plugin has replaced one of the same name. What was made with a smaller number
// may use a plugin that was replaced. Needs the GIL.
int64_t Replacements();
// Returns the name under which a map keeps what the dataflow of this spec makes of it. The name
// changes when the dataflow is replaced. Needs the GIL.
std::string NameToKeep(const std::string& spec);
// Frees plugins and engines that nothing else holds. For the interpreter's end.
void Shutdown();

// Runs `work(context)`, which returns absl::StatusOr<T> or absl::Status, without the GIL, and holds
// the engine meanwhile. Returns the value or throws the exception, which a plugin that ends the
// call has raised (ThrowIfEnding) or that the status becomes.
template <typename Work>
auto RunOn(Engine& engine, const Work& work) {
  using Result = std::invoke_result_t<Work, const ExecutionContext&>;
  Result result = [&]() -> Result {
    const nb::gil_scoped_release released;
    const Engine::Call call(engine);
    try {
      return work(engine.Context());
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("out of memory");
    }
  }();
  ThrowIfEnding();
  if constexpr (std::is_same_v<Result, absl::Status>) {
    ThrowIfError(result);
  } else {
    return ValueOf(std::move(result));
  }
}

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_ENGINE_H_
