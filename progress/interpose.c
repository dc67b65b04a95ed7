/* Stands before dlsym() and, through it, before cuGetProcAddress(): who asks for a function of the
 * driver that launches gets one that counts and calls it. Nothing else changes, and no name but
 * dlsym's is shown: a program may have a variable cuLaunchKernel of its own. So programs that are
 * linked with libcuda itself, which CUDA's runtime is not, are not counted. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "count.h"
#include "elf_lookup.h"

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "dlsym() is told who calls it by its return address: another processor needs its own jump"
#endif

#define SHOWN __attribute__((visibility("default")))

enum { SUCCESS = 0 };            /* CUresult */
enum { PER_THREAD_STREAMS = 2 }; /* a flag of cuGetProcAddress */

typedef struct {
  unsigned grid_x, grid_y, grid_z; /* and more: CUlaunchConfig */
  unsigned block_x, block_y, block_z, shared_bytes;
  void* stream;
} LaunchConfig;

static derate_driver_calls driver_;

typedef void (*Function)(void);
typedef void* (*Find)(void*, const char*);

/* Where dlsym() goes on: the next one after ours. NULL: there is none. */
static Function real_dlsym_;
__attribute__((used)) Function derate_real_dlsym(void);

/* Before there are threads that could load and unload objects meanwhile. */
__attribute__((constructor)) static void find_real_dlsym(void) { (void)derate_real_dlsym(); }

/* What is asked of the driver that this handle has, once. False: it is another than before. */
static bool ask_the_driver(void* handle) {
  const Find find = (Find)derate_real_dlsym();
  typedef int (*Uuid)(void*, int);
  typedef int (*Name)(const char**, void*);
  int (*device)(int*) = NULL;
  if (find == NULL) return false;
  int (*const found)(int*) = (int (*)(int*))find(handle, "cuCtxGetDevice");
  if (found == NULL) return false;
  device = __atomic_load_n(&driver_.device_of_context, __ATOMIC_ACQUIRE);
  if (device != NULL) return device == found;
  Uuid uuid = (Uuid)find(handle, "cuDeviceGetUuid_v2");
  if (uuid == NULL) uuid = (Uuid)find(handle, "cuDeviceGetUuid");
  __atomic_store_n(&driver_.uuid_of_device, uuid, __ATOMIC_RELAXED);
  __atomic_store_n(&driver_.name_of_function, (Name)find(handle, "cuFuncGetName"),
                   __ATOMIC_RELAXED);
  __atomic_store_n(&driver_.name_of_kernel, (Name)find(handle, "cuKernelGetName"),
                   __ATOMIC_RELAXED);
  __atomic_store_n(&driver_.nodes_of_graph,
                   (int (*)(void*, void*, size_t*))find(handle, "cuGraphGetNodes"),
                   __ATOMIC_RELAXED);
  __atomic_store_n(&driver_.device_of_context, found, __ATOMIC_RELEASE);
  derate_begin_counting();
  return true;
}

/* --- the functions that count ----------------------------------------------------------------- */

/* Each is handed out once the driver's own is known, which stands behind its name then. */
#define REAL(name) __atomic_load_n(&real_##name, __ATOMIC_RELAXED)

#define LAUNCH_KERNEL(name)                                                                    \
  static Function real_##name;                                                                 \
  static int name(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,           \
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, \
                  void* stream, void** parameters, void** extra) {                             \
    typedef int (*Launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,   \
                          unsigned, void*, void**, void**);                                    \
    const Launch real = (Launch)REAL(name);                                                    \
    const int result = real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,       \
                            shared_bytes, stream, parameters, extra);                          \
    if (result == SUCCESS)                                                                     \
      derate_count_launch(&driver_, function, stream, (uint64_t)grid_x* grid_y* grid_z);       \
    return result;                                                                             \
  }

#define LAUNCH_COOPERATIVE(name)                                                               \
  static Function real_##name;                                                                 \
  static int name(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,           \
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, \
                  void* stream, void** parameters) {                                           \
    typedef int (*Launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,   \
                          unsigned, void*, void**);                                            \
    const Launch real = (Launch)REAL(name);                                                    \
    const int result = real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,       \
                            shared_bytes, stream, parameters);                                 \
    if (result == SUCCESS)                                                                     \
      derate_count_launch(&driver_, function, stream, (uint64_t)grid_x* grid_y* grid_z);       \
    return result;                                                                             \
  }

#define LAUNCH_WITH_CONFIG(name)                                                                 \
  static Function real_##name;                                                                   \
  static int name(const LaunchConfig* config, void* function, void** parameters, void** extra) { \
    typedef int (*Launch)(const LaunchConfig*, void*, void**, void**);                           \
    const Launch real = (Launch)REAL(name);                                                      \
    const int result = real(config, function, parameters, extra);                                \
    if (result == SUCCESS)                                                                       \
      derate_count_launch(&driver_, function, config->stream,                                    \
                          (uint64_t)config->grid_x * config->grid_y * config->grid_z);           \
    return result;                                                                               \
  }

#define LAUNCH_GRAPH(name)                                              \
  static Function real_##name;                                          \
  static int name(void* graph, void* stream) {                          \
    typedef int (*Launch)(void*, void*);                                \
    const Launch real = (Launch)REAL(name);                             \
    const int result = real(graph, stream);                             \
    if (result == SUCCESS) derate_count_graph(&driver_, graph, stream); \
    return result;                                                      \
  }

#define MAKE_GRAPH(name, Last)                                                        \
  static Function real_##name;                                                        \
  static int name(void** made, void* graph, Last last) {                              \
    typedef int (*Make)(void**, void*, Last);                                         \
    const Make real = (Make)REAL(name);                                               \
    const int result = real(made, graph, last);                                       \
    if (result == SUCCESS && made != NULL) derate_note_graph(&driver_, *made, graph); \
    return result;                                                                    \
  }

/* An upload, a download, a wait: of these only their number is of interest. */
#define COUNT_CALL(name, count, parameters, arguments) \
  static Function real_##name;                         \
  static int name parameters {                         \
    typedef int(*Call) parameters;                     \
    const Call real = (Call)REAL(name);                \
    const int result = real arguments;                 \
    if (result == SUCCESS) count(&driver_);            \
    return result;                                     \
  }

#define COPY_ON_DEVICE(name)                                                 \
  static Function real_##name;                                               \
  static int name(uint64_t to, uint64_t from, size_t size, void* stream) {   \
    typedef int (*Copy)(uint64_t, uint64_t, size_t, void*);                  \
    const Copy real = (Copy)REAL(name);                                      \
    const int result = real(to, from, size, stream);                         \
    if (result == SUCCESS) derate_count_device_copy(&driver_, stream, size); \
    return result;                                                           \
  }

LAUNCH_KERNEL(cuLaunchKernel)
LAUNCH_KERNEL(cuLaunchKernel_ptsz)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz)
LAUNCH_WITH_CONFIG(cuLaunchKernelEx)
LAUNCH_WITH_CONFIG(cuLaunchKernelEx_ptsz)
LAUNCH_GRAPH(cuGraphLaunch)
LAUNCH_GRAPH(cuGraphLaunch_ptsz)
MAKE_GRAPH(cuGraphInstantiateWithFlags, uint64_t)
MAKE_GRAPH(cuGraphInstantiateWithParams, void*)
MAKE_GRAPH(cuGraphInstantiateWithParams_ptsz, void*)
COPY_ON_DEVICE(cuMemcpyAsync)
COPY_ON_DEVICE(cuMemcpyAsync_ptsz)
COPY_ON_DEVICE(cuMemcpyDtoDAsync_v2)
COPY_ON_DEVICE(cuMemcpyDtoDAsync_v2_ptsz)
COUNT_CALL(cuStreamSynchronize, derate_count_wait, (void* stream), (stream))
COUNT_CALL(cuStreamSynchronize_ptsz, derate_count_wait, (void* stream), (stream))
COUNT_CALL(cuEventSynchronize, derate_count_wait, (void* event), (event))
COUNT_CALL(cuCtxSynchronize, derate_count_wait, (void), ())
COUNT_CALL(cuMemcpyHtoDAsync_v2, derate_count_copy,
           (uint64_t to, const void* from, size_t size, void* stream), (to, from, size, stream))
COUNT_CALL(cuMemcpyHtoDAsync_v2_ptsz, derate_count_copy,
           (uint64_t to, const void* from, size_t size, void* stream), (to, from, size, stream))
COUNT_CALL(cuMemcpyDtoHAsync_v2, derate_count_copy,
           (void* to, uint64_t from, size_t size, void* stream), (to, from, size, stream))
COUNT_CALL(cuMemcpyDtoHAsync_v2_ptsz, derate_count_copy,
           (void* to, uint64_t from, size_t size, void* stream), (to, from, size, stream))

/* --- who gets them ---------------------------------------------------------------------------- */

static Function real_cuGetProcAddress, real_cuGetProcAddress_v2;

static int cuGetProcAddress(const char* symbol, void** found, int version, uint64_t flags);
static int cuGetProcAddress_v2(const char* symbol, void** found, int version, uint64_t flags,
                               int* status);

/* `name` as the driver's library shows it; `asked` as cuGetProcAddress() is asked. */
typedef struct {
  const char *name, *asked;
  bool per_thread;
  Function counting;
  Function* real;
} Hook;

#define HOOK(name, asked, per_thread) \
  { #name, asked, per_thread, (Function)name, &real_##name }
static const Hook kHooks[] = {
    HOOK(cuGetProcAddress, "", false),
    HOOK(cuGetProcAddress_v2, "cuGetProcAddress", false),
    HOOK(cuLaunchKernel, "cuLaunchKernel", false),
    HOOK(cuLaunchKernel_ptsz, "cuLaunchKernel", true),
    HOOK(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", false),
    HOOK(cuLaunchCooperativeKernel_ptsz, "cuLaunchCooperativeKernel", true),
    HOOK(cuLaunchKernelEx, "cuLaunchKernelEx", false),
    HOOK(cuLaunchKernelEx_ptsz, "cuLaunchKernelEx", true),
    HOOK(cuGraphLaunch, "cuGraphLaunch", false),
    HOOK(cuGraphLaunch_ptsz, "cuGraphLaunch", true),
    HOOK(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", false),
    HOOK(cuGraphInstantiateWithParams, "cuGraphInstantiateWithParams", false),
    HOOK(cuGraphInstantiateWithParams_ptsz, "cuGraphInstantiateWithParams", true),
    HOOK(cuMemcpyAsync, "cuMemcpyAsync", false),
    HOOK(cuMemcpyAsync_ptsz, "cuMemcpyAsync", true),
    HOOK(cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", false),
    HOOK(cuMemcpyDtoDAsync_v2_ptsz, "cuMemcpyDtoDAsync", true),
    HOOK(cuStreamSynchronize, "cuStreamSynchronize", false),
    HOOK(cuStreamSynchronize_ptsz, "cuStreamSynchronize", true),
    HOOK(cuEventSynchronize, "cuEventSynchronize", false),
    HOOK(cuCtxSynchronize, "cuCtxSynchronize", false),
    HOOK(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", false),
    HOOK(cuMemcpyHtoDAsync_v2_ptsz, "cuMemcpyHtoDAsync", true),
    HOOK(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", false),
    HOOK(cuMemcpyDtoHAsync_v2_ptsz, "cuMemcpyDtoHAsync", true),
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

static void take_place(const char* symbol, void** found, uint64_t flags, bool second) {
  const bool per_thread = (flags & PER_THREAD_STREAMS) != 0;
  if (symbol == NULL || found == NULL || *found == NULL) return;
  if (strcmp(symbol, "cuGetProcAddress") == 0) {
    *found = in_place_of(&kHooks[second ? 1 : 0], *found);
    return;
  }
  /* Functions that know of no stream have no second form. */
  const Hook* hook = NULL;
  for (int i = 2; i < HOOKS; ++i)
    if (strcmp(symbol, kHooks[i].asked) == 0 &&
        (hook == NULL || kHooks[i].per_thread == per_thread))
      hook = kHooks[i].per_thread && !per_thread ? hook : &kHooks[i];
  if (hook != NULL) *found = in_place_of(hook, *found);
}

static int cuGetProcAddress(const char* symbol, void** found, int version, uint64_t flags) {
  typedef int (*Call)(const char*, void**, int, uint64_t);
  const Call real = (Call)__atomic_load_n(&real_cuGetProcAddress, __ATOMIC_RELAXED);
  const int result = real(symbol, found, version, flags);
  if (result == SUCCESS) take_place(symbol, found, flags, version >= 12000);
  return result;
}

static int cuGetProcAddress_v2(const char* symbol, void** found, int version, uint64_t flags,
                               int* status) {
  typedef int (*Call)(const char*, void**, int, uint64_t, int*);
  const Call real = (Call)__atomic_load_n(&real_cuGetProcAddress_v2, __ATOMIC_RELAXED);
  const int result = real(symbol, found, version, flags, status);
  if (result == SUCCESS) take_place(symbol, found, flags, version >= 12000);
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

/* What dlsym() answers in place of the driver's function; NULL: it goes on. With RTLD_NEXT, which
 * other libraries that stand before functions ask, it always does. */
__attribute__((used)) void* derate_dlsym_answer(void* handle, const char* name) {
  if (name == NULL || name[0] != 'c' || name[1] != 'u' || handle == RTLD_NEXT) return NULL;
  for (int i = 0; i < HOOKS; ++i) {
    if (strcmp(name, kHooks[i].name) != 0) continue;
    const Find real = (Find)derate_real_dlsym();
    void* const found = real == NULL ? NULL : real(handle, name);
    return found != NULL && ask_the_driver(handle) ? in_place_of(&kHooks[i], found) : NULL;
  }
  return NULL;
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
