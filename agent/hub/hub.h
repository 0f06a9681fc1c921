/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hub: starts the parts of the hub: ingest, store, query, API and page, status controller,
 * certificate. In a cluster every connection is TLS and every request needs sign-in. `podflame
 * local` serves loopback only, without TLS and sign-in.
 */
#pragma once

#include "lib/conf/conf.h"
#include "lib/kube/kube.h"

struct hub;
struct hub_config {
	const struct config *conf; /* borrowed */
	/* for sign-in and the status of targets; NULL: there is no Kubernetes */
	struct kube *kube;
	bool local; /* serves loopback only, without sign-in; profiles arrive through hub_ingest */
};
int hub_new(struct loop *l, const struct hub_config *c, struct hub **ret,
	    struct field_error *reterr);
/*
 * Lets the hub finish what it has begun: it leads no longer, is not ready any more, and answers the
 * requests that it has. Then it calls stopped once, which may free it.
 */
void hub_stop(struct hub *h, void (*stopped)(void *arg), void *arg);
struct hub *hub_free(struct hub *h);
/*
 * Makes the tables of the configured store (store_migrate), and prints each statement to out; with
 * dry_run prints, and changes nothing.
 */
int hub_migrate(const struct config *conf, bool dry_run, FILE *out, struct field_error *reterr);
/*
 * Stores an OTLP request of an agent in the same process; returns 0 when it is stored. Waits, so it
 * must not run on the loop or on the writer. arg: struct hub *.
 */
int hub_ingest(const void *body, size_t n, void *arg);
/*
 * Makes the API answer GET of path with the JSON that fn(arg) returns. `podflame local` uses this
 * function for the agent's pages.
 */
void hub_debug(struct hub *h, const char *path, json_t *(*fn)(void *arg), void *arg);
/* the API's port; 0: not open yet (the hub waits for its certificate) */
uint16_t hub_api_port(const struct hub *h);

/*
 * For processes of their own. A hub may use the store that is read meanwhile. They wait, and log
 * how far they are. On failure *reterr (with reason "" before) says why.
 *
 * Copies what the hub keeps in data_dir, with store.kind sqlite, into the new directory `dir`: a
 * hub can start from it. Until it is whole and on the disk, its name is that and ".partial".
 */
int hub_backup(const struct config *conf, const char *dir, struct field_error *reterr);
/*
 * Copies what a hub keeps in `dir`, with store.kind sqlite, into the configured store. If it ends
 * before its end, the next call skips what is copied already.
 */
int hub_copy_from(const struct config *conf, const char *dir, struct field_error *reterr);
