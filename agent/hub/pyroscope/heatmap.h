/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyroscope/heatmap: how many profiles had which value when: the slots of SelectHeatmap. No I/O.
 */
#pragma once

#include "lib/base/base.h"

struct pyroscope_writer;

#define PYROSCOPE_HEAT_ROWS 20

/*
 * The slots are at start_ms, start_ms + step_ms, ..., at most end_ms; each has what ended after the
 * one before it, the last one also what ended later. The rows are equal parts of the values from
 * least to greatest.
 */
struct pyroscope_heat {
	int64_t start_ms, end_ms, step_ms;
	int64_t least, greatest; /* least > greatest: there is no value yet */
};
#define PYROSCOPE_HEAT_EMPTY .least = INT64_MAX, .greatest = INT64_MIN
struct pyroscope_point {
	int64_t end_ms; /* of a profile */
	int64_t value;
};
/* Makes the rows reach over these values, too. */
void pyroscope_heat_widen(struct pyroscope_heat *h, const struct pyroscope_point *points, size_t n);
/* As the fields slots of a series: those in which a profile ended. */
void pyroscope_put_heat(struct pyroscope_writer *w, const struct pyroscope_heat *h,
			const struct pyroscope_point *points, size_t n);
