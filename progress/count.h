/* The counts of this process's launches, and the page that they are on. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* What the driver is asked, of its own functions; each may be NULL, where it has none. */
typedef struct {
  int (*device_of_context)(int* device);             /* cuCtxGetDevice */
  int (*uuid_of_device)(void* uuid, int device);     /* cuDeviceGetUuid(_v2) */
  int (*name_of_function)(const char** name, void*); /* cuFuncGetName, of CUDA 12.3 on */
  int (*name_of_kernel)(const char** name, void*);   /* cuKernelGetName */
  int (*nodes_of_graph)(void* graph, void* nodes, size_t* count); /* cuGraphGetNodes */
} derate_driver_calls;

/* Makes the page, where this process has none: what is launched meanwhile by other threads is not
 * counted, so this is for before the first launch. */
void derate_begin_counting(void);

/* A kernel on the current context's device that the driver has taken. No lock, no memory, no
 * failure: what cannot be counted is not. `driver` is asked of what is met for the first time. */
void derate_count_launch(const derate_driver_calls* driver, void* function, void* stream,
                         uint64_t blocks);
/* `executable` was made of `graph`, whose nodes are what a launch of it is worth. */
void derate_note_graph(const derate_driver_calls* driver, void* executable, void* graph);
/* A graph that was launched. */
void derate_count_graph(const derate_driver_calls* driver, void* executable, void* stream);
void derate_count_wait(const derate_driver_calls* driver);
void derate_count_copy(const derate_driver_calls* driver);
/* A copy within the device's memory, which is work as a kernel's is: `bytes` for blocks. */
void derate_count_device_copy(const derate_driver_calls* driver, void* stream, uint64_t bytes);
