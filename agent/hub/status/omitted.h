/* SPDX-License-Identifier: Apache-2.0 */
/* omitted: which targets may be missing in reports that have no room for all of theirs. */
#pragma once

#include "lib/kube/kube.h"

struct omitted; /* by namespace; NULL: none */

/*
 * A report before and after a change; NULL: none. true: status_omitted_may_be() of some target has
 * another answer.
 */
bool status_omitted_update(struct omitted **all, const json_t *was, const json_t *is);
/* Of a namespace; "": cluster-wide targets. */
bool status_omitted_may_be(const struct omitted *all, const char *ns);
void status_omitted_done(struct omitted **all);
