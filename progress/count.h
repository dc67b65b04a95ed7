/* The counts of this process's launches, and the page that they are on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the driver is asked, of its own functions; each may be NULL, where it has none. */
typedef struct {
  int (*device_of_context)(int* device);             /* cuCtxGetDevice */
  int (*uuid_of_device)(void* uuid, int device);     /* cuDeviceGetUuid(_v2) */
  int (*name_of_function)(const char** name, void*); /* cuFuncGetName, of CUDA 12.3 on */
  int (*name_of_kernel)(const char** name, void*);   /* cuKernelGetName */
  int (*nodes_of_graph)(void* graph, void* nodes, size_t* count); /* cuGraphGetNodes */
  int (*capture_of_stream)(void* stream, int* state);             /* cuStreamIsCapturing */
} derate_driver_calls;

/* Makes the page, where this process has none: what is launched meanwhile by other threads is not
 * counted, so this is for before the first launch. */
void derate_begin_counting(void);

/* A kernel on the current context's device that the driver has taken. No lock, no memory, no
 * failure: what cannot be counted is not. `driver` is asked of what is met for the first time. */
void derate_count_launch(const derate_driver_calls* driver, void* function, void* stream,
                         uint64_t blocks);
/* `executable` was made of `graph`, whose nodes are what a launch of it is worth; it will be
 * destroyed. */
void derate_note_graph(const derate_driver_calls* driver, void* executable, void* graph);
void derate_forget_graph(void* executable);
/* A graph that was launched. */
void derate_count_graph(const derate_driver_calls* driver, void* executable, void* stream);
/* A stream's work goes into a graph from now on, and is not done, or does so no longer. */
void derate_note_capture(bool begins);
void derate_count_wait(const derate_driver_calls* driver);
/* Between host and device. */
void derate_count_copy(const derate_driver_calls* driver, void* stream);
/* What the device does within its memory, which is work as a kernel's is: `bytes` for blocks. */
typedef enum { DERATE_COPY, DERATE_MEMSET } derate_memory_work;
void derate_count_memory(const derate_driver_calls* driver, derate_memory_work work, void* stream,
                         uint64_t bytes);
