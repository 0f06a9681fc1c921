/* SPDX-License-Identifier: Apache-2.0 */
/*
 * no_room: writes into the status of a target that the hub has no room for it. The hub does not
 * keep such a target, so it has no row and no other status. Loop thread.
 */
#pragma once

#include "lib/kube/kube.h"

struct no_room;
/* may_write: asked before each write; while it says no, the writes wait. */
struct no_room *status_no_room_new(struct loop *l, struct kube *k, bool (*may_write)(void *arg),
				   void *arg);
/* The answers to writes that are under way are ignored. */
struct no_room *status_no_room_free(struct no_room *n);
/*
 * To be called for each target that has arrived and has no room. path: of its status in the API.
 * Its status is written, unless it says so already.
 */
void status_no_room_tell(struct no_room *n, const json_t *target, const char *path);
/* The target has room: what was not written yet is dropped. */
void status_no_room_forget(struct no_room *n, const char *uid);
