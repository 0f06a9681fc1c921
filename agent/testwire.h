/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: the way of a window from the spool to the store, in one process: spool -> send ->
 * ingest -> store. Include it after cmocka.h.
 */
#pragma once

#include "hub/ingest/ingest.h"
#include "node/send/send.h"

struct wire {
	struct loop *loop;
	struct worker *disk, *writer;
	struct store *store;
	struct ingest *ingest;
	struct http_server *server;
	struct sender *sender;
};

static inline void wire_make(struct wire *w, const struct store_config *stored,
			     const char *spool_dir, uint64_t spool_bytes)
{
	struct ingest_config ic = {0};
	struct http_server_config hc = {.address = "127.0.0.1",
					.max_body_bytes = OTLP_MAX_BYTES,
					.head = ingest_http_head,
					.handler = ingest_http};
	struct send_config sc = {.spool_dir = spool_dir,
				 .spool_max_bytes = spool_bytes,
				 .user_agent = "podflame-test"};
	_cleanup_free_ char *url = NULL;

	assert_int_equal(loop_new(&w->loop), 0);
	assert_int_equal(worker_new(w->loop, "disk", 64u << 20, &w->disk), 0);
	assert_int_equal(worker_new(w->loop, "writer", 64u << 20, &w->writer), 0);
	assert_int_equal(store_open(stored, &w->store, NULL), 0);
	ic.store = w->store;
	ic.writer = w->writer;
	assert_int_equal(ingest_new(w->loop, &ic, &w->ingest), 0);
	hc.arg = w->ingest;
	assert_int_equal(http_server_new(w->loop, &hc, &w->server, NULL), 0);
	sc.url = url = xasprintf("http://127.0.0.1:%u", http_server_port(w->server));
	sc.disk = w->disk;
	assert_int_equal(send_new(w->loop, &sc, &w->sender, NULL), 0);
}

static inline void wire_free(struct wire *w)
{
	send_free(w->sender);
	http_server_free(w->server);
	worker_free(w->disk);
	worker_free(w->writer);
	ingest_free(w->ingest);
	loop_free(w->loop);
	store_close(w->store);
}
