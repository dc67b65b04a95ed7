/* A libcuda.so.1 that launches nothing and counts what it is asked, for tests of
 * libderate_progress.so. A function's handle is its name; a graph's the number of its nodes; a
 * context's and a stream's the number of its device; each thread is on the device that it has set
 * last. One stream at a time is captured. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void* stream;
} Config;
typedef struct {
  void* function;
  unsigned grid[3], block[3], shared_bytes;
  void *stream, **parameters;
} OnDevice;

static uint64_t kernels_, graphs_, waits_, copies_, asked_of_captures_;
static __thread int device_;
static int refuses_;
static void* captured_; /* a stream */

#define ADD(place) __atomic_fetch_add(&(place), 1, __ATOMIC_RELAXED)
enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_FOUND = 500, PER_THREAD = 2 };

/* Of the stub alone. */
uint64_t stub_kernels(void) { return kernels_; }
uint64_t stub_graphs(void) { return graphs_; }
uint64_t stub_waits(void) { return waits_; }
uint64_t stub_copies(void) { return copies_; }
uint64_t stub_asked_of_captures(void) { return asked_of_captures_; }
void stub_refuse(int whether) { refuses_ = whether; }

static int launch(void) {
  if (refuses_) return INVALID_VALUE;
  ADD(kernels_);
  return SUCCESS;
}

#define KERNEL_PARAMETERS                                                                       \
  void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
      unsigned shared, void *stream, void **parameters
#define UNUSED                                                                              \
  (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, \
      (void)stream, (void)parameters

int cuInit(unsigned flags) { return (int)(flags * 0); }
int cuLaunchKernel(KERNEL_PARAMETERS, void** extra) {
  UNUSED, (void)extra;
  return launch();
}
int cuLaunchKernel_ptsz(KERNEL_PARAMETERS, void** extra) {
  UNUSED, (void)extra;
  return launch();
}
int cuLaunchCooperativeKernel(KERNEL_PARAMETERS) {
  UNUSED;
  return launch();
}
int cuLaunchCooperativeKernel_ptsz(KERNEL_PARAMETERS) {
  UNUSED;
  return launch();
}
int cuLaunchKernelEx(const Config* config, void* function, void** parameters, void** extra) {
  (void)config, (void)function, (void)parameters, (void)extra;
  return launch();
}
int cuLaunchKernelEx_ptsz(const Config* config, void* function, void** parameters, void** extra) {
  return cuLaunchKernelEx(config, function, parameters, extra);
}
int cuGraphLaunch(void* graph, void* stream) {
  return (void)graph, (void)stream, ADD(graphs_), SUCCESS;
}
int cuGraphLaunch_ptsz(void* graph, void* stream) { return cuGraphLaunch(graph, stream); }
static int make(void** made, void* graph) {
  (void)graph;
  *made = malloc(64); /* as the driver's handles: an address, used again after its end */
  return SUCCESS;
}
int cuGraphInstantiateWithFlags(void** made, void* graph, uint64_t flags) {
  return (void)flags, make(made, graph);
}
int cuGraphInstantiate_v2(void** made, void* graph, void** wrong, char* log, size_t size) {
  if (size > 0) *log = '\0';
  if (wrong != NULL) *wrong = NULL;
  return make(made, graph);
}
int cuGraphInstantiate(void** made, void* graph, void** wrong, char* log, size_t size) {
  return cuGraphInstantiate_v2(made, graph, wrong, log, size);
}
int cuGraphExecDestroy(void* executable) { return free(executable), SUCCESS; }
int cuStreamBeginCapture_v2(void* stream, int mode) {
  return (void)mode, captured_ = stream, SUCCESS;
}
int cuStreamEndCapture(void* stream, void** graph) {
  if (stream != captured_) return INVALID_VALUE;
  captured_ = NULL;
  return *graph = (void*)7, SUCCESS;
}
int cuStreamIsCapturing(void* stream, int* state) {
  ADD(asked_of_captures_);
  return *state = stream == captured_, SUCCESS;
}
int cuGraphInstantiateWithParams(void** made, void* graph, void* parameters) {
  return (void)parameters, make(made, graph);
}
int cuGraphGetNodes(void* graph, void* nodes, size_t* count) {
  (void)nodes;
  *count = (size_t)graph;
  return SUCCESS;
}
int cuStreamSynchronize(void* stream) { return (void)stream, ADD(waits_), SUCCESS; }
int cuStreamSynchronize_ptsz(void* stream) { return cuStreamSynchronize(stream); }
int cuEventSynchronize(void* event) { return (void)event, ADD(waits_), SUCCESS; }
int cuCtxSynchronize(void) { return ADD(waits_), SUCCESS; }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t size, void* stream) {
  return (void)to, (void)from, (void)size, (void)stream, ADD(copies_), SUCCESS;
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t size, void* stream) {
  return (void)to, (void)from, (void)size, (void)stream, ADD(copies_), SUCCESS;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void* stream) {
  return (void)to, (void)from, (void)size, (void)stream, ADD(copies_), SUCCESS;
}
int cuMemsetD32Async(uint64_t to, unsigned value, size_t count, void* stream) {
  return (void)to, (void)value, (void)count, (void)stream, ADD(copies_), SUCCESS;
}
int cuMemsetD2D8_v2(uint64_t to, size_t pitch, unsigned char value, size_t width, size_t height) {
  (void)to, (void)pitch, (void)value, (void)width, (void)height, ADD(copies_);
  return value == 0xab ? SUCCESS : INVALID_VALUE;
}
int cuMemcpy2DAsync_v2(const void* copy, void* stream) {
  return (void)copy, (void)stream, ADD(copies_), SUCCESS;
}
int cuMemcpy3DPeerAsync(const void* copy, void* stream) {
  return (void)copy, (void)stream, ADD(copies_), SUCCESS;
}
int cuMemcpyPeerAsync(uint64_t to, void* to_context, uint64_t from, void* from_context, size_t size,
                      void* stream) {
  (void)to, (void)to_context, (void)from, (void)from_context, (void)size, (void)stream;
  return ADD(copies_), SUCCESS;
}
int cuLaunchCooperativeKernelMultiDevice(OnDevice* launches, unsigned count, unsigned flags) {
  (void)launches, (void)flags;
  for (unsigned i = 0; i < count; ++i) launch();
  return SUCCESS;
}
int cuLaunchGrid(void* function, int x, int y) {
  return (void)function, (void)x, (void)y, launch();
}
int cuStreamGetCtx(void* stream, void** context) { return *context = stream, SUCCESS; }
static __thread int pushed_;
int cuCtxPushCurrent_v2(void* context) {
  pushed_ = device_;
  return device_ = (int)(intptr_t)context, SUCCESS;
}
int cuCtxPopCurrent_v2(void** context) {
  *context = (void*)(intptr_t)device_;
  return device_ = pushed_, SUCCESS;
}
int cuCtxGetDevice(int* device) { return *device = device_, SUCCESS; }
int cuCtxSetCurrent(void* context) { return device_ = (int)(intptr_t)context, SUCCESS; }
int cuDeviceGetUuid_v2(void* uuid, int device) {
  memset(uuid, 0xa0 + device, 16);
  return SUCCESS;
}
int cuFuncGetName(const char** name, void* function) { return *name = function, SUCCESS; }

int cuGetProcAddress_v2(const char* symbol, void** found, int version, uint64_t flags, int* status);

#define FUNCTIONS(_)                      \
  _(cuInit)                               \
  _(cuLaunchKernel)                       \
  _(cuLaunchCooperativeKernel)            \
  _(cuLaunchKernelEx)                     \
  _(cuGraphLaunch)                        \
  _(cuGraphInstantiateWithFlags)          \
  _(cuGraphInstantiateWithParams)         \
  _(cuGraphExecDestroy)                   \
  _(cuGraphGetNodes)                      \
  _(cuStreamEndCapture)                   \
  _(cuMemsetD32Async)                     \
  _(cuMemcpyPeerAsync)                    \
  _(cuMemcpy3DPeerAsync)                  \
  _(cuLaunchCooperativeKernelMultiDevice) \
  _(cuStreamSynchronize)                  \
  _(cuEventSynchronize) _(cuCtxSynchronize) _(cuCtxGetDevice) _(cuCtxSetCurrent)
#define PER_THREAD_FUNCTIONS(_) \
  _(cuLaunchKernel)             \
  _(cuLaunchCooperativeKernel) _(cuLaunchKernelEx) _(cuGraphLaunch) _(cuStreamSynchronize)

int cuGetProcAddress(const char* symbol, void** found, int version, uint64_t flags) {
  *found = NULL;
#define PER_THREAD_ONE(name) \
  if ((flags & PER_THREAD) && strcmp(symbol, #name) == 0) *found = (void*)name##_ptsz;
  PER_THREAD_FUNCTIONS(PER_THREAD_ONE)
#define ONE(name) \
  if (*found == NULL && strcmp(symbol, #name) == 0) *found = (void*)name;
  FUNCTIONS(ONE)
#define SECOND(name) \
  if (strcmp(symbol, #name) == 0) *found = (void*)name##_v2;
  SECOND(cuMemcpyHtoDAsync)
  SECOND(cuMemcpyDtoDAsync)
  SECOND(cuMemcpyDtoHAsync)
  SECOND(cuMemcpy2DAsync)
  SECOND(cuMemsetD2D8)
  SECOND(cuStreamBeginCapture)
  if (strcmp(symbol, "cuGraphInstantiate") == 0)
    *found = version >= 12000   ? (void*)cuGraphInstantiateWithFlags
             : version >= 11000 ? (void*)cuGraphInstantiate_v2
                                : (void*)cuGraphInstantiate;
  if (strcmp(symbol, "cuGetProcAddress") == 0)
    *found = version >= 12000 ? (void*)cuGetProcAddress_v2 : (void*)cuGetProcAddress;
  return *found != NULL ? SUCCESS : NOT_FOUND;
}

int cuGetProcAddress_v2(const char* symbol, void** found, int version, uint64_t flags,
                        int* status) {
  const int result = cuGetProcAddress(symbol, found, version, flags);
  if (status != NULL) *status = result == SUCCESS ? 0 : 1;
  return result;
}
