/* The file that the counts are in, and how Derate comes by it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Whether DERATE_PROGRESS says off. */
bool derate_is_switched_off(void);

/* A file in memory of that size, zero, mapped; it cannot shrink or grow. NULL: there is none. What
 * a child has of its parent's is closed. */
void* derate_make_page(size_t size);

/* Sends the page's file to the listening process, if there is one; never waits. System calls:
 * fstat, sendmsg, and clock_gettime if the vDSO has none. */
void derate_announce_page(void);
/* Sends it again once a minute, as Derate may have been restarted. If the socket's queue was full,
 * as in a flood, it sends after 1, 2, 4, ... 60 s. */
void derate_announce_page_again(void);

/* In freestanding.c: sendmsg(2) that returns -errno on errors, and the time of day in seconds.
 * `now` is the vDSO's function; NULL if it has none. */
long derate_send_message(int socket_, const void* message, int flags);
long derate_seconds_now(int (*now)(int clock, void* time));
