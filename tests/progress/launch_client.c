/* Launches by way of a libcuda.so.1 as programs do, for tests of libderate_progress.so.
 *
 *     launch_client WAY [COUNT]     WAY: a row of kWays
 *
 * Prints in one line what the driver has been asked: kernels, graphs, waits, copies. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void* stream;
  void* attributes;
  unsigned attribute_count;
} Config;
typedef int (*Launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      void*, void**, void**);
typedef int (*LaunchEx)(const Config*, void*, void**, void**);
typedef int (*LaunchGraph)(void*, void*);
typedef int (*MakeGraph)(void**, void*, uint64_t);
typedef int (*MakeGraphV2)(void**, void*, void**, char*, size_t);
typedef int (*Get)(const char*, void**, int, uint64_t);
typedef int (*GetV2)(const char*, void**, int, uint64_t, int*);
typedef int (*One)(void*);
typedef int (*None)(void);
typedef int (*Up)(uint64_t, const void*, size_t, void*);

static void* cuda_;
static long count_ = 1000;

static void* of_driver(const char* name) {
  void* const found = dlsym(cuda_, name);
  if (found == NULL) fprintf(stderr, "launch_client: no %s\n", name), exit(1);
  return found;
}

static void* by_version(const char* name, int version, uint64_t flags) {
  void *found = NULL, *second = NULL;
  int status = -1;
  GetV2 get = (GetV2)of_driver("cuGetProcAddress_v2");
  /* As CUDA's runtime does: it asks for the function that it asks with. */
  if (get("cuGetProcAddress", &second, 12000, 0, &status) != 0) exit(1);
  get = (GetV2)second;
  if (get(name, &found, version, flags, &status) != 0 || found == NULL) exit(1);
  return found;
}
static void* by_proc(const char* name, uint64_t flags) { return by_version(name, 12000, flags); }

static void launch(Launch function, const char* kernel, long times) {
  for (long i = 0; i < times; ++i)
    if (function((void*)kernel, 2, 3, 4, 32, 1, 1, 0, NULL, NULL, NULL) != 0) exit(1);
}

static void by_dlsym(void) { launch((Launch)of_driver("cuLaunchKernel"), "gemm", count_); }
static void by_get_proc(void) {
  launch((Launch)by_proc("cuLaunchKernel", 0), "gemm", count_);
  launch((Launch)by_proc("cuLaunchKernel", 2), "norm", count_ / 2);
}
static void by_old_get_proc(void) {
  void* found = NULL;
  if (((Get)of_driver("cuGetProcAddress"))("cuLaunchKernel", &found, 11030, 0) != 0) exit(1);
  launch((Launch)found, "gemm", count_);
}
static void by_config(void) {
  const Config config = {5, 1, 1, 64, 1, 1, 0, (void*)0x77, NULL, 0};
  const LaunchEx function = (LaunchEx)by_proc("cuLaunchKernelEx", 0);
  for (long i = 0; i < count_; ++i)
    if (function(&config, "triton", NULL, NULL) != 0) exit(1);
}
static void graphs(void) {
  void* made = NULL;
  if (((MakeGraph)by_proc("cuGraphInstantiateWithFlags", 0))(&made, (void*)40, 0) != 0) exit(1);
  const LaunchGraph function = (LaunchGraph)by_proc("cuGraphLaunch", 0);
  for (long i = 0; i < count_; ++i)
    if (function(made, NULL) != 0) exit(1);
}
/* Asked for by each name and of each version that there was: CUDA 10 and 11 had other parameters.
 */
static void made_in_each_way(void) {
  const LaunchGraph run = (LaunchGraph)by_proc("cuGraphLaunch", 0);
  const MakeGraphV2 old[] = {(MakeGraphV2)of_driver("cuGraphInstantiate"),
                             (MakeGraphV2)of_driver("cuGraphInstantiate_v2"),
                             (MakeGraphV2)by_version("cuGraphInstantiate", 10000, 0),
                             (MakeGraphV2)by_version("cuGraphInstantiate", 11040, 0)};
  void *made = NULL, *wrong = NULL;
  char log[8];
  for (int i = 0; i < 4; ++i)
    if (old[i](&made, (void*)40, &wrong, log, sizeof log) != 0 || run(made, NULL) != 0) exit(1);
  if (((MakeGraph)by_proc("cuGraphInstantiate", 0))(&made, (void*)40, 0) != 0) exit(1);
  if (run(made, NULL) != 0) exit(1);
}
/* As a server does: parts of a model, of one of 33 numbers of nodes, for each size of a batch; then
 * as a program that makes its graph anew for each step. */
static void many_graphs(void) {
  enum { MADE = 3000, STEPS = 60000 };
  static void* made[MADE];
  const MakeGraph make = (MakeGraph)by_proc("cuGraphInstantiateWithFlags", 0);
  const LaunchGraph run = (LaunchGraph)by_proc("cuGraphLaunch", 0);
  const One destroy = (One)by_proc("cuGraphExecDestroy", 0);
  for (int i = 0; i < MADE; ++i) make(&made[i], (void*)(uintptr_t)(10 + i % 33), 0);
  for (int i = 0; i < MADE; ++i) run(made[i], NULL);
  by_dlsym();
  for (int i = 0; i < MADE; ++i) destroy(made[i]);
  for (int i = 0; i < STEPS; ++i) {
    /* Of addresses that are not used again at once. */
    void** const step = &made[i % 1000];
    if (i >= 1000) destroy(*step);
    make(step, (void*)90, 0);
    run(*step, NULL);
  }
}
/* What is captured is launched by the graph alone. */
static void captured(void) {
  void *const stream = (void*)0x1234, *graph = NULL, *made = NULL;
  const Launch kernel = (Launch)by_proc("cuLaunchKernel", 0);
  const Up up = (Up)by_proc("cuMemcpyHtoDAsync", 0);
  by_dlsym();
  if (((int (*)(void*, int))by_proc("cuStreamBeginCapture", 0))(stream, 0) != 0) exit(1);
  for (int i = 0; i < 7; ++i) kernel("gemm", 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
  up(0, "", 1, stream);
  kernel("gemm", 1, 1, 1, 1, 1, 1, 0, (void*)0x99, NULL, NULL); /* another stream's is done */
  const LaunchGraph end = (LaunchGraph)by_proc("cuStreamEndCapture", 0);
  if (end((void*)0x99, (void**)&graph) == 0 || end(stream, (void**)&graph) != 0) exit(1);
  const uint64_t asked = ((uint64_t(*)(void))of_driver("stub_asked_of_captures"))();
  if (((MakeGraph)by_proc("cuGraphInstantiate", 0))(&made, graph, 0) != 0) exit(1);
  ((LaunchGraph)by_proc("cuGraphLaunch", 0))(made, stream);
  kernel("gemm", 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
  /* Nobody asks a driver that captures nothing. */
  if (asked != ((uint64_t(*)(void))of_driver("stub_asked_of_captures"))()) exit(1);
}
static void on_many_devices(void) {
  struct {
    void* function;
    unsigned grid[3], block[3], shared_bytes;
    void *stream, **parameters;
  } each[] = {{"whole", {5, 1, 1}, {1, 1, 1}, 0, (void*)3, NULL},
              {"whole", {5, 1, 1}, {1, 1, 1}, 0, (void*)1, NULL}};
  by_dlsym();
  if (((int (*)(void*, unsigned, unsigned))by_proc("cuLaunchCooperativeKernelMultiDevice", 0))(
          each, 2, 0) != 0)
    exit(1);
  ((int (*)(void*, int, int))of_driver("cuLaunchGrid"))("old", 6, 7);
}
static void waits(void) {
  by_dlsym();
  for (long i = 0; i < 3; ++i) ((One)by_proc("cuStreamSynchronize", 0))(NULL);
  ((None)by_proc("cuCtxSynchronize", 2))(); /* which has no second form */
  for (long i = 0; i < 7; ++i) ((Up)by_proc("cuMemcpyHtoDAsync", 0))(0, "", 1, NULL);
}
static void copies(void) {
  typedef int (*Across)(uint64_t, uint64_t, size_t, void*);
  const Across function = (Across)by_proc("cuMemcpyDtoDAsync", 0);
  for (long i = 0; i < count_; ++i)
    if (function(0, 0, 4096, NULL) != 0) exit(1);
}
/* Copies of 64 x 8 (x 2) bytes and sets of 512 bytes on the device; three copies are of the host's.
 */
static void memory(void) {
  typedef int (*Copy)(const void*, void*);
  struct {
    size_t x, y;
    unsigned memory;
    const void* host;
    uint64_t device;
    void* array;
    size_t pitch;
  } plane[2] = {{.memory = 2}, {.memory = 3}};
  struct {
    char sides[sizeof plane];
    size_t width, height;
  } copy = {.width = 64, .height = 8};
  struct {
    size_t x, y, z, level;
    unsigned memory;
    const void* host;
    uint64_t device;
    void *array, *context;
    size_t pitch, height;
  } body[2] = {{.memory = 2}, {.memory = 2}};
  struct {
    char sides[sizeof body];
    size_t width, height, depth;
  } copy_3d = {.width = 64, .height = 8, .depth = 2};
  int wrong = 0;
  by_dlsym();
  for (int i = 0; i < 4; ++i) {
    if (i > 0) plane[1].memory = 1;
    memcpy(copy.sides, plane, sizeof plane);
    wrong |= ((Copy)by_proc("cuMemcpy2DAsync", 0))(&copy, NULL);
  }
  memcpy(copy_3d.sides, body, sizeof body);
  wrong |= ((Copy)by_proc("cuMemcpy3DPeerAsync", 0))(&copy_3d, NULL);
  wrong |= ((int (*)(uint64_t, void*, uint64_t, void*, size_t, void*))by_proc(
      "cuMemcpyPeerAsync", 0))(0, NULL, 0, NULL, 512, NULL);
  wrong |=
      ((int (*)(uint64_t, unsigned, size_t, void*))by_proc("cuMemsetD32Async", 0))(0, 0, 128, NULL);
  wrong |= ((int (*)(uint64_t, size_t, unsigned char, size_t, size_t))by_proc("cuMemsetD2D8", 0))(
      0, 0, 0xab, 64, 8);
  if (wrong) exit(1);
}
static void refused(void) {
  ((void (*)(int))of_driver("stub_refuse"))(1);
  const Launch function = (Launch)of_driver("cuLaunchKernel");
  for (long i = 0; i < count_; ++i)
    if (function("gemm", 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) != 1) exit(1);
  ((void (*)(int))of_driver("stub_refuse"))(0);
  by_dlsym();
}
static void two_gpus(void) {
  ((One)of_driver("cuCtxSetCurrent"))((void*)3);
  by_dlsym();
  ((One)of_driver("cuCtxSetCurrent"))((void*)1);
  by_dlsym();
}
static void* thread(void* unused) {
  by_dlsym();
  return unused;
}
static void run_threads(int count) {
  pthread_t all[64];
  /* What others launch in the moment in which the first launch makes the page is not counted. */
  launch((Launch)of_driver("cuLaunchKernel"), "gemm", 1);
  for (int i = 0; i < count; ++i) pthread_create(&all[i], NULL, thread, NULL);
  for (int i = 0; i < count; ++i) pthread_join(all[i], NULL);
}
static void threads(void) { run_threads(8); }
static void crowd(void) {
  for (int i = 0; i < 5; ++i) run_threads(64);
}
/* Of addresses as a program's have: at random. */
static void kernels(int count) {
  enum { PLACES = 1 << 16 };
  static char names[PLACES][16];
  uint64_t random = (uint64_t)count_;
  for (int i = 0; i < count;) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    char* const name = names[(random >> 33) % PLACES];
    if (*name != '\0') continue;
    snprintf(name, sizeof names[0], "kernel%d", i++);
    launch((Launch)of_driver("cuLaunchKernel"), name, 10);
  }
}
static void many_kernels(void) { kernels(400); }
static void eighty_kernels(void) { kernels(80); }
static void in_a_child(void) {
  by_dlsym();
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    count_ = 7;
    by_dlsym();
    _exit(0);
  }
  waitpid(child, NULL, 0);
  by_dlsym();
}
static void collectives(void) {
  static const char kReduce[] =
      "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";
  launch((Launch)by_proc("cuLaunchKernel", 0), kReduce, 10);
  launch((Launch)by_proc("cuLaunchKernel", 0), "_Z16nvshmemi_barrieri", 1);
  launch((Launch)by_proc("cuLaunchKernel", 0), "nccy", 3);
  by_dlsym();
}
/* As a daemon does; what it opens next has the numbers of what it had. */
static void files_closed(void) {
  by_dlsym();
  closefrom(3);
  for (int i = 0; i < 80; ++i) (void)!dup(0);
  by_dlsym();
}

/* Runs for 3 s behind a filter that kills for every system call except those that docs/progress.md
 * lists and those that end this program. */
static void filtered(void) {
  static const unsigned kMay[] = {SYS_fstat, SYS_sendmsg, /* the library's */
                                  SYS_ppoll, SYS_write, SYS_exit_group};
  enum { MAY = sizeof kMay / sizeof *kMay, LONGEST = 2 * MAY + 2 };
  static char buffer[4096]; /* of what is printed at the end */
  struct sock_filter program[LONGEST] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0)};
  const struct sock_fprog filter = {LONGEST, program};
  const Launch function = (Launch)of_driver("cuLaunchKernel");
  setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
  launch(function, "gemm", count_);
  for (size_t i = 0; i < MAY; ++i) {
    program[1 + 2 * i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kMay[i], 0, 1);
    program[2 + 2 * i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }
  program[LONGEST - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    exit(77);
  for (int i = 0; i < 300; ++i) {
    launch(function, "gemm", 1024);
    (void)syscall(SYS_ppoll, NULL, 0, &(struct timespec){0, 10 * 1000 * 1000}, NULL, 0);
  }
}

static const struct {
  const char* name;
  void (*run)(void);
} kWays[] = {
    {"dlsym", by_dlsym},
    {"get-proc", by_get_proc},
    {"old-get-proc", by_old_get_proc},
    {"config", by_config},
    {"graphs", graphs},
    {"made-in-each-way", made_in_each_way},
    {"many-graphs", many_graphs},
    {"captured", captured},
    {"many-devices", on_many_devices},
    {"memory", memory},
    {"waits", waits},
    {"refused", refused},
    {"two-gpus", two_gpus},
    {"threads", threads},
    {"many", many_kernels},
    {"child", in_a_child},
    {"closed", files_closed},
    {"crowd", crowd},
    {"copies", copies},
    {"eighty", eighty_kernels},
    {"collectives", collectives},
    {"filtered", filtered},
};

int main(int count, char** arguments) {
  cuda_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (cuda_ == NULL || count < 2) return fprintf(stderr, "launch_client: %s\n", dlerror()), 1;
  if (count > 2) count_ = atol(arguments[2]);
  size_t way = 0;
  while (strcmp(arguments[1], kWays[way].name) != 0)
    if (++way == sizeof kWays / sizeof *kWays) return 2;
  kWays[way].run();
  static const char* const kCounts[] = {"stub_kernels", "stub_graphs", "stub_waits", "stub_copies"};
  for (int i = 0; i < 4; ++i)
    printf("%llu%c", ((unsigned long long (*)(void))of_driver(kCounts[i]))(), i < 3 ? ' ' : '\n');
  return 0;
}
