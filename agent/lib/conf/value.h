/* SPDX-License-Identifier: Apache-2.0 */
/* value: the text of a key's value, checked. */
#pragma once

#include "lib/conf/conf.h"

bool conf_is_choice(const char *choices, const char *value); /* choices: "a|b" */
int conf_bytes(const char *s, uint64_t *ret);		     /* "256Mi" */
int conf_duration(const char *s, uint64_t max_seconds, uint64_t *ret_ns);
bool conf_is_link(const char *s);
