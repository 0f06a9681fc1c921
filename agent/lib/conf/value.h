/* SPDX-License-Identifier: Apache-2.0 */
/* value: checks the value of a key, converts it, and says what it may be. */
#pragma once

#include "lib/conf/conf.h"

#define MAX_STRING_BYTES 4096

enum type { STRING, BOOL, UINT, DURATION, BYTES, CHOICE, REGEX, URL, LINK, WARN };

struct key {
	const char *path;
	enum type type;
	size_t offset;
	const char *def;     /* as it would be written */
	uint64_t min, max;   /* UINT: itself; DURATION: seconds; BYTES: MiB */
	const char *choices; /* CHOICE: "a|b" */
	const char *help;
};

void conf_allowed(const struct key *k, char out[256]); /* "a number, 1 to 999" */
/*
 * Describes the value in the place of k's value: "a list", "true without quotes"; if it has k's
 * type, the value itself.
 */
void conf_describe(const struct key *k, const json_t *v, char out[128]);
bool conf_wants_text(const struct key *k);
bool conf_is_url(const char *s, struct field_error *reterr); /* reterr: "has a user name in it" */
bool conf_is_choice(const char *choices, const char *value); /* choices: "a|b" */
int conf_bytes(const char *s, uint64_t *ret);		     /* "256Mi" */
/*
 * A number without a unit is in seconds, as in DeepFlow's files. If the key also allows less than
 * one second (min_seconds 0), only 0 is clear.
 */
int conf_duration(const char *s, uint64_t min_seconds, uint64_t max_seconds, uint64_t *ret_ns);
bool conf_is_link(const char *s);
