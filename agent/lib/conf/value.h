/* SPDX-License-Identifier: Apache-2.0 */
/* value: checks the value of a key, converts it, and describes the allowed values. */
#pragma once

#include "lib/conf/conf.h"

#define MAX_STRING_BYTES 4096 /* bytes of one value; a longer one is refused */
#define MAX_WORD_BYTES	 255  /* bytes of one entry of a list; a longer one is refused */

#define MAX_ENTRIES	 100  /* of one mapping of names to durations; more are refused */

enum type {
	STRING,
	BOOL,
	UINT,
	PERCENT,
	DURATION,
	BYTES,
	CHOICE,
	REGEX,
	URL,
	LINK,
	WORDS,
	DURATIONS,
	WARN
};

struct key {
	const char *path;
	enum type type;
	size_t offset;
	const char *def; /* the default, as a user would write it; WORDS: the word */
	/* UINT: the number; DURATION, DURATIONS: seconds; BYTES: MiB; WORDS: entries */
	uint64_t min, max;
	const char *choices; /* CHOICE: "a|b"; WORDS, DURATIONS: the same, or NULL: any word */
	const char *help;
};

extern const struct key conf_keys[]; /* keys.c */
extern const size_t conf_n_keys;

/* the allowed values: "a number, 1 to 999" */
#define ALLOWED_BYTES 320
void conf_allowed(const struct key *k, char out[ALLOWED_BYTES]);
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
/* A duration within k->min and k->max. */
bool conf_duration_of(const struct key *k, const char *s, uint64_t *ret_ns);
bool conf_percent(const char *s, double *ret); /* above 0, at most 100 */
/* Whether k, whose type is STRING, REGEX, URL or LINK, may have this text. */
bool conf_text_ok(const struct key *k, const char *s);
/*
 * Replaces *words with those of a list: texts that can stand in a command without quotes. NULL is
 * behind the last one. Returns false if the list is wrong. Then *ret_bad is the entry that is
 * wrong, or the list, and *words is as before.
 */
bool conf_set_words(char ***words, const struct key *k, const json_t *list,
		    const json_t **ret_bad);
/* Frees the words, and sets *words to NULL. */
void conf_words_done(char ***words);
/*
 * Adds an entry of a mapping. Returns false if it is wrong. Then *ret_bad_name says whether its
 * name is, or else its duration.
 */
bool conf_add_duration(struct conf_durations *d, const struct key *k, const char *name,
		       const json_t *duration, bool *ret_bad_name);
void conf_durations_done(struct conf_durations *d);
