/* The file that the counts are in, and how Derate comes by it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Whether DERATE_PROGRESS says off. */
bool derate_is_switched_off(void);

/* A file in memory of that size, zero, mapped; it cannot shrink or grow. NULL: there is none. What
 * a child has of its parent's is closed. */
void* derate_make_page(size_t size);

/* Sends the file to who listens for it; never waits. Nobody: nothing happens. System calls: fstat,
 * sendmsg, and clock_gettime where the kernel's own object has none. */
void derate_announce_page(void);
/* The same, if a minute has gone by: Derate may have been started anew. Where there was no room for
 * it, as in a flood of others, it is tried again after 1, 2, 4, ... 60 s. */
void derate_announce_page_again(void);

/* Of freestanding.c: sendmsg(2) whose error is told as -errno, and the seconds of the time of day,
 * which the kernel's own object has where `now` is its function (NULL: there is none). */
long derate_send_message(int socket_, const void* message, int flags);
long derate_seconds_now(int (*now)(int clock, void* time));
