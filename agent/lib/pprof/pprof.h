/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pprof: a profile as others write it -> profiles of a batch, one for each type of its samples that
 * podflame knows and each set of its samples' labels. The bytes may be hostile: every size, index
 * and id is checked. The format: github.com/google/pprof proto/profile.proto.
 */
#pragma once

#include "lib/profile/profile.h"

#define PPROF_MAX_BYTES	  (4u << 20) /* of a profile, unpacked; Pyroscope's, as the next two */
#define PPROF_MAX_SAMPLES 16000
#define PPROF_MAX_LABELS  30	 /* of a sample */
#define PPROF_MAX_SETS	  1000	 /* distinct sets of labels of the samples of a profile */
#define PPROF_MAX_TYPES	  16	 /* types of the values of a profile */
#define PPROF_MAX_ROWS	  262144 /* of each table: strings, functions, locations, their lines */
#define PPROF_MAX_KEY	  1024	 /* bytes of a label's name */
#define PPROF_MAX_VALUE	  2048	 /* bytes of a label's value */

/* What the sender says about one type of values, beside the profile. */
struct pprof_type {
	const char *type;	  /* the type's name in the profile */
	const char *display_name; /* what it stands for: "mutex_count"; "": the type says it */
	bool cumulative;	  /* the values are sums since the process began */
};

/* What the reader knows of a profile, beside its bytes. All is borrowed. */
struct pprof_from {
	const char *path; /* the profile's field in the request, for errors */
	const char *name; /* what it is of: "process_cpu", "memory", "mutex"; "": not known */
	const struct pprof_type *types;
	size_t n_types;
	uint32_t sample_rate; /* samples in a second, if the profile has no period; 0: not known */
	uint64_t start_ns, end_ns; /* wall time; 0: what the profile says, or now */
	const char *app_service;
	const char *id; /* a text that is the same if, and only if, the profile is sent again */
	enum frame_kind kind; /* of functions; FRAME_APP: the name of their file decides */
	/*
	 * Makes a tag of a label, of each profile whose samples have it. Returns 0, or the error of
	 * the request with its reason in reterr.
	 */
	int (*label)(struct batch *b, struct profile *p, const char *key, const char *value,
		     void *arg, struct field_error *reterr);
	void *label_arg;
};
/*
 * Adds the profiles to b. Types that podflame does not know, and cumulative ones, are skipped:
 * counted in b->n_skipped, whose reason is "unsupported_type" or "cumulative". Samples are read
 * only if a type is kept. Two types that become one event are refused. -EBADMSG: reterr names the
 * bad field. -E2BIG: a limit is exceeded. After an error, b must not be stored.
 */
int pprof_decode(struct batch *b, const void *p, size_t n, const struct pprof_from *from,
		 struct field_error *reterr);
bool pprof_is_gzip(const void *p, size_t n);
bool pprof_is_utf8(const char *s);
