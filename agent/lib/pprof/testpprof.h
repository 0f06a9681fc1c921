/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: writes profiles in pprof's format, and wrong ones. */
#pragma once

#include "lib/base/base.h"

static inline void pb_number(struct buf *b, unsigned field, uint64_t v)
{
	buf_put_varint(b, field << 3);
	buf_put_varint(b, v);
}

static inline void pb_bytes(struct buf *b, unsigned field, const void *p, size_t n)
{
	buf_put_varint(b, field << 3 | 2);
	buf_put_varint(b, n);
	buf_add(b, p, n);
}

static inline void pb_text(struct buf *b, unsigned field, const char *s)
{
	pb_bytes(b, field, s, strlen(s));
}

/* Adds a message of numbers: fields 1, 2, ... until -1; 0 is left out. */
static inline void pb_numbers(struct buf *b, unsigned field, const int64_t *values)
{
	_cleanup_buf_ struct buf m = {0};

	for (unsigned i = 0; values[i] != -1; i++)
		if (values[i])
			pb_number(&m, i + 1, (uint64_t)values[i]);
	pb_bytes(b, field, m.data ? m.data : "", m.len);
}
#define PB_NUMBERS(b, field, ...) pb_numbers(b, field, (const int64_t[]){__VA_ARGS__, -1})

/* Adds a location with one line. */
static inline void pb_location(struct buf *b, int64_t id, int64_t mapping, int64_t address,
			       int64_t function, int64_t line)
{
	_cleanup_buf_ struct buf m = {0};

	pb_number(&m, 1, (uint64_t)id);
	if (mapping)
		pb_number(&m, 2, (uint64_t)mapping);
	pb_number(&m, 3, (uint64_t)address);
	if (function)
		PB_NUMBERS(&m, 4, function, line);
	pb_bytes(b, 4, m.data, m.len);
}

/* Adds a sample: ids of locations and values, each until 0, and a label unless its key is 0. */
static inline void pb_sample(struct buf *b, const int64_t *locations, const int64_t *values,
			     int64_t key, int64_t text)
{
	_cleanup_buf_ struct buf m = {0}, packed = {0};

	for (; *locations; locations++)
		buf_put_varint(&packed, (uint64_t)*locations);
	pb_bytes(&m, 1, packed.data ? packed.data : "", packed.len);
	for (; *values; values++)
		pb_number(&m, 2, (uint64_t)*values);
	if (key)
		PB_NUMBERS(&m, 3, key, text);
	pb_bytes(b, 2, m.data, m.len);
}

/* Adds the texts from `first` on, until NULL; the first text of a profile is "". */
static inline void pb_strings(struct buf *b, const char *const *texts)
{
	for (; *texts; texts++)
		pb_text(b, 6, *texts);
}

enum { S_CPU = 1, S_NS, S_SAMPLES, S_COUNT, S_MAIN, S_WORK, S_FILE, S_EXE, S_KEY, S_VALUE };
static const char *const pb_texts[] = {"",	   "cpu",	"nanoseconds", "samples",
				       "count",	   "main.main", "main.work",   "/src/main.go",
				       "/app/exe", "handler",	"checkout",    NULL};

/* A CPU profile of Go: main.main calls main.work; 30 ms, of which 10 with handler=checkout. */
static inline void pb_cpu_profile(struct buf *b)
{
	PB_NUMBERS(b, 1, S_SAMPLES, S_COUNT);
	PB_NUMBERS(b, 1, S_CPU, S_NS);
	pb_sample(b, (const int64_t[]){2, 1, 0}, (const int64_t[]){2, 20000000, 0}, 0, 0);
	pb_sample(b, (const int64_t[]){2, 1, 0}, (const int64_t[]){1, 10000000, 0}, S_KEY, S_VALUE);
	PB_NUMBERS(b, 3, 1, 0x400000, 0x500000, 0, S_EXE);
	pb_location(b, 1, 1, 0x401000, 1, 12);
	pb_location(b, 2, 1, 0x402000, 2, 34);
	PB_NUMBERS(b, 5, 1, S_MAIN, S_MAIN, S_FILE, 10);
	PB_NUMBERS(b, 5, 2, S_WORK, S_WORK, S_FILE, 30);
	pb_strings(b, pb_texts);
	PB_NUMBERS(b, 11, S_CPU, S_NS);
	pb_number(b, 12, 10000000);
}
