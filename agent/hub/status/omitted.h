/* SPDX-License-Identifier: Apache-2.0 */
/*
 * omitted: which targets may be missing in reports. A report is full if it has no room for all
 * targets of its node. And an agent may have no room for all targets of a namespace.
 */
#pragma once

#include "lib/kube/kube.h"

struct omitted; /* a hash table by namespace; NULL: empty */

/*
 * was, is: a report before and after a change; NULL: it did not exist or was deleted. Returns
 * whether the answer of status_omitted_may_be() has changed for some target.
 */
bool status_omitted_update(struct omitted **all, const json_t *was, const json_t *is);
/* Whether a target of this namespace may be missing in a report. "": a cluster-wide target. */
bool status_omitted_may_be(const struct omitted *all, const char *ns);
/* Returns how many objects of this namespace the watch of targets leaves out. */
size_t status_omitted_here(const struct kube_watch *targets, const char *ns);
void status_omitted_done(struct omitted **all);
