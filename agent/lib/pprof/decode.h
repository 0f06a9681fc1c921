/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding: the tables of a profile (decode.c), what its values are (types.c), its stacks
 * (stacks.c) and its samples (samples.c). Private to pprof/.
 */
#pragma once

#include "lib/pprof/pprof.h"
#include "lib/pprof/wire.h"

struct pprof_string {
	const uint8_t *p;
	uint32_t n;
	const char *text; /* interned in the batch; NULL: not used yet */
};
struct pprof_mapping {
	uint64_t id;
	uint64_t file; /* these, as all names here, are indexes into the table of strings */
};
struct pprof_function {
	uint64_t id, name, system_name, file;
	int64_t start_line;
};
struct pprof_line {
	uint64_t function; /* an id */
	int64_t line;
};
struct pprof_location {
	uint64_t id, mapping, address;
	size_t first_line, n_lines;
	const struct frame **frames; /* leaf first; NULL: no sample has used the location yet */
};

/* A type of values: what becomes of it. */
struct pprof_values {
	uint64_t type, unit;
	bool kept;
	enum event event;
	double factor; /* from a value to the event's unit */
};

struct pprof_decoder {
	struct batch *b;
	const struct pprof_from *from;
	struct field_error *err;
	struct pprof_wire all;
	struct pprof_string *strings;
	size_t n_strings, cap_strings;
	struct pprof_mapping *mappings;
	size_t n_mappings, cap_mappings;
	struct pprof_function *functions;
	size_t n_functions, cap_functions;
	struct pprof_location *locations;
	size_t n_locations, cap_locations;
	struct pprof_line *lines;
	size_t n_lines, cap_lines;
	struct pprof_values types[PPROF_MAX_TYPES], period_type;
	size_t n_types, n_samples;
	int64_t time_ns, duration_ns, period;
	uint64_t start_ns, end_ns, period_ns;
	struct pprof_set *sets; /* of labels */
	size_t n_frames;
};

/* Records the error and returns it. path: below the profile, "sample[3]"; "": the profile. */
int pprof_wrong(struct pprof_decoder *d, int error, const char *path, const char *fmt, ...)
	_printf_(4, 5);
/* The text is the batch's. */
int pprof_text(struct pprof_decoder *d, uint64_t index, const char *path, const char **ret);
/* Decides which types are kept, and sets their events and factors, the period and the time. */
int pprof_choose_types(struct pprof_decoder *d);
/* n ids of locations, leaf first. */
int pprof_stack(struct pprof_decoder *d, const uint64_t *ids, size_t n, const char *path,
		uint32_t *ret);
/* Reads all samples. */
int pprof_samples(struct pprof_decoder *d);
void pprof_samples_done(struct pprof_decoder *d);
/* The row with the id, of rows that are sorted by their first member; NULL: there is none. */
void *pprof_by_id(void *rows, size_t n, size_t size, uint64_t id);
