/* SPDX-License-Identifier: Apache-2.0 */
/* See table.h. */
#include "hub/status/table.h"

#include <stdlib.h>

struct status_row *status_row_find(struct status_row *all, const char *uid)
{
	struct status_row *t;

	HASH_FIND_STR(all, uid, t);
	return t;
}

struct status_row *status_row_find_or_add(struct status_row **all, const char *uid)
{
	struct status_row *t = status_row_find(*all, uid);

	if (t)
		return t;
	t = xcalloc(1, sizeof(*t));
	t->uid = xstrdup(uid);
	HASH_ADD_KEYPTR(hh, *all, t->uid, strlen(t->uid), t);
	return t;
}

void status_row_move_last(struct status_row **all, struct status_row *t)
{
	HASH_DEL(*all, t);
	HASH_ADD_KEYPTR(hh, *all, t->uid, strlen(t->uid), t);
}

void status_row_forget_written(struct status_row *t)
{
	json_decref(t->written);
	free(t->written_rv);
	t->written = NULL;
	t->written_rv = NULL;
}

void status_row_forget_object(struct status_row *t)
{
	json_decref(t->object);
	free(t->path);
	status_row_forget_written(t);
	t->object = NULL;
	t->path = NULL;
	t->dirty = t->pending = false;
}

static void heard_free(struct status_row *t, struct heard *h)
{
	HASH_DEL(t->heard, h);
	free(h->node);
	json_decref(h->entry);
	free(h);
}

void status_row_free(struct status_row **all, struct status_row *t)
{
	struct heard *h, *next;

	HASH_ITER (hh, t->heard, h, next)
		heard_free(t, h);
	status_row_forget_object(t);
	HASH_DEL(*all, t);
	free(t->uid);
	free(t);
}

void status_row_drop_if_unused(struct status_row **all, struct status_row *t)
{
	if (!t->object && !t->heard && !t->in_flight)
		status_row_free(all, t);
}

bool status_row_hear(struct status_row *t, const char *node, const json_t *entry)
{
	json_t *named = json_copy((json_t *)entry);
	struct heard *h;

	json_object_set_new(named, "node", json_string(node));
	HASH_FIND_STR(t->heard, node, h);
	if (h && json_equal(h->entry, named)) {
		/*
		 * The entries are equal. The new one shares its members with the report that the
		 * hub keeps, so keeping the new one saves memory.
		 */
		json_decref(h->entry);
		h->entry = named;
		return false;
	}
	if (!h) {
		h = xcalloc(1, sizeof(*h));
		h->node = xstrdup(node);
		HASH_ADD_KEYPTR(hh, t->heard, h->node, strlen(h->node), h);
	}
	if (json_int_at(h->entry, "generation", -1) != json_int_at(named, "generation", -1))
		h->seen_pod = false;
	json_decref(h->entry);
	h->entry = named;
	return true;
}

bool status_row_unhear(struct status_row *t, const char *node)
{
	struct heard *h;

	HASH_FIND_STR(t->heard, node, h);
	if (h)
		heard_free(t, h);
	return h != NULL;
}
