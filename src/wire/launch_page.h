/* The page of counts of libderate_progress.so in a process, as it lies in memory: written by the
 * threads that launch, read by a process that has the page's file. Counts only grow; all are host
 * byte order.
 *
 * A GPU's counts are the sum of the rows with its UUID: a thread has a row of its own for each GPU
 * that it launches on, so that it can count without a lock, while there are rows left.
 *
 * A kernel is known by a hash of its name, a graph by one of how many nodes it has, so that the
 * same program has the same ids when it runs again. A table's last row, whose id is 0, counts the
 * kernels and graphs for which it has no row.
 *
 * A kernel that its name says to be a collective is marked: it is launched by each of the GPUs that
 * exchange something, and so as often on each. */
#pragma once

#include <stdint.h>

#define DERATE_LAUNCH_MAGIC "DRTL0001"
#define DERATE_LAUNCH_ROWS 32     /* a GPU of one thread, or of all threads that have no row */
#define DERATE_LAUNCH_SHARED 16   /* of them the first, which are of all threads */
#define DERATE_LAUNCH_KERNELS 128 /* of a row */
#define DERATE_LAUNCH_STREAMS 16  /* of a row */

#define DERATE_LAUNCH_COLLECTIVE (1ULL << 63) /* in `blocks`, which never come so far */

/* What `used` of a row says. */
#define DERATE_ROW_FREE 0
#define DERATE_ROW_FILLED 1 /* it is being filled */
#define DERATE_ROW_COUNTS 2

typedef struct {
  uint64_t id;       /* 0: not in use, or in the last row all others */
  uint64_t launches; /* that the driver has taken */
  uint64_t blocks;   /* thread blocks of them; of a graph, its nodes; and the mark */
} derate_launch_kernel;

typedef struct {
  uint64_t id; /* the stream's handle, scattered; no number of another process's */
  uint64_t launches;
} derate_launch_stream;

typedef struct {
  uint8_t uuid[16]; /* as NVML's; of a MIG instance, the instance's */
  uint64_t used;    /* DERATE_ROW_... */
  uint64_t waits;   /* for a stream, an event or all of a context */
  uint64_t copies;  /* between host and device */
  derate_launch_kernel kernels[DERATE_LAUNCH_KERNELS];
  derate_launch_stream streams[DERATE_LAUNCH_STREAMS];
} derate_launch_row;

typedef struct {
  char magic[8];
  uint32_t size; /* of all of it, bytes */
  uint32_t rows;
  int64_t pid; /* as the process itself knows it */
  uint64_t reserved[5];
  derate_launch_row rows_of[DERATE_LAUNCH_ROWS];
} derate_launch_page;
