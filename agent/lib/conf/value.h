/* SPDX-License-Identifier: Apache-2.0 */
/* value: checks the value of a key, converts it, and describes the allowed values. */
#pragma once

#include "lib/conf/conf.h"

#define MAX_STRING_BYTES 4096 /* bytes of one value; a longer one is refused */

enum type { STRING, BOOL, UINT, DURATION, BYTES, CHOICE, REGEX, URL, LINK, WARN };

struct key {
	const char *path;
	enum type type;
	size_t offset;
	const char *def;     /* the default, as a user would write it in the file */
	uint64_t min, max;   /* UINT: the number; DURATION: seconds; BYTES: MiB */
	const char *choices; /* CHOICE: "a|b" */
	const char *help;
};

/* the allowed values: "a number, 1 to 999" */
void conf_allowed(const struct key *k, char out[256]);
/*
 * Describes a value that stands where k's value should: "a list", "true without quotes". If it has
 * k's type, describes the value itself.
 */
void conf_describe(const struct key *k, const json_t *v, char out[128]);
bool conf_wants_text(const struct key *k);
bool conf_is_url(const char *s, struct field_error *reterr); /* reterr: "has a user name in it" */
bool conf_is_choice(const char *choices, const char *value); /* choices: "a|b" */
int conf_bytes(const char *s, uint64_t *ret);		     /* "256Mi" */
/*
 * Parses a duration. A number without a unit is in seconds, as in DeepFlow's files. But if the key
 * also allows less than one second (min_seconds 0), 0 is the only number that needs no unit.
 */
int conf_duration(const char *s, uint64_t min_seconds, uint64_t max_seconds, uint64_t *ret_ns);
bool conf_is_link(const char *s);
