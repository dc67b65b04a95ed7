/* The file that the counts are in, and how Derate comes by it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Whether DERATE_PROGRESS says off. */
bool derate_is_switched_off(void);

/* A file in memory of that size, zero, mapped; it cannot shrink or grow. NULL: there is none. What
 * a child has of its parent's is closed. */
void* derate_make_page(size_t size);

/* Sends the file to who listens for heartbeats; never waits. Nobody: nothing happens. */
void derate_announce_page(void);
/* The same, if a minute has gone by, as Derate may have been started anew; if that failed, after 1,
 * 2, 4 ... s up to a minute. */
void derate_announce_page_again(void);
