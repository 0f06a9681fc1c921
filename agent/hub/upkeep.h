/* SPDX-License-Identifier: Apache-2.0 */
/*
 * upkeep: has the store delete old profiles once a minute, and logs its errors. Loop thread; the
 * deletion runs on the writer.
 */
#pragma once

#include "hub/leader.h"
#include "hub/store/store.h"
#include "lib/loop/loop.h"

struct upkeep;
/*
 * All are borrowed. where: the place of the store, for the log. Of several hubs on one store, only
 * the one that leads deletes: two would delete too much.
 */
struct upkeep *hub_upkeep_new(struct loop *l, struct store *store, struct worker *writer,
			      const char *where, struct leader *leader);
struct upkeep *hub_upkeep_free(struct upkeep *u);
