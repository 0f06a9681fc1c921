/* SPDX-License-Identifier: Apache-2.0 */
/* Private to why/: a list of reasons. */
#pragma once

#include "hub/why/why.h"

/*
 * Appends a reason, and returns it (borrowed) for more members. Takes ownership of text and of
 * command, which may be NULL.
 */
json_t *why_add(json_t *list, const char *reason, char *text, char *command);
/* Whether the name is one that Kubernetes allows, so that a command line may contain it. */
bool why_is_name(const char *name);
/*
 * Whether the answer may be about the namespace; NULL: about the whole cluster. The one place that
 * decides it: a user who may not read all namespaces is told nothing of the others.
 */
bool why_may_tell(const struct why_question *q, const char *ns);
