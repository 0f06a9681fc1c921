/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stop: how a hub that is to end finishes what it has begun. First it goes on to serve for a while,
 * because Kubernetes sends it new connections for a moment after it has told it to end. Then it
 * takes no new request, answers those that it has, and is done. Loop thread.
 */
#pragma once

#include "lib/loop/http.h"

#define HUB_STOP_SERVERS 2

struct hub_stop {
	struct loop *loop;
	struct http_server *servers[HUB_STOP_SERVERS]; /* borrowed; NULL: not open */
	uint64_t by_ns;				       /* CLOCK_MONOTONIC: it waits no longer */
	void (*done)(void *arg);
	void *arg;
	struct timer timer;
};
#define HUB_STOP_LIMIT_NS (15 * NSEC_PER_SEC) /* answers that take longer are not waited for */
/*
 * s: zeroed, but for the servers. serve_ns: how long it serves on. done is called once, later: when
 * all is answered, or after HUB_STOP_LIMIT_NS more.
 */
void hub_stop_begin(struct hub_stop *s, struct loop *l, uint64_t serve_ns, void (*done)(void *arg),
		    void *arg);
void hub_stop_cancel(struct hub_stop *s); /* does nothing if it has not begun, or is done */
