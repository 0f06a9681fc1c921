/* SPDX-License-Identifier: Apache-2.0 */
/* stores: what a hub keeps, and where, as its configuration says. Loop thread. */
#pragma once

#include "hub/forward/forward.h"
#include "hub/store/store.h"
#include "hub/symbols/symbols.h"
#include "lib/conf/conf.h"

struct hub_stores {
	struct store *store;
	struct forward *forward; /* NULL: this hub stores profiles itself */
	struct symbols *symbols; /* NULL with forward */
	int lock_fd;		 /* holds the lock on data_dir: only one hub may use it. -1: none */
};
struct hub_stores_config {
	const struct config *conf;
	bool local;		     /* `podflame local` */
	const char *own_cluster;     /* NULL: there is no Kubernetes */
	const char *const *clusters; /* the registered ones */
	size_t n_clusters;
};
/* The store of any kind but otlp; its texts are borrowed. It has no clusters yet. */
struct store_config hub_store_config(const struct config *conf);
/* The store has them if hubs share it, else data_dir has. */
int hub_stores_open_symbols(const struct config *conf, struct store *store, struct symbols **ret,
			    struct field_error *reterr);
/* *ret: what is open, also after an error. The caller closes it in each case. */
int hub_stores_open(struct loop *l, const struct hub_stores_config *c, struct hub_stores *ret,
		    struct field_error *reterr);
void hub_stores_close(struct hub_stores *s);
