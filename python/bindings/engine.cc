// SPDX-License-Identifier: Apache-2.0
#include "engine.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "exchange.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/builtin/backends.h"
#include "voxconv/builtin/plugins.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/core/version.h"
#if VOXCONV_HAVE_CUDA
#include "voxconv/backends/cuda/cuda_backend.h"
#endif

namespace voxconv::python {
namespace {

// By spec and backend.
template <typename Plugin>
using KeptPlugins = std::map<std::pair<std::string, BackendKind>, std::shared_ptr<const Plugin>>;

// All of it is read and written with the GIL.
struct State {
  EnginePtr cpu;
  std::map<std::pair<int, uintptr_t>, EnginePtr> cuda;  // by device and stream
  std::shared_ptr<const Registry> plugins;
  // Of `plugins`.
  KeptPlugins<Mapping> mappings;
  KeptPlugins<Dataflow> dataflows;
  KeptPlugins<OutputCoords> output_coords;
  int64_t replacements = 0;
  int threads = 0;
};

// Engines that the thread holds.
thread_local int calls = 0;

State& Process() {
  static auto* state = new State;  // never destroyed: the interpreter may outlive statics
  return *state;
}

// CUDA's legacy default stream has two addresses.
std::pair<int, uintptr_t> PlaceOf(int device, uintptr_t stream) {
  return {device, stream == 1 ? 0 : stream};
}

}  // namespace

nb::object LoadedModule(const char* name) {
  return nb::module_::import_("sys").attr("modules").attr("get")(name, nb::none());
}

uintptr_t StreamAddress(const ExecutionContext& context) {
  // Frameworks call CUDA's legacy default stream 0.
  return PlaceOf(0, reinterpret_cast<uintptr_t>(context.stream->native_handle())).second;
}

bool HasCudaEngine(int device, uintptr_t stream) {
  return Process().cuda.contains(PlaceOf(device, stream));
}

void ForgetCudaEngine(int device, uintptr_t stream) {
  Process().cuda.erase(PlaceOf(device, stream));
}

#if VOXCONV_HAVE_CUDA
Engine::Call::Call(Engine& engine) : lock_(engine.mutex_) {
  ++calls;
  if (!engine.backend_->asynchronous()) return;
  // The engine's stream may be the default one of the thread's current device.
  static_cast<CudaBackend&>(*engine.backend_).MakeCurrent();
}

EnginePtr CudaEngine(int device, uintptr_t stream) {
  EnginePtr& engine = Process().cuda[PlaceOf(device, stream)];
  if (engine == nullptr) {
    CudaOptions options{.device = device, .stream = cudaStreamLegacy};
    // DLPack's name for the default stream of each thread.
    if (stream == 2) options.stream = cudaStreamPerThread;
    if (stream > 2) options.stream = reinterpret_cast<cudaStream_t>(stream);
    engine = std::make_shared<Engine>(ValueOf(CudaBackend::Create(options)));
  }
  return engine;
}

absl::Status ReadyForOthers(const ExecutionContext& context) {
  if (!context.backend->asynchronous()) return absl::OkStatus();
  VOXCONV_RETURN_IF_ERROR(context.stream->Submit());
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(CudaStreamOf(context), &status) != cudaSuccess ||
      status != cudaStreamCaptureStatusNone) {
    return absl::FailedPreconditionError("work of Python cannot be recorded");
  }
  return absl::OkStatus();
}
#else
absl::Status ReadyForOthers(const ExecutionContext& /*context*/) { return absl::OkStatus(); }

Engine::Call::Call(Engine& engine) : lock_(engine.mutex_) { ++calls; }

EnginePtr CudaEngine(int, uintptr_t) {
  ThrowStatus(absl::UnimplementedError("device cuda: this module was built without CUDA"));
}
#endif

Engine::Call::~Call() { --calls; }
bool Engine::Call::InCall() { return calls > 0; }

EnginePtr CpuEngine() {
  EnginePtr& engine = Process().cpu;
  if (engine == nullptr) {
    engine = std::make_shared<Engine>(
        ValueOf(MakeBackend({.kind = BackendKind::kCpu, .threads = Process().threads})));
  }
  return engine;
}

EnginePtr EngineNamed(const std::string& device) {
  if (device == "cpu") return CpuEngine();
  absl::string_view rest = device;
  int index = 0;
  if (absl::ConsumePrefix(&rest, "cuda") &&
      (rest.empty() ||
       (absl::ConsumePrefix(&rest, ":") && absl::SimpleAtoi(rest, &index) && index >= 0))) {
    return CudaEngine(index, CurrentStream(index));
  }
  ThrowValueError(absl::StrCat("device '", device, "': allowed are cpu, cuda and cuda:INDEX"));
}

bool Fit(Engine& a, Engine& b) {
  return &a == &b || (!a.backend().asynchronous() && a.backend().device() == b.backend().device());
}

std::string DeviceName(Engine& engine) {
  const Device device = engine.backend().device();
  return device.space == MemorySpace::kHost ? "cpu" : absl::StrCat("cuda:", device.index);
}

uintptr_t CurrentStream(int device) {
  if (const std::optional<Exchange> torch = Exchange::OfTorch(); torch.has_value()) {
    return torch->CurrentStream(nb::device::cuda::value, device).value_or(0);
  }
  if (const nb::object torch = LoadedModule("torch"); !torch.is_none()) {
    const nb::object cuda = torch.attr("cuda");
    if (!nb::cast<bool>(cuda.attr("is_available")())) return 0;
    return nb::cast<uintptr_t>(cuda.attr("current_stream")(device).attr("cuda_stream"));
  }
  if (const nb::object cupy = LoadedModule("cupy"); !cupy.is_none()) {
    return nb::cast<uintptr_t>(cupy.attr("cuda").attr("get_current_stream")().attr("ptr"));
  }
  return 0;
}

void SetNumThreads(int threads) {
  // The backend checks the number; the old engine stays if it is refused.
  auto engine = std::make_shared<Engine>(
      ValueOf(MakeBackend({.kind = BackendKind::kCpu, .threads = threads})));
  Process().threads = threads;
  Process().cpu = std::move(engine);
}

int NumThreads() { return static_cast<CpuBackend&>(CpuEngine()->backend()).threads(); }

std::shared_ptr<const Registry> Plugins() {
  std::shared_ptr<const Registry>& plugins = Process().plugins;
  if (plugins == nullptr) {
    Registry registry;
    ThrowIfError(RegisterAllPlugins({}, registry));
    plugins = std::make_shared<const Registry>(std::move(registry));
  }
  return plugins;
}

namespace {

// `create(registry, kind)` makes the plugin.
template <typename Plugin, typename Create>
std::shared_ptr<const Plugin> Named(KeptPlugins<Plugin>& kept, const std::string& spec,
                                    Engine& engine, const Create& create) {
  const BackendKind kind = engine.backend().kind();
  const std::shared_ptr<const Registry> plugins = Plugins();
  const auto place = kept.find({spec, kind});
  if (place != kept.end()) return place->second;
  std::shared_ptr<const Plugin> made = ValueOf(create(*plugins, kind));
  if (plugins == Process().plugins) kept.emplace(std::pair(spec, kind), made);
  return made;
}

}  // namespace

std::shared_ptr<const Mapping> MappingNamed(const std::string& spec, Engine& engine) {
  return Named(Process().mappings, spec, engine, [&](const Registry& plugins, BackendKind kind) {
    return plugins.mappings().Create(spec, kind);
  });
}

std::shared_ptr<const Dataflow> DataflowNamed(const std::string& spec, Engine& engine) {
  return Named(Process().dataflows, spec, engine, [&](const Registry& plugins, BackendKind kind) {
    return plugins.dataflows().Create(spec, kind);
  });
}

std::shared_ptr<const OutputCoords> OutputCoordsNamed(const std::string& spec, Engine& engine) {
  return Named(Process().output_coords, spec, engine,
               [&](const Registry& plugins, BackendKind kind) {
                 return plugins.output_coords().Create(spec, kind);
               });
}

namespace {

void ForgetKeptPlugins() {
  Process().mappings.clear();
  Process().dataflows.clear();
  Process().output_coords.clear();
}

}  // namespace

void AddPlugins(const std::function<absl::Status(Registry&)>& add, bool replaces) {
  Registry registry = *Plugins();
  ThrowIfError(add(registry));
  if (replaces) ++Process().replacements;
  ForgetKeptPlugins();
  Process().plugins = std::make_shared<const Registry>(std::move(registry));
}

int64_t Replacements() { return Process().replacements; }

std::string NameToKeep(const std::string& spec) {
  return Replacements() == 0 ? spec : absl::StrCat(spec, "#", Replacements());
}

void Shutdown() {
  State& state = Process();
  ForgetExceptions();
  ForgetKeptPlugins();
  state.plugins = nullptr;
  state.cpu = nullptr;
  state.cuda.clear();
}

}  // namespace voxconv::python
