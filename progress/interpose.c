/* Interposes dlsym() and, through it, cuGetProcAddress(): a program that looks up a function of
 * the CUDA driver that launches, waits or copies gets one that counts and calls it. So do the
 * calls of objects that are linked with the driver (linked.h). Nothing else changes, and no name
 * but dlsym's is shown: a program may have a variable cuLaunchKernel of its own. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "count.h"
#include "elf_lookup.h"
#include "linked.h"

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "dlsym() is told who calls it by its return address: another processor needs its own jump"
#endif

#define SHOWN __attribute__((visibility("default")))

enum { SUCCESS = 0, CAPTURE_INVALIDATED = 901 }; /* CUresult */
enum { HOST_MEMORY = 1 };                        /* CUmemorytype */
enum { PER_THREAD_STREAMS = 2 };                 /* a flag of cuGetProcAddress */

typedef struct {
  unsigned grid_x, grid_y, grid_z; /* and more: CUlaunchConfig */
  unsigned block_x, block_y, block_z, shared_bytes;
  void* stream;
} LaunchConfig;

typedef struct { /* CUDA_LAUNCH_PARAMS */
  void* function;
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z, shared_bytes;
  void* stream;
  void** parameters;
} LaunchOnDevice;

typedef struct {
  size_t x, y;
  unsigned memory; /* CUmemorytype */
  const void* host;
  uint64_t device;
  void* array;
  size_t pitch;
} Side2D;
typedef struct { /* CUDA_MEMCPY2D */
  Side2D from, to;
  size_t width, height;
} Copy2D;

typedef struct {
  size_t x, y, z, level;
  unsigned memory;
  const void* host;
  uint64_t device;
  void *array, *context;
  size_t pitch, height;
} Side3D;
typedef struct { /* CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER */
  Side3D from, to;
  size_t width, height, depth;
} Copy3D;

static derate_driver_calls driver_;
static struct {
  int (*of_stream)(void* stream, void** context); /* cuStreamGetCtx */
  int (*push)(void* context);                     /* cuCtxPushCurrent_v2 */
  int (*pop)(void** context);                     /* cuCtxPopCurrent_v2 */
} contexts_;

typedef void (*Function)(void);
typedef void* (*Find)(void*, const char*);

/* Where dlsym() goes on: the next one after ours. NULL: there is none. */
static Function real_dlsym_;
__attribute__((used)) Function derate_real_dlsym(void);

#define ASK(place, name) \
  __atomic_store_n(&(place), (__typeof__(place))find(handle, name), __ATOMIC_RELAXED)

/* What is asked of the driver, once, of its functions as `find` finds them. False: it is another
 * than before. */
static bool ask_the_driver(Find find, void* handle) {
  int (*device)(int*) = NULL;
  int (*const found)(int*) = (int (*)(int*))find(handle, "cuCtxGetDevice");
  if (found == NULL) return false;
  device = __atomic_load_n(&driver_.device_of_context, __ATOMIC_ACQUIRE);
  if (device != NULL) return device == found;
  ASK(driver_.uuid_of_device, "cuDeviceGetUuid_v2");
  if (driver_.uuid_of_device == NULL) ASK(driver_.uuid_of_device, "cuDeviceGetUuid");
  ASK(driver_.name_of_function, "cuFuncGetName");
  ASK(driver_.name_of_kernel, "cuKernelGetName");
  ASK(driver_.nodes_of_graph, "cuGraphGetNodes");
  ASK(driver_.capture_of_stream, "cuStreamIsCapturing");
  ASK(contexts_.of_stream, "cuStreamGetCtx");
  ASK(contexts_.push, "cuCtxPushCurrent_v2");
  ASK(contexts_.pop, "cuCtxPopCurrent_v2");
  (void)find(handle, "cuCtxGetDevice"); /* dlerror() keeps nothing of what an old driver lacks */
  __atomic_store_n(&driver_.device_of_context, found, __ATOMIC_RELEASE);
  return true;
}

static bool ask_and_begin(void* handle) {
  const Find find = (Find)derate_real_dlsym();
  if (find == NULL || !ask_the_driver(find, handle)) return false;
  derate_begin_counting();
  return true;
}

/* --- the functions that count ----------------------------------------------------------------- */

/* Each is handed out once the driver's own is known, which stands behind its name then. */
#define REAL(name) __atomic_load_n(&real_##name, __ATOMIC_RELAXED)

/* A function of the driver with these parameters, after which, where it went well, `counting`. */
#define COUNTED(name, parameters, arguments, counting) \
  static Function real_##name;                         \
  static int name parameters {                         \
    typedef int(*Call) parameters;                     \
    const Call real = (Call)REAL(name);                \
    const int result = real arguments;                 \
    if (result == SUCCESS) counting;                   \
    return result;                                     \
  }
/* With its second form, whose default stream is each thread's own. */
#define COUNTED_PTSZ(name, parameters, arguments, counting) \
  COUNTED(name, parameters, arguments, counting)            \
  COUNTED(name##_ptsz, parameters, arguments, counting)
#define COUNTED_PTDS(name, parameters, arguments, counting) \
  COUNTED(name, parameters, arguments, counting)            \
  COUNTED(name##_ptds, parameters, arguments, counting)

/* --- kernels */

static void count_grid(void* function, void* stream, unsigned x, unsigned y, unsigned z) {
  derate_count_launch(&driver_, function, stream, (uint64_t)x * y * z);
}

#define GRID_PARAMETERS                                                                \
  void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
      unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **parameters
#define GRID \
  function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters

COUNTED_PTSZ(cuLaunchKernel, (GRID_PARAMETERS, void** extra), (GRID, extra),
             count_grid(function, stream, grid_x, grid_y, grid_z))
COUNTED_PTSZ(cuLaunchCooperativeKernel, (GRID_PARAMETERS), (GRID),
             count_grid(function, stream, grid_x, grid_y, grid_z))
COUNTED_PTSZ(cuLaunchKernelEx,
             (const LaunchConfig* config, void* function, void** parameters, void** extra),
             (config, function, parameters, extra),
             count_grid(function, config->stream, config->grid_x, config->grid_y, config->grid_z))
/* Of CUDA 3. */
COUNTED(cuLaunch, (void* function), (function), count_grid(function, NULL, 1, 1, 1))
COUNTED(cuLaunchGrid, (void* function, int x, int y), (function, x, y),
        count_grid(function, NULL, (unsigned)x, (unsigned)y, 1))
COUNTED(cuLaunchGridAsync, (void* function, int x, int y, void* stream), (function, x, y, stream),
        count_grid(function, stream, (unsigned)x, (unsigned)y, 1))

/* Each is counted on its stream's device. */
static void count_on_devices(const LaunchOnDevice* launches, unsigned count) {
  void* context = NULL;
  if (contexts_.of_stream == NULL || contexts_.push == NULL || contexts_.pop == NULL) return;
  for (const LaunchOnDevice* one = launches; one != launches + count; ++one) {
    if (contexts_.of_stream(one->stream, &context) != 0 || contexts_.push(context) != 0) continue;
    count_grid(one->function, one->stream, one->grid_x, one->grid_y, one->grid_z);
    contexts_.pop(&context);
  }
}
COUNTED(cuLaunchCooperativeKernelMultiDevice,
        (LaunchOnDevice * launches, unsigned count, unsigned flags), (launches, count, flags),
        count_on_devices(launches, count))

/* --- graphs */

static void note_graph(void** made, void* graph) {
  if (made != NULL) derate_note_graph(&driver_, *made, graph);
}

COUNTED_PTSZ(cuGraphLaunch, (void* graph, void* stream), (graph, stream),
             derate_count_graph(&driver_, graph, stream))
COUNTED(cuGraphInstantiate, (void** made, void* graph, void* wrong, char* log, size_t size),
        (made, graph, wrong, log, size), note_graph(made, graph))
COUNTED(cuGraphInstantiate_v2, (void** made, void* graph, void* wrong, char* log, size_t size),
        (made, graph, wrong, log, size), note_graph(made, graph))
/* As cuGetProcAddress() answers from CUDA 12 on; no library shows such a name. */
COUNTED(cuGraphInstantiate_12000, (void** made, void* graph, uint64_t flags), (made, graph, flags),
        note_graph(made, graph))
COUNTED(cuGraphInstantiateWithFlags, (void** made, void* graph, uint64_t flags),
        (made, graph, flags), note_graph(made, graph))
COUNTED_PTSZ(cuGraphInstantiateWithParams, (void** made, void* graph, void* how),
             (made, graph, how), note_graph(made, graph))

/* Another thread may be given the same handle as soon as the driver has destroyed it. */
static Function real_cuGraphExecDestroy;
static int cuGraphExecDestroy(void* executable) {
  derate_forget_graph(executable);
  return ((int (*)(void*))REAL(cuGraphExecDestroy))(executable);
}

COUNTED_PTSZ(cuStreamBeginCapture_v2, (void* stream, int mode), (stream, mode),
             derate_note_capture(true))
COUNTED_PTSZ(cuStreamBeginCaptureToGraph,
             (void* stream, void* graph, const void* after, const void* edges, size_t count,
              int mode),
             (stream, graph, after, edges, count, mode), derate_note_capture(true))

static int end_capture(Function real, void* stream, void** graph) {
  const int result = ((int (*)(void*, void**))real)(stream, graph);
  if (result == SUCCESS || result == CAPTURE_INVALIDATED) derate_note_capture(false);
  return result;
}
static Function real_cuStreamEndCapture, real_cuStreamEndCapture_ptsz;
static int cuStreamEndCapture(void* stream, void** graph) {
  return end_capture(REAL(cuStreamEndCapture), stream, graph);
}
static int cuStreamEndCapture_ptsz(void* stream, void** graph) {
  return end_capture(REAL(cuStreamEndCapture_ptsz), stream, graph);
}

/* --- waits, of which only their number is of interest */

COUNTED_PTSZ(cuStreamSynchronize, (void* stream), (stream), derate_count_wait(&driver_))
COUNTED(cuEventSynchronize, (void* event), (event), derate_count_wait(&driver_))
COUNTED(cuCtxSynchronize, (void), (), derate_count_wait(&driver_))

/* --- memory */

static void count_copy(void* stream, unsigned from, unsigned to, uint64_t bytes) {
  if (from == HOST_MEMORY || to == HOST_MEMORY)
    derate_count_copy(&driver_, stream);
  else
    derate_count_memory(&driver_, DERATE_COPY, stream, bytes);
}
static void count_copy_2d(void* stream, const Copy2D* copy) {
  count_copy(stream, copy->from.memory, copy->to.memory, (uint64_t)copy->width * copy->height);
}
static void count_copy_3d(void* stream, const Copy3D* copy) {
  count_copy(stream, copy->from.memory, copy->to.memory,
             (uint64_t)copy->width * copy->height * copy->depth);
}
static void count_set(void* stream, uint64_t bytes) {
  derate_count_memory(&driver_, DERATE_MEMSET, stream, bytes);
}

COUNTED_PTSZ(cuMemcpyHtoDAsync_v2, (uint64_t to, const void* from, size_t size, void* stream),
             (to, from, size, stream), derate_count_copy(&driver_, stream))
COUNTED_PTSZ(cuMemcpyDtoHAsync_v2, (void* to, uint64_t from, size_t size, void* stream),
             (to, from, size, stream), derate_count_copy(&driver_, stream))
COUNTED_PTDS(cuMemcpyHtoD_v2, (uint64_t to, const void* from, size_t size), (to, from, size),
             derate_count_copy(&driver_, NULL))
COUNTED_PTDS(cuMemcpyDtoH_v2, (void* to, uint64_t from, size_t size), (to, from, size),
             derate_count_copy(&driver_, NULL))

#define COPY(name)                                                                \
  COUNTED_PTDS(name, (uint64_t to, uint64_t from, size_t size), (to, from, size), \
               derate_count_memory(&driver_, DERATE_COPY, NULL, size))
#define COPY_ASYNC(name)                                                      \
  COUNTED_PTSZ(name, (uint64_t to, uint64_t from, size_t size, void* stream), \
               (to, from, size, stream), derate_count_memory(&driver_, DERATE_COPY, stream, size))
COPY(cuMemcpy)
COPY(cuMemcpyDtoD_v2)
COPY_ASYNC(cuMemcpyAsync)
COPY_ASYNC(cuMemcpyDtoDAsync_v2)

#define PEER_PARAMETERS \
  uint64_t to, void *to_context, uint64_t from, void *from_context, size_t size
COUNTED_PTDS(cuMemcpyPeer, (PEER_PARAMETERS), (to, to_context, from, from_context, size),
             derate_count_memory(&driver_, DERATE_COPY, NULL, size))
COUNTED_PTSZ(cuMemcpyPeerAsync, (PEER_PARAMETERS, void* stream),
             (to, to_context, from, from_context, size, stream),
             derate_count_memory(&driver_, DERATE_COPY, stream, size))

COUNTED_PTDS(cuMemcpy2D_v2, (const Copy2D* copy), (copy), count_copy_2d(NULL, copy))
COUNTED_PTDS(cuMemcpy2DUnaligned_v2, (const Copy2D* copy), (copy), count_copy_2d(NULL, copy))
COUNTED_PTSZ(cuMemcpy2DAsync_v2, (const Copy2D* copy, void* stream), (copy, stream),
             count_copy_2d(stream, copy))
COUNTED_PTDS(cuMemcpy3D_v2, (const Copy3D* copy), (copy), count_copy_3d(NULL, copy))
COUNTED_PTSZ(cuMemcpy3DAsync_v2, (const Copy3D* copy, void* stream), (copy, stream),
             count_copy_3d(stream, copy))
COUNTED_PTDS(cuMemcpy3DPeer, (const Copy3D* copy), (copy), count_copy_3d(NULL, copy))
COUNTED_PTSZ(cuMemcpy3DPeerAsync, (const Copy3D* copy, void* stream), (copy, stream),
             count_copy_3d(stream, copy))

/* Of values of so many bytes, which stand in the register that they came in. */
#define MEMSET(bits, bytes)                                                                       \
  COUNTED_PTDS(cuMemsetD##bits##_v2, (uint64_t to, unsigned value, size_t count),                 \
               (to, value, count), count_set(NULL, (uint64_t)count*(bytes)))                      \
  COUNTED_PTSZ(cuMemsetD##bits##Async, (uint64_t to, unsigned value, size_t count, void* stream), \
               (to, value, count, stream), count_set(stream, (uint64_t)count*(bytes)))            \
  COUNTED_PTDS(cuMemsetD2D##bits##_v2,                                                            \
               (uint64_t to, size_t pitch, unsigned value, size_t width, size_t height),          \
               (to, pitch, value, width, height),                                                 \
               count_set(NULL, (uint64_t)width* height*(bytes)))                                  \
  COUNTED_PTSZ(                                                                                   \
      cuMemsetD2D##bits##Async,                                                                   \
      (uint64_t to, size_t pitch, unsigned value, size_t width, size_t height, void* stream),     \
      (to, pitch, value, width, height, stream),                                                  \
      count_set(stream, (uint64_t)width* height*(bytes)))
MEMSET(8, 1)
MEMSET(16, 2)
MEMSET(32, 4)

/* --- who gets them ---------------------------------------------------------------------------- */

static Function real_cuGetProcAddress, real_cuGetProcAddress_v2;

static int cuGetProcAddress(const char* symbol, void** found, int version, uint64_t flags);
static int cuGetProcAddress_v2(const char* symbol, void** found, int version, uint64_t flags,
                               int* status);

/* `name` as the driver's library shows it; `asked` as cuGetProcAddress() is asked, for this version
 * of CUDA and later ones, up to that of the next such row. */
typedef struct {
  const char *name, *asked;
  int since;
  bool per_thread;
  Function counting;
  Function* real;
} Hook;

#define HOOK(name, asked, since, per_thread) \
  { #name, asked, since, per_thread, (Function)name, &real_##name }
#define HOOK_PTSZ(name, asked, since) \
  HOOK(name, asked, since, false), HOOK(name##_ptsz, asked, since, true)
#define HOOK_PTDS(name, asked, since) \
  HOOK(name, asked, since, false), HOOK(name##_ptds, asked, since, true)
#define HOOK_MEMSET(bits)                                              \
  HOOK_PTDS(cuMemsetD##bits##_v2, "cuMemsetD" #bits, 3020),            \
      HOOK_PTSZ(cuMemsetD##bits##Async, "cuMemsetD" #bits "Async", 0), \
      HOOK_PTDS(cuMemsetD2D##bits##_v2, "cuMemsetD2D" #bits, 3020),    \
      HOOK_PTSZ(cuMemsetD2D##bits##Async, "cuMemsetD2D" #bits "Async", 0)
static const Hook kHooks[] = {
    HOOK(cuGetProcAddress, "cuGetProcAddress", 0, false),
    HOOK(cuGetProcAddress_v2, "cuGetProcAddress", 12000, false),
    HOOK_PTSZ(cuLaunchKernel, "cuLaunchKernel", 0),
    HOOK_PTSZ(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", 0),
    HOOK(cuLaunchCooperativeKernelMultiDevice, "cuLaunchCooperativeKernelMultiDevice", 0, false),
    HOOK_PTSZ(cuLaunchKernelEx, "cuLaunchKernelEx", 0),
    HOOK(cuLaunch, "cuLaunch", 0, false),
    HOOK(cuLaunchGrid, "cuLaunchGrid", 0, false),
    HOOK(cuLaunchGridAsync, "cuLaunchGridAsync", 0, false),
    HOOK_PTSZ(cuGraphLaunch, "cuGraphLaunch", 0),
    HOOK(cuGraphInstantiate, "cuGraphInstantiate", 0, false),
    HOOK(cuGraphInstantiate_v2, "cuGraphInstantiate", 11000, false),
    HOOK(cuGraphInstantiate_12000, "cuGraphInstantiate", 12000, false),
    HOOK(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 0, false),
    HOOK_PTSZ(cuGraphInstantiateWithParams, "cuGraphInstantiateWithParams", 0),
    HOOK(cuGraphExecDestroy, "cuGraphExecDestroy", 0, false),
    HOOK_PTSZ(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010),
    HOOK_PTSZ(cuStreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph", 0),
    HOOK_PTSZ(cuStreamEndCapture, "cuStreamEndCapture", 0),
    HOOK_PTSZ(cuStreamSynchronize, "cuStreamSynchronize", 0),
    HOOK(cuEventSynchronize, "cuEventSynchronize", 0, false),
    HOOK(cuCtxSynchronize, "cuCtxSynchronize", 0, false),
    HOOK_PTSZ(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", 3020),
    HOOK_PTSZ(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", 3020),
    HOOK_PTDS(cuMemcpyHtoD_v2, "cuMemcpyHtoD", 3020),
    HOOK_PTDS(cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020),
    HOOK_PTDS(cuMemcpy, "cuMemcpy", 0),
    HOOK_PTSZ(cuMemcpyAsync, "cuMemcpyAsync", 0),
    HOOK_PTDS(cuMemcpyDtoD_v2, "cuMemcpyDtoD", 3020),
    HOOK_PTSZ(cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", 3020),
    HOOK_PTDS(cuMemcpyPeer, "cuMemcpyPeer", 0),
    HOOK_PTSZ(cuMemcpyPeerAsync, "cuMemcpyPeerAsync", 0),
    HOOK_PTDS(cuMemcpy2D_v2, "cuMemcpy2D", 3020),
    HOOK_PTDS(cuMemcpy2DUnaligned_v2, "cuMemcpy2DUnaligned", 3020),
    HOOK_PTSZ(cuMemcpy2DAsync_v2, "cuMemcpy2DAsync", 3020),
    HOOK_PTDS(cuMemcpy3D_v2, "cuMemcpy3D", 3020),
    HOOK_PTSZ(cuMemcpy3DAsync_v2, "cuMemcpy3DAsync", 3020),
    HOOK_PTDS(cuMemcpy3DPeer, "cuMemcpy3DPeer", 0),
    HOOK_PTSZ(cuMemcpy3DPeerAsync, "cuMemcpy3DPeerAsync", 0),
    HOOK_MEMSET(8),
    HOOK_MEMSET(16),
    HOOK_MEMSET(32),
};
enum { HOOKS = sizeof kHooks / sizeof *kHooks };

/* The counting function in place of the driver's. Where another one stands behind the same name
 * already (a second driver, a tool's), what was asked for is handed out as it is. */
static void* in_place_of(const Hook* hook, void* found) {
  Function before = NULL;
  if (found == (void*)hook->counting) return found;
  if (__atomic_compare_exchange_n(hook->real, &before, (Function)found, false, __ATOMIC_ACQ_REL,
                                  __ATOMIC_ACQUIRE) ||
      before == (Function)found)
    return (void*)hook->counting;
  return found;
}

/* NULL: it is not counted. Functions that know of no stream have no second form. */
static const Hook* hook_for(const char* symbol, int version, bool per_thread) {
  const Hook* out = NULL;
  for (const Hook* hook = kHooks; hook != kHooks + HOOKS; ++hook) {
    if (strcmp(symbol, hook->asked) != 0 || version < hook->since) continue;
    if (hook->per_thread && !per_thread) continue;
    if (out == NULL || hook->per_thread > out->per_thread ||
        (hook->per_thread == out->per_thread && hook->since > out->since))
      out = hook;
  }
  return out;
}

static void take_place(const char* symbol, void** found, int version, uint64_t flags) {
  if (symbol == NULL || found == NULL || *found == NULL) return;
  const Hook* const hook = hook_for(symbol, version, (flags & PER_THREAD_STREAMS) != 0);
  if (hook != NULL) *found = in_place_of(hook, *found);
}

static int cuGetProcAddress(const char* symbol, void** found, int version, uint64_t flags) {
  typedef int (*Call)(const char*, void**, int, uint64_t);
  const Call real = (Call)__atomic_load_n(&real_cuGetProcAddress, __ATOMIC_RELAXED);
  const int result = real(symbol, found, version, flags);
  if (result == SUCCESS) take_place(symbol, found, version, flags);
  return result;
}

static int cuGetProcAddress_v2(const char* symbol, void** found, int version, uint64_t flags,
                               int* status) {
  typedef int (*Call)(const char*, void**, int, uint64_t, int*);
  const Call real = (Call)__atomic_load_n(&real_cuGetProcAddress_v2, __ATOMIC_RELAXED);
  const int result = real(symbol, found, version, flags, status);
  if (result == SUCCESS) take_place(symbol, found, version, flags);
  return result;
}

/* --- dlsym ------------------------------------------------------------------------------------ */

SHOWN void* dlsym(void* handle, const char* name);

Function derate_real_dlsym(void) {
  Function found = __atomic_load_n(&real_dlsym_, __ATOMIC_ACQUIRE);
  if (found == NULL) {
    found = (Function)derate_next_symbol("dlsym", (void*)dlsym);
    if (found == (Function)dlsym) found = NULL;
    __atomic_store_n(&real_dlsym_, found, __ATOMIC_RELEASE);
  }
  return found;
}

/* --- objects that are linked with the driver -------------------------------------------------- */

static const Hook* hook_named(const char* name) {
  for (const Hook* hook = kHooks; hook != kHooks + HOOKS; ++hook)
    if (strcmp(name, hook->name) == 0) return hook;
  return NULL;
}

static void* in_place_of_linked(const char* name, void* found) {
  const Hook* const hook = hook_named(name);
  return hook == NULL ? NULL : in_place_of(hook, found);
}

static void* find_at_start(void* unused, const char* name) {
  (void)unused;
  return derate_first_symbol(name);
}
/* The page is made at the first launch: the C library has not begun, and the program may launch
 * nothing. */
static void ask_at_start(void) { (void)ask_the_driver(find_at_start, NULL); }

/* Before there are threads that could load and unload objects meanwhile. */
__attribute__((constructor)) static void begin(void) {
  (void)derate_real_dlsym();
  derate_take_linked_at_start(in_place_of_linked, ask_at_start);
}

static bool begins_with(const char* name, const char* with) {
  while (*with != '\0' && *name == *with) ++name, ++with;
  return *with == '\0';
}

/* Modules of Python, such as Triton up to 3.3 makes for each kernel, AOTInductor's models, and
 * PyTorch's own door to the driver. Other objects are not looked at: most calls of dlsym() cost no
 * more than before. */
static bool may_launch(const char* name) {
  return begins_with(name, "PyInit_") || begins_with(name, "AOTInductor") ||
         strcmp(name, "load_nvrtc") == 0;
}

/* What dlsym() answers in place of the driver's function; NULL: it goes on. With RTLD_NEXT, which
 * other libraries that stand before functions ask, it always does. */
__attribute__((used)) void* derate_dlsym_answer(void* handle, const char* name) {
  if (name == NULL || handle == RTLD_NEXT) return NULL;
  if (handle != RTLD_DEFAULT && may_launch(name)) {
    if (derate_is_linked_with_driver(handle) && ask_and_begin(handle))
      derate_take_linked(handle, in_place_of_linked);
    return NULL;
  }
  if (name[0] != 'c' || name[1] != 'u') return NULL;
  const Hook* const hook = hook_named(name);
  const Find real = hook == NULL ? NULL : (Find)derate_real_dlsym();
  void* const found = real == NULL ? NULL : real(handle, name);
  return found != NULL && ask_and_begin(handle) ? in_place_of(hook, found) : NULL;
}

/* dlsym() itself jumps, so that the real one sees who called: RTLD_NEXT and RTLD_DEFAULT mean
 * something else for each caller. */
#if defined(__x86_64__)
__asm__(
    ".text\n.globl dlsym\n.type dlsym,@function\n"
    "dlsym:\n"
    "  .cfi_startproc\n"
    "  endbr64\n"
    "  push %rdi\n  .cfi_adjust_cfa_offset 8\n"
    "  push %rsi\n  .cfi_adjust_cfa_offset 8\n"
    "  sub $8, %rsp\n  .cfi_adjust_cfa_offset 8\n"
    "  call derate_dlsym_answer\n"
    "  test %rax, %rax\n  jne 1f\n"
    "  call derate_real_dlsym\n"
    "  add $8, %rsp\n  .cfi_adjust_cfa_offset -8\n"
    "  pop %rsi\n  .cfi_adjust_cfa_offset -8\n"
    "  pop %rdi\n  .cfi_adjust_cfa_offset -8\n"
    "  test %rax, %rax\n  je 2f\n"
    "  jmp *%rax\n"
    "1: .cfi_adjust_cfa_offset 24\n"
    "  add $24, %rsp\n  .cfi_adjust_cfa_offset -24\n"
    "2: ret\n"
    "  .cfi_endproc\n"
    ".size dlsym, .-dlsym\n");
#else
__asm__(
    ".text\n.globl dlsym\n.type dlsym,%function\n"
    "dlsym:\n"
    "  hint #34\n" /* bti c */
    "  stp x29, x30, [sp, #-32]!\n  mov x29, sp\n  stp x0, x1, [sp, #16]\n"
    "  bl derate_dlsym_answer\n"
    "  cbnz x0, 1f\n"
    "  bl derate_real_dlsym\n"
    "  mov x16, x0\n"
    "  ldp x0, x1, [sp, #16]\n  ldp x29, x30, [sp], #32\n"
    "  cbz x16, 3f\n"
    "  br x16\n"
    "1: ldp x29, x30, [sp], #32\n  ret\n"
    "3: mov x0, xzr\n  ret\n"
    ".size dlsym, .-dlsym\n");
#endif
