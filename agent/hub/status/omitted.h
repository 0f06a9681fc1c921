/* SPDX-License-Identifier: Apache-2.0 */
/* Whose targets may be missing in reports that have no room for all of theirs. */
#pragma once

#include "lib/kube/kube.h"

struct omitted; /* by namespace; NULL: none */

/* ns: whose answer was none and is some, or the other way round; "" of cluster-wide targets, NULL: everybody's. */
typedef void omitted_fn(const char *ns, void *arg);

/* A report as it was and as it is; NULL: none. */
void omitted_update(struct omitted **all, const json_t *was, const json_t *is, omitted_fn *changed,
		    void *arg);
/* In how many reports targets of a namespace may be missing; "": cluster-wide ones. */
unsigned omitted_reports(const struct omitted *all, const char *ns);
void omitted_done(struct omitted **all);
