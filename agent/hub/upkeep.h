/* SPDX-License-Identifier: Apache-2.0 */
/*
 * upkeep: what the hub does once a minute. The store deletes old profiles (on the writer), and
 * logs its errors; refused uploads of symbols that could not be deleted are tried again (on the
 * worker of uploads). Loop thread.
 */
#pragma once

#include "hub/leader.h"
#include "hub/store/store.h"
#include "hub/symbols/symbols.h"
#include "lib/loop/loop.h"

struct upkeep;
struct upkeep_config { /* all are borrowed */
	struct loop *loop;
	struct store *store;
	struct symbols *symbols; /* NULL: none are kept here */
	struct worker *writer, *uploads;
	const char *where; /* the place of the store, for the log */
	/*
	 * Of several hubs on one store, only the one that leads deletes profiles: two would delete
	 * too much. The store asks it, too, until the store is closed.
	 */
	struct leader *leader;
};
struct upkeep *hub_upkeep_new(const struct upkeep_config *c);
struct upkeep *hub_upkeep_free(struct upkeep *u);
