/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding: messages (decode.c), their dictionary (decode_dict.c), resources (decode_resource.c),
 * the event of a profile (decode_event.c) and the attributes of samples (decode_sample.c).
 */
#pragma once

#include "lib/otlp/internal.h"

#include <openssl/sha.h>

/* limit of the values of tags and labels, and of the names of a thread and a process */
#define MAX_TAG_BYTES 4096

/*
 * A checked attribute. Its value is `text`, or `number` (is_number), or a bool (is_bool). An
 * attribute of another type has none of them.
 */
struct attr {
	const char *key, *text;
	int64_t number;
	bool is_number, is_bool;
	/* for rows of the attribute table: the label whose value it is; _LABEL_MAX: none */
	enum profile_label label;
};

struct decoder {
	const uint8_t *bytes;
	size_t n_bytes;
	/* hash of the request in hex; "" until a profile needs it */
	char digest[2 * SHA256_DIGEST_LENGTH + 1];
	struct field_error *err;
	struct pool pool; /* the unpacked messages and other memory of this request */
	struct batch *batch;
	const Otlp__ProfilesDictionary *dict;
	const char **strings; /* texts of the batch, valid UTF-8; attrs refer to the same texts */
	struct attr *attrs;
	/* the frames of each location; NULL before a stack first uses the location */
	const struct frame ***locations;
	/* the index of each stack in the batch; STACK_TODO before a sample first uses the stack */
	uint32_t *stacks;
	/* of each location and each stack that was used: see otlp_language_of_type() */
	uint8_t *location_languages, *stack_languages;
	size_t n_profiles, n_samples, n_frames, n_tags, n_losses;
	/* the event's name in the attributes of the profile that is being read */
	const char *attr_event;
};

#define MAX_RESOURCE_TAGS 256 /* tags of one resource; a request with more is refused */
/* What all profiles of one resource have in common. */
struct decode_resource {
	const char *app_service;
	uint32_t process_id;
	uint64_t process_start_ns;
	struct tag tags[MAX_RESOURCE_TAGS];
	size_t n_tags;
	unsigned owner_rank;
};

/* A profile of the batch, while its samples are read. */
struct made_profile {
	struct profile *profile;
	uint8_t language; /* of its samples so far: see otlp_language_of_type() */
	struct made_profile *next;
};
/*
 * One profile of the request. If its samples are of several processes, it becomes several profiles
 * of the batch.
 */
struct otlp_reading {
	struct decoder *d;
	const struct decode_resource *resource;
	const Otlp__ScopeProfiles *scope;
	bool scope_has_time; /* one of its profiles is of CPU or wall time itself */
	const Otlp__Profile *in;
	const char *path;
	const char *producer; /* of a foreign profile */
	/*
	 * what all profiles of the batch have in common that are made from this one; without
	 * samples
	 */
	struct profile base;
	/* factor from a value to the event's unit; 0: values are counts of samples */
	double to_unit;
	struct made_profile *made; /* all; memory of the pool */
	struct made_profile *unsplit;
	struct ids processes; /* row: one of made */
};

/*
 * The attributes of one sample. Process, exe and container choose the profile to which the sample
 * is added.
 */
struct decode_sample {
	const char *thread, *process_comm, *exe, *container, *wait;
	uint32_t pid;
	bool main_thread;
	int32_t cpu;
	int64_t count; /* cpu and count: -1 if the sample has no such attribute */
	struct profile_labels labels;
};

/* Records the error and returns it. */
int otlp_decode_wrong(struct decoder *d, int error, const char *path, const char *fmt, ...)
	_printf_(4, 5);

/* Checks all rows of all tables. dict NULL: the dictionary is empty. */
int otlp_decode_dictionary(struct decoder *d, const Otlp__ProfilesDictionary *dict);
/* path: the field that contains the index, for errors. */
int otlp_decode_string(struct decoder *d, int32_t index, const char *path, const char **ret);
int otlp_decode_attr(struct decoder *d, int32_t index, const char *path, const struct attr **ret);
int otlp_decode_value(struct decoder *d, const Otlp__AnyValue *v, const char *path,
		      struct attr *ret);
int otlp_decode_stack(struct decoder *d, int32_t index, const char *path, uint32_t *ret);
/* The language of a stack that otlp_decode_stack() has found: see otlp_language_of_type(). */
uint8_t otlp_decode_stack_language(const struct decoder *d, int32_t index);
/*
 * Returns a link of the batch in *ret. *ret is 0 if the link has no ids. It is also 0 if there are
 * more than BATCH_MAX_LINKS links, which is counted.
 */
int otlp_decode_link(struct decoder *d, int32_t index, const char *path, uint32_t *ret);
int otlp_decode_sample(struct decoder *d, const Otlp__Sample *in, const char *path,
		       struct decode_sample *ret);
/* The caller has zeroed *ret. */
int otlp_decode_resource(struct decoder *d, size_t index, const Otlp__Resource *in,
			 struct decode_resource *ret);

/* ---- decode_event.c ---- */
/*
 * Reads event, unit and period into rd->base. Returns 1 if the profile is left out, which is
 * counted: this version does not know the event, the values have no unit, or they are in another
 * profile of the scope, too.
 */
int otlp_decode_event(struct otlp_reading *rd);
/* Whether the scope has a profile of type cpu or wall whose values can be told as time. */
bool otlp_scope_has_time(const struct decoder *d, const Otlp__ScopeProfiles *scope);
/* Whether the values are times that may also come as counts of the period. */
bool otlp_is_timed(enum event e);
