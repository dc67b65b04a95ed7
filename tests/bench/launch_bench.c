/* What libderate_progress.so costs a launch, in blocks that are counted and blocks that are not, in
 * turn in one process, over a driver that does nothing. For people to run: it prints and judges
 * nothing.
 *
 *     launch_bench LIBRARY LIBCUDA [BLOCKS] */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef int (*Launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      void*, void**, void**);

enum { LAUNCHES = 200000, KERNELS = 40 };

static double nanoseconds_each(Launch launch) {
  static char kernels[KERNELS][16];
  struct timespec begin, end;
  if (kernels[0][0] == '\0')
    for (int i = 0; i < KERNELS; ++i) snprintf(kernels[i], sizeof kernels[i], "kernel%d", i);
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int i = 0; i < LAUNCHES; ++i)
    launch(kernels[i % KERNELS], 2, 3, 4, 32, 1, 1, 0, NULL, NULL, NULL);
  clock_gettime(CLOCK_MONOTONIC, &end);
  return ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) /
         LAUNCHES;
}

static int by_size(const void* a, const void* b) {
  const double left = *(const double*)a, right = *(const double*)b;
  return (left > right) - (left < right);
}

int main(int count, char** arguments) {
  if (count < 3) return fprintf(stderr, "launch_bench LIBRARY LIBCUDA [BLOCKS]\n"), 2;
  void* const driver = dlopen(arguments[2], RTLD_NOW | RTLD_GLOBAL);
  void* const counter = driver == NULL ? NULL : dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (counter == NULL) return fprintf(stderr, "launch_bench: %s\n", dlerror()), 1;
  const Launch plain = (Launch)dlsym(driver, "cuLaunchKernel");
  typedef void* (*Find)(void*, const char*);
  const Find find = (Find)dlsym(counter, "dlsym");
  const Launch counted = find == NULL ? NULL : (Launch)find(driver, "cuLaunchKernel");
  const int blocks = count > 3 ? atoi(arguments[3]) : 40;
  double* const more = malloc(sizeof(double) * (size_t)blocks);
  if (more == NULL || plain == NULL || counted == NULL || plain == counted || blocks < 1) return 1;
  double without = 0;
  for (int i = 0; i < blocks; ++i) {
    const double first = nanoseconds_each(plain);
    more[i] = nanoseconds_each(counted) - first;
    without += first / blocks;
  }
  qsort(more, (size_t)blocks, sizeof *more, by_size);
  printf(
      "%d kernels, %d pairs of blocks of %d launches: %.1f ns without; counting adds %.1f ns "
      "(median; 5 %% to 95 %%: %.1f to %.1f)\n",
      KERNELS, blocks, LAUNCHES, without, more[blocks / 2], more[blocks / 20],
      more[blocks - 1 - blocks / 20]);
  free(more);
  return 0;
}
